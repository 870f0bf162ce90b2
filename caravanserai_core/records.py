"""One record: one line of a journal. docs/format.md is the specification of what is here.

A line is made so that its head can be cut off by length, without looking into the body:

    {"len":[H,B],<head, H bytes>,<body, B bytes>,"sum":"…","loc":N}

The head is small (numbers, time, note), the body is large (state, patch or data) and may be
absent. `sum` covers the head, and the body either directly or, where it is large, through
`body_sha256` in the head; so a list of notes is read and its chain checked without touching
a state. `loc` is a hint for the store and is outside the sum.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import orjson

from caravanserai_core.codec import parse as parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT: Final = 1
"""The major version of the format. A reader refuses a higher one."""

SUM_DIGITS: Final = 32
"""Hex digits of a sum: 128 bits of SHA-256, ample against accident."""

# A body up to this size is hashed together with the head; 85 bytes of digest saved per record.
_INLINE_BODY: Final = 1024

_PREFIX = re.compile(rb'\{"len":\[(\d{1,10}),(\d{1,13})\],')
_SUFFIX = re.compile(rb',"sum":"([0-9a-f]{32})"(?:,"loc":(\d{1,16}))?\}')
SUFFIX_MAX: Final = 8 + SUM_DIGITS + 1 + 7 + 16 + 1


class Malformed(ValueError):
    """A line that is not a whole record."""


class Record:
    """A record as it stands in a journal.

    Attributes:
        head: the fields of the head, as JSON gives them.
        body: the bytes of the body (`"state":…`), or None where it was not read.
        sum: the record's sum, hex.
        loc: byte offset hint of the store, or None.
        place: where the store holds the record; only the store knows what it means.
        edited: the line has a byte order mark or a carriage return, which no writer wrote.
    """

    __slots__ = ("body", "edited", "head", "loc", "place", "sum")

    def __init__(
        self, head: dict[str, Any], body: bytes | None, sum_: str, loc: int | None
    ) -> None:
        self.head = head
        self.body = body
        self.sum = sum_
        self.loc = loc
        self.place: Any = None
        self.edited = False

    @property
    def seq(self) -> int:
        """Number of the record in its journal, from 1."""
        return self.head["seq"]  # type: ignore[no-any-return]

    @property
    def kind(self) -> str:
        """What the record is: open, waypoint, entry, …"""
        return self.head["kind"]  # type: ignore[no-any-return]

    @property
    def waypoint(self) -> int:
        """Number of this waypoint, or of the newest one before this record (0: none)."""
        return self.head["waypoint"]  # type: ignore[no-any-return]

    @property
    def lane(self) -> str:
        """The lane of the record; the main lane is the empty string."""
        return self.head.get("lane", "")  # type: ignore[no-any-return]

    @property
    def by(self) -> str:
        """Nonce of the writer."""
        return self.head.get("by", "")  # type: ignore[no-any-return]

    @property
    def app(self) -> tuple[int, int]:
        """First seq and number of records of the append that wrote this record."""
        app = self.head.get("app")
        return (app[0], app[1]) if app else (self.seq, 1)

    @property
    def full(self) -> bool:
        """Whether the record is a waypoint that holds its whole state."""
        return self.kind == "waypoint" and "base" not in self.head

    def member(self, name: str) -> bytes:
        """Return the JSON bytes of the body's member `name`.

        Raises:
            Malformed: the body holds something else.
        """
        label = b'"' + name.encode() + b'":'
        if self.body is None or not self.body.startswith(label):
            raise Malformed(f"record {self.seq} has no {name}")
        return self.body[len(label) :]

    def data(self) -> Any:
        """Return the body's `data` as a JSON tree, or None where there is no body."""
        return parse_json(self.member("data")) if self.body else None


