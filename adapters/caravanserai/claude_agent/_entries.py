"""What is known here of the entries of a transcript; everywhere else they are opaque.

The format is internal to the CLI and changes often. Read in CLI 2.1.332; contract tests guard
each function. What is not understood is passed over: then a note says less, and nothing is lost.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Entry = dict[str, Any]
"""One line of a transcript."""


class ToolResult(NamedTuple):
    """The result of a call, as the model gets it.

    Attributes:
        id: of the call.
        uuid: of the entry.
        text: what the model reads.
        failed: it is an error.
    """

    id: str
    uuid: str
    text: str
    failed: bool


_NOTIFIED: Final = re.compile(
    r"<task-notification>.*?<tool-use-id>([^<\s]+)</tool-use-id>", re.DOTALL
)
"""How the CLI tells the model of the end of something in the background (2.1.332)."""

_FAILED: Final = "Exit code"
"""How the result of a command begins that failed (2.1.332)."""

_ENDS: Final = ("end_turn", "stop_sequence", "max_tokens", "refusal")
"""Why the model stops at the end of a turn (Messages API)."""


WITHHELD: Final = "[not kept: it holds a secret in another form, or cannot be written exactly]"

_KEPT: Final = (
    *("type", "subtype", "uuid", "parentUuid", "logicalParentUuid", "sessionId", "timestamp"),
    *("isSidechain", "agentId", "version", "isMeta"),
)
_KEPT_OF_MESSAGES: Final = ("id", "type", "role", "model", "stop_reason", "usage")


def uuid_of(entry: Mapping[str, Any]) -> str:
    """Return the id of an entry, "" for one that has none."""
    found = entry.get("uuid")
    return found if isinstance(found, str) else ""


def is_local(entry: Mapping[str, Any]) -> bool:
    """Say whether an entry is one that the CLI keeps on its own disk alone: records of requests."""
    return str(entry.get("type", "")).startswith("api-request")


def is_said(entry: Mapping[str, Any]) -> bool:
    """Say whether an entry is part of the conversation itself."""
    return entry.get("type") in ("user", "assistant")


def blocks(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the content of a message; a plain text is one block."""
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in _list(content) if isinstance(block, dict)]


def results(entries: Iterable[Mapping[str, Any]]) -> Iterator[ToolResult]:
    """Yield the results of calls that entries hold."""
    for entry in entries:
        if entry.get("type") != "user":
            continue
        for block in blocks(entry):
            if block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str):
                text, failed = text_of(block.get("content")), block.get("is_error") is True
                yield ToolResult(block["tool_use_id"], uuid_of(entry), text, failed)


def notified(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the calls whose commands or subagents in the background came to their end."""
    for entry in entries:
        content = entry.get("content")
        if entry.get("type") == "queue-operation" and isinstance(content, str):
            yield from _NOTIFIED.findall(content)


def is_told(result: ToolResult) -> bool:
    """Say whether a result is one of the tool, and not what the CLI puts in place of none.

    That is an error in words which differ. A command that fails tells its exit code.
    """
    return not result.failed or result.text.startswith(_FAILED)


def is_alone(entries: Iterable[Mapping[str, Any]], id_: str) -> bool:
    """Say whether the model made a call in an answer with no other call."""
    answers: dict[Any, list[Any]] = {}
    for entry in entries:
        message = entry.get("message")
        if entry.get("type") == "assistant" and isinstance(message, dict):
            ids = [block.get("id") for block in blocks(entry) if block.get("type") == "tool_use"]
            answers.setdefault(message.get("id"), []).extend(ids)
    return all(len(set(ids)) == 1 for ids in answers.values() if id_ in ids)


def calls(entries: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the calls of tools that entries ask for: `id`, `name`, `input`."""
    for entry in entries:
        if entry.get("type") == "assistant":
            yield from (block for block in blocks(entry) if block.get("type") == "tool_use")


def last_said(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the id of the newest entry that is part of the conversation, or ""."""
    for entry in reversed(entries):
        if is_said(entry) and uuid_of(entry):
            return uuid_of(entry)
    return ""


def asks(entry: Mapping[str, Any]) -> str:
    """Return what a person asks with an entry, "": it is none of that kind."""
    if entry.get("type") != "user" or entry.get("isMeta") or entry.get("origin"):
        return ""
    texts = [block.get("text") for block in blocks(entry) if block.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str) and text[:1] != "<")


def ends_turn(entries: Iterable[Mapping[str, Any]]) -> bool:
    """Say whether the model came to the end of a turn in some entries."""
    for entry in entries:
        message = entry.get("message")
        stopped = message.get("stop_reason") if isinstance(message, dict) else None
        if entry.get("type") == "assistant" and stopped in _ENDS:
            return True
    return False


def says(entries: Iterable[Mapping[str, Any]], text: str) -> str:
    """Return the id of the entry in which the model says a text, "": none of them does."""
    for entry in entries:
        if entry.get("type") == "assistant":
            said = [block.get("text") for block in blocks(entry) if block.get("type") == "text"]
            if any(isinstance(one, str) and one.strip() == text.strip() for one in said):
                return uuid_of(entry)
    return ""


def summary_of(told: str) -> str:
    """Return the summary of a conversation that was shortened, without the thoughts before it."""
    thoughts, end, rest = told.partition("</analysis>")
    summary = rest if end and thoughts.lstrip().startswith("<analysis>") else told
    return summary.strip().removeprefix("<summary>").removesuffix("</summary>").strip()


def sizes(entries: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many tokens a conversation had `before` it was shortened, and `after`."""
    found: dict[str, int] = {}
    for entry in entries:
        told = entry.get("compactMetadata")
        if is_boundary(entry) and isinstance(told, dict):
            pair = {"before": told.get("preTokens"), "after": told.get("postTokens")}
            found = {name: size for name, size in pair.items() if type(size) is int}
    return found


def withheld(entry: Mapping[str, Any]) -> Entry:
    """Return an entry with words in the place of all that is said in it."""
    kept = _part(entry, *_KEPT)
    message = entry.get("message")
    if isinstance(message, dict):
        inner = _part(message, *_KEPT_OF_MESSAGES)
        kept["message"] = {**inner, "content": [_withheld(block) for block in blocks(entry)]}
    return kept


def _withheld(block: Mapping[str, Any]) -> Entry:
    kind = block.get("type")
    if kind == "tool_use":
        return {**_part(block, "type", "id", "name"), "input": {"not kept": WITHHELD}}
    if kind == "tool_result":
        return {**_part(block, "type", "tool_use_id", "is_error"), "content": WITHHELD}
    return {"type": "text", "text": WITHHELD}


def _part(tree: Mapping[str, Any], *names: str) -> Entry:
    return {name: tree[name] for name in names if name in tree}


def is_boundary(entry: Mapping[str, Any]) -> bool:
    """Say whether a conversation was shortened here: a summary stands for what was before."""
    return entry.get("type") == "system" and entry.get("subtype") == "compact_boundary"


def text_of(content: Any) -> str:
    """Return the text of a content, with `[image]` and the like for what is none."""
    if isinstance(content, str):
        return content
    parts = []
    for block in _list(content):
        if isinstance(block, str):
            parts.append(block)
        elif isinstance(block, dict):
            text = block.get("text")
            parts.append(text if isinstance(text, str) else f"[{block.get('type', 'something')}]")
    return "\n".join(parts)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
