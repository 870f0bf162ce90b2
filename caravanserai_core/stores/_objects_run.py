"""The objects of one run: which there are, where the journal ends, what is in each.

The numbers of a journal are dense, so its end is found by asking for single objects: from a hint
forwards in growing steps, then between the last one that is there and the first that is not. A
hint may be stale, and is never more than a place to begin.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from caravanserai_core.errors import JournalDamaged, StoreFailed
from caravanserai_core.records import Malformed, Record
from caravanserai_core.stores._objects_layout import (
    FIRST,
    GENERATION,
    GONE,
    HINT,
    OBJECT,
    Closed,
    Header,
    journal_key,
    read_header,
    records_in,
)
from caravanserai_core.stores.base import Bad, Tail, damage_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from caravanserai_core.stores._objects_bucket import Bucket

_STEPS: Final = ((1, 2), (4, 8, 16), (32, 64, 128, 256), (512, 1024, 2048, 4096))
_MOST_TRIES: Final = 8
_CACHED: Final = 32 << 20
_LARGEST_CACHED: Final = 4 << 20


class Moved(Exception):
    """The generation that was read is closed by now: look again."""


class Token(NamedTuple):
    """Where a journal ends, as a tail says it.

    Attributes:
        generation: name of the generation.
        append: number of the last append.
        segment: number of the append that begins the last segment.
    """

    generation: str
    append: int
    segment: int


class Item(NamedTuple):
    """An object of a journal.

    Attributes:
        number: its number.
        path: its address.
        data: its content.
        header: its first line; None: it has none that can be read.
        why: what is wrong with it then.
    """

    number: int
    path: str
    data: bytes
    header: Header | None
    why: str

    def records(self) -> list[Record | Bad]:
        """Return what is in it."""
        if self.header is None:
            return [Bad(self.path, 0, len(self.data), complete=True, why=self.why)]
        return records_in(self.data, self.header, self.number, self.path)


class End(NamedTuple):
    """The end of a run's journal.

    Attributes:
        generation: the generation that is open.
        number: of its last object; 0: it has none, and there is no such run.
        item: that object.
    """

    generation: str
    number: int
    item: Item | None


class Debt(NamedTuple):
    """A generation that was closed, and whose content is not removed yet.

    Attributes:
        generation: its name.
        number: of its closing object.
        closed: what that says.
    """

    generation: str
    number: int
    closed: Closed


class Memory:
    """What a store remembers: objects that do not change, and where journals ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._ends: dict[str, tuple[str, int]] = {}
        self._debts: dict[str, list[Debt]] = {}

    def get(self, key: str) -> bytes | None:
        """Return an object, if it is remembered."""
        with self._lock:
            data = self._objects.get(key)
            if data is not None:
                self._objects.move_to_end(key)
            return data

    def put(self, key: str, data: bytes) -> None:
        """Remember an object."""
        if len(data) > _LARGEST_CACHED:
            return
        with self._lock:
            if key not in self._objects:
                self._objects[key] = data
                self._size += len(data)
            while self._size > _CACHED:
                self._size -= len(self._objects.popitem(last=False)[1])

    def drop(self, folder: str) -> None:
        """Forget the objects of a run: it was deleted, or replaced."""
        with self._lock:
            for key in [key for key in self._objects if key.startswith(f"{folder}/")]:
                self._size -= len(self._objects.pop(key))

    def end(self, folder: str) -> tuple[str, int] | None:
        """Return generation and number of a run's last object, as it was last seen."""
        with self._lock:
            return self._ends.get(folder)

    def ends(self, folder: str, generation: str, number: int) -> None:
        """Remember where a run's journal ends."""
        with self._lock:
            before = self._ends.get(folder)
            if before is None or before[0] != generation or before[1] < number:
                self._ends[folder] = (generation, number)

    def owe(self, folder: str, debt: Debt) -> None:
        """Note that something of a run is still to be removed."""
        with self._lock:
            debts = self._debts.setdefault(folder, [])
            if debt not in debts:
                debts.append(debt)

    def debts(self, folder: str, paid: Debt | None = None) -> list[Debt]:
        """Return what of a run is to be removed, but for what was now."""
        with self._lock:
            left = [debt for debt in self._debts.get(folder, ()) if debt != paid]
            self._debts[folder] = left
            if not left:
                del self._debts[folder]
            return list(left)

    def forget(self, folder: str) -> None:
        """Forget where a run's journal ends."""
        with self._lock:
            self._ends.pop(folder, None)


