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
import time
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import orjson

from caravanserai_core import secrets
from caravanserai_core.codec import parse as parse_json
from caravanserai_core.errors import SecretFound

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT: Final = 1
"""The major version of the format. A reader refuses a higher one."""

SUM_DIGITS: Final = 32
"""Hex digits of a sum: 128 bits of SHA-256, ample against accident."""

# A body up to this size is hashed together with the head; 85 bytes of digest saved per record.
_INLINE_BODY: Final = 2048

_MOST_RECORDS: Final = 65_536
"""Records of one append; a line that claims more is none of ours."""

_PREFIX = re.compile(rb'\{"len":\[(\d{1,10}),(\d{1,13})\],')
_SUFFIX = re.compile(rb',"sum":"([0-9a-f]{32})"(?:,"loc":(\d{1,16}))?\}')
SUFFIX_MAX: Final = 8 + SUM_DIGITS + 1 + 7 + 16 + 1


class Malformed(ValueError):
    """A line that is not a whole record."""


class Record:
    """A record as it stands in a journal.

    Attributes:
        head: the fields of the head, as JSON gives them.
        sum: the record's sum, hex.
        loc: byte offset hint of the store, or None.
        place: where the store holds the record; only the store knows what it means.
        edited: the line has a byte order mark or a carriage return, which no writer wrote.
    """

    __slots__ = ("_body", "_span", "edited", "head", "loc", "place", "sum")

    def __init__(
        self,
        head: dict[str, Any],
        body: bytes | None,
        sum_: str,
        loc: int | None,
        span: tuple[int, int] | None = None,
    ) -> None:
        """Make a record.

        Args:
            head: the fields of the head.
            body: the body, or, with `span`, a text that holds it.
            sum_: the record's sum.
            loc: hint of the store.
            span: where in `body` the body is; a large one is copied once, when it is decoded.
        """
        self.head = head
        self._body = body
        self._span = span
        self.sum = sum_
        self.loc = loc
        self.place: Any = None
        self.edited = False

    @property
    def body(self) -> bytes | None:
        """The bytes of the body, or None where it was not read."""
        if self._span is None or self._body is None:
            return self._body
        return self._body[self._span[0] : self._span[1]]

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
        text, start, end = self._member(name)
        return text[start:end]

    def view(self, name: str) -> memoryview:
        """Return what `member` does without copying it; for a large one that is read once.

        Raises:
            Malformed: the body holds something else.
        """
        text, start, end = self._member(name)
        return memoryview(text)[start:end]

    def _member(self, name: str) -> tuple[bytes, int, int]:
        label = f'"{name}":'.encode()
        start, end = self._span or (0, len(self._body or b""))
        if self._body is None or not self._body.startswith(label, start, end):
            raise Malformed(f"record {self.seq} has no {name}")
        return self._body, start + len(label), end

    def data(self) -> Any:
        """Return the body's `data` as a JSON tree, or None where there is no body."""
        return parse_json(self.member("data")) if self.body else None


class Draft:
    """A record before its place in the journal is known.

    What is expensive (encoding, the body's digest) is done here, before any lock is taken. So is
    the last look for declared secrets: what holds one does not become a record, whoever made it.
    """

    __slots__ = ("_rest", "_waits", "body", "kind", "lane", "time")

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
        searched: int | None = None,
        copied: bool = False,
    ) -> None:
        """Draft a record.

        Args:
            kind: its kind.
            fields: what goes into its head, JSON values.
            by: nonce of its writer.
            lane: the lane it belongs to.
            body: its body, or empty.
            digest: what `body_digest` says of the body, or None to make it here.
            time: when it was made, or None for now.
            searched: version of the secrets that the body was searched for, if it was.
            copied: it stands on the same disk already, as it is.

        Raises:
            SecretFound: a declared secret is in it.
        """
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
        self._waits = b""
        if not copied:
            self._search(searched)

    def _search(self, searched: int | None) -> None:
        found = secrets.current()
        if found.among(self._rest):
            raise _secret_in(found, f"the head of a record ({self.kind})", self._rest)
        if searched != found.version and found.among(self.body):
            raise _secret_in(found, f"the body of a record ({self.kind})", self.body)

    def waits(self, questions: list[str]) -> None:
        """Say which questions are open behind it: the last record tells that of a run."""
        self._waits = b',"waits":%b' % orjson.dumps(questions) if questions else b""

    def seal(
        self, *, seq: int, first: int, count: int, waypoint: int, prev: str, epoch: int = 1
    ) -> tuple[bytes, str]:
        """Give the record its place in the chain.

        Args:
            seq: its number.
            first: number of the first record of the same append.
            count: how many records that append has.
            waypoint: its own waypoint number, or the newest one so far.
            prev: sum of the record before it, or "" for the first.
            epoch: what the record says of the journal's epoch; 1 need not be said.

        Returns:
            The line up to and including its sum, without `loc` and the closing brace; the sum.
        """
        app = b"" if count == 1 else b'"app":[%d,%d],' % (first, count)
        head = b'"seq":%d,%b"kind":"%b","waypoint":%d,%b,%b"prev":"%b"' % (
            seq,
            app,
            self.kind.encode(),
            waypoint,
            self._rest + self._waits,
            b'"epoch":%d,' % epoch if epoch > 1 else b"",
            prev.encode(),
        )
        body = self.body
        text = b"%b,%b" % (head, body) if body else head
        sum_ = _sum(text if len(body) <= _INLINE_BODY else head)
        return b'{"len":[%d,%d],%b,"sum":"%b"' % (len(head), len(body), text, sum_.encode()), sum_


