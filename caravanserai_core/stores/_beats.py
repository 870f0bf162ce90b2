"""Signs of life: what the owner of a lease sends to a store that cannot see whether it lives.

One thread for each store of a process, for as long as the process holds anything there. A beat
that fails is tried again with the next one: a lease is lost to another process, not to a network.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_log = logging.getLogger("caravanserai")


class Beats(Generic[T]):
    """Sends signs of life for what this process holds.

    Args:
        beat: sends one for each of these; runs in a thread of its own.
        every: seconds between two.
    """

    def __init__(self, beat: Callable[[list[T]], None], every: float) -> None:
        self._beat = beat
        self.every = every
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._held: list[T] = []
        self._running = False

    def add(self, hold: T) -> None:
        """Send signs of life for this from now on; the first is sent after `every` seconds."""
        if self._pid != os.getpid():
            self._reset()  # a forked child: what its parent holds is not its own
        with self._changed:
            self._held.append(hold)
            if not self._running:
                self._running = True
                thread = threading.Thread(target=self._run, name="caravanserai-lease", daemon=True)
                thread.start()

    def remove(self, hold: T) -> bool:
        """Send none for this any more; returns whether this process held it."""
        if self._pid != os.getpid():
            return False
        with self._changed:
            if hold not in self._held:
                return False
            self._held.remove(hold)
            if not self._held:
                self._changed.notify_all()
            return True

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._held, self.every)
                if not self._held:
                    self._running = False
                    return
                held = list(self._held)
            try:
                self._beat(held)
            except Exception as error:  # noqa: BLE001 - whatever the network has; see above
                _log.warning("no sign of life could be sent for %d runs: %s", len(held), error)
