"""Leases in an object store: one small object per run, changed only by who has seen its version.

Nobody there can see whether the owner of a lease lives. It sends signs of life, and a lease whose
owner has sent none for too long, or whose process is known on this machine to be dead, has lapsed.
How old a sign is, is told by the server's clock alone: by the time at which it was written and the
time at which something is written now. Nothing rests on that, though: an owner that wakes up
after its lease lapsed is refused by the journal's epoch.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from caravanserai_core.errors import CaravanseraiError, StoreBusy
from caravanserai_core.quoting import visible
from caravanserai_core.stores import _alive
from caravanserai_core.stores._beats import Beats
from caravanserai_core.stores._objects_layout import LEASE, new_nonce
from caravanserai_core.stores.base import ANY_EPOCH
from caravanserai_core.stores.owners import Hold, Holder, Lapsed, busy_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from caravanserai_core.stores._objects_bucket import Bucket
    from caravanserai_core.stores._objects_replacer import RunReplacer
    from caravanserai_core.stores._objects_writer import Seal
    from caravanserai_core.stores.base import Appended, Tail

_log = logging.getLogger("caravanserai")

NOBODY: Final = Holder("", 0, "", 1, "")

_MOST_TRIES: Final = 16
# The servers tell times in whole seconds: an age is known to one second less and one more.
_GRAIN: Final = 1.0
_CLOCK_HOLDS: Final = 600.0


class Lease(NamedTuple):
    """What stands in a lease's object.

    Attributes:
        holder: who holds the run.
        free: nobody does.
        nonce: of the lease; who takes it writes a new one.
        beat: how many signs of life were sent.
        seconds: after how many without one it lapses.
        process: of the process that holds it, and no other.
        mark: what tells on the same machine whether that process is dead.
        version: of the object.
        modified: when it was written, by the server's clock.
    """

    holder: Holder
    free: bool
    nonce: str
    beat: int
    seconds: float
    process: str
    mark: str
    version: dict[str, str]
    modified: datetime

    def data(self) -> bytes:
        """Return the content of the object."""
        said: dict[str, Any] = {"caravanserai": 1, "free": self.free, "nonce": self.nonce}
        if not self.free:
            said |= {"holder": self.holder._asdict(), "beat": self.beat, "lease": self.seconds}
            said |= {"process": self.process, "mark": self.mark}
        return orjson.dumps(said) + b"\n"


def read_lease(bucket: Bucket, folder: str) -> Lease | None:
    """Read the lease of a run; None: there is none. What cannot be read is nobody's."""
    found = bucket.get(f"{folder}/{LEASE}")
    if found is None:
        return None
    holder, said = NOBODY, _object(found.data)
    given = said.get("holder")
    if said.get("free") is False and isinstance(given, dict):
        with contextlib.suppress(ValueError, TypeError, KeyError):
            host, since, by = (str(given[name]) for name in ("host", "since", "by"))
            holder = Holder(host, int(given["pid"]), since, int(given["epoch"]), by)
    beat, seconds = said.get("beat"), said.get("lease")
    return Lease(
        holder,
        holder is NOBODY,
        str(said.get("nonce", "")),
        beat if isinstance(beat, int) else 0,
        float(seconds) if isinstance(seconds, (int, float)) else 0.0,
        str(said.get("process", "")),
        str(said.get("mark", "")),
        found.version,
        found.modified,
    )


def _object(data: bytes) -> dict[str, Any]:
    try:
        said = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return said if isinstance(said, dict) else {}


