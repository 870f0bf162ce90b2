"""The arguments of a call: compared with the tool's schema, and refused in a sentence."""

from __future__ import annotations

from typing import Any, Final

from caravanserai_core.errors import UsageError
from caravanserai_core.quoting import quoted

__all__ = ["checked"]

_TYPES: Final[dict[str, type]] = {"integer": int, "string": str}
_CALLED: Final = {"integer": "a whole number", "string": "a text"}


def checked(tool: str, schema: dict[str, Any], given: Any) -> dict[str, Any]:
    """Return the arguments of a call; one that is null counts as left out.

    Args:
        tool: the tool's name.
        schema: its input schema: properties with type, enum, minimum, maximum, maxLength.
        given: what was given.

    Raises:
        UsageError: they do not fit; it says which one and what is allowed.
    """
    if given is not None and type(given) is not dict:
        raise UsageError(f"{tool} takes its arguments by name")
    known = schema["properties"]
    found = {name: value for name, value in (given or {}).items() if value is not None}
    for name in found:
        if name not in known:
            names = ", ".join(known) or "none"
            raise UsageError(f"{tool} has no argument {quoted(str(name), 60)}; it takes: {names}")
    for name in schema.get("required", ()):
        if name not in found:
            raise UsageError(f"{tool} needs the argument {name!r}: {known[name]['description']}")
    for name, value in found.items():
        _check(tool, name, known[name], value)
    return found


def _check(tool: str, name: str, wanted: dict[str, Any], value: Any) -> None:
    kind = wanted.get("type")
    if kind is None:
        return
    where = f"{name!r} of {tool}"
    if type(value) is not _TYPES[kind]:  # not isinstance: true is no number
        raise UsageError(f"{where} is {_CALLED[kind]}, not {type(value).__name__}")
    if "enum" in wanted and value not in wanted["enum"]:
        allowed = ", ".join(wanted["enum"])
        raise UsageError(f"{where} is one of {allowed}, not {quoted(str(value), 40)}")
    if "maximum" in wanted and not wanted["minimum"] <= value <= wanted["maximum"]:
        least, most = wanted["minimum"], wanted["maximum"]
        raise UsageError(f"{where} is a number from {least:,} to {most:,}")
    if value == "" and tool != "answer":
        raise UsageError(f"{where} is empty")
    if "maxLength" in wanted and len(str(value)) > wanted["maxLength"]:
        raise UsageError(f"{where} has at most {wanted['maxLength']:,} characters")
