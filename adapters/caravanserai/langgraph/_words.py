"""Values and messages as words of a note: short, and harmless whatever they hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from caravanserai_core.quoting import code, one_line, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

_QUOTE: Final = 120
"""Characters of a foreign text that a line quotes."""

_ARGUMENT: Final = 60
"""Characters of an argument that a call is shown with; a longer one is left out."""

_SHORT: Final = 80

_LINE: Final = 100
_WORDS: Final = 40
_QUOTED: Final = re.compile(r'(?P<ticks>`+)(?P<code>.+?)(?P=ticks)(?!`)|"(?P<text>[^"]*)"')
"""A code span or a quotation of a line: the words that are not the note's own."""


class _Said(NamedTuple):
    """A message that was given in short: a pair, or a dict with a role."""

    type: str
    content: object


_ROLES: Final = {"user": "human", "assistant": "ai"}


def messages_in(value: object) -> list[Any]:
    """Return the messages of LangChain that a value is or lists; empty if it holds others."""
    found = value if isinstance(value, list) else [value]
    if found and all(hasattr(item, "content") and hasattr(item, "type") for item in found):
        return found
    return []


def messages_given(value: object) -> list[Any]:
    """Return the messages of an input, where pairs and dicts stand for messages too."""
    messages: list[Any] = []
    for item in value if isinstance(value, list) else [value]:
        if messages_in(item):
            messages.append(item)
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


def quote(text: str) -> str:
    """Quote a foreign text in one line of a note; the whole of it is in the state."""
    return quoted(text.strip(), _QUOTE)


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


def call_text(name: object, arguments: Mapping[str, Any]) -> str:
    """Show a call as code; long arguments are shortened, the exact ones are in the state."""
    shown = ", ".join(
        f"{one_line(str(key), 40)}={_argument(value)}" for key, value in list(arguments.items())[:8]
    )
    return code(f"{one_line(str(name), 60)}({shown})")


_MOST: Final = 10**40


def _argument(value: object) -> str:
    text = _plain(value)
    return text if len(text) <= _ARGUMENT else "…"


def _plain(value: object, levels: int = 3) -> str:
    if isinstance(value, str):
        return '"' + one_line(value, _ARGUMENT + 1).replace('"', "'") + '"'
    if isinstance(value, int) and not -_MOST < value < _MOST:
        return f"an integer of {value.bit_length()} bits"  # `str` refuses the largest
    if value is None or isinstance(value, (bool, int, float)):
        return str(value)
    if isinstance(value, (Mapping, list, tuple)) and value and not levels:
        return "…"
    if isinstance(value, Mapping):
        items = [
            f"{_plain(key, levels - 1)}: {_plain(item, levels - 1)}"
            for key, item in list(value.items())[:6]
        ]
        return "{" + ", ".join(items) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_plain(item, levels - 1) for item in value[:6]) + "]"
    return type(value).__name__


def value_text(value: object) -> str:
    """Show a value in a sentence: short ones as they are, others by their kind and size."""
    if isinstance(value, str):
        return quote(value)
    messages = messages_in(value)
    if messages:
        return listed([message_text(message) for message in messages[:3]])
    if isinstance(value, (list, tuple)) and len(value) > 6:
        return f"{len(value)} items"
    text = _plain(value)
    if len(text) <= _SHORT:
        return text if isinstance(value, (int, float, type(None))) else code(text)
    if isinstance(value, Mapping):
        return f"{len(value)} fields"
    return f"{type(value).__name__} of {len(text)} characters" if text else type(value).__name__


def sentence(text: str) -> str:
    """End a sentence, unless what it quotes last ends one."""
    return text if text.endswith(('."', '!"', '?"', ".`", "!`", "?`")) else f"{text}."


def shortened(line: str) -> str:
    """Return a line for "so far": what it quotes is cut to some words."""
    return _QUOTED.sub(_cut, line) if len(line) > _LINE else line


def _cut(match: re.Match[str]) -> str:
    ticks, inner, quoted_ = match["ticks"] or '"', match["code"], match["text"]
    text = inner if inner is not None else quoted_
    if len(text) <= _WORDS or (inner is not None and "(" in inner):
        return match[0]  # calls are short already
    return f"{ticks}{text[:_WORDS].rstrip()}…{ticks}"


def listed(parts: list[str]) -> str:
    """Join parts of a sentence."""
    if len(parts) < 2:
        return parts[0] if parts else ""
    return ", ".join(parts[:-1]) + " and " + parts[-1]


def counted(names: Iterable[str]) -> str:
    """Join names, each once with how often it came."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return listed([code(n) if c == 1 else f"{code(n)} ({c} times)" for n, c in counts.items()])
