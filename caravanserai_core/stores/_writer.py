"""Writing the folder of one run: appends, new segments, torn tails. Always under the lock."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from caravanserai_core.errors import StaleWriter, StoreFailed
from caravanserai_core.quoting import visible
from caravanserai_core.records import SUFFIX_MAX, Record
from caravanserai_core.stores._folder import (
    close,
    failed,
    sync_data,
    sync_names,
    typed,
    write_all,
)
from caravanserai_core.stores._notes import write_all_notes, write_notes
from caravanserai_core.stores._seam import APPEND, READ
from caravanserai_core.stores._segment import Place
from caravanserai_core.stores._segments import Lost, Mark, segment_path, tail_of
from caravanserai_core.stores._settler import RunSettler
from caravanserai_core.stores.base import SELF, Appended, Sealed, Shown, Tail, Within

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_log = logging.getLogger("caravanserai")

_NOT_KEPT = "the disk did not keep it"

# A line of the lock file: a segment in which a sync failed, and where it ends.
_MARK = re.compile(rb"^(\d{8}) (\d+)$", re.MULTILINE)


class Found(NamedTuple):
    """The end of a journal on disk, as a writer under the lock sees it.

    Attributes:
        tail: the end, or None if nothing counts.
        segment: the segment it is in.
        size: where it ends there, in bytes.
        torn: bytes of a torn append behind it.
        newline: whether the last line has its line end.
        unsynced: bytes before `size` that this process wrote and did not sync.
    """

    tail: Tail | None
    segment: int
    size: int
    torn: int
    newline: bool
    unsynced: int = 0


class RunWriter(RunSettler):
    """The folder of one run, for the holder of its lock.

    Args:
        files: the system calls.
        path: the folder.
        lock_size: bytes of the lock file, which marks failed syncs; looked at when it was locked.
    """

    def append(
        self,
        lock: int,
        known: Tail | None,
        epoch: int,
        seal: Callable[[Tail | None, list[Record] | None], Sealed],
        *,
        sync: bool,
    ) -> Appended:
        """Add records; see `Store.append`. `lock` is the open, locked lock file."""
        fd = -1
        try:
            with typed("the journal cannot be read", self.path):
                fd, found, news = self._find(lock, known)
            tail = found.tail
            self._refuse_stale(tail, epoch)
            sealed = seal(tail, news)
            if found.torn:
                self._set_aside(fd, found)
            if tail is None or tail.rolled:
                if fd >= 0:
                    close(self.files, fd)
                    fd = -1
                segment = found.segment + (tail is not None)
                appended, fd = self._begin_segment(segment, sealed)
            else:
                # What closes a segment is synced: a new one never leaves unsynced bytes behind.
                appended = self._extend(lock, fd, found, sealed, sync=sync or sealed.rolled)
            if sealed.notes:
                write_all_notes(self.files, self.path, sealed.notes)
            if sealed.shown is not None:
                write_notes(self.files, self.path, sealed.shown)
            return appended
        finally:
            if fd >= 0:
                close(self.files, fd)

    def ends_with(self, lock: int, known: Tail | None) -> bool:
        """Say whether `known` is still the end. `lock` is the open, locked lock file."""
        with typed("the journal cannot be read", self.path):
            fd, _, news = self._find(lock, known)
        if fd >= 0:
            close(self.files, fd)
        return news is not None and not news

    def put_notes(self, lock: int, known: Tail, notes: Mapping[str, str], latest: Shown) -> None:
        """Write notes that waited; see `Store.put_notes`. `lock` is the open, locked lock file."""
        fd, _, news = self._find(lock, known)
        if fd >= 0:
            close(self.files, fd)
        if news is None:
            return
        if write_all_notes(self.files, self.path, notes) and not news:
            write_notes(self.files, self.path, latest)

    def _refuse_stale(self, tail: Tail | None, epoch: int) -> None:
        if tail is not None and tail.epoch > epoch:
            raise StaleWriter(
                f"{visible(self.path)}: a writer with epoch {tail.epoch} took this run over; "
                f"this one has epoch {epoch} and may not write any more. Nothing was written."
            )

    def _find(self, lock: int, known: Tail | None) -> tuple[int, Found, list[Record] | None]:
        """Find the end of the journal, and what came after `known`.

        Returns:
            The segment it is in, open for appending, or -1 if there is none; the end; the news.
        """
        self._settle(lock)
        broken = self._broken_end(lock)
        fd = -1
        try:
            news: list[Record] | None = []
            if known is not None and known.token.segment > broken.segment:
                fd = self._open_known(known)
            if known is not None and fd >= 0:
                at: Mark = known.token
                found = Found(known, at.segment, at.size, 0, newline=True, unsynced=at.unsynced)
            else:
                try:
                    fd, found = self._locate(broken)
                except Lost as lost:
                    raise self.lost_error(lost.newest) from None
                news = self._news(known, found)
            tail = found.tail
            if tail is not None and found.segment <= broken.segment:
                # A sync failed in this segment: whoever comes next leaves it behind.
                found = found._replace(tail=tail._replace(rolled=True))
            if found.tail is None or found.tail.rolled:
                self.refuse_gap(found.segment if found.tail is not None else 0)
        except BaseException:
            if fd >= 0:
                close(self.files, fd)
            raise
        return fd, found, news

    def _open_known(self, known: Tail | None) -> int:
        """Open the segment that ends with `known`, or return -1 if it no longer does."""
        if known is None:
            return -1
        mark: Mark = known.token
        if self.exists(mark.segment + 1):
            return -1
        try:
            fd = self.files.open(segment_path(self.path, mark.segment), APPEND)
        except FileNotFoundError:
            return -1
        except OSError as error:
            raise failed("the journal cannot be opened", self.path, error) from error
        same = False
        try:
            start = max(0, mark.size - SUFFIX_MAX - 2)
            end = self.files.read(fd, SUFFIX_MAX + 8, start)
            # The sum chains back to a random nonce: no other journal ends with it.
            same = len(end) == mark.size - start and known.sum.encode() in end
            same = same and end.endswith(b"\n")  # a hand edit may have lost the last line end
        finally:
            if not same:
                close(self.files, fd)
        return fd if same else -1

    def _extend(self, lock: int, fd: int, found: Found, sealed: Sealed, *, sync: bool) -> Appended:
        blob, places = lay_out(sealed, found.segment, found.size + (not found.newline))
        if not found.newline:
            blob = b"\n" + blob
        written, keep = False, found.size
        try:
            try:
                write_all(self.files, fd, blob)
            except OSError as error:
                raise failed("the waypoint was not written", self.path, error) from error
            if sync:
                try:
                    self._sync(lock, fd, Mark(found.segment, found.size - found.unsynced))
                except StoreFailed:
                    keep -= found.unsynced  # may be gone with it, though its writes succeeded
                    raise
            written = True
        finally:
            if not written:  # also on ^C: an append that is not acknowledged is not there
                with contextlib.suppress(OSError):
                    self.files.truncate(fd, keep)
        unsynced = 0 if sync else found.unsynced + len(blob)
        mark = Mark(found.segment, found.size + len(blob), unsynced)
        return Appended(tail_after(sealed, mark), places, durable=sync)

    def sync(self, lock: int, tail: Tail) -> None:
        """Make what this process wrote up to `tail` durable; see `Store.sync`.

        Raises:
            FileNotFoundError: the segment is gone.
        """
        self._settle(lock)
        mark: Mark = tail.token
        if mark.segment <= self._broken_end(lock).segment:
            # Whoever's sync that was: a second one would succeed and prove nothing.
            raise failed(_NOT_KEPT, self.path, OSError(errno.EIO, os.strerror(errno.EIO)))
        if self.exists(mark.segment + 1):
            return  # synced by who closed the segment
        fd = self._open_known(tail)
        last = fd >= 0
        if not last:  # somebody else's append is behind it, which may be durable
            fd = self.open_segment(mark.segment, APPEND)
        try:
            keep = mark.size - mark.unsynced if last else self.files.fstat(fd).st_size
            try:
                self._sync(lock, fd, Mark(mark.segment, keep))
            except StoreFailed:
                with contextlib.suppress(OSError):
                    self.files.truncate(fd, keep)
                raise
        finally:
            close(self.files, fd)

    def _sync(self, lock: int, fd: int, keep: Mark) -> None:
        """Sync a segment; `keep` is where it ends if that fails.

        After a failed sync its data may be gone although a second one would succeed. The segment
        ends at what was durable, and the lock file tells every process where that is and that
        the next append begins a new one. It is opened for each append, so looking costs nothing.
        """
        try:
            sync_data(self.files, fd, self.path)
        except OSError as error:
            try:
                self.files.write(lock, b"%08d %d\n" % keep[:2])
            except OSError:
                _log.error("%s: a sync failed and could not be marked", visible(self.path))
            raise failed(_NOT_KEPT, self.path, error) from error

    def _broken_end(self, lock: int) -> Mark:
        """Return where the last segment ends in which a sync failed; segment 0: in none."""
        if not self.lock_size:
            return Mark(0, 0)
        found = _MARK.findall(self.files.read(lock, self.lock_size, 0))
        return max((Mark(int(segment), int(end)) for segment, end in found), default=Mark(0, 0))

    def _begin_segment(self, segment: int, sealed: Sealed) -> tuple[Appended, int]:
        name = segment_path(self.path, segment)
        blob, places = lay_out(sealed, segment, 0)
        done = False
        fd = -1
        try:
            try:
                fd = self.files.open(name, APPEND | os.O_CREAT, 0o600)
                if self.files.fstat(fd).st_size:
                    # Left by a crash in this very place: its append was never acknowledged.
                    self._keep_damaged(segment, fd, 0)
                    self.files.truncate(fd, 0)
                write_all(self.files, fd, blob)
                sync_data(self.files, fd, self.path)
                sync_names(self.files, self.path)
            except OSError as error:
                raise failed("the journal was not written", name, error) from error
            done = True
        finally:
            if not done and fd >= 0:
                with contextlib.suppress(OSError):
                    self.files.truncate(fd, 0)
                close(self.files, fd)
        return Appended(tail_after(sealed, Mark(segment, len(blob))), places), fd

    def _locate(self, broken: Mark) -> tuple[int, Found]:
        """Find the end of the journal; returns its last segment, open for appending, or -1.

        What stands behind the end of a segment in which a sync failed was never acknowledged.
        """
        last = self.last_segment()
        if last and self.exists(last + 1):
            self._drop_leftovers(last)
        if last == 0:
            self.refuse_lost(0)
            return -1, Found(None, 1, 0, 0, newline=True)
        fd = self.open_segment(last, APPEND)
        try:
            size = self.files.fstat(fd).st_size
            end = self.end(fd, last, min(size, broken.size) if last == broken.segment else size)
            if end.records:
                record = end.records[-1]
                self.refuse_lost(record.waypoint)
                tail = tail_of(record, Mark(last, end.size), self.epoch(fd))
                return fd, Found(tail, last, end.size, size - end.size, end.newline)
        except BaseException:
            close(self.files, fd)
            raise
        if last == 1:
            # Nothing in it was acknowledged, unless notes beside it say otherwise.
            try:
                self.refuse_lost(0)
            except BaseException:
                close(self.files, fd)
                raise
            return fd, Found(None, 1, 0, size, newline=True)
        close(self.files, fd)
        fd = self.open_segment(last - 1, APPEND)
        try:
            end = self.end(fd, last - 1, self.files.fstat(fd).st_size)
            if not end.records:
                raise self.damaged(last - 1, 0, "the segment holds no record")
            self.refuse_lost(end.records[-1].waypoint)
            tail = tail_of(end.records[-1], Mark(last - 1, end.size), self.epoch(fd))
            return fd, Found(tail._replace(rolled=True), last - 1, end.size, 0, newline=True)
        except BaseException:
            close(self.files, fd)
            raise

    # ------------------------------------------------------------------ torn tails, news

    def _set_aside(self, fd: int, found: Found) -> None:
        """Keep a copy of a torn tail, then cut it off. Only the holder of the lock does this."""
        try:
            self._keep_damaged(found.segment, fd, found.size)
            self.files.truncate(fd, found.size)
        except OSError as error:
            raise failed("a torn tail cannot be set aside", self.path, error) from error

    def _news(self, known: Tail | None, found: Found) -> list[Record] | None:
        """Read what came after `known`; None where `known` is not part of this journal."""
        tail = found.tail
        if known is None:
            return [] if tail is None else None
        if tail is None:
            return None
        mark: Mark = known.token
        try:
            fd = self.open_segment(mark.segment, READ)
        except FileNotFoundError:
            return None
        try:
            at = max(0, mark.size - SUFFIX_MAX - 2)
            around = self.files.read(fd, mark.size - at + 1, at)
            if known.sum.encode() not in around:
                return None
        finally:
            close(self.files, fd)
        # Its writer may have died before the line end, which the next one then wrote.
        begin = mark.size + (around[mark.size - at - 1 :] == b"}\n")
        news: list[Record] = []
        for item in self.scan(bodies=False, start=Place(mark.segment, begin)):
            if isinstance(item, Record):
                if item.seq <= tail.seq:
                    news.append(item)
            elif len(news) < tail.seq - known.seq:
                segment = self.segment_of(item.path)
                raise self.damaged(segment, item.offset, item.why)
        return news


def lay_out(sealed: Sealed, segment: int, offset: int) -> tuple[bytes, list[Place]]:
    """Lay the lines of an append out from `offset` and add each one's `loc`."""
    parts: list[bytes] = []
    places: list[Place] = []
    for text, loc in sealed.lines:
        place = Place(segment, offset)
        near = place if loc is SELF else loc
        if type(near) is Within:
            near = places[near.line]
        if near is None or near.segment != segment:
            line = text + b"}\n"
        else:
            line = b'%b,"loc":%d}\n' % (text, near.offset)
        parts.append(line)
        places.append(place)
        offset += len(line)
    return b"".join(parts), places


def tail_after(sealed: Sealed, mark: Mark) -> Tail:
    """Return the end of a journal behind an append."""
    return Tail(sealed.seq, sealed.sum, sealed.epoch, sealed.rolled, mark)
