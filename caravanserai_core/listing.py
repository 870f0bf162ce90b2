"""The list of runs, and what each one's status is. No state is read."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from caravanserai_core.errors import JournalDamaged, NewerFormat
from caravanserai_core.reading import opening

if TYPE_CHECKING:
    from caravanserai_core.records import Record
    from caravanserai_core.stores.base import Store

NEW, STOPPED, FAILED, FINISHED, DAMAGED = "new", "stopped", "failed", "finished", "damaged"


class RunInfo(NamedTuple):
    """One line of a list of runs.

    Attributes:
        run_id: the run's exact name; its folder's name where that cannot be read.
        status: new, stopped, failed, finished or damaged.
        waypoints: number of its newest waypoint.
        updated: when its last record was written, or None.
        adapter: what wrote it.
        folder: name of its folder in the store.
        error: what is wrong with it, or None.
    """

    run_id: str
    status: str
    waypoints: int
    updated: datetime | None
    adapter: str
    folder: str
    error: str | None


def status_of(last: Record | None) -> str:
    """Derive a run's status from its last record."""
    if last is None or (not last.waypoint and last.kind != "finish"):
        return NEW
    if last.kind == "finish":
        return FAILED if last.head.get("outcome") == "failed" else FINISHED
    return STOPPED


def runs(store: Store) -> list[RunInfo]:
    """Return the runs of a store, the one written last first. No state is read."""
    found: list[RunInfo] = []
    old: list[RunInfo] = []
    for listed in store.listing():
        run_id, adapter, error = listed.folder, "python", listed.error
        if listed.opening is not None:
            try:
                first = opening(listed.opening)
                run_id, adapter = first.run_id, first.adapter
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
                DAMAGED if error else status_of(last),
                last.waypoint if last is not None else 0,
                datetime.fromisoformat(last.head["time"]) if last is not None else None,
                adapter,
                listed.folder,
                error,
            )
        )
    # A run of 0.2.0 that went on under another folder name is listed once, as what it is now.
    known = {info.run_id for info in found}
    found += [info for info in old if info.run_id not in known]
    found.sort(key=lambda info: (-(info.updated.timestamp() if info.updated else 0), info.run_id))
    return found
