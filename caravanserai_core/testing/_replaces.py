"""Tests of replacing a journal: at once, whole, compared like an append, for good."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from caravanserai_core.errors import StaleWriter
from caravanserai_core.stores.base import Shown
from caravanserai_core.testing._base import (
    Hooks,
    end,
    raises,
    records,
    refuse,
    refuse_news,
    without_hint,
)
from caravanserai_core.testing._writer import HandWriter

if TYPE_CHECKING:
    from caravanserai_core.stores.base import Store


class ReplaceTests(Hooks):
    """What `replace` promises."""

    def test_a_replaced_journal_holds_the_new_records_alone(self, store: Store) -> None:
        """Nothing of the old one is left in the back end, and the numbers go on."""
        writer = HandWriter(store)
        for number in range(3):
            writer.append(writer.state(b'"old %d"' % number))
            writer.append(writer.draft("roll"))
        before = end(store)

        appended = writer.replace(writer.state(b'"one"'), writer.patch(b"[1]", first=True))

        fresh = self.reopen(store)
        found = records(fresh)
        assert [record.kind for record in found] == ["open", "waypoint", "waypoint"]
        assert [record.seq for record in found] == [before.seq + n for n in (1, 2, 3)]
        assert found[0].head["prev"] == before.sum
        assert [without_hint(line) for line in self.raw_lines(store, "run")] == writer.texts
        assert [record.place for record in found] == appended.places
        assert end(fresh) == appended.tail
        assert self.raw_runs(store) == 1

    def test_every_reader_finds_its_way_in_a_replaced_journal(self, store: Store) -> None:
        """The end, chains and lists are those of the new records; it goes on from there."""
        writer = HandWriter(store)
        for _ in range(3):
            writer.append(writer.state(b'"old"'))
        writer.replace(writer.state(b'"one"'), writer.patch(first=True), writer.entry())
        fresh = self.reopen(store)

        recent = fresh.recent("run")
        assert recent is not None
        assert [record.full for record in recent.chain] == [True, False]
        assert [record.kind for record in recent.since] == ["entry"]
        assert recent.opening.head["generation"] == 2
        assert [len(fresh.chain("run", number)) for number in (1, 2, 3)] == [1, 2, 0]
        listed = list(fresh.listing())
        assert [(found.last and found.last.seq, found.error) for found in listed] == [(8, None)]

        writer.append(writer.patch())
        assert [r.waypoint for r in self.reopen(store).chain("run", 3)][-1] == 3

    def test_what_seal_raises_leaves_the_journal(self, store: Store) -> None:
        """A replacement that was given up changes no byte, also of a run that is not there."""
        writer = HandWriter(store)
        writer.append(writer.state())
        before = self.raw_lines(store, "run")

        with raises(KeyError):
            writer.replace(writer.state(), decide=refuse(KeyError("given up")))
        with raises(KeyError):
            HandWriter(store, "new").replace(decide=refuse(KeyError("given up")))

        assert self.raw_lines(store, "run") == before
        assert self.raw_runs(store) == 1
        writer.append(writer.entry())

    def test_a_replacement_is_told_the_news(self, store: Store) -> None:
        """It is compared as an append is: what came since is handed over."""
        first, second = HandWriter(store, name="a"), HandWriter(self.reopen(store), name="b")
        first.append(first.state())
        second.known = first.known
        tail = first.append(first.entry(), first.entry()).tail

        second.replace(second.state())

        actual, news = second.seals[-1]
        assert actual == tail
        assert [record.seq for record in news or ()] == [3, 4]

    def test_a_writer_of_the_replaced_journal_is_told(self, store: Store) -> None:
        """What it knows is not part of the new one: no news, and nothing is written unasked."""
        first, late = HandWriter(store, name="a"), HandWriter(self.reopen(store), name="b")
        first.append(first.state())
        first.append(first.draft("roll"))
        first.append(first.state())
        late.known = first.known
        tail = first.replace(first.state()).tail
        before = self.raw_lines(store, "run")

        for use in (late.append, late.replace):
            with raises(KeyError):
                use(late.state(), decide=refuse_news(KeyError()))
            assert late.seals[-1] == (tail, None)
        assert self.raw_lines(store, "run") == before

    def test_a_stale_writer_cannot_replace(self, store: Store) -> None:
        """The epoch is compared first; it stays that of the journal."""
        old, new = HandWriter(store, name="old"), HandWriter(self.reopen(store), epoch=2)
        old.append(old.state())
        new.append(new.draft("lease"))

        with raises(StaleWriter):
            old.replace(old.state())

        new.replace(new.state())
        assert end(self.reopen(store)).epoch == 2
        with raises(StaleWriter):
            old.append(old.state())

    def test_a_replacement_can_begin_a_run(self, store: Store) -> None:
        """All of a new run appears at once: a copy of another one."""
        writer = HandWriter(store)

        writer.replace(writer.state(), writer.entry(), writer.patch(first=True))

        found = records(self.reopen(store))
        assert [record.seq for record in found] == [1, 2, 3, 4]
        assert found[0].head["prev"] == ""
        assert self.raw_runs(store) == 1
        late = HandWriter(self.reopen(store), name="late")
        with raises(KeyError):
            late.replace(late.state(), decide=refuse(KeyError()))

    def test_notes_of_what_went_go_too(self, store: Store) -> None:
        """Those of the waypoints that stay stay as they are."""
        writer = HandWriter(store)
        for number in (1, 2, 3):
            writer.append(writer.state(), shown=Shown(f"waypoint-{number}.md", f"{number}", None))

        writer.replace(writer.state(), writer.state())

        notes = [store.get_note("run", f"waypoint-{number}.md") for number in (1, 2)]
        assert notes == ["1", "2"]
        assert store.get_note("run", "latest.md") is None
        store.put_note("run", Shown("waypoint-2.md", "2", None))
        assert store.get_note("run", "latest.md") == "2"

    def test_readers_see_the_old_journal_or_the_new_one(self, store: Store) -> None:
        """Replaced again and again under readers: each of them sees one generation, whole."""
        writer = HandWriter(store)
        writer.append(writer.state())
        problems: list[str] = []
        done = threading.Event()

        def read() -> None:
            fresh = self.reopen(store)
            while not done.is_set():
                found = records(fresh)
                marks = {record.head.get("mark") for record in found if record.kind == "entry"}
                count = sum(record.kind == "entry" for record in found)
                if len(marks) > 1 or count not in (0, 3):
                    problems.append(f"{count} entries of {marks}")
                if not fresh.chain("run", 1):
                    problems.append("a waypoint was not there")

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        for mark in range(40):
            entries = [writer.draft("entry", {"mark": mark}) for _ in range(3)]
            writer.replace(writer.state(), *entries)
        done.set()
        for reader in readers:
            reader.join()

        assert problems == []
