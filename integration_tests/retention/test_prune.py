"""Old waypoints go for good; what is newest, pinned or needed stays and loads."""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from caravanserai import (
    FileStore,
    MemoryStore,
    RunNotFound,
    StoreFailed,
    UsageError,
    WaitingForPerson,
    WaypointNotFound,
    answer,
    checkpoint,
    get_waypoint,
    history,
    load,
    open_run,
    open_store,
    pin,
    prune,
)
from caravanserai_core import records, retention
from caravanserai_core.journal import forget
from caravanserai_core.verify import verify
from integration_tests.support import ROOT


def state(number: int) -> dict[str, Any]:
    """A state of which a little changes with each waypoint."""
    return {"n": number, "pair": (number, 0), "log": [f"line {i}" for i in range(number % 50)]}


def saved(count: int, store: Any = None) -> None:
    """Write waypoints 1 to `count`."""
    for number in range(1, count + 1):
        checkpoint("run", state(number), f"step {number}", store=store)


def numbers(store: Any = None) -> list[int]:
    """Return the numbers of the run's waypoints."""
    return [point.number for point in history("run", store=store)]


def size(folder: Path) -> int:
    """Return how many bytes lie in a run's folder."""
    return sum(path.stat().st_size for path in folder.iterdir())


def test_a_thousand_waypoints_become_twenty(store_dir: Path) -> None:
    """All that stay load, in a new process too; disk and notes shrink."""
    saved(1000)
    pin("run", 7)
    before = size(store_dir / "run")

    removed = prune("run", keep=20)

    assert removed == 979
    assert numbers() == [7, *range(981, 1001)]
    forget(FileStore(store_dir), "run")
    assert [load("run", n) for n in numbers()] == [state(n) for n in numbers()]
    assert size(store_dir / "run") < before / 20
    notes = {path.name for path in (store_dir / "run").glob("waypoint-*.md")}
    assert notes == {f"waypoint-{n}.md" for n in numbers()}
    assert not verify(FileStore(store_dir), "run").findings
    assert checkpoint("run", state(1001)) == 1001
    with pytest.raises(WaypointNotFound):
        load("run", 980)


def test_pins_are_kept_over_prunings_and_can_be_taken_back(store_dir: Path) -> None:
    saved(10)
    assert pin("run", -8) == 3
    pin("run", 5)
    journal = store_dir / "run/journal-1.jsonl"
    lines = len(journal.read_bytes().splitlines())
    pin("run", 5)
    assert len(journal.read_bytes().splitlines()) == lines, "a second pin says nothing new"

    prune("run", keep=2)
    forget(FileStore(store_dir), "run")
    prune("run", keep=1)
    assert numbers() == [3, 5, 10]

    pin("run", 3, unpin=True)
    assert prune("run", keep=1) == 1
    assert numbers() == [5, 10]
    with pytest.raises(WaypointNotFound):
        pin("run", 3)


