"""What a run begins with that goes on from another one; plain JSON, read without the SDK.

A state holds it under `seed`: `source` ("RUN@3"), `conversation` (a transcript as JSON) and
`brief`, what the model is told beside the messages. The SDK's input is made of it, the same at
each start. It stays in every state: a handoff inside of the run may replace the SDK's own input by
a summary, and whoever goes on from this run is to have all of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Final

from caravanserai.openai_agents._items import arguments_of
from caravanserai_core.transcript import Message, ToolCall, Transcript, unanswered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from caravanserai_core.handed import Handoff

__all__ = ["SEED", "conversation", "in_front", "items", "plain_name", "seed_of"]

SEED: Final = "seed"
"""Its name in a state."""

_NO_ID: Final = "__fake_id__"
"""Of a message of a model whose provider gave it none: the SDK takes it away before it asks, and
without it makes no message of Chat Completions (`agents.models.fake_id`, 0.20 to 0.24)."""

_UNNAMED: Final = re.compile(r"[^A-Za-z0-9_-]")
"""What providers do not take in the name of a tool."""

_LONGEST: Final = 64
"""Most characters of such a name."""


def seed_of(handed: Handoff) -> dict[str, Any]:
    """Return what a run begins with, given what it was handed."""
    return {
        "source": handed.source,
        "conversation": _named_anew(handed.transcript, handed.source).to_json(),
        "brief": handed.brief("openai"),
    }


def conversation(seed: dict[str, Any]) -> Transcript:
    """Return the conversation that a run begins with, with the brief as its last message."""
    told = Transcript.from_json(seed["conversation"])
    return told._replace(messages=(*told.messages, Message("user", seed["brief"])))


def items(seed: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the same as the SDK takes it: items of the Responses API without ids of a provider.

    The SDK makes messages of Chat Completions of them, too.
    """
    # What it adds itself when it writes a run state stands here from the start ("status"), so that
    # a start that goes on asks just what the first one asked.
    return [item for message in conversation(seed).to_openai() for item in _items(message)]


def in_front(seed: dict[str, Any], given: Any) -> list[Any]:
    """Return a run's input with the seed in front of it.

    Args:
        seed: what it begins with.
        given: a text or a list of items; an empty one adds nothing.
    """
    if isinstance(given, str):
        given = [{"role": "user", "content": given}] if given else []
    return [*items(seed), *given]


def plain_name(tool: str) -> str:
    """Return the name of a tool as providers take it in a call."""
    return _UNNAMED.sub("_", tool)[:_LONGEST] or "tool"


def _items(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    role, text = message["role"], message["content"]
    if role == "tool":
        id_ = message["tool_call_id"]
        yield {"type": "function_call_output", "call_id": id_, "output": text}
    elif role == "user" and text:
        yield {"role": "user", "content": text}
    elif role == "assistant":
        if text:
            part = {"type": "output_text", "text": text, "annotations": []}
            said = {"type": "message", "role": "assistant", "content": [part]}
            yield {**said, "status": "completed", "id": _NO_ID}
        for call in message.get("tool_calls", ()):
            function = call["function"]
            yield {
                "type": "function_call",
                "call_id": call["id"],
                "name": plain_name(function["name"]),
                "arguments": _arguments(function["arguments"]),
            }


def _arguments(text: str) -> str:
    """Return the arguments of a call as JSON, which some providers want to read."""
    read = arguments_of(text)
    return text if isinstance(read, dict) and text else json.dumps({"arguments": read})


def _named_anew(told: Transcript, source: str) -> Transcript:
    """Return a conversation whose calls have ids that no other call has, now or later.

    Some providers use an id in each answer anew, and the SDK takes two items of one id for one.
    A result without a call, which providers refuse, gets one.
    """
    messages: list[Message] = []
    now: dict[str, str] = {}  # the newest id for each old one
    count = 0

    def named(old: str) -> str:
        nonlocal count
        count += 1
        now[old] = "call_" + hashlib.sha256(f"{source}/{count}".encode()).hexdigest()[:20]
        return now[old]

    for message in told.messages:
        calls = tuple(call._replace(id=named(call.id)) for call in message.tool_calls)
        id_ = message.tool_call_id
        if message.role == "tool":
            if id_ is None or id_ not in now:
                call = ToolCall(named(id_ or ""), message.name or "tool", {})
                messages.append(Message("assistant", "", (call,)))
            id_ = now[id_ or ""]
        messages.append(message._replace(tool_calls=calls, tool_call_id=id_))
    unseen = [call for call in told.uncertain if call.id not in now]
    open_ = [*unanswered(tuple(messages)), *unseen]
    return Transcript(tuple(messages), tuple(open_), told.losses)
