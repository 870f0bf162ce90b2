"""A run, open for work: the object through which everything is written.

`open_run` gives one; the plain functions (`checkpoint`, `save`, …) and `@resumable` use the same
object, and so does every adapter.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from caravanserai_core import codec, reading
from caravanserai_core.errors import CaravanseraiError, Conflict, NoRun, StaleWriter
from caravanserai_core.homes import store_for
from caravanserai_core.journal import journal_for
from caravanserai_core.meta import check_text
from caravanserai_core.names import check_run_id
from caravanserai_core.quoting import one_line, quoted
from caravanserai_core.threads import in_thread, wait_for
from caravanserai_core.work import Work

if TYPE_CHECKING:
    from types import TracebackType

    from caravanserai_core.homes import StoreLike
    from caravanserai_core.journal import Journal

_log = logging.getLogger("caravanserai")


class Run(Work):
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
