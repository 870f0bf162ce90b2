"""The command line: look at runs, go on with them, check and remove them.

The verbs of one run take `RUN` (an exact name), `RUN@3` (its third waypoint), `RUN@-1` (its newest
one, `-2` the one before) or `@-` (the run written last). The reading ones take an unambiguous
beginning of a name as well. Output for programs is either tab separated text or, with `--json`,
one document whose keys each verb's `--help` lists.

Everything from a run passes through `caravanserai_core.quoting` or JSON escapes before it is
printed: no text in a journal reaches the terminal as an instruction.
"""

from __future__ import annotations

import click

import caravanserai_core
from caravanserai_core.cli._answer import answer_
from caravanserai_core.cli._app import App, Session, common_options
from caravanserai_core.cli._copy import copy_
from caravanserai_core.cli._diff import diff_
from caravanserai_core.cli._doctor import doctor_
from caravanserai_core.cli._handoff import handoff_
from caravanserai_core.cli._list import list_
from caravanserai_core.cli._log import log_
from caravanserai_core.cli._mcp import mcp_
from caravanserai_core.cli._migrate import migrate_
from caravanserai_core.cli._rest import clean_, completion_, demo_
from caravanserai_core.cli._resume import resume_
from caravanserai_core.cli._show import show_
from caravanserai_core.cli._upkeep import fork_, pin_, prune_
from caravanserai_core.cli._verify import verify_

__all__ = ["app", "main"]


@click.group(
    cls=App,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found (run, waypoint, program), "
    "4 damaged or of a newer format, 5 in use by another process, 6 waits for a person. "
    "For completion in your shell see `caravanserai completion --help`.",
)
@common_options
@click.version_option(caravanserai_core.__version__, prog_name="caravanserai")
@click.pass_context
def app(context: click.Context) -> None:
    """Look at the runs of your agents, and go on with them.

    RUN is a run's name. RUN@3 is its third waypoint, RUN@-1 its newest one, RUN@-2 the one
    before; @- is the run that was written last. Verbs that only read also take the beginning of
    a name.
    """
    context.ensure_object(Session)


for _command in (
    demo_,
    list_,
    show_,
    log_,
    diff_,
    handoff_,
    resume_,
    answer_,
    fork_,
    migrate_,
    verify_,
    pin_,
    prune_,
    clean_,
    copy_,
    mcp_,
    doctor_,
    completion_,
):
    app.add_command(_command)


def main() -> None:
    """Run the command line; the entry point of `caravanserai`."""
    app.main(prog_name="caravanserai")
