"""The lock of a run: who holds it, who waits for how long, and who keeps it by mistake."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from caravanserai_core import checkpoint, clean, load
from caravanserai_core.errors import StoreBusy
from caravanserai_core.journal import forget
from caravanserai_core.stores import FileStore
from caravanserai_core.stores._seam import Files
from caravanserai_core.testing import HandWriter
from integration_tests.stores.workers import RUN, join, start, wait_until


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of a store."""
    return tmp_path / "runs"


class Holding(Files):
    """Keeps the lock: stops at a data sync until told to go on.

    Args:
        held: a file that is made when the lock is held.
        until: goes on when this file is there.
    """

    def __init__(self, held: Path, until: Path) -> None:
        self._held, self._until = held, until

    def sync_data(self, fd: int) -> None:
        self._held.touch()
        wait_until(self._until.exists)
        super().sync_data(fd)


def test_a_timeout_names_the_holder(root: Path, tmp_path: Path) -> None:
    """Also that it is stopped; when it goes on, everybody does."""
    checkpoint(RUN, {"n": 1}, store=root)
    held, until = tmp_path / "held", tmp_path / "until"

    def hold() -> None:
        store = FileStore(root, files=Holding(held, until))
        forget(store, RUN)
        checkpoint("run", load(RUN, store=store), store=store)

    holder = start(hold)
    wait_until(held.exists)
    store = FileStore(root, timeout=0.2)
    forget(store, RUN)
    begin = time.monotonic()
    with pytest.raises(StoreBusy, match=rf"process {holder}, .* 0\.2 s"):
        checkpoint(RUN, {"n": 2}, store=store)
    assert 0.2 <= time.monotonic() - begin < 1.2

    os.kill(holder, signal.SIGSTOP)
    with pytest.raises(TimeoutError, match=rf"process {holder} \(stopped\)"):
        checkpoint(RUN, {"n": 2}, store=store)
    with pytest.raises(StoreBusy):
        clean(RUN, store=store)
    assert load(RUN, store=store) == {"n": 1}, "readers do not wait"

    until.touch()
    os.kill(holder, signal.SIGCONT)
    assert join(holder) == 0
    load(RUN, store=store)
    assert checkpoint(RUN, {"n": 3}, store=store) == 3


class Overtaken(Files):
    """Lets something happen between opening the lock and taking it, once."""

    def __init__(self, event: Callable[[], object]) -> None:
        self._events = [event]

    def lock(self, fd: int) -> bool:
        if self._events:
            self._events.pop()()
        return super().lock(fd)


def test_the_lock_of_a_deleted_run_is_not_that_of_the_next_one(root: Path) -> None:
    """Whoever waited while the run was deleted and begun again takes the new run's lock."""
    HandWriter(FileStore(root)).append(HandWriter(FileStore(root)).state())

    def delete_and_begin_again() -> None:
        assert FileStore(root).delete(RUN)
        HandWriter(FileStore(root), name="new").append(HandWriter(FileStore(root)).state())

    late = HandWriter(FileStore(root, files=Overtaken(delete_and_begin_again)))
    busy: list[bool] = []

    def decide(*_news: object) -> None:
        with (root / RUN / "lock").open("r+b") as lock:
            busy.append(not Files().lock(lock.fileno()))

    late.append(late.entry(), decide=decide)

    assert busy == [True]


def test_a_killed_holder_is_gone_at_once(root: Path, tmp_path: Path) -> None:
    """The kernel gives a dead process's lock back: nobody waits for a time-out."""
    checkpoint(RUN, {"n": 1}, store=root)
    held, until = tmp_path / "held", tmp_path / "until"

    def hold() -> None:
        store = FileStore(root, files=Holding(held, until))
        forget(store, RUN)
        checkpoint(RUN, {"n": 2}, store=store)

    holder = start(hold)
    wait_until(held.exists)
    os.kill(holder, signal.SIGKILL)
    assert join(holder) == -signal.SIGKILL

    store = FileStore(root, timeout=0.5)
    forget(store, RUN)
    assert checkpoint(RUN, {"n": 3}, store=store) == 3  # 2 was written, and not acknowledged


@pytest.mark.parametrize("how", ["a program", "a forked child"])
def test_what_is_started_while_the_lock_is_held_does_not_keep_it(
    root: Path, tmp_path: Path, how: str
) -> None:
    """A process that outlives its parent keeps no lock of it, whatever it inherited."""
    checkpoint(RUN, {"n": 1}, store=root)
    held, until, sleeper = tmp_path / "held", tmp_path / "until", tmp_path / "sleeper"

    def hold() -> None:
        store = FileStore(root, files=Holding(held, until))
        forget(store, RUN)
        thread = threading.Thread(
            target=lambda: checkpoint(RUN, {"n": 2}, store=store), daemon=True
        )
        thread.start()
        wait_until(held.exists)
        if how == "a program":
            pid = subprocess.Popen(["sleep", "60"], close_fds=False).pid
        else:
            pid = start(lambda: time.sleep(60))
        sleeper.with_suffix(".new").write_text(str(pid))
        sleeper.with_suffix(".new").rename(sleeper)
        time.sleep(60)

    holder = start(hold)
    wait_until(sleeper.exists)
    os.kill(holder, signal.SIGKILL)
    join(holder)
    try:
        store = FileStore(root, timeout=0.5)
        forget(store, RUN)
        assert checkpoint(RUN, {"n": 3}, store=store) == 3
    finally:
        os.kill(int(sleeper.read_text()), signal.SIGKILL)
