"""A new run that begins where another one was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from caravanserai_core import compaction, points, reading, retention, survey
from caravanserai_core.errors import UsageError
from caravanserai_core.notes import Note
from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from caravanserai_core.records import Record
    from caravanserai_core.stores.base import Store

_LEFT = {"answer", "finish", "lease", "pin", "question", "withdrawn"}
"""Kinds that belong to the run that they were written for, and not to what branches off it."""


def fork_run(store: Store, run_id: str, at: int | None, new_run_id: str) -> int:
    """Begin a run with the state of another one's waypoint; the other one is not touched.

    The new run is as the old one was when that waypoint was written: the newest waypoint of each
    lane, under its number, and what was recorded of effects until then. At the newest waypoint it
    is as the old one is now.

    Args:
        store: where both live.
        run_id: the run to branch off.
        at: number of a waypoint, a negative one counted from the end; None for the newest.
        new_run_id: the name of the new run.

    Returns:
        The number of the waypoint.

    Raises:
        RunNotFound: there is no such run.
        WaypointNotFound: it has no such waypoint, or that has no state.
        UsageError: the new run exists already.
        JournalDamaged: the run is damaged somewhere; nothing was written.
    """
    if run_id == new_run_id:
        raise UsageError(f"a fork of run {one_line(run_id)} needs a name of its own")
    return compaction.unmoved(lambda: _fork(store, run_id, at, new_run_id))


def _fork(store: Store, run_id: str, at: int | None, new_run_id: str) -> int:
    number = reading.waypoint(
        store, run_id, None if at is None else points.resolve(store, run_id, at)
    ).number
    items = _until(list(survey.records(store, run_id, bodies=True)), number)
    if not items:
        old = store.legacy(run_id)
        if old is None or old.number != number:
            reading.load(store, run_id, number)  # raises: release 0.2.0 kept no state of it
    heads = {record.lane: record.waypoint for record in items if record.kind == "waypoint"}
    kept, entry = retention.with_needs(store, run_id, items, set(heads.values()), {number})
    for record in items:
        _without_questions(record.head)
        if record.kind == "waypoint" and record.waypoint == number:
            record.head["note"] = _told(record.head.get("note", ""), run_id, number)

    def keep(record: Record) -> bool | None:
        return record.waypoint in kept if record.kind == "waypoint" else entry(record)

    branch = compaction.Branch(
        items, {"run_id": run_id, "waypoint": number}, lambda head: head.get("kind") not in _LEFT
    )
    compaction.copy_run(store, run_id, store, new_run_id, keep, branch=branch)
    return number


def _until(records: list[Record], number: int) -> list[Record]:
    """Return the records up to a waypoint; all, if none came after it."""
    stops = [place for place, record in enumerate(records) if record.kind == "waypoint"]
    if not stops or records[stops[-1]].waypoint == number:
        return records
    end = next((place for place in stops if records[place].waypoint == number), -1)
    return records[: end + 1]


def _without_questions(head: dict[str, Any]) -> None:
    """Let a record say nothing of questions that were open: the new run does not have them."""
    for name in ("waits", "used"):
        head.pop(name, None)
    pending = head.pop("pending", None)
    if isinstance(pending, dict):
        left = {name: items for name, items in pending.items() if name != "questions"}
        if left:
            head["pending"] = left


def _told(note: Any, run_id: str, number: int) -> str | dict[str, Any]:
    told = Note.from_json(note).to_json()
    line = f"Forked from waypoint {number} of {one_line(run_id)}."
    before = told if isinstance(told, str) else told["summary"]
    summary = f"{line}\n\n{before}" if before else line
    return summary if isinstance(told, str) else {**told, "summary": summary}
