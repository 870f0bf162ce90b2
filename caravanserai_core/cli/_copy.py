"""`copy`: bring runs into another store, also from what another library keeps them in."""

from __future__ import annotations

import click

from caravanserai_core.cli import _out
from caravanserai_core.cli._app import Session, common_options, json_option
from caravanserai_core.copying import copy_runs
from caravanserai_core.stores import open_store


@click.command("copy", short_help="Copy runs into another store.")
@click.argument("runs", nargs=-1, metavar="[RUN…]")
@click.option(
    "--from",
    "source",
    metavar="URL",
    help="Where they are: a store, or sqlite:///threads.db for LangGraph's SqliteSaver, "
    "langgraph+postgresql://… for its PostgresSaver. "
    "Default: the store of --store.",
)
@click.option("--to", "target", metavar="URL", required=True, help="The store they are copied to.")
@click.option(
    "--trust",
    metavar="MODULE:CLASS",
    multiple=True,
    help="A type of your program that LangGraph stored; its module is imported. Repeatable.",
)
@json_option
@common_options
@click.pass_obj
def copy_(
    session: Session,
    runs: tuple[str, ...],
    source: str | None,
    target: str,
    trust: tuple[str, ...],
    as_json: bool,
) -> None:
    """Copy runs into another store; all of them where none is named.

    The originals stay. Each run arrives whole, with its history, or not at all. One that is there
    already, and the same, is left as it is: what was interrupted is given again. With --json: a
    list of objects with run_id, waypoints, error, before (it was there already).
    """
    code = 0
    rows = []
    into = open_store(target)
    for copied in copy_runs(source or session.store, into, runs, trust=trust):
        error = None if copied.error is None else str(copied.error)
        row = {"run_id": copied.run_id, "waypoints": copied.waypoints, "error": error}
        rows.append(row | {"before": copied.before})
        if copied.error is not None:
            code = code or copied.error.exit_code
            _out.fail(f"{_out.cell(copied.run_id)}: {copied.error}")
        elif not as_json:
            before = " before, and it is the same" if copied.before else ""
            _out.line(f"copied {_out.cell(copied.run_id)}{before}: {copied.waypoints} waypoints")
    if as_json:
        _out.line(_out.json_text(rows))
    elif not rows:
        _out.note(f"there is nothing to copy in {source or session.store.name}")
    if code:
        click.get_current_context().exit(code)
