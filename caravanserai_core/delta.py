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

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from caravanserai_core import secrets
from caravanserai_core.patching import Op, token

if TYPE_CHECKING:
    from collections.abc import Callable

    from caravanserai_core.codec import Dumps

Shadow: TypeAlias = "bytes | dict[str, Shadow]"

DEPTH: Final = 5
"""Levels of containers below the root whose members are compared one by one."""

_MIN_SPLIT: Final = 256
"""Bytes; a smaller container is replaced whole."""

_MOST_MOVES: Final = 256
"""Insertions and removals of items in one list; more of them replace a long list whole."""

_MOST_SHIFTS: Final = 1 << 22
"""Items that a plain reader of a patch may have to move, one operation after the other."""

_LOOSE: Final = 8 * 1024
"""Bytes; encoded values below this are copied where they are kept."""

_CHUNK: Final = 1 << 16
"""Bytes that are compared at once."""

# Possessive only where single characters repeat: before Python 3.11.5 others may match wrongly.
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*"'


def _nested(depth: int) -> bytes:
    inner = b"|" + _nested(depth - 1) if depth else b""
    return rb'[\[{][^\[\]{}"]*+(?:(?:%b%b)[^\[\]{}"]*+)*[\]}]' % (_STRING, inner)


_ITEM: Final = re.compile(rb'(?:(?:[^\[\]{}",]++|%b|%b)[,\]])?' % (_STRING, _nested(5)), re.DOTALL)
"""An item of an encoded list and what follows it, or nothing.

Nothing is found where there is none, or it holds more than six levels of containers.
"""


def _tight(data: bytes) -> bytes:
    """Return `data` without the spare room that the encoder left behind its bytes.

    That is about a page for each value, however short, and only a copy is rid of it.
    """
    return bytes(memoryview(data)) if len(data) < _LOOSE else data


def shadow(
    part: object,
    dumps: Dumps,
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
        if (
            type(tree) is dict
            and tree
            and all(type(k) is str and k.isascii() for k in tree)
            and not secrets.current().in_keys(tree)
        ):
            likes = like if isinstance(like, dict) else {}
            return {
                key: shadow(value, dumps, expand, likes.get(key, b""), depth - 1)
                for key, value in tree.items()
            }
    if not isinstance(like, bytes):
        return _tight(dumps(part))
    data = dumps(part, like)
    return data if data is like else _tight(data)


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


def long_leaves(node: Shadow, least: int) -> list[bytes]:
    """Return the encoded parts that a shadow is made of and that have so many bytes."""
    if isinstance(node, bytes):
        return [node] if len(node) >= least else []
    found: list[bytes] = []
    for value in node.values():
        if isinstance(value, bytes):
            if len(value) >= least:
                found.append(value)
        else:
            found += long_leaves(value, least)
    return found


def opened(data: bytes) -> Shadow:
    """Split the bytes of an object into its members; other values stay as they are."""
    if data.startswith(b"{"):
        tree = orjson.loads(data)
        if tree:
            return {key: _tight(orjson.dumps(value)) for key, value in tree.items()}
    return data


def of_tree(tree: Any) -> Shadow:
    """Return the shadow of a JSON tree that was read back."""
    if type(tree) is dict and tree:
        return {key: _tight(orjson.dumps(value)) for key, value in tree.items()}
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
        Op("remove", path + token(key), b"") for key in old_members if key not in new_members
    )
    kept: dict[str, Shadow] = {}
    for key, value in new_members.items():
        before = old_members.get(key)
        if before is None:
            ops.append(Op("add", path + token(key), joined(value)))
            kept[key] = value
        elif before is value or (isinstance(value, bytes) and before == value):
            kept[key] = value  # two dicts go on to `_diff`: `==` does not see their key order
        else:
            kept[key] = _diff(before, value, path + token(key), depth - 1, ops)
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
        ops.extend(_appended(new[len(old) :], path))
        return
    found: list[Op] | None = None
    if depth and len(new) >= _MIN_SPLIT:
        found = _diff_items(old, new, path, depth)
    if found is None or sum(len(op.value) + len(op.path) + 40 for op in found) >= len(new):
        ops.append(Op("replace", path, new))
    else:
        ops.extend(found)


def _appended(rest: bytes, path: str) -> list[Op]:
    """Return the operations that append items, given as the end of an encoded list."""
    return [Op("add", path + "/-", item) for item in _items(b"[" + rest)]


def _items(data: bytes) -> list[bytes]:
    """Split an encoded list; no moment holds all items both decoded and encoded."""
    tree = orjson.loads(data)
    del data
    tree.reverse()
    return [_tight(orjson.dumps(tree.pop())) for _ in range(len(tree))]


