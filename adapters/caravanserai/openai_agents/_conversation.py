"""What the items of a conversation say, as lines of a note: for sessions and hooks.

A session knows no agents: it speaks of the user and the model.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from caravanserai.openai_agents import _items, _telling
from caravanserai_core.quoting import code, one_line, quoted
from caravanserai_core.words import listed, quote, sentence, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from caravanserai.openai_agents._items import Item

_log = logging.getLogger("caravanserai")

_SO_FAR: Final = 6
"""Lines of what was said before."""

_TOGETHER: Final = 240
"""Characters; up to here two lines make one sentence after the other."""

_MOST_LINES: Final = 12

_OUTPUT_OF: Final = {
    "function_call_output": "function_call",
    "custom_tool_call_output": "custom_tool_call",
    "shell_call_output": "shell_call",
    "apply_patch_call_output": "apply_patch_call",
    "computer_call_output": "computer_call",
}
"""Results of calls that a program makes, and what they answer, both with a `call_id`."""

_SPEAKERS: Final = {
    "user": "The user said",
    "assistant": "The model said",
    "system": "The system message said",
    "developer": "The developer message said",
}


def call_id(item: Any) -> str:
    """Return the id of the call that an item is, or is the result of; "" for other items."""
    return _items.name_of(item.get("call_id")) if isinstance(item, Mapping) else ""


def orphans(items: Sequence[Any]) -> list[int]:
    """Return the places of the results whose call is not among the items.

    Model providers refuse a conversation with one, and the SDK leaves them out only where the
    settings of a session have a limit (0.20, 0.24). Calls without a result it leaves out always;
    in a session they may wait for a person.
    """
    calls = {(_type(item), call_id(item)) for item in items}
    return [
        place
        for place, item in enumerate(items)
        if (call := _OUTPUT_OF.get(_type(item))) is not None and (call, call_id(item)) not in calls
    ]


def open_calls(items: Sequence[Any]) -> list[Any]:
    """Return the calls of tools whose result is not among the items."""
    answered = {call_id(item) for item in items if _type(item) in _OUTPUT_OF}
    calls = _OUTPUT_OF.values()
    return [item for item in items if _type(item) in calls and call_id(item) not in answered]


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


def lines(items: Sequence[Any], before: Sequence[Any] = (), who: str = "The model") -> list[str]:
    """Tell items, a line each; a call and its result share one.

    Args:
        items: what is told.
        before: what stood in front of them, to name the calls of results.
        who: whose answers they are.

    Returns:
        The lines; none where nothing is worth a word, as of a reasoning item alone.
    """
    try:
        told = list(_lines(_read(items), _asked_before(items, before), who))
    except Exception:  # noqa: BLE001 - an item may hold anything, and a note must not stop a run
        _log.debug("items of a conversation could not be told", exc_info=True)
        told = []
    if len(told) > _MOST_LINES:
        told = [f"{len(told) - _MOST_LINES} lines more.", *told[-_MOST_LINES:]]
    return told


def so_far(items: Sequence[Any]) -> list[str]:
    """Tell the last items of what was said before, shorter."""
    if not items:
        return []
    # Calls share a line with their results.
    first = max(0, len(items) - 2 * _SO_FAR)
    told = lines(items[first:], items[:first])
    return [shortened(line) for line in told[-_SO_FAR:]]


def upcoming(items: Sequence[Any]) -> str:
    """Tell what comes next in a conversation."""
    # What a model asked for before somebody spoke again is no longer waited for.
    since: list[Item] = []
    for item in reversed(_read(items[-100:])):
        if item.kind == "message":
            speaker = item.name
            break
        since.insert(0, item)
    else:
        speaker = "" if since else "nobody"
    answered = {item.call_id for item in since if item.kind == "result"}
    calls = [item for item in since if item.kind == "call" and item.call_id not in answered]
    if calls:
        names = listed([_telling.called(item) for item in calls[:_MOST_LINES]])
        return f"The {'result' if len(calls) == 1 else 'results'} of {names}."
    if any(item.kind == "result" for item in since):
        return f"The model reads the {'result' if len(answered) == 1 else 'results'} and goes on."
    if speaker == "nobody":
        return "The user's first message."
    return "The user's next message." if speaker == "assistant" else "The model answers."


def goal_of(items: Sequence[Any]) -> str | None:
    """Return what a conversation is for: the first thing that the user said, quoted."""
    for item in _read(items):
        if item.kind == "message" and item.name == "user" and item.text.strip():
            return quoted(item.text.strip(), 300)
    return None


def _read(items: Sequence[Any]) -> list[Item]:
    return [_items.read(item) for item in items]


def _type(item: Any) -> str:
    return _items.name_of(item.get("type")) if isinstance(item, Mapping) else ""


def _asked_before(items: Sequence[Any], before: Sequence[Any]) -> dict[str, Item]:
    """Return the calls of an earlier part that items hold the results of."""
    wanted = {call_id(item) for item in items} - {""}
    return _calls(_read([item for item in before if wanted and call_id(item) in wanted]))


def _calls(items: Sequence[Item]) -> dict[str, Item]:
    return {item.call_id: item for item in items if item.kind == "call"}


def _lines(items: Sequence[Item], calls: Mapping[str, Item], who: str) -> Iterator[str]:
    own = _calls(items)
    results = {item.call_id: item for item in items if item.kind == "result"}
    for item in items:
        if item.kind == "message":
            yield sentence(_speech(item, who))
        elif item.kind == "call":
            yield _call(item, results.get(item.call_id), who)
        elif item.kind == "result" and item.call_id not in own:
            call = calls.get(item.call_id)
            name = _telling.called(call) if call else f"call {code(one_line(item.call_id, 60))}"
            yield sentence(f"{name} {_came(item)}")
        elif item.kind == "hosted":
            called = f"{who} had {_telling.called(item)} run by its provider"
            yield sentence(f"{called}, which {_came(item)}" if item.text else called)
        elif item.kind == "wants":
            yield f"{who} asks for approval of {_telling.called(item)}."
        elif item.kind == "unknown":
            yield f"An item of the type {quoted(item.type or 'unknown', 40)} was added."


def _speech(item: Item, who: str) -> str:
    said = _SPEAKERS.get(item.name, f"{code(one_line(item.name, 40))} said")
    if item.name == "assistant":
        said = f"{who} said"
    if not item.text.strip() and item.extras:
        return f"{said.removesuffix(' said')} sent {_telling.came(item)}"
    text = quote(item.text)
    extras = item._replace(text="")
    return f"{said} {text}, with {_telling.came(extras)}" if item.extras else f"{said} {text}"


def _call(call: Item, result: Item | None, who: str) -> str:
    called = f"{who} called {_telling.called(call)}"
    if result is None:
        return sentence(called)
    agent = _handed_over(call, result)
    if agent is not None:
        return f"{who} handed over to {_telling.agent_name(agent)}."
    return sentence(f"{called}, which {_came(result)}")


def _came(item: Item) -> str:
    return f"{'failed with' if item.failed else 'gave'} {_telling.came(item)}"


def _handed_over(call: Item, result: Item) -> str | None:
    """Return the agent that a call handed the conversation over to, or None: it did not.

    The SDK writes `{"assistant": "name"}` as the result of such a call (0.20, 0.24).
    """
    if not call.name.startswith("transfer_to_"):
        return None
    said = _items.arguments_of(result.text)
    agent = said.get("assistant") if isinstance(said, dict) and len(said) == 1 else None
    return agent if isinstance(agent, str) else None
