"""`caravanserai diff`: what changed between the states of two waypoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click
import orjson

from caravanserai_core.cli import _out, _runs
from caravanserai_core.cli._app import Session, common_options, json_option
from caravanserai_core.errors import UsageError, WaypointNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from caravanserai_core.cli._runs import Trail
    from caravanserai_core.reading import Waypoint
    from caravanserai_core.stores import Store

_VALUE = 120
"""Characters of a value that a line shows."""


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


@click.command(
    "diff",
    short_help="What changed between two waypoints.",
    epilog="--json prints a JSON Patch (RFC 6902): a list of add, remove and replace operations "
    "that turns the first state's JSON, as `show --state` prints it, into the second's.",
)
@click.argument("before", metavar="RUN[@N]", shell_complete=_runs.complete)
@click.argument("after", metavar="[RUN[@M]]", required=False, shell_complete=_runs.complete)
@json_option
@common_options
@click.pass_obj
def diff_(session: Session, before: str, after: str | None, as_json: bool) -> None:
    """Show what changed between two waypoints: `diff RUN@3 RUN@5`.

    With one name: between that waypoint, by default the newest, and the one before it.
    """
    store = session.store
    second = _point(store, after if after is not None else before)
    first = _point(store, before) if after is not None else _parent(store, second)
    old, new = (_runs.raw_state(store, p.run_id, p.waypoint.number) for p in (first, second))
    changes = list(compare(old, new))
    if as_json:
        _out.print_json([_operation(change) for change in changes])
        return
    for sign, (run_id, waypoint, _) in (("---", first), ("+++", second)):
        summary = _out.cell(str(waypoint.note), 300)
        _out.line(f"{sign} waypoint {waypoint.number} of {_out.cell(run_id)}: {summary}")
    _out.line("\n".join(text_of(change) for change in changes) or _nothing(old, new))


class _Point(NamedTuple):
    """One side of the comparison."""

    run_id: str
    waypoint: Waypoint
    trail: Trail


def _point(store: Store, text: str) -> _Point:
    named = _runs.find(store, text)
    trail = _runs.trail(store, named.run_id)
    number = _runs.number_at(store, named, trail)
    if not number:
        raise WaypointNotFound(f"run {_out.cell(named.run_id)} has no waypoint yet")
    return _Point(named.run_id, _runs.waypoint(store, named.run_id, number, trail), trail)


def _parent(store: Store, point: _Point) -> _Point:
    run_id, waypoint, trail = point
    if not waypoint.parent:
        raise UsageError(
            f"waypoint {waypoint.number} of run {_out.cell(run_id)} has none before it to compare "
            "with. Name two: caravanserai diff RUN@1 OTHER@1"
        )
    return _Point(run_id, _runs.waypoint(store, run_id, waypoint.parent, trail), trail)


def _operation(change: Change) -> dict[str, Any]:
    tree = {"op": change.op, "path": change.path}
    return tree if change.op == "remove" else {**tree, "value": change.new}


def text_of(change: Change) -> str:
    """Return a change as one line for a person."""
    where = _out.cell(change.path) or "(the whole state)"
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
    return _out.cell(text, _VALUE)


def _nothing(old: Any, new: Any) -> str:
    same = _out.json_text(old) == _out.json_text(new)
    return "the states are equal" if same else "the states differ only in the order of members"


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