def _diff_items(old: bytes, new: bytes, path: str, depth: int) -> list[Op] | None:
    """Compare two encoded lists item by item; None: better replaced whole."""
    head, begin, end = _differing(old, new)
    if not head:
        window = _moved_on(old, new)
        if window is not None:
            removed, stayed, rest = window
            if removed > _MOST_MOVES and removed * stayed > _MOST_SHIFTS:
                return None
            return [Op("remove", path + "/0", b"")] * removed + _appended(rest, path)
    trailing = len(old) - end
    cut = trailing > 1  # a tail that is the same in both is not decoded at all
    before = _items(b"[%b]" % old[begin:end])
    after = _items(b"[%b]" % new[begin : len(new) - trailing])
    short = min(len(before), len(after))
    same = 0
    while same < short and before[same] == after[same]:
        same += 1
    tail = 0
    while tail < short - same and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    gone, come = before[same : len(before) - tail], after[same : len(after) - tail]
    aligned = len(gone) == len(come) or not (tail or cut)
    both = min(len(gone), len(come)) if aligned else 0
    moves = len(gone) + len(come) - 2 * both
    # Commas stand for items. Where items hold some themselves, there are fewer than that, and a
    # list is replaced a little early.
    if moves > _MOST_MOVES and moves * (tail + old.count(b",", end)) > _MOST_SHIFTS:
        return None
    head += same
    ops: list[Op] = []
    for index in range(both):
        _diff(gone[index], come[index], f"{path}/{head + index}", depth - 1, ops)
    head += both
    ops.extend(Op("remove", f"{path}/{head}", b"") for _ in gone[both:])
    ops.extend(Op("add", f"{path}/{head + index}", item) for index, item in enumerate(come[both:]))
    return ops


def _moved_on(old: bytes, new: bytes) -> tuple[int, int, bytes] | None:
    """Say how a window moved on; None if it did something else.

    Returns:
        The number of items that are gone from its front, of those that stayed, and what follows
        these in `new`.
    """
    match = _ITEM.match(new, 1)
    lead = match.group()[:-1] if match else b""
    if lead and old.find(b"," + lead) < 0:
        return None
    items = _items(old)
    first = _items(b"[%b]" % lead if lead else new)[:1]
    index = items.index(first[0]) if first and first[0] in items else 0
    if not index:
        return None
    stayed = b",".join(items[index:])
    behind = 1 + len(stayed)
    if not new.startswith(stayed, 1) or new[behind : behind + 1] not in (b",", b"]"):
        return None
    rest = new[behind + 1 :] if new[behind : behind + 1] == b"," else b"]"
    return index, len(items) - index, rest


def _differing(old: bytes, new: bytes) -> tuple[int, int, int]:
    """Find where two lists differ, without decoding them.

    Both are JSON without white space. A comma between two items of `old` that lies in what both
    begin with is one in `new` too. So is one in what both end with: what follows it closes as
    many strings and containers as it opens, but for the list itself.

    Returns:
        The number of items before, and the bytes of `old` between which all differences lie. It
        may be a little more than need be, and is all of them where items are nested deeply.
    """
    short = min(len(old), len(new))
    prefix = _common(old, new, short)
    suffix = len(old) - _common_end(old, new, short - prefix)
    head, begin, at = 0, 1, 1
    for match in _ITEM.finditer(old, 1):
        if match.end() == at:
            break
        at = match.end()
        if at <= prefix:
            head += 1
            begin = at
        elif at > suffix:
            return head, begin, at - 1
    return 0, 1, len(old) - 1


def _common(old: bytes, new: bytes, most: int) -> int:
    """Return how many bytes two values begin with alike."""
    at = 0
    while at < most and old[at : at + _CHUNK] == new[at : at + _CHUNK]:
        at += _CHUNK
    low, high = min(at, most), min(at + _CHUNK, most)
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_end(old: bytes, new: bytes, most: int) -> int:
    """Return how many bytes two values end with alike, up to `most`."""

    def piece(data: bytes, low: int, high: int) -> bytes:
        return data[len(data) - high : len(data) - low]

    at = 0
    while at < most and piece(old, at, min(at + _CHUNK, most)) == piece(
        new, at, min(at + _CHUNK, most)
    ):
        at += _CHUNK
    low, high = min(at, most), min(at + _CHUNK, most)
    while low < high:
        middle = (low + high + 1) // 2
        if piece(old, low, middle) == piece(new, low, middle):
            low = middle
        else:
            high = middle - 1
    return low
