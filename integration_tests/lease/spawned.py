"""What a spawned process runs."""

from __future__ import annotations

import os

import caravanserai


def open_it(folder: str) -> int:
    """Open the run; returns the pid of who holds it, or 0."""
    os.chdir(folder)
    try:
        with caravanserai.open_run("run") as run:
            assert run.waypoint == 1
            return 0
    except caravanserai.RunBusy as busy:
        return busy.pid
