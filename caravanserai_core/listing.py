"""The list of runs, and what each one's status is. No state is read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from caravanserai_core.errors import CaravanseraiError, JournalDamaged, NewerFormat
from caravanserai_core.names import folder_name
from caravanserai_core.reading import misplaced, opening

if TYPE_CHECKING:
    from caravanserai_core.records import Record
    from caravanserai_core.stores.base import Store

NEW, STOPPED, FAILED, FINISHED, DAMAGED = "new", "stopped", "failed", "finished", "damaged"
RUNNING, WAITING = "running", "waiting"


class RunInfo(NamedTuple):
    """One line of a list of runs.

    Attributes:
        run_id: the run's exact name; its folder's name where that cannot be read.
        status: new, running, stopped, waiting (for a person), failed, finished or damaged.
        waypoints: number of its newest waypoint.
        updated: when its last record was written, or None.
        adapter: what wrote it.
        folder: name of its folder in the store.
        error: what is wrong with it, or None.
        origin: the run that it was copied or forked from, `{"run_id"}` and for a fork
            `"waypoint"`, or None.
        waits: ids of the questions that are open.
        stopped: it failed because a person's answer ended it.
    """

    run_id: str
    status: str
    waypoints: int
    updated: datetime | None
    adapter: str
    folder: str
    error: str | None
    origin: dict[str, object] | None = None
    waits: tuple[str, ...] = ()
    stopped: bool = False


def waits_of(last: Record | None) -> tuple[str, ...]:
    """Return the ids of the questions that are open, from a run's last record."""
    found = None if last is None else last.head.get("waits")
    return tuple(str(name) for name in found) if isinstance(found, list) else ()


def status_of(last: Record | None) -> str:
    """Derive a run's status from its last record."""
    if last is not None and last.kind != "finish" and waits_of(last):
        return WAITING
    if last is None or (not last.waypoint and last.kind != "finish"):
        return NEW
    # A pin, or a takeover, says how a run that is finished had ended.
    if last.kind == "finish" or (last.kind in ("pin", "lease") and "outcome" in last.head):
        return FAILED if last.head.get("outcome") == "failed" else FINISHED
    return STOPPED


def status_now(store: Store, run_id: str, last: Record | None, held: bool | None = None) -> str:
    """Return a run's status, which is another one while a living process works on it.

    Args:
        store: where it lives.
        run_id: its name.
        last: its last record.
        held: whether a living process works on it, if that is known.
    """
    status = status_of(last)
    if status == FINISHED:
        return status
    try:
        if held is None:
            held = store.holder(run_id) is not None
        return RUNNING if held else status
    except CaravanseraiError:
        return status  # a list tells of many runs, and this cannot be told of one


def runs(store: Store) -> list[RunInfo]:
    """Return the runs of a store, the one written last first. No state is read."""
    found: list[RunInfo] = []
    old: list[RunInfo] = []
    for listed in store.listing():
        run_id, adapter, error, origin = listed.folder, "python", listed.error, None
        if listed.opening is not None:
            try:
                first = opening(listed.opening)
                run_id, adapter, origin = first.run_id, first.adapter, first.origin
                if folder_name(run_id) != listed.folder:
                    run_id, error = listed.folder, misplaced(listed.folder, run_id)
            except (NewerFormat, JournalDamaged) as problem:
                error = str(problem)
        if listed.legacy:
            legacy = store.legacy(listed.folder)
            if legacy is not None:
                time = datetime.fromtimestamp(legacy.updated).astimezone()
                old.append(RunInfo(run_id, STOPPED, legacy.number, time, "python", run_id, None))
            continue
        last = listed.last
        found.append(
            RunInfo(
                run_id,
                DAMAGED if error else status_now(store, run_id, last, listed.held),
                last.waypoint if last is not None else 0,
                datetime.fromisoformat(last.head["time"]) if last is not None else None,
                adapter,
                listed.folder,
                error,
                origin,
                waits_of(last),
                last is not None and bool(last.head.get("stopped")),
            )
        )
    # A run of 0.2.0 that went on under another folder name is listed once, as what it is now.
    known = {info.run_id for info in found}
    found += [info for info in old if info.run_id not in known]
    found.sort(key=lambda info: (-(info.updated.timestamp() if info.updated else 0), info.run_id))
    return found


def spoken(info: RunInfo) -> str:
    """Return what a run's status is called where people read it."""
    if info.status == FAILED and info.stopped:
        return "ended by an answer"
    return "waits for you" if info.status == WAITING else info.status


def age(time: datetime | None) -> str:
    """Say in one unit how long ago something was: `12s ago`, `3m ago`, `2h ago`, `5d ago`."""
    if time is None:
        return "?"
    seconds = max(0, int((datetime.now(UTC) - time).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit} ago"
    return f"{seconds}s ago"
