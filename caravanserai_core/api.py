"""The plain functions: save and load a run by its name, from anywhere in a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from caravanserai_core import listing, points, reading
from caravanserai_core import schema as schemas
from caravanserai_core.errors import RunNotFound, UsageError, WaypointNotFound
from caravanserai_core.homes import leave_home, store_for
from caravanserai_core.importing import refuse_work
from caravanserai_core.journal import forget, journal_for
from caravanserai_core.names import check_run_id
from caravanserai_core.notes import Note
from caravanserai_core.run import Run, current_run
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from caravanserai_core.handed import Handoff
    from caravanserai_core.homes import StoreLike
    from caravanserai_core.listing import RunInfo
    from caravanserai_core.reading import Waypoint
    from caravanserai_core.schema import Migrations
    from caravanserai_core.stores import Store
    from caravanserai_core.work import NoteLike

T = TypeVar("T")


class _Bare(Run):
    """A run for a single save: it goes on from what this process last read or wrote of it."""

    def __init__(self, run_id: str, store: StoreLike) -> None:
        # Not Run.__init__: a bare save does not read the state.
        run_id = check_run_id(run_id)
        self.run_id = run_id
        self.store = store_for(run_id, store)
        self._journal = journal_for(self.store, run_id)


def checkpoint(
    run_id: str, state: object, note: NoteLike = None, *, store: StoreLike = None
) -> int:
    """Make a run stop at a waypoint: keep its exact state, and a note that a person can read.

    Args:
        run_id: the run's name, any string; the run is created if it does not exist.
        state: any value that can be kept exactly (see docs/format.md for the types).
        note: a text, a `Note`, a function of the state that returns one, or None for a note
            derived from what changed.
        store: a store, a folder or URL; by default CARAVANSERAI_STORE, else `.caravanserai` here.

    Returns:
        The waypoint's number. When it returns, a crash of the machine does not lose it.

    Raises:
        UnserialisableState: the state cannot be kept exactly; nothing was written.
        Conflict: another process wrote a waypoint of this run since this one last read it.
        StoreFailed, StoreBusy, StoreRefused, JournalDamaged: nothing was written.
    """
    return _Bare(run_id, store).checkpoint(state, note)


def acheckpoint(
    run_id: str, state: object, note: NoteLike = None, *, store: StoreLike = None
) -> Coroutine[Any, Any, int]:
    """Make a run stop at a waypoint, from async code; see `checkpoint`.

    The state is encoded when this is called; what happens to it later does not matter. The save
    keeps its place in the run's queue also if the task that waits for it is cancelled.
    """
    return _Bare(run_id, store).acheckpoint(state, note)


def save(run_id: str, state: object, *, store: StoreLike = None) -> int:
    """Keep a state: `checkpoint` with a note derived from what changed."""
    return checkpoint(run_id, state, store=store)


def asave(run_id: str, state: object, *, store: StoreLike = None) -> Coroutine[Any, Any, int]:
    """Keep a state, from async code; see `acheckpoint`."""
    return acheckpoint(run_id, state, store=store)


def load(
    run_id: str,
    at: int | None = None,
    *,
    store: StoreLike = None,
    raw: bool = False,
    schema: int | None = None,
    migrations: Migrations = (),
) -> Any:
    """Return the exact state of a run's newest waypoint, or of waypoint `at`.

    Loading the newest one also tells this process what its next `checkpoint` goes on from.

    Args:
        run_id: the run's name.
        at: a waypoint's number, or a negative one counted from the end; None for the newest of
            the main lane.
        store: as in `checkpoint`.
        raw: return the JSON tree with its tags, without the program's types, in whatever schema.
        schema: the schema of the states that this program writes, from 1; by default one more
            than there are migrations. It also holds for what this process writes of the run.
        migrations: one function for each step from schema to schema, the last one leads to
            `schema`; see docs/guarantees/versions.md.

    Raises:
        RunNotFound: there is no such run in the store.
        WaypointNotFound: the run has no such waypoint.
        JournalDamaged, NewerFormat: the journal cannot be read.
        UnknownType, SchemaMismatch: the program's types do not fit what was saved.
        SchemaMismatch: no migration leads from the state's schema to that of the program.
    """
    declared = schemas.declared(schema, migrations)
    run_id = check_run_id(run_id)
    found = store_for(run_id, store)
    _check_at(at)
    journal = journal_for(found, run_id)
    if declared is not None:
        journal.schema = declared

    def read() -> Any:
        number = at if at is None else points.resolve(found, run_id, at)
        chain = journal.look() if number is None else reading.chain_at(found, run_id, number)
        if not chain:
            state = reading.load(found, run_id, number, raw=raw)
            old = found.legacy(run_id)
            if raw:
                return state
            if old is None:
                return read()  # the run was begun in this very moment
            return schemas.of_legacy(old, run_id, journal.schema)
        number = chain[-1].waypoint
        if raw:
            return reading.decode(chain, number, found, run_id, raw=True)
        return schemas.decode(chain, number, found, run_id, journal.schema)

    return journal.turns.do(read)


def aload(
    run_id: str,
    at: int | None = None,
    *,
    store: StoreLike = None,
    raw: bool = False,
    schema: int | None = None,
    migrations: Migrations = (),
) -> Coroutine[Any, Any, Any]:
    """Return the exact state of a run, from async code; see `load`.

    Saves of this process that were queued before are written first.
    """
    home = store_for(check_run_id(run_id), store)
    return wait_for(
        in_thread(
            lambda: load(run_id, at, store=home, raw=raw, schema=schema, migrations=migrations)
        )
    )


def get_waypoint(run_id: str, at: int | None = None, *, store: StoreLike = None) -> Waypoint:
    """Return a waypoint with its note; its state is read when it is asked for.

    Raises:
        RunNotFound, WaypointNotFound, JournalDamaged, NewerFormat: as `load`.
    """
    run_id = check_run_id(run_id)
    found = store_for(run_id, store)
    _check_at(at)

    def read() -> Waypoint:
        number = at if at is None else points.resolve(found, run_id, at)
        return reading.waypoint(found, run_id, number)

    return _settled(found, run_id, read)


def aget_waypoint(
    run_id: str, at: int | None = None, *, store: StoreLike = None
) -> Coroutine[Any, Any, Waypoint]:
    """Return a waypoint, from async code; see `get_waypoint`."""
    home = store_for(check_run_id(run_id), store)
    return wait_for(in_thread(lambda: get_waypoint(run_id, at, store=home)))


def history(run_id: str, *, store: StoreLike = None) -> list[Waypoint]:
    """Return all waypoints of a run, oldest first, without reading their states.

    Raises:
        RunNotFound: there is no such run.
        JournalDamaged: the journal is damaged somewhere.
    """
    run_id = check_run_id(run_id)
    found = store_for(run_id, store)
    return _settled(found, run_id, lambda: reading.waypoints(found, run_id))


def ahistory(run_id: str, *, store: StoreLike = None) -> Coroutine[Any, Any, list[Waypoint]]:
    """Return all waypoints of a run, from async code; see `history`."""
    home = store_for(check_run_id(run_id), store)
    return wait_for(in_thread(lambda: history(run_id, store=home)))


def list_runs(*, store: StoreLike = None) -> list[RunInfo]:
    """Return the runs of a store, the one written last first, without reading their states."""
    from caravanserai_core.stores import open_store

    return listing.runs(open_store(store))


def handoff(
    run_id: str, at: int | None = None, *, store: StoreLike = None, max_chars: int = 24_000
) -> Handoff:
    """Return what somebody needs who goes on with a run: a person, or an agent of any framework.

    Args:
        run_id: the run's name.
        at: a waypoint's number, or a negative one counted from the end: as the run was there.
            None: as it is now, with what was recorded behind its newest waypoint.
        store: as in `checkpoint`.
        max_chars: most characters of its `text`, 2,000 or more.

    Returns:
        The handoff: `.text` for people and models, `.messages` in the form of OpenAI's Chat
        Completions API, `.open_questions`, `.uncertain`, `.losses`; see docs/handoff.md.

    Raises:
        RunNotFound: there is no such run in the store.
        WaypointNotFound: the run has no such waypoint.
        JournalDamaged, NewerFormat: the journal cannot be read.
        UsageError: `at` or `max_chars` means nothing.
    """
    from caravanserai_core import handing  # few programs hand a run over

    return handing.handoff(run_id, at, store=store, max_chars=max_chars)


def remark(text: str) -> None:
    """Say why something was done; it joins the "Decided" part of the current run's next note.

    Raises:
        NoRun: no run is open here.
    """
    current_run().remark(text)


def clean(run_id: str, *, store: StoreLike = None) -> bool:
    """Delete a run and everything in it.

    Returns:
        Whether there was anything to delete.
    """
    run_id = check_run_id(run_id)
    refuse_work(run_id)
    found = store_for(run_id, store)
    gone = journal_for(found, run_id).turns.do(lambda: found.delete(run_id))
    forget(found, run_id)
    leave_home(run_id)
    return bool(gone)


# ---------------------------------------------------------------------- the names of release 0.2.0


def load_latest(run_id: str, *, store: StoreLike = None) -> tuple[Any, str, int] | None:
    """Return (state, note, number) of the newest waypoint, or None if there is none."""
    run_id = check_run_id(run_id)
    found = store_for(run_id, store)
    journal = journal_for(found, run_id)

    def read() -> tuple[Any, str, int] | None:
        chain = journal.look()
        if chain:
            last = chain[-1]
            note = Note.from_json(last.head.get("note", ""))
            state = schemas.decode(chain, last.waypoint, found, run_id, journal.schema)
            return state, str(note), last.waypoint
        old = journal.legacy
        if old is None:
            return None
        state = schemas.of_legacy(old, run_id, journal.schema)
        return state, old.note(old.number) or "", old.number

    return cast("tuple[Any, str, int] | None", journal.turns.do(read))


def load_command(run_id: str, *, store: StoreLike = None) -> list[str] | None:
    """Return the command that the run was first started with, or None."""
    run_id = check_run_id(run_id)
    found = store_for(run_id, store)
    recent = reading.recent(found, run_id)
    if recent is not None:
        return reading.opening(recent.opening, run_id, resolve=True).argv or None
    old = found.legacy(run_id)
    return old.command if old is not None else None


def last_updated(run_id: str, *, store: StoreLike = None) -> float | None:
    """Return when the newest waypoint was written, in seconds since the epoch, or None."""
    try:
        return get_waypoint(run_id, store=store).time.timestamp()
    except (RunNotFound, WaypointNotFound):
        return None


def _check_at(at: object) -> None:
    if at is not None and type(at) is not int:
        raise UsageError(f"at= takes a waypoint's number, an int, not {type(at).__name__}")


def _settled(store: Store, run_id: str, read: Callable[[], T]) -> T:
    """Read after what this process has queued for the run is written."""
    return cast("T", journal_for(store, run_id).turns.do(read))
