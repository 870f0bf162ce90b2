"""Which waypoints a run has, and what was recorded about one of them: its pins, its questions.

From heads alone; no state is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from caravanserai_core import reading, survey
from caravanserai_core.errors import JournalDamaged, WaypointNotFound
from caravanserai_core.pending import NOTHING
from caravanserai_core.quoting import one_line
from caravanserai_core.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from caravanserai_core.stores.base import Store

_IN_PLACE = {"open", "snapshot", "waypoint", "entry", "roll", "removed"}


def resolve(store: Store, run_id: str, at: int) -> int:
    """Return the number of the waypoint that `at` means; a negative one is counted from the end.

    Args:
        store: where the run lives.
        run_id: its name.
        at: a number, or -1 for the newest waypoint of the main lane, -2 for the one before it.

    Raises:
        RunNotFound: there is no such run.
        WaypointNotFound: it does not have as many.
    """
    if at >= 0:
        return at
    numbers = [point.number for point in reading.waypoints(store, run_id) if not point.lane]
    if -at > len(numbers):
        raise WaypointNotFound(
            f"run {one_line(run_id)} in {store.where(run_id)} has {len(numbers)} waypoints; {at} "
            "is not one of them. `caravanserai log` lists them all."
        )
    return numbers[at]


def records(store: Store, run_id: str) -> list[Record]:
    """Return the records of a run, large bodies left out.

    Raises:
        RunNotFound: there is no such run.
        JournalDamaged: the journal is damaged somewhere.
    """
    found = list(survey.records(store, run_id, bodies=False))
    if found:
        reading.written_by(store, run_id)  # whose journal it is, and of which format
    elif store.legacy(run_id) is None:
        raise reading.not_found(store, run_id)
    return found


def asides(store: Store, run_id: str, found: Iterable[Record]) -> list[dict[str, Any]]:
    """Return the heads of the records that stay whatever is pruned, oldest first.

    Args:
        store: where the run lives.
        run_id: its name.
        found: all its records; of the large ones the body need not have been read.
    """
    heads: list[dict[str, Any]] = []
    for place, record in enumerate(found):
        if record.kind == "snapshot" and place == 1:
            # What was carried over a compaction stands nowhere else.
            whole = record if record.body is not None else _whole(store, run_id, record)
            carried = (whole.data() or {}).get("carried", [])
            heads += [item["head"] for item in carried if isinstance(item.get("head"), dict)]
        elif record.kind not in _IN_PLACE:
            heads.append(record.head)
    return heads


def _whole(store: Store, run_id: str, record: Record) -> Record:
    for item in store.scan(run_id, bodies=True, start=record.place):
        if isinstance(item, Record) and item.sum == record.sum:
            return item
    raise JournalDamaged(f"record {record.seq} of run {one_line(run_id)} has gone")


def pinned(heads: Iterable[dict[str, Any]]) -> set[int]:
    """Return the numbers of the waypoints that are pinned; see `asides`."""
    found: set[int] = set()
    for head in heads:
        if head.get("kind") == "pin" and type(head.get("at")) is int:
            (found.discard if head.get("off") else found.add)(head["at"])
    return found


def asked(heads: Iterable[dict[str, Any]]) -> set[int]:
    """Return the numbers of the waypoints at which a question is open; see `asides`."""
    pending = NOTHING
    at: dict[str, int] = {}
    for head in heads:
        pending = pending.after(head)
        if head.get("kind") == "question":
            at[str(head.get("question"))] = head.get("waypoint", 0)
    return {at[question] for question in pending.waits}
