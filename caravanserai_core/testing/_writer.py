"""A writer that seals records by hand, and names that are hard on a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from caravanserai_core.records import Draft, Record
from caravanserai_core.stores.base import SELF, Line, Sealed, Shown, Within

if TYPE_CHECKING:
    from collections.abc import Callable

    from caravanserai_core.stores.base import Appended, Store, Tail
    from caravanserai_core.stores.owners import Hold, Holder

    Decide = Callable[[Tail | None, list[Record] | None], None]

HOSTILE_IDS = (
    "../up",
    "/etc/absolute",
    "..",
    ".",
    "a\x00b",
    "a\nb",
    "x" * 10_000,
    "CON",
    "nul.txt",
    "COM1",
    "x.",
    "x ",
    " x",
    "agent:main:x",
    "Ab",
    "aB",
    "ab",
    "\u00e9",
    "e\u0301",
    "\U0001f42a",
    "\ud800",
    "a/b",
    "a\\b",
    "a_b",
    "a%2Fb",
    "%",
    "*",
    "x'; DROP TABLE runs; --",
    "https://example.com/?a=b#c",
    "-rf",
    "~",
    ".hidden",
    "lock",
)
"""Names of runs that a path, a glob, a URL, SQL or a file system might misunderstand."""


class HandWriter:
    """A writer that seals records by hand: what a store sees of a journal, without one.

    Args:
        store: where it writes.
        run_id: the run.
        epoch: its epoch.
        name: its nonce.

    Attributes:
        known: the tail after its last append.
        newest: number of the newest waypoint it knows.
        texts: the lines it sealed, as they must stand in the back end, up to their hint.
        seals: the arguments of each call of its seal function.
        full: number and place of its last full waypoint.
        stop: place of its last waypoint.
        generation: what it states in an `open` record.
    """

    def __init__(
        self, store: Store, run_id: str = "run", *, epoch: int = 1, name: str = "w"
    ) -> None:
        self.store = store
        self.run_id = run_id
        self.epoch = epoch
        self.name = name
        self.known: Tail | None = None
        self.newest = 0
        self.texts: list[bytes] = []
        self.seals: list[tuple[Tail | None, list[Record] | None]] = []
        self.full: tuple[int, Any] = (0, None)
        self.stop: Any = None
        self.generation = 1

    def draft(
        self, kind: str, fields: dict[str, Any] | None = None, *, lane: str = "", body: bytes = b""
    ) -> Draft:
        """Draft any record. Its head says the epoch where that is not the first."""
        epoch = {"epoch": self.epoch} if self.epoch > 1 else {}
        return Draft(kind, {**(fields or {}), **epoch}, by=self.name, lane=lane, body=body)

    def open(self) -> Draft:
        """Draft the record that a segment begins with."""
        body = b'"data":{"run_id":%b}' % _json(self.run_id)
        fields = {"format": 1, "generation": self.generation, "epoch": self.epoch}
        return Draft("open", fields, by=self.name, body=body)

    def state(self, state: bytes = b"{}", *, lane: str = "") -> Draft:
        """Draft a waypoint that holds its whole state, given as JSON."""
        return self.draft("waypoint", {"note": ""}, lane=lane, body=b'"state":' + state)

    def patch(self, patch: bytes = b"[]", *, first: bool = False) -> Draft:
        """Draft a waypoint that builds on the one before it.

        Args:
            patch: its JSON.
            first: the one before it is the first of a journal about to be replaced.
        """
        seq = self.known.seq if self.known is not None else 0
        base, full = (1, seq + 2) if first else (self.newest, self.full[0])
        fields = {"note": "", "base": base, "full": full}
        return self.draft("waypoint", fields, body=b'"patch":' + patch)

    def entry(self, data: bytes = b"null", *, lane: str = "", kind: str = "entry") -> Draft:
        """Draft a record between two waypoints."""
        return self.draft(kind, {"name": "e"}, lane=lane, body=b'"data":' + data)

    def append(
        self,
        *drafts: Draft,
        decide: Decide | None = None,
        shown: Shown | None = None,
        sync: bool = True,
    ) -> Appended:
        """Append drafts; `decide` looks at the tail and the news first, and may raise."""

        def seal(tail: Tail | None, news: list[Record] | None) -> Sealed:
            self.seals.append((tail, news))
            if decide is not None:
                decide(tail, news)
            self.newest = max([self.newest, *(record.waypoint for record in news or ())])
            wanted = list(drafts)
            if tail is None or tail.rolled:
                wanted.insert(0, self.open())
            sealed = self._sealed(tail, wanted, shown)
            texts[:] = [line.text for line in sealed.lines]
            return sealed

        texts: list[bytes] = []
        appended = self.store.append(self.run_id, self.known, self.epoch, seal, sync=sync)
        self.texts += texts
        self.known = appended.tail
        for back, draft in enumerate(reversed(drafts)):
            if draft.body.startswith(b'"state":'):
                self.full = (appended.tail.seq - back, appended.places[-1 - back])
                break
        for back, draft in enumerate(reversed(drafts)):
            if draft.kind == "waypoint":
                self.stop = appended.places[-1 - back]
                break
        return appended

    def take_over(self, holder: Holder, *, decide: Decide | None = None) -> Hold:
        """Take the run over with a `lease` record, under an epoch one above the journal's."""

        def seal(tail: Tail | None, news: list[Record] | None) -> Sealed:
            if decide is not None:
                decide(tail, news)
            self.newest = max([self.newest, *(record.waypoint for record in news or ())])
            self.epoch = (tail.epoch if tail is not None else 1) + 1
            opening = [self.open()] if tail is None or tail.rolled else []
            return self._sealed(tail, [*opening, self.draft("lease")], None)

        appended, hold = self.store.take_over(self.run_id, self.known, holder, seal)
        self.known = appended.tail
        return hold

    def replace(
        self, *drafts: Draft, decide: Decide | None = None, shown: Shown | None = None
    ) -> Appended:
        """Put a journal of an `open` record and these drafts in the place of the run's.

        Waypoints are numbered from 1 again: what they are is not this writer's business.
        """

        def seal(tail: Tail | None, news: list[Record] | None) -> Sealed:
            self.seals.append((tail, news))
            if decide is not None:
                decide(tail, news)
            self.newest = 0
            sealed = self._sealed(tail, [self.open(), *drafts], shown)
            self.texts = [line.text for line in sealed.lines]
            lines = [
                Line(line.text, Within(1) if line.loc is not SELF and index > 1 else line.loc)
                for index, line in enumerate(sealed.lines)
            ]
            return sealed._replace(lines=lines)

        self.generation += self.known is not None
        try:
            appended = self.store.replace(self.run_id, self.known, self.epoch, seal)
        except BaseException:
            self.generation -= self.known is not None
            raise
        self.known = appended.tail
        self.full = (appended.tail.seq - len(drafts) + 1, appended.places[1])
        self.stop = appended.places[1]
        return appended

    def _sealed(self, tail: Tail | None, drafts: list[Draft], shown: Shown | None) -> Sealed:
        first = tail.seq + 1 if tail is not None else 1
        prev = tail.sum if tail is not None else ""
        number = self.newest
        lines: list[Line] = []
        for index, draft in enumerate(drafts):
            whole = draft.body.startswith(b'"state":')
            number += draft.kind == "waypoint"
            text, prev = draft.seal(
                seq=first + index, first=first, count=len(drafts), waypoint=number, prev=prev
            )
            hint = self.full[1] if draft.kind == "waypoint" else self.stop
            lines.append(Line(text, SELF if whole else hint))
        self.newest = number
        epoch = max(self.epoch, tail.epoch if tail is not None else 1)
        rolled = drafts[-1].kind == "roll"
        return Sealed(lines, first + len(drafts) - 1, prev, epoch, rolled, shown)


def _json(run_id: str) -> bytes:
    """Return a run_id as JSON; what UTF-8 cannot hold is escaped."""
    try:
        return orjson.dumps(run_id)
    except orjson.JSONEncodeError:
        return b'"%b"' % "".join(f"\\u{ord(char):04x}" for char in run_id).encode()
