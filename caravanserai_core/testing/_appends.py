"""Tests of appending: all or nothing, compare and append, the three refusals, deletion."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from caravanserai_core.errors import Conflict, StaleWriter
from caravanserai_core.records import Record
from caravanserai_core.stores.base import Shown
from caravanserai_core.testing._base import (
    Hooks,
    check_chain,
    end,
    raises,
    records,
    refuse,
    refuse_news,
    run_id_of,
    without_hint,
)
from caravanserai_core.testing._writer import HandWriter

if TYPE_CHECKING:
    from caravanserai_core.stores.base import Store, Tail


class AppendTests(Hooks):
    """What `append` and `delete` promise."""

    # ------------------------------------------------------------------ appending

    def test_the_lines_are_kept_as_they_were_sealed(self, store: Store) -> None:
        """What lies in the back end is what `seal` returned, with at most a hint behind it."""
        writer = HandWriter(store)

        writer.append(writer.state(b'{"n":1}'))
        writer.append(writer.entry(b"1"), writer.entry(b"2"), writer.state(b'{"n":2}'))

        assert [without_hint(line) for line in self.raw_lines(store, "run")] == writer.texts

    def test_an_append_returns_the_new_end_and_a_place_for_each_line(self, store: Store) -> None:
        """`Appended` is what the next append begins from."""
        writer = HandWriter(store)

        appended = writer.append(writer.state(), writer.entry())

        assert len(appended.places) == 3
        assert (appended.tail.seq, appended.tail.epoch, appended.tail.rolled) == (3, 1, False)
        assert end(self.reopen(store)) == appended.tail

    def test_numbers_are_dense(self, store: Store) -> None:
        """Appends of any size, by two writers in turn, leave no gap and nothing twice."""
        writers = [HandWriter(store, name="a"), HandWriter(self.reopen(store), name="b")]

        for count in range(1, 8):
            writer = writers[count % 2]
            writer.append(*(writer.entry() for _ in range(count)))

        assert [record.seq for record in records(store)] == list(range(1, 30))
        check_chain(records(store))

    def test_what_seal_raises_leaves_nothing(self, store: Store) -> None:
        """An append that was given up changes no byte."""
        writer = HandWriter(store)
        writer.append(writer.state())
        before = self.raw_lines(store, "run")

        with raises(KeyError):
            writer.append(writer.state(), decide=refuse(KeyError("given up")))

        assert self.raw_lines(store, "run") == before
        writer.append(writer.entry())
        assert len(self.raw_lines(store, "run")) == len(before) + 1

    def test_a_first_append_that_is_given_up_leaves_no_run(self, store: Store) -> None:
        """A run exists from its first record on."""
        writer = HandWriter(store)

        with raises(KeyError):
            writer.append(writer.state(), decide=refuse(KeyError("given up")))

        assert store.recent("run") is None
        assert list(self.reopen(store).listing()) == []
        assert list(store.scan("run", bodies=True)) == []

    def test_writers_at_once_lose_nothing(self, store: Store) -> None:
        """Threads that append to one run put no two records under one number."""
        problems: list[BaseException] = []

        def work(name: str) -> None:
            try:
                writer = HandWriter(self.reopen(store), name=name)
                for _ in range(10):
                    writer.append(writer.entry(), writer.entry())
            except BaseException as problem:  # noqa: BLE001 - shown by the assertion below
                problems.append(problem)

        threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert problems == []
        found = records(store)
        assert [record.seq for record in found] == list(range(1, 122))
        check_chain(found)

    # ------------------------------------------------------------------ not waiting for the disk

    def test_what_was_not_waited_for_is_seen_at_once(self, store: Store) -> None:
        """Without `sync` an append is there for every reader and writer, like any other."""
        writer, other = HandWriter(store), HandWriter(self.reopen(store), name="o")
        writer.append(writer.state())
        other.known = writer.known

        tail = writer.append(writer.entry(), writer.entry(), sync=False).tail

        assert end(self.reopen(store)) == tail
        assert [record.seq for record in records(self.reopen(store))] == [1, 2, 3, 4]
        other.append(other.entry())
        assert [record.seq for record in other.seals[-1][1] or ()] == [3, 4]
        check_chain(records(store))

    def test_what_begins_a_run_or_ends_a_segment_is_durable(self, store: Store) -> None:
        """`Appended` says so, and `sync` makes the rest durable."""
        writer = HandWriter(store)

        assert writer.append(writer.state(), sync=False).durable
        middle = writer.append(writer.entry(), sync=False)
        assert writer.append(writer.draft("roll"), sync=False).durable
        assert writer.append(writer.state(), sync=False).durable
        last = writer.append(writer.entry(), sync=False)

        for appended in (middle, last):
            assert store.sync("run", appended.tail) is None  # type: ignore[func-returns-value]
        assert writer.append(writer.entry()).durable
        check_chain(records(self.reopen(store)))

    def test_there_is_nothing_to_sync_in_a_deleted_run(self, store: Store) -> None:
        """It is no error, and does not bring the run back."""
        writer = HandWriter(store)
        writer.append(writer.state())
        tail = writer.append(writer.entry(), sync=False).tail
        self.reopen(store).delete("run")

        store.sync("run", tail)

        assert store.recent("run") is None
        assert self.raw_runs(store) == 0

    # ------------------------------------------------------------------ compare and append

    def test_seal_is_given_the_end_it_knows_and_no_news(self, store: Store) -> None:
        """A writer that is alone is told nothing new."""
        writer = HandWriter(store)
        tail = writer.append(writer.state()).tail

        writer.append(writer.entry())

        assert writer.seals[0] == (None, [])
        assert writer.seals[-1] == (tail, [])

    def test_news_comes_in_order_and_complete(self, store: Store) -> None:
        """A writer whose tail is old is given every record since, and the end they lead to."""
        first, second = HandWriter(store, name="a"), HandWriter(self.reopen(store), name="b")
        first.append(first.state())
        second.known = first.known
        first.append(first.entry(), first.entry())
        tail = first.append(first.state()).tail

        second.append(second.entry())

        actual, news = second.seals[-1]
        assert actual == tail
        assert [(r.seq, r.kind, r.by) for r in news or ()] == [
            (3, "entry", "a"),
            (4, "entry", "a"),
            (5, "waypoint", "a"),
        ]

    def test_a_benign_change_is_sealed_against_the_new_end(self, store: Store) -> None:
        """Both appends are there, and the later one builds on the earlier one."""
        first, second = HandWriter(store, name="a"), HandWriter(self.reopen(store), name="b")
        first.append(first.state())
        second.known = first.known
        first.append(first.entry())

        second.append(second.entry())

        found = records(self.reopen(store))
        assert [(r.seq, r.by) for r in found] == [(1, "a"), (2, "a"), (3, "a"), (4, "b")]
        check_chain(found)

    def test_a_conflict_that_seal_finds_writes_nothing(self, store: Store) -> None:
        """What `seal` raises reaches the caller, and the journal is as it was."""
        first, second = HandWriter(store, name="a"), HandWriter(self.reopen(store), name="b")
        first.append(first.state())
        second.known = first.known
        first.append(first.state())
        before = self.raw_lines(store, "run")

        def decide(_tail: Tail | None, news: list[Record] | None) -> None:
            if any(record.kind == "waypoint" for record in news or ()):
                raise Conflict("somebody else was here")

        with raises(Conflict):
            second.append(second.state(), decide=decide)

        assert self.raw_lines(store, "run") == before

    def test_a_writer_with_an_old_epoch_is_refused_before_seal(self, store: Store) -> None:
        """`StaleWriter` comes from the store, whatever the writer would have decided."""
        old, new = HandWriter(store, name="old"), HandWriter(self.reopen(store), epoch=2)
        old.append(old.state())
        new.append(new.draft("lease"))
        before, asked = self.raw_lines(store, "run"), len(old.seals)

        with raises(StaleWriter):
            old.append(old.state())
        late = HandWriter(self.reopen(store), name="late")
        with raises(StaleWriter):
            late.append(late.state())

        assert all(news == [] for _, news in old.seals[asked:])  # before it was compared
        assert late.seals == []
        assert self.raw_lines(store, "run") == before
        new.append(new.entry())
        assert end(store).epoch == 2

    def test_an_epoch_outlives_the_end_of_its_segment(self, store: Store) -> None:
        """A stale writer is refused also where the lease lies in an earlier segment."""
        old, new = HandWriter(store, name="old"), HandWriter(self.reopen(store), epoch=3)
        old.append(old.state())
        new.append(new.draft("lease"))
        new.append(new.draft("roll"))
        new.append(new.state())
        new.append(new.entry())

        with raises(StaleWriter):
            old.append(old.state())
        assert end(self.reopen(store)).epoch == 3

    def test_a_writer_that_knows_nothing_is_told_that_a_run_began(self, store: Store) -> None:
        """News is None where the journal is not the one the writer knows."""
        first, late = HandWriter(store), HandWriter(self.reopen(store))
        tail = first.append(first.state()).tail

        with raises(KeyError):
            late.append(late.state(), decide=refuse(KeyError()))

        assert late.seals == [(tail, None)]

    # ------------------------------------------------------------------ deletion

    def test_a_deleted_run_is_gone(self, store: Store) -> None:
        """Nothing of it is left, and the other runs are untouched."""
        one, two = HandWriter(store, "one"), HandWriter(store, "two")
        note = Shown("waypoint-1.md", "text", None)
        one.append(one.state(), shown=note)
        two.append(two.state(), shown=note)

        assert store.delete("one")

        fresh = self.reopen(store)
        assert fresh.recent("one") is None
        assert fresh.chain("one", 1) == []
        assert fresh.get_note("one", "waypoint-1.md") is None
        assert [run_id_of(listed) for listed in fresh.listing()] == ["two"]
        assert self.raw_runs(store) == 1
        assert not fresh.delete("one")

    def test_a_writer_of_a_deleted_run_is_told(self, store: Store) -> None:
        """It finds nothing and no news; giving up, it does not bring the run back."""
        writer = HandWriter(store)
        writer.append(writer.state())
        self.reopen(store).delete("run")

        with raises(KeyError):
            writer.append(writer.state(), decide=refuse_news(KeyError()))

        assert writer.seals[-1] == (None, None)
        assert store.recent("run") is None
        assert self.raw_runs(store) == 0

    def test_a_writer_of_a_deleted_run_is_told_that_another_began(self, store: Store) -> None:
        """Its records do not land in a run of the same name that is not the one it knows."""
        writer, other = HandWriter(store, name="a"), HandWriter(self.reopen(store), name="b")
        writer.append(writer.state(b'{"of":"a"}'))
        self.reopen(store).delete("run")
        tail = other.append(other.state(b'{"of":"b"}')).tail

        with raises(KeyError):
            writer.append(writer.state(), decide=refuse_news(KeyError()))

        assert writer.seals[-1] == (tail, None)
        assert {record.by for record in records(store)} == {"b"}
