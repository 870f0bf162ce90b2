"""A run, open for work: the object through which everything is written.

`open_run` gives one; the plain functions (`checkpoint`, `save`, …) and `@resumable` use the same
object, and so does every adapter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from caravanserai_core import codec, questions, reading
from caravanserai_core import schema as schemas
from caravanserai_core.doing import Doing
from caravanserai_core.errors import (
    CaravanseraiError,
    Conflict,
    EffectStopped,
    InputChanged,
    NoRun,
    StaleWriter,
    WaitingForPerson,
)
from caravanserai_core.homes import store_for
from caravanserai_core.importing import refuse_work
from caravanserai_core.journal import journal_for
from caravanserai_core.meta import check_text
from caravanserai_core.names import check_run_id
from caravanserai_core.origins import handed_origin
from caravanserai_core.ownership import Ownership, asked_for, refuse_busy
from caravanserai_core.quoting import error_text, one_line, quoted
from caravanserai_core.secrets import refuse
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from types import TracebackType

    from caravanserai_core.continuing import Continues
    from caravanserai_core.homes import StoreLike
    from caravanserai_core.journal import Journal
    from caravanserai_core.schema import Migrations, Schema
    from caravanserai_core.stores.base import Tail

_log = logging.getLogger("caravanserai")


class Run(Doing):
    """One run, open for work.

    Attributes:
        run_id: its name.
        state: the state of its newest waypoint when it was opened, or None.
        waypoint: number of that waypoint, or 0.
        store: where it lives.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        must_exist: bool = False,
        schema: Schema | None = None,
        takeover: bool = False,
    ) -> None:
        self.run_id = journal.run_id
        self.store = journal.store
        self._journal = journal
        self._state: Any = None
        self._asked = False
        self.waypoint = 0
        self._must_exist = must_exist
        self._takeover = takeover
        self._owned: list[Ownership] = []
        self._entered: list[_Entered] = []
        refuse("the run_id", self.run_id)
        if schema is not None:
            journal.schema = schema
        journal.turns.do(lambda: self._open(must_exist))

    def _open(self, must_exist: bool) -> None:
        chain = self._journal.look()
        legacy = self._journal.legacy
        if chain:
            self.waypoint = chain[-1].waypoint
            wanted = self._journal.schema
            self.state = schemas.decode(chain, self.waypoint, self.store, self.run_id, wanted)
            _log.info("run %s goes on from waypoint %d in %s", *self._named())
        elif legacy is not None:
            self.state = schemas.of_legacy(legacy, self.run_id, self._journal.schema)
            self.waypoint = legacy.number
            _log.info("run %s goes on from waypoint %d in %s", *self._named())
        elif must_exist and chain is None:
            raise reading.not_found(self.store, self.run_id)

    @property
    def state(self) -> Any:
        """The state to go on from."""
        self._asked = True
        return self._state

    @state.setter
    def state(self, state: Any) -> None:
        self._state = state

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
        self._end(fields, body)

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
        self._end(fields)

    def _end(self, fields: dict[str, Any], body: bytes = b"") -> None:
        self._journal.turns.do(lambda: questions.end(self._journal, fields, body))

    def finished(self, call: str | None = None) -> tuple[bool, Any]:
        """Return whether the run is finished, by the same `call`, and its recorded result.

        Nothing may have been written after its end. (False, None) also where it failed.
        """

        def read() -> tuple[bool, Any]:
            head = self._journal.outcome
            if not head or head.get("outcome") != "finished" or head.get("call") != call:
                return False, None
            recent = reading.recent(self.store, self.run_id)
            found = () if recent is None else (*recent.since, recent.last)
            ends = [record for record in found if record.kind == "finish"]
            if not ends or not ends[-1].body:
                return False, None
            last = ends[-1]
            return True, codec.decode(last.member("data"), bool(last.head.get("tagged")))

        return self._journal.turns.do(read)  # type: ignore[no-any-return]

    def afresh(self) -> None:
        """Begin a fresh pass: steps and answers recorded before it do not count any more.

        What the run was handed by another one counts in each pass.
        """
        if handed_origin(self._journal.origin) is None:
            super().afresh()
            return
        from caravanserai_core import continuing

        self._journal.turns.do(lambda: continuing.afresh(self._journal))

    # -------------------------------------------------------------- the lease

    def owning(self) -> Ownership:
        """Return the lease of the run, for a block without what else `with run:` does.

        Raises:
            RunBusy: on entering: another process holds the run.
            Conflict: on entering: the state was read before, and is no longer the newest.
        """
        known = True

        def tail() -> Tail | None:
            nonlocal known
            if not known:
                self._reopen()
            known = False
            return self._journal.tail

        def taken() -> None:
            if self._journal.number() != self.waypoint:
                self._reopen()

        return Ownership(self._journal, tail, takeover=self._takeover, taken=taken)

    def _reopen(self) -> None:
        """Read the run again, which somebody wrote to since it was opened."""
        if self._asked:
            raise Conflict(
                f"run {one_line(self.run_id)}: another process wrote to it after its state was "
                "read here and before its block was entered. Nothing was written. Open it again."
            )
        self._open(self._must_exist)

    # -------------------------------------------------------------- with and async

    def __enter__(self) -> Run:
        owned = self.owning()
        owned.__enter__()
        return self._enter(owned)

    def _enter(self, owned: Ownership) -> Run:
        self._owned.append(owned)
        entered = _Entered(self, _step(), _current.get())
        self._entered.append(entered)
        _current.set(entered)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._leave(error)
            if isinstance(error, Exception):
                self._failed(error)
        finally:
            self._owned.pop().give_back()

    async def __aenter__(self) -> Run:
        owned = self.owning()
        await owned.__aenter__()
        return self._enter(owned)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._leave(error)
            if isinstance(error, Exception):
                failure = error
                await wait_for(in_thread(lambda: self._failed(failure)))
        finally:
            self._owned.pop().give_back()

    def _leave(self, error: BaseException | None) -> None:
        entered = self._entered.pop()
        entered.leave()
        if error is not None and not entered.inner:
            # The next start begins anew, in this process too: what it asks is given out again.
            self._journal.given.clear()
            self._journal.waited.clear()

    def _failed(self, error: Exception) -> None:
        """Record that the work raised; ^C and the like leave the run as it is: stopped."""
        if isinstance(error, (Conflict, InputChanged, StaleWriter)) or _only_waits(error):
            # Somebody else has the run, or wanted another one, or it is a person's turn.
            return
        fields: dict[str, Any] = {"outcome": "failed", "error": quoted(error_text(error), 300)}
        if isinstance(error, EffectStopped):
            fields |= {"stopped": True, "error": quoted(str(error), 1000)}  # it says what is next
        try:
            self.ended(fields)
        except CaravanseraiError as problem:
            _log.warning(
                "the failure of run %s was not recorded: %s", one_line(self.run_id), problem
            )


