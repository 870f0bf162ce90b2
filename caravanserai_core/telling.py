"""What happened in a run, in sentences: its live note, its events, its end."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from caravanserai_core import lookup, reading
from caravanserai_core.journal import Journal
from caravanserai_core.known import said as said_of
from caravanserai_core.ledger import MARKS
from caravanserai_core.notes import Note, Place, recorded, render
from caravanserai_core.pending import NOTHING, Pending, begun, from_json, lines_after
from caravanserai_core.quoting import one_line
from caravanserai_core.records import Malformed, Record
from caravanserai_core.redact import redact

if TYPE_CHECKING:
    from caravanserai_core.lookup import Trail
    from caravanserai_core.stores.base import Store

__all__ = [
    "behind",
    "body",
    "ending",
    "event",
    "events",
    "happened",
    "note_text",
    "told",
    "utc",
]

_TIMED: Final = re.compile(r" (?:at )? *\0(?: UTC)?")
_WHOLE: Final = 1 << 30


def behind(trail: Trail, number: int, since: list[Record]) -> tuple[tuple[str, ...], Pending]:
    """Return what is said of a run since a waypoint, and what is not settled."""
    point = [r for r in trail.records if r.kind == "waypoint" and r.waypoint == number]
    pending = from_json(point[0].head.get("pending")) if point else NOTHING
    lines: list[str] = []
    for record in since:
        lines = lines_after(lines, pending, record.head)
        if record.kind in (*MARKS, "entry") and (line := said_of(record.head)):
            lines.append(line)
        pending = pending.after(record.head)
    return tuple(lines), pending


def body(number: int, time: str, note: Note, said: tuple[str, ...], at: Place) -> str:
    """Render a note without its title line, which the first line of the output stands for."""
    return render(number, time, note, since=said, at=at).partition("\n\n")[2].rstrip("\n")


def _before(store: Store, run_id: str, records: list[Record]) -> list[Record]:
    """Return what release 0.2.0 left of a run before its first journalled waypoint."""
    old = store.legacy(run_id)
    if old is None:
        return []
    first = next((r.waypoint for r in records if r.kind == "waypoint"), old.number + 1)
    found: list[Record] = []
    for number in range(1, first):
        point = reading.waypoint(store, run_id, number)
        head = {
            "kind": "waypoint",
            "waypoint": number,
            "note": point.note.to_json(),
            "time": point.time.astimezone(UTC).isoformat(),
            "parent": point.parent,
        }
        found.append(Record(head, None, "", None))
    return found


def note_text(store: Store, run_id: str, at: int | None, trail: Trail) -> str:
    """Return a note as it lies, or should lie, beside the journal; nothing is written.

    Args:
        store: where the run lives.
        run_id: its name.
        at: a waypoint's number; None for the live note, `latest.md`.
        trail: what is recorded of the run.

    Raises:
        WaypointNotFound: the run has no such waypoint.
        JournalDamaged, NewerFormat: the newest waypoint cannot be told.
    """
    if at is None:
        journal = Journal(store, run_id)
        journal.turns.do(journal.look)
        shown = journal.shown_now()
        if shown is not None:
            return redact(shown.text if shown.live is None else shown.live)
        at = lookup.number_at(store, lookup.Named(run_id, None), trail)
        if not at:
            return "# No waypoint yet\n"
    for record in trail.records:
        if record.kind == "waypoint" and record.waypoint == at:
            opening = lookup.opening(store, run_id)
            framework = None if opening is None else opening.framework
            goal = lookup.goal(store, run_id)
            return redact(recorded(record.head, run_id, framework, goal))
    point = reading.waypoint(store, run_id, at)  # written by release 0.2.0, or not there
    return redact(render(at, point.time.isoformat(), point.note))


def events(store: Store, run_id: str, trail: Trail) -> list[Record]:
    """Return the records of all that happened in a run, oldest first."""
    return _before(store, run_id, trail.records) + [r for r in trail.records if told(r)]


def told(record: Record) -> bool:
    """Say whether a record is something that happened in the run, not book-keeping."""
    if record.kind == "entry" and "meta" in record.head and not record.head.get("say"):
        return False  # an adapter's own; the waypoint behind it tells what it is about
    return record.kind not in ("open", "snapshot", "roll", "removed")


def event(record: Record) -> dict[str, Any]:
    """Return what a person or a program is to know of a record that is no waypoint."""
    head = record.head
    return {
        "time": head["time"],
        "kind": record.kind,
        "lane": record.lane,
        "name": head.get("name"),
        "text": happened(record),
    }


def happened(record: Record) -> str:
    """Return a record as one sentence or word, not yet made safe for a terminal."""
    head = record.head
    if record.kind == "waypoint":
        # The first paragraph: a note that waits for a person goes on with what is asked.
        return str(Note.from_json(head.get("note", ""))).partition("\n\n")[0]
    if record.kind == "finish":
        failed = head.get("outcome") == "failed"
        return (
            f"failed: {head.get('error', '')}" if failed else str(head.get("outcome", "finished"))
        )
    if record.kind in MARKS:
        return _marked(head)
    if record.kind == "lease":
        return f"taken over from {_previous(record)}"
    if record.kind == "pin":
        return f"waypoint {head.get('at')} {'is no longer pinned' if head.get('off') else 'pinned'}"
    if record.kind != "entry":
        return record.kind
    if "remark" in head:
        return f"remark: {head['remark']}"
    name, said = str(head.get("name", "entry")), head.get("say")
    return str(said) if said else name


def _previous(record: Record) -> str:
    """Say from which process a run was taken over."""
    try:
        data: Any = record.data() or {}
        found = data["from"]
        where = f" on {found['host']}" if found["host"] else ""
        return f"process {found['pid']}{where}" if found["pid"] else _SOMEBODY
    except (Malformed, KeyError, TypeError, ValueError):
        return _SOMEBODY


_SOMEBODY = "the process that worked on it"


def _marked(head: dict[str, Any]) -> str:
    """Return a record of a step, a question or an answer as one sentence."""
    if head["kind"] == "question":
        return f"{head.get('question')} asked: {head.get('text', '')}".partition("\n")[0]
    # The time has a place of its own. No text of a run brings a control character into the line.
    line = said_of({**head, "time": f"{'':11}\0"})
    if line is not None:
        return _TIMED.sub("", line).removesuffix(", no result yet")
    if head.get("what") == "fresh":
        return "begun afresh: earlier steps and answers do not count"
    told = {"uncertain": "never reported back", "unrecorded": "ended, its result was not kept"}
    return f"{begun(head).called}: {told.get(str(head.get('what')), 'a step')}"


def ending(head: dict[str, Any]) -> str:
    """Say how a run ended, from its `finish` record."""
    time = utc(head["time"])
    if head.get("outcome") == "failed":
        error = one_line(str(head.get("error", "")), _WHOLE)
        return f"the run failed at {time}: {error}"
    lost = " Its result could not be recorded." if "unrecorded" in head else ""
    return f"the run finished at {time}.{lost}"


def utc(text: str) -> str:
    """Return a recorded time in ISO 8601 to the second, in UTC and saying so."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError):
        return one_line(text, 40)
