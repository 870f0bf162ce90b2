"""Read JSON strictly, and turn tags back into what they stand for.

Nothing in a file is trusted: a reader accepts only what its writer writes, a type comes from
the closed registry, and whatever goes wrong ends as a typed error with the path.
"""

from __future__ import annotations

import gc
import json
import math
import threading
from typing import TYPE_CHECKING

import orjson

from caravanserai_core.codec import _numpy, _secret, _share, _types, _unfit
from caravanserai_core.codec._fault import Fault, clean, step
from caravanserai_core.codec._strict import Malformed
from caravanserai_core.codec._tags import READERS
from caravanserai_core.codec._written import is_written
from caravanserai_core.errors import (
    JournalDamaged,
    SchemaMismatch,
    UnknownType,
    UnserialisableState,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from caravanserai_core.errors import CaravanseraiError

__all__ = ["decode_tree", "parse", "public", "untag"]


_LARGE = 1 << 18
"""Bytes."""


class _Local(threading.local):
    """What the references in the tree that this thread decodes may mean."""

    targets: Mapping[str, list[Any]] | None = None
    # Whether an object that does not fit its type comes as an `Unfit`.
    lenient = False


_local = _Local()

_READERS = {
    **READERS,
    **_secret.READERS,
    "$ndarray": _numpy.read_array,
    "$npscalar": _numpy.read_scalar,
    "$object": _types.read_object,
    _share.SAME: lambda content: _share.resolve(content, _local.targets),
}


def parse(data: bytes | memoryview) -> object:
    """Read JSON without losing anything of it.

    orjson is lenient in two ways: of duplicate keys it keeps the last, and an int beyond 64 bit
    becomes a float. Text that orjson would write in the same way has neither; only other text,
    such as a file edited by hand, is read a second time by a slower, stricter parser.

    Args:
        data: JSON text as UTF-8.

    Returns:
        The JSON tree.

    Raises:
        JournalDamaged: (a ValueError) if it is no JSON, a key is there twice, a number does not
            fit in 64 bit, or it is nested more than 254 deep.
    """
    try:
        tree = _loads(data)
    except orjson.JSONDecodeError as error:
        raise JournalDamaged(f"no valid JSON: {error.msg} at character {error.pos}") from None
    try:
        canonical = is_written(tree, data)
    except orjson.JSONEncodeError:
        raise JournalDamaged("JSON nested more than 254 deep") from None
    if not canonical:
        _check(data)
    return tree


def _loads(data: bytes | memoryview) -> Any:
    """Parse as orjson does, large data without the garbage collector.

    Of what a parser makes nothing is garbage, yet the collector looks at all of it again and
    again: two thirds of the time for 10 MB. Nothing of Python runs while orjson works, so no
    other thread notices.
    """
    if len(data) < _LARGE or not gc.isenabled():
        return orjson.loads(data)
    try:
        gc.disable()
        return orjson.loads(data)
    finally:
        gc.enable()


def _check(data: bytes | memoryview) -> None:
    try:
        json.loads(bytes(data), object_pairs_hook=_pairs, parse_int=_int, parse_float=_float)
    except JournalDamaged:
        raise
    except (ValueError, RecursionError):
        raise JournalDamaged("no valid JSON") from None


def _pairs(items: list[tuple[str, Any]]) -> None:
    keys = set()
    for key, _ in items:
        if key in keys:
            raise JournalDamaged(f"the key {clean(key)!r} is twice in one JSON object")
        keys.add(key)


def _int(text: str) -> None:
    if len(text) > 20 or not -(2**63) <= int(text) < 2**64:
        raise JournalDamaged("a JSON number that does not fit in 64 bit")


def _float(text: str) -> None:
    if not math.isfinite(float(text)):
        raise JournalDamaged("a JSON number that does not fit in 64 bit")


def decode_tree(
    tree: object,
    shared: Collection[str] = (),
    targets: Mapping[str, list[Any]] | None = None,
    *,
    lenient: bool = False,
) -> object:
    """Turn the tags of a JSON tree back into values.

    Args:
        tree: as `parse` gives it; it is changed in place and must not be used afterwards.
        shared: the lists that its references may mean, as its record's head names them.
        targets: these lists by path, decoded; None: they are in this tree.
        lenient: an object that the program's type no longer fits comes as an `Unfit`.

    Returns:
        The value that was encoded. A list that was written as a reference holds the same
        objects as its target.

    Raises:
        UnknownType: if it has a tag or a type that this program does not know.
        SchemaMismatch: if a tag's content is malformed or no longer fits its type.
    """
    if type(tree) is not dict and type(tree) is not list:
        return tree
    outer = _local.targets, _local.lenient
    try:
        _local.targets, _local.lenient = targets, lenient
        if shared and targets is None:
            return _walk_sharing(tree, shared)
        return _walk(tree)
    except (Fault, RecursionError) as problem:
        error, cause = public(problem)
    finally:
        _local.targets, _local.lenient = outer
    raise error from cause


def public(problem: Fault | RecursionError) -> tuple[CaravanseraiError, BaseException | None]:
    """The public error for what ended an attempt to decode, and its cause."""
    if isinstance(problem, RecursionError):
        return SchemaMismatch("$: nested too deep"), None
    if issubclass(problem.error, UnserialisableState):
        problem.error = SchemaMismatch
    return problem.raised(), problem.__cause__


def _walk_sharing(tree: Any, shared: Collection[str]) -> Any:
    """Decode a tree that holds the targets of its references: these first, and once."""
    found = []
    for path in shared:
        holder, key = _share.holder(tree, path)
        target = holder[key]
        try:
            _walk(target)
        except Fault as fault:
            fault.steps.extend(map(step, reversed(_share.keys(path))))
            raise
        holder[key] = None  # in its place, so that it is not walked again
        found.append((holder, key, path, target))
    _local.targets = {path: target for _, _, path, target in found}
    value = _walk(tree)
    for holder, key, _, target in found:
        holder[key] = target
    return value


def _walk(node: Any) -> Any:
    """Decode a list or dict in place; a tag gives way to what it stands for."""
    if type(node) is list:
        index = 0
        try:
            for index, item in enumerate(node):
                kind = type(item)
                if kind is dict or kind is list:
                    value = _walk(item)
                    if value is not item:
                        node[index] = value
        except Fault as fault:
            fault.steps.append(f"[{index}]")
            raise
        return node
    fields, tag = node, ""
    if len(node) == 1:
        (only,) = node
        if only[:1] == "$":
            tag = only
            if tag in _types.TAGS:
                # Its fields are decoded here: a state may hold such models by the thousand.
                fields = node[tag]
                if type(fields) is not dict:
                    raise Fault(f"malformed {tag}: it has no fields", SchemaMismatch)
    key: Any = ""
    try:
        for key, item in fields.items():
            kind = type(item)
            if kind is dict or kind is list:
                value = _walk(item)
                if value is not item:
                    fields[key] = value
    except Fault as fault:
        if not tag or fields is not node:
            fault.steps.append(step(key))
        if tag:
            fault.within(tag, node[tag])
        raise
    if tag:
        return untag(tag, node[tag])
    return node


def untag(tag: str, content: Any) -> Any:
    """What a tag with decoded content stands for.

    Raises:
        Fault: if the tag or its type is unknown, or the content is malformed.
    """
    read = _READERS.get(tag)
    if read is None:
        compact = _types.TAGS.get(tag)
        if compact is None:
            raise _unknown(tag)
        read = compact.rebuild
    try:
        return read(content)
    except RecursionError:
        raise
    except Fault:
        unfit = _in_its_place(tag, content) if _local.lenient else None
        if unfit is None:
            raise
        return unfit
    except Exception as error:
        raise Fault(f"malformed {tag}: {_why(error)}", SchemaMismatch) from error


def _in_its_place(tag: str, content: Any) -> _unfit.Unfit | None:
    if tag == "$object":
        return _unfit.of_object(content)
    return _unfit.of_tag(tag, content) if tag in _types.TAGS else None


def _unknown(tag: str) -> Fault:
    adapter, dot, _ = tag[1:].partition(".")
    if dot and adapter.isidentifier():
        advice = f"its adapter is not loaded; call caravanserai.{clean(adapter)}.register() first"
    else:
        advice = "written by a newer version, or not by this program"
    return Fault(f"unknown tag {clean(tag)}: {advice}", UnknownType, tag)


def _why(error: Exception) -> str:
    # Only our own sentences are sure not to hold a value.
    return str(error) if isinstance(error, Malformed) else type(error).__name__
