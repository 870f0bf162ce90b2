"""`caravanserai show`: a waypoint's note and state, and what was recorded after it."""

from __future__ import annotations

import shutil
from datetime import UTC
from typing import TYPE_CHECKING, Any

import click

from caravanserai_core import lookup, telling, verify
from caravanserai_core.cli import _out, _runs, _value
from caravanserai_core.cli._app import Session, common_options, json_option
from caravanserai_core.cli._shell import quote
from caravanserai_core.errors import UsageError
from caravanserai_core.notes import Note, Place
from caravanserai_core.pending import NOTHING
from caravanserai_core.quoting import visible

if TYPE_CHECKING:
    from caravanserai_core.lookup import Trail
    from caravanserai_core.reading import Waypoint
    from caravanserai_core.records import Record
    from caravanserai_core.stores import Store

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
    named = lookup.find(store, run)
    verify.renew_notes(store, named.run_id)
    trail = lookup.trail(store, named.run_id)
    number = lookup.number_at(store, named, trail)
    if number == 0 and only_state:
        lookup.waypoint(store, named.run_id, 1, trail)  # raises: there is none
    shown = lookup.waypoint(store, named.run_id, number, trail) if number else None
    since = trail.since(number)
    if only_state:
        _out.print_json(lookup.raw_state(store, named.run_id, number))
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
    said, pending = telling.behind(trail, shown.number if shown else 0, since)
    at = Place(run_id, pending)
    if shown is None:
        parts = ["no waypoint yet", *_about(store, run_id)]
        if said or pending != NOTHING:
            parts.append(telling.body(0, "", Note(""), said, at))
    else:
        note = shown.note
        parts = [f"waypoint {shown.number}", *_about(store, run_id, note.goal)]
        if said or pending != NOTHING or type(note.to_json()) is not str:
            parts.append(telling.body(shown.number, shown.time.isoformat(), note, said, at))
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
        parts.append(telling.ending(since[-1].head))
    return "\n\n".join(parts)


def _about(store: Store, run_id: str, noted: str | None = None) -> tuple[str, ...]:
    """Say what the run is for, where the note does not say the same, and where it comes from."""
    goal = lookup.goal(store, run_id)
    told = () if goal is None or goal == noted else (f"goal: {_out.cell(goal)}",)
    origin = lookup.origin_text(lookup.origin(store, run_id))
    further = lookup.handed_to(store, run_id)
    return (*told, *(line for line in (origin, further) if line))


def _state(store: Store, run_id: str, number: int, exact: str) -> str:
    """Write a state for a person; `exact` is the command that prints all of it."""
    tree, tagged = lookup.state_tree(store, run_id, number)
    at_terminal = _out.on_terminal()
    width = shutil.get_terminal_size((_WIDTH, 24)).columns if at_terminal else _WIDTH
    begin = "state: "
    text = _value.text(tree, width, tagged=tagged, column=len(begin))
    limit = _LONG if at_terminal else _LONG_PIPED
    if len(text) > limit:
        text = f"{text[:limit]}…\n({len(text):,} characters; all of it: {exact})"
    return f"{begin}{text}"


def _tree(
    store: Store, run_id: str, trail: Trail, shown: Waypoint | None, since: list[Record]
) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "run": run_id,
        "status": trail.status,
        "goal": lookup.goal(store, run_id),
        "origin": lookup.origin(store, run_id),
        "folder": _runs.folder_of(store, run_id),
        "waypoint": shown.number if shown else 0,
        "time": shown.time.astimezone(UTC).isoformat() if shown else None,
        "lane": shown.lane if shown else None,
        "parent": shown.parent if shown else None,
        "by": shown.by if shown else None,
        "adapter": shown.adapter if shown else None,
        "note": shown.note.to_json() if shown else None,
        "state": lookup.raw_state(store, run_id, shown.number) if shown else None,
        "since": [telling.event(record) for record in since if telling.told(record)],
        **telling.behind(trail, shown.number if shown else 0, since)[1].to_json(),
    }
    if shown is not None and shown.schema != 1:
        tree["schema"] = shown.schema
    return tree
