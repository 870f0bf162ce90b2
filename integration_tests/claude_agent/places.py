"""What jobs do in the world, and where they are killed: each place is a line in `outside.txt`.

A tool leaves a line where it begins and one where it has done its work. At the place that was
asked for, one of three things dies: "both", the program and the CLI with one signal, as in a power
cut; "python", the program alone, so that the CLI is an orphan; "cli", the CLI alone.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import psutil

OUTSIDE = "outside.txt"

_place: str | None = None
_how = "both"
_lock = threading.Lock()


def die_at(place: str | None, how: str) -> None:
    """Choose where this process is killed, and with whom; None: nowhere."""
    global _place, _how
    _place, _how = place, how


def reach(place: str) -> None:
    """Write down that a place is reached; die there if that was asked for."""
    with _lock:
        note(place)
        pass_by(place)


def note(line: str) -> None:
    """Leave a line."""
    with Path(OUTSIDE).open("a") as outside:
        outside.write(f"{line}\n")


def pass_by(place: str) -> None:
    """Die at a place if that was asked for, and leave no line."""
    if place == _place:
        kill(os.getpid(), _how)


def kill(pid: int, how: str) -> None:
    """Kill a program that leads a group of processes, and its CLI, or one of them."""
    if how == "both":
        os.killpg(pid, signal.SIGKILL)
    elif how == "python":
        os.kill(pid, signal.SIGKILL)
    else:
        for process in psutil.Process(pid).children():
            process.kill()
