"""`caravanserai show`: a waypoint's note and state, and what was recorded after it."""

from __future__ import annotations

import re
import shutil
from datetime import UTC
from typing import TYPE_CHECKING, Any

import click

from caravanserai_core import verify
from caravanserai_core.cli import _out, _runs, _value
from caravanserai_core.cli._app import Session, common_options, json_option
from caravanserai_core.cli._shell import quote
from caravanserai_core.errors import UsageError
from caravanserai_core.known import said as said_of
from caravanserai_core.ledger import MARKS
from caravanserai_core.notes import Note, Place, render
from caravanserai_core.pending import NOTHING, Pending, begun, from_json, lines_after
from caravanserai_core.quoting import visible

if TYPE_CHECKING:
    from caravanserai_core.cli._runs import Trail
    from caravanserai_core.reading import Waypoint
    from caravanserai_core.records import Record
    from caravanserai_core.stores import Store

_TIMED = re.compile(r" (?:at )? *\0(?: UTC)?")

_LONG = 2000
"""Characters of a state that a terminal gets."""
_LONG_PIPED = 20_000
_WIDTH = 100
"""Characters of a line of a long state, where there is no terminal to say how many."""


@click.command(
    "show",
    short_help="A waypoint: its note, its state, what came since.",
    epilog="Keys of --json: run, status, goal, origin, folder (its absolute path), waypoint, time, "
    "lane, parent, by, adapter, note (a text, or the fields of a structured note), state (with "
    "tags for what JSON cannot hold), since [time, kind, lane, name, text], and "
    "where there are any, effects (steps without an end) and questions (open ones); schema, where "
    "it is not 1. For a run "
    "without a waypoint: waypoint is 0, and the fields up to state are null.",
)
@click.argument("run", shell_complete=_runs.complete)
@click.option("--state", "only_state", is_flag=True, help="Print the exact state alone, as JSON.")
@click.option(
    "--raw",
    is_flag=True,
    help="Print note and state with their control characters as they are; not on a terminal.",
)
@json_option
@common_options
@click.pass_obj
def show_(session: Session, run: str, only_state: bool, raw: bool, as_json: bool) -> None:
    """Show a waypoint of RUN: its note, its state, what came since.

    The state is printed as Python writes it, a long one over several lines and not to its end;
    --state gives all of it, exactly.
    """
    store = session.store
    if raw and _out.on_terminal():
        raise UsageError("--raw is for a pipe or a file: on a terminal a run's text would act")
    named = _runs.find(store, run)
    verify.renew_notes(store, named.run_id)
    trail = _runs.trail(store, named.run_id)
    number = _runs.number_at(store, named, trail)
    if number == 0 and only_state:
        _runs.waypoint(store, named.run_id, 1, trail)  # raises: there is none
    shown = _runs.waypoint(store, named.run_id, number, trail) if number else None
    since = trail.since(number)
    if only_state:
        _out.print_json(_runs.raw_state(store, named.run_id, number))
    elif as_json:
        _out.print_json(_tree(store, named.run_id, trail, shown, since))
    else:
        exact = f"{session.called} show {quote(f'{named.run_id}@{number}')} --state"
        _out.line(_text(store, named.run_id, shown, since, exact, trail, raw=raw))
    for problem in trail.damage:
        _out.note(f"Warning: {problem}")


