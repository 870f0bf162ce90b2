"""Several processes on one run: killed, stopped, forked; nothing acknowledged is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from caravanserai_core import checkpoint, clean, list_runs, load, open_run
from caravanserai_core.journal import forget
from caravanserai_core.stores import FileStore, _file
from caravanserai_core.verify import verify
from integration_tests.stores.workers import (
    RUN,
    Ack,
    acknowledged,
    compact_on,
    count_up,
    join,
    on_disk,
    start,
)

STOP = 0.3
"""Seconds that a process is stopped for."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store whose journals roll over often."""
    monkeypatch.setattr(_file, "SEGMENT_SIZE", 8_000)
    return tmp_path / "runs"


@pytest.fixture
def acks(tmp_path: Path) -> Path:
    """Where writers log what was acknowledged."""
    folder = tmp_path / "acks"
    folder.mkdir()
    return folder


class Crowd:
    """Writers in slots: each has its share to do, and one that dies is followed by another.

    Args:
        root: the store.
        acks: where they log.
        share: saves of each slot.
        dying: share of the writes in which a writer dies by itself.
    """

    def __init__(self, root: Path, acks: Path, share: int, *, dying: float) -> None:
        self.root, self.acks, self.share, self.dying = root, acks, share, dying
        self.chance = random.Random(7)
        self.deaths = 0
        self.moving = 0.0
        self.slots: dict[int, list[int]] = {}
        # Whoever is alive holds the other end, also a forked child of a writer that was killed.
        self.alive, self._held = os.pipe()

    def run(self, size: int, *, kills: int, stops: int) -> None:
        """Let them work, and kill and stop some at random moments."""
        for slot in range(size):
            self._start(slot)
        while self.slots:
            time.sleep(self.chance.uniform(0.002, 0.02))
            self._collect()
            pids = [pids[-1] for pids in self.slots.values()]
            if pids and kills and self.chance.random() < 0.6:
                kills -= 1
                os.kill(self.chance.choice(pids), signal.SIGKILL)
            elif pids and stops and time.monotonic() > self.moving:
                stops -= 1
                self._stop(self.chance.choice(pids))
        os.close(self._held)
        assert os.read(self.alive, 1) == b"", "all ends are closed when the last one is gone"
        os.close(self.alive)

    def _start(self, slot: int) -> None:
        pids = self.slots.setdefault(slot, [])
        logs = [self.acks / str(pid) for pid in pids]
        left = self.share - sum(len(log.read_bytes().splitlines()) for log in logs if log.exists())
        seed = self.chance.getrandbits(32)
        first = not pids
        pids.append(
            start(
                lambda: count_up(
                    self.root, self.acks, left, seed, dying=self.dying, forks=first and slot % 2
                )
            )
        )

    def _collect(self) -> None:
        for slot, pids in list(self.slots.items()):
            pid, status = os.waitpid(pids[-1], os.WNOHANG)
            if not pid:
                continue
            code = os.waitstatus_to_exitcode(status)
            assert code in (0, -signal.SIGKILL), "a writer failed; its error is above"
            if code:
                self.deaths += 1
                self._start(slot)
            else:
                del self.slots[slot]

    def _stop(self, pid: int) -> None:
        # One at a time: a writer may have to wait for the one that is stopped, and no longer.
        self.moving = time.monotonic() + STOP * self.chance.uniform(1.2, 1.8)
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(STOP, _signal, (pid, signal.SIGCONT)).start()


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def check(root: Path, found: list[Ack], *, unacknowledged: int) -> dict[int, Any]:
    """Check that every acknowledged save is there once, and nothing is missing or too many."""
    states = on_disk(root)
    assert sorted(states) == list(range(1, len(states) + 1)), "numbers have a gap"
    assert all(state["n"] == number for number, state in states.items()), "a step was lost"
    numbers = [ack.number for ack in found]
    assert len(set(numbers)) == len(numbers), "a number was acknowledged twice"
    assert all(states[ack.number]["token"] == ack.token for ack in found)
    assert len(states) - len(found) <= unacknowledged
    store = FileStore(root)
    forget(store, RUN)
    assert load(RUN, store=store)["n"] == len(states)
    findings = verify(store, RUN).findings
    assert not [f for f in findings if f.level not in ("note", "torn")], findings
    return states


