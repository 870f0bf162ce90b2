"""What all verbs share: the store they look into, and what becomes of an error."""

from __future__ import annotations

import io
import shutil
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from caravanserai_core.cli import _out
from caravanserai_core.cli._shell import quote
from caravanserai_core.errors import CaravanseraiError
from caravanserai_core.redact import redact
from caravanserai_core.stores import Store, open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., Any])


_NAME = "caravanserai"


class Session:
    """One call of the command line.

    Attributes:
        address: what `--store` said, or None.
        debug: whether `--debug` was given.
    """

    def __init__(self) -> None:
        self.address: str | None = None
        self.debug = False

    @cached_property
    def store(self) -> Store:
        """The store to look into; nothing is created by looking."""
        return open_store(self.address)

    @property
    def called(self) -> str:
        """How this command line was called, without its verb, to be pasted into a shell."""
        store = [] if self.address is None else ["--store", redact(self.address)]
        return " ".join([*_program(sys.argv[0]), *map(quote, store)])


def _program(called: str) -> list[str]:
    """Return the words that start this program as it was started; the name where that is unsure."""
    path = Path(called)
    if path.name == "__main__.py" and path.parent == Path(__file__).parent:
        return [quote(sys.executable), "-m", "caravanserai_core.cli"]
    if path.stem != _NAME or path.name == called:
        return [_NAME]
    # The system puts the whole path in place of a name that it has looked up.
    if path.is_absolute() and called == shutil.which(_NAME):
        return [_NAME]
    return [quote(called)]


def debug_option(command: F) -> F:
    """Add `--debug`, which may stand before and behind the verb."""

    def keep(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
        if value:
            context.ensure_object(Session).debug = True

    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=keep,
        help="Show a Python traceback when something fails.",
    )(command)


def common_options(command: F) -> F:
    """Add what every verb that looks into a store takes: `--store` and `--debug`."""

    def keep(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            context.ensure_object(Session).address = value

    return click.option(
        "--store",
        metavar="PATH_OR_URL",
        expose_value=False,
        callback=keep,
        help="Where the runs are. Default: CARAVANSERAI_STORE, else .caravanserai here.",
    )(debug_option(command))


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


class App(click.Group):
    """The group of verbs: turns errors into a sentence and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Keep the order in which the verbs are most often needed."""
        return list(self.commands)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a verb; see `click.Group.main`."""
        # A terminal or file in a narrow encoding gets escapes, never an exception half way.
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        return super().main(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb and print its errors in a sentence or two, unless `--debug` is set."""
        try:
            return super().invoke(ctx)
        except (click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise
        except Exception as error:
            if ctx.ensure_object(Session).debug:
                raise
            ctx.exit(_say(error))


def _say(error: Exception) -> int:
    """Print an error in a sentence or two and return the exit code for it."""
    if isinstance(error, click.ClickException):
        if isinstance(error, click.UsageError) and error.ctx is not None:
            _out.note(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help'.\n")
        _out.fail(error.format_message())
        return error.exit_code
    if isinstance(error, CaravanseraiError):
        _out.fail(str(error))
        return error.exit_code
    if isinstance(error, ImportError):
        _out.fail(str(error))
        return 1
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        _out.fail(f"{error.strerror or error}{where} (errno {error.errno})")
        return 1
    _out.fail(
        f"this should not happen: {type(error).__name__}: {error}. Nothing was changed that was "
        "not said above. `caravanserai --debug …` shows where."
    )
    return 1
