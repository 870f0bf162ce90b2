"""Values of an entry that the waypoint behind it holds as well are written once.

A framework hands over what a task wrote, and a moment later the state that comes of it, with the
same message in it. Where both go into one append, the entry refers to the patch of that waypoint:
`{"$in": 1}` stands for the `value` of the patch's operation 1, counted from 0, and `in` in the
entry's head is the waypoint's number. Only bytes are compared, so what stands there once was to
be written twice. Readers get the entry written out; it is never copied in any other form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from caravanserai_core import codec
from caravanserai_core.records import Malformed, Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from caravanserai_core.patching import Op

_TAG: Final = "$in"

_LEAST: Final = 64
"""Bytes; a shorter value is written again."""

_LEVELS: Final = 3
"""Lists inside each other whose items may be references: writes, one of them, its value."""


def refer(data: bytes, ops: Sequence[Op]) -> bytes | None:
    """Return the JSON of an entry's data with references; None where it has nothing to refer to.

    Args:
        data: the JSON.
        ops: the patch of the waypoint that will stand behind it.
    """
    known = {
        op.value: at for at, op in enumerate(ops) if len(op.value) >= _LEAST and op.value in data
    }
    if not known:
        return None
    tree = orjson.loads(data)
    if orjson.dumps(tree) != data:
        return None  # what is written out again would not be this
    referred = orjson.dumps(_referred(tree, known, _LEVELS))
    return referred if len(referred) < len(data) else None


def _referred(node: Any, known: dict[bytes, int], levels: int) -> Any:
    if type(node) is not list or not levels:
        return node
    found: list[Any] = []
    for item in node:
        at = None if item is None else known.get(orjson.dumps(item))
        found.append({_TAG: at} if at is not None else _referred(item, known, levels - 1))
    return found


def refers(record: Record) -> bool:
    """Say whether a record is an entry with references, which is not written out."""
    return "in" in record.head and record.kind == "entry"


def written_out(records: list[Record]) -> list[Record]:
    """Return records with entries written out, where what they refer to is among them.

    Args:
        records: in their order; of an entry or a waypoint whose body was not read, nothing is.
    """
    if not any(map(refers, records)):
        return records
    points = {record.waypoint: record for record in records if record.kind == "waypoint"}
    return [
        _written_out(record, points.get(record.head["in"])) if refers(record) else record
        for record in records
    ]


def _written_out(entry: Record, point: Record | None) -> Record:
    if point is None or point.body is None or entry.body is None or point.lane != entry.lane:
        return entry
    try:
        patch: Any = codec.parse(point.member("patch"))
        tree = _resolved(codec.parse(entry.member("data")), patch, _LEVELS)
    except (Malformed, ValueError, LookupError, TypeError):
        return entry  # a reader of its data is told, and so is `verify`
    head = {key: value for key, value in entry.head.items() if key not in ("in", "body_sha256")}
    found = Record(head, b'"data":' + orjson.dumps(tree), entry.sum, entry.loc)
    found.place, found.edited = entry.place, entry.edited
    return found


def _resolved(node: Any, patch: Any, levels: int) -> Any:
    if type(node) is dict and len(node) == 1 and _TAG in node:
        at = node[_TAG]
        if type(at) is not int or at < 0:
            raise Malformed(f"malformed {_TAG}")
        return patch[at]["value"]
    if type(node) is list and levels:
        return [_resolved(item, patch, levels - 1) for item in node]
    return node
