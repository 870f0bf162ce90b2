"""Dates, zones, numbers, names, places, addresses: how each is written, how it is read back."""

from __future__ import annotations

import datetime as dt
import re
import sys
import uuid
from typing import TYPE_CHECKING

from caravanserai_core.codec._fault import Fault
from caravanserai_core.codec._strict import read_items, read_text, strict
from caravanserai_core.errors import UnknownType

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    MomentT = TypeVar("MomentT", dt.datetime, dt.time)

__all__ = ["LATE", "READERS", "WRITERS"]

# --- dates ------------------------------------------------------------------------------------


def _plain_zone(zone: dt.tzinfo | None) -> bool:
    """Whether the text of ISO 8601 says all about a time zone."""
    return zone is None or (type(zone) is dt.timezone and len(zone.__getinitargs__()) == 1)  # type: ignore[attr-defined]


def _moment(tag: str, value: dt.datetime | dt.time) -> dict[str, Any]:
    if _plain_zone(value.tzinfo) and not value.fold:
        return {tag: value.isoformat()}
    content: dict[str, Any] = {
        "at": value.replace(tzinfo=None, fold=0).isoformat(),
        "tz": value.tzinfo,
    }
    if value.fold:
        content["fold"] = 1
    return {tag: content}


def _read_moment(cls: type[MomentT], content: Any) -> MomentT:
    if type(content) is str:
        value = cls.fromisoformat(content)
        strict(value.isoformat() == content and _plain_zone(value.tzinfo))
        return value
    strict(type(content) is dict and content.keys() - {"fold"} == {"at", "tz"})
    fold: Any = content.get("fold", 0)
    zone: Any = content["tz"]
    strict("fold" not in content or (type(fold) is int and fold == 1))
    strict(zone is None or type(zone) is dt.timezone or _is_zoneinfo(zone))
    text = read_text(content["at"])
    naive = cls.fromisoformat(text)
    strict(naive.tzinfo is None and naive.isoformat() == text)
    return naive.replace(tzinfo=zone, fold=fold)


def _read_date(content: object) -> dt.date:
    text = read_text(content)
    value = dt.date.fromisoformat(text)
    strict(value.isoformat() == text)
    return value


def _timedelta(value: dt.timedelta) -> dict[str, Any]:
    return {"$timedelta": [value.days, value.seconds, value.microseconds]}


def _read_timedelta(content: object) -> dt.timedelta:
    items = read_items(content)
    strict(len(items) == 3 and all(type(item) is int for item in items))
    value = dt.timedelta(*items)
    strict([value.days, value.seconds, value.microseconds] == items)
    return value


def _timezone(value: dt.timezone) -> dict[str, Any]:
    return {"$timezone": list(value.__getinitargs__())}  # type: ignore[attr-defined]


def _read_timezone(content: object) -> dt.timezone:
    items = read_items(content)
    strict(1 <= len(items) <= 2 and type(items[0]) is dt.timedelta)
    if len(items) == 2:
        return dt.timezone(items[0], read_text(items[1]))
    return dt.timezone(items[0])


def _is_zoneinfo(value: object) -> bool:
    module = sys.modules.get("zoneinfo")
    return module is not None and type(value) is module.ZoneInfo


def _zoneinfo(value: Any) -> dict[str, Any]:
    advice = "has no key to find it by again; use zoneinfo.ZoneInfo(key)"
    if value.key is None:
        raise Fault(f"a ZoneInfo that was read from a file {advice}")
    try:
        # The only way to tell ZoneInfo(key) from ZoneInfo.no_cache(key), which is unequal to it.
        shared = value.__reduce__()[1][1]
    except Exception as error:
        raise Fault(f"a ZoneInfo that was read from a file {advice}") from error
    if not shared:
        raise Fault("a ZoneInfo made by no_cache equals no other; use zoneinfo.ZoneInfo(key)")
    return {"$zoneinfo": value.key}


def _read_zoneinfo(content: object) -> object:
    import zoneinfo

    key = read_text(content)
    strict(len(key) <= 100 and re.fullmatch(r"[A-Za-z0-9_+\-]+(/[A-Za-z0-9_+\-]+){0,3}", key))
    try:
        return zoneinfo.ZoneInfo(key)
    except zoneinfo.ZoneInfoNotFoundError as error:
        raise Fault(
            f"the time zone {key} is not on this computer: pip install tzdata", UnknownType, key
        ) from error


# --- numbers, names and places ----------------------------------------------------------------