def _text(
    store: Store,
    run_id: str,
    shown: Waypoint | None,
    since: list[Record],
    exact: str,
    trail: Trail,
    *,
    raw: bool,
) -> str:
    clean = str if raw else visible
    said, pending = behind(trail, shown.number if shown else 0, since)
    at = Place(run_id, pending)
    if shown is None:
        parts = ["no waypoint yet", *_about(store, run_id)]
        if said or pending != NOTHING:
            parts.append(_body(0, "", Note(""), said, at))
    else:
        note = shown.note
        parts = [f"waypoint {shown.number}", *_about(store, run_id, note.goal)]
        if said or pending != NOTHING or type(note.to_json()) is not str:
            parts.append(_body(shown.number, shown.time.isoformat(), note, said, at))
        else:
            parts.append(clean(note.summary))
        parts.append(clean(_state(store, run_id, shown.number, exact)))
    remarks = [str(r.head["remark"]) for r in since if r.kind == "entry" and "remark" in r.head]
    if remarks:
        parts.append("\n".join(f"remarked since then: {clean(remark)}" for remark in remarks))
    silent = sum(r.kind == "entry" and not {"say", "remark"} & r.head.keys() for r in since)
    if silent:
        steps = "1 recorded step" if silent == 1 else f"{silent} recorded steps"
        parts.append(f"since then: {steps} without a text, see `caravanserai log`")
    if since and since[-1].kind == "finish":
        parts.append(ending(since[-1].head))
    return "\n\n".join(parts)


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


def _body(number: int, time: str, note: Note, said: tuple[str, ...], at: Place) -> str:
    """Render a note without its title line, which the first line of the output stands for."""
    return render(number, time, note, since=said, at=at).partition("\n\n")[2].rstrip("\n")


def _about(store: Store, run_id: str, noted: str | None = None) -> tuple[str, ...]:
    """Say what the run is for, where the note does not say the same, and where it comes from."""
    goal = _runs.goal(store, run_id)
    told = () if goal is None or goal == noted else (f"goal: {_out.cell(goal)}",)
    origin = _runs.origin_text(_runs.origin(store, run_id))
    return (*told, origin) if origin else told


def _state(store: Store, run_id: str, number: int, exact: str) -> str:
    """Write a state for a person; `exact` is the command that prints all of it."""
    tree, tagged = _runs.state_tree(store, run_id, number)
    at_terminal = _out.on_terminal()
    width = shutil.get_terminal_size((_WIDTH, 24)).columns if at_terminal else _WIDTH
    begin = "state: "
    text = _value.text(tree, width, tagged=tagged, column=len(begin))
    limit = _LONG if at_terminal else _LONG_PIPED
    if len(text) > limit:
        text = f"{text[:limit]}…\n({len(text):,} characters; all of it: {exact})"
    return f"{begin}{text}"


def ending(head: dict[str, Any]) -> str:
    """Say how a run ended, from its `finish` record."""
    time = _out.utc(head["time"])
    if head.get("outcome") == "failed":
        error = _out.cell(str(head.get("error", "")))
        return f"the run failed at {time}: {error}"
    lost = " Its result could not be recorded." if "unrecorded" in head else ""
    return f"the run finished at {time}.{lost}"


def _tree(
    store: Store, run_id: str, trail: Trail, shown: Waypoint | None, since: list[Record]
) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "run": run_id,
        "status": trail.status,
        "goal": _runs.goal(store, run_id),
        "origin": _runs.origin(store, run_id),
        "folder": _runs.folder_of(store, run_id),
        "waypoint": shown.number if shown else 0,
        "time": shown.time.astimezone(UTC).isoformat() if shown else None,
        "lane": shown.lane if shown else None,
        "parent": shown.parent if shown else None,
        "by": shown.by if shown else None,
        "adapter": shown.adapter if shown else None,
        "note": shown.note.to_json() if shown else None,
        "state": _runs.raw_state(store, run_id, shown.number) if shown else None,
        "since": [event(record) for record in since if told(record)],
        **behind(trail, shown.number if shown else 0, since)[1].to_json(),
    }
    if shown is not None and shown.schema != 1:
        tree["schema"] = shown.schema
    return tree


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
        return marked(head)
    if record.kind == "lease":
        return "taken over from the process that worked on it"
    if record.kind == "pin":
        return f"waypoint {head.get('at')} {'is no longer pinned' if head.get('off') else 'pinned'}"
    if record.kind != "entry":
        return record.kind
    if "remark" in head:
        return f"remark: {head['remark']}"
    name, said = str(head.get("name", "entry")), head.get("say")
    return str(said) if said else name


def marked(head: dict[str, Any]) -> str:
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
