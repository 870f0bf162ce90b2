"""What a caller puts in the head of a record, where lists and filters find it.

Heads are read without decoding a state, so what stands there is small and plain JSON, exactly as
it was given: names, and what an adapter notes beside a state.
"""

from __future__ import annotations

import math
from typing import Any, Final

from caravanserai_core import secrets
from caravanserai_core.errors import UsageError

_MOST_LEVELS: Final = 64
_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1


def check_text(what: str, value: object, *, prose: bool = False) -> None:
    """Refuse what a record's head cannot hold.

    Args:
        what: what is named by it, for the error.
        value: the text.
        prose: it is written with words in the place of secrets.

    Raises:
        UsageError: it is no string, or holds a lone surrogate.
        SecretFound: it holds a declared secret, and is no prose.
    """
    if type(value) is not str:
        raise UsageError(f"{what} is named by a string, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} holds half a surrogate pair, which is no text") from None
    if not prose:
        secrets.refuse(what, value)


def plain_copy(meta: object) -> dict[str, Any]:
    """Return a copy of `meta` that no later change of it reaches.

    Args:
        meta: a dict of plain JSON: str keys; str, int, float, bool, None, list and dict.

    Raises:
        UsageError: it holds anything else, a number that JSON has not, or half a surrogate pair.
        SecretFound: it holds a declared secret.
    """
    if type(meta) is not dict:
        raise UsageError(f"meta is a dict, not {type(meta).__name__}")
    copy: dict[str, Any] = _copy(meta, "meta", _MOST_LEVELS)
    return copy


def _copy(value: Any, path: str, levels: int) -> Any:
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        return _text(value, path)
    if kind is int and _SMALLEST <= value <= _LARGEST:
        return value
    if kind is float and math.isfinite(value):
        return value
    if kind in (list, dict) and not levels:
        raise UsageError(f"{path} is nested more than {_MOST_LEVELS} levels deep")
    if kind is list:
        return [_copy(item, f"{path}[{index}]", levels - 1) for index, item in enumerate(value)]
    if kind is dict:
        return {
            _key(key, path): _copy(item, f"{path}.{key}", levels - 1) for key, item in value.items()
        }
    raise UsageError(f"{path} holds what plain JSON cannot: {kind.__name__}. Put it in the state.")


def _key(key: object, path: str) -> str:
    if type(key) is not str:
        raise UsageError(f"{path} has a key that is no string: {type(key).__name__}")
    return _text(key, path)


def _text(text: str, path: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{path} holds half a surrogate pair, which is no text") from None
    secrets.refuse(path, text)
    return text
