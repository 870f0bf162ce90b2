"""`caravanserai diff`: what changed between the states of two waypoints."""

from __future__ import annotations

from typing import Any

import click

from caravanserai_core import comparing, lookup
from caravanserai_core.cli import _out, _runs
from caravanserai_core.cli._app import Session, common_options, json_option


@click.command(
    "diff",
    short_help="What changed between two waypoints.",
    epilog="--json prints a JSON Patch (RFC 6902): a list of add, remove and replace operations "
    "that turns the first state's JSON, as `show --state` prints it, into the second's.",
)
@click.argument("before", metavar="RUN[@N]", shell_complete=_runs.complete)
@click.argument("after", metavar="[RUN[@M]]", required=False, shell_complete=_runs.complete)
@json_option
@common_options
@click.pass_obj
def diff_(session: Session, before: str, after: str | None, as_json: bool) -> None:
    """Show what changed between two waypoints: `diff RUN@3 RUN@5`.

    With one name: between that waypoint, by default the newest, and the one before it.
    """
    store = session.store
    second = comparing.point(store, lookup.find(store, before if after is None else after))
    if after is None:
        first = comparing.parent_of(store, second)
    else:
        first = comparing.point(store, lookup.find(store, before))
    old, new = (lookup.raw_state(store, p.run_id, p.waypoint.number) for p in (first, second))
    changes = list(comparing.compare(old, new))
    if as_json:
        _out.print_json([_operation(change) for change in changes])
        return
    for sign, (run_id, waypoint, _) in (("---", first), ("+++", second)):
        summary = _out.cell(str(waypoint.note), 300)
        _out.line(f"{sign} waypoint {waypoint.number} of {_out.cell(run_id)}: {summary}")
    lines = "\n".join(comparing.text_of(change) for change in changes)
    _out.line(lines or comparing.unchanged(old, new))


def _operation(change: comparing.Change) -> dict[str, Any]:
    tree = {"op": change.op, "path": change.path}
    return tree if change.op == "remove" else {**tree, "value": change.new}
