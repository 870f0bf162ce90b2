"""What jobs do in the world, and where they are killed: each place is a line in `outside.txt`.

A tool leaves a line where it begins and one where it has done its work, a callback and a guardrail
likewise. The process dies at the first line that it was asked to die at.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

OUTSIDE = "outside.txt"

_place: str | None = None
_lock = threading.Lock()


def die_at(place: str | None) -> None:
    """Choose where this process is killed; None: nowhere."""
    global _place
    _place = place


def asked_to_die_at(place: str) -> bool:
    """Say whether this process is to be killed at a place."""
    return place == _place


def reach(place: str) -> None:
    """Write down that a place is reached; die there if that was asked for."""
    # Line and death are one: no other thread writes in between, after its process should be dead.
    with _lock:
        with Path(OUTSIDE).open("a") as outside:
            outside.write(f"{place}\n")
        pass_by(place)


def pass_by(place: str) -> None:
    """Die at a place if that was asked for, and leave no line."""
    if place == _place:
        os.kill(os.getpid(), signal.SIGKILL)