def test_pins_survive_a_new_segment(store_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caravanserai_core.stores._file.SEGMENT_SIZE", 2_000)
    saved(3)
    pin("run", 2)
    for number in range(4, 40):
        checkpoint("run", state(number))
    assert len(list((store_dir / "run").glob("journal-*"))) > 1

    prune("run", keep=1)

    assert numbers() == [2, 39]


def test_a_pinned_run_that_is_finished_stays_finished(store_dir: Path) -> None:
    with open_run("run", store=store_dir) as run:
        run.checkpoint({"n": 1})
        run.checkpoint({"n": 2})
        run.finish({"answer": (42,)})

    pin("run", 1)
    prune("run", keep=1)
    pin("run", 1, unpin=True)
    forget(FileStore(store_dir), "run")

    assert open_run("run", store=store_dir).finished() == (True, {"answer": (42,)})
    from caravanserai import list_runs

    assert [info.status for info in list_runs()] == ["finished"]


def test_what_is_young_stays(store_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns()
    for number, days in enumerate((40, 35, 31, 29, 1), 1):
        then = now - days * 86_400 * 10**9
        with monkeypatch.context() as clock:
            clock.setattr(records.time, "time_ns", lambda then=then: then)
            checkpoint("run", state(number))
    month = datetime.timedelta(days=30)

    assert prune("run", keep=4, older_than=month) == 1
    assert numbers() == [2, 3, 4, 5]
    assert prune("run", older_than=month) == 2
    assert numbers() == [4, 5]
    assert prune("run", older_than=datetime.timedelta(0)) == 1
    assert numbers() == [5], "the newest one always stays"


def test_lanes_keep_their_newest(store_dir: Path) -> None:
    run = open_run("run", store=store_dir)
    for number in range(1, 4):
        run.checkpoint({"main": number})
        run.checkpoint({"side": number}, lane="side")

    prune("run", keep=2)

    assert [(w.lane, w.state) for w in history("run")] == [
        ("", {"main": 2}),
        ("", {"main": 3}),
        ("side", {"side": 3}),
    ]


def test_a_waypoint_with_an_open_question_stays(store_dir: Path) -> None:
    """And the question with it: it can be answered afterwards."""
    saved(3)
    with open_run("run", store=store_dir) as run, pytest.raises(WaitingForPerson):
        run.ask("Go on?")
    checkpoint("run", state(4))
    checkpoint("run", state(5))

    prune("run", keep=1)
    forget(FileStore(store_dir), "run")

    assert numbers() == [3, 5]
    answer("run", "yes")
    with open_run("run", store=store_dir) as run:
        assert run.ask("Go on?") == "yes"
    prune("run", keep=1)
    assert numbers() == [5]


def test_a_question_of_a_finished_run_is_open_no_more(store_dir: Path) -> None:
    saved(3)
    with open_run("run", store=store_dir) as run:
        with pytest.raises(WaitingForPerson):
            run.ask("Go on?")
        run.checkpoint(state(4))
        run.finish("done without an answer")

    prune("run", keep=1)

    assert numbers() == [4]


def test_nothing_is_written_where_nothing_goes(store_dir: Path) -> None:
    saved(3)
    before = (store_dir / "run/journal-1.jsonl").read_bytes()

    assert prune("run", keep=3) == 0

    assert (store_dir / "run/journal-1.jsonl").read_bytes() == before


@pytest.mark.parametrize("wanted", [{}, {"keep": 0}, {"keep": True}, {"older_than": 30}])
def test_a_wrong_wish_is_refused(store_dir: Path, wanted: dict[str, Any]) -> None:
    saved(2)

    with pytest.raises(UsageError):
        prune("run", **wanted)
    with pytest.raises(RunNotFound):
        prune("other", keep=1)
    assert numbers() == [1, 2]


# ---------------------------------------------------------------------- a store that prunes itself


def test_a_store_with_keep_is_bounded(tmp_path: Path) -> None:
    """After 1,100 saves there are at most twice as many waypoints as are to stay."""
    store = FileStore(tmp_path / "runs", keep=50)
    sizes: list[int] = []
    for number in range(1, 1101):
        checkpoint("run", state(number), f"step {number}", store=store)
        if number % 100 == 99:
            assert len(numbers(store)) <= 100
            sizes.append(size(tmp_path / "runs/run"))

    assert numbers(store) == list(range(1051, 1101))
    assert max(sizes[2:]) < 1.2 * sizes[1]
    assert load("run", 1051, store=store) == state(1051)


def test_a_store_in_memory_prunes_too() -> None:
    store = MemoryStore()
    saved(30, store)
    pin("run", 4, store=store)

    assert prune("run", keep=3, store=store) == 26
    assert numbers(store) == [4, 28, 29, 30]
    assert [load("run", n, store=store) for n in numbers(store)] == [
        state(n) for n in numbers(store)
    ]


def test_a_pruning_that_fails_is_no_failure_of_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = FileStore(tmp_path / "runs", keep=2)

    def full(*_: Any) -> Any:
        raise StoreFailed("the disk is full")

    monkeypatch.setattr(store, "replace", full)
    saved(9, store)

    assert numbers(store) == list(range(1, 10))
    assert "run run was not pruned: the disk is full" in caplog.text


def test_short_processes_prune_too(tmp_path: Path) -> None:
    """Nothing has to be remembered: each save may come from another process."""
    address = f"file://{tmp_path}/runs?keep=3"
    for number in range(1, 12):
        store = open_store(address)
        checkpoint("run", state(number), store=store)
        forget(store, "run")

    assert numbers(address) == [7, 8, 9, 10, 11]
    assert open_store(open_store(address).url).keep == 3


def test_the_address_is_checked(tmp_path: Path) -> None:
    for wrong in ("keep=", "keep=-1", "keep=0", "keep=many", "kept=3"):
        with pytest.raises(UsageError, match="keep"):
            open_store(f"file://{tmp_path}/runs?{wrong}")


def test_prunings_are_spread() -> None:
    """One pruning for each `keep` waypoints, none before there are twice as many."""
    due = [number for number in range(1, 1001) if retention.is_due(50, number)]

    assert due == list(range(100, 1001, 50))
    assert not any(retention.is_due(None, number) for number in range(1, 1000))


# ---------------------------------------------------------------------- with other processes

WRITER = """
import sys
from caravanserai import checkpoint
for number in range(1, int(sys.argv[1]) + 1):
    checkpoint("run", {"n": number, "text": "x" * 5000})
    print(number, flush=True)
"""

PRUNER = """
import sys
from caravanserai import prune
print("ready", flush=True)
while True:
    prune("run", keep=5)
"""


def started(source: str, folder: Path, *args: str) -> subprocess.Popen[str]:
    """Start a Python program in a folder."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")])}
    command = [sys.executable, "-c", source, *args]
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True)


def test_a_writer_goes_on_beside_a_pruning(tmp_path: Path, store_dir: Path, thorough: bool) -> None:
    """Another process prunes all the time: no save is refused, none is lost."""
    count = 2000 if thorough else 150
    writer = started(WRITER, tmp_path, str(count))
    assert writer.stdout is not None
    assert writer.stdout.readline() == "1\n"
    pruner = started(PRUNER, tmp_path)
    try:
        assert writer.stdout.read().split()[-1] == str(count)
        assert writer.wait(60) == 0
    finally:
        pruner.kill()
        pruner.wait()

    prune("run", keep=5)
    assert numbers() == list(range(count - 4, count + 1))
    assert load("run") == {"n": count, "text": "x" * 5000}
    assert not verify(FileStore(store_dir), "run").findings


SLOW = """
import os, sys
from caravanserai import checkpoint, pin, prune
for number in range(1, 61):
    checkpoint("run", {"n": number, "text": "x" * 20000})
pin("run", 9)
print("ready", flush=True)
prune("run", keep=5)
print("done", flush=True)
"""


def test_a_kill_in_the_middle_loses_nothing(
    tmp_path: Path, store_dir: Path, thorough: bool
) -> None:
    """After SIGKILL at any moment the run is as before or as after, and goes on."""
    for turn in range(40 if thorough else 6):
        folder = tmp_path / str(turn)
        folder.mkdir()
        process = started(SLOW, folder)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(turn % 12 * 0.0015)
        process.send_signal(signal.SIGKILL)
        process.wait()

        store = FileStore(folder / ".caravanserai")
        left = numbers(store)
        assert left in (list(range(1, 61)), [9, *range(56, 61)])
        assert load("run", store=store) == {"n": 60, "text": "x" * 20000}
        assert checkpoint("run", {"n": 61}, store=store) == 61
        prune("run", keep=1, store=store)
        assert numbers(store) == [9, 61]
        assert not verify(store, "run").findings
        assert get_waypoint("run", 9, store=store).state["n"] == 9
