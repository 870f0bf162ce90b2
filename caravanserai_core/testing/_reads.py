"""Tests of reading: the end, chains, scans, lists, notes, names, and the exact bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from caravanserai_core.stores.base import Shown
from caravanserai_core.testing._base import (
    Hooks,
    check_chain,
    end,
    records,
    run_id_of,
    without_hint,
)
from caravanserai_core.testing._writer import HOSTILE_IDS, HandWriter

if TYPE_CHECKING:
    from caravanserai_core.stores.base import Store

_BODIES = {
    "empty": b"null",
    "NUL": b'"a\\u0000b"',
    "lone surrogate": b'"\\ud800"',
    "escapes": b'"\\" \\\\ \\n \\u2028 \\u001b[31m"',
    "letters": '{"ключ":"\u00e9 e\u0301 \U0001f42a"}'.encode(),
    "its own words": b'{"sum":"0","loc":1,"state":{"len":[1,2],"data":"}\\n{"}}',
    "key order": b'{"b":1,"a":{"z":1,"y":2}}',
    "numbers": b"[1.0,1,-0.0,1e300,18446744073709551615,1E5]",
    **{f"{size} bytes": b'"%b"' % (b"x" * size) for size in (1011, 1012, 1013, 4096, 65_536)},
    "1 MB": b'"%b"' % (b"0123456789abcdef" * 65_536),
}


class ReadTests(Hooks):
    """What the reading methods promise, after what `append` returned."""

    # ------------------------------------------------------------------ what is not there

    def test_a_run_that_is_not_there(self, store: Store) -> None:
        """Reading it, and deleting it, is no error and creates nothing."""
        assert store.recent("run") is None
        assert store.chain("run", 1) == []
        assert list(store.scan("run", bodies=True)) == []
        assert list(store.listing()) == []
        assert store.get_note("run", "waypoint-1.md") is None
        assert not store.delete("run")
        store.put_note("run", Shown("waypoint-1.md", "text", None))
        assert store.get_note("run", "waypoint-1.md") is None
        assert self.raw_runs(store) == 0

    def test_a_waypoint_that_is_not_there(self, store: Store) -> None:
        """Its chain is empty, for a number too low, too high, and none of the lane's."""
        writer = HandWriter(store)
        writer.append(writer.state(), writer.state())

        assert [store.chain("run", number) for number in (-1, 0, 3, 10)] == [[]] * 4

    # ------------------------------------------------------------------ the end

    def test_the_end_holds_the_chain_of_the_newest_waypoint_and_what_came_since(
        self, store: Store
    ) -> None:
        """One call gives all that a program needs to go on."""
        writer = HandWriter(store)
        writer.append(writer.state(b'{"n":0}'))
        writer.append(writer.state(b'{"n":1}'))
        writer.append(writer.patch(b'[{"op":"test"}]'))
        writer.append(writer.entry(b'"first"'))
        writer.append(writer.entry(b'"second"'))

        recent = self.reopen(store).recent("run")

        assert recent is not None
        assert recent.tail == writer.known
        assert recent.opening.kind == "open"
        assert [r.body for r in recent.chain] == [b'"state":{"n":1}', b'"patch":[{"op":"test"}]']
        assert [r.body for r in recent.since] == [b'"data":"first"', b'"data":"second"']

    def test_a_place_leads_back_to_its_record(self, store: Store) -> None:
        """What `append` returns for a line is where a scan begins and what a hint points to."""
        writer = HandWriter(store)
        places = list(writer.append(writer.state(b'"%b"' % (b"x" * 5000))).places)
        places += writer.append(writer.entry(), writer.entry()).places
        places += writer.append(writer.patch()).places
        fresh = self.reopen(store)

        for index, place in enumerate(places):
            found = [item.seq for item in fresh.scan("run", bodies=False, start=place)]  # type: ignore[union-attr]
            assert found == list(range(index + 1, len(places) + 1))
        assert [record.place for record in records(fresh)] == places

    def test_the_end_of_a_run_without_a_waypoint(self, store: Store) -> None:
        """There is no chain, and the end is right."""
        writer = HandWriter(store)
        writer.append(writer.entry(b"1"))

        recent = self.reopen(store).recent("run")

        assert recent is not None
        assert (recent.tail.seq, recent.chain) == (2, [])

    def test_lanes_have_heads_of_their_own(self, store: Store) -> None:
        """The end follows the lane of the last record; a chain is found by its number."""
        writer = HandWriter(store)
        writer.append(writer.state(b'"main"'))
        writer.append(writer.state(b'"side"', lane="side"))
        fresh = self.reopen(store)

        recent = fresh.recent("run")

        assert recent is not None
        assert [record.lane for record in recent.chain] == ["side"]
        assert [record.body for record in fresh.chain("run", 1)] == [b'"state":"main"']
        assert [record.body for record in fresh.chain("run", 2)] == [b'"state":"side"']

    def test_every_waypoint_has_its_chain(self, store: Store) -> None:
        """A chain begins with a full record and ends with the waypoint, bodies read."""
        writer = HandWriter(store)
        for _ in range(3):
            writer.append(writer.state(b'"%b"' % (b"x" * 2000)))
            writer.append(writer.entry(), writer.patch())
            writer.append(writer.patch())
        fresh = self.reopen(store)

        for number in range(1, 10):
            chain = [r for r in fresh.chain("run", number) if r.kind == "waypoint"]
            first = number - (number - 1) % 3
            assert [record.waypoint for record in chain] == list(range(first, number + 1))
            assert [record.full for record in chain] == [True] + [False] * (number - first)
            assert all(record.body for record in chain)

    # ------------------------------------------------------------------ scans and lists

    def test_a_scan_without_bodies_gives_the_same_heads(self, store: Store) -> None:
        """Heads and sums do not depend on whether bodies are read."""
        writer = HandWriter(store)
        for body in _BODIES.values():
            writer.append(writer.entry(body), writer.state(body))

        heads = records(self.reopen(store), bodies=False)
        whole = records(self.reopen(store), bodies=True)

        assert [(r.head, r.sum, r.place) for r in heads] == [
            (r.head, r.sum, r.place) for r in whole
        ]

    def test_a_list_names_every_run_with_its_beginning_and_end(self, store: Store) -> None:
        """A list needs no state, and is right for large last records too."""
        for size in (10, 1000, 3000, 5000, 2_000_000):
            writer = HandWriter(store, f"run-{size}")
            writer.append(writer.state())
            writer.append(writer.entry(), writer.state(b'"%b"' % (b"x" * size)))

        found = list(self.reopen(store).listing())

        assert sorted(run_id_of(listed) for listed in found) == sorted(
            f"run-{size}" for size in (10, 1000, 3000, 5000, 2_000_000)
        )
        assert len({listed.folder for listed in found}) == 5
        for listed in found:
            assert listed.last is not None
            assert (listed.last.seq, listed.last.waypoint, listed.error) == (4, 2, None)

    # ------------------------------------------------------------------ segments

    def test_after_a_roll_the_run_goes_on_in_a_new_segment(self, store: Store) -> None:
        """The next append begins with `open`, and no number or waypoint is lost."""
        writer = HandWriter(store)
        for _ in range(3):
            writer.append(writer.state())
            writer.append(writer.patch())
            tail = writer.append(writer.draft("roll")).tail
            assert tail.rolled
            assert end(self.reopen(store)) == tail
            writer.append(writer.state(), writer.entry())
        fresh = self.reopen(store)

        found = records(fresh)
        recent = fresh.recent("run")

        assert recent is not None
        assert [r.seq for r in found] == list(range(1, len(found) + 1))
        check_chain(found)
        assert recent.opening.seq == [r.seq for r in found if r.kind == "open"][-1]
        assert recent.tail == writer.known
        assert [fresh.chain("run", n)[-1].waypoint for n in range(1, 10)] == list(range(1, 10))

    def test_news_reaches_over_segments(self, store: Store) -> None:
        """A writer that slept through rolls is given every record since, in order."""
        first, second = HandWriter(store, name="a"), HandWriter(self.reopen(store), name="b")
        first.append(first.state())
        second.known = first.known
        for _ in range(3):
            first.append(first.draft("roll"))
            first.append(first.entry())

        second.append(second.entry())

        news = second.seals[-1][1]
        assert [record.seq for record in news or ()] == list(range(3, 12))
        assert records(store)[-1].by == "b"

    def test_whether_to_roll_is_an_answer(self, store: Store) -> None:
        """A small journal needs no new segment."""
        writer = HandWriter(store)
        tail = writer.append(writer.state()).tail

        assert store.wants_roll(tail, 10) is False

    # ------------------------------------------------------------------ bytes and names

    def test_bodies_come_back_byte_for_byte(self, store: Store) -> None:
        """A store does not parse, order or re-encode what it holds."""
        writer = HandWriter(store)
        for body in _BODIES.values():
            writer.append(writer.state(body))
        fresh = self.reopen(store)

        for number, (name, body) in enumerate(_BODIES.items(), 1):
            assert fresh.chain("run", number)[-1].body == b'"state":' + body, name
        assert [without_hint(line) for line in self.raw_lines(store, "run")] == writer.texts

    def test_heads_come_back_as_they_were(self, store: Store) -> None:
        """A large note and odd fields in a head are the caller's own."""
        fields = {"note": "n" * 200_000, "state": {"sum": "}"}, "Ж": [1, None, "\x00\n"]}
        writer = HandWriter(store)
        writer.append(writer.draft("entry", fields), writer.state())

        record = records(self.reopen(store), bodies=False)[1]

        assert {key: record.head[key] for key in fields} == fields
        assert record.body is None or record.body == b""

    def test_every_string_names_a_run_of_its_own(self, store: Store) -> None:
        """No id escapes, meets another one, or comes back changed from a list."""
        for run_id in HOSTILE_IDS:
            writer = HandWriter(store, run_id, name="one")
            writer.append(writer.state())
        fresh = self.reopen(store)

        assert self.raw_runs(store) == len(HOSTILE_IDS)
        assert sorted(run_id_of(listed) for listed in fresh.listing()) == sorted(HOSTILE_IDS)
        for run_id in HOSTILE_IDS:
            assert end(fresh, run_id).seq == 2
            assert fresh.delete(run_id)
        assert list(fresh.listing()) == []

    # ------------------------------------------------------------------ notes

    def test_a_note_that_comes_with_an_append_is_there_afterwards(self, store: Store) -> None:
        """Under its own name, and as the live note until something follows."""
        writer = HandWriter(store)
        writer.append(writer.state(), shown=Shown("waypoint-1.md", "one \u00e9\n", None))
        assert store.get_note("run", "waypoint-1.md") == "one \u00e9\n"
        assert store.get_note("run", "latest.md") == "one \u00e9\n"

        writer.append(writer.entry(), shown=Shown(None, "", "one, and more\n"))
        assert store.get_note("run", "waypoint-1.md") == "one \u00e9\n"
        assert store.get_note("run", "latest.md") == "one, and more\n"

        writer.append(writer.state(), shown=Shown("waypoint-2.md", "two\n", None))
        fresh = self.reopen(store)
        assert fresh.get_note("run", "waypoint-1.md") == "one \u00e9\n"
        assert fresh.get_note("run", "waypoint-2.md") == "two\n"
        assert fresh.get_note("run", "latest.md") == "two\n"
        assert fresh.get_note("run", "waypoint-3.md") is None

    def test_a_note_is_written_again(self, store: Store) -> None:
        """`put_note` replaces what is there, and adds no record."""
        writer = HandWriter(store)
        writer.append(writer.state(), shown=Shown("waypoint-1.md", "old", None))
        before = self.raw_lines(store, "run")

        store.put_note("run", Shown("waypoint-1.md", "new", "live"))

        fresh = self.reopen(store)
        assert fresh.get_note("run", "waypoint-1.md") == "new"
        assert fresh.get_note("run", "latest.md") == "live"
        assert self.raw_lines(store, "run") == before
