"""Programs of conversations; each call of `run` is one start of one, in a process of its own."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    ClaudeSDKError,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    query,
)

from caravanserai.claude_agent import WaypointClient, _local, resumable_query, with_waypoints
from caravanserai_core.errors import CaravanseraiError, StoreFailed
from caravanserai_core.stores import FileStore
from integration_tests.claude_agent import apps, jobs, places


async def _client(options: dict[str, Any], given: Any, found: dict[str, Any]) -> None:
    more = options.get("more", {})
    async with WaypointClient(given, run_id=options["run_id"], **more) as client:
        found["cut off"], found["waits"] = client.cut_off, client.waits
        for one in options["says"]:
            said, turn = one if isinstance(one, list) else (one, None)
            if said:
                await client.query(said, turn=turn)
            async for message in client.receive_response():
                if isinstance(message, ResultMessage):
                    found["results"].append(dataclasses.asdict(message))
        if options.get("second"):
            await _second(options, found)


async def _second(options: dict[str, Any], found: dict[str, Any]) -> None:
    try:
        async with WaypointClient(apps.options(), run_id=options["run_id"]):
            found["second"] = "connected"
    except CaravanseraiError as error:
        found["second"] = f"{type(error).__name__}: {error}"
    code = (
        "import sys\n"
        "from caravanserai.claude_agent import with_waypoints\n"
        "with_waypoints(run_id=sys.argv[1])\n"
    )
    other = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, options["run_id"]), stderr=asyncio.subprocess.PIPE
    )
    _, errors = await other.communicate()
    found["other process"] = errors.decode().strip().splitlines()[-1:]


async def _with(options: dict[str, Any], given: Any, found: dict[str, Any]) -> None:
    more = options.get("more", {})
    for said in options["says"]:
        kept = with_waypoints(given, run_id=options["run_id"], **more)
        async for message in query(prompt=said, options=kept):
            if isinstance(message, ResultMessage):
                found["results"].append(dataclasses.asdict(message))


async def _query(options: dict[str, Any], given: Any, found: dict[str, Any]) -> None:
    for said in options["says"]:
        async for message in resumable_query(
            prompt=said, run_id=options["run_id"], options=given, **options.get("more", {})
        ):
            if isinstance(message, ResultMessage):
                found["results"].append(dataclasses.asdict(message))


async def _seen(given: Any, _id: str | None, _context: Any) -> dict[str, Any]:
    places.note(f"hook {given['hook_event_name']}")
    return {}


async def _may(tool: str, given: dict[str, Any], _context: Any) -> Any:
    places.note(f"may {tool} {given.get('n')}")
    if given.get("n") == 2:
        return PermissionResultDeny(message="Customer two is not charged.")
    return PermissionResultAllow()


def _fill_the_disk(place: str) -> None:
    """Let nothing more be written from the moment on at which a tool's call is to begin."""
    real = FileStore.append

    def append(self: FileStore, run_id: str, *args: Any, **more: Any) -> Any:
        if _begins[0] > int(place.split()[1]) - 1:
            raise StoreFailed("no space left on device")
        return real(self, run_id, *args, **more)

    FileStore.append = append  # type: ignore[method-assign]


def _lose_the_file() -> None:
    """Let the CLI's own file go at the moment at which it was found to be the newest."""
    real = _local.take_over

    def take_over(run_id: str, session: str, given: Any, kept: Any) -> Any:
        found = real(run_id, session, given, kept)
        for file in _local.config_folder(given).glob(f"projects/*/{session}.jsonl"):
            file.unlink()
        return found

    _local.take_over = take_over


async def _count(_given: Any, _id: str | None, _context: Any) -> dict[str, Any]:
    _begins[0] += 1
    return {}


_begins = [0]


def run(environment: dict[str, str], options: dict[str, Any]) -> int:
    """Say some things in a conversation, or in a job; what came of it goes to result.json.

    Args:
        environment: of the process and of the CLI.
        options: those of `jobs.run`, and `way`: client, with or query; `says`: what is said, of a
            client also [text, turn]; `second`: a second client is tried, here and elsewhere;
            `own`: the program has a hook and a `can_use_tool` of its own; `full`: "begin 2",
            nothing can be written from the second call of a tool on; `lost`: the CLI's own file
            is gone when it looks.
    """
    jobs.begin(environment, options)
    more = dict(options.get("sdk", {}))
    if options.get("own"):
        more["hooks"] = {"PreToolUse": [HookMatcher(hooks=[_seen])]}
        more |= {"can_use_tool": _may, "allowed_tools": [], "permission_mode": "default"}
    if "full" in options:
        # It is called before ours, in the order in which they are given.
        more["hooks"] = {"PreToolUse": [HookMatcher(hooks=[_count])]}
    found: dict[str, Any] = {"results": [], "error": None}
    if options.get("lost"):
        _lose_the_file()
    if "full" in options:
        _fill_the_disk(options["full"])
    way = {"client": _client, "with": _with, "query": _query}[options.get("way", "client")]
    try:
        asyncio.run(way(options, apps.options(**more), found))
    except (CaravanseraiError, ClaudeSDKError) as error:
        found["error"] = f"{type(error).__name__}: {error}"
    Path("result.json").write_text(json.dumps(found))
    return 0
