"""What a save keeps, and in which order: mutation, cancellation, delay, interrupts."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caravanserai import (
    FileStore,
    RunNotFound,
    acheckpoint,
    aload,
    checkpoint,
    history,
    load,
    open_run,
)
from caravanserai_core import reading
from caravanserai_core.stores._seam import Files
from caravanserai_core.verify import verify
from integration_tests.api.helpers import DEADLINE, GateStore, forget_everything, process


def test_later_changes_of_the_state_do_not_matter() -> None:
    """What was saved is what it was when it was saved, also as the base of the next patch."""
    state: dict[str, Any] = {"log": [1], "deep": {"a": {"b": [1]}}, "pad": "x" * 9000}
    checkpoint("run", state)
    state["log"].append(2)
    state["deep"]["a"]["b"][0] = 9
    assert load("run") == {"log": [1], "deep": {"a": {"b": [1]}}, "pad": "x" * 9000}
    checkpoint("run", state)
    del state["deep"]
    assert load("run", 2)["deep"] == {"a": {"b": [9]}}
    loaded = load("run")
    loaded["log"].clear()
    assert load("run")["log"] == [1, 2]


def test_state_may_change_while_an_async_save_waits(store_dir: Path) -> None:
    """The state is encoded when the save is called, not when it is awaited or written."""
    store = GateStore(store_dir)
    state = {"log": [1]}

    async def main() -> None:
        first = asyncio.ensure_future(acheckpoint("run", {}, store=store))
        assert await asyncio.to_thread(store.arrived.wait, DEADLINE)  # holds the others up
        waiting = acheckpoint("run", state, store=store)
        state["log"].append(2)
        task = asyncio.ensure_future(waiting)
        await asyncio.sleep(0)
        state["log"].append(3)
        store.gate.set()
        assert await task == 2
        assert await first == 1
        state["log"].append(4)

    asyncio.run(main())
    assert load("run", store=store) == {"log": [1]}


@pytest.mark.parametrize("steps", range(8))
@pytest.mark.parametrize("gated", [False, True])
def test_cancelled_save_keeps_its_place(steps: int, gated: bool, store_dir: Path) -> None:
    """Cancelled at any step, the save is written whole, and the next load waits for it."""
    store = GateStore(store_dir)
    store.gate.set()
    checkpoint("run", {"n": 1, "pad": "x" * 9000}, "one", store=store)

    async def main() -> None:
        if gated:
            store.gate.clear()
        task = asyncio.ensure_future(
            acheckpoint("run", {"n": 2, "pad": "x" * 9000}, "two", store=store)
        )
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        found = asyncio.ensure_future(aload("run", store=store))
        if gated:
            await asyncio.sleep(0)
            assert not found.done(), "the load waits for what was saved before it"
            store.gate.set()
        assert (await found)["n"] == 2
        assert await acheckpoint("run", {"n": 3}, "three", store=store) == 3

    asyncio.run(main())
    forget_everything()
    assert [(w.number, str(w.note)) for w in history("run", store=store)] == [
        (1, "one"),
        (2, "two"),
        (3, "three"),
    ]
    assert verify(store, "run").findings == []


def test_save_that_nobody_waits_for_is_written(store_dir: Path) -> None:
    """A time-out means "not known yet", not "not saved"."""
    store = GateStore(store_dir)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(acheckpoint("run", {"n": 1}, store=store), 0.01)
        store.gate.set()

    asyncio.run(main())
    assert load("run", store=store) == {"n": 1}


def test_cancelled_saves_are_written_without_another_call(store_dir: Path) -> None:
    """More saves than worker threads, all cancelled: they are written all the same."""
    store = GateStore(store_dir)

    async def main() -> None:
        tasks = [
            asyncio.ensure_future(acheckpoint("run", {"n": n}, store=store)) for n in range(30)
        ]
        assert await asyncio.to_thread(store.arrived.wait, DEADLINE)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        store.gate.set()

    asyncio.run(main())
    deadline = time.monotonic() + DEADLINE
    seen = None
    while seen != {"n": 29} and time.monotonic() < deadline:
        time.sleep(0.005)
        # Not through this process's queue: looking there would write what is still in it.
        with contextlib.suppress(RunNotFound):  # the folder may be there before the journal is
            seen = reading.load(FileStore(store_dir), "run")
    assert seen == {"n": 29}


def test_process_ends_only_after_its_saves(store_dir: Path) -> None:
    """A save in flight is written although the program's last task is gone."""
    process(
        """
import asyncio, caravanserai
async def main():
    for n in range(20):
        task = asyncio.ensure_future(caravanserai.acheckpoint("run", {"n": n}))
    task.cancel()
asyncio.run(main())
"""
    )
    assert load("run") == {"n": 19}
    assert len(history("run")) == 20


def test_older_save_never_lands_after_a_newer_one(store_dir: Path) -> None:
    """A save that is stuck in a worker thread keeps its place before the later ones."""
    store = GateStore(store_dir)

    async def main() -> None:
        first = asyncio.ensure_future(acheckpoint("run", {"n": 1}, store=store))
        assert await asyncio.to_thread(store.arrived.wait, DEADLINE)
        second = asyncio.ensure_future(acheckpoint("run", {"n": 2}, store=store))
        third = asyncio.create_task(
            asyncio.to_thread(lambda: checkpoint("run", {"n": 3}, store=store))
        )
        first.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert store.calls == 1, "the others wait"
        store.gate.set()
        numbers = await asyncio.gather(second, third)
        assert sorted(numbers) == [2, 3]
        assert (await aload("run", numbers[0], store=store)) == {"n": 2}

    asyncio.run(main())
    assert load("run", 1, store=store) == {"n": 1}