def _only_waits(error: BaseException) -> bool:
    """Say whether all that was raised, by one task or several, is that a person is asked."""
    if isinstance(error, BaseExceptionGroup):
        return all(_only_waits(inner) for inner in error.exceptions)
    return isinstance(error, WaitingForPerson)


class _Entered:
    """A run whose block was entered.

    Attributes:
        run: the run.
        within: the step of a framework that it was entered in, or None.
        outer: what was entered around it, or None.
        left: whether it was left since.
    """

    __slots__ = ("left", "outer", "run", "within")

    def __init__(self, run: Run, within: Step | None, outer: _Entered | None) -> None:
        self.run, self.within, self.left = run, within, False
        self.outer = _still_open(outer)

    @property
    def inner(self) -> bool:
        """Whether a block of the same run was entered around it, and is open."""
        around = _still_open(self.outer)
        while around is not None and around.run._journal is not self.run._journal:
            around = _still_open(around.outer)
        return around is not None

    def leave(self) -> None:
        """Note that it was left: maybe in another context, and before those inside of it."""
        self.left = True
        if _current.get() is self:
            _current.set(_still_open(self))


def _still_open(entered: _Entered | None) -> _Entered | None:
    while entered is not None and entered.left:
        entered = entered.outer
    return entered


_current: ContextVar[_Entered | None] = ContextVar("caravanserai_run", default=None)

