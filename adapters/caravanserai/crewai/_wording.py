"""Names, calls, results and times in words: what notes of crews and of flows are made of."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, TypeVar

from caravanserai_core.handed import made_with
from caravanserai_core.quoting import code, fenced, one_line, quoted
from caravanserai_core.redact import beginning
from caravanserai_core.words import counted, listed, quote, sentence, value_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    T = TypeVar("T")

__all__ = [
    "before",
    "brief",
    "call_lines",
    "duration",
    "goal",
    "inputs",
    "name",
    "result",
    "safely",
    "some",
    "value",
    "who",
]

_log = logging.getLogger("caravanserai")

_ROOM: Final = 60
"""Characters of a name."""

_SHORT: Final = 120
"""Characters; a result up to here stands in a sentence."""

_SHOWN: Final = 400
_LINES: Final = 8
"""Characters and lines that are shown of a longer one."""

_CALLS: Final = 10
"""Most calls that are told one by one."""

_INPUTS: Final = 6

_MINUTE: Final = 60
_HOUR: Final = 3600
_PRECISE: Final = 9.95
"""Seconds; below, a tenth says something."""


def safely(tell: Callable[[], T], instead: T) -> T:
    """Tell something, or `instead`: values are of any kind, and a note must not stop a run."""
    try:
        return tell()
    except Exception:  # noqa: BLE001 - whatever a value's own code raises
        _log.warning("a note of CrewAI could not be made", exc_info=True)
        return instead


def some(count: int, what: str) -> str:
    """Return a number of things."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a time as people say it: `0.4 s`, `41 s`, `2 min 5 s`, `1 h 20 min`."""
    if seconds < _PRECISE:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    return f"{whole // _HOUR:,} h {whole % _HOUR // _MINUTE} min"


def who(role: str | None) -> str:
    """Return what notes call an agent: its role as it is, if that is made of plain words."""
    text = (role or "").strip()
    short = one_line(text, _ROOM)
    return (short if _plain(short) else quoted(text, _ROOM)) if short else "an agent"


def name(text: str) -> str:
    """Return a name that the program gave: emphasised, or quoted where it has other signs."""
    short = one_line(text.strip(), _ROOM)
    return f"*{short}*" if short and _plain(short) else quoted(text.strip(), _ROOM)


def _plain(text: str) -> bool:
    return all(char.isalnum() or char in " ,.'-" for char in text)


def inputs(given: Mapping[str, Any] | None) -> str:
    """Return what a run was started with: `, started with topic = "bees"`, or ""."""
    if not given:
        return ""
    told = [
        f"{one_line(str(key), 40) if str(key).isalnum() else code(one_line(str(key), 40))} = "
        f"{value(item)}"
        for key, item in list(given.items())[:_INPUTS]
    ]
    if len(given) > _INPUTS:
        told.append(f"{len(given) - _INPUTS} more")
    return f", started with {listed(told)}"


def before(handed: Mapping[str, Any]) -> str:
    """Return the run that another one goes on from: `run `x` (LangGraph 1.0) at waypoint 3`."""
    named = code(one_line(str(handed["run_id"]), 100))
    made = made_with(handed["framework"])
    at = f"waypoint {handed['waypoint']:,}" if handed["waypoint"] else "its beginning"
    return f"run {named}{made} at {at}"


def goal(tree: Mapping[str, Any], own: str) -> str:
    """Return what a run is for: what the run before was for, if that is known, else its own."""
    return str((tree.get("handed") or {}).get("goal") or own)


def value(item: Any) -> str:
    """Show a value in a sentence; an object of a model's class by its fields."""
    dump = getattr(item, "model_dump", None)
    return value_text(dump() if callable(dump) else item)


def brief(text: str) -> str:
    """Quote how a result begins, and say how long it is where that is not all of it."""
    if not text.strip():
        return "nothing"
    return quote(text) + (f", {some(len(text), 'character')}" if len(text) > _SHORT else "")


def result(text: str) -> str:
    """Tell a result: in a sentence, or its first lines as a block."""
    stripped = text.strip()
    if not stripped:
        return "The result is empty."
    if len(stripped) <= _SHORT and "\n" not in stripped:
        return sentence(f"The result is {quote(stripped)}")
    # Words take the place of secrets before anything is cut.
    shown = beginning(stripped, _SHOWN)
    cut = "\n".join(shown[:_SHOWN].split("\n")[:_LINES]).rstrip()
    whole = cut == shown.rstrip() and len(stripped) <= _SHOWN
    block = fenced(cut if whole else f"{cut} …", 2 * _SHOWN)
    has = f"The result has {some(len(text), 'character')}"
    return f"{has}:\n\n{block}" if whole else f"{has} and begins:\n\n{block}"


def call_lines(calls: Sequence[Mapping[str, Any]], agent: str) -> list[str]:
    """Tell calls of tools, one by one, and of too many the rest by name.

    Args:
        calls: as a state keeps them.
        agent: whose calls need not say who made them.
    """
    lines = [_call_line(call, agent) for call in calls[:_CALLS]]
    rest = [one_line(str(call["tool"]), 40) for call in calls[_CALLS:]]
    if rest:
        lines.append(f"And {some(len(rest), 'more call')}: {counted(rest)}.")
    return lines


def _call_line(call: Mapping[str, Any], agent: str) -> str:
    called = code(f"{one_line(str(call['tool']), _ROOM)}({call['arguments']})")
    text = str(call["result"])
    gave = quote(text) if text.strip() else "nothing"
    end = f"failed: {gave}" if call["failed"] else f"gave {gave}"
    other = str(call.get("agent") or "")
    if not other or other.strip() == agent.strip():
        return sentence(f"{called} {end}")
    return sentence(f"{who(other)} called {called}, which {end}")
