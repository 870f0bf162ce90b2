"""Notes written a moment later, by a thread of their own.

Where many threads compete for a step, as in LangGraph, a note must not be on the path that an
acknowledgement waits for: written there it costs more than the sync does. Notes are derived, so
what a killed process did not come to is rendered again by the next command that shows it.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from typing import Final, Protocol

from caravanserai_core import signals
from caravanserai_core.errors import CaravanseraiError
from caravanserai_core.quoting import one_line

_log = logging.getLogger("caravanserai")

GATHER: Final = 0.05
"""Seconds that notes wait for others; then the next waypoint's append writes them all.

Only where none comes, this thread does it: it would need the run's lock, which a busy writer needs.
"""


class Journal(Protocol):
    """What has notes to write: `caravanserai_core.journal.Journal`."""

    run_id: str
    last_append: float

    def write_notes(self) -> None:
        """Write the notes that are ready."""


_waiting: set[Journal] = set()
_lock = signals.Lock()
_woken = threading.Event()
_thread: threading.Thread | None = None


def later(journal: Journal) -> None:
    """See to it that the notes a journal has ready are written soon."""
    global _thread
    with _lock:
        _waiting.add(journal)
        if _thread is None:
            _thread = threading.Thread(target=_work, name="caravanserai-notes", daemon=True)
            try:
                _thread.start()
            except RuntimeError:  # the interpreter is ending: `_drain_all` comes
                _thread = None
    if not _woken.is_set():  # cleared only under the lock, and only where none waits
        _woken.set()


def drain(journal: Journal) -> None:
    """Write the notes that a journal has ready, now."""
    with _lock:
        _waiting.discard(journal)
    _write(journal)


def _work() -> None:
    pause = threading.Event()
    while True:
        _woken.wait()
        pause.wait(GATHER)
        with _lock:
            idle = [j for j in _waiting if time.monotonic() - j.last_append > GATHER]
            _waiting.difference_update(idle)
            if not _waiting:
                _woken.clear()
        for journal in idle:
            _write(journal)


def _drain_all() -> None:
    while True:
        with _lock:
            if not _waiting:
                return
            journal = _waiting.pop()
        _write(journal)


def _write(journal: Journal) -> None:
    try:
        journal.write_notes()
    except CaravanseraiError as error:
        _log.warning("notes of run %s were not written: %s", one_line(journal.run_id), error)


atexit.register(_drain_all)


def _after_fork() -> None:
    # What waited is the parent's to write.
    global _lock, _woken, _thread
    _lock, _woken, _thread = signals.Lock(), threading.Event(), None
    _waiting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
