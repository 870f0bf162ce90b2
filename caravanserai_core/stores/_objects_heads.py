"""Heads of records without their bodies: by ranged reads, where an object is large."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from caravanserai_core.records import SUFFIX_MAX, Malformed, Record, lengths, parse_head
from caravanserai_core.stores._objects_layout import LINES, Header, parsed, read_header
from caravanserai_core.stores.base import Bad

if TYPE_CHECKING:
    from caravanserai_core.stores._objects_bucket import Bucket

_FIRST: Final = 1 << 15
_LINE: Final = 1 << 12
_SMALL: Final = 1 << 11  # up to here a body is part of its record's sum


class Heads:
    """Reads the heads of one object; what is small comes with its body.

    Args:
        bucket: where it is.
        key: its key.
        number: its number.
    """

    def __init__(self, bucket: Bucket, key: str, number: int) -> None:
        self._bucket = bucket
        self._key = key
        self._number = number
        self._path = bucket.path(key)

    def read(self) -> tuple[Header | None, list[Record | Bad]] | None:
        """Return the first line of the object and its records; None: it is not there."""
        found = self._bucket.get(self._key, _FIRST)
        if found is None:
            return None
        start, size = found.data, found.size
        while b"\n" not in start and len(start) < size:
            longer = self._bucket.get(self._key, 8 * len(start))
            if longer is None:
                return None
            start = longer.data
        try:
            header = read_header(start, self._number)
        except Malformed as error:
            return None, [Bad(self._path, 0, size, complete=True, why=str(error))]
        if header.closed is not None or header.gone:
            return header, []
        if size != header.size:
            why = f"it has {size} bytes, and its first line says {header.size}"
            return header, [Bad(self._path, 0, size, complete=True, why=why)]
        records = self._lines(start, header)
        return None if records is None else (header, records)

    def _lines(self, start: bytes, header: Header) -> list[Record | Bad] | None:
        found: dict[int, Record | Bad] = {}
        far: list[int] = []
        lines = list(zip(header.offsets(), header.sizes, strict=True))
        for index, (at, size) in enumerate(lines):
            if at + size <= len(start):
                found[index] = self._parsed(start[at : at + size], index, at)
            else:
                far.append(index)
        # Where a line begins in what was read already, that is enough for nearly every head.
        begins = {i: start[lines[i][0] :] for i in far if lines[i][0] + _LINE <= len(start)}
        unread = [i for i in far if i not in begins]
        parts = self._parts([(lines[i][0], min(_LINE, lines[i][1])) for i in unread])
        if parts is None:
            return None
        begins.update(zip(unread, parts, strict=True))
        wanted = {i: _wanted(begins[i], *lines[i]) for i in far}
        rest = self._parts([part for i in far for part in wanted[i]])
        if rest is None:
            return None
        for i in far:
            mine, rest = rest[: len(wanted[i])], rest[len(wanted[i]) :]
            found[i] = self._head(begins[i], mine, i, *lines[i])
        return [found[index] for index in range(len(lines))]

    def _parts(self, parts: list[tuple[int, int]]) -> list[bytes] | None:
        """Read parts of the object, each an offset and a length."""
        if not parts:
            return []
        return self._bucket.ranges(self._key, [(at, at + size) for at, size in parts])

    def _parsed(self, line: bytes, index: int, at: int) -> Record | Bad:
        return parsed(line, self._number * LINES + index, self._path, at)

    def _head(
        self, begin: bytes, parts: list[bytes], index: int, at: int, size: int
    ) -> Record | Bad:
        said = lengths(begin)
        if said is None or said[2] <= _SMALL or len(parts) != 1 + (len(begin) < said[0] + said[1]):
            return self._parsed(parts[0] if parts else begin, index, at)
        try:
            skip, head_size, body_size = said
            head = (parts[0] if len(parts) > 1 else begin)[skip : skip + head_size]
            record = parse_head(head, parts[-1].rstrip(b"\n"), body_size)
        except Malformed as error:
            return Bad(self._path, at, size, complete=True, why=str(error))
        record.place = self._number * LINES + index
        return record


def _wanted(begin: bytes, at: int, size: int) -> list[tuple[int, int]]:
    """Say what else of a line is to be read: nothing, all of it, or its head and its end."""
    if len(begin) == size:
        return []
    said = lengths(begin)
    if said is None or said[2] <= _SMALL:
        return [(at, size)]
    skip, head_size, body_size = said
    end = skip + head_size
    tail = end + 1 + body_size
    if not 0 < size - tail <= SUFFIX_MAX + 1:
        return [(at, size)]
    longer = [(at, end)] if len(begin) < end else []
    return [*longer, (at + tail, size - tail)]
