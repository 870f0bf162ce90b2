"""Printing: plain text, JSON and tables, with nothing in them that a terminal would obey."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any

import click
import orjson

from caravanserai_core.quoting import one_line, visible
from caravanserai_core.redact import redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WHOLE = 1 << 30
"""A length limit that nothing reaches."""

# JSON allows these as they are; a terminal acts on them. C0 is escaped by every JSON writer.
_UNSAFE = re.compile(
    "[\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_NOT_ASCII = re.compile("[\x7f-\U0010ffff]")


def on_terminal() -> bool:
    """Whether a person looks at the output directly."""
    return sys.stdout is not None and sys.stdout.isatty()  # None: it was closed before we began


def line(text: str = "") -> None:
    """Print text that has been made safe already."""
    click.echo(text, color=True)  # not stripped: what is printed is safe, or meant (--raw)


def note(text: str) -> None:
    """Say something beside the output, on the error stream."""
    click.echo(visible(text), err=True, color=True)


def fail(text: str) -> None:
    """Say on the error stream why a verb failed; an error of a program may tell secrets."""
    note(f"Error: {redact(text)}")


def no_runs(where: str) -> None:
    """Say that a store is empty, and on the error stream which one that is."""
    line("no runs yet")
    note(f"in {where}")


def cell(text: str, limit: int = WHOLE) -> str:
    """Return foreign text for one column: one line, control characters visible."""
    return one_line(text, limit)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def json_text(tree: Any) -> str:
    """Return a tree as indented JSON: the exact values, and harmless on a terminal."""
    try:
        text = orjson.dumps(tree, option=orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:  # a lone surrogate in a name, or nested deeper than orjson goes
        text = json.dumps(tree, indent=2)
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    return (_UNSAFE if encoding == "utf8" else _NOT_ASCII).sub(_escape, text)


def print_json(tree: Any) -> None:
    """Print one JSON document."""
    line(json_text(tree))


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()
) -> None:
    """Print rows as an aligned table for a person; nothing is cut off, long cells are folded.

    Args:
        header: the columns' titles.
        rows: cells that have been made safe already.
        right: indexes of the columns that are aligned to the right.
    """
    # Only here: rich takes longer to import than all else that a verb does.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")
    console = Console(
        file=sys.stdout, highlight=False, markup=False, color_system=None if plain else "auto"
    )
    grid = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for index, title in enumerate(header):
        grid.add_column(Text(title), overflow="fold", justify="right" if index in right else "left")
    for row in rows:
        grid.add_row(*(Text(text, style=_STYLES.get(text, "")) for text in row))
    console.print(grid)


_STYLES = {
    "damaged": "red",
    "failed": "red",
    "stopped": "yellow",
    "waits for you": "cyan",
    "finished": "green",
}
