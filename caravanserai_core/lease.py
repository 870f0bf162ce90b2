"""The lease of a run: that this process works on it, and under which epoch it writes.

One `Lease` per run and process, part of its journal. All that works on the run here shares what
was taken once. A process that holds none writes all the same (`checkpoint` alone, a saver, an
answer given on the command line), and notices others by their waypoints. One that held the run and
was taken over is refused, until it has given the lease back and looked at the run again.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

from caravanserai_core import codec
from caravanserai_core.errors import StaleWriter
from caravanserai_core.opening import writer
from caravanserai_core.quoting import one_line
from caravanserai_core.records import now
from caravanserai_core.stores.base import ANY_EPOCH
from caravanserai_core.stores.owners import Holder, host_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from caravanserai_core.stores.base import Appended, Sealed, Store, Tail
    from caravanserai_core.stores.owners import Hold, Lapsed

    Seal = Callable[..., Sealed]


class Held:
    """A lease that this process has, for as long as anything here works on the run.

    Attributes:
        hold: the store's part of it.
        epoch: under which the process writes.
        users: how many share it.
    """

    __slots__ = ("epoch", "hold", "users")

    def __init__(self, hold: Hold, epoch: int) -> None:
        self.hold = hold
        self.epoch = epoch
        self.users = 0


class Lease:
    """What this process has of the lease of one run.

    Attributes:
        lost: it was taken over, and the program has not looked at the run since.
    """

    def __init__(self, store: Store, run_id: str) -> None:
        self._store = store
        self._run_id = run_id
        self.reset()
        _all.add(self)

    def reset(self) -> None:
        """Begin anew: a forked child holds nothing."""
        # Re-entrant: a generator that holds the lease may be closed wherever the collector runs.
        self._lock = threading.RLock()
        self._held: Held | None = None
        self.lost = False

    @property
    def held(self) -> bool:
        """Whether this process holds the run."""
        return self._held is not None

    def epoch(self) -> int:
        """Return the epoch to write under.

        Raises:
            StaleWriter: the run was taken over from this process.
        """
        held = self._held
        if held is not None:
            return held.epoch
        if self.lost:
            raise StaleWriter(
                f"run {one_line(self._run_id)}: another process took it over from this one while "
                "it worked on it. Nothing was written. load() it, or open it again, to go on from "
                "what is there."
            )
        return ANY_EPOCH

    def after(self, tail: Tail | None) -> int:
        """Return the epoch of a journal behind an append to `tail`."""
        held = self._held
        return max(tail.epoch if tail is not None else 1, held.epoch if held is not None else 1)

    def looked(self) -> None:
        """The program has looked at the run: what it writes now goes on from what is there."""
        self.lost = False

    def take(self, known: Tail | None) -> Held | None:
        """Take the run, or share what this process holds of it.

        Args:
            known: the end of the journal, as it was last seen.

        Returns:
            What to give back, or None where the journal ends elsewhere by now.

        Raises:
            RunBusy: another process holds it.
            Lapsed: one did that is dead, or gives no sign of life: see `take_over`.
        """
        with self._lock:
            held = self._held
            if held is None:
                epoch = known.epoch if known is not None else 1
                hold = self._store.hold(self._run_id, known, _me(epoch))
                if hold is None:
                    return None
                held = self._held = Held(hold, epoch)
                self.lost = False
            held.users += 1
            return held

    def take_over(self, known: Tail | None, seal: Seal, lapsed: Lapsed | None = None) -> Appended:
        """Take the run from whoever holds it; `share` is what gives it back.

        Args:
            known: the end of the journal, as this process knows it.
            seal: raises the epoch; see `Store.take_over`.
            lapsed: take it from this owner alone, who is dead or gives no sign of life.

        Raises:
            RunBusy: it is no longer that one's.
        """
        with self._lock:
            appended, hold = self._store.take_over(self._run_id, known, _me(1), seal, lapsed=lapsed)
            self._held = Held(hold, appended.tail.epoch)
            self.lost = False
            return appended

    def give_back(self, held: Held) -> None:
        """Give back what `take` returned, once; the last one gives the run back."""
        with self._lock:
            if held is not self._held:
                return  # in a forked child: its parent's
            held.users -= 1
            if held.users <= 0:
                self._held = None
                held.hold.release()


def taken_body(holder: Holder) -> bytes:
    """Return the body of a `lease` record: who takes the run over, and from whom."""
    me = _me(1)
    before = {"host": holder.host, "pid": holder.pid, "since": holder.since}
    data = {"host": me.host, "pid": me.pid, "since": me.since, "from": before}
    return b'"data":' + codec.encode(data).data


def _me(epoch: int) -> Holder:
    return Holder(host_name(), os.getpid(), now(), epoch, writer())


_all: weakref.WeakSet[Lease] = weakref.WeakSet()


def _after_fork() -> None:
    for lease in list(_all):
        lease.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
