"""The conversation of a run of the OpenAI Agents SDK, from its raw JSON; needs no SDK."""

from __future__ import annotations

import copy
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from caravanserai.openai_agents import _items
from caravanserai_core import codec
from caravanserai_core.transcript import Message, ToolCall, Transcript, unanswered

if TYPE_CHECKING:
    from caravanserai.openai_agents._items import Item
    from caravanserai_core.transcript import Role

__all__ = ["transcript"]

_ROLES: Final[dict[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}

_LOST: Final = {
    "reasoning": "reasoning of a model",
    "compaction": "a compacted part of the conversation, which only its provider can read",
    "item_reference": "an item that only the provider holds",
}


def transcript(tree: Any) -> Transcript:
    """Read the conversation of a run or of a session.

    Args:
        tree: the raw state of a waypoint, as `load(run_id, raw=True)` gives it.

    Returns:
        Its messages, calls and results; what an agent handed over to another one is told as a
        call and its result. Empty where there is none.
    """
    tree = codec.displayed(tree)
    if not isinstance(tree, dict):
        return Transcript(())
    tree = _whole_texts(tree)
    run = tree.get("run")
    if isinstance(run, dict):
        items = [*_asked(tree.get("given"), run), *_items.items_after(run)]
    else:
        items = _items.given_items(tree.get("items"))
    reader = _Reader()
    for item in items:
        reader.add(item)
    return reader.finish()


def _whole_texts(tree: Any) -> Any:
    """Return a tree with texts in the place of those that JSON cannot hold."""
    if isinstance(tree, list):
        return [_whole_texts(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if list(tree) == ["$str"]:
        return codec.decode_tree(copy.deepcopy(tree))
    return {key: _whole_texts(item) for key, item in tree.items()}


def _asked(given: Any, run: dict[str, Any]) -> list[Item]:
    """Return what a run was given, behind what its session held before.

    A handoff may put a summary in the place of all that came before it, whose items follow anyway.
    """
    own = _items.given_items(given)
    first = _items.given_items(run.get("original_input"))
    return first if not own or all(item in first for item in own) else own


class _Reader:
    """Puts items together to messages: an answer of a model is one, with all its calls."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.losses: Counter[str] = Counter()
        self._names: dict[str, str] = {}
        self._hosted: list[Message] = []

    def add(self, item: Item) -> None:
        for extra in item.extras:
            self.losses[f"content of the type {extra!r}"] += 1
        if item.kind == "message":
            self._message(item)
        elif item.kind in ("call", "handoff call"):
            self._call(item.agent, ToolCall(item.call_id, item.name, item.arguments))
        elif item.kind == "result":
            self._result(item.call_id, item.text, failed=item.failed)
        elif item.kind == "handoff":
            self._result(item.call_id, f"Handed over to {item.name}.")
        elif item.kind == "hosted":
            self._ran_elsewhere(item)
        elif item.kind == "quiet" and item.type in _LOST:
            self.losses[_LOST[item.type]] += 1
        elif item.kind == "unknown" or item.type == "mcp_approval_request":
            self.losses[f"an item of the type {item.type or 'unknown'!r}"] += 1

    def finish(self) -> Transcript:
        self._flush()
        told = tuple(f"{count} × {what}" for what, count in self.losses.items())
        found = tuple(self.messages)
        return Transcript(found, tuple(unanswered(found)), told)

    def _flush(self) -> None:
        """Put the results of the provider's own tools behind the answer that they are of."""
        self.messages += self._hosted
        self._hosted.clear()

    def _message(self, item: Item) -> None:
        role = _ROLES.get(item.name)
        if role is None:
            self.losses[f"the role {item.name!r}, told as a user's"] += 1
            role = "user"
        name = (item.agent or None) if role == "assistant" else None
        last = self.messages[-1] if self.messages else None
        hosted = {message.tool_call_id for message in self._hosted}
        calls = {call.id for call in last.tool_calls} if last is not None else set()
        if last is not None and role == last.role == "assistant" and calls - hosted:
            # Nothing may stand between calls and their results.
            text = "\n\n".join(part for part in (last.text, item.text) if part)
            self.messages[-1] = last._replace(text=text)
            return
        self._flush()
        self.messages.append(Message(role, item.text, name=name))

    def _call(self, agent: str, call: ToolCall) -> None:
        self._names[call.id] = call.name
        last = self.messages[-1] if self.messages else None
        if last is not None and last.role == "assistant" and last.name == (agent or None):
            self.messages[-1] = last._replace(tool_calls=(*last.tool_calls, call))
            return
        self._flush()
        self.messages.append(Message("assistant", "", (call,), name=agent or None))

    def _result(self, call_id: str, text: str, *, failed: bool = False) -> None:
        self._flush()
        name = self._names.get(call_id)
        self.messages.append(Message("tool", text, (), call_id, name, failed))

    def _ran_elsewhere(self, item: Item) -> None:
        """Tell a tool that the provider ran as a call with its result, if the state has that."""
        if not item.text:
            self.losses[f"what the provider's tool {item.name} gave"] += 1
            return
        id_ = f"hosted_{len(self.messages)}_{len(self._hosted)}"
        self._call(item.agent, ToolCall(id_, item.name, item.arguments))
        self._hosted.append(Message("tool", item.text, (), id_, item.name, item.failed))
