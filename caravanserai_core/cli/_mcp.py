"""`caravanserai mcp`: let an agent read the runs, over the Model Context Protocol."""

from __future__ import annotations

import signal
import sys

import click

from caravanserai_core.cli import _out
from caravanserai_core.cli._app import Session, common_options

GROUP = "caravanserai.servers"
"""Entry points of servers: functions of a store and `allow_answers`, which return at their end."""


@click.command("mcp", short_help="Let an agent read the runs, over MCP.")
@click.option(
    "--allow-answers",
    is_flag=True,
    help="Let the agent answer questions of runs, also whether its own calls are allowed. Only "
    "for a client that asks you before each call.",
)
@common_options
@click.pass_obj
def mcp_(session: Session, allow_answers: bool) -> None:
    """Serve the runs to an MCP client, over stdin and stdout; the client starts this.

    It only reads, unless --allow-answers is given. docs/mcp.md shows how clients are told.
    """
    from importlib.metadata import entry_points

    found = next(iter(entry_points(group=GROUP, name="mcp")), None)
    if found is None:
        raise ImportError(
            'no MCP server is installed here: pip install "caravanserai[mcp]"', name="mcp"
        )
    serve = found.load()
    if sys.stdin.isatty():
        _out.note("waits for an MCP client on stdin, see docs/mcp.md; ^D ends it")
    # ^C ends it at once; Python's own way would wait for the thread that reads stdin.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    serve(session.store, allow_answers=allow_answers)
