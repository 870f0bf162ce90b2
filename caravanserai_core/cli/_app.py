"""What all verbs share: the store they look into, and what becomes of an error."""

from __future__ import annotations

import io
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import click

from caravanserai_core.cli import _out
from caravanserai_core.errors import CaravanseraiError
from caravanserai_core.stores import Store, open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., Any])


class Session:
    """One call of the command line.

    Attributes:
        address: what `--store` said, or None.
    """

    def __init__(self) -> None:
        self.address: str | None = None

    @cached_property
    def store(self) -> Store:
        """The store to look into; nothing is created by looking."""
        return open_store(self.address)


def store_option(command: F) -> F:
    """Add `--store`, which may stand before and behind the verb."""

    def keep(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            context.ensure_object(Session).address = value

    return click.option(
        "--store",
        metavar="PATH_OR_URL",
        expose_value=False,
        callback=keep,
        help="Where the runs are. Default: CARAVANSERAI_STORE, else .caravanserai here.",
    )(command)


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
        if ctx.params.get("debug"):
            return super().invoke(ctx)
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if error.ctx is not None:
                _out.note(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help'.\n")
            _out.fail(error.format_message())
            ctx.exit(error.exit_code)
        except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise
        except CaravanseraiError as error:
            _out.fail(str(error))
            ctx.exit(error.exit_code)
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            _out.fail(f"{error.strerror or error}{where} (errno {error.errno})")
            ctx.exit(1)
        except Exception as error:  # noqa: BLE001 - the last resort: a person is to read it
            _out.fail(
                f"this should not happen: {type(error).__name__}: {error}. Nothing was changed "
                "that was not said above. `caravanserai --debug …` shows where."
            )
            ctx.exit(1)
