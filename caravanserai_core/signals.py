"""Signals wait while a run is written: some tenths of a millisecond.

Python runs signal handlers in the main thread, between any two steps of it. One that raises (^C) or
saves would find an append half done. So while the main thread works on a run, the signals that
programs handle are held back; they arrive when it is done, or while it waits for another process.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Not those by which the system reports an error of the program itself: they must not wait.
_HELD = {
    number
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2")
    if (number := getattr(signal, name, None)) is not None
}

if sys.platform != "win32":
    # `signal.pthread_sigmask` turns each number of the mask into an enum, ten times the cost of the
    # function of C below it.
    try:
        _mask: Callable[[int, Iterable[int]], Iterable[int]] = importlib.import_module(
            "_signal"
        ).pthread_sigmask
    except (ImportError, AttributeError):  # another Python than CPython
        _mask = signal.pthread_sigmask

_main = threading.main_thread().ident

_LONGEST = 0.05
"""Seconds that signals wait while somebody else has a `Lock`."""

_before: set[int] | None = None
"""What was blocked before the main thread began to hold; None while it does not."""


def hold() -> bool:
    """Hold signals back from the main thread; returns whether this call began it."""
    global _before
    if sys.platform == "win32" or _before is not None or threading.get_ident() != _main:
        return False
    _before = set(_mask(signal.SIG_BLOCK, _HELD))
    return True


def let() -> None:
    """Let the signals come that were held back; for who got True from `hold`."""
    global _before
    before, _before = _before, None
    if sys.platform != "win32" and before is not None:
        _mask(signal.SIG_SETMASK, before)


class Lock:
    """A lock that no signal handler finds held by the very code that it interrupts.

    For a `with` block that is not entered twice by one thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held = False

    def __enter__(self) -> None:
        held = hold()
        while not self._lock.acquire(timeout=_LONGEST):
            if held:
                let()
                held = hold()
        self._held = held

    def __exit__(self, *_: object) -> None:
        held, self._held = self._held, False
        self._lock.release()
        if held:
            let()


def sleep(seconds: float) -> None:
    """Wait, and let signals come meanwhile: nothing is half done here."""
    held = _before is not None and threading.get_ident() == _main
    if held:
        let()
    try:
        time.sleep(seconds)
    finally:
        if held:
            hold()


def _after_fork() -> None:
    global _before, _main
    # A forked thread brings its own mask, and is the main one from now on.
    _before, _main = None, threading.get_ident()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
