"""Find out, without building anything, whether orjson writes a value exactly.

orjson changes five things silently: an exact tuple becomes a list, nan and infinity become
null, every Enum becomes its value, a UUID its text, and a dict that looks like one of our tags
would be read back as that tag (orjson 3.13; the tests guard each). Everything else that JSON
cannot hold makes orjson raise. So it is enough to look for those five and for objects, which
costs about as much as orjson itself; only a value that has one takes the explicit encoder.

The value may be changed by other threads meanwhile. Whatever that does to an iteration ends as a
RuntimeError, or as one of the answers here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

__all__ = ["DEEPEST", "rows_trapped", "trap_among", "trapped"]

DEEPEST = 200
"""Levels of JSON that a value may have; orjson writes 254, and a record adds its own."""

_ATOMS = frozenset({str, int, bool, type(None)})
# Below this many elements the shortcuts for lists of one type cost more than they save.
_FEW = 12


def trapped(value: Any) -> bool:
    """Whether a value needs the explicit encoder.

    Args:
        value: any value.

    Returns:
        True if it holds anything that orjson would change or not write, or is too deep. The
        explicit encoder then keeps or refuses it.
    """
    return trap_among((value,), DEEPEST)


def trap_among(values: Any, depth: int) -> bool:
    """Whether one of the elements of a container is a trap.

    Args:
        values: the elements of a list or the values of a dict.
        depth: levels of JSON left for each of them.
    """
    if len(values) > _FEW:
        kinds = set(map(type, values))
        others = kinds - _ATOMS
        if not others <= _CHECKS.keys():
            return True
        for kind in others:
            alike = values if len(kinds) == 1 else [item for item in values if type(item) is kind]
            if _CHECKS[kind](alike, depth):
                return True
        return False
    for item in values:
        kind = type(item)
        if kind is str or kind is int or item is None or kind is bool:
            continue
        # One call per container: the check of a dict stands here and not in a function.
        if kind is dict:
            if len(item) == 1:
                for key in item:
                    if type(key) is str and key[:1] == "$":
                        return True
            if not depth or trap_among(item.values(), depth - 1):
                return True
        elif kind is list:
            if not depth or trap_among(item, depth - 1):
                return True
        elif kind is float:
            if item - item:
                return True
        else:
            return True
    return False


def _floats(values: Iterable[float], _depth: int) -> bool:
    """Whether a nan or an infinity is among floats: one sum is cheaper than looking at each."""
    try:
        total = sum(values)
    except TypeError:  # another thread has put something else there
        return True
    if total - total:
        # Either a trap, or large finite numbers whose sum is not finite.
        return any(type(item) is not float or item - item for item in values)
    return False


def _lists(values: Iterable[list[Any]], depth: int) -> bool:
    """Whether a trap is among many lists, most of which are short: one pass over all items."""
    if not depth:
        return True
    items = [item for part in values for item in part]
    return bool(items) and trap_among(items, depth - 1)


def rows_trapped(values: Iterable[dict[str, Any]], depth: int) -> bool:
    """Whether a trap is among many dicts, such as a chat: one pass over all their values.

    Args:
        values: exact dicts.
        depth: levels of JSON left for each of them.
    """
    if not depth:
        return True
    try:
        if 1 in map(len, values):
            for row in values:
                if len(row) == 1:
                    for key in row:
                        if type(key) is str and key[:1] == "$":
                            return True
        atoms = _ATOMS  # a local name is found faster
        rest = [item for row in values for item in row.values() if type(item) not in atoms]
    except TypeError:  # another thread has put something else there
        return True
    return bool(rest) and trap_among(rest, depth - 1)


_CHECKS: dict[type, Callable[[Any, int], bool]] = {float: _floats, list: _lists, dict: rows_trapped}
"""How many elements of one type are looked at together."""
