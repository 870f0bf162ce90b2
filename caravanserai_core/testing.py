"""The promises of a store as tests, for whoever writes one. Needs pytest, which is not installed along.

    class TestMyStore(StoreTests):
        @pytest.fixture
        def store(self, tmp_path):
            return MyStore(tmp_path / "runs")

        def reopen(self, store):
            return MyStore(store.url)

        def raw_lines(self, store, run_id):
            return (folder / run_id).read_bytes().splitlines()

        def raw_runs(self, store):
            return len(list(folder.iterdir()))

The `raw_…` methods look at what the back end holds without the store under test, so that it
cannot vouch for itself. The records are sealed by hand here: no journal is needed.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from caravanserai_core.errors import Conflict, StaleWriter
from caravanserai_core.records import Draft, Record
from caravanserai_core.stores.base import SELF, Bad, Line, Sealed, Shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from caravanserai_core.stores.base import Appended, Store, Tail

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

    def open(self) -> Draft:
        """Draft the record that a segment begins with."""
        body = b'"data":{"run_id":%b}' % _json(self.run_id)
        fields = {"format": 1, "generation": 1, "epoch": self.epoch}
        return Draft("open", fields, by=self.name, body=body)

    def state(self, state: bytes = b"{}", *, lane: str = "") -> Draft:
        """Draft a waypoint that holds its whole state, given as JSON."""
        return Draft("waypoint", {"note": ""}, by=self.name, lane=lane, body=b'"state":' + state)

    def patch(self, patch: bytes = b"[]") -> Draft:
        """Draft a waypoint that builds on the one before it."""
        fields = {"note": "", "base": self.newest, "full": self.full[0]}
        return Draft("waypoint", fields, by=self.name, body=b'"patch":' + patch)

    def entry(self, data: bytes = b"null", *, lane: str = "", kind: str = "entry") -> Draft:
        """Draft a record between two waypoints."""
        return Draft(kind, {"name": "e"}, by=self.name, lane=lane, body=b'"data":' + data)

    def append(
        self, *drafts: Draft, decide: Decide | None = None, shown: Shown | None = None
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
        appended = self.store.append(self.run_id, self.known, self.epoch, seal)
        self.texts += texts
        self.known = appended.tail
        for draft, place in zip(reversed(drafts), reversed(appended.places), strict=False):
            if draft.body.startswith(b'"state":'):
                self.full = (appended.tail.seq, place)
                break
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
            lines.append(Line(text, SELF if whole else self.full[1]))
        self.newest = number
        epoch = max(self.epoch, tail.epoch if tail is not None else 1)
        rolled = drafts[-1].kind == "roll"
        return Sealed(lines, first + len(drafts) - 1, prev, epoch, rolled, shown)


class StoreTests:
    """Tests that every store passes. A subclass gives the fixture `store` and three methods."""

    def reopen(self, store: Store) -> Store:
        """Return the same runs as another process would open them."""
        raise NotImplementedError

    def raw_lines(self, store: Store, run_id: str) -> list[bytes]:
        """Return the lines of a run as they lie in the back end, without line ends."""
        raise NotImplementedError

    def raw_runs(self, store: Store) -> int:
        """Return how many runs the back end holds."""
        raise NotImplementedError

    # ------------------------------------------------------------------ appending

    def test_the_lines_are_kept_as_they_were_sealed(self, store: Store) -> None:
        """What lies in the back end is what `seal` returned, with at most a hint behind it."""
        writer = HandWriter(store)

        writer.append(writer.state(b'{"n":1}'))
        writer.append(writer.entry(b"1"), writer.entry(b"2"), writer.state(b'{"n":2}'))

        assert [_without_hint(line) for line in self.raw_lines(store, "run")] == writer.texts

    def test_an_append_returns_the_new_end_and_a_place_for_each_line(self, store: Store) -> None:
        """`Appended` is what the next append begins from."""
        writer = HandWriter(store)

        appended = writer.append(writer.state(), writer.entry())

        assert len(appended.places) == 3
        assert (appended.tail.seq, appended.tail.epoch, appended.tail.rolled) == (3, 1, False)
        assert _end(self.reopen(store)) == appended.tail

    def test_numbers_are_dense(self, store: Store) -> None:
        """Appends of any size, by two writers in turn, leave no gap and nothing twice."""
        writers = [HandWriter(store, name="a"), HandWriter(self.reopen(store), name="b")]

        for count in range(1, 8):
            writer = writers[count % 2]
            writer.append(*(writer.entry() for _ in range(count)))

        assert [record.seq for record in _records(store)] == list(range(1, 30))
        _check_chain(_records(store))

    def test_what_seal_raises_leaves_nothing(self, store: Store) -> None:
        """An append that was given up changes no byte."""
        writer = HandWriter(store)
        writer.append(writer.state())
        before = self.raw_lines(store, "run")

        with _raises(KeyError):
            writer.append(writer.state(), decide=_refuse(KeyError("given up")))

        assert self.raw_lines(store, "run") == before
        writer.append(writer.entry())
        assert len(self.raw_lines(store, "run")) == len(before) + 1

    def test_a_first_append_that_is_given_up_leaves_no_run(self, store: Store) -> None:
        """A run exists from its first record on."""
        writer = HandWriter(store)

        with _raises(KeyError):
            writer.append(writer.state(), decide=_refuse(KeyError("given up")))

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
        records = _records(store)
        assert [record.seq for record in records] == list(range(1, 122))
        _check_chain(records)

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

        records = _records(self.reopen(store))
        assert [(r.seq, r.by) for r in records] == [(1, "a"), (2, "a"), (3, "a"), (4, "b")]
        _check_chain(records)

    def test_a_conflict_that_seal_finds_writes_nothing(self, store: Store) -> None:
        """What `seal` raises reaches the caller, and the journal is as it was."""
        first, second = HandWriter(store, name="a"), HandWriter(self.reopen(store), name="b")
        first.append(first.state())
        second.known = first.known
        first.append(first.state())
        before = self.raw_lines(store, "run")

        def decide(tail: Tail | None, news: list[Record] | None) -> None:
            if any(record.kind == "waypoint" for record in news or ()):
                raise Conflict("somebody else was here")

        with _raises(Conflict):
            second.append(second.state(), decide=decide)

        assert self.raw_lines(store, "run") == before

    def test_a_writer_with_an_old_epoch_is_refused_before_seal(self, store: Store) -> None:
        """`StaleWriter` comes from the store, whatever the writer would have decided."""
        old, new = HandWriter(store, name="old"), HandWriter(self.reopen(store), epoch=2)
        old.append(old.state())
        lease = Draft("lease", {"epoch": 2}, by="new")
        new.append(lease)
        before, asked = self.raw_lines(store, "run"), len(old.seals)

        with _raises(StaleWriter):
            old.append(old.state())
        late = HandWriter(self.reopen(store), name="late")
        with _raises(StaleWriter):
            late.append(late.state())

        assert len(old.seals) == asked
        assert late.seals == []
        assert self.raw_lines(store, "run") == before
        new.append(new.entry())
        assert _end(store).epoch == 2

    def test_an_epoch_outlives_the_end_of_its_segment(self, store: Store) -> None:
        """A stale writer is refused also where the lease lies in an earlier segment."""
        old, new = HandWriter(store, name="old"), HandWriter(self.reopen(store), epoch=3)
        old.append(old.state())
        new.append(Draft("lease", {"epoch": 3}, by="new"))
        new.append(Draft("roll", {}, by="new"))
        new.append(new.state())
        new.append(new.entry())

        with _raises(StaleWriter):
            old.append(old.state())
        assert _end(self.reopen(store)).epoch == 3

    def test_a_writer_that_knows_nothing_is_told_that_a_run_began(self, store: Store) -> None:
        """News is None where the journal is not the one the writer knows."""
        first, late = HandWriter(store), HandWriter(self.reopen(store))
        tail = first.append(first.state()).tail

        with _raises(KeyError):
            late.append(late.state(), decide=_refuse(KeyError()))

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
        assert [_run_id(listed) for listed in fresh.listing()] == ["two"]
        assert self.raw_runs(store) == 1
        assert not fresh.delete("one")

    def test_a_writer_of_a_deleted_run_is_told(self, store: Store) -> None:
        """It finds nothing and no news; giving up, it does not bring the run back."""
        writer = HandWriter(store)
        writer.append(writer.state())
        self.reopen(store).delete("run")

        with _raises(KeyError):
            writer.append(writer.state(), decide=_refuse(KeyError()))

        assert writer.seals[-1] == (None, None)
        assert store.recent("run") is None
        assert self.raw_runs(store) == 0

    def test_a_writer_of_a_deleted_run_is_told_that_another_began(self, store: Store) -> None:
        """Its records do not land in a run of the same name that is not the one it knows."""
        writer, other = HandWriter(store, name="a"), HandWriter(self.reopen(store), name="b")
        writer.append(writer.state(b'{"of":"a"}'))
        self.reopen(store).delete("run")
        tail = other.append(other.state(b'{"of":"b"}')).tail

        with _raises(KeyError):
            writer.append(writer.state(), decide=_refuse(KeyError()))

        assert writer.seals[-1] == (tail, None)
        assert {record.by for record in _records(store)} == {"b"}
