"""The cost of a waypoint or a list does not grow with what is not concerned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

from caravanserai import FileStore, checkpoint, get_waypoint, history, list_runs, load
from caravanserai_core.journal import _table
from caravanserai_core.stores._seam import Files
from integration_tests.support import ROOT


class CountingFiles(Files):
    """Counts calls by name."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        for name in ("open", "write", "fstat", "stat", "lstat", "listdir", "rename", "truncate"):
            setattr(self, name, self._counted(name, getattr(Files, name)))

    def _counted(self, name: str, call: object) -> object:
        def counted(*args: object, **kwargs: object) -> object:
            self.calls[name] = self.calls.get(name, 0) + 1
            return call(*args, **kwargs)  # type: ignore[operator]

        return counted

    def read(self, fd: int, size: int, offset: int) -> bytes:
        data = super().read(fd, size, offset)
        self.calls["bytes read"] = self.calls.get("bytes read", 0) + len(data)
        return data


def calls_of_one_checkpoint(root: Path) -> dict[str, int]:
    """Count what the second waypoint of a new run costs in a store."""
    files = CountingFiles()
    store = FileStore(root, files=files)
    checkpoint("new", {"n": 1}, "one", store=store)
    files.calls.clear()
    checkpoint("new", {"n": 2}, "two", store=store)
    return files.calls


def test_a_waypoint_costs_the_same_beside_thousands_of_runs(tmp_path: Path) -> None:
    """No call depends on how many runs or waypoints lie beside; no folder is listed."""
    full = tmp_path / "full"
    for number in range(3000):
        (full / f"old-{number}").mkdir(parents=True)
    for number in range(50):
        checkpoint(f"old-{number}", {"n": number}, store=full)

    alone, crowded = calls_of_one_checkpoint(tmp_path / "empty"), calls_of_one_checkpoint(full)

    assert crowded == alone
    assert "listdir" not in crowded


def test_a_waypoint_costs_the_same_after_hundreds_of_others(tmp_path: Path) -> None:
    """The calls and the bytes read do not grow with the number of waypoints."""
    files = CountingFiles()
    store = FileStore(tmp_path / "s", files=files)
    counts = []
    for number in range(400):
        files.calls.clear()
        checkpoint("run", {"n": number % 10}, "step", store=store)
        counts.append(dict(files.calls))
    assert counts[10] == counts[399]


def test_importing_lists_no_folder(tmp_path: Path) -> None:
    """`import caravanserai` in a folder with a store opens and lists nothing in it."""
    checkpoint("run", 1, store=tmp_path / ".caravanserai")
    code = (
        "import os, sys, json\n"
        "seen = []\n"
        "sys.addaudithook(lambda event, args: seen.append(str(args[0])) "
        "if event in ('open', 'os.listdir', 'os.scandir') else None)\n"
        "import caravanserai\n"
        "print(json.dumps([path for path in seen if '.caravanserai' in path]))\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")])}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert json.loads(done.stdout) == [], done.stderr


def test_a_list_reads_no_state(tmp_path: Path) -> None:
    """Runs with states of 30 MB are listed in a few kilobytes of memory and of reading."""
    files = CountingFiles()
    store = FileStore(tmp_path / "s", files=files)
    checkpoint("whole", {"text": "x" * 30_000_000}, "a large one", store=store)
    checkpoint("patched", {"text": "x" * 30_000_000, "n": 0}, "a large one", store=store)
    checkpoint("patched", {"text": "x" * 30_000_000, "n": 1}, "a small step", store=store)
    files.calls.clear()

    tracemalloc.start()
    runs = list_runs(store=store)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert {run.run_id: run.waypoints for run in runs} == {"whole": 1, "patched": 2}
    assert peak < 10_000_000
    assert files.calls["bytes read"] < 5_000_000


def test_a_list_costs_the_same_however_many_waypoints_a_run_has(tmp_path: Path) -> None:
    """What is opened, listed and read for a run's line does not grow with the run."""
    counts = []
    for waypoints in (2, 300):
        files = CountingFiles()
        store = FileStore(tmp_path / f"s{waypoints}", files=files)
        for number in range(waypoints):
            checkpoint("run", {"n": number % 2, "text": "x" * 2000}, "step", store=store)
        files.calls.clear()
        assert [run.waypoints for run in list_runs(store=store)] == [waypoints]
        counts.append(dict(files.calls))
    read = [count.pop("bytes read") for count in counts]
    assert counts[1] == counts[0]
    assert read[1] < read[0] + 20_000, "of a run of 700 kB"


def test_a_history_reads_no_state(tmp_path: Path) -> None:
    """The notes of a run are read without decoding or holding its states."""
    store = FileStore(tmp_path / "s")
    for number in range(5):
        checkpoint("run", [str(number) * 10_000_000], f"step {number}", store=store)

    tracemalloc.start()
    notes = [str(waypoint.note) for waypoint in history("run", store=store)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert notes == [f"step {number}" for number in range(5)]
    assert peak < 10_000_000


def test_an_old_waypoint_is_found_without_reading_the_others(tmp_path: Path) -> None:
    """One of a thousand waypoints is loaded from a part of the journal."""
    files = CountingFiles()
    store = FileStore(tmp_path / "s", files=files)
    for number in range(1000):
        checkpoint("run", {"n": number, "fill": "x" * 3000}, "step", store=store)
    _table.clear()
    files.calls.clear()

    assert load("run", at=990, store=store)["n"] == 989
    assert get_waypoint("run", at=990, store=store).number == 990
    assert files.calls["bytes read"] < 2 * 1_200_000
