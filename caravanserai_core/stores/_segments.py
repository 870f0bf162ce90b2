"""The segments of one run: opened, scanned, and judged. Nothing here writes."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from typing import TYPE_CHECKING, NamedTuple

from caravanserai_core.errors import JournalDamaged, StoreRefused
from caravanserai_core.quoting import visible
from caravanserai_core.records import SUFFIX_MAX, Malformed, Record, lengths, parse
from caravanserai_core.stores import _legacy
from caravanserai_core.stores._folder import close, failed
from caravanserai_core.stores._seam import READ
from caravanserai_core.stores._segment import (
    BOM,
    Damaged,
    End,
    Place,
    find_end,
    read_line,
    scan,
)
from caravanserai_core.stores.base import Bad, Tail, damage_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from caravanserai_core.stores._seam import Files
    from caravanserai_core.stores._segment import Read

_SEGMENT = re.compile(r"journal-([1-9]\d{0,8})\.jsonl")


class Lost(Exception):
    """A note lies beside the journal whose waypoint is not in it."""

    def __init__(self, newest: int) -> None:
        super().__init__(newest)
        self.newest = newest


class Mark(NamedTuple):
    """The token of a tail: in which segment a journal ends, and at which byte.

    Attributes:
        segment: ordinal of the segment.
        size: where the journal ends in it, in bytes.
        unsynced: how many of the bytes before that this process wrote without waiting for the
            disk. Not a part of what the mark says: two marks of one place are equal.
    """

    segment: int
    size: int
    unsynced: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mark) and self[:2] == other[:2]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:2])


def generation_of(line: bytes) -> int:
    """Return the generation that an `open` record states, sealed and not laid out yet."""
    return int(parse(line + b"}").head["generation"])


def segment_path(path: str, number: int) -> str:
    """Return the path of a segment of the run in folder `path`."""
    return f"{path}/journal-{number}.jsonl"


def tail_of(record: Record, mark: Mark, epoch: int) -> Tail:
    """Return the tail of a journal that ends with `record`."""
    epoch = max(epoch, record.head.get("epoch", 1))
    return Tail(record.seq, record.sum, epoch, record.kind == "roll", mark)


class RunFolder:
    """The folder of one run.

    Args:
        files: the system calls.
        path: the folder; it exists and was checked.
    """

    def __init__(self, files: Files, path: str) -> None:
        self.files = files
        self.path = path

    def open_segment(self, segment: int, flags: int) -> int:
        """Open a segment, following no link."""
        name = segment_path(self.path, segment)
        try:
            fd = self.files.open(name, flags)
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise StoreRefused(
                    f"{visible(name)} is a link; a journal is never followed through one."
                ) from None
            raise failed("the journal cannot be opened", name, error) from error
        regular = False
        try:
            regular = stat.S_ISREG(self.files.fstat(fd).st_mode)
        except OSError as error:
            raise failed("the journal cannot be read", name, error) from error
        finally:
            if not regular:
                close(self.files, fd)
        if not regular:
            raise StoreRefused(f"{visible(name)} is no file; somebody put it in a journal's place.")
        return fd

    def last_segment(self) -> int:
        """Return the highest segment number; they are dense, so no folder is listed."""
        segment = 0
        while self.exists(segment + 1):
            segment += 1
        while segment > 1 and self.left_over(segment):
            segment -= 1
        return segment

    def left_over(self, segment: int) -> bool:
        """Say whether a segment was left by a crash when the journal was replaced.

        It is of another generation than the first one. Where that cannot be read it is none.
        """
        mine, first = self.generation(segment), self.generation(1)
        return mine is not None and first is not None and mine != first

    def generation(self, segment: int) -> int | None:
        """Return the generation that a segment begins with, or None where it cannot be read."""
        try:
            fd = self.open_segment(segment, READ)
        except FileNotFoundError:
            return None
        try:
            record, _ = self.record_at(fd, Place(segment, 0))
        finally:
            close(self.files, fd)
        found = record.head.get("generation") if record is not None else None
        return found if type(found) is int else None

    def exists(self, segment: int) -> bool:
        """Say whether there is a segment of this number, or anything else of its name."""
        try:
            self.files.lstat(segment_path(self.path, segment))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def segments_behind(self, last: int, *, all_generations: bool = False) -> list[int]:
        """Return the segments that lie behind the last one, or a missing one, from the end."""
        names = (_SEGMENT.fullmatch(name) for name in self.files.listdir(self.path))
        found = sorted((int(m[1]) for m in names if m and int(m[1]) > last), reverse=True)
        return [number for number in found if all_generations or not self.left_over(number)]

    def segment_of(self, path: str) -> int:
        """Return the number of a segment from its path."""
        match = _SEGMENT.fullmatch(os.path.basename(path))
        return int(match[1]) if match else 1

    def scan(self, *, bodies: bool, start: Place | None) -> Iterator[Record | Bad]:
        """Yield the records of all segments from `start` on, and what is not one."""
        segment, offset = start or Place(1, 0)
        empty: Bad | None = None
        opened = self._open_all(segment)
        try:
            for fd in opened:
                if empty is not None:
                    yield empty  # the newest may be empty, if a crash came before its first append
                size = self.files.fstat(fd).st_size
                name = segment_path(self.path, segment)
                empty = None if size else Bad(name, 0, 0, complete=True, why="the file is empty")
                yield from scan(self.reader(fd), segment, name, offset, size, bodies=bodies)
                segment, offset = segment + 1, 0
        finally:
            for fd in opened:
                close(self.files, fd)

    def salvage(self, segments: list[int]) -> Iterator[Record | Bad]:
        """Yield all that can be read of some segments, whatever is missing between them."""
        for segment in segments:
            fd = self.open_segment(segment, READ)
            try:
                size = self.files.fstat(fd).st_size
                name = segment_path(self.path, segment)
                yield from scan(self.reader(fd), segment, name, 0, size, bodies=True)
            finally:
                close(self.files, fd)

    def _open_all(self, first: int) -> list[int]:
        """Open all segments from `first` on before any is read.

        So that what is read is one journal, although it may be replaced by another meanwhile.
        """
        while True:
            opened: list[int] = []
            whole = False
            try:
                whole = self._try_open_all(first, opened)
            finally:
                if not whole:
                    for fd in opened:
                        close(self.files, fd)
            if whole:
                return opened

    def _try_open_all(self, first: int, opened: list[int]) -> bool:
        """Open all segments; says whether they were still the journal's when all were open."""
        with contextlib.suppress(FileNotFoundError):
            while len(opened) < 2 or not self.left_over(first + len(opened)):
                opened.append(self.open_segment(first + len(opened), READ))
        if len(opened) > 1 and self.left_over(first + 1):
            close(self.files, opened.pop())
        if not opened:
            return True
        mine = self.files.fstat(opened[0])
        try:
            named = self.files.lstat(segment_path(self.path, first))
        except FileNotFoundError:
            return False
        return (mine.st_ino, mine.st_dev) == (named.st_ino, named.st_dev)

    def reader(self, fd: int) -> Read:
        """Return the function that reads (offset, size) of an open segment."""
        read = self.files.read
        return lambda offset, size: read(fd, size, offset)

    def end(self, fd: int, segment: int, size: int) -> End:
        """Find the last whole append of a segment; damage there is an error."""
        try:
            return find_end(self.reader(fd), segment, segment_path(self.path, segment), size)
        except Damaged as error:
            raise self.damaged(segment, error.bad.offset, error.bad.why) from None

    def opening(self, fd: int, segment: int) -> Record:
        """Return the `open` record that a segment begins with."""
        for item in scan(
            self.reader(fd), segment, self.path, 0, self.files.fstat(fd).st_size, bodies=True
        ):
            if isinstance(item, Record) and item.kind == "open":
                return item
            why = item.why if isinstance(item, Bad) else "it does not begin with an open record"
            raise self.damaged(segment, 0, why)
        raise self.damaged(segment, 0, "the segment is empty")

    def epoch(self, fd: int) -> int:
        """Return the epoch that a segment begins with."""
        start, _ = self.record_at(fd, Place(0, 0))
        return start.head.get("epoch", 1) if start is not None else 1

    def record_at(self, fd: int, place: Place) -> tuple[Record | None, int]:
        """Read the record that begins at a place; returns it, or None, and where its line ends."""
        start = self.files.read(fd, 64, place.offset)
        sizes = lengths(start.removeprefix(BOM) if place.offset == 0 else start)
        rest = self.files.fstat(fd).st_size - place.offset
        if sizes is None or sum(sizes) > rest:  # never ask for what a hostile line claims to hold
            return None, place.offset
        size = min(rest, sum(sizes) + SUFFIX_MAX + 8)
        line = self.files.read(fd, size, place.offset)
        end = line.find(b"\n", sum(sizes))
        end = len(line) if end < 0 else end
        try:
            return read_line(line, place, end), place.offset + end + 1
        except Malformed:
            return None, place.offset

    def whole(self, fd: int, start: Place, end: int) -> list[Record]:
        """Read a stretch in which every line must be whole."""
        records: list[Record] = []
        for item in scan(self.reader(fd), start.segment, self.path, start.offset, end, bodies=True):
            if isinstance(item, Bad):
                raise self.damaged(start.segment, item.offset, item.why)
            records.append(item)
        return records

    def refuse_lost(self, newest: int) -> None:
        """Refuse a journal that ends before the newest note beside it.

        A note is written after its record is durable, so the record was there.

        Raises:
            Lost: records that were acknowledged are gone, or a writer added them just now.
        """
        try:
            self.files.lstat(f"{self.path}/waypoint-{newest + 1}.md")
        except (FileNotFoundError, NotADirectoryError):
            return
        if newest or _legacy.read(self.path) is None:
            raise Lost(newest)

    def refuse_gap(self, last: int) -> None:
        """Refuse a journal that goes on behind a segment that is missing.

        Raises:
            JournalDamaged: acknowledged records were in that segment.
        """
        if self.exists(last + 2) and not self.left_over(last + 2):
            why = f"it is missing, and journal-{last + 2}.jsonl is there"
            raise self.damaged(last + 1, None, why)

    def lost_error(self, newest: int) -> JournalDamaged:
        """Build the error for a journal that ends before the newest note beside it."""
        segment = max(1, self.last_segment())
        what = f"ends at waypoint {newest}" if newest else "is missing or empty"
        why = f"it {what}, but waypoint-{newest + 1}.md lies beside it"
        try:
            fd = self.open_segment(segment, READ)
        except FileNotFoundError:
            return self.damaged(segment, None, why, newest)
        try:
            end = self.end(fd, segment, self.files.fstat(fd).st_size)
            return self.damaged(segment, end.size, why, newest)
        finally:
            close(self.files, fd)

    def damaged(
        self, segment: int, offset: int | None, why: str, last: int | None = None
    ) -> JournalDamaged:
        """Build the error for a damaged segment; it names the last whole waypoint before."""
        if last is None:
            last = 0
            for item in self.scan(bodies=False, start=None):
                if isinstance(item, Bad) or (
                    item.place.segment == segment
                    and offset is not None
                    and item.place.offset >= offset
                ):
                    break
                last = item.waypoint if item.kind == "waypoint" else last
        return damage_error(segment_path(self.path, segment), offset, why, last)
