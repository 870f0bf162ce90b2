"""Conversations in the raw JSON of states that hold LangChain's messages; needs no LangChain."""

from __future__ import annotations

import copy
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from caravanserai_core import codec
from caravanserai_core.stepping import bare, does_call, same
from caravanserai_core.transcript import NO_RESULT, Message, ToolCall, Transcript, unanswered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from caravanserai_core.transcript import Role, Since

__all__ = ["HANDED", "fields_of", "handed_in", "messages_of"]

HANDED: Final = {"caravanserai": "handoff"}
"""`additional_kwargs` of the message with the rest of a handoff; models are not sent it."""

_TAG: Final = "$langchain."
_TEXT: Final = "langchain.Text"

_ROLES: Final[dict[str, Role]] = {
    "human": "user",
    "user": "user",
    "ai": "assistant",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}

_ELSEWHERE: Final = frozenset({"tool_use", "tool_call", "tool_call_chunk", "function_call"})
"""Blocks that repeat what a message's `tool_calls` say."""

_SETTLED: Final = "Whether this happened was not certain. An equal call was made later: see there."
_UNKNOWN: Final = "a call of a tool in a form that is not known here"


def messages_of(tree: Any, *, since: Sequence[Since] = ()) -> Transcript:
    """Read the conversation of a state.

    Args:
        tree: its JSON, tags and all: a list of messages, or an object that has one under
            `messages`. A message may be one of LangChain, of a subclass, or in OpenAI's form.
            None: there is no state yet.
        since: what was recorded behind it.

    Returns:
        The conversation; without messages where there is none. A run that has no state yet and
        goes on from another one has what it was handed.
    """
    if tree is None:
        return handed_in(since)
    tree = codec.displayed(tree)  # what was declared a secret is no text
    if type(tree) is dict:
        tree = tree.get("messages")
    losses: Counter[str] = Counter()
    found: list[Message] = []
    own = 0
    for number, item in enumerate(tree if type(tree) is list else []):
        message = _message(item, number, losses)
        if message is not None:
            found.append(message)
        if fields_of(item)[1].get("additional_kwargs") == HANDED:
            own = len(found)  # what stands before was handed over
    messages = _with_steps(_settled(found, own), since)
    told = tuple(f"{count} × {what}" for what, count in losses.items())
    return Transcript(messages, tuple(unanswered(messages)), told)


messages_of.since = True  # type: ignore[attr-defined]


def handed_in(since: Sequence[Since]) -> Transcript:
    """Return the conversation that a run was handed, among what is recorded; empty: none."""
    for item in since:
        if item.kind == "entry" and item.name == "handoff":
            data: Any = codec.decode_tree(codec.displayed(item.data))
            return Transcript.from_json(data["transcript"])
    return Transcript(())


def _settled(messages: list[Message], own: int) -> tuple[Message, ...]:
    """Leave out what a model was told in the place of a result, unless the call was made since.

    One equal call that did not fail settles one that may have happened, the first one.

    Args:
        messages: the conversation.
        own: how many stand in front that were handed over: no call of these settles one.
    """
    instead = [m for m in messages if m.role == "tool" and m.text == NO_RESULT]
    if not instead:
        return tuple(messages)
    open_ = {message.tool_call_id for message in instead}
    told = {m.tool_call_id for m in messages if m.role == "tool" and not m.failed} - open_
    left: dict[tuple[str, str], list[str]] = {}
    for place, message in enumerate(messages):
        for call in message.tool_calls:
            if call.id in open_:
                left.setdefault(_known_by(call), []).append(call.id)
            elif place >= own and call.id in told and left.get(_known_by(call)):
                left[_known_by(call)].pop(0)
    gone = {id_ for ids in left.values() for id_ in ids}
    return tuple(
        m._replace(text=_SETTLED, failed=True) if m in instead else m
        for m in messages
        if m not in instead or m.tool_call_id not in gone
    )


def _known_by(call: ToolCall) -> tuple[str, str]:
    """Return by which equal calls are known: 1, 1.0 and True are not equal."""
    given = call.arguments
    return bare(call.name), same(given) if type(given) is dict else f"text {given}"


def _with_steps(messages: tuple[Message, ...], since: Sequence[Since]) -> tuple[Message, ...]:
    """Put the results of steps under `once` behind the calls of tools that they do.

    A loop that keeps its messages at a waypoint has not kept yet what it did since.
    """
    ended = [item for item in since if item.kind == "effect" and item.head.get("what") in _ENDED]
    results: dict[str, Message] = {}
    for call in unanswered(messages) if ended else ():
        step = next((item for item in reversed(ended) if does_call(item.head, call)), None)
        if step is not None:
            ended.remove(step)
            results[call.id] = _result(call, step)
    if not results:
        return messages
    done: list[Message] = []
    waiting: list[Message] = []
    for message in messages:
        if message.role != "tool":
            done += waiting
            waiting = [results[call.id] for call in message.tool_calls if call.id in results]
        done.append(message)
    return (*done, *waiting)


