"""Read JSON strictly, and turn tags back into what they stand for.

Nothing in a file is trusted: a reader accepts only what its writer writes, a type comes from
the closed registry, and whatever goes wrong ends as a typed error with the path.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import orjson

from caravanserai_core.codec import _numpy, _types
from caravanserai_core.codec._fault import Fault, clean, step
from caravanserai_core.codec._strict import Malformed
from caravanserai_core.codec._tags import READERS
from caravanserai_core.errors import (
    JournalDamaged,
    SchemaMismatch,
    UnknownType,
    UnserialisableState,
)

if TYPE_CHECKING:
    from typing import Any

__all__ = ["decode_tree", "parse"]

_READERS = {
    **READERS,
    "$ndarray": _numpy.read_array,
    "$npscalar": _numpy.read_scalar,
    "$object": _types.read_object,
}


def parse(data: bytes) -> object:
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
        tree = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise JournalDamaged(f"no valid JSON: {error.msg} at character {error.pos}") from None
    try:
        canonical = orjson.dumps(tree)
    except orjson.JSONEncodeError:
        raise JournalDamaged("JSON nested more than 254 deep") from None
    if canonical != data:
        _check(data)
    return tree


def _check(data: bytes) -> None:
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


def decode_tree(tree: object) -> object:
    """Turn the tags of a JSON tree back into values.

    Args:
        tree: as `parse` gives it; it is changed in place and must not be used afterwards.

    Returns:
        The value that was encoded.

    Raises:
        UnknownType: if it has a tag or a type that this program does not know.
        SchemaMismatch: if a tag's content is malformed or no longer fits its type.
    """
    if type(tree) is not dict and type(tree) is not list:
        return tree
    try:
        return _walk(tree)
    except Fault as fault:
        if issubclass(fault.error, UnserialisableState):
            fault.error = SchemaMismatch
        error = fault.raised()
        cause = fault.__cause__
    except RecursionError:
        error = SchemaMismatch("$: nested too deep")
        cause = None
    raise error from cause


def _walk(node: Any) -> Any:
    """Decode a list or dict in place; a tag gives way to what it stands for."""
    if type(node) is list:
        index = 0
        try:
            for index, item in enumerate(node):
                if type(item) is dict or type(item) is list:
                    value = _walk(item)
                    if value is not item:
                        node[index] = value
        except Fault as fault:
            fault.steps.append(f"[{index}]")
            raise
        return node
    key: Any = ""
    try:
        for key, item in node.items():
            if type(item) is dict or type(item) is list:
                value = _walk(item)
                if value is not item:
                    node[key] = value
    except Fault as fault:
        if len(node) == 1 and key[:1] == "$":
            fault.within(key, node[key])
        else:
            fault.steps.append(step(key))
        raise
    if len(node) == 1 and key[:1] == "$":
        return _untag(key, node[key])
    return node


def _untag(tag: str, content: Any) -> Any:
    read = _READERS.get(tag)
    if read is None:
        raise Fault(
            f"unknown tag {clean(tag)}: written by a newer version, or not by this program",
            UnknownType,
            tag,
        )
    try:
        return read(content)
    except (Fault, RecursionError):
        raise
    except Exception as error:
        raise Fault(f"malformed {tag}: {_why(error)}", SchemaMismatch) from error


def _why(error: Exception) -> str:
    # Only our own sentences are sure not to hold a value.
    return str(error) if isinstance(error, Malformed) else type(error).__name__
