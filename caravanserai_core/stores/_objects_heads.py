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
        begins = self._parts([(lines[i][0], min(_LINE, lines[i][1])) for i in far])
        if begins is None:
            return None
        wanted: list[tuple[int, int]] = []
        for index, begin in zip(far, begins, strict=True):
            at, size = lines[index]
            wanted += _wanted(begin, at, size)
        rest = self._parts(wanted)
        if rest is None:
            return None
        for index, begin in zip(far, begins, strict=True):
            at, size = lines[index]
            count = len(_wanted(begin, at, size))
            parts, rest = rest[:count], rest[count:]
            found[index] = self._head(begin, parts, index, at, size)
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
        if len(parts) < 2:
            return self._parsed(parts[0] if parts else begin, index, at)
        said = lengths(begin)
        try:
            if said is None:
                raise Malformed("does not begin like a record")
            skip, head_size, body_size = said
            text = (begin if len(begin) >= skip + head_size else parts[0])[skip : skip + head_size]
            record = parse_head(text, parts[1].rstrip(b"\n"), body_size)
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
    tail = skip + head_size + 1 + body_size
    if not 0 < size - tail <= SUFFIX_MAX + 1:
        return [(at, size)]
    return [
        (at, min(skip + head_size, size) if skip + head_size > len(begin) else 1),
        (at + tail, size - tail),
    ]
