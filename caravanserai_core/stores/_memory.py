"""Runs in memory: for tests, and for programs that want notes and resume within one process."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from caravanserai_core.names import folder_name
from caravanserai_core.records import Record, parse
from caravanserai_core.stores.base import (
    ANY_EPOCH,
    SELF,
    Appended,
    Bad,
    Listed,
    Recent,
    Sealed,
    Shown,
    Store,
    Tail,
    Within,
    refuse_stale,
)
from caravanserai_core.stores.owners import Hold, Holder, busy_error

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping

    from caravanserai_core.stores.base import Salvage
    from caravanserai_core.stores.owners import Lapsed


class MemoryStore(Store):
    """Runs that live as long as this object. The same promises, but for the disk."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._lines: dict[str, list[bytes]] = {}
        self._tails: dict[str, Tail] = {}
        self._notes: dict[str, dict[str, str]] = {}
        self._holds: dict[str, _MemoryHold] = {}

    @property
    def url(self) -> str:
        return "memory:"

    @property
    def key(self) -> object:
        return ("memory", id(self))

    def where(self, run_id: str) -> str:
        return f"memory, run {run_id!r}"

    def append(
        self,
        run_id: str,
        known: Tail | None,
        epoch: int,
        seal: Callable[[Tail | None, list[Record] | None], Sealed],
        *,
        sync: bool = True,
    ) -> Appended:
        with self._lock:
            tail = self._tails.get(run_id)
            refuse_stale(run_id, tail, epoch)
            lines = self._lines.get(run_id, [])
            sealed = seal(tail, self._news(lines, known, tail))
            places = list(range(len(lines), len(lines) + len(sealed.lines)))
            self._put(run_id, lines, sealed, places)
            self._notes.setdefault(run_id, {}).update(sealed.notes)
            if sealed.shown is not None:
                self._show(run_id, sealed.shown)
            return Appended(self._tails[run_id], places)

    def replace(
        self,
        run_id: str,
        known: Tail | None,
        epoch: int,
        seal: Callable[[Tail | None, list[Record] | None], Sealed],
    ) -> Appended:
        with self._lock:
            tail = self._tails.get(run_id)
            refuse_stale(run_id, tail, epoch)
            sealed = seal(tail, self._news(self._lines.get(run_id, []), known, tail))
            places = list(range(len(sealed.lines)))
            self._put(run_id, [], sealed, places)
            numbers = {r.waypoint for r in _parsed(self._lines[run_id]) if r.kind == "waypoint"}
            kept = {f"waypoint-{number}.md" for number in numbers}
            notes = self._notes.pop(run_id, {})
            self._notes[run_id] = {name: text for name, text in notes.items() if name in kept}
            if sealed.shown is not None:
                self._show(run_id, sealed.shown)
            return Appended(self._tails[run_id], places)

    def hold(self, run_id: str, known: Tail | None, holder: Holder) -> Hold | None:
        with self._lock:
            if self._tails.get(run_id) != known:
                return None
            before = self.holder(run_id)
            if before is not None:
                raise busy_error(run_id, before)
            return self._held(run_id, holder)

    def take_over(
        self,
        run_id: str,
        known: Tail | None,
        holder: Holder,
        seal: Callable[[Tail | None, list[Record] | None], Sealed],
        *,
        lapsed: Lapsed | None = None,
    ) -> tuple[Appended, Hold]:
        with self._lock:
            appended = self.append(run_id, known, ANY_EPOCH, seal)
            return appended, self._held(run_id, holder._replace(epoch=appended.tail.epoch))

    def holder(self, run_id: str) -> Holder | None:
        held = self._holds.get(run_id)
        # A forked child has a copy of these runs, and nothing that its parent holds.
        return held.holder if held is not None and held.pid == os.getpid() else None

    def _held(self, run_id: str, holder: Holder) -> Hold:
        held = self._holds[run_id] = _MemoryHold(self, run_id, holder)
        return held

    def release(self, run_id: str, hold: Hold) -> None:
        """Forget a lease, if it is still the one that counts."""
        with self._lock:
            if self._holds.get(run_id) is hold:
                del self._holds[run_id]

    def mend(self, run_id: str, seal: Salvage, damaged: Container[str]) -> list[str]:
        tail, items = self._tails.get(run_id), self.scan(run_id, bodies=True)
        self.replace(run_id, tail, tail.epoch if tail is not None else 1, lambda *_: seal(items))
        return []  # memory holds no damage

    def _put(self, run_id: str, before: list[bytes], sealed: Sealed, places: list[int]) -> None:
        texts: list[bytes] = []
        for (text, loc), place in zip(sealed.lines, places, strict=True):
            near = places[loc.line] if isinstance(loc, Within) else loc
            texts.append(text + _hint(place if near is SELF else near))
        self._lines[run_id] = before + texts
        self._tails[run_id] = Tail(sealed.seq, sealed.sum, sealed.epoch, sealed.rolled, None)

    def _news(
        self, lines: list[bytes], known: Tail | None, tail: Tail | None
    ) -> list[Record] | None:
        if known is None or tail is None:
            return [] if known is tail else None
        if known == tail:
            return []
        records = _parsed(lines)
        if not any(r.seq == known.seq and r.sum == known.sum for r in records):
            return None
        return [r for r in records if r.seq > known.seq]

    def recent(self, run_id: str) -> Recent | None:
        with self._lock:
            lines = list(self._lines.get(run_id, ()))
            tail = self._tails.get(run_id)
        if tail is None:
            return None
        records = _parsed(lines)
        last = records[-1]
        newest = next(
            (r for r in reversed(records) if r.kind == "waypoint" and r.lane == last.lane), None
        )
        chain = self._chain(records, newest) if newest is not None else []
        since = [r for r in records if newest is not None and r.seq > newest.seq]
        opening = next(record for record in reversed(records) if record.kind == "open")
        return Recent(tail, last, opening, chain, since)

    def _chain(self, records: list[Record], newest: Record) -> list[Record]:
        first = newest.head.get("full", newest.seq)
        return [r for r in records if first <= r.seq <= newest.seq]

    def chain(self, run_id: str, waypoint: int) -> list[Record]:
        records = _parsed(self._lines.get(run_id, []))
        for record in records:
            if record.kind == "waypoint" and record.waypoint == waypoint:
                return self._chain(records, record)
        return []

    def scan(self, run_id: str, *, bodies: bool, start: Any = None) -> Iterator[Record | Bad]:
        yield from _parsed(self._lines.get(run_id, []))[start or 0 :]

    def listing(self) -> Iterator[Listed]:
        for run_id, lines in list(self._lines.items()):
            records = _parsed(lines)
            yield Listed(folder_name(run_id), records[0], records[-1], None)

    def put_note(self, run_id: str, shown: Shown) -> None:
        with self._lock:
            if run_id in self._lines:
                self._show(run_id, shown)

    def put_notes(self, run_id: str, known: Tail, notes: Mapping[str, str], latest: Shown) -> None:
        with self._lock:
            tail = self._tails.get(run_id)
            records = _parsed(self._lines.get(run_id, []))
            if tail is None or not any(record.sum == known.sum for record in records):
                return
            self._notes.setdefault(run_id, {}).update(notes)
            if tail.seq == known.seq:
                self._show(run_id, latest)

    def _show(self, run_id: str, shown: Shown) -> None:
        notes = self._notes.setdefault(run_id, {})
        if shown.name is not None:
            notes[shown.name] = shown.text
        notes["latest.md"] = shown.text if shown.live is None else shown.live

    def get_note(self, run_id: str, name: str) -> str | None:
        return self._notes.get(run_id, {}).get(name)

    def delete(self, run_id: str) -> bool:
        with self._lock:
            self._notes.pop(run_id, None)
            self._tails.pop(run_id, None)
            self._holds.pop(run_id, None)
            return self._lines.pop(run_id, None) is not None


class _MemoryHold(Hold):
    """A lease on a run in memory."""

    def __init__(self, store: MemoryStore, run_id: str, holder: Holder) -> None:
        self.holder = holder
        self.pid = os.getpid()
        self._store = store
        self._run_id = run_id

    def release(self) -> None:
        self._store.release(self._run_id, self)


def _hint(place: int | None) -> bytes:
    return b"}" if place is None else b',"loc":%d}' % place


def _parsed(lines: list[bytes]) -> list[Record]:
    records = []
    for place, line in enumerate(lines):
        record = parse(line)
        record.place = place
        records.append(record)
    return records
