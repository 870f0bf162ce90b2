"""A saver of LangGraph's own that notes down when each of its methods is called, and by whom."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from langgraph.checkpoint.memory import InMemorySaver


class Event(NamedTuple):
    """One thing that happened.

    Attributes:
        what: "version", "put", "put done", "writes", "bool", or what a node or reducer noted.
        thread: the thread it happened on.
        detail: a version; a checkpoint; a caller's name; …
    """

    what: str
    thread: int
    detail: Any = None


class Recorder(InMemorySaver):
    """Notes down every call.

    Args:
        put_takes: seconds that each `put` takes.
        fail_at: which `put` fails, from 1; 0 for none.
    """

    def __init__(self, put_takes: float = 0.0, fail_at: int = 0) -> None:
        super().__init__()
        self.put_takes = put_takes
        self.fail_at = fail_at
        self.puts = 0
        self.events: list[Event] = []

    def note(self, what: str, detail: Any = None) -> None:
        self.events.append(Event(what, threading.get_ident(), detail))

    def all(self, *whats: str) -> list[Event]:
        return [event for event in self.events if event.what in whats]

    def __bool__(self) -> bool:
        self.note("bool", sys._getframe(1).f_code.co_name)
        return True

    def get_next_version(self, current: Any, channel: Any) -> Any:
        version = super().get_next_version(current, channel)
        self.note("version", (current, version))
        return version

    def get_tuple(self, config: Any) -> Any:
        self.note("get", dict(config["configurable"]))
        return super().get_tuple(config)

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        self.puts += 1
        self.note("put", (config, checkpoint, metadata))
        if self.puts == self.fail_at:
            raise OSError("this put fails")
        if self.put_takes:
            time.sleep(self.put_takes)
        result = super().put(config, checkpoint, metadata, new_versions)
        self.note("put done", checkpoint)
        return result

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        return self.put(config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self.note("writes", (task_id, task_path, list(writes)))
        super().put_writes(config, writes, task_id, task_path)

    async def aput_writes(
        self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self.put_writes(config, writes, task_id, task_path)


def carried(checkpoint: Any) -> Any:
    """Return the highest channel version of a checkpoint."""
    return max(checkpoint["channel_versions"].values())
