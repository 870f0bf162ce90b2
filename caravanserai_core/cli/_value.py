"""A state as a person reads it: in Python's notation, without the types of the program.

What is read is the JSON tree with its tags. No class of the program is looked for, so what is
printed does not depend on what this process happens to have imported.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai_core import codec
from caravanserai_core.cli._out import cell
from caravanserai_core.errors import CaravanseraiError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SHORT = 200
"""Characters up to which a value stays on one line, however narrow the terminal."""

_INDENT = 4
_NAME = 200

_SCALARS = frozenset(
    f"${name}"
    for name in (
        *("str", "int", "float", "bytes", "bytearray", "complex", "range", "decimal", "uuid"),
        *("datetime", "date", "time", "timedelta", "timezone", "zoneinfo"),
        *("ndarray", "npscalar"),
    )
)
"""Tags that hold none of the program's types: the codec reads them, and Python prints them."""


class Group(NamedTuple):
    """Something with brackets around it.

    Attributes:
        begin: what stands before its items.
        items: each with what stands before it, such as `name=`.
        end: what stands behind them.
        size: its length on one line.
    """

    begin: str
    items: list[tuple[str, Node]]
    end: str
    size: int


Node = str | Group


def text(tree: Any, width: int, *, tagged: bool, column: int = 0) -> str:
    """Return a state in Python's notation, over several lines if it is long.

    A state without tags that is short is written exactly as `repr` writes it.

    Args:
        tree: its JSON tree.
        width: characters of a line; a text is never cut in two for it.
        tagged: whether the tree may hold tags.
        column: characters that stand before it on its first line.
    """
    try:
        node = _tagged(tree) if tagged else _plain(tree, _plain)
        out: list[str] = []
        if _size(node) <= SHORT:
            _flat(node, out)
        else:
            _broken(node, 0, column, width, out)
    except RecursionError:
        return repr(tree)
    return "".join(out)


# ---------------------------------------------------------------------- from JSON


def _plain(tree: Any, convert: Callable[[Any], Node]) -> Node:
    """A value of JSON's own types; `convert` is for what it holds."""
    if type(tree) is list:
        return _group("[", [("", convert(item)) for item in tree], "]")
    if type(tree) is dict:
        return _group("{", [(f"{key!r}: ", convert(item)) for key, item in tree.items()], "}")
    return repr(tree)