_ENDED: Final = ("result", "error")


def _result(call: ToolCall, step: Since) -> Message:
    failed = step.head.get("what") == "error"
    value = step.head.get("error", "") if failed else codec.displayed(step.data)
    text = value if type(value) is str else json.dumps(value, ensure_ascii=False)
    return Message("tool", text, (), call.id, call.name, failed)


def _message(item: Any, number: int, losses: Counter[str]) -> Message | None:
    kind, fields = fields_of(item)
    if kind in ("remove", ""):
        if kind == "" and item is not None:
            losses["something that is no message"] += 1
        return None
    role = _ROLES.get(kind)
    if role is None:
        losses[f"the role {kind!r}, told as a user's"] += 1
        role = "user"
    name = _text(fields.get("name")) or None
    text = _content(fields.get("content"), losses)
    calls = _calls(fields, number, losses) if role == "assistant" else ()
    if fields.get("invalid_tool_calls"):
        losses["a call whose arguments are no valid JSON"] += len(fields["invalid_tool_calls"])
    if role != "tool":
        return Message(role, text, calls, name=name)
    # A function's result, before there were tools, refers to it by its name.
    call = _text(fields.get("tool_call_id")) or name
    return Message(role, text, (), call, name, fields.get("status") == "error")


def fields_of(item: Any) -> tuple[str, dict[str, Any]]:
    """Return which kind of message something is, "" if it is none, and its fields."""
    if type(item) is not dict:
        return "", {}
    tag = next(iter(item)) if len(item) == 1 else ""
    content = item.get(tag)
    if tag.startswith(_TAG) and type(content) is dict:
        kind = tag.removeprefix(_TAG).removesuffix("Chunk").removesuffix("Message").lower()
        if kind == "chat":
            kind = _text(content.get("role")).lower()
        return kind, content
    if tag == "$object" and type(content) is dict and content.get("kind") == "pydantic":
        fields = content["value"]["fields"]
        return _text(fields.get("type")).lower().removesuffix("messagechunk"), fields
    if tag == "$tuple" and type(content) is list and len(content) == 2:
        return _text(content[0]).lower(), {"content": content[1]}
    if "content" in item or ("role" in item and "tool_calls" in item):
        return _text(item.get("role") or item.get("type")).lower(), item
    return "", {}


def _text(node: Any) -> str:
    """A text, also one that JSON cannot hold, or that was a message's; "" for anything else."""
    if type(node) is dict and list(node) == ["$object"] and type(node["$object"]) is dict:
        node = node["$object"].get("value") if node["$object"].get("type") == _TEXT else None
    if type(node) is dict and list(node) == ["$str"]:
        node = codec.decode_tree(copy.deepcopy(node))
    return node if type(node) is str else ""


def _content(node: Any, losses: Counter[str]) -> str:
    if type(node) is not list:
        return _text(node)
    texts = []
    for block in node:
        text = _text(block)
        kind = "text"
        if type(block) is dict and not text:
            kind = _text(block.get("type"))
            text = _text(block.get("text")) if kind in ("text", "output_text", "input_text") else ""
        if text:
            texts.append(text)
        elif kind not in _ELSEWHERE and kind != "text":
            losses[f"content of the type {kind or 'unknown'!r}"] += 1
    return "\n\n".join(texts)


def _calls(fields: dict[str, Any], number: int, losses: Counter[str]) -> tuple[ToolCall, ...]:
    calls = []
    written = fields.get("tool_calls")
    for place, call in enumerate(written if type(written) is list else []):
        # In OpenAI's form the name and the arguments, a text, are one level deeper.
        inner = call.get("function", call) if type(call) is dict else None
        if type(inner) is not dict:
            losses[_UNKNOWN] += 1
            continue
        arguments = inner.get("args", inner.get("arguments", {}))
        if type(arguments) is not dict or list(arguments) == ["$str"]:
            arguments = _arguments(_text(arguments))
        id_ = _text(call.get("id")) or f"call_{number}_{place}"
        calls.append(ToolCall(id_, _text(inner.get("name")), arguments))
    return tuple(calls)


def _arguments(text: str) -> dict[str, Any] | str:
    """Read the arguments of a call in OpenAI's form; what is no object stays a text."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return read if type(read) is dict else text
