"""How a run lies in an object store: names of objects, and what is in each.

    <folder>/<generation>/0000000017.jsonl   one append, numbers dense from 1
    <folder>/waypoint-3.md, latest.md        notes
    <folder>/lease.json                      who works on it
    <folder>/head.json                       a hint where its end is, maybe stale

The first line of an append says what is in it, the others are the records as in a journal file:

    {"caravanserai":1,"append":17,"segment":9,"nonce":"…","sizes":[210,1035]}

A generation of the journal ends with a closing object, which names the next one: that is how a
journal is replaced or deleted. What stood before it is overwritten with a few bytes, so that the
content is gone and the numbers stay taken: a writer that slept through it meets them.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from caravanserai_core.records import Malformed, Record, lengths, parse
from caravanserai_core.stores.base import SELF, Bad, Within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from caravanserai_core.stores.base import Line

LINES: Final = 65_536
"""Most records of one object; a place is the number of the object times this, and its index."""

FIRST: Final = "1"
"""Name of the first generation."""

GENERATION: Final = re.compile(r"[1-9]\d{0,9}(?:-[0-9a-f]{8})?")
"""Names of generations; a folder beside them may belong to a store whose prefix goes on there."""

OBJECT: Final = re.compile(r"\d{10}\.jsonl")
"""Names of the objects of a generation, right in its folder."""

LEASE: Final = "lease.json"
HINT: Final = "head.json"

_OBJECT_LINES = 4096
_OBJECT_SIZE = 1 << 20

GONE: Final = b'{"caravanserai":1,"gone":true}\n'
"""What stands in the place of an append whose generation was closed.

