"""How much of a journal is durable, for those who write without waiting for the disk.

An adapter that writes many small records lets them go unsynced and waits a moment: the next
record that is synced makes them durable too, with the same call to the disk. Threads wait here
outside of the run's turns, so that who syncs is not held up by who waits for it.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING

from caravanserai_core.errors import StoreFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Durability:
    """What this process knows to be durable of one run.

    Attributes:
        seq: number of the last record that is.
    """

    def __init__(self) -> None:
        self.seq = 0
        # First and last seq of what a failed sync took, until others have these numbers.
        self._lost = (0, 0)
        self.after_fork()
        _all.add(self)

    def after_fork(self) -> None:
        """Begin anew in a forked child: a thread that it does not have may hold the lock."""
        self._changed = threading.Condition()
        self._watching: set[Callable[[], None]] = set()

    @contextmanager
    def watch(self, changed: Callable[[], None]) -> Iterator[None]:
        """Call `changed`, from whatever thread, each time that something became durable or lost."""
        with self._changed:
            self._watching.add(changed)
        try:
            yield
        finally:
            with self._changed:
                self._watching.discard(changed)

    def _wake(self) -> None:
        self._changed.notify_all()
        for changed in self._watching:
            changed()

    def reached(self, seq: int) -> None:
        """Note that the records up to `seq` are durable, and wake who waits for that."""
        with self._changed:
            self.seq = seq
            self._wake()

    def forget(self) -> None:
        """Note that nothing is known any more: the journal is to be read again."""
        self.seq = 0

    def written(self, first: int) -> None:
        """Note that records were written, from this number on: in the place of what was lost."""
        if first <= self._lost[1]:
            self._lost = (0, 0)

    def lost(self, last: int) -> None:
        """Note that what is not durable, up to record `last`, may be gone, and wake who waits."""
        with self._changed:
            self._lost = (self.seq + 1, last)
            self._wake()

    def check(self, seq: int) -> None:
        """Refuse a record that a failed sync may have taken.

        Raises:
            StoreFailed: it did.
        """
        if self._is_lost(seq):
            raise StoreFailed(
                f"the disk did not keep record {seq}, which was written and not yet acknowledged. "
                "What was acknowledged stands; mend the cause and run again."
            )

    def wait(self, seq: int, seconds: float) -> bool:
        """Wait until record `seq` is durable.

        Args:
            seq: its number.
            seconds: how long to wait at most.

        Returns:
            Whether it is.

        Raises:
            StoreFailed: a failed sync may have taken it.
        """
        if self.seq >= seq and not self._is_lost(seq):
            return True
        with self._changed:
            self._changed.wait_for(lambda: self.seq >= seq or self._is_lost(seq), seconds)
            self.check(seq)
            return self.seq >= seq

    def _is_lost(self, seq: int) -> bool:
        return self._lost[0] <= seq <= self._lost[1]


_all: weakref.WeakSet[Durability] = weakref.WeakSet()


def _after_fork() -> None:
    for durability in list(_all):
        durability.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
