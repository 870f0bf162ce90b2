"""`caravanserai show`: a waypoint's note and state, and what was recorded after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from caravanserai_core import reading, verify
from caravanserai_core.cli import _out, _runs
from caravanserai_core.cli._app import Session, json_option, store_option
from caravanserai_core.errors import SchemaMismatch, UnknownType, UsageError
from caravanserai_core.notes import Note, render
from caravanserai_core.quoting import visible

if TYPE_CHECKING:
    from caravanserai_core.cli._runs import Trail
    from caravanserai_core.reading import Waypoint
    from caravanserai_core.records import Record
    from caravanserai_core.stores import Store

_LONG = 2000
"""Characters of a state that a terminal gets; a pipe gets all of them."""


@click.command(
    "show",
    short_help="A waypoint: its note, its state, what came since.",
    epilog="Keys of --json: run, status, folder, waypoint, time, lane, parent, by, adapter, note "
    "(a text, or the fields of a structured note), state (with tags for what JSON cannot hold), "
    "since [time, kind, lane, name, text]. For a run without a waypoint: waypoint is 0, and the "
    "fields up to state are null.",
)
@click.argument("run", shell_complete=_runs.complete)
@click.option("--state", "only_state", is_flag=True, help="Print the exact state alone, as JSON.")
@click.option(
    "--raw",
    is_flag=True,
    help="Print note and state with their control characters as they are; not on a terminal.",
)
@json_option
@store_option
@click.pass_obj
def show_(session: Session, run: str, only_state: bool, raw: bool, as_json: bool) -> None:
    """Show a waypoint of RUN: its note, its state, what came since.

    The state is printed as Python writes it; --state gives it exactly, also without the types of
    the program that saved it.
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
        _out.line(_text(store, named.run_id, shown, since, raw=raw))
    for problem in trail.damage:
        _out.note(f"Warning: {problem} `caravanserai verify` tells more.")


def _text(
    store: Store,
    run_id: str,
    shown: Waypoint | None,
    since: list[Record],
    *,
    raw: bool,
) -> str:
    said = tuple(text for r in since if r.kind == "entry" and (text := r.head.get("say")))
    if shown is None:
        parts = ["no waypoint yet"]
        if said:
            parts.append(_body(0, "", Note(""), said))
    else:
        parts = [f"waypoint {shown.number}"]
        note = shown.note
        if said or type(note.to_json()) is not str:
            parts.append(_body(shown.number, shown.time.isoformat(), note, said))
        else:
            parts.append(note.summary if raw else visible(note.summary))
        parts.append(_state(store, run_id, shown.number, raw=raw))
    silent = sum(r.kind == "entry" and not r.head.get("say") for r in since)
    if silent:
        steps = "1 recorded step" if silent == 1 else f"{silent} recorded steps"
        parts.append(f"since then: {steps} without a text, see `caravanserai log`")
    if since and since[-1].kind == "finish":
        parts.append(ending(since[-1].head))
    return "\n\n".join(parts)


def _body(number: int, time: str, note: Note, said: tuple[str, ...]) -> str:
    """Render a note without its title line, which the first line of the output stands for."""
    return render(number, time, note, since=said).partition("\n\n")[2].rstrip("\n")


def _state(store: Store, run_id: str, number: int, *, raw: bool) -> str:
    try:
        text = repr(reading.load(store, run_id, number))
    except (UnknownType, SchemaMismatch, ValueError, RecursionError):
        # A type of the program that saved it, or an int with more digits than repr() gives.
        text = repr(_runs.raw_state(store, run_id, number))
    if raw:
        return f"state: {text}"
    text = visible(text)
    if _out.on_terminal() and len(text) > _LONG:
        size = f"{len(text):,} characters"
        text = (
            f"{text[:_LONG]}…\n({size}; all of it: caravanserai show {_out.cell(run_id)} --state)"
        )
    return f"state: {text}"


def ending(head: dict[str, Any]) -> str:
    """Say how a run ended, from its `finish` record."""
    time = visible(head["time"][:19])
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
        "folder": store.where(run_id),
        "waypoint": shown.number if shown else 0,
        "time": shown.time.isoformat() if shown else None,
        "lane": shown.lane if shown else None,
        "parent": shown.parent if shown else None,
        "by": shown.by if shown else None,
        "adapter": shown.adapter if shown else None,
        "note": shown.note.to_json() if shown else None,
        "state": _runs.raw_state(store, run_id, shown.number) if shown else None,
        "since": [event(record) for record in since if told(record)],
    }
    return tree


def told(record: Record) -> bool:
    """Say whether a record is something that happened in the run, not book-keeping."""
    return record.kind not in ("open", "snapshot", "roll")


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
        return str(Note.from_json(head.get("note", "")))
    if record.kind == "finish":
        failed = head.get("outcome") == "failed"
        return (
            f"failed: {head.get('error', '')}" if failed else str(head.get("outcome", "finished"))
        )
    if record.kind != "entry":
        return record.kind
    if "remark" in head:
        return f"remark: {head['remark']}"
    name, said = str(head.get("name", "entry")), head.get("say")
    return f"{name}: {said}" if said else name