class Draft:
    """A record before its place in the journal is known.

    What is expensive (encoding, the body's digest) is done here, before any lock is taken.
    """

    __slots__ = ("_rest", "body", "kind", "lane", "time")

    def __init__(
        self,
        kind: str,
        fields: Mapping[str, Any],
        *,
        by: str,
        lane: str = "",
        body: bytes = b"",
        digest: str | None = None,
        time: str | None = None,
    ) -> None:
        self.kind = kind
        self.lane = lane
        self.body = body
        rest: dict[str, Any] = {"lane": lane} if lane else {}
        rest.update(fields)
        self.time = rest["time"] = time or now()
        rest["by"] = by
        if digest is None:
            digest = body_digest(body)
        if digest:
            rest["body_sha256"] = digest
        self._rest = orjson.dumps(rest)[1:-1]

    def seal(
        self, *, seq: int, first: int, count: int, waypoint: int, prev: str
    ) -> tuple[bytes, str]:
        """Give the record its place in the chain.

        Args:
            seq: its number.
            first: number of the first record of the same append.
            count: how many records that append has.
            waypoint: its own waypoint number, or the newest one so far.
            prev: sum of the record before it, or "" for the first.

        Returns:
            The line up to and including its sum, without `loc` and the closing brace; the sum.
        """
        app = b"" if count == 1 else b'"app":[%d,%d],' % (first, count)
        head = b'"seq":%d,%b"kind":"%b","waypoint":%d,%b,"prev":"%b"' % (
            seq,
            app,
            self.kind.encode(),
            waypoint,
            self._rest,
            prev.encode(),
        )
        body = self.body
        sum_ = _sum(head, body if len(body) <= _INLINE_BODY else b"")
        comma = b"," if body else b""
        line = b'{"len":[%d,%d],%b%b%b,"sum":"%b"' % (
            len(head),
            len(body),
            head,
            comma,
            body,
            sum_.encode(),
        )
        return line, sum_


def body_digest(body: bytes) -> str:
    """Return what `body_sha256` holds for a body, or "" where the head's sum covers it."""
    return hashlib.sha256(body).hexdigest() if len(body) > _INLINE_BODY else ""


def now() -> str:
    """Return the current time as records hold it: ISO 8601, UTC, microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _sum(head: bytes, body: bytes) -> str:
    digest = hashlib.sha256(head)
    if body:
        digest.update(b"," + body)
    return digest.hexdigest()[:SUM_DIGITS]


def lengths(start: bytes) -> tuple[int, int, int] | None:
    """Return (offset of the head, its length, length of the body) of a line's beginning.

    None where `start` does not begin like a record.
    """
    match = _PREFIX.match(start)
    if match is None:
        return None
    return match.end(), int(match[1]), int(match[2])


def parse(line: bytes) -> Record:
    """Read one line, without its line end, and check it in full.

    Raises:
        Malformed: the line is not a whole record or its sum is wrong.
    """
    sizes = lengths(line)
    if sizes is None:
        raise Malformed("does not begin like a record")
    at, head_size, body_size = sizes
    end = at + head_size
    body = b""
    if body_size:
        if line[end : end + 1] != b",":
            raise Malformed("the head's length is wrong")
        body = line[end + 1 : end + 1 + body_size]
        end += 1 + body_size
    return assemble(line[at : at + head_size], body, line[end:], body_size)


def assemble(head_bytes: bytes, body: bytes | None, suffix: bytes, body_size: int) -> Record:
    """Build a record from its parts and check them.

    Args:
        head_bytes: exactly the head.
        body: exactly the body, or None where it was skipped (its digest is then not checked;
            a small body must be given, the sum covers it directly).
        suffix: what follows the body up to the end of the line.
        body_size: the body's length as the line states it.

    Raises:
        Malformed: something does not fit.
    """
    match = _SUFFIX.fullmatch(suffix)
    if match is None:
        raise Malformed("does not end like a record")
    stated = match[1].decode()
    inline = 0 < body_size <= _INLINE_BODY
    if inline and body is None:
        raise Malformed("a small body is part of the sum and was not given")
    if _sum(head_bytes, body if inline and body is not None else b"") != stated:
        raise Malformed("the sum is wrong")
    try:
        head = orjson.loads(b"{%b}" % head_bytes)
    except orjson.JSONDecodeError as error:
        raise Malformed(f"the head is not JSON: {error}") from None
    _check_head(head)
    if body is not None:
        if len(body) != body_size:
            raise Malformed("the body's length is wrong")
        if not inline and body_size and hashlib.sha256(body).hexdigest() != head.get("body_sha256"):
            raise Malformed("the body's digest is wrong")
    return Record(head, body, stated, int(match[2]) if match[2] else None)


def _check_head(head: dict[str, Any]) -> None:
    app = head.get("app", [1, 1])
    if (
        type(head.get("seq")) is not int
        or type(head.get("kind")) is not str
        or type(head.get("waypoint")) is not int
        or type(head.get("prev")) is not str
        or type(head.get("lane", "")) is not str
        or type(head.get("time")) is not str
        or type(app) is not list
        or len(app) != 2
        or type(app[0]) is not int
        or type(app[1]) is not int
    ):
        raise Malformed("the head lacks a field or has one of the wrong type")
