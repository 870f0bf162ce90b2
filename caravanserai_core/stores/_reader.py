"""Reading the folder of one run. Nothing here writes, and nothing takes the lock.

A reader may look while a writer writes, so it looks again where what it saw cannot stand: a
segment that has gone, a note whose waypoint was not there a moment ago.
"""

from __future__ import annotations

import errno
import os
import re
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from caravanserai_core.errors import JournalDamaged, StoreRefused
from caravanserai_core.quoting import visible
from caravanserai_core.records import SUFFIX_MAX, Malformed, Record, lengths
from caravanserai_core.stores import _legacy
from caravanserai_core.stores._folder import close, failed
from caravanserai_core.stores._segment import (
    BOM,
    Damaged,
    End,
    Place,
    find_end,
    find_waypoint,
    read_line,
    scan,
    waypoint_lines,
)
from caravanserai_core.stores.base import Bad, Listed, Recent, Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from caravanserai_core.stores._seam import Files

T = TypeVar("T")

_SEGMENT = re.compile(r"journal-([1-9]\d{0,8})\.jsonl")

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Lost(Exception):
    """A note lies beside the journal whose waypoint is not in it."""

    def __init__(self, newest: int) -> None:
        super().__init__(newest)
        self.newest = newest


class Mark(NamedTuple):
    """The token of a tail: in which segment a journal ends, and at which byte."""

    segment: int
    size: int


def segment_path(path: str, number: int) -> str:
    """Return the path of a segment of the run in folder `path`."""
    return f"{path}/journal-{number}.jsonl"


def tail_of(record: Record, mark: Mark, epoch: int) -> Tail:
    """Return the tail of a journal that ends with `record`."""
    epoch = max(epoch, record.head.get("epoch", 1))
    return Tail(record.seq, record.sum, epoch, record.kind == "roll", mark)


def _stop_of(record: Record, lane: str) -> bool:
    """Say whether a record is a waypoint of `lane`."""
    return record.kind == "waypoint" and record.lane == lane


def _linked(chain: list[Record]) -> bool:
    """Say whether the last record of a chain leads, base by base, to a full one."""
    found = {record.waypoint: record for record in chain if record.kind == "waypoint"}
    record: Record | None = chain[-1]
    while record is not None and not record.full:
        base = found.get(record.head.get("base", 0))
        record = base if base is not None and base.seq < record.seq else None
    return record is not None


