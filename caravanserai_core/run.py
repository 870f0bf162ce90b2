"""A run, open for work: the object through which everything is written.

`open_run` gives one; the plain functions (`checkpoint`, `save`, …) and `@resumable` use the same
object, and so does every adapter.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai_core import codec, reading
from caravanserai_core.errors import (
    CaravanseraiError,
    Conflict,
    NoRun,
    StaleWriter,
    UsageError,
)
from caravanserai_core.homes import store_for
from caravanserai_core.journal import journal_for
from caravanserai_core.meta import check_text, plain_copy
from caravanserai_core.names import check_run_id
from caravanserai_core.notes import Note, as_note
from caravanserai_core.quoting import one_line, quoted
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    from caravanserai_core.compaction import Keep
    from caravanserai_core.homes import StoreLike
    from caravanserai_core.journal import Journal

    NoteLike = str | Note | Callable[[Any], str | Note] | None

_log = logging.getLogger("caravanserai")


class Entry(NamedTuple):
    """Fine-grained progress since a waypoint.

    Attributes:
        name: what kind of entry it is; the adapter's own word.
        data: its value, exactly as it was given.
        say: the line it adds to the live note, or None.
        time: when it was written, ISO 8601 in UTC.
        meta: what its adapter noted in its head; `{}` if nothing.
    """

    name: str
    data: Any
    say: str | None
    time: str
    meta: dict[str, Any] = {}  # noqa: RUF012 - never written to


class Run:
    """One run, open for work.

    Attributes:
        run_id: its name.
        state: the state of its newest waypoint when it was opened, or None.
        waypoint: number of that waypoint, or 0.
        store: where it lives.
    """

    def __init__(self, journal: Journal, *, must_exist: bool = False) -> None:
        self.run_id = journal.run_id
        self.store = journal.store
        self._journal = journal
        self.state: Any = None
        self.waypoint = 0
        self._tokens: list[Any] = []
        journal.turns.do(lambda: self._open(must_exist))

    def _open(self, must_exist: bool) -> None:
        chain = self._journal.look()
        legacy = self._journal.legacy
        if chain:
            self.waypoint = chain[-1].waypoint
            self.state = reading.decode(chain, self.waypoint, self.store, self.run_id)
            _log.info("run %s goes on from waypoint %d in %s", *self._named())
        elif legacy is not None:
            self.waypoint, self.state = legacy.number, legacy.state
            _log.info("run %s goes on from waypoint %d in %s", *self._named())
        elif must_exist and chain is None:
            raise reading.not_found(self.store, self.run_id)

    def __repr__(self) -> str:
        return (
            f"<Run {self.run_id!r} at waypoint {self.waypoint} in {self.store.where(self.run_id)}>"
        )

    def _named(self) -> tuple[str, int, str]:
        return one_line(self.run_id), self.waypoint, self.store.where(self.run_id)

    @property
    def exists(self) -> bool:
        """Whether anything was written of this run yet."""
        return self._journal.exists

    # -------------------------------------------------------------- waypoints

    def checkpoint(
        self,
        state: object,
        note: NoteLike = None,
        *,
        lane: str = "",
        meta: dict[str, Any] | None = None,
    ) -> int:
        """Write a waypoint: the exact state and a note.

        Args:
            state: any value that `caravanserai_core.codec` can keep exactly.
            note: a text, a `Note`, a function of the state that returns one, or None for a note
                derived from what changed since the waypoint before.
            lane: the line of waypoints it belongs to; "" is the main one.
            meta: a little plain JSON that lists and filters find without reading the state;
                `Waypoint.meta`.

        Returns:
            The waypoint's number. When it returns, a crash of the machine does not lose it.

        Raises:
            UnserialisableState: the state cannot be kept exactly; nothing was written.
            UsageError: `meta` is no plain JSON.
            Conflict: another process wrote a waypoint on this lane in between.
            StoreFailed, StoreBusy, StoreRefused, StaleWriter, JournalDamaged: nothing was
                written, the earlier waypoints stand.
        """
        save = self._save(state, note, lane, meta)
        return self._journal.turns.do(save)  # type: ignore[no-any-return]

    def acheckpoint(
        self,
        state: object,
        note: NoteLike = None,
        *,
        lane: str = "",
        meta: dict[str, Any] | None = None,
    ) -> Coroutine[Any, Any, int]:
        """Write a waypoint from async code; see `checkpoint`.

        The state is encoded and takes its place in the run's queue before this returns, so a
        later change of it does not matter, and cancelling the wait does not undo the save.
        """
        return self._later(self._save(state, note, lane, meta))

    def _save(
        self, state: object, note: NoteLike, lane: str, meta: dict[str, Any] | None
    ) -> Callable[[], int]:
        """Encode a state now; returns what writes it."""
        check_text("a lane", lane)
        noted = None if meta is None else plain_copy(meta)
        prepared = self._journal.prepare(state, lane)
        told = as_note(note, state)
        return lambda: self._journal.checkpoint(prepared, told, lane, noted)

    def repeat(
        self, note: str | Note, *, lane: str = "", meta: dict[str, Any] | None = None
    ) -> int:
        """Write a waypoint with the same state as the lane's newest one: a pause, an error.

        Args:
            note: what happened.
            lane: the line of waypoints it belongs to.
            meta: as in `checkpoint`.

        Returns:
            The waypoint's number, durable.

        Raises:
            UsageError: the lane has no waypoint yet.
            Conflict, StoreFailed, …: as `checkpoint`.
        """
        return self._journal.turns.do(self._repeat(note, lane, meta))  # type: ignore[no-any-return]

    def arepeat(
        self, note: str | Note, *, lane: str = "", meta: dict[str, Any] | None = None
    ) -> Coroutine[Any, Any, int]:
        """Write a waypoint with the same state, from async code; see `repeat`."""
        return self._later(self._repeat(note, lane, meta))

    def _repeat(self, note: object, lane: str, meta: dict[str, Any] | None) -> Callable[[], int]:
        check_text("a lane", lane)
        noted = None if meta is None else plain_copy(meta)
        told = as_note(note, None) if isinstance(note, (str, Note)) else None
        if told is None:
            raise UsageError("a repeated waypoint is told by a text or a Note that says why")
        return lambda: self._journal.repeat(told, lane, noted)

    # -------------------------------------------------------------- between waypoints

    def entry(
        self,
        name: str,
        data: object = None,
        *,
        say: str | None = None,
        lane: str = "",
        meta: dict[str, Any] | None = None,
        durable: bool = True,
    ) -> int:
        """Write down progress since the last waypoint.

        Args:
            name: what kind of entry it is.
            data: any value that can be kept exactly.
            say: a line for the live note, `latest.md`.
            lane: the lane it belongs to.
            meta: a little plain JSON that is found without reading the data; `Entry.meta`.
            durable: wait until a crash of the machine does not lose it. Without, a crash of the
                process does not, and the next durable write of the run makes it durable too.

        Returns:
            The number of its record in the journal.

        Raises:
            UnserialisableState: the data cannot be kept exactly; nothing was written.
            UsageError: `meta` is no plain JSON.
        """
        write = self._entry(name, data, say, lane, meta, durable)
        return self._journal.turns.do(write)  # type: ignore[no-any-return]

    def aentry(
        self,
        name: str,
        data: object = None,
        *,
        say: str | None = None,
        lane: str = "",
        meta: dict[str, Any] | None = None,
        durable: bool = True,
    ) -> Coroutine[Any, Any, int]:
        """Write down progress from async code; see `entry` and `acheckpoint`."""
        return self._later(self._entry(name, data, say, lane, meta, durable))

    def _entry(
        self,
        name: str,
        data: object,
        say: str | None,
        lane: str,
        meta: dict[str, Any] | None,
        durable: bool,
    ) -> Callable[[], int]:
        check_text("the name of an entry", name)
        check_text("a lane", lane)
        fields: dict[str, Any] = {"name": name}
        if say is not None:
            fields["say"] = Note(say).to_json()
        if meta is not None and (noted := plain_copy(meta)):
            fields["meta"] = noted
        encoded = codec.encode(data)
        if encoded.tagged:
            fields["tagged"] = True
        if encoded.shared:
            fields["shared"] = list(encoded.shared)
        body = b'"data":' + encoded.data
        return lambda: self._journal.add("entry", fields, lane=lane, body=body, sync=durable)

    def entries(self, lane: str = "") -> list[Entry]:
        """Return what was written down since the lane's newest waypoint, oldest first."""

        def read() -> list[Entry]:
            found: list[Entry] = []
            state: Any = None
            for record in self._journal.entries(lane):
                head = record.head
                if "name" in head:
                    if head.get("shared") and state is None:
                        chain = reading.newest(self.store, self.run_id, lane) or []
                        number = chain[-1].waypoint if chain else 0
                        state = reading.decode(chain, number, self.store, self.run_id)
                    data = reading.data_of(record, state)
                    meta = head.get("meta") or {}
                    found.append(Entry(head["name"], data, head.get("say"), head["time"], meta))
            return found

        return self._journal.turns.do(read)  # type: ignore[no-any-return]

    def remark(self, text: str) -> None:
        """Say why something was done; it joins the "Decided" part of the next note."""
        if type(text) is not str or not text.strip():
            raise UsageError("a remark is a string of at least one word")
        told = Note(text).to_json()
        self._journal.turns.do(lambda: self._journal.add("entry", {"remark": told}))

    # -------------------------------------------------------------- removing

    def compact(self, keep: Keep) -> int:
        """Remove waypoints and entries for good, with their notes; see `Journal.compact`.

        Args:
            keep: asked for the record of each waypoint and entry; False: it goes. None for an
                entry: it goes with its waypoint.

        Returns:
            How many waypoints were removed.

        Raises:
            RunNotFound: nothing was written of this run yet.
            JournalDamaged, StoreFailed, StoreBusy: nothing was changed.
        """
        return self._journal.turns.do(lambda: self._journal.compact(keep))  # type: ignore[no-any-return]

    # -------------------------------------------------------------- the end

    def finish(self, result: object = None, *, call: str | None = None) -> None:
        """Write down that the run came to its end, with its result.

        Args:
            result: any value that can be kept exactly.
            call: what identifies the call whose result this is; see `finished`.

        Raises:
            UnserialisableState: the result cannot be kept exactly; nothing was written.
        """
        fields, body = self._finished(result, call)
        self._journal.turns.do(lambda: self._journal.add("finish", fields, body=body))

    def _finished(self, result: object, call: str | None) -> tuple[dict[str, Any], bytes]:
        fields: dict[str, Any] = {"outcome": "finished"}
        if call is not None:
            check_text("what identifies a call", call)
            fields["call"] = call
        encoded = codec.encode(result)
        if encoded.tagged:
            fields["tagged"] = True
        return fields, b'"data":' + encoded.data

    def ended(self, fields: dict[str, Any]) -> None:
        """Write down an end without a result: a failure, or a result that cannot be kept."""
        self._journal.turns.do(lambda: self._journal.add("finish", fields))

    def finished(self, call: str | None = None) -> tuple[bool, Any]:
        """Return whether the run is finished, by the same `call`, and its recorded result.

        Nothing may have been written after its end. (False, None) also where it failed.
        """

        def read() -> tuple[bool, Any]:
            head = self._journal.outcome
            if not head or head.get("outcome") != "finished" or head.get("call") != call:
                return False, None
            recent = reading.recent(self.store, self.run_id)
            if recent is None or recent.last.kind != "finish" or not recent.last.body:
                return False, None
            last = recent.last
            return True, codec.decode(last.member("data"), bool(last.head.get("tagged")))

        return self._journal.turns.do(read)  # type: ignore[no-any-return]

    # -------------------------------------------------------------- with and async

    def __enter__(self) -> Run:
        self._tokens.append(_current.set(self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _current.reset(self._tokens.pop())
        if isinstance(error, Exception):
            self._failed(error)

    async def __aenter__(self) -> Run:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _current.reset(self._tokens.pop())
        if isinstance(error, Exception):
            failure = error
            await wait_for(in_thread(lambda: self._failed(failure)))

    def _failed(self, error: Exception) -> None:
        """Record that the work raised; ^C and the like leave the run as it is: stopped."""
        if isinstance(error, (Conflict, StaleWriter)):
            return  # somebody else has the run
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        try:
            self.ended({"outcome": "failed", "error": quoted(text, 300)})
        except CaravanseraiError as problem:
            _log.warning(
                "the failure of run %s was not recorded: %s", one_line(self.run_id), problem
            )

    def _later(self, work: Callable[[], Any]) -> Coroutine[Any, Any, Any]:
        """Queue `work` now, do it in a worker thread, return what waits for it."""
        turn = self._journal.turns.take(work)
        return wait_for(in_thread(lambda: self._journal.turns.finish(turn)))


_current: ContextVar[Run | None] = ContextVar("caravanserai_run", default=None)


def current_run() -> Run:
    """Return the run that the calling code works on.

    Raises:
        NoRun: it works on none: it is outside `@resumable`, `open_run` and an adapter's call.
    """
    run = _current.get()
    if run is None:
        raise NoRun(
            "no run is open here: this call belongs inside a function under @resumable or inside "
            "`with open_run(run_id):`. A thread you start yourself needs "
            "contextvars.copy_context().run(...)."
        )
    return run


def open_run(
    run_id: str,
    *,
    store: StoreLike = None,
    must_exist: bool = False,
    adapter: str = "python",
    goal: str | None = None,
) -> Run:
    """Open a run for work, new or not; use it in a `with` or `async with` block.

    Args:
        run_id: its name, any string.
        store: a store, a folder or URL; by default CARAVANSERAI_STORE, else `.caravanserai` here.
        must_exist: refuse to begin a new run.
        adapter: what writes it, if it is new.
        goal: what it is for, if it is new.

    Returns:
        The run; `run.state` is the state to go on from, or None.

    Raises:
        RunNotFound: there is no such run and `must_exist` is set.
        JournalDamaged, NewerFormat, UnknownType, SchemaMismatch: its state cannot be read.
    """
    run_id = check_run_id(run_id)
    check_text("an adapter", adapter)
    if goal is not None:
        check_text("a goal", goal)
    journal = journal_for(store_for(run_id, store), run_id)
    run = Run(journal, must_exist=must_exist)
    if not run.exists:
        journal.adapter, journal.goal = adapter, goal
    return run
