"""The conversation of a session, from the raw JSON of its run; needs no SDK and no CLI.

A waypoint holds no copy of the conversation: it is in the entries of the journal in front of it.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from caravanserai.claude_agent import _branch, _entries
from caravanserai.claude_agent._recorded import Recorded, settled
from caravanserai.claude_agent._tools import in_place_of
from caravanserai.claude_agent.retention import ENTRIES, HANDOFF, PATH
from caravanserai_core import codec
from caravanserai_core.transcript import Message, ToolCall, Transcript

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from caravanserai.claude_agent._entries import Entry
    from caravanserai_core.transcript import Since

__all__ = ["transcript"]

_SYNTHETIC: Final = "<synthetic>"
"""The model of answers that the CLI made up itself, such as errors (2.1.332)."""

_TOLD: Final = frozenset({"text", "tool_use", "tool_result"})

_FACT: Final = "fact"


def transcript(
    tree: Any, entries: Iterable[Any] = (), *, since: Sequence[Since] = ()
) -> Transcript:
    """Read the conversation of a session as its waypoint stands, or as it is now.

    Where it was shortened, Claude's own summary stands for what was said before. What subagents
    said is left out: their reports are results of calls. What the run was handed by another one
    stands in front, as messages of its own; the text of it in the first prompt is left out.

    Args:
        tree: the raw state of a waypoint, as `load(run_id, raw=True)` gives it; None: there is
            none yet.
        entries: the raw data of the journal's entries of the name `transcript.entries` up to that
            waypoint; `caravanserai_core.conversation.read` hands them over.
        since: what is recorded behind that waypoint, oldest first.

    Returns:
        What was said. Before anything was, it is what the run was asked. A call that began and
        never reported back is uncertain, whatever the CLI put in the place of its result.
    """
    state = _dict(_read(tree))
    session = _dict(state.get("session"))
    facts = [_dict(_read(one.data)) for one in since if _is_entry(one, _FACT)]
    later = [_dict(_read(one.data)) for one in since if _is_entry(one, ENTRIES)]
    before = [_dict(_read(piece)) for piece in entries]
    handed = _handed([*before, *later], since)
    before, later = ([p for p in some if p.get("path") != PATH] for some in (before, later))
    pieces = [*before, *later]
    id_, ended = _session(session, facts, pieces)
    mine = [piece for piece in pieces if piece.get("session") == id_]
    said = _entries_of(mine)
    branch = _branch.read(said, "" if facts or later else _text(session.get("last")))
    reader = _Reader(handed.text)
    for entry in branch.entries:
        reader.read(entry)
    losses = reader.losses
    if branch.left_out:
        losses["earlier entry, for which Claude's own summary stands"] = branch.left_out
    agents = {piece["path"] for piece in mine if piece.get("path")}
    if agents:
        losses["conversation of a subagent"] = len(agents)
    others = {piece.get("session") for piece in pieces} - {id_}
    if others and ended > 1:
        losses["earlier session of the run"] = len(others)
    if session.get("id") and not said:
        losses["conversation whose entries were not given"] = 1
    recorded = Recorded(state, facts, _made(pieces), _texts(later, handed.text))
    messages, uncertain = recorded.complete(reader.messages)
    if not any(one.role == "user" for one in messages) and _text(state.get("prompt")):
        messages.insert(0, Message("user", state["prompt"]))
    first, left = settled(handed.messages, handed.uncertain, messages)
    told = tuple(f"{count} × {what}" for what, count in losses.items())
    return Transcript((*first, *messages), (*left, *uncertain), (*handed.losses, *told))


transcript.entries = ENTRIES  # type: ignore[attr-defined]
transcript.since = True  # type: ignore[attr-defined]


class _Handed(NamedTuple):
    """What the run was handed by another one.

    Attributes:
        messages: what was said there.
        uncertain: calls of it that may have happened.
        losses: what could not be carried over then.
        text: what stands of it in front of a first prompt; "" before a session began.
    """

    messages: tuple[Message, ...] = ()
    uncertain: tuple[ToolCall, ...] = ()
    losses: tuple[str, ...] = ()
    text: str = ""


def _handed(pieces: Sequence[Mapping[str, Any]], since: Sequence[Since]) -> _Handed:
    """Find what the run was handed: beside its transcripts, else as the core keeps it."""
    found, text = None, ""
    for piece in pieces:
        if piece.get("path") == PATH:
            found, text = _dict(piece.get("handed")), _text(piece.get("prefix"))
    if found is None:
        kept = [_dict(_read(one.data)) for one in since if _is_entry(one, HANDOFF)]
        found = _dict(kept[0].get("transcript")) if kept else None
    if not found:
        return _Handed()
    try:
        said = Transcript.from_json(found)
    except (KeyError, TypeError, AttributeError):
        return _Handed(losses=("1 × conversation of the run before, of an unknown form",))
    return _Handed(said.messages, said.uncertain, said.losses, text)


def _session(
    session: Mapping[str, Any],
    facts: Sequence[Mapping[str, Any]],
    pieces: Sequence[Mapping[str, Any]],
) -> tuple[Any, int]:
    """Return the newest session of which anything was written, and its number."""
    known = [(session.get("id"), session.get("number", 1))]
    for fact in facts:
        if fact.get("what") == "session" and fact.get("id"):
            known.append((fact["id"], fact.get("number", known[-1][1])))
    written = {piece.get("session") for piece in pieces if not piece.get("path")}
    return next((one for one in reversed(known) if one[0] in written), known[0])


def _made(pieces: Iterable[Mapping[str, Any]]) -> dict[str, tuple[Any, bool]]:
    """Return the arguments of all calls, and whether a subagent made them, by their ids."""
    return {
        _text(call.get("id")): (_arguments(call), bool(piece.get("path")))
        for piece in pieces
        for call in _entries.calls(_entries_of([piece], inside=True))
    }


def _texts(pieces: Iterable[Mapping[str, Any]], handed: str) -> Iterator[tuple[str, str]]:
    """Yield what was said in some entries, each with who said it."""
    for entry in _entries_of(pieces):
        if _entries.is_said(entry) and not entry.get("isMeta"):
            text = _joined(_entries.blocks(entry))
            yield entry["type"], _without(text, handed)


def _entries_of(pieces: Iterable[Mapping[str, Any]], *, inside: bool = False) -> list[Entry]:
    return [
        entry
        for piece in pieces
        if inside or not piece.get("path")
        for entry in _list(piece.get("entries"))
        if isinstance(entry, dict)
    ]


def _is_entry(one: Since, name: str) -> bool:
    return one.kind == "entry" and one.name == name


def _read(node: Any) -> Any:
    return _plain(codec.displayed(node))


def _without(text: str, handed: str) -> str:
    """Return a prompt without what was handed over: that stands as messages of its own."""
    return text.replace(handed, "", 1).lstrip("\n") if handed and handed in text else text


class _Reader:
    """Makes messages of the entries of a transcript.

    Args:
        handed: the text that stands in a first prompt for messages of their own.
    """

    def __init__(self, handed: str) -> None:
        self._handed = handed
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
        text = _without(_joined(blocks), self._handed)
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
        given = in_place_of(text) if failed else None
        if given is not None:
            text, failed = given, False
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
