"""The small verbs: `clean`, `completion`, `demo`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from caravanserai_core import api
from caravanserai_core.cli import _out, _runs
from caravanserai_core.cli._app import Session, common_options, debug_option
from caravanserai_core.errors import CaravanseraiError

if TYPE_CHECKING:
    from caravanserai_core.stores import Store


@click.command("clean", short_help="Delete runs, without asking.")
@click.argument("runs", nargs=-1, required=True, metavar="RUN…", shell_complete=_runs.complete)
@common_options
@click.pass_obj
def clean_(session: Session, runs: tuple[str, ...]) -> None:
    """Delete runs and everything in them, without asking. Only exact names will do."""
    code = 0
    for run in runs:
        try:
            gone = api.clean(run, store=session.store)
        except CaravanseraiError as error:
            _out.fail(str(error))
            code = code or error.exit_code
            continue
        if gone:
            _out.line(f"deleted checkpoints for '{_out.cell(run)}'")
        else:
            code = code or _unknown(session.store, run)
    if code:
        click.get_current_context().exit(code)


def _unknown(store: Store, run: str) -> int:
    """Say why there is nothing to delete under a name; returns the exit code."""
    name, at = _runs.split(run)
    if run == "@-" or (at is not None and (name == "@-" or _runs.exists(store, name))):
        _out.fail(
            f"clean takes a whole run and its exact name, not {_out.cell(run)}. Nothing of it was "
            "deleted."
        )
        return 2
    _out.note(
        f"no checkpoints for run '{_out.cell(run)}' in the store {store.url}. "
        f"{_runs.meant(store, run)}`caravanserai list` shows the runs there."
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
