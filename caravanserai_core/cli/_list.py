"""`caravanserai list`: the runs of a store, the one written last first."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

import click

from caravanserai_core import listing, lookup
from caravanserai_core.cli import _out, _runs
from caravanserai_core.cli._app import Session, common_options, json_option
from caravanserai_core.pending import after_stop
from caravanserai_core.stores import FileStore

if TYPE_CHECKING:
    from caravanserai_core.listing import RunInfo
    from caravanserai_core.stores import Store


@click.command(
    "list",
    short_help="All runs of the store, the newest first.",
    epilog="Piped, a line is RUN, waypoints, age, status, folder, and for a damaged run what is "
    "wrong, with a tab between. --long adds the bytes on disk after the status. Keys of --json: "
    "store, runs [run, status, waypoints, updated, adapter, folder (its absolute path), error, "
    "origin (run_id, and waypoint for a fork), waits (ids of open questions); with --long bytes].",
)
@click.option("--long", "-l", "in_full", is_flag=True, help="Also tell how much disk each takes.")
@json_option
@common_options
@click.pass_obj
def list_(session: Session, as_json: bool, in_full: bool) -> None:
    """List all runs of the store, the one written last first.

    Nothing is left out: a damaged run is listed as damaged. No state is read.
    """
    store = session.store
    runs = listing.runs(store)
    missing = isinstance(store, FileStore) and not Path(store.root).exists()
    if missing:
        _out.note(f"there is no store at {store.name}")
    if as_json:
        trees = [_tree(store, info) for info in runs]
        if in_full:
            trees = [{**t, "bytes": store.size(i.folder)} for t, i in zip(trees, runs, strict=True)]
        _out.print_json({"store": store.name, "runs": trees})
    elif missing:
        _out.line("no runs yet")
    elif not runs:
        _out.no_runs(store.name)
    elif _out.on_terminal():
        _out.table(
            ("run", "waypoints", "age", "status", *(("size",) if in_full else ()), "folder"),
            [
                (
                    _name(info),
                    *_row(
                        info, *((human(store.size(info.folder)),) if in_full else ()), info.folder
                    )[1:],
                )
                for info in runs
            ],
        )
        for info in runs:
            if info.status == listing.FAILED and info.stopped:
                _out.line(f"\n{_out.cell(info.run_id)}: {after_stop(info.run_id)}")
            if info.error:
                _out.line(f"\n{_out.cell(info.run_id)}: {_out.cell(info.error)}")
        _out.line(f"\n{len(runs)} run{'s' if len(runs) != 1 else ''} in {_out.cell(store.name)}")
    else:
        _out.line("\n".join("\t".join(_columns(store, info, in_full)) for info in runs))


def _row(info: RunInfo, *more: str) -> tuple[str, ...]:
    count = f"{info.waypoints} waypoint(s)"
    rest = (_out.cell(text) for text in more)
    return _out.cell(info.run_id), count, listing.age(info.updated), listing.spoken(info), *rest


def _name(info: RunInfo) -> str:
    """Return a run's name for a person, with where it comes from."""
    origin = lookup.origin_text(info.origin)
    return f"{_out.cell(info.run_id)} ({origin})" if origin else _out.cell(info.run_id)


def _columns(store: Store, info: RunInfo, in_full: bool) -> tuple[str, ...]:
    size = (str(store.size(info.folder)),) if in_full else ()
    row = _row(info, *size, _runs.listed_folder(store, info))
    return (*row, _out.cell(info.error)) if info.error else row


def _tree(store: Store, info: RunInfo) -> dict[str, object]:
    return {
        "run": info.run_id,
        "status": info.status,
        "waypoints": info.waypoints,
        "updated": info.updated.astimezone(UTC).isoformat() if info.updated else None,
        "adapter": info.adapter,
        "folder": _runs.listed_folder(store, info),
        "error": info.error,
        "origin": info.origin,
        "waits": list(info.waits),
    }


def human(size: int | None) -> str:
    """Say a number of bytes in a unit that fits: `812 B`, `4.1 kB`, `27 MB`."""
    if size is None:
        return "?"
    amount, units = float(size), ["B", "kB", "MB", "GB"]
    while amount >= 1000 and len(units) > 1:
        amount, units = amount / 1000, units[1:]
    return (
        f"{amount:.1f} {units[0]}"
        if amount < 10 and units[0] != "B"
        else f"{amount:.0f} {units[0]}"
    )