Not nothing at all: the servers answer a ranged read of an empty object with an error.
"""


class Closed(NamedTuple):
    """What a closing object says.

    Attributes:
        next: name of the next generation.
        deleted: the run was deleted; the next generation is another run.
        swept: nothing is left of what stood before it.
    """

    next: str
    deleted: bool
    swept: bool


class Header(NamedTuple):
    """The first line of an object.

    Attributes:
        segment: number of the append that the segment begins with.
        nonce: tells one attempt to write from all others.
        sizes: length of each line that follows, with its line end.
        start: where the first of them begins.
        closed: what it says, if it is a closing object.
        gone: it stands in the place of what was removed.
    """

    segment: int
    nonce: str
    sizes: list[int]
    start: int
    closed: Closed | None = None
    gone: bool = False

    @property
    def size(self) -> int:
        """Length of the whole object."""
        return self.start + sum(self.sizes)

    def offsets(self) -> list[int]:
        """Return where each line begins."""
        found, at = [], self.start
        for size in self.sizes:
            found.append(at)
            at += size
        return found


def journal_key(folder: str, generation: str, number: int) -> str:
    """Return the name of an object of a journal."""
    return f"{folder}/{generation}/{number:010d}.jsonl"


def is_own(folder: str, key: str) -> bool:
    """Say whether an object below a run's folder is the run's, and not of a store inside of it."""
    names = key.removeprefix(f"{folder}/").split("/")
    return len(names) == 1 or (
        len(names) == 2
        and GENERATION.fullmatch(names[0]) is not None
        and OBJECT.fullmatch(names[1]) is not None
    )


def next_generation(generation: str) -> str:
    """Name a generation that follows another; what was never published cannot meet it."""
    ordinal = generation.partition("-")[0]
    return f"{int(ordinal) + 1 if ordinal.isdigit() else 1}-{new_nonce(4)}"


def new_nonce(size: int = 12) -> str:
    """Return a random name of `size` bytes, as hex digits."""
    return os.urandom(size).hex()


def read_header(data: bytes, number: int) -> Header:
    """Read the first line of an object of a journal.

    Args:
        data: the object, or as much of its beginning as holds the line.
        number: its number.

    Raises:
        Malformed: it is none.
    """
    if data == GONE:
        return Header(0, "", [], len(data), gone=True)
    end = data.find(b"\n") + 1
    try:
        said = orjson.loads(data[:end])
    except orjson.JSONDecodeError:
        raise Malformed("it does not begin with a line that says what is in it") from None
    if not isinstance(said, dict) or said.get("caravanserai") != 1 or said.get("append") != number:
        raise Malformed(f"its first line is not that of append {number}")
    segment, nonce, sizes = said.get("segment", 0), said.get("nonce"), said.get("sizes", [])
    closed = said.get("closed")
    if (
        type(segment) is not int
        or type(nonce) is not str
        or type(sizes) is not list
        or not all(type(size) is int and size > 0 for size in sizes)
        or (closed is None and not (sizes and 0 < segment <= number))
    ):
        raise Malformed("its first line lacks a field or has one of the wrong type")
    return Header(segment, nonce, sizes, end, None if closed is None else _closed(closed, said))


def _closed(closed: Any, said: dict[str, Any]) -> Closed:
    following = closed.get("next") if isinstance(closed, dict) else None
    if type(following) is not str or not following or "/" in following:
        raise Malformed("it closes the journal and does not say what follows")
    return Closed(following, closed.get("deleted") is True, said.get("swept") is True)


def closing(number: int, nonce: str, closed: Closed) -> bytes:
    """Return the content of a closing object."""
    said: dict[str, Any] = {"caravanserai": 1, "append": number}
    said["closed"] = {"next": closed.next, "deleted": closed.deleted}
    said["nonce"] = nonce
    if closed.swept:
        said["swept"] = True
    return orjson.dumps(said) + b"\n"


class Packed(NamedTuple):
    """Lines on their way into objects.

    Attributes:
        objects: the content of each, in order.
        places: the place of each line.
        segment: number of the append that begins the last segment.
    """

    objects: list[bytes]
    places: list[int]
    segment: int


def pack(
    lines: Sequence[Line], sizes: Sequence[int], first: int, segment: int, nonce: str
) -> Packed:
    """Lay lines out as objects.

    Args:
        lines: the lines.
        sizes: how many of them each object has.
        first: number of the first object.
        segment: number of the append that begins the segment before them; 0: they begin one.
        nonce: what tells this attempt from others.
    """
    places = [
        (first + index) * LINES + line for index, size in enumerate(sizes) for line in range(size)
    ]
    objects: list[bytes] = []
    at = 0
    for index, size in enumerate(sizes):
        part = range(at, at + size)
        if not segment or any(head_of(lines[line]).get("kind") == "open" for line in part):
            segment = first + index
        texts = [lines[line].text + _hint(lines[line].loc, places, line) for line in part]
        said = {"caravanserai": 1, "append": first + index, "segment": segment, "nonce": nonce}
        said["sizes"] = [len(text) for text in texts]
        objects.append(b"".join([orjson.dumps(said), b"\n", *texts]))
        at += size
    return Packed(objects, places, segment)


def _hint(loc: Any, places: list[int], line: int) -> bytes:
    if isinstance(loc, Within):
        loc = places[loc.line]
    elif loc is SELF:
        loc = places[line]
    return b"}\n" if loc is None else b',"loc":%d}\n' % loc


def head_of(line: Line) -> dict[str, Any]:
    """Return the head of a line that was sealed."""
    found = lengths(line.text)
    if found is None:
        raise Malformed("a sealed line does not begin like a record")
    at, size, _ = found
    head: dict[str, Any] = orjson.loads(b"{%b}" % line.text[at : at + size])
    return head


def parted(lines: Sequence[Line]) -> list[int]:
    """Say how many of these lines go into each object: an append is never split."""
    parts: list[int] = []
    count = size = 0
    at = 0
    while at < len(lines):
        first, many = head_of(lines[at]).get("app") or (0, 1)
        many = min(many, len(lines) - at) if first else 1
        length = sum(len(line.text) for line in lines[at : at + many])
        if count and (size + length > _OBJECT_SIZE or count + many > _OBJECT_LINES):
            parts.append(count)
            count = size = 0
        count, size, at = count + many, size + length, at + many
    return [*parts, count]


def records_in(data: bytes, header: Header, number: int, path: str) -> list[Record | Bad]:
    """Read all records of an object.

    Args:
        data: the object.
        header: its first line.
        number: its number.
        path: its address, for what is no record.
    """
    found: list[Record | Bad] = []
    for index, (at, size) in enumerate(zip(header.offsets(), header.sizes, strict=True)):
        found.append(parsed(data[at : at + size], number * LINES + index, path, at))
    if len(data) > header.size:
        extra = len(data) - header.size
        why = "there is more in the object than its first line says"
        found.append(Bad(path, header.size, extra, complete=True, why=why))
    return found


def parsed(line: bytes, place: int, path: str, at: int) -> Record | Bad:
    """Read one line, with its line end."""
    try:
        if not line.endswith(b"\n"):
            raise Malformed("the line does not end where it should")
        record = parse(line[:-1])
    except Malformed as error:
        return Bad(path, at, len(line), complete=True, why=str(error))
    record.place = place
    return record