Step = tuple[object, Doing]
"""A step of a framework: an object that tells it from others, and the run that it is part of."""

_finders: list[Callable[[], Step | None]] = []


def find_step_with(finder: Callable[[], Step | None]) -> None:
    """Let an adapter say in which step of its framework the calling code is, or None: in none."""
    if finder not in _finders:
        _finders.append(finder)


def _step() -> Step | None:
    return next((step for find in _finders if (step := find()) is not None), None)


def current_run() -> Doing:
    """Return the run that the calling code works on: the innermost, block or step of a framework.

    Raises:
        NoRun: it works on none: it is outside `@resumable`, `open_run` and an adapter's call.
    """
    entered, step = _current.get(), _step()
    if step is not None and (
        entered is None or entered.within is None or entered.within[0] is not step[0]
    ):
        return step[1]
    run = None if entered is None else entered.run
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
    schema: int | None = None,
    migrations: Migrations = (),
    program: str | None = None,
    takeover: bool = False,
    continues: Continues = None,
) -> Run:
    """Open a run for work, new or not; use it in a `with` or `async with` block.

    Inside of that block this process is the only one that works on the run.

    Args:
        run_id: its name, any string.
        store: a store, a folder or URL; by default CARAVANSERAI_STORE, else `.caravanserai` here.
        must_exist: refuse to begin a new run.
        adapter: what writes it, if it is new.
        goal: what it is for, if it is new.
        schema: the schema of the states that this program writes, from 1; by default one more
            than there are migrations.
        migrations: one function for each step from schema to schema, the last one leads to
            `schema`; see docs/guarantees/versions.md.
        program: the function that does the work, `module:name`, if the run is new.
        takeover: take the run from another living process, if one works on it: what that writes
            from then on is refused with `StaleWriter`.
        continues: the run of the same store that a new run goes on from, of whatever framework:
            `RUN`, or `RUN@N` for one of its waypoints; or what `handoff` returned. `run.handoff`
            is what it was handed then; steps under `once` of that run count as done in this one.

    Returns:
        The run; `run.state` is the state to go on from, or None.

    Raises:
        RunNotFound: there is no such run and `must_exist` is set.
        RunBusy: another living process works on it; raised here, or where the block is entered.
        JournalDamaged, NewerFormat, UnknownType: its state cannot be read.
        SchemaMismatch: nor can it, or no migration leads from its schema to that of the program.
        InputChanged: the run was begun without `continues`, or goes on from another run.
    """
    declared = schemas.declared(schema, migrations)
    run_id = check_run_id(run_id)
    refuse_work(run_id)
    check_text("an adapter", adapter)
    if goal is not None:
        check_text("a goal", goal, prose=True)
    journal = journal_for(store_for(run_id, store), run_id)
    takeover = asked_for(run_id, takeover=takeover)
    if not takeover:
        refuse_busy(journal)
    run = Run(journal, must_exist=must_exist, schema=declared, takeover=takeover)
    if not run.exists:
        journal.adapter, journal.goal, journal.program = adapter, goal, program
    if continues is not None:
        from caravanserai_core import continuing  # few runs go on from another one

        run._handed = (continuing.begin(journal, continues),)
    elif handed_origin(journal.origin) is not None:
        from caravanserai_core import continuing

        run._handed = (continuing.handed_to(journal),)
    return run
