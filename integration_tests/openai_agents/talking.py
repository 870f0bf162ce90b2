"""Programs that talk in a session; each function is a process, or forks some that work at once."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agents import SQLiteSession

from caravanserai.openai_agents import WaypointSession
from caravanserai.openai_agents._kept_session import KeptSession

RUN = "talk"


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def model(text: str) -> Any:
    return {"type": "message", "role": "assistant", "content": [_text(text)]}


def _text(text: str) -> Any:
    return {"type": "output_text", "text": text, "annotations": []}


def call(id_: str, name: str = "look", arguments: str = "{}") -> Any:
    return {"type": "function_call", "call_id": id_, "name": name, "arguments": arguments}


def output(id_: str, text: str = "seen") -> Any:
    return {"type": "function_call_output", "call_id": id_, "output": text}


def reasoning(id_: str) -> Any:
    return {"type": "reasoning", "id": id_, "summary": []}


# ---------------------------------------------------------------------- WaypointSession


def together(*work: Callable[[], Any]) -> int:
    """Do each piece in a process of its own, all beginning at once; return how many failed."""
    begin_read, begin_write = os.pipe()
    children = []
    for piece in work:
        child = os.fork()
        if not child:
            os.close(begin_write)
            os.read(begin_read, 1)  # until the other end is closed
            code = 1
            try:
                piece()
                code = 0
            except BaseException:  # noqa: BLE001 - the end of a child
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    os.close(begin_read)
    os.close(begin_write)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


def say(*texts: str) -> None:
    """Add what a user said, an item each."""

    async def work() -> None:
        session = WaypointSession(RUN)
        for text in texts:
            await session.add_items([user(text)])

    asyncio.run(work())


def crowd(processes: int, threads: int, adds: int) -> int:
    """Let so many threads of so many processes add pairs of items to one session."""

    def thread(writer: str) -> None:
        async def work() -> None:
            session = WaypointSession(RUN)
            for number in range(adds):
                id_ = f"{writer}.{number}"
                await session.add_items([call(id_), output(id_)])

        asyncio.run(work())

    def process(name: int) -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(thread, [f"{name}.{number}" for number in range(threads)]))

    pieces = [lambda name=name: process(name) for name in range(processes)]
    return together(*pieces)


def newcomers(processes: int, rounds: int) -> int:
    """Let processes open a fresh store at once, again and again; return how many failed."""
    failed = 0
    for number in range(rounds):

        def work(store: str = f"store-{number}") -> None:
            async def add() -> None:
                session = WaypointSession(RUN, store=store)
                await session.add_items([user(str(os.getpid()))])

            asyncio.run(add())

        failed += together(*[work] * processes)
        items = asyncio.run(WaypointSession(RUN, store=f"store-{number}").get_items())
        failed += len({item["content"] for item in items}) != processes
    return failed


# ---------------------------------------------------------------------- KeptSession


class DiskLog:
    """What a run remembers, as lines of a file that outlive a kill."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._reach: Callable[[str], None] = lambda place: None

    def recorded(self, key: str) -> Any | None:
        if not self._path.exists():
            return None
        lines = [json.loads(line) for line in self._path.read_text().splitlines()]
        return next((data for name, data in reversed(lines) if name == key), None)

    async def record(self, key: str, data: Any, *, durable: bool = True) -> None:
        self._reach("record begins")
        with self._path.open("a") as file:
            file.write(json.dumps([key, data]) + "\n")
        self._reach("record ends")


TURNS = [
    [user("Refund order A17 please.")],
    [reasoning("r1"), call("c1", "lookup_order"), output("c1", "40 EUR")],
    [call("c2", "get_policy"), call("c3", "quote"), output("c2", "yes"), output("c3", "5 EUR")],
    [model("Refunded.")],
]
"""What the SDK adds in a run: the input, then each turn."""


def run(place: int | None) -> None:
    """Do a run with a session on disk; be killed at the n-th thing that is done, if any."""
    count = itertools.count(1)

    def reach(name: str) -> None:
        if next(count) == place:
            os.kill(os.getpid(), signal.SIGKILL)

    class Session(SQLiteSession):
        async def add_items(self, items: Any) -> None:
            reach("add begins")
            await super().add_items(items)
            reach("add ends")

        async def get_items(self, limit: int | None = None) -> Any:
            found = await super().get_items(limit)
            reach("get ends")
            return found

    log = DiskLog("log.jsonl")
    log._reach = reach
    session = KeptSession(Session("talk", "session.db"), log)
    history = asyncio.run(_turns(session))
    Path("done.json").write_text(json.dumps([history, next(count) - 1]))


async def _turns(session: KeptSession) -> Any:
    history = await session.get_items()
    for items in TURNS:
        await session.add_items(items)
    return history
