"""The contract of a store: where the journals of runs live.

A store keeps, for each run, one append-only list of records, and knows nothing of what is in
them beyond their heads. What it promises:

* **All of it or nothing.** An append of several records is seen whole or not at all, by every
  reader and after a crash at any moment.
* **Compare and append.** `append` is the only way to add. It is handed the tail that the
  writer knows; if that is no longer the end of the journal, the writer's `seal` function is
  given what came since and decides. Two writers never put two records under one number.
* **Fenced.** A writer whose epoch is lower than the journal's is refused with `StaleWriter`,
  before `seal` is told any news, and nothing of its append is written.
* **One owner, if it says so.** `hold` gives a run to one process at a time, as long as that lives;
  `take_over` takes it from a living one, on purpose, and raises the epoch. Neither is needed to
  append: a writer without a lease gives `ANY_EPOCH`, and notices others by their waypoints.
* **Durable.** When `append` returns, a crash of the machine does not lose it - unless it was asked
  not to wait for that (`sync=False`): then a crash of the process does not, and a crash of the
  machine may, until `sync` or any later append of that run has returned.
* **Readers never repair** and never block a writer. What a writer left half done is not there.
* **Notes are derived.** A store holds them beside the journal so that a person can read them
  with the tools at hand. Their loss or delay is never an error.

Three kinds of refusal, and who tells them apart: *fenced* (the store, by the epoch), *conflict*
(`seal` raises `Conflict`: the news holds a waypoint of somebody else on this lane) and *benign*
(`seal` seals against the new tail: answers, pins, entries of other tasks).

A back end with transactions seals first against the last tail it saw and calls `seal` again
only when its compare step fails, so an append stays one round trip; a file store calls it under
the lock. `seal` must therefore be callable more than once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from caravanserai_core.errors import JournalDamaged, StaleWriter
from caravanserai_core.quoting import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping

    from caravanserai_core.records import Record
    from caravanserai_core.stores.owners import Hold, Holder, Lapsed

    Salvage = Callable[[Iterator["Record | Bad"]], "Sealed"]

SELF: Final = object()
"""A line whose `loc` is its own place."""


ANY_EPOCH: Final = 1 << 62
"""The epoch of a writer that holds no lease: it is never stale."""


class Within(NamedTuple):
    """A `loc` that is the place of another line of the same append, before it.

    Attributes:
        line: which one, from 0.
    """

    line: int


class Tail(NamedTuple):
    """The end of a run's journal.

    Attributes:
        seq: number of the last record.
        sum: its sum.
        epoch: the highest epoch in the journal.
        rolled: the last record closes its segment; the next append begins a new one with
            `open` and `snapshot`.
        token: where that is; only the store knows what it means.
    """

    seq: int
    sum: str
    epoch: int
    rolled: bool
    token: Any


class Bad(NamedTuple):
    """A stretch of a journal that holds no whole record.

    Attributes:
        path: the file, or the run's name.
        offset: byte offset where it begins.
        size: its length in bytes.
        complete: it ends like a line and holds no NUL byte: no crash leaves that behind.
        why: what is wrong with it.
    """

    path: str
    offset: int
    size: int
    complete: bool
    why: str


def damage_error(path: str, offset: int | None, why: str, last: int) -> JournalDamaged:
    """Build the error for a damaged journal.

    Args:
        path: the file, or the run's name.
        offset: byte offset where the damage begins, if that is known.
        why: what is wrong there.
        last: the last whole waypoint before it, 0 for none.
    """
    at = "" if offset is None else f" at byte {offset}"
    whole = (
        f"Every waypoint up to {last} is whole." if last else "No whole waypoint comes before it."
    )
    return JournalDamaged(
        f"the journal {visible(path)} is damaged{at}: {why}. {whole} `caravanserai verify` tells "
        "all that is wrong; with --repair it keeps each waypoint, step and answer that still "
        "loads, and the run goes on. The damaged bytes stay.",
        path=path,
        offset=offset,
        last_waypoint=last or None,
    )


def refuse_stale(run_id: str, tail: Tail | None, epoch: int) -> None:
    """Refuse a writer from which the run was taken over.

    Args:
        run_id: the run.
        tail: the end of its journal; None: there is none.
        epoch: the writer's epoch.

    Raises:
        StaleWriter: the journal's epoch is higher.
    """
    if tail is not None and tail.epoch > epoch:
        raise StaleWriter(
            f"run {visible(run_id)}: a writer with epoch {tail.epoch} took it over; this one has "
            f"epoch {epoch} and may not write any more. Nothing was written."
        )


class Line(NamedTuple):
    """A sealed record on its way into the store.

    Attributes:
        text: the line up to and including its sum, without the closing brace.
        loc: the hint that goes behind it: `SELF` for a full waypoint, for another waypoint the
            `place` of the full record it builds on, for any other record that of the newest
            waypoint of its lane (either may be a `Within`); None where there is none. It saves a
            search, and nothing depends on it: it is outside the sum.
    """

    text: bytes
    loc: Any


class Shown(NamedTuple):
    """What a person is to see beside the journal after an append.

    Attributes:
        name: name of a note, `waypoint-3.md`, or None if there is no new one.
        text: the note's text.
        live: text of `latest.md`, or None where it shows the note `name` unchanged.
    """

    name: str | None
    text: str
    live: str | None


class Sealed(NamedTuple):
    """What `seal` returns.

    Attributes:
        lines: the lines of the append, in order.
        seq: number of the last one.
        sum: its sum.
        epoch: the journal's epoch after the append. Where it is above 1, the head of the last
            line says it too, as `epoch`: that is how another process learns of it.
        rolled: the last one is a `roll`.
        shown: what a person is to see for it.
        notes: the text of notes that waited since their own appends, by name.
    """

    lines: list[Line]
    seq: int
    sum: str
    epoch: int
    rolled: bool
    shown: Shown | None
    notes: Mapping[str, str] = {}


class Appended(NamedTuple):
    """What an append returns.

    Attributes:
        tail: the new end of the journal.
        places: the place of each line, in order.
        durable: whether a crash of the machine leaves it, and all before it, as it is.
    """

    tail: Tail
    places: list[Any]
    durable: bool = True


class Recent(NamedTuple):
    """The end of a journal, with what is needed to rebuild the newest state of its last lane.

    Attributes:
        tail: the end.
        last: the last record, with its body.
        opening: the `open` record of the last segment.
        chain: records from a full waypoint to the newest one of the last record's lane, each
            with its body; empty where that lane has none in this segment.
        since: all records after that waypoint, with bodies.
    """

    tail: Tail
    last: Record
    opening: Record
    chain: list[Record]
    since: list[Record]


class Listed(NamedTuple):
    """One run of a store, as a list needs it: no state is read.

    Attributes:
        folder: name of the run's folder or key.
        opening: its `open` record, or None if that cannot be read.
        last: its last record, without its body.
        error: what is wrong with the journal, or None.
        legacy: the folder was written by release 0.2.0 and has no journal yet.
        held: whether a living process works on it, where the store has that at hand.
    """

    folder: str
    opening: Record | None
    last: Record | None
    error: str | None
    legacy: bool = False
    held: bool | None = None


class Store(ABC):
    """Where journals live. See the module's docstring for what every store promises."""

    max_chain: int | None = None
    """Most records that a reader may need for one state; None: bounded by bytes alone."""

    is_far: bool = False
    """Whether an append waits much longer than it computes, so that many are to be under way."""

    lapses: float | None = None
    """Seconds without a sign of life after which a run may be taken from its owner; None: the
    store sees at once whether that is alive."""

    keep: int | None = None
    """How many of the newest waypoints of each run stay; None: all. Runs prune themselves."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The address that `open_store` opens again."""

    @property
    def name(self) -> str:
        """The address as it may be shown: without a password."""
        return self.url

    @property
    def key(self) -> object:
        """Two stores with equal keys hold the same runs."""
        return self.url

    @abstractmethod
    def where(self, run_id: str) -> str:
        """Say in words where the run lies, for messages and lists."""

    @abstractmethod
    def append(
        self,
        run_id: str,
        known: Tail | None,
        epoch: int,
        seal: Callable[[Tail | None, list[Record] | None], Sealed],
        *,
        sync: bool = True,
    ) -> Appended:
        """Add records at the end of a run's journal, all or none, durably.

        Args:
            run_id: the run; it is created if it does not exist.
            known: the tail that the writer last saw, or None if it saw no journal.
            epoch: the writer's epoch.
            seal: called with the actual tail (None: no journal) and the records after `known`
                in order, heads at least; with None in their place where `known` is not part
                of this journal (it was deleted, or began in between). Returns the lines, or
                raises, and then nothing is written. May be called more than once.
            sync: wait until it is durable. Without, it is seen by every reader at once and
                outlives the process, not the machine. Durable all the same is an append that
                begins a run or a segment, or ends one; a store where waiting costs nothing
                takes no notice. An append with `sync` makes those before it durable too.

        Raises:
            StaleWriter: the journal's epoch is higher than `epoch`.
            StoreBusy: another process held the run for too long.
            StoreFailed: the disk refused; the journal is as it was. Or a server gave no answer:
                then the message says that it is not known whether the append arrived.
            StoreRefused: the run's folder cannot be used safely.
            JournalDamaged: the journal is damaged; nothing is written over it.
        """

    def sync(self, run_id: str, tail: Tail) -> None:  # noqa: B027 - nothing to do is a right answer
        """Make everything up to `tail` durable, where it was appended without.

        Nothing is to be done where the run was deleted or replaced since: what `replace` keeps is
        durable. Stores that make each append durable have nothing to do.

        Raises:
            StoreFailed: the disk did not keep it. What was not durable before may be gone from
                the journal, now or after a crash; what was durable stands.
            StoreBusy: another process held the run for too long.
        """

    @abstractmethod
    def replace(
        self,
        run_id: str,
        known: Tail | None,
        epoch: int,
        seal: Callable[[Tail | None, list[Record] | None], Sealed],
    ) -> Appended:
        """Put other records in the place of all that a run's journal holds, at once, durably.

        The only way in which anything is removed from a journal. Every reader sees the old
        journal or the new one, whole, and so does whoever comes after a crash. Notes of waypoints
        that are no longer there go too, and so does the live note.

        Args:
            run_id: the run; it is created if it does not exist.
            known: the tail that the writer last saw, or None if it saw no journal.
            epoch: the writer's epoch.
            seal: called as by `append`, and may raise as there. Returns all lines of the new
                journal. The first is an `open` whose `generation` is one higher than that of the
                journal it replaces, and whose `seq` and `prev` go on from its end; that is how
                a writer with an old tail is told from others. Each line may be an append of its
                own. Not called again once the journal is replaced.

        Raises:
            StaleWriter, StoreBusy, StoreRefused, JournalDamaged: as `append`.
            StoreFailed: the disk refused. The journal is as it was; or, where the last step of
                all was refused, replaced, and another crash may undo that.
        """

    @abstractmethod
    def mend(self, run_id: str, seal: Salvage, damaged: Container[str]) -> list[str]:
        """Put other records in the place of a damaged journal, as `replace` does.

        What is damaged is kept beside it, durably, before the new journal takes its place; notes
        stay as they are. For a person who asked for it: nothing is compared.

        Args:
            run_id: the run; it exists.
            seal: called while nobody can write, with all that can be read of the run, also behind
                what is missing; returns all lines of the new journal.
            damaged: where the damage is, as `Bad.path` and `place_of` name it.

        Returns:
            Where the damaged parts are now.

        Raises:
            StoreFailed, StoreBusy, StoreRefused: nothing was changed.
        """

    @abstractmethod
    def hold(self, run_id: str, known: Tail | None, holder: Holder) -> Hold | None:
        """Become the one who works on a run, if nobody does.

        The lease is this process's until it is released, and no longer than the process lives: a
        store on one machine sees at once that its owner is dead, by whatever end, and takes no
        process id and no clock as proof of life. A forked child does not hold what its parent
        holds. Nothing is written to the journal, and nothing is synced but the folder of a run
        that is new.

        What keeps two owners apart in the end is not this but the epoch: see `take_over`.

        Args:
            run_id: the run; what the lease needs is created if it does not exist.
            known: the tail that its owner is going to write after, or None for a new run.
            holder: what others are told.

        Returns:
            The lease, or None where the journal does not end with `known`: look again.

        Raises:
            RunBusy: it is held, by another process or by this one.
            Lapsed: it is held by one that is not alive any more, or gives no sign of it, where the
                store cannot know that nothing more comes from it: take it over.
            StoreFailed, StoreBusy, StoreRefused, JournalDamaged: as `append`.
        """

    @abstractmethod
    def take_over(
        self,
        run_id: str,
        known: Tail | None,
        holder: Holder,
        seal: Callable[[Tail | None, list[Record] | None], Sealed],
        *,
        lapsed: Lapsed | None = None,
    ) -> tuple[Appended, Hold]:
        """Become the one who works on a run, whoever does, and fence who did.

        Args:
            run_id: the run.
            known: as in `append`.
            holder: as in `hold`; its epoch is that of what `seal` returns.
            seal: as in `append`. The append raises the journal's epoch by one, so that whoever
                held the run before is a stale writer from now on.
            lapsed: take it only from the owner whose lease lapsed, as `hold` said.

        Returns:
            What `append` returns, and the lease. If the process dies before that, either nothing
            has happened, or the old owner is fenced, and nobody or the old owner holds the run.

        Raises:
            RunBusy: somebody else was faster, or the owner of the lapsed lease lives after all.
            StoreFailed, StoreBusy, StoreRefused, JournalDamaged: as `append`.
        """

    @abstractmethod
    def holder(self, run_id: str) -> Holder | None:
        """Say who works on a run, this process or another living one; None: nobody.

        Changes nothing, costs little, and asks for no run that exists.
        """

    def wants_roll(self, tail: Tail, size: int) -> bool:
        """Say whether a full record of `size` bytes should begin a new segment."""
        return False

    @abstractmethod
    def recent(self, run_id: str) -> Recent | None:
        """Return the end of the journal, or None where there is no such run.

        Raises:
            JournalDamaged: the end is damaged; the message names the last whole waypoint.
        """

    @abstractmethod
    def chain(self, run_id: str, waypoint: int) -> list[Record]:
        """Return the records, with bodies, from a full one to waypoint `waypoint`.

        Empty where the run has no such waypoint. Records of other lanes may stand in between.
        """

    @abstractmethod
    def scan(self, run_id: str, *, bodies: bool, start: Any = None) -> Iterator[Record | Bad]:
        """Yield every record of the journal in order, and what is not one.

        Args:
            run_id: the run; nothing is yielded where it does not exist.
            bodies: whether large bodies are read.
            start: the `place` of the first record wanted, or None for all.
        """

    @abstractmethod
    def listing(self) -> Iterator[Listed]:
        """Yield the runs of the store in no particular order, without reading states."""

    @abstractmethod
    def put_note(self, run_id: str, shown: Shown) -> None:
        """Write notes beside the journal again, where they are missing or stale."""

    @abstractmethod
    def put_notes(self, run_id: str, known: Tail, notes: Mapping[str, str], latest: Shown) -> None:
        """Write notes beside the journal that wait since their records were appended.

        Args:
            run_id: the run.
            known: a tail of the journal that they belong to; where the journal is another by
                now, because it was deleted, nothing is written.
            notes: the text of each by its name.
            latest: what is newest; left out where somebody else wrote on since.
        """

    @abstractmethod
    def get_note(self, run_id: str, name: str) -> str | None:
        """Return the text of a note as it stands beside the journal, or None."""

    @abstractmethod
    def delete(self, run_id: str) -> bool:
        """Remove a run. A writer that still knows its tail is refused afterwards.

        Returns:
            Whether there was anything to remove.

        Raises:
            RunBusy: another process works on it; nothing was removed.
        """

    def place_of(self, run_id: str, record: Record) -> tuple[str, int]:
        """Say in which file, at which byte, a record of this store lies; for messages."""
        return self.where(run_id), 0

    def size(self, folder: str) -> int | None:
        """Return how many bytes a listed run takes, or None where the store cannot tell."""
        return None

    def close(self) -> None:  # noqa: B027 - most stores have nothing open
        """Give back what the store has open; the next use opens it again."""

    def legacy(self, run_id: str) -> Any:
        """Return what release 0.2.0 left of this run, or None."""
        return None
