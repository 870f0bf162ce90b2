"""Branching off a run, and keeping it small: `fork`, `pin`, `prune`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from caravanserai_core import points, reading, retention
from caravanserai_core.branching import fork_run
from caravanserai_core.errors import UsageError
from caravanserai_core.homes import share_home, store_for
from caravanserai_core.importing import refuse_work
from caravanserai_core.journal import forget, journal_for
from caravanserai_core.names import check_run_id
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from datetime import timedelta

    from caravanserai_core.homes import StoreLike


def fork(run_id: str, *, at: int | None = None, new_run_id: str, store: StoreLike = None) -> int:
    """Begin a new run with the exact state of another one's waypoint.

    Both go on by themselves; nothing of the first one changes. The waypoint keeps its number in
    the new run, and its note says where it comes from. What `once` recorded until then is
    known there too; questions, pins and a recorded result are not.

    Args:
        run_id: the run to branch off.
        at: a waypoint's number, or a negative one counted from the end: -1 is the newest. None:
            the newest of the main lane.
        new_run_id: the name of the new run.
        store: a store, a folder or URL; by default CARAVANSERAI_STORE, else `.caravanserai` here.

    Returns:
        The number of the waypoint.

    Raises:
        RunNotFound, WaypointNotFound: there is no such run or waypoint.
        UsageError: the new run exists already.
        JournalDamaged: the run is damaged somewhere; nothing was written.
    """
    run_id, new_run_id = check_run_id(run_id), check_run_id(new_run_id)
    refuse_work(new_run_id)
    if at is not None:
        _check_number("at=", at)
    found = store_for(run_id, store)
    # What this process has queued for the run is written first.
    number: int = journal_for(found, run_id).turns.do(
        lambda: fork_run(found, run_id, at, new_run_id)
    )
    # It is no surprise to this process that the run is there, and it is beside the other one.
    forget(found, new_run_id)
    if store is None:
        share_home(new_run_id, run_id)
    return number


def afork(
    run_id: str, *, at: int | None = None, new_run_id: str, store: StoreLike = None
) -> Coroutine[Any, Any, int]:
    """Begin a new run with another one's waypoint, from async code; see `fork`."""
    home = store_for(check_run_id(run_id), store)
    return wait_for(in_thread(lambda: fork(run_id, at=at, new_run_id=new_run_id, store=home)))


def pin(run_id: str, at: int, *, unpin: bool = False, store: StoreLike = None) -> int:
    """Keep a waypoint, whatever is pruned.

    Args:
        run_id: the run's name.
        at: the waypoint's number, or a negative one counted from the end.
        unpin: let go of it again.
        store: as in `fork`.

    Returns:
        The number of the waypoint.

    Raises:
        RunNotFound, WaypointNotFound: there is no such run or waypoint.
        UsageError: release 0.2.0 wrote the run, and nothing was added since.
    """
    run_id = check_run_id(run_id)
    _check_number("at=", at)
    found = store_for(run_id, store)
    journal = journal_for(found, run_id)

    def work() -> int:
        number = reading.waypoint(found, run_id, points.resolve(found, run_id, at)).number
        known = points.records(found, run_id)
        if not known:
            raise UsageError("a run of release 0.2.0 loses nothing; save it once before you pin")
        if (number in points.pinned(points.asides(found, run_id, known))) is unpin:
            fields: dict[str, Any] = {"at": number}
            if unpin:
                fields["off"] = True
            if known[-1].kind in ("finish", "pin") and "outcome" in known[-1].head:
                fields["outcome"] = known[-1].head["outcome"]  # it is still the end of the run
            journal.add("pin", fields)
        return number

    number: int = journal.turns.do(work)
    return number


def prune(
    run_id: str,
    *,
    keep: int | None = None,
    older_than: timedelta | None = None,
    store: StoreLike = None,
) -> int:
    """Remove old waypoints of a run for good, with their notes, and give their space back.

    A waypoint goes if it is neither among the newest `keep` of the main lane nor younger than
    `older_than`. These stay in any case: the newest of each lane, pinned ones, those at which a
    question is open, and what the run's framework needs to go on from those that stay. What
    `once` recorded stays too. Numbers stay as they are.

    Args:
        run_id: the run's name.
        keep: how many of the newest waypoints stay.
        older_than: an age; what is younger stays.
        store: as in `fork`.

    Returns:
        How many waypoints were removed.

    Raises:
        RunNotFound: there is no such run.
        UsageError: neither `keep` nor `older_than` was given.
        JournalDamaged, StoreFailed, StoreBusy: nothing was changed.
    """
    wanted = retention.rules(keep, older_than)
    run_id = check_run_id(run_id)
    found = store_for(run_id, store)
    journal = journal_for(found, run_id)

    def work() -> int:
        if not retention.plan(found, run_id, wanted).going:
            return 0
        return journal.compact(retention.Pruning(found, run_id, wanted))

    removed: int = journal.turns.do(work)
    return removed


def _check_number(what: str, value: object) -> None:
    if type(value) is not int:
        raise UsageError(f"{what} takes a waypoint's number, an int, not {type(value).__name__}")
