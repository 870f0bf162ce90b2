"""Sessions of the Claude Agent SDK in a process. Commands as in `benchmarks._worker`."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    HookMatcher,
    InMemorySessionStore,
    ResultMessage,
    create_sdk_mcp_server,
    query,
    tool,
)

from benchmarks import _worker
from benchmarks._states import text
from benchmarks._worker import mark
from caravanserai.claude_agent import resumable_query
from caravanserai_core.stores import FileStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STORE = "store"
RESULT = 1000
"""Characters that the tool gives."""

EVENTS = (
    *("UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch"),
    *("TaskCreated", "SubagentStart", "SubagentStop", "PostCompact", "Stop", "StopFailure"),
)
"""Those that a run hooks into."""

PROMPT = "Read the pages."


class Counting(FileStore):
    """A file store that counts its appends."""

    appends = 0
    synced = 0

    def append(self, *given: Any, sync: bool = True) -> Any:
        self.appends += 1
        self.synced += sync
        return super().append(*given, sync=sync)


class Sessions:
    """Runs sessions, one after another, in its working folder.

    Args:
        server: the part of the environment that names the scripted model.
    """

    def __init__(self, server: dict[str, str]) -> None:
        self._count = 0
        self._store = Counting(STORE)
        here = Path.cwd()
        places = {"HOME": "home", "CLAUDE_CONFIG_DIR": "config", "TMPDIR": "tmp"}
        for place in places.values():
            (here / place).mkdir()
        found = {name: str(here / place) for name, place in places.items()}
        found["PATH"] = os.environ["PATH"]
        # The SDK gives the CLI all of the environment; nobody's settings take part in it.
        os.environ.clear()
        os.environ.update({**found, **server})
        tempfile.tempdir = None  # it remembers the old TMPDIR
        self._folder = here / "work"
        self._folder.mkdir()
        if shutil.which("git"):
            # Agents work in repositories, and a waypoint has its commit.
            subprocess.run(["git", "init", "-q"], cwd=self._folder, check=True)

    def run(self, way: str, marked: bool = False) -> Any:
        """Run a session; returns times and CPU times in nanoseconds, and what was kept of it."""
        self._count += 1
        run_id = f"session-{self._count}"
        begun: list[int] = []
        sizes: list[int] = []

        @tool("read", "Read a page.", {"page": int})
        async def read(given: dict[str, Any]) -> dict[str, Any]:
            begun.append(time.perf_counter_ns())
            if way == "ours":
                sizes.append(_worker.measure(Path(STORE) / run_id)["journal"])
            page = text(given["page"], RESULT)
            return {"content": [{"type": "text", "text": page}]}

        options = ClaudeAgentOptions(
            model="claude-sonnet-4-5",
            cwd=self._folder,
            mcp_servers={"bench": create_sdk_mcp_server("bench", tools=[read])},
            allowed_tools=["mcp__bench__read"],
            setting_sources=[],
        )
        self._store.appends = self._store.synced = 0
        if marked:
            mark("begin")
        before = _used()
        session = asyncio.run(self._session(way, run_id, options))
        whole, cpu, cli = (b - a for a, b in zip(before, _used(), strict=True))
        if marked:
            mark("end")
        (transcript,) = Path("config/projects").glob(f"*/{session}.jsonl")
        kept: dict[str, Any] = {"transcript": transcript.stat().st_size}
        if way == "ours":
            found = _worker.measure(Path(STORE) / run_id)
            kept |= {"journal": found["journal"], "notes": found["notes"], "sizes": sizes}
            kept |= {"appends": self._store.appends, "synced": self._store.synced}
            kept["waypoints"] = len([*Path(STORE, run_id).glob("waypoint-*.md")])
        between = [after - before for before, after in itertools.pairwise(begun)]
        return {"between": between, "whole": whole, "cpu": cpu, "cli": cli, "kept": kept}

    async def _session(self, way: str, run_id: str, options: ClaudeAgentOptions) -> str:
        messages: AsyncIterator[Any]
        if way == "ours":
            messages = resumable_query(
                prompt=PROMPT, run_id=run_id, options=options, store=self._store
            )
        else:
            if way == "bare":
                events: Any = {event: [HookMatcher(hooks=[_nothing])] for event in EVENTS}
                options.hooks = events
                options.session_store = InMemorySessionStore()
                options.session_store_flush = "eager"
            messages = query(prompt=PROMPT, options=options)
        session = ""
        async for message in messages:
            if isinstance(message, ResultMessage):
                if message.is_error or not (message.result or "").endswith("pages are read."):
                    raise RuntimeError(f"the session came to another end: {message}")
                session = message.session_id
        return session


async def _nothing(*_: Any) -> Any:
    return {}


def _used() -> tuple[int, int, int]:
    """Return the time, the CPU time of this process, and that of CLI and git once they ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    cli = int((children.ru_utime + children.ru_stime) * 1e9)
    return time.perf_counter_ns(), time.process_time_ns(), cli


if __name__ == "__main__":
    _worker.main({"sessions": Sessions})
