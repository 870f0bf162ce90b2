"""The conversation of a session, from the raw JSON of its run; needs no SDK and no CLI.

A waypoint holds no copy of the conversation: it is in the entries of the journal in front of it.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from caravanserai.claude_agent import _branch, _entries
from caravanserai.claude_agent.retention import ENTRIES
from caravanserai_core import codec
from caravanserai_core.transcript import Message, ToolCall, Transcript, unanswered

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from caravanserai.claude_agent._entries import Entry

__all__ = ["transcript"]

_SYNTHETIC: Final = "<synthetic>"
"""The model of answers that the CLI made up itself, such as errors (2.1.332)."""

_TOLD: Final = frozenset({"text", "tool_use", "tool_result"})


def transcript(tree: Any, entries: Iterable[Any] = ()) -> Transcript:
    """Read the conversation of a session as its waypoint stands.

    Where it was shortened, Claude's own summary stands for what was said before. What subagents
    said is left out: their reports are results of calls.

    Args:
        tree: the raw state of a waypoint, as `load(run_id, raw=True)` gives it.
        entries: the raw data of the journal's entries of the name `transcript.entries` up to that
            waypoint; `caravanserai_core.conversation.read` hands them over.

    Returns:
        What was said. Before anything was, it is what the run was asked.
    """
    state = _dict(_plain(codec.displayed(tree)))
    session = _dict(state.get("session"))
    pieces = [_dict(_plain(codec.displayed(piece))) for piece in entries]
    mine = [piece for piece in pieces if piece.get("session") == session.get("id")]
    said = [
        entry
        for piece in mine
        if not piece.get("path")
        for entry in _list(piece.get("entries"))
        if isinstance(entry, dict)
    ]
    branch = _branch.read(said, _text(session.get("last")))
    reader = _Reader()
    for entry in branch.entries:
        reader.read(entry)
    losses = reader.losses
    if branch.left_out:
        losses["earlier entry, for which Claude's own summary stands"] = branch.left_out
    agents = {piece["path"] for piece in mine if piece.get("path")}
    if agents:
        losses["conversation of a subagent"] = len(agents)
    others = {piece.get("session") for piece in pieces} - {session.get("id")}
    if others and session.get("number", 1) > 1:
        losses["earlier session of the run"] = len(others)
    if session.get("id") and not said:
        losses["conversation whose entries were not given"] = 1
    messages = tuple(reader.messages)
    if not messages and _text(state.get("prompt")):
        messages = (Message("user", state["prompt"]),)
    told = tuple(f"{count} × {what}" for what, count in losses.items())
    return Transcript(messages, tuple(unanswered(messages)), told)


transcript.entries = ENTRIES  # type: ignore[attr-defined]


class _Reader:
    """Makes messages of the entries of a transcript."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.losses: Counter[str] = Counter()
        self._tools: dict[str, str] = {}
        # The CLI writes each part of an answer as an entry of its own.
        self._answers: dict[str, int] = {}

    def read(self, entry: Entry) -> None:
        if entry.get("type") == "attachment":
            if _dict(entry.get("attachment")).get("type") in ("file", "image"):
                self.losses["attached file"] += 1
            return
        if not _entries.is_said(entry) or entry.get("isMeta"):
            return
        blocks = _entries.blocks(entry)
        for block in blocks:
            if block.get("type") not in _TOLD:
                self._lose(block)
        if entry["type"] == "assistant":
            self._answer(_dict(entry.get("message")), blocks)
            return
        for block in blocks:
            if block.get("type") == "tool_result":
                self._result(block)
        text = _joined(blocks)
        if text.strip():
            self.messages.append(Message("user", text))

    def _answer(self, message: Mapping[str, Any], blocks: Sequence[Mapping[str, Any]]) -> None:
        if message.get("model") == _SYNTHETIC:
            return
        text = _joined(blocks)
        calls = tuple(
            ToolCall(_text(block.get("id")), _text(block.get("name")), _arguments(block))
            for block in blocks
            if block.get("type") == "tool_use"
        )
        self._tools |= {call.id: call.name for call in calls}
        if not text.strip() and not calls:
            return
        id_ = _text(message.get("id"))
        if id_ and id_ in self._answers:
            at = self._answers[id_]
            known = self.messages[at]
            both = "\n\n".join(part for part in (known.text, text) if part)
            self.messages[at] = known._replace(text=both, tool_calls=known.tool_calls + calls)
        else:
            self._answers[id_] = len(self.messages)
            self.messages.append(Message("assistant", text, calls))

    def _result(self, block: Mapping[str, Any]) -> None:
        content = block.get("content")
        for part in map(_dict, _list(content)):
            if part.get("type") not in (None, *_TOLD):
                self._lose(part)
        id_ = _text(block.get("tool_use_id"))
        failed = block.get("is_error") is True
        text = _entries.text_of(content)
        self.messages.append(Message("tool", text, (), id_, self._tools.get(id_), failed))

    def _lose(self, block: Mapping[str, Any]) -> None:
        self.losses[f"content of the type {_text(block.get('type')) or 'unknown'!r}"] += 1


def _joined(blocks: Sequence[Mapping[str, Any]]) -> str:
    texts = [_text(block.get("text")) for block in blocks if block.get("type") == "text"]
    return "\n\n".join(text for text in texts if text)


def _arguments(block: Mapping[str, Any]) -> dict[str, Any] | str:
    given = block.get("input")
    return given if isinstance(given, dict) else _text(given)


def _dict(node: Any) -> dict[str, Any]:
    return node if isinstance(node, dict) else {}


def _list(node: Any) -> list[Any]:
    return node if isinstance(node, list) else []


def _text(node: Any) -> str:
    return node if isinstance(node, str) else ""


def _plain(tree: Any) -> Any:
    """Return the JSON that a tagged tree stands for: entries hold nothing beyond JSON."""
    if isinstance(tree, list):
        return [_plain(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if len(tree) == 1:
        tag = next(iter(tree))
        if tag == "$dict":
            return {_plain(key): _plain(value) for key, value in tree[tag]}
        if tag in ("$str", "$int", "$float"):
            return codec.decode_tree(copy.deepcopy(tree))
    return {key: _plain(value) for key, value in tree.items()}
