"""`caravanserai migrate`: lead a stopped run to the schema that its program has today."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from caravanserai_core import codec, listing, lookup, reading, schema
from caravanserai_core.cli import _out, _runs
from caravanserai_core.cli._app import Session, common_options
from caravanserai_core.comparing import compare, text_of
from caravanserai_core.errors import CaravanseraiError, ProgramNotFound, UsageError
from caravanserai_core.importing import only_looking
from caravanserai_core.quoting import visible
from caravanserai_core.resumable import made_of
from caravanserai_core.run import open_run

if TYPE_CHECKING:
    from caravanserai_core.reading import Opening
    from caravanserai_core.schema import Schema
    from caravanserai_core.stores import Store


@click.command("migrate", short_help="Lead a run's state to the schema of its program.")
@click.argument("run", shell_complete=_runs.complete)
@click.option(
    "--with",
    "name",
    metavar="MODULE:FUNCTION",
    help="A function under @resumable, or a list of migrations. Default: the recorded function.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--yes", is_flag=True, help="Import the function without asking.")
@common_options
@click.pass_obj
def migrate_(session: Session, run: str, name: str | None, dry_run: bool, yes: bool) -> None:
    """Write a waypoint of RUN in the schema of its program, by the program's own migrations.

    The program does the same by itself when it goes on; this shows first what will come of it.
    Earlier waypoints stay as they are. The function is imported, which runs its module: no run
    begins and none is written meanwhile, so its calls belong under `if __name__ == "__main__":`.
    Take care with a run that others may have written.
    """
    store = session.store
    run_id, at = lookup.find(store, run, prefix=False)
    if at is not None:
        raise UsageError(f"a program goes on from the newest waypoint of its run, not from @{at}")
    if lookup.trail(store, run_id).status == listing.FINISHED:
        _out.line("finished, nothing to do")
        return
    found = reading.recent(store, run_id)
    first = None if found is None else reading.opening(found.opening, run_id)
    if first is not None and first.adapter != "python":
        raise UsageError(
            f"run {_out.cell(run_id)} was written by the adapter {_out.cell(first.adapter)}, whose "
            "states have a form of their own"
        )
    if name is None:
        name = _recorded(run_id, first)
        where = visible(first.folder) if first is not None else ""
        told = f"the function recorded by run {_out.cell(run_id)} is {_out.cell(name)}, in {where}"
    else:
        told = f"{_out.cell(name)} is to be imported, and that runs its module"
    module, words = _parts(name)
    if not yes:
        _ask(told)
    _migrate(store, run_id, _declared(module, words, first), dry_run=dry_run)


def _recorded(run_id: str, first: Opening | None) -> str:
    name = None if first is None else first.program
    if not isinstance(name, str):
        raise UsageError(
            f"run {_out.cell(run_id)} does not say which function wrote it. Name one under "
            "@resumable, or a list of migrations: --with module:function"
        )
    return name


def _parts(name: str) -> tuple[str, list[str]]:
    """Read `module:function`: the module, and the names that lead from it to the function."""
    module, _, path = name.partition(":")
    words = path.split(".")
    if not all(word.isidentifier() for word in (*module.split("."), *words)):
        raise UsageError(f"{_out.cell(name)} is not of the form module:function")
    return module, words


def _ask(told: str) -> None:
    """Ask whether to import what declares the schema: that runs its module.

    Raises:
        UsageError: there is nobody to ask.
        Abort: the answer is no.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"{told} - and there is no terminal to ask whether to import it. Look at it, then add "
            "--yes."
        )
    _out.note(told)
    click.confirm("Import it?", abort=True, err=True)


def _declared(module: str, words: list[str], first: Opening | None) -> Schema:
    """Import what declares the schema.

    Raises:
        ProgramNotFound: it is not there.
        UsageError: it declares no schema, or its module works on a run when it is imported.
    """
    name = f"{module}:{'.'.join(words)}"
    sys.path[:0] = [str(Path.cwd()), *(_folders(first) if first is not None else ())]
    try:
        with only_looking(module):
            found: Any = importlib.import_module(module)
            for word in words:
                found = getattr(found, word)
    except CaravanseraiError:
        raise
    except (Exception, SystemExit) as error:
        told = str(error) if isinstance(error, (ImportError, AttributeError)) else repr(error)
        raise ProgramNotFound(f"{name} cannot be imported: {told}") from error
    made = made_of(found)
    if made is not None:
        declared = made[1].schema
    elif isinstance(found, (list, tuple)):
        declared = schema.declared(None, found)
    else:
        raise UsageError(f"{name} is no function under @resumable and no list")
    if declared is None:
        raise UsageError(f"{name} declares no schema: give it @resumable(schema=…, migrations=[…])")
    return declared


def _folders(first: Opening) -> list[str]:
    """Return where the program's modules are: beside its script, and where it was started."""
    folder = Path(first.folder)
    scripts = [word for word in first.argv[1:] if word.endswith(".py")]
    return [str((folder / scripts[0]).parent), str(folder)] if scripts else [str(folder)]


def _migrate(store: Store, run_id: str, wanted: Schema, *, dry_run: bool) -> None:
    stored = reading.waypoint(store, run_id).schema
    if stored == wanted.number:
        _out.line(f"run {_out.cell(run_id)} has schema {stored} already, nothing to do")
        return
    before = reading.load(store, run_id, raw=True)
    number, steps = wanted
    with open_run(run_id, store=store, must_exist=True, schema=number, migrations=steps) as run:
        after = codec.parse(codec.encode(run.state).data)
        for change in compare(before, after):
            _out.line(text_of(change))
        told = f"from schema {stored} to {number}"
        if dry_run:
            _out.line(f"this is what leads {told}; nothing was written")
            return
        point = run.checkpoint(run.state, f"Migrated {told}.")
        _out.line(f"migrated {told}: waypoint {point}")
