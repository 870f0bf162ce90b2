"""What changed between two states, as a JSON Patch (RFC 6902), found by comparing bytes.

A state is kept as a *shadow*: for each container that was seen to change, the encoded bytes of
its members; for everything else the encoded bytes of the whole. Comparing two shadows decodes
nothing that stayed the same and copies nothing. Three things are worth telling apart from a
general change, because agents do them all day: one member of a large object was replaced, a
list grew at its end, a list lost items at its front and grew at its end.

Objects of JSON are unordered, dicts of Python are not: where the key order after a patch would
differ, the object is replaced whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import orjson

from caravanserai_core.records import Malformed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Shadow: TypeAlias = "bytes | dict[str, Shadow]"

DEPTH: Final = 5
"""Levels of containers below the root whose members are compared one by one."""

_MIN_SPLIT: Final = 256
"""Bytes; a smaller container is replaced whole."""


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


def shadow(
    part: object,
    dumps: Callable[[object], bytes],
    expand: Callable[[object], object],
    like: Shadow | None = None,
    depth: int = DEPTH,
) -> Shadow:
    """Encode `part`, member by member where `like` (an earlier shadow) is kept so.

    The root is always kept by members, so that a derived note can name what changed.
    """
    if depth and (depth == DEPTH or isinstance(like, dict)):
        tree = part if type(part) is dict else expand(part)
        # Only keys that are JSON keys as they stand; others are the encoder's to judge.
        if type(tree) is dict and tree and all(type(k) is str and k.isascii() for k in tree):
            likes = like if isinstance(like, dict) else {}
            return {
                key: shadow(value, dumps, expand, likes.get(key, b""), depth - 1)
                for key, value in tree.items()
            }
    return dumps(part)


def joined(node: Shadow) -> bytes:
    """Return the JSON bytes of a shadow."""
    if isinstance(node, bytes):
        return node
    return b"{%b}" % b",".join(
        b"%b:%b" % (orjson.dumps(key), joined(value)) for key, value in node.items()
    )


def size(node: Shadow) -> int:
    """Return the number of JSON bytes of a shadow, to within its punctuation."""
    if isinstance(node, bytes):
        return len(node)
    return 2 + sum(len(key) + 4 + size(value) for key, value in node.items())


def opened(data: bytes) -> Shadow:
    """Split the bytes of an object into its members; other values stay as they are."""
    if data.startswith(b"{"):
        tree = orjson.loads(data)
        if tree:
            return {key: orjson.dumps(value) for key, value in tree.items()}
    return data


def of_tree(tree: Any) -> Shadow:
    """Return the shadow of a JSON tree that was read back."""
    if type(tree) is dict and tree:
        return {key: orjson.dumps(value) for key, value in tree.items()}
    return orjson.dumps(tree)


def diff(old: Shadow, new: Shadow) -> tuple[list[Op], Shadow]:
    """Return the operations that lead from `old` to `new`, and `new` as it is best kept.

    The second value splits a container whose members turned out to differ, so that the next
    comparison of it is by members from the start.
    """
    ops: list[Op] = []
    kept = _diff(old, new, "", DEPTH, ops)
    return ops, kept


def _diff(old: Shadow, new: Shadow, path: str, depth: int, ops: list[Op]) -> Shadow:
    if isinstance(old, bytes) and isinstance(new, bytes):
        if old == new:
            return new
        if old[:1] == new[:1] == b"[":
            _diff_lists(old, new, path, depth, ops)
            return new
        if not (old[:1] == new[:1] == b"{") or len(new) < _MIN_SPLIT or not depth:
            ops.append(Op("replace", path, new))
            return new
    old_members = opened(old) if isinstance(old, bytes) else old
    new_members = opened(new) if isinstance(new, bytes) else new
    if isinstance(old_members, bytes) or isinstance(new_members, bytes):
        if joined(old_members) != joined(new_members):
            ops.append(Op("replace", path, joined(new_members)))
        return new
    if not _same_order(old_members, new_members):
        ops.append(Op("replace", path, joined(new_members)))
        return new_members
    ops.extend(
        Op("remove", path + _token(key), b"") for key in old_members if key not in new_members
    )
    kept: dict[str, Shadow] = {}
    for key, value in new_members.items():
        before = old_members.get(key)
        if before is None:
            ops.append(Op("add", path + _token(key), joined(value)))
            kept[key] = value
        elif before is value or (isinstance(value, bytes) and before == value):
            kept[key] = value  # two dicts go on to `_diff`: `==` does not see their key order
        else:
            kept[key] = _diff(before, value, path + _token(key), depth - 1, ops)
    return kept


def _same_order(old: dict[str, Shadow], new: dict[str, Shadow]) -> bool:
    """Say whether removing and adding members gives the key order of `new`."""
    if old.keys() == new.keys():
        return list(old) == list(new)
    after = [key for key in old if key in new]
    after += [key for key in new if key not in old]
    return after == list(new)


def _diff_lists(old: bytes, new: bytes, path: str, depth: int, ops: list[Op]) -> None:
    # What stands before the last bracket decides how a parser goes on: if `new` begins with it
    # and a comma follows, `new` is `old` with items added.
    if len(old) > 2 and new.startswith(old[:-1]) and new[len(old) - 1 : len(old)] == b",":
        added = orjson.loads(b"[" + new[len(old) :])
        ops.extend(Op("add", path + "/-", orjson.dumps(item)) for item in added)
        return
    found: list[Op] = []
    if depth and len(new) >= _MIN_SPLIT:
        before = [orjson.dumps(item) for item in orjson.loads(old)]
        after = [orjson.dumps(item) for item in orjson.loads(new)]
        _diff_items(before, after, path, depth, found)
        if sum(len(op.value) + len(op.path) + 40 for op in found) < len(new):
            ops.extend(found)
            return
    ops.append(Op("replace", path, new))


def _diff_items(old: list[bytes], new: list[bytes], path: str, depth: int, ops: list[Op]) -> None:
    first = old.index(new[0]) if new and new[0] in old else 0
    if first and old[first:] == new[: len(old) - first]:  # a window that moved on
        ops.extend(Op("remove", path + "/0", b"") for _ in range(first))
        ops.extend(Op("add", path + "/-", item) for item in new[len(old) - first :])
        return
    short = min(len(old), len(new))
    head = 0
    while head < short and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < short - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    gone, come = old[head : len(old) - tail], new[head : len(new) - tail]
    both = min(len(gone), len(come)) if not tail or len(gone) == len(come) else 0
    for index in range(both):
        _diff(gone[index], come[index], f"{path}/{head + index}", depth - 1, ops)
    ops.extend(Op("remove", f"{path}/{head + both}", b"") for _ in gone[both:])
    ops.extend(
        Op("add", f"{path}/{head + both + index}", item) for index, item in enumerate(come[both:])
    )


def _token(key: str) -> str:
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
    found = dict(values)
    for op in ops:
        if op.op != "replace":
            return None
        for other in values:
            if other.startswith(op.path + "/"):
                found.pop(other, None)
            elif op.path.startswith(other + "/"):
                return None
        found[op.path] = op.value
    return found


def worth_joining(values: dict[str, bytes], ops: Sequence[Op]) -> bool:
    """Say whether a patch joined with all since the full state is about as small as alone.

    A large constant document with a counter then gets, at each waypoint, one patch on the full
    state instead of a chain of thousands: its newest state is two records away.
    """
    total = sum(len(value) + len(path) + 40 for path, value in values.items())
    latest = sum(len(op.value) + len(op.path) + 40 for op in ops)
    return len(values) <= _MOST_JOINED and total <= 2 * latest + 1024


def encode_joined(values: dict[str, bytes]) -> bytes:
    """Return joined replacements as a JSON Patch."""
    return encode_ops([Op("replace", path, value) for path, value in values.items()])


def apply(tree: Any, patch: Any) -> Any:
    """Apply a patch to a JSON tree, in place where it can, and return the tree.

    Args:
        tree: what `orjson.loads` gave for the base.
        patch: a list of add, replace and remove operations (RFC 6902).

    Raises:
        Malformed: the patch does not fit the tree.
    """
    try:
        for op in patch:
            tree = _apply_one(tree, op)
    except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        raise Malformed(f"the patch does not fit its base: {error!r}") from None
    return tree


def _apply_one(tree: Any, op: dict[str, Any]) -> Any:
    name, path = op["op"], op["path"]
    if path == "":
        if name != "replace":
            raise Malformed(f"{name} at the root")
        return op["value"]
    tokens = [t.replace("~1", "/").replace("~0", "~") for t in path.split("/")]
    if tokens[0]:
        raise Malformed(f"not a JSON Pointer: {path!r}")
    parent = tree
    for token in tokens[1:-1]:
        parent = parent[token] if type(parent) is dict else parent[_index(token)]
    key = tokens[-1]
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


def _index(token: str) -> int:
    # RFC 6901, 4: no leading zeros.
    if not token.isascii() or not token.isdigit() or (token[0] == "0" and token != "0"):
        raise IndexError(token)
    return int(token)
