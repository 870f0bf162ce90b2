"""Jobs that are killed at one place; each function is one start of a program.

A place is a line of `outside.txt` ("begin 3"), the moment in front of it ("enter 3"), the n-th
append to the journal ("append 3 begins", "append 3 ends"), the n-th piece of a text that is
streamed ("delta 1"), the n-th result ("result 1"), an event of the CLI after our own hook
answered it ("hook PostCompact"), or one that the model's server sees; see `life`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeSDKError, HookMatcher, Message, ResultMessage, StreamEvent, query

from caravanserai.claude_agent import WaypointSessionStore, resumable_query
from integration_tests.appends import watch_appends
from integration_tests.claude_agent import apps, offline, places


def begin(environment: dict[str, str], options: dict[str, Any]) -> None:
    """Settle what a start needs: its environment, where it is killed, and what is watched."""
    os.setpgid(0, 0)  # so that it dies with the CLI, at once
    offline.enter(environment)
    logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("caravanserai").setLevel(logging.INFO)
    places.die_at(options.get("place"), options.get("how", "both"))
    Path("pid.txt").write_text(str(os.getpid()))
    apps.pace = options.get("pace", apps.pace)
    watch_appends(places.pass_by)


def messages(options: dict[str, Any], over: asyncio.Event) -> AsyncIterator[Message]:
    """Return the messages of a job; `over` is set where there is a result."""
    hooks: dict[Any, list[HookMatcher]] = {
        event: [HookMatcher(hooks=[_passes(event)])] for event in options.get("hooks", ())
    }
    given = apps.options(**options.get("sdk", {}), **({"hooks": hooks} if hooks else {}))
    prompt = options.get("prompt", apps.PROMPT)
    if options.get("session_store"):
        given.session_store, given.session_store_flush = WaypointSessionStore(), "eager"
    if options.get("plain"):
        return query(prompt=held(prompt, over), options=given)
    more = options.get("more", {})
    return resumable_query(prompt=prompt, run_id=options["run_id"], options=given, **more)


async def held(prompt: str, over: asyncio.Event) -> AsyncIterator[dict[str, Any]]:
    """Ask, and keep the input open: the program's own tools are at its other end."""
    message = {"role": "user", "content": prompt}
    yield {"type": "user", "message": message, "parent_tool_use_id": None, "session_id": ""}
    await over.wait()


def _passes(event: str) -> Any:
    async def hook(_given: Any, _id: str | None, _context: Any) -> dict[str, Any]:
        # Those of one event run at the same time: ours has written down what it knows by then.
        await asyncio.sleep(0.2)
        places.pass_by(f"hook {event}")
        return {}

    return hook


def _is_text(message: StreamEvent) -> bool:
    return bool(message.event.get("delta", {}).get("type") == "text_delta")


async def _work(options: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"results": []}
    pieces, over = itertools.count(1), asyncio.Event()
    try:
        async for message in messages(options, over):
            if isinstance(message, ResultMessage):
                over.set()
                found["results"].append(dataclasses.asdict(message))
                places.pass_by(f"result {len(found['results'])}")
            elif isinstance(message, StreamEvent) and _is_text(message):
                places.pass_by(f"delta {next(pieces)}")
    except ClaudeSDKError as error:
        found["failed"] = f"{type(error).__name__}: {error}"
    return found


def run(environment: dict[str, str], options: dict[str, Any]) -> int:
    """Run a job once; what came of it goes to result.json.

    Args:
        environment: of the process and of the CLI.
        options: `place` and `how`, where it is killed and with whom; `prompt`; `run_id`; `plain`,
            without waypoints; `session_store`, with a `WaypointSessionStore`; `pace`, seconds that
            a charge takes; `hooks`, events at which the program has hooks of its own; `sdk`, for
            `ClaudeAgentOptions`; `more`, for `resumable_query`.
    """
    begin(environment, options)
    found = asyncio.run(_work(options))
    Path("result.json").write_text(json.dumps(found))
    return 0
