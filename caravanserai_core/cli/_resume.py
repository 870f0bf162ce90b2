"""`caravanserai resume`: start the program of a run again, by the command that was recorded."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from caravanserai_core import api, listing, lookup, reading
from caravanserai_core.cli import _out, _runs
from caravanserai_core.cli._app import Session, common_options
from caravanserai_core.cli._shell import quote
from caravanserai_core.errors import ProgramNotFound, UsageError
from caravanserai_core.journal import Journal
from caravanserai_core.names import folder_name
from caravanserai_core.ownership import TAKE_OVER
from caravanserai_core.questions import refuse_waiting
from caravanserai_core.quoting import visible
from caravanserai_core.redact import redact
from caravanserai_core.stores import MemoryStore, open_store
from caravanserai_core.stores.owners import busy_error

if TYPE_CHECKING:
    from caravanserai_core.stores import Store

_INPUT = "-"
_STORE = "CARAVANSERAI_STORE"


@click.command("resume", short_help="Start the program of a run again.")
@click.argument("run", shell_complete=_runs.complete)
@click.option("--yes", is_flag=True, help="Start it without asking.")
@click.option(
    "--folder",
    metavar="PATH",
    help="Start it there instead of in the recorded folder: for a project that was moved.",
)
@click.option(
    "--take-over",
    is_flag=True,
    help="Start it although another process works on the run; what that writes is refused then.",
)
@common_options
@click.pass_obj
def resume_(session: Session, run: str, yes: bool, folder: str | None, take_over: bool) -> None:
    """Start the program of RUN again; it goes on from the newest waypoint.

    Shows the command that was recorded when the run began, asks, and starts it in the recorded
    folder, without a shell. Ends with the program's own exit code; 3 if the program, its folder
    or the run is gone, 5 if another process works on the run, 6 if it waits for a person. Take care
    with a run that others may have written: what is started is what stands in its journal.
    """
    store = session.store
    run_id, at = lookup.find(store, run, prefix=False)
    if at is not None:
        raise UsageError(
            f"a program goes on from the newest waypoint of its run, not from @{at}. To look at "
            f"that one: {session.called} show {quote(run)}"
        )
    journal = Journal(store, run_id)
    journal.turns.do(lambda: refuse_waiting(journal))
    trail = lookup.trail(store, run_id)
    if trail.status == listing.FINISHED:
        _out.line("finished, nothing to do")
        return
    holder = store.holder(run_id)
    if holder is not None and not take_over:
        raise busy_error(run_id, holder)
    if further := lookup.handed_to(store, run_id):
        _out.note(
            f"run {_out.cell(run_id)} was {further}: started again, it does the job beside it."
        )
    argv = api.load_command(run_id, store=store)
    found = reading.recent(store, run_id)
    recorded = ""
    if found is not None:
        recorded = reading.opening(found.opening, run_id, resolve=True).folder
    where = Path(folder or recorded).absolute()
    argv = _checked(run_id, argv, where)
    env = _environment(store, where)
    if take_over and holder is not None:
        env[TAKE_OVER] = folder_name(run_id)
        _out.note(
            f"run {_out.cell(run_id)} is being worked on by process {holder.pid} on "
            f"{_out.cell(holder.host)}. It is taken over when its program opens the run."
        )
    shown = command_text(argv, where, env)
    if not yes:
        _ask(run_id, shown)
    _out.line(f"resuming: {shown}")
    _start(argv, where, env)


def _checked(run_id: str, argv: list[str] | None, where: Path) -> list[str]:
    """Return the command if it can be started.

    Raises:
        ProgramNotFound: its folder, program or script is not there.
    """
    name = _out.cell(run_id)
    if not argv or not all(_is_word(part) for part in argv):
        raise ProgramNotFound(f"run {name} has no recorded command; start its program yourself.")
    if not where.is_dir():
        raise ProgramNotFound(
            f"the folder {visible(str(where))}, in which run {name} is to be started, is not "
            "there. If it was moved, say with --folder where it is now."
        )
    program = argv[0]
    path = where / program if os.sep in program else Path(shutil.which(program) or "")
    if not path.is_file() or not os.access(path, os.X_OK):
        raise ProgramNotFound(
            f"the program {visible(program)} that run {name} was started with is not there."
        )
    script = _script(argv)
    if script == _INPUT:
        raise ProgramNotFound(
            f"run {name} was started from a prompt or from standard input; start its program "
            "yourself."
        )
    if script is not None and not (where / script).exists():
        raise ProgramNotFound(
            f"the script {visible(str(where / script))} that run {name} was started with "
            "is not there."
        )
    return argv


def _is_word(part: object) -> bool:
    return isinstance(part, str) and "\0" not in part


def _script(argv: list[str]) -> str | None:
    """Return the script of a Python command line, or None for another program, -c and -m.

    `_INPUT` where it reads its program from standard input.
    """
    name = Path(argv[0]).name
    if not (name.startswith(("python", "pypy")) or argv[0] == sys.executable):
        return None
    parts = iter(argv[1:])
    for part in parts:
        if part in ("-W", "-X", "--check-hash-based-pycs"):
            next(parts, None)
        elif part == _INPUT:
            return part
        elif not part.startswith(("--", "-W", "-X")) and re.match("-.*[cm]", part):
            return None
        elif not part.startswith("-"):
            return part
    return _INPUT


def _environment(store: Store, where: Path) -> dict[str, str]:
    """Return CARAVANSERAI_STORE, if the program finds the run only with it.

    A program that opens the default store would otherwise begin anew in another folder, in
    silence, where this verb was given `--store`.
    """
    found = os.environ.get(_STORE) or ".caravanserai"
    same = open_store(found if "://" in found else where / found).key == store.key
    return {} if same or isinstance(store, MemoryStore) else {_STORE: store.url}


def command_text(argv: list[str], where: Path, env: dict[str, str]) -> str:
    """Return a command so that it can be pasted into a shell and does the same there.

    But for secrets: words stand in their place.
    """
    text = " ".join(quote(redact(part)) for part in argv)
    for name, value in env.items():
        text = f"{name}={quote(redact(value))} {text}"
    if where.resolve() != Path.cwd():
        text = f"cd {quote(redact(str(where)))} && {text}"
    return text


def _ask(run_id: str, shown: str) -> None:
    """Ask whether to start what was recorded.

    Raises:
        UsageError: there is nobody to ask.
        Abort: the answer is no.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"the recorded command of run {_out.cell(run_id)} is: {shown} - and there is no "
            "terminal to ask whether to start it. Look at it, then add --yes."
        )
    _out.note(f"the command recorded by run {_out.cell(run_id)}:\n\n    {shown}\n")
    click.confirm("Start it?", abort=True, err=True)


def _start(argv: list[str], where: Path, env: dict[str, str]) -> None:
    """Become the program: its signals, its terminal and its exit code are its own."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.environ.update(env)
    os.chdir(where)
    if sys.platform == "win32":
        import subprocess

        sys.exit(subprocess.call(argv))
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and a program inherits that
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        raise ProgramNotFound(
            f"the program {visible(argv[0])} cannot be started: {error.strerror} "
            f"(errno {error.errno})."
        ) from None
