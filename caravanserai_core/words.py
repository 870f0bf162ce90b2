"""Calls, values and sentences as words of a note: short, and harmless whatever they hold.

What every adapter needs to tell what its framework did; what only one knows, such as the messages
of LangChain, is worded there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from caravanserai_core.quoting import code, code_name, one_line, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "arguments_text",
    "call_text",
    "counted",
    "listed",
    "quote",
    "sentence",
    "shortened",
    "value_text",
]

_QUOTE: Final = 120
"""Characters of a foreign text that a line quotes."""

_ARGUMENT: Final = 60
"""Characters of an argument that a call is shown with; a longer one is left out."""

_ARGUMENTS: Final = 8
_SHORT: Final = 80

_LINE: Final = 100
_WORDS: Final = 40
_QUOTED: Final = re.compile(r'(?P<ticks>`+)(?P<code>.+?)(?P=ticks)(?!`)|"(?P<text>[^"]*)"')
"""A code span or a quotation of a line: the words that are not the note's own."""

_MOST: Final = 10**40


def quote(text: str) -> str:
    """Quote a foreign text in one line of a note; the whole of it is in the state."""
    return quoted(text.strip(), _QUOTE)


def call_text(name: object, arguments: Mapping[str, object]) -> str:
    """Show a call as code; long arguments are shortened, the exact ones are in the state."""
    return code(f"{one_line(str(name), 60)}({arguments_text(arguments)})")


def arguments_text(arguments: Mapping[str, object], room: int | None = None) -> str:
    """Show arguments as they stand in a call: `order_id="A17", body=…`.

    Args:
        arguments: by name.
        room: most characters; `…` stands for those that have none left. None: no such limit.
    """
    shown = ""
    for key, value in list(arguments.items())[:_ARGUMENTS]:
        told = f"{one_line(str(key), 40)}={_argument(value)}"
        longer = f"{shown}, {told}" if shown else told
        if room is not None and len(longer) > room:
            return f"{shown}, …" if shown and len(shown) <= room - 3 else "…"
        shown = longer
    return shown


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
    if isinstance(value, (int, float)) or value is None:
        return _plain(value)
    if isinstance(value, (list, tuple)) and len(value) > 6:
        return f"{len(value)} items"
    text = _plain(value)
    if len(text) <= _SHORT:
        return code(text)
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
    return listed(
        [code_name(n) if c == 1 else f"{code_name(n)} ({c} times)" for n, c in counts.items()]
    )
