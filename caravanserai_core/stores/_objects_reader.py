"""Reading a run in an object store. Nothing here writes.

A generation may be closed, and its content removed, while it is read; then `Moved` is raised, and
the reader looks again, at the generation that took its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from caravanserai_core.errors import JournalDamaged, StoreBusy, StoreFailed
from caravanserai_core.quoting import visible
from caravanserai_core.records import Record
from caravanserai_core.stores._objects_bucket import AT_ONCE
from caravanserai_core.stores._objects_heads import Heads
from caravanserai_core.stores._objects_layout import LINES
from caravanserai_core.stores._objects_run import End, Item, Moved, RunObjects
from caravanserai_core.stores.base import Bad, Listed, Recent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

_MOST_TRIES: Final = 64
# What a scan reads before it gives anything: a run up to this size is seen as one generation.
_AHEAD: Final = 16 << 20


class RunReader(RunObjects):
    """The objects of one run, for readers."""

    def look(self, look: Callable[[], T]) -> T:
        """Read, and again where the journal was replaced or deleted in between."""
        for _ in range(_MOST_TRIES):
            try:
                return look()
            except Moved:
                continue
        raise self._busy()

    def _busy(self) -> StoreBusy:
        return StoreBusy(
            f"{visible(self.bucket.path(self.folder))}: the journal was replaced while it was "
            "read. Nothing is wrong with it: read it again."
        )

    # ------------------------------------------------------------------ the end

    def recent(self) -> Recent | None:
        """Return the end of the journal, or None where there is none."""
        end = self.end()
        if end.item is None:
            return None
        tail, records, opening = self.tail_of(end)
        last = records[-1]
        found = self._back_to(end, opening, last, records)
        if not found:
            return Recent(tail, last, opening, [], [])
        newest = found[0]
        chain = self._chain_to(end.generation, newest, tail.token.segment)
        return Recent(tail, last, opening, chain, found[1:])

    def _back_to(
        self, end: End, opening: Record, last: Record, records: list[Record]
    ) -> list[Record]:
        """Return the newest waypoint of the lane of the last record, and all that follows it.

        Empty where that lane has none in the last segment.
        """
        first = opening.place // LINES
        if last.waypoint == opening.waypoint and last.kind != "waypoint":
            return []
        places = [last.place] if last.kind == "waypoint" else [last.loc or 0, 0]
        for place in places:
            begin = max(first, place // LINES)
            found = records
            if begin < end.number:
                found = self._between(end.generation, begin, end.number - 1) + records
            if place // LINES >= first:
                found = [record for record in found if record.place >= place]
            stops = [
                index
                for index, record in enumerate(found)
                if record.kind == "waypoint" and record.lane == last.lane
            ]
            # A hint that no longer fits, or leads to an older waypoint: all of the segment is read.
            if stops and (stops == [0] or not place):
                return found[stops[-1] :]
        return []

    def _between(self, generation: str, first: int, last: int) -> list[Record]:
        """Return the records of appends `first` to `last`."""
        items = self.items(generation, range(first, last + 1))
        return [record for item in items for record in self.whole(generation, item)]

    def _chain_to(self, generation: str, newest: Record, segment: int) -> list[Record]:
        """Return what stands from the full record that a waypoint builds on to that waypoint."""
        if newest.full:
            return [newest]
        wanted = newest.head.get("full")
        number = newest.place // LINES
        hint = min((newest.loc or 0) // LINES, number)
        for first in (hint, segment):
            if not 0 < first <= number:
                continue
            found = self._between(generation, first, number)
            for index, record in enumerate(found):
                if record.seq == wanted and record.full:
                    return [each for each in found[index:] if each.seq <= newest.seq]
        why = f"the full state that waypoint {newest.waypoint} builds on is not there"
        bad = Bad(self.path(generation, number), 0, 0, complete=True, why=why)
        raise self.damaged(bad, generation, number)

    # ------------------------------------------------------------------ one waypoint

    def chain(self, waypoint: int) -> list[Record]:
        """Return the records that a waypoint is rebuilt from; empty where there is none."""
        end = self.end()
        if end.item is None or waypoint < 1:
            return []
        generation = end.generation
        low, high = 0, end.number  # the waypoint is in an append behind `low`, up to `high`
        if self._reached(generation, high, low) < waypoint:
            self._refuse_damage(generation, (high,))
            return []
        while high - low > 1:
            middle = (low + high) // 2
            if self._reached(generation, middle, low) < waypoint:
                low = middle
            else:
                high = middle
        (item,) = self.items(generation, [high])
        for record in self.whole(generation, item):
            if record.kind == "waypoint" and record.waypoint == waypoint:
                segment = item.header.segment if item.header is not None else 1
                return self._chain_to(generation, record, segment)
        self._refuse_damage(generation, (high, low))
        return []

    def _refuse_damage(self, generation: str, numbers: tuple[int, ...]) -> None:
        """Raise if one of these appends is damaged: what is looked for may have been in it."""
        for number in numbers:
            for record in self.heads(generation, number) if number else ():
                if isinstance(record, Bad):
                    raise self.damaged(record, generation, number)

    def _reached(self, generation: str, number: int, low: int) -> int:
        """Return the newest waypoint at the end of an append, or of one before that is whole."""
        for at in range(number, low, -1):
            heads = self.heads(generation, at)
            if heads and isinstance(heads[-1], Record):
                return heads[-1].waypoint
        return -1

    def heads(self, generation: str, number: int) -> list[Record | Bad]:
        """Return the records of an append, without large bodies."""
        key = self.key(generation, number)
        if self.memory.get(key) is not None:
            item = self.item(generation, number)
            return [] if item is None else item.records()
        found = Heads(self.bucket, key, number).read()
        if found is None or (found[0] is not None and (found[0].gone or found[0].closed)):
            self.present(generation, number, self.item(generation, number))
            raise Moved
        return found[1]

    # ------------------------------------------------------------------ all of it

    def scan(self, *, bodies: bool, start: int | None) -> Iterator[Record | Bad]:
        """Yield every record in order, and what is none; of one generation alone."""
        given = False
        for _ in range(_MOST_TRIES):
            try:
                for item in self._scan(bodies, start or 0):
                    given = True
                    yield item
                return
            except Moved:
                if given:
                    raise self._busy() from None
        raise self._busy()

    def _scan(self, bodies: bool, start: int) -> Iterator[Record | Bad]:
        end = self.end() if start else self.end_of_all()
        generation, last = end.generation, end.number

        def read(number: int) -> list[Record | Bad]:
            if not bodies:
                return self._heads_or_bad(generation, number)
            return self._or_bad(generation, number)

        ahead: list[Record | Bad] = []
        size = 0
        first = max(1, start // LINES)
        if last - first >= AT_ONCE:
            # Who asks for the first record alone, to see whose run it is, reads no more for it.
            yield from (
                item for item in read(first) if isinstance(item, Bad) or item.place >= start
            )
            first += 1
        for begin in range(first, last + 1, AT_ONCE):
            numbers = range(begin, min(begin + AT_ONCE, last + 1))
            for part in self.bucket.map(read, numbers):
                ahead += [item for item in part if isinstance(item, Bad) or item.place >= start]
                size += sum(_length(item) for item in part)
            if size > _AHEAD:
                yield from ahead
                ahead = []
        yield from ahead

    def _or_bad(self, generation: str, number: int) -> list[Record | Bad]:
        item = self.item(generation, number)
        try:
            return self.present(generation, number, item).records()
        except JournalDamaged as damage:
            return [_bad(damage)]

    def _heads_or_bad(self, generation: str, number: int) -> list[Record | Bad]:
        try:
            return self.heads(generation, number)
        except JournalDamaged as damage:
            return [_bad(damage)]

    # ------------------------------------------------------------------ lists

    def listed(self, held: Callable[[], bool]) -> Listed | None:
        """Return what a list shows of the run, or None where there is none.

        Args:
            held: says whether somebody works on it.
        """
        try:
            return self.look(lambda: self._listed(held))
        except (JournalDamaged, StoreFailed, StoreBusy) as error:
            return Listed(self.folder, None, None, str(error))

    def _listed(self, held: Callable[[], bool]) -> Listed | None:
        found: dict[tuple[str, int], list[Record | Bad]] = {}

        def read(generation: str, number: int) -> Item | None:
            key = self.key(generation, number)
            heads = Heads(self.bucket, key, number).read()
            if heads is None:
                return None
            found[generation, number] = heads[1]
            return Item(number, self.bucket.path(key), b"", heads[0], "")

        generation, number, item = self.end(read=read)
        if item is None:
            return None
        records = found[generation, number]
        bad = next((each for each in records if isinstance(each, Bad)), None)
        if item.header is None or bad is not None or not records:
            bad = bad or Bad(item.path, 0, 0, complete=True, why="the append holds no record")
            raise self.damaged(bad, generation, number)
        last = records[-1]
        segment = item.header.segment
        heads = records if segment == number else self.heads(generation, segment)
        opens = [each for each in heads if isinstance(each, Record) and each.kind == "open"]
        opening = opens[-1] if opens else None
        if opening is None or opening.body is None:
            opening = self.opening(generation, segment)
        return Listed(
            self.folder, opening, last if isinstance(last, Record) else None, None, held=held()
        )


def _bad(damage: JournalDamaged) -> Bad:
    return Bad(damage.path, damage.offset or 0, 0, complete=True, why="the object is not there")


def _length(item: Record | Bad) -> int:
    return item.size if isinstance(item, Bad) else 256 + len(item.body or b"")
