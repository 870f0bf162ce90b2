"""Threads and tasks on one run: they never conflict, and nothing is lost or out of order."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from caravanserai_core import acheckpoint, aload, checkpoint, history, lane, load, open_run
from caravanserai_core.stores import FileStore, MemoryStore, Store, _file
from caravanserai_core.verify import verify

RUN = "run"


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store whose journals roll over often, with patches."""
    monkeypatch.setattr(_file, "SEGMENT_SIZE", 20_000)
    monkeypatch.setattr(lane, "SMALL", 100)
    return FileStore(tmp_path / "runs") if request.param == "file" else MemoryStore()


def check(store: Store, acks: list[tuple[int, Any]]) -> None:
    """Check that each acknowledged state is under its number, and each writer's are in order."""
    count = len(acks)
    assert sorted(number for number, _ in acks) == list(range(1, count + 1))
    assert [waypoint.number for waypoint in history(RUN, store=store)] == list(range(1, count + 1))
    for number, state in acks:
        assert load(RUN, number, store=store) == state
    assert load(RUN, store=store) == dict(acks)[count]
    order: dict[int, list[int]] = defaultdict(list)
    for _, state in sorted(acks, key=lambda ack: ack[0]):
        order[state["who"]].append(state["i"])
    assert all(steps == sorted(steps) for steps in order.values())
    assert not verify(store, RUN).damaged


def state_of(who: int, i: int) -> dict[str, Any]:
    return {"who": who, "i": i, "text": f"{who} " * 40, "log": list(range(i))}


def test_threads_on_one_run(store: Store, thorough: bool) -> None:
    """16 threads save through the plain functions and through one open run."""
    acks: list[tuple[int, Any]] = []
    problems: list[BaseException] = []
    run = open_run(RUN, store=store)
    barrier = threading.Barrier(16)

    def work(who: int) -> None:
        try:
            barrier.wait()
            for i in range(60 if thorough else 12):
                state = state_of(who, i)
                saved = run.checkpoint(state) if who % 2 else checkpoint(RUN, state, store=store)
                acks.append((saved, state))
                if i % 5 == who % 5:
                    run.entry("e", who)
                    load(RUN, store=store)
        except BaseException as problem:  # noqa: BLE001 - shown by the assertion below
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert problems == []
    check(store, acks)


def test_tasks_on_one_run(store: Store, thorough: bool) -> None:
    """16 tasks save and load in one loop; what a task saved last is never older than its number."""
    acks: list[tuple[int, Any]] = []

    async def work(who: int) -> None:
        for i in range(60 if thorough else 12):
            state = state_of(who, i)
            acks.append((await acheckpoint(RUN, state, store=store), state))
            if i % 5 == who % 5:
                assert (await aload(RUN, store=store))["text"]

    async def main() -> None:
        await asyncio.gather(*(work(who) for who in range(16)))

    asyncio.run(main())

    check(store, acks)


def test_two_stores_of_one_folder_are_one_store(tmp_path: Path) -> None:
    """Threads that open the store each for themselves share what the process knows of the run."""
    acks: list[tuple[int, Any]] = []

    def work(who: int) -> None:
        for i in range(10):
            state = state_of(who, i)
            acks.append((checkpoint(RUN, state, store=tmp_path / "runs"), state))

    threads = [threading.Thread(target=work, args=(who,)) for who in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    check(FileStore(tmp_path / "runs"), acks)