def test_writers_that_are_killed_stopped_and_forked_lose_nothing(
    root: Path, acks: Path, thorough: bool, record_property: Any
) -> None:
    """8 processes count up: nothing acknowledged is lost, nothing doubled, the sum is exact."""
    share, kills, stops = (200, 60, 30) if thorough else (40, 12, 6)
    crowd = Crowd(root, acks, share, dying=0.02)

    crowd.run(8, kills=kills, stops=stops)

    found = acknowledged(acks)
    states = check(root, found, unacknowledged=crowd.deaths)
    assert len(found) >= 8 * share
    assert len(list((root / RUN).glob("journal-*.jsonl"))) > 5
    assert list((root / RUN).glob("*.damaged-*")), "no line was torn: the test is too tame"
    # How many are hit before all are done depends on how quick the machine is.
    assert crowd.deaths >= kills // 3
    assert len(states) >= len(found)
    longest = max(ack.seconds for ack in found)
    record_property("longest call", longest)
    print(f"longest call: {longest:.3f} s, deaths: {crowd.deaths}, waypoints: {len(states)}")
    # About STOP + 0.1 s on a quiet machine. On a loaded one the processes wait for processors,
    # not for the lock; far below the lock's time-out all the same.
    assert longest < STOP + 5.0


class Compactors:
    """Processes that write the run anew all the time; each that dies is followed by another.

    Args:
        root: the store.
        stop: the file that ends them.
        often: share of their system calls at which they die.
    """

    def __init__(self, root: Path, stop: Path, *, often: float = 0.0) -> None:
        self.root, self.stop, self.often = root, stop, often
        self.deaths = 0
        self.pids = [self._start(seed) for seed in (1, 2)]

    def _start(self, seed: int) -> int:
        return start(lambda: compact_on(self.root, self.stop, seed, often=self.often))

    def tend(self) -> None:
        """Replace those that are gone."""
        for index, pid in enumerate(self.pids):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, "one failed; see above"
                self.deaths += 1
                self.pids[index] = self._start(100 + self.deaths)

    def end(self) -> None:
        """Let them come to an end."""
        self.stop.touch()
        for pid in self.pids:
            assert join(pid) in (0, -signal.SIGKILL)


def test_a_run_that_is_compacted_all_the_time_loses_nothing(
    root: Path, acks: Path, tmp_path: Path, thorough: bool
) -> None:
    """8 processes count up while 2 write the journal anew and are killed at any system call."""
    share = 200 if thorough else 30
    compactors = Compactors(root, tmp_path / "stop", often=0.004)
    store = FileStore(root)
    rounds, generation = 0, 0
    # How often it is compacted meanwhile depends on who is given the processors.
    while generation <= 10 or compactors.deaths < 3:
        seeds = range(8 * rounds, 8 * rounds + 8)
        rounds += 1
        running = {start(lambda seed=n: count_up(root, acks, share, seed)) for n in seeds}
        while running:
            running -= {pid for pid in running if ended_well(pid)}
            compactors.tend()
            time.sleep(0.005)
        found = store.recent(RUN)
        assert found is not None
        generation = found.opening.head["generation"]
    compactors.end()
    forget(store, RUN)
    open_run(RUN, store=store).compact(lambda record: True)

    states = check(root, acknowledged(acks), unacknowledged=0)

    assert len(states) == rounds * 8 * share
    assert sorted(path.name for path in (root / RUN).glob("*journal*")) == ["journal-1.jsonl"]


