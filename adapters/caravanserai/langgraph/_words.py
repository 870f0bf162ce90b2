"""Messages of LangChain as words of a note: short, and harmless whatever they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from caravanserai_core import words
from caravanserai_core.quoting import code, one_line
from caravanserai_core.words import call_text, listed, quote


class _Said(NamedTuple):
    """A message that was given in short: a pair, or a dict with a role."""

    type: str
    content: object


_ATOMS: Final = frozenset({str, int, float, bool, dict, type(None)})
"""What is no message, and told from one in no time."""

_ROLES: Final = {"user": "human", "assistant": "ai"}


def messages_in(value: object) -> list[Any]:
    """Return the messages of LangChain that a value is or lists; empty if it holds others."""
    if type(value) in _ATOMS:
        return []
    found = value if isinstance(value, list) else [value]
    if found and all(hasattr(item, "content") and hasattr(item, "type") for item in found):
        return found
    return []


def messages_given(value: object) -> list[Any]:
    """Return the messages of an input, where pairs and dicts stand for messages too.

    A text does where it stands among messages.
    """
    messages: list[Any] = []
    items = value if isinstance(value, list) else [value]
    for item in items:
        if messages_in(item):
            messages.append(item)
            continue
        if isinstance(item, str) and any(map(messages_in, items)):
            messages.append(_Said("human", item))
            continue
        role: object = None
        content: object = None
        if isinstance(item, (tuple, list)) and len(item) == 2:
            role, content = item
        elif isinstance(item, Mapping) and "content" in item:
            role, content = item.get("role"), item["content"]
        if not isinstance(role, str):
            return []
        messages.append(_Said(_ROLES.get(role, role), content))
    return messages


def message_text(message: Any) -> str:
    """Tell of one message of LangChain what it did, as the end of a sentence about its node."""
    kind, text = message.type, text_of(message.content)
    if kind == "ai":
        calls = getattr(message, "tool_calls", None) or ()
        said = f"said {quote(text)}" if text.strip() else ""
        called = listed([call_text(call["name"], call.get("args") or {}) for call in calls])
        if said and called:
            return f"{said} and called {called}"
        return said or (f"called {called}" if called else "gave an empty answer")
    if kind == "tool":
        name = getattr(message, "name", None) or "a tool"
        verb = "failed with" if getattr(message, "status", "") == "error" else "got"
        return f"ran {code(name)} and {verb} {quote(text)}"
    if kind == "remove":
        return "removed a message"
    who = {"human": "the user", "system": "the system"}.get(kind, one_line(str(kind), 40))
    return f"added a message of {who}, {quote(text)}"


def given_text(message: Any) -> str:
    """Tell of one message of an input who said what."""
    who = {"human": "the user", "system": "the system message", "ai": "the model"}.get(message.type)
    if who is None:
        return message_text(message)
    return f"{who} said {quote(text_of(message.content))}"


def text_of(content: object) -> str:
    """Return the text of a message's content, which may be a list of blocks."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [
        block if isinstance(block, str) else block.get("text", "")
        for block in content
        if isinstance(block, str) or (isinstance(block, dict) and block.get("type") == "text")
    ]
    return "\n".join(part for part in parts if isinstance(part, str))


def value_text(value: object) -> str:
    """Show a value in a sentence: messages by what they say, others as the core does."""
    messages = messages_in(value)
    if messages:
        return listed([message_text(message) for message in messages[:3]])
    return words.value_text(value)
