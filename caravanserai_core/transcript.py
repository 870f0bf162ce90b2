"""A conversation in no framework's own form: what a different agent needs to go on.

Each adapter gives a function that reads one from the JSON tree of its states, tags and all, as
`load(run_id, raw=True)` gives it. It works without the framework: whoever takes a run over need
not have installed what began it. The core finds it by the entry point group
`caravanserai.transcripts`, under the adapter's name.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["GROUP", "Message", "Role", "ToolCall", "Transcript", "find", "unanswered"]

GROUP = "caravanserai.transcripts"
"""The group of entry points; each is a function of a raw state that returns a Transcript.

One whose states hold no copy of the conversation has an attribute `entries`, the name of the
journal's entries that do, and takes the raw data of these as a second argument. `conversation.read`
hands each what it needs.
"""

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]

_OPEN = "No result of this call is recorded: it may have run or not. Check before it is done again."


class ToolCall(NamedTuple):
    """A call of a tool that a model asked for.

    Attributes:
        id: what its result refers to.
        name: the tool.
        arguments: by name, as JSON; a text where the model wrote no valid JSON.
    """

    id: str
    name: str
    arguments: dict[str, Any] | str


class Message(NamedTuple):
    """One message.

    Attributes:
        role: who speaks; "tool" for the result of a call.
        text: what was said, without images and the like; may be empty.
        tool_calls: calls that an assistant asked for.
        tool_call_id: the call that this is the result of.
        name: the name of the speaker or the tool, where one was given.
        failed: the result is an error.
    """

    role: Role
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    failed: bool = False


class Transcript(NamedTuple):
    """A conversation.

    Attributes:
        messages: oldest first.
        uncertain: calls of tools without a result: they may have run.
        losses: sentences about what could not be carried over, such as images.
    """

    messages: tuple[Message, ...]
    uncertain: tuple[ToolCall, ...] = ()
    losses: tuple[str, ...] = ()

    def to_openai(self, *, complete: bool = True) -> list[dict[str, Any]]:
        """Return the messages as OpenAI's Chat Completions API takes them.

        Args:
            complete: answer calls that have no result with a sentence that says so; model
                providers refuse a conversation with an open call.
        """
        result: list[dict[str, Any]] = []
        open_ = {call.id for call in self.uncertain} if complete else set()
        for message in self.messages:
            result.append(_to_openai(message))
            result += [
                {"role": "tool", "tool_call_id": call.id, "content": _OPEN}
                for call in message.tool_calls
                if call.id in open_
            ]
        return result


def _to_openai(message: Message) -> dict[str, Any]:
    result: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.role == "tool":
        return {**result, "tool_call_id": message.tool_call_id or ""}
    if message.name:
        result["name"] = message.name
    if message.tool_calls:
        result["content"] = message.text or None
        result["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call)},
            }
            for call in message.tool_calls
        ]
    return result


def _arguments(call: ToolCall) -> str:
    if type(call.arguments) is str:
        return call.arguments
    return json.dumps(call.arguments, ensure_ascii=False)


def unanswered(messages: tuple[Message, ...]) -> Iterator[ToolCall]:
    """Yield the calls that no message is the result of, in their order."""
    answered = {message.tool_call_id for message in messages if message.role == "tool"}
    for message in messages:
        for call in message.tool_calls:
            if call.id not in answered:
                yield call


def find(adapter: str) -> Callable[[Any], Transcript] | None:
    """Return the function that reads a conversation from the raw states of an adapter.

    Args:
        adapter: its name, as a run's `open` record has it.

    Returns:
        The function, or None if no installed package has one.
    """
    # Costs more than all of this package, and few programs hand a run over.
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP, name=adapter):
        found: Callable[[Any], Transcript] = point.load()
        return found
    return None
