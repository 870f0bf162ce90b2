"""`caravanserai list`: the runs of a store, the one written last first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from caravanserai_core import reading
from caravanserai_core.cli import _out
from caravanserai_core.cli._app import Session, json_option, store_option
from caravanserai_core.stores import FileStore

if TYPE_CHECKING:
    from caravanserai_core.reading import RunInfo
    from caravanserai_core.stores import Store


@click.command(
    "list",
    short_help="All runs of the store, the newest first.",
    epilog="Piped, a line is RUN, waypoints, age, status, folder, and for a damaged run what is "
    "wrong, with a tab between. Keys of --json: store, runs [run, status, waypoints, updated, "
    "adapter, folder, error].",
)
@json_option
@store_option
@click.pass_obj
def list_(session: Session, as_json: bool) -> None:
    """List all runs of the store, the one written last first.

    Nothing is left out: a damaged run is listed as damaged. No state is read.
    """
    store = session.store
    runs = reading.runs(store)
    if as_json:
        _out.print_json({"store": store.url, "runs": [_tree(info) for info in runs]})
    elif not runs:
        _out.line("no runs yet")
        if _out.on_terminal():
            _out.note(f"in {store.url}")
    elif _out.on_terminal():
        _out.table(
            ("run", "waypoints", "age", "status", "folder"),
            [_row(info, _out.cell(info.folder)) for info in runs],
        )
        for info in runs:
            if info.error:
                _out.line(f"\n{_out.cell(info.run_id)}: {_out.cell(info.error)}")
        _out.line(f"\n{len(runs)} run{'s' if len(runs) != 1 else ''} in {_out.cell(store.url)}")
    else:
        _out.line("\n".join("\t".join(_columns(store, info)) for info in runs))


def _row(info: RunInfo, folder: str) -> tuple[str, ...]:
    count = f"{info.waypoints} waypoint(s)"
    return _out.cell(info.run_id), count, age(info.updated), info.status, folder


def _columns(store: Store, info: RunInfo) -> tuple[str, ...]:
    folder = info.folder
    if isinstance(store, FileStore):
        folder = f"{store.root}/{folder}"
    row = _row(info, _out.cell(folder))
    return (*row, _out.cell(info.error)) if info.error else row


def _tree(info: RunInfo) -> dict[str, object]:
    return {
        "run": info.run_id,
        "status": info.status,
        "waypoints": info.waypoints,
        "updated": info.updated.isoformat() if info.updated else None,
        "adapter": info.adapter,
        "folder": info.folder,
        "error": info.error,
    }


def age(time: datetime | None) -> str:
    """Say in one unit how long ago something was: `12s ago`, `3m ago`, `2h ago`, `5d ago`."""
    if time is None:
        return "?"
    seconds = max(0, int((datetime.now(UTC) - time).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit} ago"
    return f"{seconds}s ago"
