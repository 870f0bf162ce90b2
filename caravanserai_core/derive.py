"""A note made from what changed between two states, for a caller who gives none.

For example `step: retrieve, attempts: 1 → 2, messages: 12 items (2 new)`. It is told from the
encoded members alone: no value of the program is looked at, and none is called.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from caravanserai_core.delta import Shadow, joined
from caravanserai_core.notes import Note
from caravanserai_core.quoting import one_line, quoted

_SHOWN: Final = 6
"""Most members that a note names."""

_LARGE: Final = 1 << 20
"""Bytes; a larger member is not decoded for the sake of a note."""

# Tags whose content, or whose "items", are what the value holds.
_HOLDERS = {"$tuple", "$set", "$frozenset", "$dict", "$ordereddict", "$counter"}
_HOLDERS_WITH_ITEMS = {"$deque", "$defaultdict"}


def derive(old: Shadow | None, new: Shadow) -> Note:
    """Tell in one line what changed.

    Args:
        old: the shadow of the state before, or None where there is none.
        new: the shadow of the state.
    """
    members = _members(new)
    if members is None:
        return Note(f"state: {_value(_decoded(new))}")
    before = (_members(old) or {}) if old is not None else {}
    parts = [
        f"{one_line(key, 40)}: {_change(before.get(key), value)}"
        for key, value in members.items()
        if key not in before or before[key] != value
    ]
    parts += [f"{one_line(key, 40)}: removed" for key in before if key not in members]
    if not parts:
        return Note("nothing changed" if old is not None else "empty state")
    more = len(parts) - _SHOWN
    return Note(", ".join([*parts[:_SHOWN], f"and {more} more"] if more > 0 else parts))


def _members(node: Shadow) -> dict[str, bytes] | None:
    """Return the encoded members of a state that has some, through the tag of its type."""
    if isinstance(node, bytes):
        if node[:1] != b"{" or len(node) > _LARGE:
            return None
        tree = orjson.loads(node)
    elif len(node) == 1:
        tree = orjson.loads(joined(node)) if next(iter(node)).startswith("$") else None
    else:
        tree = None
    if tree is None:
        return {k: joined(v) for k, v in node.items()} if isinstance(node, dict) else None
    tag, content = _tag(tree)
    if tag == "$object":
        tree = content.get("value")
        if content.get("kind") == "pydantic":
            tree = tree.get("fields")
        if content.get("kind") not in ("dataclass", "namedtuple", "pydantic"):
            return None
    elif tag:
        return None
    return {key: orjson.dumps(value) for key, value in tree.items()}


def _tag(tree: Any) -> tuple[str, Any]:
    """Return the tag of a JSON tree and its content; ("", tree) if it has none."""
    if isinstance(tree, dict) and len(tree) == 1:
        name, content = next(iter(tree.items()))
        if name.startswith("$"):
            return name, content
    return "", tree


def _decoded(node: Shadow) -> Any:
    data = joined(node)
    return orjson.loads(data) if len(data) <= _LARGE else ...


def _change(old: bytes | None, new: bytes) -> str:
    after = _decoded(new)
    if old is None or after is ...:
        return _value(after)
    before = _decoded(old)
    was, holds = _held(before), _held(after)
    if was is not None and holds is not None:
        added = len(holds) - len(was)
        how = f"{added} new" if added > 0 else f"{-added} fewer" if added else "changed"
        return f"{_value(after)} ({how})"
    if isinstance(after, str) and isinstance(before, str):
        return _value(after)
    if any(isinstance(tree, (dict, list)) for tree in (before, after)):
        told = _value(after)
        return f"{told} (changed)" if told == _value(before) else told
    return f"{_value(before)} → {_value(after)}"


def _held(tree: Any) -> list[Any] | None:
    """Return what a list or another holder of items holds, or None."""
    tag, content = _tag(tree)
    if tag in _HOLDERS_WITH_ITEMS:
        content = content["items"]
    elif tag and tag not in _HOLDERS:
        return None
    return content if isinstance(content, list) else None


def _value(tree: Any) -> str:
    held = _held(tree)
    if held is not None:
        return f"{len(held)} item{'' if len(held) == 1 else 's'}"
    tag, content = _tag(tree)
    if tag == "$object":
        name = one_line(str(content.get("type", "")).rpartition(":")[2].rpartition(".")[2], 40)
        return one_line(content["value"], 40) if content.get("kind") == "enum" else name
    if tag == "$path":
        return one_line(str(content[1]), 40)
    if tag:
        return one_line(content, 40) if isinstance(content, str) else tag[1:]
    if isinstance(tree, dict):
        return f"{len(tree)} member{'' if len(tree) == 1 else 's'}"
    if tree is ...:
        return "changed"
    if isinstance(tree, str):
        shown = quoted(tree, 40)
        return shown if shown.startswith("`") or not tree or tree != tree.strip() else shown[1:-1]
    return "none" if tree is None else orjson.dumps(tree).decode()
