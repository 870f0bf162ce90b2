"""The shipped tests find a store that breaks its promises: each of these breaks one."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from caravanserai_core.errors import RunBusy
from caravanserai_core.records import Record
from caravanserai_core.stores import MemoryStore, Store
from caravanserai_core.stores.base import Appended, Line, Listed, Recent, Sealed, Shown, Tail
from caravanserai_core.stores.owners import Hold, Holder
from caravanserai_core.testing import StoreTests


class KeepsHalf(MemoryStore):
    """Loses the last record of an append of several."""

    def append(self, run_id: str, known: Any, epoch: int, seal: Any, **how: Any) -> Appended:
        done = super().append(run_id, known, epoch, seal, **how)
        if len(done.places) > 2:
            self._lines[run_id] = self._lines[run_id][:-1]
        return done


class WritesBeforeItAsks(MemoryStore):
    """Leaves something where `seal` refuses."""

    def append(self, run_id: str, known: Any, epoch: int, seal: Any, **how: Any) -> Appended:
        self._lines.setdefault(run_id, [])
        return super().append(run_id, known, epoch, seal, **how)


class FencesNobody(MemoryStore):
    """Lets a stale writer in."""

    def append(self, run_id: str, known: Any, epoch: int, seal: Any, **how: Any) -> Appended:
        return super().append(run_id, known, 99, seal, **how)


class FencesLate(MemoryStore):
    """Asks `seal` before it looks at the epoch."""

    def append(self, run_id: str, known: Any, epoch: int, seal: Any, **how: Any) -> Appended:
        tail = self._tails.get(run_id)
        if tail is not None and tail.epoch > epoch:
            seal(tail, [])
        return super().append(run_id, known, epoch, seal, **how)


class TellsNoNews(MemoryStore):
    """Hands over no news."""

    def _news(self, lines: Any, known: Any, tail: Any) -> list[Record] | None:
        return []


class TellsNewsBackwards(MemoryStore):
    """Hands over the news in the wrong order."""

    def _news(self, lines: Any, known: Any, tail: Any) -> list[Record] | None:
        news = super()._news(lines, known, tail)
        return news and news[::-1]


class KeepsNoLock(MemoryStore):
    """Forgets that a deleted run was deleted."""

    def _news(self, lines: Any, known: Any, tail: Any) -> list[Record] | None:
        news = super()._news(lines, known, tail)
        return [] if news is None and known is not None else news


class KeepsNotes(MemoryStore):
    """Deletes the records alone."""

    def delete(self, run_id: str) -> bool:
        notes = self._notes.get(run_id)
        done = super().delete(run_id)
        if notes is not None:
            self._notes[run_id] = notes
        return done


class ScansFromTheStart(MemoryStore):
    """Takes no notice of a place."""

    def scan(self, run_id: str, *, bodies: bool, start: Any = None) -> Any:
        return super().scan(run_id, bodies=bodies)


class ForgetsWhatCameSince(MemoryStore):
    """Gives the newest waypoint alone."""

    def recent(self, run_id: str) -> Recent | None:
        recent = super().recent(run_id)
        return recent and recent._replace(since=[])


class GivesTheWrongPlaces(MemoryStore):
    """Returns places that lead one record too far."""

    def append(self, run_id: str, known: Any, epoch: int, seal: Any, **how: Any) -> Appended:
        done = super().append(run_id, known, epoch, seal, **how)
        return done._replace(places=[place + 1 for place in done.places])


class ChangesBytes(MemoryStore):
    """Writes JSON anew."""

    def append(self, run_id: str, known: Any, epoch: int, seal: Any, **how: Any) -> Appended:
        def changed(tail: Tail | None, news: list[Record] | None) -> Sealed:
            sealed = seal(tail, news)
            lines = [Line(text.replace(b"\\u", b"\\U"), loc) for text, loc in sealed.lines]
            return sealed._replace(lines=lines)

        return super().append(run_id, known, epoch, changed, **how)


class FoldsNames(MemoryStore):
    """Takes Ab and aB for one run."""

    def append(self, run_id: str, known: Any, epoch: int, seal: Any, **how: Any) -> Appended:
        return super().append(run_id.lower(), known, epoch, seal, **how)

    def recent(self, run_id: str) -> Recent | None:
        return super().recent(run_id.lower())


class ListsTwice(MemoryStore):
    """Lists a run for each of its waypoints."""

    def listing(self) -> Any:
        for listed in super().listing():
            yield from [listed] * max(1, listed.last.waypoint if listed.last else 1)


class ListsTheBeginning(MemoryStore):
    """Lists the first record as the last."""

    def listing(self) -> Any:
        for listed in super().listing():
            yield Listed(listed.folder, listed.opening, listed.opening, None)


class RollsAlways(MemoryStore):
    """Wants a segment for each record."""

    def wants_roll(self, tail: Tail, size: int) -> bool:
        return True


class MakesRunsOfNotes(MemoryStore):
    """Keeps a note of a run that is not there."""

    def put_note(self, run_id: str, shown: Shown) -> None:
        self._show(run_id, shown)


class ForgetsTheLiveNote(MemoryStore):
    """Keeps the numbered notes alone."""

    def _show(self, run_id: str, shown: Shown) -> None:
        if shown.name is not None:
            self._notes.setdefault(run_id, {})[shown.name] = shown.text


class KeepsTheOld(MemoryStore):
    """Adds the new journal behind the old one."""

    def replace(self, run_id: str, known: Any, epoch: int, seal: Any) -> Appended:
        before = list(self._lines.get(run_id, []))
        done = super().replace(run_id, known, epoch, seal)
        self._lines[run_id] = before + self._lines[run_id]
        return done


class ReplacesUnasked(MemoryStore):
    """Replaces what somebody else wrote, and says that nothing came since."""

    def replace(self, run_id: str, known: Any, epoch: int, seal: Any) -> Appended:
        return super().replace(run_id, self._tails.get(run_id), epoch, seal)


class ReplacesForAnybody(MemoryStore):
    """Does not compare the epoch when it replaces."""

    def replace(self, run_id: str, known: Any, epoch: int, seal: Any) -> Appended:
        return super().replace(run_id, known, 99, seal)


class EmptiesFirst(MemoryStore):
    """Removes the old journal before it asks for the new one."""

    def replace(self, run_id: str, known: Any, epoch: int, seal: Any) -> Appended:
        def emptied(tail: Any, news: Any) -> Sealed:
            self._lines[run_id] = []
            return seal(tail, news)  # type: ignore[no-any-return]

        return super().replace(run_id, known, epoch, emptied)


class KeepsNotesOfWhatWent(MemoryStore):
    """Leaves all notes where they are."""

    def replace(self, run_id: str, known: Any, epoch: int, seal: Any) -> Appended:
        notes = dict(self._notes.get(run_id, {}))
        done = super().replace(run_id, known, epoch, seal)
        self._notes[run_id] = notes
        return done


class LosesWhatWasNotSynced(MemoryStore):
    """Keeps nothing that was appended without `sync`."""

    def append(self, run_id: str, known: Any, epoch: int, seal: Any, **how: Any) -> Appended:
        before = self._lines.get(run_id, []), self._tails.get(run_id)
        done = super().append(run_id, known, epoch, seal, **how)
        if not how.get("sync", True) and before[1] is not None:
            self._lines[run_id], self._tails[run_id] = before[0], before[1]
        return done


class HoldsForAnybody(MemoryStore):
    """Gives a run to whoever asks."""

    def hold(self, run_id: str, known: Any, holder: Holder) -> Hold | None:
        self._holds.clear()
        return super().hold(run_id, known, holder)


class HoldsForOldKnowledge(MemoryStore):
    """Does not compare the end of the journal."""

    def hold(self, run_id: str, known: Any, holder: Holder) -> Hold | None:
        return super().hold(run_id, self._tails.get(run_id), holder)


class IsLostByAsking(MemoryStore):
    """Lets go of a lease when somebody else is refused it."""

    def hold(self, run_id: str, known: Any, holder: Holder) -> Hold | None:
        try:
            return super().hold(run_id, known, holder)
        except RunBusy:
            self._holds.clear()
            raise


class ReleasesForOthers(MemoryStore):
    """Lets a release end whatever lease there is."""

    def release(self, run_id: str, hold: Hold) -> None:
        self._holds.pop(run_id, None)


class TakesOverBeforeItAsks(MemoryStore):
    """Makes the new one owner where `seal` refuses."""

    def take_over(
        self, run_id: str, known: Any, holder: Holder, seal: Any, **_: Any
    ) -> tuple[Any, Hold]:
        self._held(run_id, holder)
        return super().take_over(run_id, known, holder, seal)


class KeepsLeases(MemoryStore):
    """Deletes the run alone."""

    def delete(self, run_id: str) -> bool:
        held = self._holds.get(run_id)
        done = super().delete(run_id)
        if held is not None:
            self._holds[run_id] = held
        return done


class Promises(StoreTests):
    __test__ = False

    def reopen(self, store: Store) -> Store:
        return store

    def raw_lines(self, store: Store, run_id: str) -> list[bytes]:
        assert isinstance(store, MemoryStore)
        return list(store._lines.get(run_id, ()))

    def raw_runs(self, store: Store) -> int:
        assert isinstance(store, MemoryStore)
        return len(store._lines.keys() | store._notes.keys())


def failures(kind: type[MemoryStore]) -> list[str]:
    """Return the names of the contract's tests that this store fails."""
    found = []
    for name, test in inspect.getmembers(Promises(), inspect.ismethod):
        if name.startswith("test_"):
            try:
                test(kind())
            except (Exception, pytest.fail.Exception):  # noqa: BLE001 - a failed test
                found.append(name)
    return found


def test_a_store_that_keeps_its_promises_passes() -> None:
    """The sound store fails none, so what fails below is the break."""
    assert failures(MemoryStore) == []


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in list(globals().values())
        if isinstance(kind, type) and issubclass(kind, MemoryStore) and kind is not MemoryStore
    ],
)
def test_a_store_that_breaks_a_promise_fails(kind: type[MemoryStore]) -> None:
    """Each of the stores above breaks one promise, and some test says so."""
    assert failures(kind), kind.__doc__
