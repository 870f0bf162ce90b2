"""Writing a run in an object store: one append is one object, created under the next number.

Nothing is read for it and nothing locked: that the number was free is what makes the append the
next one. A writer that loses finds out what stands there, and decides again.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from caravanserai_core.errors import CaravanseraiError, StaleWriter, StoreBusy
from caravanserai_core.quoting import visible
from caravanserai_core.records import Record
from caravanserai_core.stores._objects_layout import (
    GENERATION,
    OBJECT,
    closing,
    head_of,
    new_nonce,
    pack,
)
from caravanserai_core.stores._objects_reader import RunReader
from caravanserai_core.stores._objects_run import Debt, End, Item, Moved, Token, tombstone
from caravanserai_core.stores.base import Appended, Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from caravanserai_core.stores._objects_layout import Packed
    from caravanserai_core.stores.base import Sealed, Shown

    Seal = Callable[[Tail | None, list[Record] | None], Sealed]

_log = logging.getLogger("caravanserai")

_HINT_EVERY: Final = 16
_MOST_STEPS: Final = 8
_LEAST_PATIENCE: Final = 60.0
_NOTE: Final = re.compile(r"waypoint-([1-9]\d{0,8})\.md")
_MARKDOWN: Final = "text/markdown; charset=utf-8"


class View(NamedTuple):
    """The journal, as a writer sees it.

    Attributes:
        tail: its end; None: there is no such run.
        news: what came since the tail that the writer knew; None: that is not part of it.
        generation: the generation that is open.
        number: of its last object, 0 for none.
    """

    tail: Tail | None
    news: list[Record] | None
    generation: str
    number: int


class RunWriter(RunReader):
    """The objects of one run, for writers."""

    def append(self, known: Tail | None, epoch: int, seal: Seal) -> Appended:
        """Add records at the end of the journal; see `Store.append`."""
        if known is None:
            view = self.now(known, epoch)
        else:
            self._refuse_stale(known, epoch)
            self.settle()
            view = View(known, [], known.token.generation, known.token.append)
        believed = known is not None
        until = time.monotonic() + max(_LEAST_PATIENCE, self.bucket.timeout)
        steps = 0
        while time.monotonic() < until:
            other: Item | None = None
            try:
                sealed = seal(view.tail, view.news)
            except Exception:
                # It gave up on what this writer believed: that has to be true, then.
                if not believed or self._is_end(view):
                    raise
            else:
                made = self._create(view, sealed)
                if isinstance(made, Appended):
                    return made
                other = made
            believed = False
            steps = (steps + 1) % _MOST_STEPS
            after = self._after(view, other) if other is not None and steps else None
            if after is not None and after.tail is not None:
                self._refuse_stale(after.tail, epoch)
            view = after or self.now(known, epoch)
        raise StoreBusy(
            f"{visible(self.bucket.path(self.folder))}: other writers were faster each time. "
            "Nothing was written. Let fewer write to one run."
        )

    def _create(self, view: View, sealed: Sealed) -> Appended | Item:
        """Write an append behind what is known; returns what else is there, if somebody was faster.

        That one is remembered: who was faster once is not faster a second time for it.
        """
        generation, number, tail = view.generation, view.number + 1, view.tail
        segment = 0 if tail is None or tail.rolled else tail.token.segment
        nonce = new_nonce()
        packed = pack(sealed.lines, [len(sealed.lines)], number, segment, nonce)
        key = self.key(generation, number)
        other = self.bucket.create(key, packed.objects[0], nonce)
        if other is not None:
            self.memory.ends(self.folder, generation, number)
            there = self.taken_in(generation, number, other.data)
            if there.header is not None and there.header.gone and self._arrived(sealed):
                return Appended(tail_after(sealed, generation, number, packed), packed.places)
            return there
        self.memory.put(key, packed.objects[0])
        self.wrote(generation, number, sealed)
        return Appended(tail_after(sealed, generation, number, packed), packed.places)

    def _arrived(self, sealed: Sealed) -> bool:
        """Say whether an append stands in the journal that took the place of the one it went to.

        Its answer was lost, and another process wrote the journal anew before this one looked. The
        nonce of a process and the time tell its last record from all others.
        """
        mine = head_of(sealed.lines[-1])
        names = ("kind", "waypoint", "by", "time")
        return any(
            isinstance(item, Record) and all(item.head.get(n) == mine.get(n) for n in names)
            for item in self.scan(bodies=False, start=None)
        )

    def _after(self, view: View, other: Item) -> View | None:
        """Return the view behind the append of somebody who was faster; None: look again.

        It may not be the end either. Nothing more is asked, though: the next try shows it, and who
        asks first is slower than others who do not.
        """
        header, before = other.header, view.tail
        if before is None or header is None or header.closed is not None or header.gone:
            return None
        records = [record for record in other.records() if isinstance(record, Record)]
        if len(records) < len(header.sizes) or records[0].head["prev"] != before.sum:
            return None
        last, epoch = records[-1], before.epoch
        for record in records:
            epoch = max(epoch, record.head.get("epoch", 1))
        token = Token(view.generation, other.number, header.segment)
        tail = Tail(last.seq, last.sum, epoch, last.kind == "roll", token)
        news = None if view.news is None else view.news + records
        return View(tail, news, view.generation, other.number)

    def wrote(self, generation: str, number: int, sealed: Sealed) -> None:
        """Do what comes after an append and fails none: the hint, the notes."""
        self.memory.ends(self.folder, generation, number)
        if number % _HINT_EVERY == 0:
            self.leave_hint(generation, number)
        notes = dict(sealed.notes)
        if sealed.shown is not None:
            notes |= texts_of(sealed.shown)
        self.write_notes(notes)

    def leave_hint(self, generation: str, number: int) -> None:
        """Write the hint, if that can be done and hides nothing that is still to be removed."""
        if self.memory.debts(self.folder):
            return
        try:
            self.write_hint(generation, number)
        except CaravanseraiError as error:
            _log.warning("the hint where the journal ends was not written: %s", error)

    # ------------------------------------------------------------------ what is there

    def now(self, known: Tail | None, epoch: int) -> View:
        """Look at the journal.

        Raises:
            StaleWriter: its epoch is higher than `epoch`.
        """
        return self.look(lambda: self._now(known, epoch))

    def _now(self, known: Tail | None, epoch: int) -> View:
        end = self.end()
        self.settle()
        if end.item is None:
            return View(None, [] if known is None else None, end.generation, end.number)
        tail, _, _ = self.tail_of(end)
        self._refuse_stale(tail, epoch)
        return View(tail, self._news(known, tail, end), end.generation, end.number)

    def _news(self, known: Tail | None, tail: Tail, end: End) -> list[Record] | None:
        if known is None or known.token.generation != end.generation:
            return None
        if known.token.append >= end.number:
            return [] if known == tail else None
        found = self._between(end.generation, known.token.append + 1, end.number)
        # A bucket that was emptied by hand, and filled again, has other records there.
        return found if found[0].head["prev"] == known.sum else None

    def _is_end(self, view: View) -> bool:
        return not self.bucket.exists(self.key(view.generation, view.number + 1))

    def ends_with(self, known: Tail | None) -> bool:
        """Say whether the journal ends with `known`."""
        if known is None:
            return self.end().item is None
        return self._is_end(View(known, [], known.token.generation, known.token.append))

    def _refuse_stale(self, tail: Tail, epoch: int) -> None:
        if tail.epoch > epoch:
            raise StaleWriter(
                f"{visible(self.bucket.path(self.folder))}: a writer with epoch {tail.epoch} took "
                f"the run over; this one has epoch {epoch} and may not write any more. Nothing "
                "was written."
            )

    # ------------------------------------------------------------------ what was closed

    def settle(self) -> None:
        """Remove what somebody closed and did not come to remove, as far as this process saw it."""
        for debt in self.memory.debts(self.folder):
            kept: set[int] = set()
            with contextlib.suppress(Moved):  # whoever closed that one looks after its notes
                if not debt.closed.deleted:
                    kept = self._waypoints(debt.closed.next)
                self.sweep(debt, kept)
                self.leave_hint(debt.closed.next, 0)
            self.memory.debts(self.folder, paid=debt)

    def _waypoints(self, generation: str) -> set[int]:
        last = self._last(generation, 0)
        heads = self.bucket.map(lambda n: self.heads(generation, n), range(1, last + 1))
        return {
            record.waypoint
            for part in heads
            for record in part
            if isinstance(record, Record) and record.kind == "waypoint"
        }

    def sweep(self, debt: Debt, kept: Container[int], *, notes: bool = True) -> None:
        """Remove the content of a closed generation, and what else nobody reads any more.

        Args:
            debt: the generation.
            kept: the waypoints whose notes stay.
            notes: whether the notes of others go.
        """
        keys = [self.key(debt.generation, before) for before in range(1, debt.number)]
        self.bucket.map(lambda key: tombstone(self.bucket, key), keys)
        self.memory.drop(self.folder)
        folders, names = self.bucket.inside(self.folder)
        self._drop_unpublished(debt.closed.next, folders)
        if notes:
            self._drop_notes(kept, names)
        done = closing(debt.number, new_nonce(), debt.closed._replace(swept=True))
        self.bucket.write(self.key(debt.generation, debt.number), done)
        self.memory.debts(self.folder, paid=debt)

    def _drop_unpublished(self, published: str, folders: list[str]) -> None:
        """Remove generations that would have followed the same one: they never can any more."""
        ordinal = published.partition("-")[0]
        for name in folders:
            if name == published or not name.startswith(f"{ordinal}-"):
                continue
            if GENERATION.fullmatch(name):
                _, objects = self.bucket.inside(f"{self.folder}/{name}")
                own = [f"{self.folder}/{name}/{key}" for key in objects if OBJECT.fullmatch(key)]
                self.bucket.delete(own)

    def _drop_notes(self, kept: Container[int], names: list[str]) -> None:
        gone: list[str] = []
        for name in names:
            match = _NOTE.fullmatch(name)
            # What followed the newest note stands in the live one, and may be what had to go.
            if name == "latest.md" or (match is not None and int(match[1]) not in kept):
                gone.append(f"{self.folder}/{name}")
        self.bucket.delete(gone)

    # ------------------------------------------------------------------ notes

    def write_notes(self, notes: Mapping[str, str]) -> None:
        """Write notes beside the journal. They are derived: a failure here fails no append."""

        def write(name: str) -> None:
            text = notes[name].encode("utf-8", "replace")
            self.bucket.write(f"{self.folder}/{name}", text, _MARKDOWN)

        try:
            self.bucket.map(write, notes)
        except CaravanseraiError as error:
            _log.warning(
                "a note could not be written beside the journal (%s); the next `caravanserai "
                "show` writes it again",
                error,
            )


def texts_of(shown: Shown) -> dict[str, str]:
    """Return the notes that a person is to see, by name."""
    notes = {} if shown.name is None else {shown.name: shown.text}
    notes["latest.md"] = shown.text if shown.live is None else shown.live
    return notes


def tail_after(sealed: Sealed, generation: str, number: int, packed: Packed) -> Tail:
    """Return the tail of a journal behind an append."""
    token = Token(generation, number, packed.segment)
    return Tail(sealed.seq, sealed.sum, sealed.epoch, sealed.rolled, token)
