"""Reading one segment file: lines, torn tails, damage. Nothing here writes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from caravanserai_core.records import (
    SUFFIX_MAX,
    Malformed,
    Record,
    lengths,
    parse,
    parse_head,
)
from caravanserai_core.stores.base import Bad

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Read = Callable[[int, int], bytes]
    """read(offset, size) -> bytes"""

_CHUNK = 1 << 20
_FIRST = 1 << 13  # who asks for the first record alone does not read much more
_NEXT = 1 << 17  # memory that is used again and again, and stays in the processor's cache
_BACK = 1 << 16
_WINDOW = 1 << 14
_CLAIM = 192  # in a waypoint's line its number comes before this
BOM = b"\xef\xbb\xbf"
_HEAD = rb'\{"len":\[\d+,\d+\],"seq":\d+,(?:"app":\[\d+,\d+\],)?"kind":"waypoint","waypoint":'
_SUM = re.compile(rb',"sum":"([0-9a-f]{32})"(?:,"loc":\d+)?\}\r?\n\Z')


class Place(NamedTuple):
    """Where a record begins: ordinal of its segment, byte offset in it."""

    segment: int
    offset: int


class End(NamedTuple):
    """The last whole append of a segment.

    Attributes:
        records: its records with bodies; empty if the segment holds no whole append.
        size: where it ends; what follows is a torn tail.
        newline: whether its last line ends with a line end (a hand edit may have lost it).
    """

    records: list[Record]
    size: int
    newline: bool


class Damaged(Exception):
    """What stands at the end of a segment is no torn tail but damage."""

    def __init__(self, bad: Bad) -> None:
        super().__init__(bad.why)
        self.bad = bad


def read_line(text: bytes, place: Place, end: int | None = None, start: int = 0) -> Record:
    """Parse a line and note its place; a carriage return before the line end is dropped.

    Args:
        text: bytes that hold the line.
        place: where that is.
        end: where it ends in them, without its line end; None: with them.
        start: where it begins in them.

    Raises:
        Malformed: the line is not a whole record.
    """
    end = len(text) if end is None else end
    edited = False
    if text[end - 1 : end] == b"\r":
        end -= 1
        edited = True
    if place.offset == 0 and text.startswith(BOM, start):
        start += len(BOM)
        edited = True
    record = parse(text, end, start)
    record.place = place
    record.edited = edited
    return record


class Backwards:
    """Looks for waypoints in a segment from later to earlier ones, in memory of bounded size.

    Args:
        read: reads the segment.
        start: where the first line begins; nothing before it is looked at.
    """

    def __init__(self, read: Read, start: int) -> None:
        self._read = read
        self._start = max(0, start - 1)  # with the line break before: lines are found by it
        self._offset = 0
        self._text = b""

    def claim(self, waypoint: int, end: int) -> tuple[int, bytes, int, int] | None:
        """Return the last line that seems to be a waypoint; None: there is none.

        A line break never stands inside a record (JSON escapes it), so lines can be searched for
        as bytes. The caller decides: a damaged line may claim another's number, and a state may
        hold what looks like a head.

        Args:
            waypoint: its number.
            end: where the line behind the last one that counts begins.

        Returns:
            The line's offset in the segment, bytes that hold it, and where in them.
        """
        claim = b'"kind":"waypoint","waypoint":%d,' % waypoint
        size = _BACK
        while True:
            text, before = self._text, end - self._offset
            if 0 < before <= len(text):
                begin = text.rfind(b"\n", 0, before - 1) + 1
                if begin and text.find(claim, begin, min(begin + _CLAIM, before)) > 0:
                    return end - before + begin, text, begin, before - 1
                at = text.rfind(claim, 0, before)
                begin = text.rfind(b"\n", 0, at) + 1 if at > 0 else 0
                if begin:  # a copy: what stands between is not kept for it
                    line = text[begin : text.find(b"\n", at, before)]
                    return end - before + begin, line, 0, len(line)
                if self._offset == self._start:
                    return None
                # Only a line that is cut off here can be left.
                cut = text.find(b"\n", 0, before - 1) + 1
                end = self._offset + cut if cut else end
                size = _BACK if cut else max(_BACK, 4 * before)
            self._offset = max(self._start, end - size)
            self._text = self._read(self._offset, max(0, end - self._offset))
            if not 0 < end - self._offset <= len(self._text):
                return None  # nothing is left, or somebody has cut the file off


def scan(
    read: Read, segment: int, path: str, start: int, end: int, *, bodies: bool
) -> Iterator[Record | Bad]:
    """Yield the records of a segment between two offsets, and what is not one.

    Memory is bounded by the largest record, or, without `bodies`, by the largest head.
    """
    position, chunk = start, _FIRST
    while position < end:
        buffer = read(position, min(chunk, end - position))
        at = 0
        while (newline := buffer.find(b"\n", at)) >= 0:
            place = Place(segment, position + at)
            # With its body a record is kept; what was read with it is not.
            text, start, stop = (buffer[at:newline], 0, None) if bodies else (buffer, at, newline)
            try:
                yield read_line(text, place, stop, start)
            except Malformed as error:
                yield from _parts(buffer[at:newline], place, path, error)
            at = newline + 1
        if at:
            position, chunk = position + at, _NEXT
            continue
        jump = None if bodies else _skip_body(read, buffer, Place(segment, position))
        if jump is not None:
            record, position = jump
            yield record
        elif position + len(buffer) >= end or len(buffer) < chunk:
            # The last line has no line end: a torn tail, or an editor that dropped it.
            yield _parsed(buffer, Place(segment, position), path, complete=False)
            return
        else:
            chunk *= 4


def _parsed(line: bytes, place: Place, path: str, *, complete: bool) -> Record | Bad:
    try:
        return read_line(line, place)
    except Malformed as error:
        return _bad(line, place, path, error, complete=complete)


def _parts(line: bytes, place: Place, path: str, error: Malformed) -> Iterator[Record | Bad]:
    """Yield what a bad line is made of: two whole records, if only the break between them is bad.

    What builds on the second one still loads, so a repair has to find it.
    """
    sizes = lengths(line)
    end = 0
    if sizes is not None and b"\0" not in line:
        at, head_size, body_size = sizes
        body_end = at + head_size + (body_size and body_size + 1)
        end = line.find(b"}", body_end, body_end + SUFFIX_MAX) + 1
    first = _parsed(line[:end], place, path, complete=True) if end else None
    if not isinstance(first, Record):
        yield _bad(line, place, path, error, complete=True)
        return
    yield first
    yield Bad(path, place.offset + end, 1, complete=True, why="a line end is damaged")
    second = Place(place.segment, place.offset + end + 1)
    try:
        yield read_line(line[end + 1 :], second)
    except Malformed as fault:
        yield from _parts(line[end + 1 :], second, path, fault)


def _bad(line: bytes, place: Place, path: str, error: Malformed, *, complete: bool) -> Bad:
    whole = complete and b"\0" not in line
    return Bad(path, place.offset, len(line) + complete, whole, str(error))


def _skip_body(read: Read, buffer: bytes, place: Place) -> tuple[Record, int] | None:
    sizes = lengths(buffer)
    if sizes is None or sizes[0] + sizes[1] > len(buffer):
        return None
    at, head_size, body_size = sizes
    suffix_at = place.offset + at + head_size + 1 + body_size
    suffix, found, _ = read(suffix_at, SUFFIX_MAX + 2).partition(b"\n")
    if not found:
        return None
    try:
        record = parse_head(buffer[at : at + head_size], suffix.removesuffix(b"\r"), body_size)
    except Malformed:
        return None
    record.place = place
    return record, suffix_at + len(suffix) + 1


def find_end(read: Read, segment: int, path: str, size: int) -> End:
    """Find the last whole append of a segment, looking back from its end.

    Raises:
        Damaged: the end holds a complete line that is no record. A crash tears lines and leaves
            holes of NUL bytes; it does not write complete wrong ones.
    """
    window = min(size, _WINDOW)
    while True:
        base = size - window
        end = _end_in(read(base, window), segment, path, base)
        if end is not None:
            return end
        window = min(size, window * 8)


def _end_in(buffer: bytes, segment: int, path: str, base: int) -> End | None:
    """Look for the last whole append in the last bytes of a segment; None: look further back."""
    first = 0 if base == 0 else buffer.find(b"\n") + 1
    if base and not first:
        return None
    lines: list[tuple[int, bytes, bool]] = []
    position = first
    while position < len(buffer):
        newline = buffer.find(b"\n", position)
        stop = len(buffer) if newline < 0 else newline
        lines.append((position, buffer[position:stop], newline >= 0))
        position = stop + 1
    parsed: dict[int, Record | Bad] = {}

    def line(index: int) -> Record | Bad:
        if index not in parsed:
            offset, text, complete = lines[index]
            parsed[index] = _parsed(text, Place(segment, base + offset), path, complete=complete)
        return parsed[index]

    index = len(lines) - 1
    while index >= 0:
        last = line(index)
        if isinstance(last, Bad):
            if last.complete:
                raise Damaged(last)
            index -= 1
            continue
        # A hole may have swallowed line ends, so members are found by what they say, not counted.
        begin, count = last.app
        group: list[Record] = []
        at = index
        while at >= 0:
            member = line(at)
            if isinstance(member, Record):
                if member.app != last.app:
                    break
                group.insert(0, member)
                if member.seq == begin:
                    break
            elif member.complete:
                raise Damaged(member)
            at -= 1
        if at < 0 and base:
            return None
        seqs = [member.seq for member in group]
        if len(seqs) == count and seqs == list(range(begin, begin + count)):
            if len(group) == index - at + 1:
                _check_order(buffer[: lines[at][0]], group[0], path)
                offset, text, newline = lines[index]
                return End(group, base + offset + len(text) + newline, newline)
        elif seqs != sorted(set(seqs)):
            raise Damaged(_out_of_order(path, group[0].place.offset))
        # The rest of this append is missing or torn: none of it counts.
        begun = at >= 0 and group[0].seq == begin
        index = at - begun
        before = line(index) if begun and index >= 0 else None
        if isinstance(before, Bad):
            raise Damaged(before)  # another append followed it, so it was acknowledged
    return None if base else End([], 0, newline=True)


def _check_order(before: bytes, first: Record, path: str) -> None:
    """Check that an append is chained to the line before it: nobody moved or removed lines.

    Args:
        before: bytes that end with the line before it, as far as they were read.
        first: the append's first record.
        path: the segment.
    """
    match = _SUM.search(before[-SUFFIX_MAX - 4 :])
    if match is not None and match[1].decode() != first.head["prev"]:
        raise Damaged(_out_of_order(path, first.place.offset))


def _out_of_order(path: str, offset: int) -> Bad:
    return Bad(path, offset, 0, complete=True, why="records are out of order")


def find_waypoints(read: Read, size: int, waypoint: int) -> Iterator[int]:
    """Yield the offsets of the lines that claim to be a waypoint, the last one first."""
    line = _HEAD + b"%d," % waypoint
    pattern = re.compile(b"\n" + line)
    overlap = 256
    end = size
    while end > 0:
        start = max(0, end - _CHUNK)
        chunk = read(start, min(size, end + overlap) - start)
        for at in reversed([match.start() for match in pattern.finditer(chunk)]):
            if start + at < end:
                yield start + at + 1
        end = start
    if re.match(line, read(0, overlap)):
        yield 0
