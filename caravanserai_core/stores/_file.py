"""The embedded default: a folder per run, JSON Lines for programs, Markdown for people.

    .caravanserai/                    0700; a .gitignore with "*"
    └── my-run/
        ├── journal-1.jsonl           the records; segments are numbered, most runs have one
        ├── waypoint-1.md …           notes
        ├── latest.md                 the newest note, and what began since
        └── lock                      held during an append; not empty: see `_begin_segment`

An append is one write and one data sync under the lock. See docs/architecture.md for the order
of calls and what a crash between any two of them leaves behind.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from caravanserai_core.errors import JournalDamaged, StaleWriter, StoreFailed, StoreRefused
from caravanserai_core.names import folder_name
from caravanserai_core.quoting import visible
from caravanserai_core.records import SUFFIX_MAX, Malformed, Record, lengths, now
from caravanserai_core.stores import _folder, _legacy
from caravanserai_core.stores._seam import Files
from caravanserai_core.stores._segment import (
    Damaged,
    End,
    Place,
    find_end,
    find_waypoint,
    read_line,
    scan,
)
from caravanserai_core.stores.base import (
    SELF,
    Appended,
    Bad,
    Listed,
    Recent,
    Sealed,
    Shown,
    Store,
    Tail,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_log = logging.getLogger("caravanserai")

SEGMENT_SIZE = 1 << 20
"""Bytes; a segment is closed at a full record once it is larger, and 4 × the state."""

_APPEND = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


_T = TypeVar("_T")


class _Lost(Exception):
    """A note lies beside the journal whose waypoint is not in it."""

    def __init__(self, newest: int) -> None:
        super().__init__(newest)
        self.newest = newest


class _Mark(NamedTuple):
    """The token of a tail: where the file store found the end of a journal."""

    segment: int
    size: int


class _Found(NamedTuple):
    """The end of a journal on disk, as a writer under the lock sees it."""

    tail: Tail | None
    segment: int
    size: int
    torn: int
    newline: bool


class FileStore(Store):
    """Runs in a folder of the local disk.

    Args:
        root: the store's folder; made on first use.
        timeout: seconds to wait for another process that is writing the same run.
        files: the system calls; tests replace them.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] = ".caravanserai",
        *,
        timeout: float = 20.0,
        files: Files | None = None,
    ) -> None:
        self.root = os.path.abspath(os.fspath(root))
        self.timeout = timeout
        self._files = files or Files()

    def __repr__(self) -> str:
        return f"FileStore({self.root!r})"

    @property
    def url(self) -> str:
        return self.root

    @property
    def key(self) -> object:
        return ("file", os.path.realpath(self.root))

    def where(self, run_id: str) -> str:
        return self.folder(run_id)

    def folder(self, run_id: str) -> str:
        """Return the absolute path of a run's folder, which need not exist."""
        return f"{self.root}/{folder_name(run_id)}"

    # ------------------------------------------------------------------ append

    def append(
        self,
        run_id: str,
        known: Tail | None,
        epoch: int,
        seal: Callable[[Tail | None, list[Record] | None], Sealed],
    ) -> Appended:
        path = self.folder(run_id)
        if known is None and not _folder.check_run_folder(self._files, path):
            _folder.make_folders(self._files, self.root, path)
        try:
            with _folder.locked(
                self._files, self.root, path, self.timeout, create=known is None
            ) as lock:
                return self._append_locked(path, lock, known, epoch, seal)
        except FileNotFoundError:
            # The run was deleted since `known`: the writer has to decide, with nothing there.
            sealed = seal(None, None)
            raise AssertionError(f"seal went on after a deletion: {sealed!r}") from None

    def _append_locked(
        self,
        path: str,
        lock: int,
        known: Tail | None,
        epoch: int,
        seal: Callable[[Tail | None, list[Record] | None], Sealed],
    ) -> Appended:
        broken = self._broken_segment(lock)
        fd = -1 if broken else self._open_known(path, known)
        try:
            if known is not None and fd >= 0:
                found = _Found(known, known.token.segment, known.token.size, 0, newline=True)
                news: list[Record] | None = []
            else:
                try:
                    fd, found = self._locate(path)
                except _Lost as lost:
                    raise self._lost(path, lost.newest) from None
                news = self._news(path, known, found.tail)
            tail = found.tail
            if tail is not None and tail.epoch > epoch:
                raise StaleWriter(
                    f"{visible(path)}: a writer with epoch {tail.epoch} took this run over; this "
                    f"one has epoch {epoch} and may not write any more. Nothing was written."
                )
            if tail is not None and found.segment <= broken:
                # A sync failed in this segment: whoever comes next leaves it behind.
                tail = tail._replace(rolled=True)
            sealed = seal(tail, news)
            if found.torn:
                self._set_aside(path, fd, found)
            if tail is None or tail.rolled:
                if fd >= 0:
                    self._files.close(fd)
                    fd = -1
                segment = found.segment + (tail is not None)
                appended, fd = self._begin_segment(path, segment, sealed)
            else:
                appended = self._extend(path, lock, fd, found, sealed)
            if sealed.shown is not None:
                self._show(path, sealed.shown)
            return appended
        finally:
            if fd >= 0:
                self._files.close(fd)

    def _open_known(self, path: str, known: Tail | None) -> int:
        """Open the segment that ends with `known`, or return -1 if it no longer does."""
        if known is None:
            return -1
        mark: _Mark = known.token
        try:
            fd = self._files.open(_segment(path, mark.segment), _APPEND)
        except FileNotFoundError:
            return -1
        except OSError as error:
            raise _folder.failed("the journal cannot be opened", path, error) from error
        start = max(0, mark.size - SUFFIX_MAX - 2)
        end = self._files.read(fd, SUFFIX_MAX + 8, start)
        # The sum chains back to a random nonce: no other journal ends with it.
        if len(end) == mark.size - start and known.sum.encode() in end:
            return fd
        self._files.close(fd)
        return -1

    def _extend(self, path: str, lock: int, fd: int, found: _Found, sealed: Sealed) -> Appended:
        blob, places = _layout(sealed, found.segment, found.size + (not found.newline))
        if not found.newline:
            blob = b"\n" + blob
        synced = False
        try:
            try:
                _folder.write_all(self._files, fd, blob)
            except OSError as error:
                raise _folder.failed("the waypoint was not written", path, error) from error
            try:
                self._files.sync_data(fd)
            except OSError as error:
                if error.errno != errno.EINVAL:  # the file system has no sync: nothing to wait for
                    self._leave_segment(path, lock, found.segment)
                    raise _folder.failed("the disk did not keep it", path, error) from error
                _warn_no_sync(path)
            synced = True
        finally:
            if not synced:  # also on ^C: an append that is not acknowledged is not there
                with contextlib.suppress(OSError):
                    self._files.truncate(fd, found.size)
        mark = _Mark(found.segment, found.size + len(blob))
        return Appended(_tail(sealed, mark), places)

    def _leave_segment(self, path: str, lock: int, segment: int) -> None:
        """After a failed sync: its data may be gone although a second sync would succeed.

        The segment ends at what was acknowledged, and the lock file tells every process that the
        next append begins a new one. It is opened for each append, so looking costs nothing.
        """
        try:
            self._files.write(lock, b"%08d\n" % segment)
        except OSError:
            _log.error("%s: a sync failed and could not be marked", visible(path))

    def _broken_segment(self, lock: int) -> int:
        """Return the last segment in which a sync failed, or 0."""
        size = self._files.fstat(lock).st_size
        if not size:
            return 0
        marks = self._files.read(lock, size, 0).split()
        return max((int(mark) for mark in marks if mark.isdigit()), default=0)

    def _begin_segment(self, path: str, segment: int, sealed: Sealed) -> tuple[Appended, int]:
        name = _segment(path, segment)
        blob, places = _layout(sealed, segment, 0)
        done = False
        fd = -1
        try:
            try:
                fd = self._files.open(name, _APPEND | os.O_CREAT, 0o600)
                if self._files.fstat(fd).st_size:
                    # Left by a crash in this very place: its append was never acknowledged.
                    self._keep_damaged(path, segment, fd, 0)
                    self._files.truncate(fd, 0)
                _folder.write_all(self._files, fd, blob)
                try:
                    self._files.sync_data(fd)
                except OSError as error:
                    if error.errno != errno.EINVAL:
                        raise
                    _warn_no_sync(path)
                self._files.sync_dir(path)
            except OSError as error:
                raise _folder.failed("the journal was not written", name, error) from error
            done = True
        finally:
            if not done and fd >= 0:
                with contextlib.suppress(OSError):
                    self._files.truncate(fd, 0)
                self._files.close(fd)
        return Appended(_tail(sealed, _Mark(segment, len(blob))), places), fd

    def _locate(self, path: str) -> tuple[int, _Found]:
        """Find the end of the journal; returns its last segment, open for appending, or -1."""
        last = self._last_segment(path)
        if last == 0:
            self._refuse_lost(path, 0)
            return -1, _Found(None, 1, 0, 0, newline=True)
        fd = self._open_segment(path, last, _APPEND)
        try:
            size = self._files.fstat(fd).st_size
            end = self._end(fd, path, last, size)
            if end.records:
                record = end.records[-1]
                self._refuse_lost(path, record.waypoint)
                tail = _tail_of(record, _Mark(last, end.size), self._epoch(fd))
                return fd, _Found(tail, last, end.size, size - end.size, end.newline)
        except BaseException:
            self._files.close(fd)
            raise
        if last == 1:
            # Nothing in it was acknowledged, unless notes beside it say otherwise.
            try:
                self._refuse_lost(path, 0)
            except BaseException:
                self._files.close(fd)
                raise
            return fd, _Found(None, 1, 0, size, newline=True)
        self._files.close(fd)
        fd = self._open_segment(path, last - 1, _APPEND)
        try:
            end = self._end(fd, path, last - 1, self._files.fstat(fd).st_size)
            if not end.records:
                raise self._damaged(path, last - 1, 0, "the segment holds no record")
            tail = _tail_of(end.records[-1], _Mark(last - 1, end.size), self._epoch(fd))
            return fd, _Found(tail._replace(rolled=True), last - 1, end.size, 0, newline=True)
        except BaseException:
            self._files.close(fd)
            raise

    def _news(self, path: str, known: Tail | None, tail: Tail | None) -> list[Record] | None:
        """Read what came after `known`; None where `known` is not part of this journal."""
        if known is None:
            return [] if tail is None else None
        if tail is None:
            return None
        news: list[Record] = []
        mark: _Mark = known.token
        start = Place(mark.segment, max(0, mark.size))
        try:
            fd = self._open_segment(path, mark.segment, _READ)
        except FileNotFoundError:
            return None
        try:
            at = max(0, mark.size - SUFFIX_MAX - 2)
            if known.sum.encode() not in self._files.read(fd, mark.size - at, at):
                return None
        finally:
            self._files.close(fd)
        for record in self._scan(path, bodies=False, start=start):
            if isinstance(record, Record) and record.seq <= tail.seq:
                news.append(record)
        return news

    def _set_aside(self, path: str, fd: int, found: _Found) -> None:
        """Keep a copy of a torn tail, then cut it off. Only the holder of the lock does this."""
        try:
            self._keep_damaged(path, found.segment, fd, found.size)
            self._files.truncate(fd, found.size)
        except OSError as error:
            raise _folder.failed("a torn tail cannot be set aside", path, error) from error

    def _keep_damaged(self, path: str, segment: int, fd: int, start: int) -> None:
        stamp = now()[:19].replace(":", "").replace("-", "")
        name = f"{path}/journal-{segment}.damaged-{stamp}-{secrets.token_hex(4)}"
        size = self._files.fstat(fd).st_size
        copy = self._files.open(name, _NEW, 0o600)
        try:
            while start < size:
                piece = self._files.read(fd, min(1 << 20, size - start), start)
                _folder.write_all(self._files, copy, piece)
                start += len(piece)
        finally:
            self._files.close(copy)

    # ------------------------------------------------------------------ read

    def wants_roll(self, tail: Tail, size: int) -> bool:
        mark: _Mark = tail.token
        return mark.size > max(SEGMENT_SIZE, 4 * size)

    def recent(self, run_id: str) -> Recent | None:
        path = self.folder(run_id)
        if not _folder.check_run_folder(self._files, path):
            return None
        return self._look(path, lambda: self._recent(path))

    def _look(self, path: str, look: Callable[[], _T]) -> _T | None:
        """Read without the lock: look again where a writer or a deletion came in between."""
        newest = -1
        for _ in range(64):
            try:
                return look()
            except FileNotFoundError:
                continue
            except _Lost as lost:
                # A writer may have added this very waypoint since; if not, it is really lost.
                if lost.newest == newest:
                    raise self._lost(path, newest) from None
                newest = lost.newest
        return None

    def _recent(self, path: str) -> Recent | None:
        last = self._last_segment(path)
        while last > 0:
            fd = self._open_segment(path, last, _READ)
            try:
                size = self._files.fstat(fd).st_size
                end = self._end(fd, path, last, size)
                if end.records:
                    return self._recent_in(fd, path, last, end)
            finally:
                self._files.close(fd)
            last -= 1  # a crash, or a writer at work, between creating a segment and filling it
        self._refuse_lost(path, 0)
        return None

    def _recent_in(self, fd: int, path: str, segment: int, end: End) -> Recent:
        record = end.records[-1]
        self._refuse_lost(path, record.waypoint)
        opening = self._opening(fd, path, segment)
        tail = _tail_of(record, _Mark(segment, end.size), opening.head.get("epoch", 1))
        chain: list[Record] = []
        since: list[Record] = []
        if record.kind == "waypoint":
            chain = self._chain_to(fd, path, record)
        elif record.loc is not None:
            records = self._whole(fd, path, Place(segment, record.loc), end.size)
            if records and records[0].kind == "waypoint" and records[0].lane == record.lane:
                chain = self._chain_to(fd, path, records[0])
                since = records[1:]
        return Recent(tail, opening, chain, since)

    def _chain_to(self, fd: int, path: str, record: Record) -> list[Record]:
        """Read what a waypoint builds on: one full record, or all between it and the waypoint."""
        if record.full:
            return [record]
        if record.loc is None:
            return self._chain_by_scan(fd, path, record)
        start = Place(record.place.segment, record.loc)
        first = self._record_at(fd, start)
        if first is None or first.seq != record.head.get("full"):
            return self._chain_by_scan(fd, path, record)
        if first.waypoint == record.head.get("base"):
            return [first, record]
        return [*self._whole(fd, path, start, record.place.offset), record]

    def _chain_by_scan(self, fd: int, path: str, record: Record) -> list[Record]:
        """Find the full record without the hint, which a hand edit may have shifted."""
        found: list[Record] = []
        read = self._reader(fd)
        for item in scan(
            read, record.place.segment, path, 0, record.place.offset, bodies=True
        ):
            if isinstance(item, Record) and item.seq >= record.head.get("full", 0):
                found.append(item)
        return [*found, record]

    def _record_at(self, fd: int, place: Place) -> Record | None:
        start = self._files.read(fd, 64, place.offset)
        sizes = lengths(start.removeprefix(b"\xef\xbb\xbf") if place.offset == 0 else start)
        if sizes is None:
            return None
        size = sum(sizes) + SUFFIX_MAX + 8
        line = self._files.read(fd, size, place.offset).partition(b"\n")[0]
        try:
            return read_line(line, place)
        except Malformed:
            return None

    def _whole(self, fd: int, path: str, start: Place, end: int) -> list[Record]:
        """Read a stretch in which every line must be whole."""
        records: list[Record] = []
        for item in scan(self._reader(fd), start.segment, path, start.offset, end, bodies=True):
            if isinstance(item, Bad):
                raise self._damaged(path, start.segment, item.offset, item.why)
            records.append(item)
        return records

    def chain(self, run_id: str, waypoint: int) -> list[Record]:
        path = self.folder(run_id)
        if not _folder.check_run_folder(self._files, path):
            return []
        for segment in range(self._last_segment(path), 0, -1):
            try:
                fd = self._open_segment(path, segment, _READ)
            except FileNotFoundError:
                continue
            try:
                size = self._files.fstat(fd).st_size
                offset = find_waypoint(self._reader(fd), size, waypoint)
                if offset is None:
                    continue
                record = self._record_at(fd, Place(segment, offset))
                if record is None:
                    raise self._damaged(path, segment, offset, "the waypoint is not whole")
                return self._chain_to(fd, path, record)
            finally:
                self._files.close(fd)
        return []

    def scan(self, run_id: str, *, bodies: bool, start: Any = None) -> Iterator[Record | Bad]:
        path = self.folder(run_id)
        if _folder.check_run_folder(self._files, path):
            yield from self._scan(path, bodies=bodies, start=start)

    def _scan(self, path: str, *, bodies: bool, start: Place | None) -> Iterator[Record | Bad]:
        segment, offset = start or Place(1, 0)
        while True:
            try:
                fd = self._open_segment(path, segment, _READ)
            except FileNotFoundError:
                return
            try:
                size = self._files.fstat(fd).st_size
                name = _segment(path, segment)
                yield from scan(self._reader(fd), segment, name, offset, size, bodies=bodies)
            finally:
                self._files.close(fd)
            segment, offset = segment + 1, 0

    def listing(self) -> Iterator[Listed]:
        try:
            names = self._files.listdir(self.root)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise _folder.failed("the store cannot be read", self.root, error) from error
        for name in names:
            path = f"{self.root}/{name}"
            try:
                if name.startswith(".") or not _folder.check_run_folder(self._files, path):
                    continue
                listed = self._look(path, lambda path=path, name=name: self._listed(path, name))
            except (JournalDamaged, StoreFailed) as error:
                listed = Listed(name, None, None, str(error))
            except (StoreRefused, FileNotFoundError):
                continue  # a link, another user's, or deleted just now: not a run of this store
            if listed is not None:
                yield listed

    def _listed(self, path: str, name: str) -> Listed | None:
        segment = self._last_segment(path)
        if segment == 0:
            if _legacy.read(path) is not None:
                return Listed(name, None, None, None, legacy=True)
            self._refuse_lost(path, 0)
            return None
        while segment:
            fd = self._open_segment(path, segment, _READ)
            try:
                size = self._files.fstat(fd).st_size
                last = self._last_head(fd, path, segment, size)
                if last is not None:
                    self._refuse_lost(path, last.waypoint)
                    return Listed(name, self._opening(fd, path, segment), last, None)
            finally:
                self._files.close(fd)
            segment -= 1
        return None

    def _last_head(self, fd: int, path: str, segment: int, size: int) -> Record | None:
        """Return the last record without reading its body, where its own `loc` leads to it."""
        window = min(size, 4096)
        end = self._files.read(fd, window, size - window)
        line = end.rstrip(b"\r\n").rpartition(b"\n")
        if not line[1] and size > window and end.endswith(b"\n"):
            _, found, loc = line[2].rpartition(b'"loc":')
            if found and loc.rstrip(b"}").isdigit():
                last: Record | Bad | None = None
                start = int(loc.rstrip(b"}"))
                for last in scan(self._reader(fd), segment, path, start, size, bodies=False):
                    pass
                if isinstance(last, Record) and sum(last.app) - 1 == last.seq:
                    return last
        records = self._end(fd, path, segment, size).records
        return records[-1] if records else None

    def _opening(self, fd: int, path: str, segment: int) -> Record:
        """Return the `open` record that a segment begins with."""
        for item in scan(self._reader(fd), segment, path, 0, self._files.fstat(fd).st_size, bodies=True):
            if isinstance(item, Record) and item.kind == "open":
                return item
            why = item.why if isinstance(item, Bad) else "it does not begin with an open record"
            raise self._damaged(path, segment, 0, why)
        raise self._damaged(path, segment, 0, "the segment is empty")

    def _epoch(self, fd: int) -> int:
        start = self._record_at(fd, Place(0, 0))
        return start.head.get("epoch", 1) if start is not None else 1

    def _end(self, fd: int, path: str, segment: int, size: int) -> End:
        try:
            return find_end(self._reader(fd), segment, _segment(path, segment), size)
        except Damaged as error:
            raise self._damaged(path, segment, error.bad.offset, error.bad.why) from None

    def _reader(self, fd: int) -> Callable[[int, int], bytes]:
        read = self._files.read
        return lambda offset, size: read(fd, size, offset)

    def _open_segment(self, path: str, segment: int, flags: int) -> int:
        name = _segment(path, segment)
        try:
            return self._files.open(name, flags)
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise StoreRefused(
                    f"{visible(name)} is a link; a journal is never followed through one."
                ) from None
            raise _folder.failed("the journal cannot be opened", name, error) from error

    def _last_segment(self, path: str) -> int:
        """Return the highest segment number; they are dense, so no folder is listed."""
        segment = 0
        while True:
            try:
                self._files.lstat(_segment(path, segment + 1))
            except (FileNotFoundError, NotADirectoryError):
                return segment
            except OSError as error:
                raise _folder.failed("the journal cannot be read", path, error) from error
            segment += 1

    def _refuse_lost(self, path: str, newest: int) -> None:
        """Refuse a journal that ends before the newest note beside it.

        A note is written after its record is durable, so the record was there.

        Raises:
            _Lost: records that were acknowledged are gone, or a writer added them just now.
        """
        try:
            self._files.lstat(f"{path}/waypoint-{newest + 1}.md")
        except (FileNotFoundError, NotADirectoryError):
            return
        if newest or _legacy.read(path) is None:
            raise _Lost(newest)

    def _lost(self, path: str, newest: int) -> JournalDamaged:
        segment = max(1, self._last_segment(path))
        what = f"ends at waypoint {newest}" if newest else "is missing or empty"
        why = f"it {what}, but waypoint-{newest + 1}.md lies beside it"
        return self._damaged(path, segment, None, why, newest)

    def _damaged(
        self, path: str, segment: int, offset: int | None, why: str, last: int | None = None
    ) -> JournalDamaged:
        if last is None:
            last = 0
            for item in self._scan(path, bodies=False, start=None):
                if isinstance(item, Bad) or (
                    item.place.segment == segment
                    and offset is not None
                    and item.place.offset >= offset
                ):
                    break
                last = item.waypoint if item.kind == "waypoint" else last
        name = _segment(path, segment)
        at = "" if offset is None else f" at byte {offset}"
        whole = (
            f"Every waypoint up to {last} is whole: load(run_id, at={last}) gives it."
            if last
            else "No whole waypoint comes before it."
        )
        return JournalDamaged(
            f"the journal {visible(name)} is damaged{at}: {why}. {whole} Nothing was changed and "
            "nothing is written until `caravanserai verify --repair`.",
            path=name,
            offset=offset,
            last_waypoint=last or None,
        )

    # ------------------------------------------------------------------ notes, deletion

    def put_note(self, run_id: str, shown: Shown) -> None:
        path = self.folder(run_id)
        if _folder.check_run_folder(self._files, path):
            with _folder.locked(self._files, self.root, path, self.timeout, create=False):
                self._show(path, shown)

    def get_note(self, run_id: str, name: str) -> str | None:
        return self._read_text(f"{self.folder(run_id)}/{name}")

    def _read_text(self, path: str) -> str | None:
        try:
            with open(path, "rb") as file:
                return file.read().decode("utf-8", "replace")
        except OSError:
            return None

    def _show(self, path: str, shown: Shown) -> None:
        """Write notes. They are derived: a failure here is no failure of the append."""
        try:
            if shown.name is not None:
                self._put(path, shown.name, shown.text)
            if shown.live is not None:
                _folder.write_new(self._files, path, "latest.md", _utf8(shown.live))
            elif shown.name is not None:
                self._link_latest(path, shown.name)
        except OSError as error:
            _log.warning(
                "the note could not be written beside the journal (%s); the next "
                "`caravanserai show` writes it again",
                error.strerror,
            )

    def _put(self, path: str, name: str, text: str) -> None:
        try:
            fd = self._files.open(f"{path}/{name}", _NEW, 0o600)
        except FileExistsError:
            _folder.write_new(self._files, path, name, _utf8(text))
            return
        try:
            _folder.write_all(self._files, fd, _utf8(text))
        finally:
            self._files.close(fd)

    def _link_latest(self, path: str, name: str) -> None:
        temporary = f"{path}/.latest.{secrets.token_hex(8)}"
        try:
            self._files.symlink(name, temporary)
        except (OSError, NotImplementedError):  # Windows without the right, FAT
            text = self._read_text(f"{path}/{name}") or ""
            _folder.write_new(self._files, path, "latest.md", _utf8(text))
            return
        try:
            self._files.rename(temporary, f"{path}/latest.md")
        except OSError:
            self._files.unlink(temporary)
            raise

    def delete(self, run_id: str) -> bool:
        path = self.folder(run_id)
        old = _legacy.find(self.root, run_id)
        gone = self._take_away(path, lock=True) if _folder.check_run_folder(self._files, path) else False
        if old is not None and old.path != path:
            gone = self._take_away(old.path, lock=False) or gone
        return gone

    def _take_away(self, path: str, *, lock: bool) -> bool:
        """Give the folder another name, which is the deletion, then remove what is in it."""
        hidden = f"{self.root}/.deleted-{secrets.token_hex(8)}"
        try:
            if lock:
                with _folder.locked(self._files, self.root, path, self.timeout, create=False):
                    # First of all: a writer that waits for this lock must see that it is gone.
                    self._files.unlink(f"{path}/lock")
                    self._files.rename(path, hidden)
            else:
                self._files.rename(path, hidden)
            self._files.sync_dir(self.root)
            _folder.remove_tree(self._files, hidden)
        except FileNotFoundError:
            return False
        except StoreFailed:
            raise
        except OSError as error:
            raise _folder.failed("the run cannot be deleted", path, error) from error
        return True

    def legacy(self, run_id: str) -> _legacy.Legacy | None:
        return _legacy.find(self.root, run_id)


def _segment(path: str, number: int) -> str:
    return f"{path}/journal-{number}.jsonl"


def _layout(sealed: Sealed, segment: int, offset: int) -> tuple[bytes, list[Place]]:
    """Lay the lines of an append out from `offset` and add each one's `loc`."""
    parts: list[bytes] = []
    places: list[Place] = []
    for text, loc in sealed.lines:
        place = Place(segment, offset)
        if loc is SELF:
            loc = place
        hint = b',"loc":%d' % loc.offset if loc is not None and loc.segment == segment else b""
        line = b"%b%b}\n" % (text, hint)
        parts.append(line)
        places.append(place)
        offset += len(line)
    return b"".join(parts), places


def _tail(sealed: Sealed, mark: _Mark) -> Tail:
    return Tail(sealed.seq, sealed.sum, sealed.epoch, sealed.rolled, mark)


def _tail_of(record: Record, mark: _Mark, epoch: int) -> Tail:
    return Tail(
        record.seq,
        record.sum,
        max(epoch, record.head.get("epoch", 1)),
        record.kind == "roll",
        mark,
    )


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _warn_no_sync(path: str) -> None:
    _log.warning("%s: this file system cannot sync; a power loss may lose waypoints", visible(path))
