"""What changed between the states of two waypoints, as operations and as lines of text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from caravanserai_core import lookup
from caravanserai_core.errors import UsageError, WaypointNotFound
from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from caravanserai_core.lookup import Named, Trail
    from caravanserai_core.reading import Waypoint
    from caravanserai_core.stores.base import Store

__all__ = ["Change", "Point", "compare", "parent_of", "point", "text_of", "unchanged"]

_VALUE: Final = 120
"""Characters of a value that a line shows."""
_WHOLE: Final = 1 << 30


class Point(NamedTuple):
    """One side of the comparison."""

    run_id: str
    waypoint: Waypoint
    trail: Trail


def point(store: Store, named: Named) -> Point:
    """Return the waypoint that was named, the newest where only the run was.

    Raises:
        WaypointNotFound: there is none.
        JournalDamaged: the newest one cannot be told.
    """
    trail = lookup.trail(store, named.run_id)
    number = lookup.number_at(store, named, trail)
    if not number:
        raise WaypointNotFound(f"run {one_line(named.run_id, _WHOLE)} has no waypoint yet")
    return Point(named.run_id, lookup.waypoint(store, named.run_id, number, trail), trail)


def parent_of(store: Store, point: Point) -> Point:
    """Return the waypoint before one.

    Raises:
        UsageError: there is none before it.
    """
    run_id, waypoint, trail = point
    if not waypoint.parent:
        raise UsageError(
            f"waypoint {waypoint.number} of run {one_line(run_id, _WHOLE)} has none before it to "
            "compare with. Name two: caravanserai diff RUN@1 OTHER@1"
        )
    return Point(run_id, lookup.waypoint(store, run_id, waypoint.parent, trail), trail)


class Change(NamedTuple):
    """One operation that leads from one tree to another (RFC 6902).

    Attributes:
        op: add, remove or replace.
        path: where, a JSON pointer (RFC 6901).
        old: the value before; None for add.
        new: the value after; None for remove.
    """

    op: str
    path: str
    old: Any
    new: Any


def compare(old: Any, new: Any, path: str = "") -> Iterator[Change]:
    """Yield what turns one JSON tree into another, in an order in which it can be applied."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old:
            if key not in new:
                yield Change("remove", f"{path}/{_token(key)}", old[key], None)
        for key, value in new.items():
            where = f"{path}/{_token(key)}"
            if key in old:
                yield from compare(old[key], value, where)
            else:
                yield Change("add", where, None, value)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _lists(old, new, path)
    elif not same(old, new):
        yield Change("replace", path, old, new)


def _lists(old: list[Any], new: list[Any], path: str) -> Iterator[Change]:
    """Compare what lies between the equal beginning and the equal end of two lists."""
    short = min(len(old), len(new))
    begin = 0
    while begin < short and same(old[begin], new[begin]):
        begin += 1
    end = 0
    while end < short - begin and same(old[-1 - end], new[-1 - end]):
        end += 1
    before, after = old[begin : len(old) - end], new[begin : len(new) - end]
    both = min(len(before), len(after))
    for index in range(both):
        yield from compare(before[index], after[index], f"{path}/{begin + index}")
    for index in range(len(before) - 1, both - 1, -1):
        yield Change("remove", f"{path}/{begin + index}", before[index], None)
    for index in range(both, len(after)):
        yield Change("add", f"{path}/{begin + index}", None, after[index])


def same(old: Any, new: Any) -> bool:
    """Say whether two trees are the same JSON: 1, 1.0 and true are three values, 0.0 and -0.0 two.

    The order of an object's members does not count (RFC 8259).
    """
    if type(old) is not type(new):
        return False
    if isinstance(old, dict):
        return old.keys() == new.keys() and all(same(old[key], new[key]) for key in old)
    if isinstance(old, list):
        return len(old) == len(new) and all(map(same, old, new))
    return repr(old) == repr(new) if isinstance(old, float) else bool(old == new)


def _token(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def text_of(change: Change) -> str:
    """Return a change as one line for a person."""
    where = one_line(change.path, _WHOLE) or "(the whole state)"
    if change.op == "add":
        return f"+ {where}: {_value(change.new)}"
    if change.op == "remove":
        return f"- {where}: {_value(change.old)}"
    return f"~ {where}: {_value(change.old)} → {_value(change.new)}"


def _value(tree: Any) -> str:
    try:
        text = orjson.dumps(tree).decode()
    except orjson.JSONEncodeError:
        text = repr(tree)
    return one_line(text, _VALUE)


def unchanged(old: Any, new: Any) -> str:
    """Say of two states between which `compare` found nothing whether they are equal."""
    same = _json(old) == _json(new)
    return "the states are equal" if same else "the states differ only in the order of members"


def _json(tree: Any) -> bytes:
    try:
        return orjson.dumps(tree)
    except orjson.JSONEncodeError:  # a lone surrogate in a name, or nested deeper than orjson goes
        return json.dumps(tree).encode()