class Leases:
    """The leases of a store.

    Args:
        bucket: where they are.
        seconds: after how many without a sign of life a lease of this process lapses.
    """

    def __init__(self, bucket: Bucket, seconds: float) -> None:
        self._bucket = bucket
        self.seconds = seconds
        self._beats: Beats[ObjectHold] = Beats(self._send, seconds / 3)
        self._clock: tuple[float, datetime] | None = None

    # ------------------------------------------------------------------ asking

    def holder(self, folder: str) -> Holder | None:
        """Say who works on a run; None: nobody, or nobody who lives."""
        lease = read_lease(self._bucket, folder)
        if lease is None or lease.free or self.lapsed(lease):
            return None
        return lease.holder

    def held_elsewhere(self, folder: str) -> Holder | None:
        """Say which other living process works on a run."""
        lease = read_lease(self._bucket, folder)
        if lease is None or lease.free or lease.process == _process() or self.lapsed(lease):
            return None
        return lease.holder

    def lapsed(self, lease: Lease) -> bool:
        """Say whether the owner of a lease is dead, or has sent no sign of life for too long."""
        if _alive.is_gone(lease.mark):
            return True
        if lease.process == _process():
            return False
        # Most leases are plainly alive. A clock here that is slow finds the others a little later.
        age = (datetime.now(UTC) - lease.modified).total_seconds()
        if -_GRAIN <= age <= lease.seconds / 2:
            return False
        return (self._now() - lease.modified).total_seconds() > lease.seconds + _GRAIN

    def _now(self) -> datetime:
        """Return the time by the server's clock: that of a small object written for it.

        From then on it is told by a clock that nobody sets, until the next such object.
        """
        at = time.monotonic()
        if self._clock is None or at - self._clock[0] > _CLOCK_HOLDS:
            now = datetime.now(UTC)  # who may only read the bucket has no other clock
            key = f".caravanserai-clock-{new_nonce(4)}"
            with contextlib.suppress(CaravanseraiError):
                self._bucket.write(key, b"{}\n")
                now = self._bucket.modified(key) or now
                self._bucket.delete([key])
            self._clock = (time.monotonic(), now)
        return self._clock[1] + timedelta(seconds=time.monotonic() - self._clock[0])

    # ------------------------------------------------------------------ taking

    def hold(
        self, run_id: str, run: RunReplacer, known: Tail | None, holder: Holder
    ) -> Hold | None:
        """Take a run that nobody holds; see `Store.hold`."""
        if not run.ends_with(known):
            return None
        for _ in range(_MOST_TRIES):
            lease = read_lease(self._bucket, run.folder)
            if lease is not None and not lease.free:
                if self.lapsed(lease):
                    raise Lapsed(lease.holder, lease)
                raise busy_error(run_id, lease.holder, lease.seconds)
            hold = self._write(run, lease, holder)
            if hold is not None:
                # Somebody may have written in between, and raised the epoch.
                return hold if _sure(hold, run, known) else None
        raise self._contended(run)

    def take_over(
        self,
        run_id: str,
        run: RunReplacer,
        known: Tail | None,
        holder: Holder,
        seal: Seal,
        lapsed: Lapsed | None,
    ) -> tuple[Appended, Hold]:
        """Take a run from whoever holds it; see `Store.take_over`."""
        if lapsed is None:
            appended = run.append(known, ANY_EPOCH, seal)
            return appended, self._seize(run, holder._replace(epoch=appended.tail.epoch))
        epoch = (known.epoch if known is not None else 1) + 1
        before = lapsed.lease if isinstance(lapsed.lease, Lease) else None
        hold = self._write(run, before, holder._replace(epoch=epoch))
        if hold is None:
            now = read_lease(self._bucket, run.folder)
            if now is None or now.free:
                raise busy_error(run_id, lapsed.holder)
            raise busy_error(run_id, now.holder, now.seconds)
        try:
            appended = run.append(known, ANY_EPOCH, seal)
        except BaseException:
            hold.release()
            raise
        if appended.tail.epoch != epoch:
            hold.retell(holder._replace(epoch=appended.tail.epoch))
        return appended, hold

    def _seize(self, run: RunReplacer, holder: Holder) -> Hold:
        for _ in range(_MOST_TRIES):
            hold = self._write(run, read_lease(self._bucket, run.folder), holder)
            if hold is not None:
                return hold
        raise self._contended(run)

    def _write(self, run: RunReplacer, before: Lease | None, holder: Holder) -> ObjectHold | None:
        """Write a lease in the place of another; None: it is not there any more."""
        lease = Lease(
            holder,
            False,
            new_nonce(),
            0,
            self.seconds,
            _process(),
            _alive.mark(),
            {},
            datetime.now(UTC),
        )
        version = None if before is None else before.version
        key = f"{run.folder}/{LEASE}"
        written = self._bucket.swap(key, lease.data(), lease.nonce, version)
        if written is None:
            return None
        hold = ObjectHold(self._bucket, run, lease._replace(version=written), self._beats)
        self._beats.add(hold)
        return hold

    def _contended(self, run: RunReplacer) -> StoreBusy:
        return StoreBusy(
            f"{visible(self._bucket.path(run.folder))}: the lease changed hands each time it was "
            "to be taken. Nothing was written. Try again."
        )

    def _send(self, holds: list[ObjectHold]) -> None:
        """Send signs of life; a lease that another process has by now gets no more."""
        for hold, still in zip(holds, self._bucket.map(ObjectHold.beat, holds), strict=True):
            if not still:
                self._beats.remove(hold)

    def free(self, folder: str) -> None:
        """Free the lease of a run that was deleted."""
        lease = read_lease(self._bucket, folder)
        if lease is not None and not lease.free:
            freed = _freed()
            self._bucket.swap(f"{folder}/{LEASE}", freed.data(), freed.nonce, lease.version)


