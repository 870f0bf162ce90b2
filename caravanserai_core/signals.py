"""Signals wait while a run is written: some tenths of a millisecond.

Python runs signal handlers in the main thread, between any two steps of it. One that raises (^C) or
saves would find an append half done. So while the main thread works on a run, the handlers that
programs have set are replaced by one that takes note; they are called when it is done, or while it
waits for another process. Signals without a handler do what they do: a process may end anywhere.

Blocking the signals would not do: where another thread has them unblocked it gets them, and the
handler runs in the main thread all the same.
"""

from __future__ import annotations

import importlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# Not those by which the system reports an error of the program itself: they must not wait.
_HELD = [
    int(number)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2")
    if (number := getattr(signal, name, None)) is not None
]

_get: Callable[[int], Any] = signal.getsignal
_set: Callable[[int, Any], Any] = signal.signal
try:
    # These turn each number and handler into an enum, ten times the cost of what is below them.
    _c: Any = importlib.import_module("_signal")
    _get, _set = _c.getsignal, _c.signal
except (ImportError, AttributeError):  # another Python than CPython
    pass

_main = threading.main_thread().ident
_LONGEST = 0.05
"""Seconds that signals wait while somebody else has a `Lock`."""

_holding = False
_handlers: dict[int, Any] = {}
"""The program's own handler of each signal that was ever held back."""
_arrived: dict[int, Any] = {}
"""Signals that came meanwhile, each once, with the frame that the first one interrupted."""


def _arrive(number: int, frame: Any) -> None:
    if _holding:
        _arrived.setdefault(number, frame)
    else:  # `hold` or `let` was interrupted halfway by another signal
        _handlers[number](number, frame)


def hold() -> bool:
    """Hold signals back from the main thread; returns whether this call began it."""
    global _holding
    if _holding or threading.get_ident() != _main:
        return False
    # A handler that is not replaced yet may raise here: those that are pass on what they get.
    try:
        for number in _HELD:
            handler = _get(number)
            if handler is not _arrive and callable(handler):
                _handlers[number] = handler
                _set(number, _arrive)
    except ValueError as error:
        if "main interpreter" in str(error):
            return False  # there are no handlers in a subinterpreter
        raise
    _holding = True
    return True


def let() -> None:
    """Let the signals come that were held back; for who got True from `hold`."""
    global _holding
    _holding = False
    try:
        _give_back()
    finally:
        _deliver()


def _give_back() -> None:
    for number, handler in list(_handlers.items()):
        if _get(number) is _arrive:  # else the program has set another one
            _set(number, handler)


def _deliver() -> None:
    if _arrived:
        number, frame = _arrived.popitem()
        try:
            _handlers[number](number, frame)
        finally:
            _deliver()


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
    held = _holding and threading.get_ident() == _main
    if held:
        let()
    try:
        time.sleep(seconds)
    finally:
        if held:
            hold()


def _after_fork() -> None:
    global _holding, _main
    # A forked thread is the main one from now on, and what came was its parent's.
    _holding, _main = False, threading.get_ident()
    _arrived.clear()
    _give_back()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
