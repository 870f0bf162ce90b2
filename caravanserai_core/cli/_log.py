"""`caravanserai log`: every waypoint of a run and every recorded step between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from caravanserai_core import lookup, telling
from caravanserai_core.cli import _graph, _out, _runs
from caravanserai_core.cli._app import Session, common_options, json_option
from caravanserai_core.errors import UsageError
from caravanserai_core.schema import schema_of

if TYPE_CHECKING:
    from caravanserai_core.records import Record


@click.command(
    "log",
    short_help="All waypoints, and every step between.",
    epilog="Piped, a line is number (`3+`: a step after waypoint 3), time, writer, parent, lane, "
    "text, with a tab between. Keys of --json: run, status, origin, damage, events [time, kind, "
    "lane, name, text, waypoint, parent, by, and schema where it is not 1]; the waypoint of "
    "another kind of event is the one before.",
)
@click.argument("run", shell_complete=_runs.complete)
@click.option(
    "--graph", is_flag=True, help="Draw the run with those that it comes from, and its forks."
)
@click.option("--mermaid", is_flag=True, help="The same as the text of a Mermaid flow chart.")
@json_option
@common_options
@click.pass_obj
def log_(session: Session, run: str, graph: bool, mermaid: bool, as_json: bool) -> None:
    """List all waypoints of RUN, and every recorded step between and after them.

    WRITER tells the processes apart that wrote the run.
    """
    store = session.store
    if (graph or mermaid) and as_json:
        raise UsageError("--graph and --mermaid print a drawing; leave --json out")
    run_id = lookup.find(store, run).run_id
    if graph or mermaid:
        found = _graph.family(store, run_id)
        _out.line((_graph.mermaid if mermaid else _graph.text)(found, run_id))
        return
    trail = lookup.trail(store, run_id)
    records = telling.events(store, run_id, trail)
    if as_json:
        _out.print_json(
            {
                "run": run_id,
                "status": trail.status,
                "origin": lookup.origin(store, run_id),
                "damage": trail.damage,
                "events": [_event(record) for record in records],
            }
        )
    elif _out.on_terminal():
        _table(records)
    elif records:
        _out.line("\n".join("\t".join(_row(record, short=False)) for record in records))
    for problem in trail.damage:
        _out.fail(problem)
    if trail.damage:
        click.get_current_context().exit(4)


def _table(records: list[Record]) -> None:
    """Print the events for a person; a column in which nothing would surprise is left out."""
    left_out = set[int]()
    points = [record for record in records if record.kind == "waypoint"]
    if not any(record.lane for record in records):
        left_out.add(4)
        before = [None, *(record.waypoint for record in points)]
        if all(r.head.get("parent") in (b, None) for r, b in zip(points, before, strict=False)):
            left_out.add(3)

    def shown(row: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(text for place, text in enumerate(row) if place not in left_out)

    header = shown(("#", "time (UTC)", "writer", "parent", "lane", "what"))
    rows = [shown(_row(record, short=True)) for record in records]
    _out.table(header, rows, right=(0,) if 3 in left_out else (0, 3))


def _event(record: Record) -> dict[str, Any]:
    head = record.head
    schema = schema_of(head)
    return {
        **telling.event(record),
        "waypoint": record.waypoint,
        "parent": head.get("parent"),
        "by": record.by,
        **({"schema": schema} if schema != 1 else {}),
    }


def _row(record: Record, *, short: bool) -> tuple[str, ...]:
    head = record.head
    parent = head.get("parent")
    return (
        f"{record.waypoint}{'' if record.kind == 'waypoint' else '+'}",
        telling.utc(head["time"])[:19].replace("T", " ") if short else _out.cell(head["time"]),
        _out.cell(record.by) or "-",
        "-" if parent is None else str(parent),
        _out.cell(record.lane) or "-",
        _out.cell(telling.happened(record), 200 if short else _out.WHOLE),
    )
