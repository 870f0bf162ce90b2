"""The tags of text, numbers, bytes and containers: how each is written and read back.

A tag is an object with exactly one key, which begins with `$`. Each writer returns such an
object, whose content may hold any value: it is encoded in turn. Each reader gets the content
with everything inside it already decoded, must accept nothing but what its writer writes, and
may raise whatever comes: the caller turns it into `SchemaMismatch` with the path.
"""

from __future__ import annotations

import math
import re
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING

from caravanserai_core.codec import _values
from caravanserai_core.codec._fault import Fault
from caravanserai_core.codec._strict import (
    base64_bytes,
    base64_text,
    read_items,
    read_text,
    strict,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar

    MappingT = TypeVar("MappingT", bound=dict[Any, Any])

__all__ = [
    "EXACT",
    "READERS",
    "escaped",
    "float_text",
    "long_int",
    "pairs",
    "whole",
]

# --- str, int, float: the values of JSON's own types that JSON cannot hold -------------------

# Not compiled here: few programs ever need them, and all would wait for it.
_LONE = "[\ud800-\udfff]"
_ESCAPED = r"\\(\\|u[0-9a-f]{4})"
_MOST_DECIMAL_BITS = 13_284  # 10**3999 has so many: Python reads 4,300 digits by default
_MOST_HEX_DIGITS = 1_000_000
_NAN = struct.pack(">d", math.nan)


def whole(text: str) -> bool:
    """Whether a text is free of lone surrogates, which UTF-8 cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def escaped(text: str) -> str:
    r"""A text with each surrogate as `\ud800` and each backslash doubled."""
    doubled = text.replace("\\", "\\\\")
    return re.sub(_LONE, lambda match: f"\\u{ord(match.group()):04x}", doubled)


def _read_str(content: object) -> str:
    text = read_text(content)
    plain = re.sub(
        _ESCAPED, lambda match: "\\" if match[1] == "\\" else chr(int(match[1][1:], 16)), text
    )
    strict(escaped(plain) == text and not whole(plain))
    return plain


def long_int(value: int) -> str:
    """An int beyond 64 bit as decimal digits, or in hex where Python limits decimal ones."""
    if value.bit_length() > 4 * _MOST_HEX_DIGITS:
        raise Fault(
            f"an int of more than {_MOST_HEX_DIGITS:,} hex digits; keep it as bytes in a file"
        )
    if value.bit_length() > _MOST_DECIMAL_BITS:
        return hex(value)
    try:
        return str(value)
    except ValueError:  # the program has lowered sys.set_int_max_str_digits
        return hex(value)


def _read_int(content: object) -> int:
    text = read_text(content)
    strict(len(text) <= _MOST_HEX_DIGITS + 3)
    if re.fullmatch("-?0x[0-9a-f]+", text):
        value = int(text, 16)
    else:
        strict(re.fullmatch("-?[1-9][0-9]*", text) and len(text) <= 4001)
        value = 0
        digits = text.lstrip("-")
        for start in range(0, len(digits), 600):
            part = digits[start : start + 600]
            value = value * 10 ** len(part) + int(part)
        value = -value if text[0] == "-" else value
    strict(not -(2**63) <= value < 2**64, "an int of at most 64 bit needs no tag")
    return value


def float_text(value: float) -> str:
    """The word for a float that JSON has no number for."""
    if value == value:
        return "inf" if value > 0 else "-inf"
    bits = struct.pack(">d", value)
    return "nan" if bits == _NAN else f"nan:{bits.hex()}"


def _read_float(content: object) -> float:
    text = read_text(content)
    if text in {"nan", "inf", "-inf"}:
        return float(text)
    strict(re.fullmatch("nan:[0-9a-f]{16}", text))
    value: float = struct.unpack(">d", bytes.fromhex(text[4:]))[0]
    strict(value != value)
    return value


# --- containers -------------------------------------------------------------------------------


def pairs(value: Mapping[Any, Any]) -> list[list[Any]]:
    """The items of a dict, in its order."""
    items: Any = dict.items  # not the class's own
    return [[key, item] for key, item in items(value)]


def _read_pairs(content: object) -> list[list[Any]]:
    items = read_items(content)
    for item in items:
        strict(type(item) is list and len(item) == 2)
    return items


def _fill(into: MappingT, content: object) -> MappingT:
    items = _read_pairs(content)
    for key, item in items:
        into[key] = item
    strict(len(into) == len(items), "a key is there twice")
    return into


def _unadorned(value: Any) -> None:
    """Refuse attributes that somebody has set on a container."""
    if value.__dict__:
        raise Fault(
            f"the {type(value).__name__} has attributes of its own, which would be lost; keep "
            "them elsewhere in the state"
        )


def _ordereddict(value: OrderedDict[Any, Any]) -> dict[str, Any]:
    _unadorned(value)
    return {"$ordereddict": [[key, item] for key, item in OrderedDict.items(value)]}


def _counter(value: Counter[Any]) -> dict[str, Any]:
    _unadorned(value)
    return {"$counter": pairs(value)}


_FACTORIES: dict[str, type] = {
    cls.__name__: cls
    for cls in (list, dict, set, frozenset, int, str, float, bool, tuple, bytes, complex)
}


def _defaultdict(value: defaultdict[Any, Any]) -> dict[str, Any]:
    factory: Any = value.default_factory
    name = None
    if factory is not None:
        for name, cls in _FACTORIES.items():  # noqa: B007
            if factory is cls:
                break
        else:
            raise Fault(
                "a defaultdict whose factory is no builtin type cannot be rebuilt; use a plain "
                f"dict, or one of the factories {', '.join(_FACTORIES)}"
            )
    return {"$defaultdict": {"factory": name, "items": pairs(value)}}


def _read_defaultdict(content: Any) -> defaultdict[Any, Any]:
    strict(type(content) is dict and content.keys() == {"factory", "items"})
    name = content["factory"]
    factory = None if name is None else _FACTORIES[read_text(name)]
    return _fill(defaultdict(factory), content["items"])


def _deque(value: deque[Any]) -> dict[str, Any]:
    return {"$deque": {"items": list(value), "maxlen": value.maxlen}}


def _read_deque(content: Any) -> deque[Any]:
    strict(type(content) is dict and content.keys() == {"items", "maxlen"})
    items = read_items(content["items"])
    maxlen: Any = content["maxlen"]
    strict(maxlen is None or (type(maxlen) is int and maxlen >= len(items)))
    return deque(items, maxlen)


def _read_set(content: object) -> set[Any]:
    items = read_items(content)
    value = set(items)
    strict(len(value) == len(items), "an element is there twice")
    return value


# --- the tables -------------------------------------------------------------------------------

EXACT: dict[type, Callable[[Any], dict[str, Any]]] = {
    **_values.WRITERS,
    bytes: lambda value: {"$bytes": base64_text(value)},
    bytearray: lambda value: {"$bytearray": base64_text(value)},
    deque: _deque,
    OrderedDict: _ordereddict,
    Counter: _counter,
    defaultdict: _defaultdict,
    tuple: lambda value: {"$tuple": list(value)},
    set: lambda value: {"$set": list(value)},
    frozenset: lambda value: {"$frozenset": list(value)},
}
"""Writers of all exact types of Python, except those whose module may not be imported yet."""

READERS: dict[str, Callable[[Any], object]] = {
    **_values.READERS,
    "$str": _read_str,
    "$int": _read_int,
    "$float": _read_float,
    "$bytes": base64_bytes,
    "$bytearray": lambda content: bytearray(base64_bytes(content)),
    "$tuple": lambda content: tuple(read_items(content)),
    "$set": _read_set,
    "$frozenset": lambda content: frozenset(_read_set(content)),
    "$dict": lambda content: _fill({}, content),
    "$ordereddict": lambda content: _fill(OrderedDict(), content),
    "$counter": lambda content: _fill(Counter(), content),
    "$defaultdict": _read_defaultdict,
    "$deque": _read_deque,
}
"""Readers by tag."""
