"""The small verbs: `clean`, `completion`, `demo`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from caravanserai_core import api, listing, lookup
from caravanserai_core.cli import _out, _runs
from caravanserai_core.cli._app import Session, common_options, debug_option
from caravanserai_core.cli._upkeep import age_option
from caravanserai_core.errors import CaravanseraiError, UsageError

if TYPE_CHECKING:
    from datetime import timedelta

    from caravanserai_core.stores import Store


@click.command("clean", short_help="Delete runs, without asking.")
@click.argument("runs", nargs=-1, metavar="[RUN…]", shell_complete=_runs.complete)
@click.option("--finished", is_flag=True, help="Delete all runs that are finished.")
@age_option("Delete all runs that nothing was written to for so long: 12h, 30d, 8w.")
@common_options
@click.pass_obj
def clean_(
    session: Session, runs: tuple[str, ...], finished: bool, older_than: timedelta | None
) -> None:
    """Delete runs and everything in them, without asking. Only exact names will do.

    Without names: all that are finished, old, or both, as the options say. A run that a process
    works on or that waits for a person, and one that is damaged, is then left alone.
    """
    chosen = finished or older_than is not None
    if chosen is bool(runs):
        raise UsageError("clean takes the names of runs, or --finished, --older-than or both")
    code = 0
    for run in _chosen(session.store, finished, older_than) if chosen else runs:
        try:
            gone = api.clean(run, store=session.store)
        except CaravanseraiError as error:
            _out.fail(str(error))
            code = code or error.exit_code
            continue
        if gone:
            _out.line(f"deleted checkpoints for '{_out.cell(run)}': the whole run, with its notes")
        else:
            code = code or _unknown(session.store, run)
    if code:
        click.get_current_context().exit(code)


def _chosen(store: Store, finished: bool, older_than: timedelta | None) -> list[str]:
    """Return the names of the runs that are finished, old, or both."""
    limit = None if older_than is None else datetime.now(UTC) - older_than
    wanted = {listing.FINISHED} if finished else {listing.FINISHED, listing.FAILED, listing.STOPPED}
    return [
        info.run_id
        for info in listing.runs(store)
        if info.status in wanted
        and (limit is None or (info.updated is not None and info.updated < limit))
    ]


def _unknown(store: Store, run: str) -> int:
    """Say why there is nothing to delete under a name; returns the exit code."""
    name, at = lookup.split(run)
    if run == "@-" or (at is not None and (name == "@-" or lookup.exists(store, name))):
        _out.fail(
            f"clean takes a whole run and its exact name, not {_out.cell(run)}. Nothing of it was "
            "deleted."
        )
        return 2
    _out.note(
        f"no checkpoints for run '{_out.cell(run)}' in the store {store.name}. "
        f"{lookup.meant(store, run)}`caravanserai list` shows the runs there."
    )
    return 3


@click.command(
    "completion",
    short_help="Print the completion script of a shell.",
    epilog="\b\n"
    'bash:  eval "$(caravanserai completion bash)"    in ~/.bashrc\n'
    'zsh:   eval "$(caravanserai completion zsh)"     in ~/.zshrc\n'
    "fish:  caravanserai completion fish | source     in ~/.config/fish/config.fish",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@debug_option
def completion_(shell: str) -> None:
    """Print the script that completes verbs, options and names of runs in a shell."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    if found is not None:
        made = found(root, {}, "caravanserai", "_CARAVANSERAI_COMPLETE")
        _out.line(made.source_template % made.source_vars())


@click.command("demo", short_help="Watch an agent being killed, and going on.")
@common_options
@click.pass_obj
def demo_(session: Session) -> None:
    """Watch a small agent being killed in the middle of its work, and going on.

    It runs as a process of its own under a new run name; no other run is touched.
    """
    from caravanserai_core import demo

    click.get_current_context().exit(demo.perform(session.store, session.called))
