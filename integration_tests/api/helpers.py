"""What the tests of the public functions share."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from caravanserai_core import FileStore, homes, journal, records
from caravanserai_core.stores.base import Appended, Sealed, Tail
from integration_tests.support import ROOT

DEADLINE = 20.0


def process(code: str, *args: str) -> str:
    """Run code in a new Python process in this folder; returns what it printed."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class GateStore(FileStore):
    """A store on disk whose appends wait until somebody opens the gate."""

    def __init__(self, root: object) -> None:
        super().__init__(str(root))
        self.gate = threading.Event()
        self.arrived = threading.Event()
        self.calls = 0

    def append(
        self,
        run_id: str,
        known: Tail | None,
        epoch: int,
        seal: Callable[[Tail | None, list[Any] | None], Sealed],
        *,
        sync: bool = True,
    ) -> Appended:
        self.calls += 1
        self.arrived.set()
        assert self.gate.wait(DEADLINE), "nobody opened the gate"
        return super().append(run_id, known, epoch, seal, sync=sync)


def forget_everything() -> None:
    """Make this process know as little of any run as a new one does."""
    journal._table.clear()
    homes._homes.clear()


def set_clock(monkeypatch: pytest.MonkeyPatch, time: str) -> None:
    """Make every record of this process say that it was written at `time`."""
    for module in (records, journal):
        monkeypatch.setattr(module, "now", lambda: f"{time}.000000+00:00")