class ObjectHold(Hold):
    """A lease on a run in an object store."""

    def __init__(
        self, bucket: Bucket, run: RunReplacer, lease: Lease, beats: Beats[ObjectHold]
    ) -> None:
        self._bucket = bucket
        self._run = run
        self._lease: Lease | None = lease
        self._beats = beats
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def beat(self) -> bool:
        """Send a sign of life; says whether this is still the lease that counts."""
        return self._change(lambda lease: lease._replace(beat=lease.beat + 1))

    def retell(self, holder: Holder) -> None:
        """Change what others are told."""
        self._change(lambda lease: lease._replace(holder=holder))

    def _change(self, change: Callable[[Lease], Lease]) -> bool:
        with self._lock:
            lease = self._lease
            if lease is None:
                return False
            wanted = change(lease)
            written = self._put(wanted, lease)
            self._lease = None if written is None else wanted._replace(version=written)
            return written is not None

    def _put(self, wanted: Lease, lease: Lease) -> dict[str, str] | None:
        """Write the lease again, if it is still this one."""
        key = f"{self._run.folder}/{LEASE}"
        written = self._bucket.swap(key, wanted.data(), wanted.nonce, lease.version)
        if written is not None:
            return written
        # An earlier sign of life may have landed after all, late: then it is still this lease.
        now = read_lease(self._bucket, self._run.folder)
        if now is None or now.nonce != lease.nonce:
            return None
        return self._bucket.swap(key, wanted.data(), wanted.nonce, now.version)

    def release(self) -> None:
        """Give the run back. What cannot be told to the server lapses on its own."""
        if self._pid != os.getpid():
            return  # a forked child's copy of what its parent holds
        self._beats.remove(self)
        with self._lock:
            lease, self._lease = self._lease, None
        if lease is None:
            return
        try:
            self._put(_freed(), lease)
        except CaravanseraiError as error:
            _log.warning("a lease was not given back, and lapses on its own: %s", error)
        end = self._run.memory.end(self._run.folder)
        if end is not None and end[1]:
            self._run.leave_hint(*end)


def _sure(hold: Hold, run: RunReplacer, known: Tail | None) -> bool:
    """Say whether the journal still ends with `known`; if not, the lease is given back."""
    ends = False
    try:
        ends = run.ends_with(known)
    finally:
        if not ends:
            hold.release()
    return ends


def _freed() -> Lease:
    return Lease(NOBODY, True, new_nonce(), 0, 0.0, "", "", {}, datetime.now(UTC))


def _process() -> str:
    """Return what tells this process from all others, also from its parent and children."""
    global _this
    if _this[0] != os.getpid():
        _this = (os.getpid(), new_nonce())
    return _this[1]


_this = (0, "")
