"""The small verbs: `clean`, `completion`, `demo`."""

from __future__ import annotations

import click

from caravanserai_core import api
from caravanserai_core.cli import _out, _runs
from caravanserai_core.cli._app import Session, store_option
from caravanserai_core.errors import CaravanseraiError


@click.command("clean", short_help="Delete runs, without asking.")
@click.argument("runs", nargs=-1, required=True, metavar="RUN…", shell_complete=_runs.complete)
@store_option
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
            _out.note(f"no checkpoints for run '{_out.cell(run)}'")
            code = code or 3
    if code:
        click.get_current_context().exit(code)


@click.command("completion", short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_(shell: str) -> None:
    r"""Print the script that completes verbs, options and names of runs in a shell.

    \b
    bash:  eval "$(caravanserai completion bash)"     in ~/.bashrc
    zsh:   eval "$(caravanserai completion zsh)"      in ~/.zshrc
    fish:  caravanserai completion fish | source      in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    if found is not None:
        made = found(root, {}, "caravanserai", "_CARAVANSERAI_COMPLETE")
        _out.line(made.source_template % made.source_vars())


@click.command("demo", short_help="Watch an agent being killed, and going on.")
@store_option
@click.pass_obj
def demo_(session: Session) -> None:
    """Watch a small agent being killed in the middle of its work, and going on.

    It runs as a process of its own under a new run name; no other run is touched.
    """
    from caravanserai_core import demo

    click.get_current_context().exit(demo.perform(session.store))
