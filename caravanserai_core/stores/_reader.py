"""Reading the folder of one run. Nothing here writes, and nothing takes the lock.

A reader may look while a writer writes, so it looks again where what it saw cannot stand: a
segment that has gone, a note whose waypoint was not there a moment ago.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

from caravanserai_core.errors import JournalDamaged
from caravanserai_core.records import Malformed, Record
from caravanserai_core.stores import _legacy
from caravanserai_core.stores._folder import close
from caravanserai_core.stores._seam import READ
from caravanserai_core.stores._segment import (
    Backwards,
    End,
    Place,
    find_waypoints,
    read_line,
    scan,
)
from caravanserai_core.stores._segments import Lost, Mark, RunFolder, tail_of
from caravanserai_core.stores.base import Bad, Listed, Recent

if TYPE_CHECKING:
    from collections.abc import Callable


T = TypeVar("T")


def _stop_of(record: Record, lane: str) -> bool:
    """Say whether a record is a waypoint of `lane`."""
    return record.kind == "waypoint" and record.lane == lane


class RunReader(RunFolder):
    """The folder of one run, for readers."""

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
            fd = self.open_segment(segment, READ)
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
        opening = self.opening(fd, segment)
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
        first, _ = self.record_at(fd, hint)
        found: list[Record] = []
        if first is not None and _stop_of(first, record.lane):
            found = self.whole(fd, hint, end)
        if not found or any(_stop_of(later, record.lane) for later in found[1:]):
            # The hint no longer fits: a hand edit moved the lines, or hit the hint itself.
            found = self.whole(fd, hint._replace(offset=0), end)
            stops = [index for index, item in enumerate(found) if _stop_of(item, record.lane)]
            found = found[stops[-1] :] if stops else []
        counted = [item.waypoint for item in found if item.kind in ("waypoint", "removed")]
        newest = max(counted, default=0)
        if newest != record.waypoint:
            why = f"waypoint {record.waypoint} is not before it"
            raise self.damaged(hint.segment, record.place.offset, why)
        return found

    def _chain_to(self, fd: int, record: Record) -> list[Record]:
        """Read what a waypoint is rebuilt from: the full record, then the patches on its way."""
        if record.full:
            return [record]
        segment = record.place.segment
        first, start = self.record_at(fd, Place(segment, record.loc or 0))
        if first is None or first.seq != record.head.get("full"):
            first = self._find_full(fd, record)  # a hand edit shifted what the hint points at
            start = first.place.offset
        chain = [record]
        if record.head.get("base") != first.waypoint:
            lines = Backwards(self.reader(fd), start)
            while chain[-1].head.get("base") != first.waypoint:
                chain.append(self._step(lines, start, chain[-1]))
        return [first, *reversed(chain)]

    def _step(self, lines: Backwards, start: int, after: Record) -> Record:
        """Read the waypoint that `after` builds on, which stands behind `start`."""
        segment, end = after.place
        base = after.head.get("base")
        why, damage = "", start
        while type(base) is int and (found := lines.claim(base, end)) is not None:
            end, text, begin, stop = found
            try:
                record = read_line(text, Place(segment, end), stop, begin)
            except Malformed as error:
                why, damage = str(error), end
                continue
            head = record.head
            if head["waypoint"] == base and head["kind"] == "waypoint" and record.seq < after.seq:
                return record
        why = why or f"waypoint {base}, which it builds on, is not there"
        raise self.damaged(segment, damage, why)

    def _find_full(self, fd: int, record: Record) -> Record:
        """Find the full record that a waypoint builds on by looking at all before it."""
        segment, end = record.place
        for item in scan(self.reader(fd), segment, self.path, 0, end, bodies=True):
            if isinstance(item, Record) and item.seq == record.head.get("full") and item.full:
                return item
        why = f"the full state that waypoint {record.waypoint} builds on is not there"
        raise self.damaged(segment, end, why)

    def chain(self, waypoint: int) -> list[Record]:
        """Return the records that a waypoint is rebuilt from; empty where there is none.

        Raises:
            JournalDamaged: it was written, and it or what it builds on is not whole.
        """
        found = self._chain_now(waypoint)
        while not found:
            # It may have been in a segment that went while others were looked into.
            generation = self.generation(1)
            found = self._chain_now(waypoint)
            if self.generation(1) == generation:
                break
        return found

    def _chain_now(self, waypoint: int) -> list[Record]:
        last = self.last_segment()
        damage: JournalDamaged | None = None
        for segment in range(last, 0, -1):
            try:
                found = self._chain_in(segment, waypoint, newest=segment == last)
            except JournalDamaged as error:
                # A line whose number was hit claims to be what stands whole in an older segment.
                damage = damage or error
                continue
            if found:
                return found
        # Rare, so it may cost more: is it in a segment behind a gap, or in a stretch that is
        # no longer a record?
        for segment in self.segments_behind(last):
            found = self._chain_in(segment, waypoint, newest=False)
            if found:
                return found
        if damage is not None:
            raise damage
        bad: Bad | None = None
        for item in self.scan(bodies=False, start=None):
            if isinstance(item, Bad):
                bad = bad or item
            elif bad is not None and item.waypoint >= waypoint > 0 and item.app[0] == item.seq:
                raise self.damaged(self.segment_of(bad.path), bad.offset, bad.why)
        return []

    def _chain_in(self, segment: int, waypoint: int, *, newest: bool) -> list[Record]:
        try:
            fd = self.open_segment(segment, READ)
        except FileNotFoundError:
            return []
        try:
            size = self.files.fstat(fd).st_size
            broken: int | None = None
            for offset in find_waypoints(self.reader(fd), size, waypoint):
                record, _ = self.record_at(fd, Place(segment, offset))
                if newest and (record is None or record.app[1] > 1):
                    # In the newest append, which may not be whole, and is then not there yet.
                    try:
                        end = self.end(fd, segment, size).size
                    except JournalDamaged:
                        end = size  # by something else, behind it
                    if offset >= end:
                        continue
                if record is not None:
                    return self._chain_to(fd, record)
                broken = offset
            if broken is not None:
                raise self.damaged(segment, broken, "the waypoint is not whole")
            return []
        finally:
            close(self.files, fd)

    def listed(self, name: str) -> Listed | None:
        """Return what a list shows of the run, or None where nothing is in the folder."""
        segment = self.last_segment()
        while segment:
            fd = self.open_segment(segment, READ)
            try:
                size = self.files.fstat(fd).st_size
                last = self._last_head(fd, segment, size)
                if last is not None:
                    self.refuse_lost(last.waypoint)
                    return Listed(name, self.opening(fd, segment), last, None)
            finally:
                close(self.files, fd)
            segment -= 1
        if _legacy.read(self.path) is not None:
            return Listed(name, None, None, None, legacy=True)
        self.refuse_lost(0)
        self.refuse_gap(0)
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
                heads = scan(self.reader(fd), segment, self.path, start, size, bodies=False)
                last = next(iter(deque(heads, maxlen=1)), None)
                if isinstance(last, Record) and sum(last.app) - 1 == last.seq:
                    return last
        records = self.end(fd, segment, size).records
        return records[-1] if records else None
