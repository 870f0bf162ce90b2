"""What the messages of a chat say, as lines of a note."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from caravanserai.langchain.transcript import HANDED
from caravanserai_core.quoting import code, one_line, quoted
from caravanserai_core.transcript import NO_RESULT
from caravanserai_core.words import call_text, counted, listed, quote, sentence, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langchain_core.messages import BaseMessage

_log = logging.getLogger("caravanserai")

_SO_FAR: Final = 6
"""Lines of what was said before."""

_TOGETHER: Final = 240
"""Characters; up to here two lines make one sentence after the other."""

_MOST_LINES: Final = 12


def lines(messages: Sequence[BaseMessage], before: Sequence[BaseMessage] = ()) -> list[str]:
    """Tell messages, a line each; a call and its result share one.

    Args:
        messages: what is told.
        before: what stood in front of them, to name the calls of results.
    """
    try:
        told = list(_lines(messages, before))
    except Exception:  # noqa: BLE001 - a message may hold anything, and a note must not stop a chat
        _log.debug("messages of a chat could not be told", exc_info=True)
        told = []
    if len(told) > _MOST_LINES:
        told = [f"{len(told) - _MOST_LINES} lines more.", *told[-_MOST_LINES:]]
    return told


def story(told: list[str], instead: str) -> tuple[str, list[str]]:
    """Return the summary of a note and the items of "Happened".

    Args:
        told: what was said or done, a line each.
        instead: the summary where that is nothing, or too much for one.
    """
    together = " ".join(told)
    if len(told) == 1 or (len(told) == 2 and len(together) <= _TOGETHER):
        return together, []
    return instead, told


def so_far(messages: Sequence[BaseMessage]) -> list[str]:
    """Tell the last messages of what was said before, shorter."""
    # Calls share a line with their results.
    first = max(0, len(messages) - 2 * _SO_FAR)
    told = lines(messages[first:], messages[:first])
    return [shortened(line) for line in told[-_SO_FAR:]]


def upcoming(messages: Sequence[BaseMessage]) -> str:
    """Tell what comes next in a chat."""
    answered = {getattr(m, "tool_call_id", None) for m in messages if m.type == "tool"}
    last = next((m for m in reversed(messages) if m.type != "tool"), None)
    calls = getattr(last, "tool_calls", None) or []
    open_ = [call for call in calls if call.get("id") not in answered]
    if open_:
        names = listed([call_text(call["name"], call["args"]) for call in open_[:_MOST_LINES]])
        return f"The {'result' if len(open_) == 1 else 'results'} of {names}."
    if calls:
        return f"The model reads the {'result' if len(calls) == 1 else 'results'} and goes on."
    if last is None or last.type == "system":
        return "The user's first message."
    if last.type == "ai" or _is_handoff(last):
        return "The user's next message."
    return "The model answers."


def goal_of(messages: Sequence[BaseMessage]) -> str | None:
    """Return what a chat is for: the first thing that the user said, quoted."""
    for message in messages:
        if message.type == "human" and (text := _text(message).strip()):
            return quoted(text, 300)
    return None


def _lines(messages: Sequence[BaseMessage], before: Sequence[BaseMessage]) -> Iterator[str]:
    own = _calls(messages)
    earlier = _calls(before)
    results = {getattr(m, "tool_call_id", ""): m for m in messages if m.type == "tool"}
    for message in messages:
        if message.type == "tool":
            id_ = getattr(message, "tool_call_id", "")
            if id_ not in own:
                yield sentence(f"{_called(earlier.get(id_), message)} {_came(message)}")
            continue
        calls = getattr(message, "tool_calls", None) or []
        if not calls or _text(message).strip():
            yield sentence(_speech(message))
        for call in calls:
            result = results.get(call.get("id"))
            told = f"The model called {call_text(call['name'], call['args'])}"
            yield sentence(f"{told}, which {_came(result)}" if result is not None else told)


def _calls(messages: Sequence[BaseMessage]) -> dict[Any, Any]:
    return {
        call.get("id"): call
        for message in messages
        for call in getattr(message, "tool_calls", None) or []
    }


def _called(call: Any, result: BaseMessage) -> str:
    if call is not None:
        return call_text(call["name"], call["args"])
    return code(one_line(result.name, 60)) if result.name else "A tool"


def _came(result: BaseMessage) -> str:
    if _text(result) == NO_RESULT:
        return "may have run or not"
    failed = getattr(result, "status", "") == "error"
    return f"{'failed with' if failed else 'gave'} {quote(_text(result))}"


def _speech(message: BaseMessage) -> str:
    if _is_handoff(message):
        return "What the run before left was told in a message"
    who = {
        "human": "The user asked",
        "ai": "The model answered",
        "system": "The system message says",
    }.get(message.type, f"{code(one_line(message.type, 40))} said")
    text, others = _text(message), _others(message)
    if not text.strip():
        what = f"with {listed(others)} and no text" if others else "with nothing"
        return f"{who} {what}"
    return f"{who} {quote(text)}{f', with {listed(others)}' if others else ''}"


def _is_handoff(message: BaseMessage) -> bool:
    return message.additional_kwargs == HANDED


def _text(message: BaseMessage) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    parts = [part if isinstance(part, str) else part.get("text") for part in content]
    return "\n".join(part for part in parts if isinstance(part, str))


def _others(message: BaseMessage) -> list[str]:
    """Return the kinds of what a message holds beside text."""
    if isinstance(message.content, str):
        return []
    kinds = [
        one_line(str(part.get("type") or "unknown"), 40)
        for part in message.content
        if isinstance(part, Mapping) and not isinstance(part.get("text"), str)
    ]
    shown = [kind for kind in kinds if kind not in ("tool_use", "tool_call", "function_call")]
    return [f"content of the type {counted(shown)}"] if shown else []
