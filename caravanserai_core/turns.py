"""Turns: work on one run is done one piece at a time, in the order in which it was asked for.

What a caller saves takes its place in the queue at once; then whoever holds the mutex does the
queue in order. So a save that was cancelled, or that waits in another thread, can neither be lost
nor land after a newer one.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from caravanserai_core import signals
from caravanserai_core.errors import StoreBusy

if TYPE_CHECKING:
    from collections.abc import Callable


class Turn:
    """A piece of work that has its place in the queue."""

    __slots__ = ("done", "error", "result", "work")

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None

    def execute(self) -> None:
        """Do it, and keep its result or error for who waits."""
        try:
            self.result = self.work()
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self.error = error
        self.done = True


class Turns:
    """The queue of one run."""

    def __init__(self) -> None:
        self.reset()
        _all.add(self)

    def reset(self) -> None:
        """Begin anew: in a forked child, what was queued is its parent's to do."""
        self._mutex = threading.RLock()
        self._queue: deque[Turn] = deque()
        self._busy = False

    @property
    def busy(self) -> bool:
        """Whether something is queued or being done, as far as that can be seen without waiting."""
        return self._busy or bool(self._queue)

    def do(self, work: Callable[[], Any]) -> Any:
        """Do `work` after everything that was queued before it, alone; return its result."""
        return self.finish(self.take(work))

    def take(self, work: Callable[[], Any]) -> Turn:
        """Give `work` its place in the queue; `finish` sees to it that it is done."""
        turn = Turn(work)
        self._queue.append(turn)
        return turn

    def finish(self, turn: Turn) -> Any:
        """Do what is queued up to `turn` and return its result, or raise its error."""
        holding = signals.hold()
        try:
            self._finish(turn)
        finally:
            if holding:
                signals.let()
        error, turn.error = turn.error, None  # or the traceback would keep itself alive
        if error is not None:
            raise error
        return turn.result

    def _finish(self, turn: Turn) -> None:
        with self._mutex:
            if self._busy:  # only the same thread gets here: a signal handler or a finaliser
                self._queue.remove(turn)
                raise StoreBusy(
                    "a save or load of this run is interrupted by this very call, so it cannot be "
                    "done here. In a signal handler set a flag, and save where the loop sees it."
                )
            while not turn.done:
                first = self._queue.popleft()
                self._busy = True
                try:
                    first.execute()
                finally:
                    self._busy = False
                if first is not turn and not isinstance(first.error, Exception | None):
                    raise first.error  # ^C while this thread did the work of another one

    def if_idle(self, work: Callable[[], Any]) -> None:
        """Do `work` if nothing is being done or queued; else leave it."""
        if self._mutex.acquire(blocking=False):
            try:
                if not self._busy and not self._queue:
                    work()
            finally:
                self._mutex.release()


_all: weakref.WeakSet[Turns] = weakref.WeakSet()


def _after_fork() -> None:
    for turns in list(_all):
        turns.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