def _read_decimal(content: object) -> object:
    from decimal import Decimal

    text = read_text(content)
    value = Decimal(text)
    strict(str(value) == text)
    return value


def _uuid(value: uuid.UUID) -> dict[str, Any]:
    if value.is_safe is uuid.SafeUUID.unknown:
        return {"$uuid": str(value)}
    return {"$uuid": [str(value), value.is_safe.name]}


def _read_uuid(content: object) -> uuid.UUID:
    if type(content) is list:
        strict(len(content) == 2 and content[1] in ("safe", "unsafe"))
        text, safe = read_text(content[0]), uuid.SafeUUID[content[1]]
    else:
        text, safe = read_text(content), uuid.SafeUUID.unknown
    value = uuid.UUID(text, is_safe=safe)
    strict(str(value) == text)
    return value


def _read_complex(content: object) -> complex:
    items = read_items(content)
    strict(len(items) == 2 and all(type(item) is float for item in items))
    return complex(*items)


def _read_range(content: object) -> range:
    items = read_items(content)
    strict(len(items) == 3 and all(type(item) is int for item in items))
    return range(*items)


_PATHS = ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath")


def _path(value: Any) -> dict[str, Any]:
    return {"$path": [type(value).__name__, str(value)]}


def _read_path(content: object) -> object:
    import pathlib

    items = read_items(content)
    strict(len(items) == 2)
    text = read_text(items[1])
    strict(items[0] in _PATHS)
    value = getattr(pathlib, items[0])(text)
    strict(str(value) == text)
    return value


_ADDRESSES = (
    *("IPv4Address", "IPv4Interface", "IPv4Network"),
    *("IPv6Address", "IPv6Interface", "IPv6Network"),
)


def _address(value: Any) -> dict[str, Any]:
    return {"$ip": [type(value).__name__, str(value)]}


def _read_address(content: object) -> object:
    import ipaddress

    items = read_items(content)
    strict(len(items) == 2 and items[0] in _ADDRESSES)
    text = read_text(items[1])
    value: object = getattr(ipaddress, items[0])(text)
    strict(str(value) == text)
    return value


# Not re.DEBUG: such a pattern prints itself when it is made.
_FLAGS = int(re.A | re.I | re.L | re.M | re.S | re.U | re.X)


def _pattern(value: re.Pattern[Any]) -> dict[str, Any]:
    if value.flags & ~_FLAGS:
        raise Fault("a pattern with re.DEBUG or an undocumented flag is not kept; make it without")
    return {"$pattern": [value.pattern, value.flags]}


def _read_pattern(content: object) -> re.Pattern[Any]:
    items = read_items(content)
    strict(len(items) == 2 and type(items[0]) in (str, bytes) and type(items[1]) is int)
    strict(not items[1] & ~_FLAGS)
    value = re.compile(items[0], items[1])
    strict(value.flags == items[1])
    return value


# --- the tables -------------------------------------------------------------------------------

WRITERS: dict[type, Callable[[Any], dict[str, Any]]] = {
    dt.datetime: lambda value: _moment("$datetime", value),
    dt.date: lambda value: {"$date": value.isoformat()},
    dt.time: lambda value: _moment("$time", value),
    dt.timedelta: _timedelta,
    dt.timezone: _timezone,
    complex: lambda value: {"$complex": [value.real, value.imag]},
    range: lambda value: {"$range": [value.start, value.stop, value.step]},
    re.Pattern: _pattern,
    uuid.UUID: _uuid,
}
"""Writers of exact types."""

LATE: dict[str, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    "Decimal": ("decimal", lambda value: {"$decimal": str(value)}),
    "ZoneInfo": ("zoneinfo", _zoneinfo),
    **dict.fromkeys(_PATHS, ("pathlib", _path)),
    **dict.fromkeys(_ADDRESSES, ("ipaddress", _address)),
}
"""By class name the module and the writer of types that exist only where a program has imported
that module: it would cost others time for nothing.
"""

READERS: dict[str, Callable[[Any], object]] = {
    "$datetime": lambda content: _read_moment(dt.datetime, content),
    "$date": _read_date,
    "$time": lambda content: _read_moment(dt.time, content),
    "$timedelta": _read_timedelta,
    "$timezone": _read_timezone,
    "$zoneinfo": _read_zoneinfo,
    "$decimal": _read_decimal,
    "$uuid": _read_uuid,
    "$complex": _read_complex,
    "$range": _read_range,
    "$path": _read_path,
    "$ip": _read_address,
    "$pattern": _read_pattern,
}
"""Readers by tag."""