class RunObjects:
    """The objects of one run.

    Args:
        bucket: where they are.
        folder: what their keys begin with.
        memory: what the store remembers.
    """

    def __init__(self, bucket: Bucket, folder: str, memory: Memory) -> None:
        self.bucket = bucket
        self.folder = folder
        self.memory = memory
        self._listing = False

    def key(self, generation: str, number: int) -> str:
        """Return the key of an object of the journal."""
        return journal_key(self.folder, generation, number)

    def path(self, generation: str, number: int) -> str:
        """Return the address of an object of the journal."""
        return self.bucket.path(self.key(generation, number))

    # ------------------------------------------------------------------ objects

    def item(self, generation: str, number: int) -> Item | None:
        """Read an object of the journal; None: there is none."""
        key = self.key(generation, number)
        data = self.memory.get(key)
        if data is None:
            found = self.bucket.get(key)
            if found is None:
                return None
            data = found.data
        return self.taken_in(generation, number, data)

    def taken_in(self, generation: str, number: int, data: bytes) -> Item:
        """Read what is in an object of the journal, and remember it if it never changes."""
        key = self.key(generation, number)
        path = self.bucket.path(key)
        try:
            header = read_header(data, number)
        except Malformed as error:
            return Item(number, path, data, None, str(error))
        if header.closed is None and not header.gone:
            self.memory.put(key, data)
        return Item(number, path, data, header, "")

    def items(self, generation: str, numbers: Iterable[int]) -> list[Item]:
        """Read objects of a generation that is open, several at once.

        Raises:
            Moved: it is not open any more.
            JournalDamaged: one of them is not there.
        """
        wanted = list(numbers)
        far = [n for n in wanted if self.memory.get(self.key(generation, n)) is None]
        read = self.bucket.map(lambda number: self.item(generation, number), far)
        found = dict(zip(far, read, strict=True))
        return [
            self.present(
                generation,
                number,
                found[number] if number in found else self.item(generation, number),
            )
            for number in wanted
        ]

    def present(self, generation: str, number: int, item: Item | None) -> Item:
        """Return an object that has to be there; see `items`."""
        if item is not None and item.header is not None:
            if item.header.closed is None and not item.header.gone:
                return item
        elif item is not None:
            return item
        self.refuse_moved(generation)
        why = "the object is not there" if item is None else "its content was removed"
        raise self.damaged(Bad(self.path(generation, number), 0, 0, complete=True, why=why))

    def refuse_moved(self, generation: str) -> None:
        """Raise `Moved` if a generation is not open any more."""
        if self.end().generation != generation:
            raise Moved

    def whole(self, generation: str, item: Item) -> list[Record]:
        """Return the records of an object.

        Raises:
            JournalDamaged: something in it is none.
        """
        found: list[Record] = []
        for record in item.records():
            if isinstance(record, Bad):
                raise self.damaged(record, generation, item.number)
            found.append(record)
        return found

    def damaged(self, bad: Bad, generation: str = "", number: int = 0) -> JournalDamaged:
        """Build the error for what is no record; names the last whole waypoint before it."""
        last = 0
        for before in range(number - 1, max(0, number - 65), -1):
            try:
                item = self.item(generation, before)
            except StoreFailed:
                break
            records = [] if item is None else item.records()
            if records and isinstance(records[-1], Record):
                last = records[-1].waypoint
                break
        return damage_error(bad.path, bad.offset, bad.why, last)

    # ------------------------------------------------------------------ the end

    def end(self, read: Callable[[str, int], Item | None] | None = None) -> End:
        """Find the end of the journal.

        Args:
            read: reads an object, in place of `item`.
        """
        generation, number, sure = self._hint()
        emptied = 0
        while True:
            last = self._last(generation, number)
            item = (read or self.item)(generation, last) if last else None
            header = item.header if item is not None else None
            if item is None and (last or not sure):
                self.memory.forget(self.folder)  # the hint leads to nothing
                generation, number, sure = FIRST, 0, True
            elif item is not None and header is not None and header.gone:
                emptied += 1
                if emptied > _MOST_TRIES:
                    why = "its content was removed, and nothing follows it"
                    raise self.damaged(Bad(item.path, 0, 0, complete=True, why=why))
                number = last  # it was closed while this looked: the closing object follows
            elif header is not None and header.closed is not None:
                if not header.closed.swept:
                    self.memory.owe(self.folder, Debt(generation, last, header.closed))
                generation, number, sure = header.closed.next, 0, True
            else:
                self.memory.ends(self.folder, generation, last)
                return End(generation, last, item)

    def end_of_all(self) -> End:
        """Find the end as `end` does, by a list of names where an object is missing before it."""
        try:
            return self.end()
        except JournalDamaged:
            self._listing = True
            try:
                return self.end()
            finally:
                self._listing = False

    def _hint(self) -> tuple[str, int, bool]:
        """Return where to begin: generation and number, and whether that is sure to be one."""
        known = self.memory.end(self.folder)
        if known is not None:
            return (*known, True)
        found = self.bucket.get(f"{self.folder}/{HINT}")
        try:
            said = orjson.loads(found.data) if found is not None else {}
        except orjson.JSONDecodeError:
            said = {}
        generation = said.get("generation") if isinstance(said, dict) else None
        number = said.get("append") if isinstance(said, dict) else None
        if type(number) is int and 0 <= number < 10**10 and GENERATION.fullmatch(str(generation)):
            return str(generation), number, False
        return FIRST, 0, True

    def _last(self, generation: str, known: int) -> int:
        """Return the number of the last object of a generation, that is at least `known`."""

        def there(number: int) -> bool:
            return self.bucket.exists(self.key(generation, number))

        if self._listing:
            _, names = self.bucket.inside(f"{self.folder}/{generation}")
            return max([known, *(int(n[:10]) for n in names if OBJECT.fullmatch(n))])
        low, high = known, 0
        steps = list(_STEPS)
        while not high:
            numbers = [known + step for step in (steps.pop(0) if steps else (low - known + 8192,))]
            found = dict(zip(numbers, self.bucket.map(there, numbers), strict=True))
            high = min((number for number in numbers if not found[number]), default=0)
            self._refuse_hole(generation, high, [n for n in numbers if found[n] and n > high > 0])
            low = max([low, *(n for n in numbers if found[n] and (not high or n < high))])
        while high - low > 1:
            stride = max(1, (high - low) // 9)
            numbers = list(range(low + stride, high, stride))[:8]
            found = dict(zip(numbers, self.bucket.map(there, numbers), strict=True))
            high = min((number for number in numbers if not found[number]), default=high)
            self._refuse_hole(generation, high, [n for n in numbers if found[n] and n > high])
            low = max([low, *(n for n in numbers if found[n] and n < high)])
        return low

    def _refuse_hole(self, generation: str, missing: int, behind: list[int]) -> None:
        """Refuse a journal in which an object is missing that others stand behind.

        Raises:
            JournalDamaged: somebody removed it by hand, or a rule of the bucket did.
        """
        # While this looked, a writer may have written it and what is behind it.
        if behind and not self.bucket.exists(self.key(generation, missing)):
            path = self.bucket.path(self.key(generation, missing))
            why = f"it is missing, and number {behind[0]} stands behind it"
            raise self.damaged(Bad(path, 0, 0, complete=True, why=why))

    def write_hint(self, generation: str, number: int) -> None:
        """Note where the journal ends, for who comes next; see `_hint`."""
        said = {"generation": generation, "append": number}
        self.bucket.write(f"{self.folder}/{HINT}", orjson.dumps(said) + b"\n")

    # ------------------------------------------------------------------ tails

    def opening(self, generation: str, segment: int) -> Record:
        """Return the `open` record that a segment begins with."""
        (item,) = self.items(generation, [segment])
        found = [record for record in self.whole(generation, item) if record.kind == "open"]
        if not found:
            bad = Bad(item.path, 0, 0, complete=True, why="the segment does not begin with `open`")
            raise self.damaged(bad, generation, segment)
        return found[-1]

    def tail_of(self, end: End) -> tuple[Tail, list[Record], Record]:
        """Return the tail of a journal, the records of its last append, and its last `open`."""
        if end.item is None:
            raise ValueError("there is no such run")
        records = self.whole(end.generation, end.item)
        if end.item.header is None or not records:
            bad = Bad(end.item.path, 0, 0, complete=True, why="the append holds no record")
            raise self.damaged(bad, end.generation, end.number)
        last, segment = records[-1], end.item.header.segment
        opening = self.opening(end.generation, segment)
        epoch = last.head.get("epoch", opening.head.get("epoch", 1))
        token = Token(end.generation, end.number, segment)
        return Tail(last.seq, last.sum, epoch, last.kind == "roll", token), records, opening


def tombstone(bucket: Bucket, key: str) -> None:
    """Remove the content of an object whose number stays taken."""
    bucket.write(key, GONE)
