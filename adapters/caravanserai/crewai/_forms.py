"""The forms in which a state, an answer of a model and a result stand in raw JSON."""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from caravanserai_core import codec

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Call",
    "call_by_text",
    "calls_of",
    "dict_of",
    "list_of",
    "observed",
    "plain",
    "shown",
    "text_of",
]

_CALLS: Final = frozenset({"tool_use", "tool_call", "function_call"})
"""Blocks that ask for a call of a tool, in the forms of some providers."""

_ACTION: Final = re.compile(
    r"Action\s*\d*\s*:\s*(.*?)\s*Action\s*\d*\s*Input\s*\d*\s*:\s*(.*)", re.DOTALL
)
_ANSWER: Final = "Final Answer:"
_RESULT: Final = "\nObservation:"


class Call(NamedTuple):
    """A call that a model asks for.

    Attributes:
        id: as its provider has it; may be empty.
        name: of the tool.
        arguments: by name; a text where the model wrote no valid JSON.
    """

    id: str
    name: str
    arguments: dict[str, Any] | str


def plain(tree: Any) -> Any:
    """Return a raw tree as plain JSON: what secrets are called, whole texts, objects by field."""
    return _plain(codec.displayed(tree))


def _plain(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_plain(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if list(tree) == ["$str"]:  # one that JSON cannot hold
        return codec.decode_tree(copy.deepcopy(tree))
    if list(tree) == ["$object"]:
        content = dict_of(tree["$object"])
        value = content.get("value")
        if content.get("kind") == "pydantic":
            value = {
                **dict_of(dict_of(value).get("fields")),
                **dict_of(dict_of(value).get("extra")),
            }
        return _plain(value)
    return {key: _plain(item) for key, item in tree.items()}


def is_call(block: dict[str, Any]) -> bool:
    """Say whether a block of a message's content asks for a call."""
    return text_of(block.get("type")) in _CALLS


def calls_of(items: list[Any]) -> Iterator[Call | None]:
    """Yield the calls that an answer asks for; None for one in a form that is not known here."""
    for call in map(dict_of, items):
        inner = dict_of(call.get("function")) or dict_of(call.get("function_call")) or call
        name = text_of(inner.get("name"))
        if not name:
            yield None
            continue
        id_ = text_of(call.get("id")) or text_of(call.get("call_id"))
        given = [inner[key] for key in ("arguments", "input", "args") if key in inner]
        yield Call(id_, name, _arguments(given[0]) if given else {})


def call_by_text(text: str) -> Call | None:
    """Return the call that an answer asks for by text (ReAct), or None."""
    found = None if _ANSWER in text else _ACTION.search(text)
    if found is None:
        return None
    name = found[1].strip().strip("*").strip()
    given = found[2].partition(_RESULT)[0].strip()
    return Call("", name, _arguments(given) if given else {}) if name else None


def observed(text: str) -> tuple[str, Call, str] | None:
    """Split a message of a finished task that has a call by text: what asks, the call, the result.

    None: it has none.
    """
    asked, found, result = text.partition(_RESULT)
    call = call_by_text(asked) if found else None
    return None if call is None else (asked, call, result.strip())


def _arguments(given: Any) -> dict[str, Any] | str:
    if isinstance(given, dict):
        return given
    text = text_of(given)
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return read if isinstance(read, dict) else text


def shown(value: Any) -> str:
    """Return a value as a text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def dict_of(node: Any) -> dict[str, Any]:
    """Return a node that should be a dict; an empty one where it is none."""
    return node if isinstance(node, dict) else {}


def list_of(node: Any) -> list[Any]:
    """Return a node that should be a list; an empty one where it is none."""
    return node if isinstance(node, list) else []


def text_of(node: Any) -> str:
    """Return a node that should be a text; an empty one where it is none."""
    return node if isinstance(node, str) else ""