class RunReader:
    """The folder of one run, for reading.

    Args:
        files: the system calls.
        path: the folder; it exists and was checked.
    """

    def __init__(self, files: Files, path: str) -> None:
        self.files = files
        self.path = path

    def look(self, look: Callable[[], T]) -> T | None:
        """Read without the lock: look again where a writer or a deletion came in between."""
        newest = -1
        damage: tuple[str, int | None] | None = None
        for _ in range(64):
            try:
                return look()
            except FileNotFoundError:
                continue
            except JournalDamaged as error:
                # A writer may have cut a torn tail off and written on between two reads of this
                # look; damage is still there at the next one.
                if (error.path, error.offset) == damage:
                    raise
                damage = (error.path, error.offset)
            except Lost as lost:
                # A writer may have added this very waypoint since; if not, it is really lost.
                if lost.newest == newest:
                    raise self.lost_error(newest) from None
                newest = lost.newest
        return None

    def recent(self) -> Recent | None:
        """Return the end of the journal, or None where nothing is in it."""
        last = self.last_segment()
        for segment in (last, last - 1):
            if segment < 1:
                break
            fd = self.open_segment(segment, _READ)
            try:
                size = self.files.fstat(fd).st_size
                end = self.end(fd, segment, size)
                if end.records:
                    return self._recent_in(fd, segment, end)
            finally:
                close(self.files, fd)
            # A crash, or a writer at work, between creating a segment and filling it.
        if last > 1:
            raise self.damaged(last - 1, 0, "the segment holds no record")
        self.refuse_lost(0)
        self.refuse_gap(last)
        return None

    def _recent_in(self, fd: int, segment: int, end: End) -> Recent:
        record = end.records[-1]
        self.refuse_lost(record.waypoint)
        if record.kind == "roll":
            self.refuse_gap(segment)
        opening = self._opening(fd, segment)
        tail = tail_of(record, Mark(segment, end.size), opening.head.get("epoch", 1))
        chain: list[Record] = []
        since: list[Record] = []
        if record.kind == "waypoint":
            chain = self._chain_to(fd, record)
        else:
            records = self._since_waypoint(fd, record, end.size)
            if records:
                chain = self._chain_to(fd, records[0])
                since = records[1:]
        return Recent(tail, record, opening, chain, since)

    def _since_waypoint(self, fd: int, record: Record, end: int) -> list[Record]:
        """Read the newest waypoint of a record's lane and all that follows it.

        Empty where that lane has none in this segment: the record then has no hint.
        """
        if record.loc is None:
            return []
        hint = Place(record.place.segment, record.loc)
        first, _ = self._record_at(fd, hint)
        found: list[Record] = []
        if first is not None and _stop_of(first, record.lane):
            found = self._whole(fd, hint, end)
        if not found or any(_stop_of(later, record.lane) for later in found[1:]):
            # The hint no longer fits: a hand edit moved the lines, or hit the hint itself.
            found = self._whole(fd, hint._replace(offset=0), end)
            stops = [index for index, item in enumerate(found) if _stop_of(item, record.lane)]
            found = found[stops[-1] :] if stops else []
        newest = max((item.waypoint for item in found if item.kind == "waypoint"), default=0)
        if newest != record.waypoint:
            why = f"waypoint {record.waypoint} is not before it"
            raise self.damaged(hint.segment, record.place.offset, why)
        return found

    def _chain_to(self, fd: int, record: Record) -> list[Record]:
        """Read what a waypoint is rebuilt from: the full record, then the patches on its way."""
        if record.full:
            return [record]
        segment, end = record.place
        first, start = self._record_at(fd, Place(segment, record.loc or 0))
        if first is None or first.seq != record.head.get("full"):
            first = self._find_full(fd, record)  # a hand edit shifted what the hint points at
            start = first.place.offset
        chain = [record]
        if record.head.get("base") != first.waypoint:
            buffer = self.files.read(fd, end - start, start)
            lines = waypoint_lines(buffer)
            while (base := chain[-1].head.get("base")) != first.waypoint:
                at = lines.get(base or 0)
                if at is None:
                    why = f"waypoint {base}, which {chain[-1].waypoint} builds on, is not there"
                    raise self.damaged(segment, start, why)
                try:
                    step = read_line(
                        buffer[at : buffer.index(b"\n", at)], Place(segment, start + at)
                    )
                except (Malformed, ValueError) as error:
                    raise self.damaged(segment, start + at, str(error)) from None
                chain.append(step)
                if len(chain) > len(lines) + 1:
                    raise self.damaged(segment, start, "the waypoints build on each other")
        return [first, *reversed(chain)]

    def _find_full(self, fd: int, record: Record) -> Record:
        """Find the full record that a waypoint builds on by looking at all before it."""
        segment, end = record.place
        for item in scan(self._reader(fd), segment, self.path, 0, end, bodies=True):
            if isinstance(item, Record) and item.seq == record.head.get("full") and item.full:
                return item
        why = f"the full state that waypoint {record.waypoint} builds on is not there"
        raise self.damaged(segment, end, why)

    def _record_at(self, fd: int, place: Place) -> tuple[Record | None, int]:
        """Read the record that begins at a place; returns it, or None, and where its line ends."""
        start = self.files.read(fd, 64, place.offset)
        sizes = lengths(start.removeprefix(BOM) if place.offset == 0 else start)
        if sizes is None:
            return None, place.offset
        size = sum(sizes) + SUFFIX_MAX + 8
        line = self.files.read(fd, size, place.offset)
        end = line.find(b"\n", sum(sizes))
        end = len(line) if end < 0 else end
        try:
            return read_line(line, place, end), place.offset + end + 1
        except Malformed:
            return None, place.offset

    def _whole(self, fd: int, start: Place, end: int) -> list[Record]:
        """Read a stretch in which every line must be whole."""
        records: list[Record] = []
        for item in scan(
            self._reader(fd), start.segment, self.path, start.offset, end, bodies=True
        ):
            if isinstance(item, Bad):
                raise self.damaged(start.segment, item.offset, item.why)
            records.append(item)
        return records

    def chain(self, waypoint: int) -> list[Record]:
        """Return the records that a waypoint is rebuilt from; empty where there is none.

        Raises:
            JournalDamaged: it was written, and it or what it builds on is not whole.
        """
        last = self.last_segment()
        for segment in range(last, 0, -1):
            found = self._chain_in(segment, waypoint, newest=segment == last)
            if found:
                return found
        # Rare, so it may cost more: is it in a segment behind a gap, or in a stretch that is
        # no longer a record?
        for segment in self._segments_behind(last):
            found = self._chain_in(segment, waypoint, newest=False)
            if found:
                return found
        bad: Bad | None = None
        for item in self.scan(bodies=False, start=None):
            if isinstance(item, Bad):
                bad = bad or item
            elif bad is not None and item.waypoint >= waypoint > 0 and item.app[0] == item.seq:
                raise self.damaged(self._segment_of(bad.path), bad.offset, bad.why)
        return []

    def _chain_in(self, segment: int, waypoint: int, *, newest: bool) -> list[Record]:
        try:
            fd = self.open_segment(segment, _READ)
        except FileNotFoundError:
            return []
        try:
            size = self.files.fstat(fd).st_size
            offset = find_waypoint(self._reader(fd), size, waypoint)
            if offset is None:
                return []
            record, _ = self._record_at(fd, Place(segment, offset))
            if newest and (record is None or record.app[1] > 1):
                # In the newest append, which may not be whole, and is then not there yet.
                try:
                    end = self.end(fd, segment, size).size
                except JournalDamaged:
                    end = size  # by something else, behind it
                if offset >= end:
                    return []
            if record is None:
                raise self.damaged(segment, offset, "the waypoint is not whole")
            return self._chain_to(fd, record)
        finally:
            close(self.files, fd)

    def _segments_behind(self, last: int) -> list[int]:
        """Return the segments that lie behind a missing one."""
        names = (_SEGMENT.fullmatch(name) for name in self.files.listdir(self.path))
        return sorted((int(m[1]) for m in names if m and int(m[1]) > last), reverse=True)

    def _segment_of(self, path: str) -> int:
        match = _SEGMENT.fullmatch(os.path.basename(path))
        return int(match[1]) if match else 1

    def scan(self, *, bodies: bool, start: Place | None) -> Iterator[Record | Bad]:
        """Yield the records of all segments from `start` on, and what is not one."""
        segment, offset = start or Place(1, 0)
        empty: Bad | None = None
        while True:
            try:
                fd = self.open_segment(segment, _READ)
            except FileNotFoundError:
                return
            if empty is not None:
                yield empty  # the newest one may be empty, if a crash came before its first append
            try:
                size = self.files.fstat(fd).st_size
                name = segment_path(self.path, segment)
                empty = None if size else Bad(name, 0, 0, complete=True, why="the file is empty")
                yield from scan(self._reader(fd), segment, name, offset, size, bodies=bodies)
            finally:
                close(self.files, fd)
            segment, offset = segment + 1, 0

    def listed(self, name: str) -> Listed | None:
        """Return what a list shows of the run, or None where nothing is in the folder."""
        segment = self.last_segment()
        if segment == 0:
            if _legacy.read(self.path) is not None:
                return Listed(name, None, None, None, legacy=True)
            self.refuse_lost(0)
            return None
        while segment:
            fd = self.open_segment(segment, _READ)
            try:
                size = self.files.fstat(fd).st_size
                last = self._last_head(fd, segment, size)
                if last is not None:
                    self.refuse_lost(last.waypoint)
                    return Listed(name, self._opening(fd, segment), last, None)
            finally:
                close(self.files, fd)
            segment -= 1
        return None

    def _last_head(self, fd: int, segment: int, size: int) -> Record | None:
        """Return the last record without reading its body, where its own `loc` leads to it."""
        window = min(size, 4096)
        end = self.files.read(fd, window, size - window)
        line = end.rstrip(b"\r\n").rpartition(b"\n")
        if not line[1] and size > window and end.endswith(b"\n"):
            _, found, loc = line[2].rpartition(b'"loc":')
            if found and loc.rstrip(b"}").isdigit():
                start = int(loc.rstrip(b"}"))
                heads = scan(self._reader(fd), segment, self.path, start, size, bodies=False)
                last = next(iter(deque(heads, maxlen=1)), None)
                if isinstance(last, Record) and sum(last.app) - 1 == last.seq:
                    return last
        records = self.end(fd, segment, size).records
        return records[-1] if records else None

    def _opening(self, fd: int, segment: int) -> Record:
        """Return the `open` record that a segment begins with."""
        for item in scan(
            self._reader(fd), segment, self.path, 0, self.files.fstat(fd).st_size, bodies=True
        ):
            if isinstance(item, Record) and item.kind == "open":
                return item
            why = item.why if isinstance(item, Bad) else "it does not begin with an open record"
            raise self.damaged(segment, 0, why)
        raise self.damaged(segment, 0, "the segment is empty")

    def epoch(self, fd: int) -> int:
        """Return the epoch that a segment begins with."""
        start, _ = self._record_at(fd, Place(0, 0))
        return start.head.get("epoch", 1) if start is not None else 1

    def end(self, fd: int, segment: int, size: int) -> End:
        """Find the last whole append of a segment; damage there is an error."""
        try:
            return find_end(self._reader(fd), segment, segment_path(self.path, segment), size)
        except Damaged as error:
            raise self.damaged(segment, error.bad.offset, error.bad.why) from None

    def _reader(self, fd: int) -> Callable[[int, int], bytes]:
        read = self.files.read
        return lambda offset, size: read(fd, size, offset)

    def open_segment(self, segment: int, flags: int) -> int:
        """Open a segment, following no link."""
        name = segment_path(self.path, segment)
        try:
            return self.files.open(name, flags)
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise StoreRefused(
                    f"{visible(name)} is a link; a journal is never followed through one."
                ) from None
            raise failed("the journal cannot be opened", name, error) from error

    def last_segment(self) -> int:
        """Return the highest segment number; they are dense, so no folder is listed."""
        segment = 0
        while self.exists(segment + 1):
            segment += 1
        return segment

    def exists(self, segment: int) -> bool:
        """Say whether there is a segment of this number, or anything else of its name."""
        try:
            self.files.lstat(segment_path(self.path, segment))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

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
        if self.exists(last + 2):
            why = f"it is missing, and journal-{last + 2}.jsonl is there"
            raise self.damaged(last + 1, None, why)

    def lost_error(self, newest: int) -> JournalDamaged:
        """Build the error for a journal that ends before the newest note beside it."""
        segment = max(1, self.last_segment())
        what = f"ends at waypoint {newest}" if newest else "is missing or empty"
        why = f"it {what}, but waypoint-{newest + 1}.md lies beside it"
        try:
            fd = self.open_segment(segment, _READ)
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
        name = segment_path(self.path, segment)
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