def test_a_run_that_is_deleted_and_compacted_does_not_come_back(
    root: Path, acks: Path, tmp_path: Path, thorough: bool
) -> None:
    """Each life of the run is one chain from 1 on, whoever was about to write it anew."""
    share, lives = (150, 60) if thorough else (25, 8)
    compactors = Compactors(root, tmp_path / "stop", often=0.002)
    running = {start(lambda seed=n: count_up(root, acks, share, seed)) for n in range(4)}
    store = FileStore(root)
    chance = random.Random(3)
    deleted = 0
    while running:
        running -= {pid for pid in running if ended_well(pid)}
        compactors.tend()
        time.sleep(chance.uniform(0.0, 0.02))
        if deleted < lives:
            deleted += clean(RUN, store=store)
    compactors.end()
    assert join(start(lambda: count_up(root, acks, 1, 99))) == 0

    assert deleted > 3
    assert join(start(lambda: open_run(RUN, store=store).compact(lambda record: True))) == 0
    states = on_disk(root)
    assert [states[number]["n"] for number in sorted(states)] == list(range(1, len(states) + 1))
    assert len({state["life"] for state in states.values()}) == 1, "two lives in one journal"
    assert not verify(FileStore(root), RUN).damaged


def test_a_writer_of_a_deleted_run_never_lands_in_the_next_one(
    root: Path, acks: Path, thorough: bool
) -> None:
    """Deleted again and again under 6 writers: each life of the run is one chain from 1 on."""
    share, lives = (150, 60) if thorough else (40, 15)
    running = {start(lambda seed=n: count_up(root, acks, share, seed)) for n in range(6)}
    store = FileStore(root)
    chance = random.Random(3)
    deleted = 0
    while running:
        running -= {pid for pid in running if ended_well(pid)}
        time.sleep(chance.uniform(0.0, 0.01))
        if deleted < lives:
            deleted += clean(RUN, store=store)
    assert join(start(lambda: count_up(root, acks, 1, 99))) == 0

    assert deleted > 3
    states = on_disk(root)
    assert [states[number]["n"] for number in sorted(states)] == list(range(1, len(states) + 1))
    assert sorted(states) == list(range(1, len(states) + 1))
    assert len({state["life"] for state in states.values()}) == 1, "two lives in one journal"
    assert not verify(FileStore(root), RUN).damaged
    assert not list(root.glob(".deleted-*"))


def ended_well(pid: int) -> bool:
    """Say whether a child has ended; it may not have failed."""
    done, status = os.waitpid(pid, os.WNOHANG)
    assert not done or os.waitstatus_to_exitcode(status) == 0, "a writer failed; see above"
    return bool(done)


def test_parent_and_child_go_on_after_a_fork(root: Path) -> None:
    """The child is a writer of its own; its save is a foreign one for the parent, and back."""
    store = FileStore(root)
    checkpoint(RUN, {"n": 1}, store=store)

    child = start(lambda: checkpoint(RUN, {"n": load(RUN, store=store)["n"] + 1}, store=store))

    assert join(child) == 0
    assert load(RUN, store=store) == {"n": 2}
    assert checkpoint(RUN, {"n": 3}, store=store) == 3
    child = start(lambda: None)
    assert join(child) == 0
    assert checkpoint(RUN, {"n": 4}, store=store) == 4
    assert load(RUN, store=store) == {"n": 4}


@pytest.mark.parametrize("same", [False, True])
def test_twenty_processes_begin_at_once(tmp_path: Path, acks: Path, same: bool) -> None:
    """In a store that is not there yet, on runs of their own or on one: all are there."""
    root = tmp_path / "new" / "runs"
    code = (
        "import sys; from pathlib import Path; from integration_tests.stores.workers import *\n"
        "from integration_tests.stores import workers\n"
        "workers.RUN = sys.argv[4]\n"
        "print('ready', flush=True); sys.stdin.read(1)\n"
        "count_up(Path(sys.argv[1]), Path(sys.argv[2]), 2, int(sys.argv[3]))"
    )
    crowd = []
    for number in range(20):
        run_id = RUN if same else f"{RUN}-{number}"
        command = [sys.executable, "-c", code, str(root), str(acks), str(number), run_id]
        crowd.append(
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        )
    for process in crowd:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in crowd:
        assert process.stdin is not None
        process.stdin.write(b"x")
        process.stdin.close()
    assert [process.wait(60) for process in crowd] == [0] * 20
    for process in crowd:
        process.stdout.close()  # type: ignore[union-attr]

    assert len(acknowledged(acks)) == 40
    if same:
        check(root, acknowledged(acks), unacknowledged=0)
    assert [info.waypoints for info in list_runs(store=root)] == ([40] if same else [2] * 20)
