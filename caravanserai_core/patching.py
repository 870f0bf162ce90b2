"""Patches (JSON Patch, RFC 6902): written, joined into one, and applied."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from caravanserai_core.records import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Op(NamedTuple):
    """One operation of a patch.

    Attributes:
        op: add, replace or remove.
        path: a JSON Pointer (RFC 6901).
        value: the encoded value; empty for remove.
    """

    op: str
    path: str
    value: bytes


def token(key: str) -> str:
    """Return a member's name as a token of a JSON Pointer, with its slash."""
    return "/" + key.replace("~", "~0").replace("/", "~1")


def encode_ops(ops: Sequence[Op]) -> bytes:
    """Return a patch as the JSON array that RFC 6902 describes."""
    return b"[%b]" % b",".join(
        b'{"op":"%b","path":%b%b}'
        % (op.op.encode(), orjson.dumps(op.path), b',"value":' + op.value if op.value else b"")
        for op in ops
    )


_MOST_JOINED: Final = 64
"""Operations; a joined patch with more is no gain over a chain of small ones."""


def join(values: dict[str, bytes], ops: Sequence[Op]) -> dict[str, bytes] | None:
    """Join a patch with earlier ones into a patch on the state before them all.

    Args:
        values: what the earlier ones replaced: the value by path.
        ops: the new operations.

    Returns:
        `values` with the new ones, or None where anything but replacements would not keep its
        meaning.
    """
    if any(op.op != "replace" for op in ops):
        return None
    found = dict(values)
    above: set[str] = set()
    for path in values:
        _add_above(path, above)
    covering: set[str] = set()
    for op in ops:
        if any(parent in found for parent in _parents(op.path)):
            return None
        if op.path in above:
            covering.add(op.path)
        found[op.path] = op.value
        _add_above(op.path, above)
    if covering:
        for path in list(found):
            if any(parent in covering for parent in _parents(path)):
                del found[path]
    return found


def _parents(path: str) -> Iterator[str]:
    """Go through the paths above one, the root last."""
    cut = path.rfind("/")
    while cut >= 0:
        yield path[:cut]
        cut = path.rfind("/", 0, cut)


def _add_above(path: str, above: set[str]) -> None:
    for parent in _parents(path):
        if parent in above:  # and so are all above it
            break
        above.add(parent)


def worth_joining(values: dict[str, bytes], ops: Sequence[Op]) -> bool:
    """Say whether a patch joined with all since the full state is about as small as alone.

    A large constant document with a counter then gets, at each waypoint, one patch on the full
    state instead of a chain of thousands: its newest state is two records away.
    """
    total = sum(len(value) + len(path) + 40 for path, value in values.items())
    latest = sum(len(op.value) + len(op.path) + 40 for op in ops)
    return len(values) <= _MOST_JOINED and total <= 2 * latest + 1024


def replacing(values: dict[str, bytes]) -> list[Op]:
    """Return joined replacements as operations."""
    return [Op("replace", path, value) for path, value in values.items()]


def apply(tree: Any, patch: Any) -> Any:
    """Apply a patch to a JSON tree, in place where it can, and return the tree.

    Args:
        tree: what `orjson.loads` gave for the base.
        patch: a list of add, replace and remove operations (RFC 6902).

    Raises:
        Malformed: the patch does not fit the tree.
    """
    try:
        at = 0
        while at < len(patch):
            op = patch[at]
            if op["op"] == "replace" or at + 1 == len(patch):
                tree = _apply_one(tree, op)
                at += 1
                continue
            run = _run(patch, at)
            if run > 1 and type(parent := _parent(tree, op["path"])[0]) is list:
                _apply_run(parent, patch[at : at + run])
            else:
                for op in patch[at : at + run]:
                    tree = _apply_one(tree, op)
            at += run
    except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        raise Malformed(f"the patch does not fit its base: {error!r}") from None
    return tree


def applied(tree: Any, patch: Any) -> Any:
    """Apply a patch and leave `tree` as it is: what did not change is in both.

    Raises:
        Malformed: the patch does not fit the tree.
    """
    copied: dict[int, Any] = {}  # by id; they are kept, so no id is used twice

    def own(node: Any) -> Any:
        if id(node) in copied:
            return node
        copy = dict(node) if type(node) is dict else list(node)
        copied[id(copy)] = copy
        return copy

    try:
        for op in patch:
            tokens = op["path"].split("/")[1:-1]
            if op["path"]:
                tree = node = own(tree)
                for token in tokens:
                    key: Any = token.replace("~1", "/").replace("~0", "~")
                    key = key if type(node) is dict else _index(key)
                    child = own(node[key])
                    node[key] = child
                    node = child
            tree = apply(tree, [op])
    except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        raise Malformed(f"the patch does not fit its base: {error!r}") from None
    return tree


def _run(patch: list[Any], at: int) -> int:
    """Count the operations from `at` on that are one slice of a list, if it is a list.

    That is, those that remove at the same index, or add at one index after the other: done one by
    one, each would move all items behind.
    """
    name, path = patch[at]["op"], patch[at]["path"]
    above, _, token = path.rpartition("/")
    if name not in ("remove", "add") or not _INDEX.fullmatch(token):
        return 1
    end = at + 1
    step = name == "add"
    first = int(token) if step else 0
    while end < len(patch) and patch[end]["op"] == name:
        if patch[end]["path"] != (f"{above}/{first + end - at}" if step else path):
            break
        end += 1
    return end - at


def _apply_run(items: list[Any], run: list[Any]) -> None:
    first = _index(run[0]["path"].rpartition("/")[2])
    if run[0]["op"] == "add":
        if first > len(items):
            raise IndexError(first)
        items[first:first] = [op["value"] for op in run]
    else:
        if first + len(run) > len(items):
            raise IndexError(first)
        del items[first : first + len(run)]


def _parent(tree: Any, path: str) -> tuple[Any, str]:
    """Return the container that a path leads into, and the last token."""
    tokens = path.split("/")
    if "~" in path:
        tokens = [token.replace("~1", "/").replace("~0", "~") for token in tokens]
    if tokens[0]:
        raise Malformed(f"not a JSON Pointer: {path!r}")
    parent = tree
    if len(tokens) > 2:
        for token in tokens[1:-1]:
            parent = parent[token] if type(parent) is dict else parent[_index(token)]
    return parent, tokens[-1]


def _apply_one(tree: Any, op: dict[str, Any]) -> Any:
    name, path = op["op"], op["path"]
    if path == "":
        if name != "replace":
            raise Malformed(f"{name} at the root")
        return op["value"]
    parent, key = _parent(tree, path)
    if type(parent) is dict:
        if name == "remove":
            del parent[key]
        elif name == "add" or key in parent:
            parent[key] = op["value"]
        else:
            raise KeyError(key)
    elif name == "add" and key == "-":
        parent.append(op["value"])
    elif name == "add":
        position = _index(key)
        if position > len(parent):
            raise IndexError(key)
        parent.insert(position, op["value"])
    elif name == "replace":
        parent[_index(key)] = op["value"]
    elif name == "remove":
        del parent[_index(key)]
    else:
        raise Malformed(f"unknown operation {name!r}")
    return tree


_INDEX: Final = re.compile("0|[1-9][0-9]*")
"""RFC 6901, 4: no leading zeros."""


def _index(token: str) -> int:
    if not _INDEX.fullmatch(token):
        raise IndexError(token)
    return int(token)
