"""Who works on a run in this process: one job, one client, or options that were handed out."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from caravanserai_core.errors import RunBusy
from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from caravanserai_core.journal import Journal

JOB = "resumable_query"
CLIENT = "WaypointClient"
OPTIONS = "with_waypoints"

_at_work: dict[int, str] = {}
_lock = threading.Lock()


def enter(journal: Journal, kind: str) -> None:
    """Begin to work on a run, as the only one in this process.

    Raises:
        RunBusy: somebody else does.
    """
    with _lock:
        other = _at_work.get(id(journal))
        if other is None:
            _at_work[id(journal)] = kind
            return
    raise RunBusy(
        f"run {one_line(journal.run_id)}: {other} of this very process works on it. Two sessions "
        "at once would spoil it: end that first, or use it."
    )


def leave(journal: Journal) -> None:
    """Note that the work on a run has ended."""
    with _lock:
        _at_work.pop(id(journal), None)