def body_digest(body: bytes) -> str:
    """Return what `body_sha256` holds for a body, or "" where the head's sum covers it."""
    return hashlib.sha256(body).hexdigest() if len(body) > _INLINE_BODY else ""


def now() -> str:
    """Return the current time as records hold it: ISO 8601, UTC, microseconds."""
    global _second
    seconds, micros = divmod(time.time_ns() // 1000, 1_000_000)
    at, text = _second
    if at != seconds:
        text = datetime.fromtimestamp(seconds, UTC).isoformat()[:19]
        _second = (seconds, text)
    return f"{text}.{micros:06d}+00:00"


# The text of the last second asked for: making it costs more than all the rest of a head.
_second = (-1, "")


def _sum(covered: bytes) -> str:
    return hashlib.sha256(covered).hexdigest()[:SUM_DIGITS]


def lengths(start: bytes) -> tuple[int, int, int] | None:
    """Return (offset of the head, its length, length of the body) of a line's beginning.

    None where `start` does not begin like a record.
    """
    match = _PREFIX.match(start)
    if match is None:
        return None
    return match.end(), int(match[1]), int(match[2])


def parse(text: bytes, end: int | None = None, start: int = 0) -> Record:
    """Read one line, without its line end, and check it in full.

    Args:
        text: bytes that hold the line; the record's body stays in them.
        end: where it ends in them; None: with them.
        start: where it begins in them.

    Raises:
        Malformed: the line is not a whole record or its sum is wrong.
    """
    match = _PREFIX.match(text, start)
    if match is None:
        raise Malformed("does not begin like a record")
    at = match.end()
    head_size, body_size = match.groups()
    body = stop = head_end = at + int(head_size)
    if body_size != b"0":
        if text[head_end : head_end + 1] != b",":
            raise Malformed("the head's length is wrong")
        body += 1
        stop = body + int(body_size)
    suffix = _SUFFIX.fullmatch(text, stop, len(text) if end is None else end)
    head = text[at:head_end]
    large = stop - body > _INLINE_BODY
    fields, sum_, loc = _checked(head if large else text[at:stop], head, suffix)
    if large:
        digest = hashlib.sha256(memoryview(text)[body:stop]).hexdigest()
        if digest != fields.get("body_sha256"):
            raise Malformed("the body's digest is wrong")
    return Record(fields, text, sum_, loc, (body, stop))


def parse_head(head: bytes, suffix: bytes, body_size: int) -> Record:
    """Read a record whose body was skipped, and check what can be checked without it.

    Args:
        head: exactly the head.
        suffix: what follows the body up to the end of the line.
        body_size: the body's length as the line states it.

    Raises:
        Malformed: something does not fit, or the sum covers the body.
    """
    if 0 < body_size <= _INLINE_BODY:
        raise Malformed("a small body is part of the sum and was not given")
    fields, sum_, loc = _checked(head, head, _SUFFIX.fullmatch(suffix))
    return Record(fields, None, sum_, loc)


def _checked(
    covered: bytes, head: bytes, suffix: re.Match[bytes] | None
) -> tuple[dict[str, Any], str, int | None]:
    """Check the sum of a line and return (head, sum, loc)."""
    if suffix is None:
        raise Malformed("does not end like a record")
    stated, loc = suffix.groups()
    sum_ = hashlib.sha256(covered).hexdigest()[:SUM_DIGITS]
    if sum_ != stated.decode():
        raise Malformed("the sum is wrong")
    try:
        fields = orjson.loads(b"{%b}" % head)
    except orjson.JSONDecodeError as error:
        raise Malformed(f"the head is not JSON: {error}") from None
    get = fields.get
    app = get("app")
    try:
        types = tuple(map(type, _required(fields)))
    except KeyError:
        types = ()
    if (
        types != _TYPES
        or type(get("lane", "")) is not str
        or (app is not None and not _is_append(app, fields["seq"]))
        or type(get("epoch", 1)) is not int
        or type(get("note", "")) not in (str, dict)
    ):
        raise Malformed("the head lacks a field or has one of the wrong type")
    return fields, sum_, int(loc) if loc else None


_REQUIRED: Final = {"seq": int, "kind": str, "waypoint": int, "prev": str, "time": str}
"""Fields that each head has, with their types."""

_TYPES: Final = tuple(_REQUIRED.values())
_required: Final = itemgetter(*_REQUIRED)


def _is_append(app: object, seq: int) -> bool:
    return (
        type(app) is list
        and len(app) == 2
        and type(app[0]) is type(app[1]) is int
        and app[0] <= seq < app[0] + app[1] <= app[0] + _MOST_RECORDS
    )


def _secret_in(found: secrets.Found, where: str, data: bytes) -> SecretFound:
    _, secret = next(found.places(data))
    return SecretFound(
        f"{where} holds the secret {secret.source}. Nothing was written. Names, labels and "
        "metadata are written as they are: name it by something else. If the secret was declared "
        "while this was saved, save it again.",
        path=where,
        name=secret.source,
    )
