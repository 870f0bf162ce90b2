"""A run for frameworks that save from many threads and tasks at once.

A save takes its place in the run's queue at one moment, on the caller's side, and is waited for
at another, or by somebody else. `Run` is the same for programs that save and wait.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai_core import codec, questions, renderer, survey
from caravanserai_core.doing import Inside
from caravanserai_core.errors import Conflict
from caravanserai_core.importing import refuse_work
from caravanserai_core.jobs import Alone
from caravanserai_core.journal import journal_for
from caravanserai_core.notes import Note
from caravanserai_core.ownership import Ownership, owning
from caravanserai_core.piece import Piece
from caravanserai_core.schema import FIRST
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import TypeVar

    from caravanserai_core.compaction import Keep
    from caravanserai_core.journal import Journal
    from caravanserai_core.lane import Prepared
    from caravanserai_core.pending import Pending
    from caravanserai_core.records import Record
    from caravanserai_core.schema import Schema
    from caravanserai_core.stores.base import Store

    T = TypeVar("T")


class Started:
    """Work in a worker thread; await it, or leave it to itself.

    Args:
        work: what is done.
        few: see `in_thread`.
    """

    def __init__(self, work: Callable[[], Any], *, few: bool = False) -> None:
        self._future = in_thread(work, few=few)

    def __await__(self) -> Generator[Any, None, Any]:
        return wait_for(self._future).__await__()


class Queued:
    """A save that has its place in the queue. One of these two sees to it that it is done."""

    def __init__(self, journal: Journal, work: Callable[[], Any]) -> None:
        self._journal = journal
        self._turn = journal.turns.take(work)

    def result(self) -> Any:
        """Do it, and what was queued before it, and return its result or raise its error."""
        return self._journal.turns.finish(self._turn)

    def start(self, finish: Callable[[], Any] | None = None) -> Started:
        """Do it in a worker thread, at once.

        Args:
            finish: called there in place of `result`, which it calls in turn.
        """
        return Started(finish or self.result, few=not self._journal.store.is_far)


class Waiting:
    """An entry that waits for the next record of its run, which takes it along.

    Attributes:
        piece: the entry.
        number: how many entries there were of the run with it.
        written: set when it stands in the journal.
        pid: the process it belongs to; a forked child does not write it.
    """

    def __init__(self, run: Pipeline, piece: Piece) -> None:
        self.piece = piece
        self.number = 0
        self.written = threading.Event()
        self.pid = os.getpid()
        self._run = run
        self._wake: Callable[[], object] | None = None

    def arrived(self) -> None:
        """Say that it stands in the journal."""
        self.written.set()
        if self._wake is not None:
            self._wake()

    def result(self, seconds: float, *, sync: bool) -> int:
        """Wait a moment for a record that takes it along, then write it; return its seq.

        Args:
            seconds: how long to wait.
            sync: whether it has to be durable; else it survives the process.
        """
        run = self._run
        if not self.written.wait(seconds):
            try:
                run.flush(sync=sync)
            except BaseException:
                self.withdraw()
                raise
        seq = self.piece.seq
        if sync and not run.wait_durable(seq, 0):
            run.sync(seq)  # somebody else wrote it, who did not need it durable
        return seq

    async def aresult(self, seconds: float, *, sync: bool) -> int:
        """Do it from async code, with a thread only where nothing takes it along; see `result`.

        It is written also if the task that waits for it is cancelled.
        """
        run = self._run
        try:
            if await self._taken_along(seconds) and (
                not sync or run.wait_durable(self.piece.seq, 0)
            ):
                return self.piece.seq
        except BaseException:
            if not self.written.is_set():
                Started(lambda: self.result(0, sync=sync))
            raise
        work = Started(lambda: self.result(0, sync=sync), few=not run.store.is_far)
        return await work  # type: ignore[no-any-return]

    async def _taken_along(self, seconds: float) -> bool:
        import asyncio

        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # that loop has ended
                loop.call_soon_threadsafe(changed.set)

        self._wake = wake
        # What is queued already takes it along; under load that has to wait for its own turn.
        while not self.written.is_set():
            timer = loop.call_later(seconds, changed.set)
            try:
                await changed.wait()
            finally:
                timer.cancel()
            changed.clear()
            if not self._run.is_busy:
                break
        return self.written.is_set()

    def withdraw(self) -> None:
        """Let it go, where it could not be written: it may not turn up later, in another run."""
        self._run.withdraw(self)


class Newest(NamedTuple):
    """The newest waypoint of a lane.

    Attributes:
        chain: the records that its state is rebuilt from, it last; empty: the lane has none.
        since: all records after it.
    """

    chain: list[Record]
    since: list[Record]


class Pipeline:
    """One run, for an adapter.

    Args:
        store: where it lives.
        run_id: its name.
        adapter: what writes it, if it is new.
        framework: name and version of the adapter's framework.
    """

    def __init__(self, store: Store, run_id: str, adapter: str, framework: str) -> None:
        refuse_work(run_id)
        self.store = store
        self.run_id = run_id
        self._adapter = adapter
        self._framework = framework
        self._journal = journal_for(store, run_id)
        self._journal.defer_notes()
        self._lock = threading.Lock()
        self._waiting: list[Waiting] = []
        self._entries = 0

    @property
    def exists(self) -> bool:
        """Whether anything was written of this run yet, as far as this process knows."""
        return self._journal.exists

    @property
    def is_busy(self) -> bool:
        """Whether anything of the run is queued, or being done."""
        return self._journal.turns.busy

    @property
    def goal(self) -> str | None:
        """What the run is for, as far as this process knows."""
        return self._journal.goal

    def begin(self, goal: str | None) -> None:
        """Say what a run that does not exist yet is for."""
        self._journal.adapter = self._adapter
        self._journal.goal = goal
        self._journal.framework = self._framework

    def alone(self) -> Alone:
        """Return the block in which no other thread or task of this process does the run's job."""
        return Alone(self._journal)

    def owning(self, *, takeover: bool = False) -> Ownership:
        """Return the lease of the run, for the length of a call that has an end.

        Args:
            takeover: take the run from another living process, if one works on it.
        """
        if takeover and not self.exists:
            self.begin(None)
        return owning(self._journal, takeover=takeover)

    # ------------------------------------------------------------------ reading

    def newest(self, lane: str) -> Newest | None:
        """Read the newest waypoint of a lane, whoever wrote it; None: there is no such run."""
        return self._journal.turns.do(lambda: self._newest(lane))  # type: ignore[no-any-return]

    def _newest(self, lane: str) -> Newest | None:
        found = self._journal.look_at(lane)
        if found is None:
            return None
        chain, since = found
        if since is None:
            since = survey.after(self.store, self.run_id, chain[-1], bodies=True) or []
        return Newest(chain, since)

    @property
    def outcome(self) -> dict[str, Any] | None:
        """Head of the `finish` record, where nothing came after it; as of the last look."""
        return self._journal.outcome

    # ------------------------------------------------------------------ writing

    def turn(self, work: Callable[[Journal], T]) -> T:
        """Call a function of `questions` or `effects` with the run's journal, in its turn."""
        return self._journal.turns.do(lambda: work(self._journal))  # type: ignore[no-any-return]

    def behind_entries(
        self, work: Callable[[Journal], Any], first: Callable[[Journal], Any] | None = None
    ) -> Queued:
        """Queue such a call; the entries that wait are written before it, durable with it.

        Args:
            work: called in its turn; it writes a durable record, or what waits is not durable.
            first: called before anything is written; where it raises, nothing is.
        """

        def write(pieces: list[Piece]) -> None:
            if pieces:
                self._journal.add_pieces(pieces, sync=False)

        def done() -> Any:
            if first is not None:
                first(self._journal)
            self._with_pieces(write)
            return work(self._journal)

        return Queued(self._journal, done)

    @property
    def journal(self) -> Journal:
        """The run's journal, for work that has its turn: the `guard` of a checkpoint."""
        return self._journal

    @property
    def pending(self) -> Pending:
        """What is not settled in the run, as of the last look."""
        return self._journal.pending

    @property
    def inside(self) -> Inside:
        """The run as the code of a step sees it: `once`, `ask`, `remark`."""
        return Inside(self._journal)

    def finish(self, *, call: str) -> None:
        """Write down that the run came to its end; its result stands in its newest state.

        Args:
            call: what identifies the call whose result that is.
        """
        fields = {"outcome": "finished", "call": call}
        self._journal.turns.do(lambda: questions.end(self._journal, fields))
        self.write_notes()

    def fail(self, text: str) -> None:
        """Write down that the work raised; the next start goes on."""
        fields = {"outcome": "failed", "error": text}
        self._journal.turns.do(lambda: self._journal.add("finish", fields))
        self.write_notes()

    def compact(self, keep: Keep) -> int:
        """Rewrite the run with less in it; see `Journal.compact`.

        Returns:
            The number of waypoints removed.
        """
        return self._journal.turns.do(lambda: self._journal.compact(keep))  # type: ignore[no-any-return]

    def prepare(self, state: object, lane: str) -> Prepared:
        """Encode a state in the caller's thread; nothing is written.

        Raises:
            UnserialisableState: it cannot be kept exactly; the message names the path.
        """
        return self._journal.prepare(state, lane)

    def checkpoint(
        self,
        prepared: Prepared,
        note: Note,
        *,
        lane: str,
        meta: dict[str, Any],
        overtake: bool = False,
        guard: Callable[[Callable[[], int]], int] | None = None,
        schema: Schema = FIRST,
    ) -> Queued:
        """Queue a waypoint; its result is the waypoint's number, and it is durable then.

        Args:
            prepared: its state.
            note: its note.
            lane: the line of waypoints it is on.
            meta: plain JSON for its head, taken as it is.
            overtake: it may follow a waypoint of somebody else that nobody here has looked at.
            guard: called when it is this one's turn, with the function that writes it: calls
                that, or raises. It must not wait for another save of this run.
            schema: what the program declares of the state.
        """
        journal = self._journal
        before = self._entries

        def work() -> int:
            # What came since may belong to this very waypoint, and would be looked for behind it.
            if guard is not None:
                return guard(lambda: self._with_pieces(write, before))
            return self._with_pieces(write, before)

        def write(pieces: list[Piece]) -> int:
            journal.schema = schema  # others of other schemas may write to it, each in its turn
            for _ in range(8):
                try:
                    return journal.checkpoint(prepared, note, lane, meta, pieces)
                except Conflict:
                    if not overtake:
                        raise
                    journal.look(lane)
            return journal.checkpoint(prepared, note, lane, meta, pieces)

        return Queued(journal, work)

    def repeat(self, note: Note, *, lane: str, meta: dict[str, Any]) -> Queued:
        """Queue a waypoint with the state of the lane's newest one: a pause, an error."""
        journal = self._journal

        def write(pieces: list[Piece]) -> int:
            return journal.repeat(note, lane, meta, pieces)

        return Queued(journal, lambda: self._with_pieces(write))

    def entry(
        self,
        name: str,
        data: object,
        *,
        say: str | None = None,
        lane: str,
        meta: dict[str, Any],
        schema: Schema = FIRST,
    ) -> Waiting:
        """Let an entry wait for the next record of the run, which takes it along.

        Raises:
            UnserialisableState: the data cannot be kept exactly.
        """
        fields: dict[str, Any] = {"name": name, "meta": meta}
        if schema.number != FIRST.number:
            fields["schema"] = schema.number
        if say:
            fields["say"] = Note(say).to_json()
        encoded = codec.encode(data)
        if encoded.tagged:
            fields["tagged"] = True
        if encoded.shared:
            fields["shared"] = list(encoded.shared)
        waiting = Waiting(self, Piece(fields, lane, encoded.data))
        with self._lock:
            self._entries += 1
            waiting.number = self._entries
            self._waiting.append(waiting)
        return waiting

    def withdraw(self, waiting: Waiting) -> None:
        """Let an entry go that waits no more."""
        with self._lock:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    def _with_pieces(self, write: Callable[[list[Piece]], T], before: int | None = None) -> T:
        """Write something together with the entries that wait; in a turn of the queue.

        Args:
            write: writes it, and them.
            before: number of the last entry that may be among them; None: all that wait.
        """
        with self._lock:
            taken = [one for one in self._waiting if before is None or one.number <= before]
            self._waiting = self._waiting[len(taken) :]
        ours = [waiting for waiting in taken if waiting.pid == os.getpid()]
        done = False
        try:
            result = write([waiting.piece for waiting in ours])
            done = True
        finally:
            if not done:  # each is written by who waits for it, or gets its own error
                with self._lock:
                    self._waiting[:0] = ours
        for waiting in ours:
            waiting.arrived()
        return result

    def flush(self, *, sync: bool) -> None:
        """Write the entries that wait, in one append.

        Args:
            sync: wait until they are durable; else they survive the process, and not yet the
                machine.
        """

        def write(pieces: list[Piece]) -> None:
            if pieces:
                self._journal.add_pieces(pieces, sync=sync)

        self._journal.turns.do(lambda: self._with_pieces(write))

    def write_notes(self) -> None:
        """Write the notes that wait to be written, now."""
        renderer.drain(self._journal)

    # ------------------------------------------------------------------ durable or not yet

    def wait_durable(self, seq: int, seconds: float) -> bool:
        """Wait until record `seq` is durable by somebody's sync; say whether it is.

        Raises:
            StoreFailed: a failed sync may have taken it.
        """
        return self._journal.wait_durable(seq, seconds)

    async def until_durable(self, seq: int, seconds: float) -> bool:
        """Wait from async code, without a thread; see `wait_durable`."""
        import asyncio

        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(changed.set)

        with self._journal.watch(wake):
            end = loop.time() + seconds
            while not self._journal.wait_durable(seq, 0):
                left = end - loop.time()
                if left <= 0:
                    return False
                try:
                    await asyncio.wait_for(changed.wait(), left)
                except TimeoutError:
                    continue
                changed.clear()
        return True

    def sync(self, seq: int) -> None:
        """Make record `seq` and all before it durable.

        Raises:
            StoreFailed: the disk did not keep it.
        """
        self._journal.turns.do(lambda: self._journal.sync(seq))
