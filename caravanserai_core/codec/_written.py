"""Whether JSON is written as orjson writes it, in memory of bounded size.

That is how `parse` finds what orjson reads too leniently. To write a large state a second time
only to compare it would need as much memory again; for a process that has just begun, memory it
has not used before costs more than to fill it. So what is large is written in pieces.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["is_written"]

_PIECE: Final = 1 << 15
"""Bytes or characters that are written at once."""

_ITEMS: Final = 32
"""Items of a list, or members of a large object, that are written at once."""

_LEVELS: Final = 2
"""Levels at the root in which the members of small objects are written one by one."""


def is_written(tree: object, data: bytes | memoryview) -> bool:
    """Say whether orjson writes `tree` as `data`.

    Args:
        tree: as `orjson.loads` gives it.
        data: JSON text as UTF-8.

    Raises:
        orjson.JSONEncodeError: the tree is nested more than 254 deep.
    """
    if len(data) <= _PIECE:
        return orjson.dumps(tree) == data
    at = 0
    for piece in _pieces(tree, 0):
        end = at + len(piece)
        if bytes(data[at:end]) != piece:
            return False
        at = end
    return at == len(data)


def _pieces(tree: object, level: int) -> Iterator[bytes]:
    """Yield in pieces what orjson writes for a part of a tree, `level` containers deep in it."""
    if type(tree) is str and len(tree) > _PIECE:
        yield b'"'
        for at in range(0, len(tree), _PIECE):
            yield orjson.dumps(tree[at : at + _PIECE])[1:-1]
        yield b'"'
    elif type(tree) is list and len(tree) > _ITEMS:
        mark = b"["
        for at in range(0, len(tree), _ITEMS):
            yield mark + _written(tree[at : at + _ITEMS], level)[1:-1]
            mark = b","
        yield b"]"
    elif type(tree) is dict and len(tree) > _ITEMS:
        members = iter(tree.items())
        mark = b"{"
        while some := dict(islice(members, _ITEMS)):
            yield mark + _written(some, level)[1:-1]
            mark = b","
        yield b"}"
    elif type(tree) is dict and tree and level < _LEVELS:
        mark = b"{"
        for key, value in tree.items():
            yield mark + orjson.dumps(key) + b":"
            yield from _pieces(value, level + 1)
            mark = b","
        yield b"}"
    else:
        yield _written(tree, level)


def _written(tree: object, level: int) -> bytes:
    # orjson counts how deep a tree is, so it is given the levels above this part too.
    for _ in range(level):
        tree = [tree]
    return orjson.dumps(tree)[level : -level or None]
