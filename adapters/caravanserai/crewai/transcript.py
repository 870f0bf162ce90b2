"""The conversation of a run of CrewAI, from its raw JSON; needs no CrewAI."""

from __future__ import annotations

import copy
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from caravanserai_core import codec
from caravanserai_core.transcript import Message, ToolCall, Transcript, unanswered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from caravanserai_core.transcript import Role

__all__ = ["transcript"]

_ROLES: Final[dict[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
}

_CALLS: Final = frozenset({"tool_use", "tool_call", "function_call"})
"""Blocks that ask for a call of a tool, in the forms of some providers."""


def transcript(tree: Any) -> Transcript:
    """Read the conversation of a crew, task by task, or of a flow, method by method.

    Args:
        tree: the raw state of a waypoint, as `load(run_id, raw=True)` gives it.

    Returns:
        What was said for each task that is done, in the order in which they ended, and then the
        tasks that are still to do; of a flow, what its methods gave, and what people said of it.
        Empty where there is none.
    """
    tree = _dict(_whole_texts(codec.displayed(tree)))
    reader = _Reader()
    if "flow" in tree:
        reader.flow(tree)
    else:
        reader.crew(tree)
    found = tuple(reader.messages)
    told = tuple(f"{count} × {what}" for what, count in reader.losses.items())
    return Transcript(found, tuple(unanswered(found)), told)


class _Reader:
    """Puts the parts of a state together to one conversation."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.losses: Counter[str] = Counter()
        self._ids: set[str] = set()

    # ------------------------------------------------------------------ crews

    def crew(self, tree: dict[str, Any]) -> None:
        done = [_dict(entry) for entry in _list(tree.get("done"))]
        for entry in done:
            self._task(_dict(entry.get("output")), _dict(entry.get("did")))
        if tree.get("at") == "end":
            return
        over = [entry.get("task") for entry in done] + _list(tree.get("skipped"))
        for index, task in enumerate(_list(tree.get("tasks"))):
            if index not in over:
                self._say("user", _asked(_dict(task), "expected"))
        self._carried(tree)

    def _task(self, output: dict[str, Any], did: dict[str, Any]) -> None:
        """Tell a task: what its agent was told and said, and at the end what it gave."""
        agent = _text(did.get("agent")) or _text(output.get("agent"))
        before = len(self.messages)
        ids: dict[str, str] = {}
        for item in _list(output.get("messages")):
            self._message(item, agent, ids)
        if len(self.messages) == before:
            self._say("user", _asked(output, "expected_output"))
        raw = _text(output.get("raw"))
        last = self.messages[-1] if self.messages else None
        if last is None or last.role != "assistant" or last.text.strip() != raw.strip():
            # Agents that call tools by text leave their answer out of their messages.
            self._say("assistant", raw, agent)
        others = [
            call
            for call in map(_dict, _list(did.get("tools")))
            if agent and _text(call.get("agent")) not in ("", agent)
        ]
        if others:
            self.losses["a call that another agent made for a task"] += len(others)

    def _carried(self, tree: dict[str, Any]) -> None:
        steps = len(_dict(tree.get("carried")))
        if steps:
            self.losses["a recorded step of work that is not at its end"] += steps

    # ------------------------------------------------------------------ flows

    def flow(self, tree: dict[str, Any]) -> None:
        if tree.get("given"):
            self._say("user", _shown(tree["given"]))
        for entry in map(_dict, _list(tree.get("methods"))):
            self._method(entry)
        if tree.get("at") == "end":
            return
        waits = _dict(tree.get("waits"))
        if waits:
            name = _text(waits.get("method"))
            self._say("assistant", _shown(waits.get("output")), name)
            self._say("assistant", _text(waits.get("message")), name)
        else:
            self._carried(tree)

    def _method(self, entry: dict[str, Any]) -> None:
        name, feedback = _text(entry.get("name")), _dict(entry.get("feedback"))
        kept = _dict(feedback.get("output") if feedback else entry.get("output"))
        if "crew_output" in kept:
            for output in _list(_dict(kept["crew_output"]).get("tasks_output")):
                self._task(_dict(output), {})
        elif "task_output" in kept:
            self._task(_dict(kept["task_output"]), {})
        else:
            self._say("assistant", _shown(kept.get("value")), name)
        if feedback:
            self._say("assistant", _text(feedback.get("message")), name)
            said = _text(feedback.get("feedback")) or _text(feedback.get("outcome"))
            self._say("user", said)

    # ------------------------------------------------------------------ messages

    def _say(self, role: Role, text: str, name: str = "") -> None:
        if text.strip():
            self.messages.append(Message(role, text, name=name.strip() or None))

    def _message(self, item: Any, agent: str, ids: dict[str, str]) -> None:
        fields = _dict(item)
        said = _text(fields.get("role"))
        if not said:
            self.losses["something that is no message"] += 1
            return
        role = _ROLES.get(said)
        if role is None:
            self.losses[f"the role {said!r}, told as a user's"] += 1
            role = "user"
        text = self._content(fields.get("content"))
        if role == "tool":
            call = ids.get(_text(fields.get("tool_call_id")), _text(fields.get("tool_call_id")))
            tool = _text(fields.get("name")) or None
            self.messages.append(Message(role, text, (), call, tool))
            return
        calls = tuple(self._calls(fields, ids)) if role == "assistant" else ()
        if calls or text.strip():
            name = agent.strip() if role == "assistant" else ""
            self.messages.append(Message(role, text, calls, name=name or None))

    def _content(self, node: Any) -> str:
        texts = []
        for block in node if isinstance(node, list) else [node]:
            text = _text(block) or _text(_dict(block).get("text"))
            kind = _text(_dict(block).get("type"))
            if text:
                texts.append(text)
            elif isinstance(block, dict) and kind not in ("text", *_CALLS):
                self.losses[f"content of the type {kind or 'unknown'!r}"] += 1
        return "\n\n".join(texts)

    def _calls(self, fields: dict[str, Any], ids: dict[str, str]) -> Iterator[ToolCall]:
        blocks = [
            block
            for block in map(_dict, _list(fields.get("content")))
            if _text(block.get("type")) in _CALLS
        ]
        for call in map(_dict, _list(fields.get("tool_calls")) or blocks):
            inner = _dict(call.get("function")) or call
            name = _text(inner.get("name"))
            if not name:
                self.losses["a call of a tool in a form that is not known here"] += 1
                continue
            known = _text(call.get("id")) or _text(call.get("call_id"))
            ids[known] = self._new_id(known or f"call_{len(self._ids)}")
            given = [inner[key] for key in ("arguments", "input", "args") if key in inner]
            yield ToolCall(ids[known], name, _arguments(given[0]) if given else {})

    def _new_id(self, known: str) -> str:
        """Return an id that no earlier call has: some servers number those of each task anew."""
        id_, number = known, 1
        while id_ in self._ids:
            number += 1
            id_ = f"{known}_{number}"
        self._ids.add(id_)
        return id_


def _arguments(given: Any) -> dict[str, Any] | str:
    if isinstance(given, dict):
        return given
    text = _text(given)
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return read if isinstance(read, dict) else text


def _asked(task: dict[str, Any], expected: str) -> str:
    """Return the text of a task, for who is to do it."""
    text, wanted = _text(task.get("description")).strip(), _text(task.get(expected)).strip()
    return f"{text}\n\nExpected: {wanted}" if text and wanted else text or wanted


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _dict(node: Any) -> dict[str, Any]:
    return node if isinstance(node, dict) else {}


def _list(node: Any) -> list[Any]:
    return node if isinstance(node, list) else []


def _text(node: Any) -> str:
    return node if isinstance(node, str) else ""


def _whole_texts(tree: Any) -> Any:
    """Return a tree with texts in the place of those that JSON cannot hold."""
    if isinstance(tree, list):
        return [_whole_texts(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if list(tree) == ["$str"]:
        return codec.decode_tree(copy.deepcopy(tree))
    return {key: _whole_texts(item) for key, item in tree.items()}