def test_numbered_load_waits_for_the_saves_before_it(store_dir: Path) -> None:
    """A waypoint that this process has queued can be asked for by its number at once."""
    store = GateStore(store_dir)

    async def main() -> None:
        saving = asyncio.ensure_future(acheckpoint("run", {"n": 1}, store=store))
        found = asyncio.ensure_future(aload("run", 1, store=store))
        assert await asyncio.to_thread(store.arrived.wait, DEADLINE)
        store.gate.set()
        assert await found == {"n": 1}
        assert await saving == 1

    asyncio.run(main())


def test_plain_save_while_an_async_one_waits(store_dir: Path) -> None:
    """A plain save from another thread takes its place behind the one in flight."""
    store = GateStore(store_dir)

    async def main() -> int:
        task = asyncio.ensure_future(acheckpoint("run", {"n": 1}, store=store))
        thread = threading.Thread(target=lambda: checkpoint("run", {"n": 2}, store=store))
        assert await asyncio.to_thread(store.arrived.wait, DEADLINE)
        thread.start()
        store.gate.set()
        number = await task
        await asyncio.to_thread(thread.join, DEADLINE)
        return number

    assert asyncio.run(main()) == 1
    assert load("run", store=store) == {"n": 2}


# ---------------------------------------------------------------------- ^C at any call


class Interrupting(Files):
    """System calls of which the n-th is interrupted by ^C, before or after it was done."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.calls = 0
        self.armed = True
        self.fired = False
        for name in ("write", "sync_data", "sync_dir", "rename", "truncate", "open", "mkdir"):
            real = getattr(Files, name)
            bound = real.__get__(self) if name in ("sync_data", "sync_dir") else real
            setattr(self, name, self._wrapped(bound, at, after=after))

    def _wrapped(self, call: Callable[..., Any], at: int, *, after: bool) -> Callable[..., Any]:
        def wrapper(*args: Any) -> Any:
            self.calls += self.armed
            if self.calls != at or self.fired:
                return call(*args)
            self.fired = True
            if after:
                call(*args)
            raise KeyboardInterrupt

        return wrapper


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("state", ["small", "large"])
def test_interrupt_at_any_system_call(after: bool, state: str, tmp_path: Path) -> None:
    """^C inside a save leaves the old waypoint or the new one, whole, and the run goes on."""
    pad = "" if state == "small" else "x" * 20_000
    at = 0
    outcomes = set()
    while True:
        at += 1
        forget_everything()
        root = tmp_path / f"store-{at}"
        checkpoint("run", {"n": 1, "pad": pad}, "one", store=root)
        forget_everything()
        files = Interrupting(at, after=after)
        store = FileStore(root, files=files)
        files.armed = False
        assert load("run", store=store)["n"] == 1
        files.armed = True
        try:
            checkpoint("run", {"n": 2, "pad": pad}, "two", store=store)
        except KeyboardInterrupt:
            pass
        if not files.fired:
            break
        there = load("run", store=store)
        assert there in ({"n": 1, "pad": pad}, {"n": 2, "pad": pad})
        outcomes.add(there["n"])
        assert checkpoint("run", {"n": 3, "pad": pad}, "three", store=store) == there["n"] + 1
        assert load("run", store=store)["n"] == 3
        forget_everything()
        plain = FileStore(root)
        assert load("run", store=plain)["n"] == 3
        notes = [str(w.note) for w in history("run", store=plain)]
        assert notes == (["one", "two", "three"] if there["n"] == 2 else ["one", "three"])
        assert all(f.level == "note" for f in verify(plain, "run").findings)
    assert at > 5, "the test has to meet the calls of a save"
    assert outcomes == {1, 2}


@pytest.mark.parametrize("after", [False, True])
def test_interrupt_in_the_first_save(after: bool, tmp_path: Path) -> None:
    """^C while the run is made leaves no run, or the first waypoint, and never a broken one."""
    at = 0
    while True:
        at += 1
        forget_everything()
        files = Interrupting(at, after=after)
        store = FileStore(tmp_path / f"store-{at}", files=files)
        try:
            checkpoint("run", {"n": 1}, "one", store=store)
        except KeyboardInterrupt:
            pass
        if not files.fired:
            break
        forget_everything()
        try:
            assert load("run", store=store) == {"n": 1}
            expected = 2
        except LookupError:
            expected = 1
        assert checkpoint("run", {"n": 2}, "two", store=store) == expected
        assert load("run", store=store) == {"n": 2}
        assert all(f.level == "note" for f in verify(store, "run").findings)
    assert at > 8


@pytest.mark.parametrize("after", [False, True])
def test_interrupt_in_an_entry(after: bool, tmp_path: Path) -> None:
    """The same for what is written between waypoints."""
    for at in range(1, 12):
        forget_everything()
        files = Interrupting(at, after=after)
        files.armed = False
        store = FileStore(tmp_path / f"store-{at}", files=files)
        checkpoint("run", {"n": 1}, store=store)
        forget_everything()
        run = open_run("run", store=store)
        files.armed = True
        try:
            run.entry("one", 1, say="one began")
        except KeyboardInterrupt:
            pass
        files.armed = False
        run.entry("two", 2)
        names = [entry.name for entry in run.entries()]
        assert names in (["one", "two"], ["two"])
