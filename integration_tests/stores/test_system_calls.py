"""The calls that the seam sees are those that the system sees, and how many a save costs."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from caravanserai_core import checkpoint, open_run
from caravanserai_core.stores import FileStore
from integration_tests.stores.seams import Logging
from integration_tests.support import ROOT, require_command

RUN = "run"

_PROGRAM = """
import os, sys
from caravanserai_core import checkpoint, load
from integration_tests.stores.seams import Logging
from caravanserai_core.stores import FileStore
seam = Logging()
store = FileStore(sys.argv[1], files=seam)
load("run", store=store)
checkpoint("run", {"n": 2}, "two", store=store)  # imports and caches are warm from here on
before = len(seam.log)
os.path.exists("/begin-here")
checkpoint("run", {"n": 3}, "three", store=store)
os.path.exists("/end-here")
print([name for name, _, _ in seam.log[before:]])
"""

_NAMES = {
    "openat": "open",
    "open": "open",
    "write": "write",
    "fdatasync": "sync_data",
    "fsync": "sync_dir",
    "flock": "lock",
    "close": "close",
    "ftruncate": "truncate",
    "rename": "rename",
    "renameat2": "rename",
    "renameat": "rename",
    "unlink": "unlink",
    "mkdir": "mkdir",
    "stat": "stat",
    "lstat": "stat",
    "fstat": "stat",
    "newfstatat": "stat",
}


def test_the_seam_sees_what_the_system_sees(tmp_path: Path) -> None:
    """Nothing of a checkpoint goes past the seam, so tests that use it prove something."""
    strace = require_command("strace")
    root = tmp_path / "runs"
    checkpoint(RUN, {"n": 1}, store=root)
    trace = tmp_path / "trace"
    calls = ",".join(f"?{name}" for name in _NAMES)
    traced = [strace, "-f", "-o", str(trace), "-e", f"trace={calls}"]
    done = subprocess.run(
        [*traced, sys.executable, "-B", "-c", _PROGRAM, str(root)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    seam = [_seam_name(name) for name in ast.literal_eval(done.stdout)]
    lines = trace.read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if "/begin-here" in line)
    end = next(i for i, line in enumerate(lines) if "/end-here" in line)
    found = [m[1] for line in lines[begin + 1 : end] if (m := re.match(r"\d+ +(\w+)\(", line))]
    system = [_NAMES[name] for name in found]

    assert system == [name for name in seam if name != "read"]  # one may take several calls
    assert system.count("sync_data") == 1
    assert system.count("sync_dir") == 0
    assert system.count("write") == 3  # the record, the note, and latest.md


def _seam_name(name: str) -> str:
    kinds = {"fstat": "stat", "lstat": "stat", "unlock": "lock"}
    return kinds.get(name, name)


def _syncs(seam: Logging, work: Any) -> list[str]:
    before = len(seam.log)
    work()
    return [name for name, _, _ in seam.log[before:] if name.startswith("sync")]


def test_a_save_costs_one_data_sync(tmp_path: Path) -> None:
    """A folder is synced only when a file was made in it."""
    seam = Logging()
    store = FileStore(tmp_path / "runs", files=seam)
    data, names = "sync_data", "sync_dir"

    first = _syncs(seam, lambda: checkpoint(RUN, {"n": 1}, store=store))
    assert first == [names, names, data, names]  # the store, the run's folder, the journal
    for number in range(2, 20):
        assert _syncs(seam, lambda n=number: checkpoint(RUN, {"n": n}, store=store)) == [data]
    run = open_run(RUN, store=store)
    assert _syncs(seam, lambda: run.entry("e", 1, say="called")) == [data]
    assert _syncs(seam, lambda: run.finish("end")) == [data]
    assert _syncs(seam, lambda: checkpoint("two", {"n": 1}, store=store)) == [names, data, names]
    assert _syncs(seam, lambda: store.delete("two")) == [names]


def test_reading_opens_nothing_for_writing(tmp_path: Path) -> None:
    """Readers take no lock and create nothing."""
    from caravanserai_core import get_waypoint, history, list_runs, load

    checkpoint(RUN, {"n": 1}, store=tmp_path / "runs")
    seam = Logging()
    store = FileStore(tmp_path / "runs", files=seam)
    from caravanserai_core.journal import forget

    forget(store, RUN)
    for read in (load, get_waypoint, history):
        read(RUN, store=store)
    list_runs(store=store)

    assert {name for name, _, _ in seam.log} <= {
        "open",
        "close",
        "read",
        "fstat",
        "lstat",
        "listdir",
    }
    assert all(args[1] & os.O_ACCMODE == os.O_RDONLY for n, args, _ in seam.log if n == "open")
