"""How a step was called, in a few words for people: `send mail("chen", …)`.

Nothing of the program runs for it: what a value of its own types shows is the type's name.
"""

from __future__ import annotations

from typing import Any, Final

from caravanserai_core.quoting import one_line

__all__ = ["briefly"]

_LONG: Final = 40
"""Most characters of one text."""

_LISTED: Final = 3
"""Most items of a list or a dict."""

_WRITTEN: Final = {"datetime", "decimal", "ipaddress", "pathlib", "uuid", "zoneinfo"}
"""Modules of types whose values are told by their text."""


def briefly(values: list[Any] | tuple[Any, ...], room: int) -> str:
    """Return values as they stand in a call, without secrets.

    Args:
        values: the values, of any types.
        room: most characters; `…` stands for what has no room.
    """
    shown = ""
    for value in values:
        told = _told(value)
        longer = f"{shown}, {told}" if shown else told
        if len(longer) > room:
            return f"{shown}, …" if shown and len(shown) <= room - 3 else "…"
        shown = longer
    return shown


def _told(value: Any, depth: int = 0) -> str:
    kind = type(value)
    if kind is str:
        return '"' + one_line(value, _LONG).replace('"', '\\"') + '"'
    if value is None or kind in (bool, float):
        return repr(value)
    if kind is int:
        return str(value) if value.bit_length() < 4 * _LONG else "…"
    if kind is dict:
        items = [f"{_told(k, depth + 1)}: {_told(v, depth + 1)}" for k, v in _few(value.items())]
        return "{" + _joined(items, len(value), depth) + "}"
    if kind in (list, tuple):
        items = [_told(item, depth + 1) for item in _few(value)]
        begin, end = "[]" if kind is list else "()"
        return begin + _joined(items, len(value), depth) + end
    if kind.__module__.partition(".")[0] in _WRITTEN:
        return one_line(str(value), _LONG)
    return f"{one_line(kind.__name__, _LONG)}(…)"


def _few(items: Any) -> list[Any]:
    return [item for item, _ in zip(items, range(_LISTED), strict=False)]


def _joined(items: list[str], count: int, depth: int) -> str:
    if depth and count:
        return "…"
    return ", ".join([*items, "…"] if count > _LISTED else items)
