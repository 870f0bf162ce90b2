"""A conversation of whatever framework as messages of LangChain."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from caravanserai.langchain.transcript import HANDED
from caravanserai_core.errors import UsageError
from caravanserai_core.handed import Handoff
from caravanserai_core.transcript import NO_RESULT, Message, ToolCall, Transcript

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["messages_from"]

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What OpenAI's API takes as the name of a speaker."""


def messages_from(source: Handoff | Transcript, *, brief: bool = True) -> list[BaseMessage]:
    """Return what another run said as messages, to go on from with any model of LangChain.

        graph.invoke({"messages": [*messages_from(handoff("report-7")), ("user", "Go on.")]})

    A call of a tool whose result is not known has one that says so: providers refuse a
    conversation with an open call. Messages of a handoff have ids of their own, the same each time,
    so that a graph to which they are given again has them once.

    Args:
        source: what `handoff` returned, or the conversation alone.
        brief: let a message of the user follow that tells the rest: what the job is for, what was
            done, what comes next, what is not certain. Of a handoff only.

    Raises:
        UsageError: `source` is something else.
    """
    if isinstance(source, Transcript):
        return list(_messages(source))
    if not isinstance(source, Handoff):
        raise UsageError(
            "messages_from takes what handoff() returned, or its transcript, not "
            f"{type(source).__name__}"
        )
    messages = list(_messages(source.transcript))
    if brief:
        text = source.brief("langchain")
        messages.append(HumanMessage(text, additional_kwargs=dict(HANDED)))
    for number, message in enumerate(messages, 1):
        message.id = f"{source.source}/{number}"
    return messages


def _messages(transcript: Transcript) -> Iterator[BaseMessage]:
    open_ = {call.id for call in transcript.uncertain}
    names: dict[str, str] = {}
    for message in transcript.messages:
        names.update({call.id: call.name for call in message.tool_calls})
        yield _message(message, names)
        for call in message.tool_calls:
            if call.id in open_:
                yield ToolMessage(NO_RESULT, tool_call_id=call.id, name=call.name, status="error")


def _message(message: Message, names: dict[str, str]) -> BaseMessage:
    if message.role == "tool":
        id_ = message.tool_call_id or ""
        return ToolMessage(
            message.text,
            tool_call_id=id_,
            name=message.name or names.get(id_),
            status="error" if message.failed else "success",
        )
    named: Any = {"name": message.name} if _NAME.fullmatch(message.name or "") else {}
    if message.role == "assistant":
        calls = [_call(call) for call in message.tool_calls]
        return AIMessage(message.text, tool_calls=calls, **named)
    kind = SystemMessage if message.role == "system" else HumanMessage
    return kind(message.text, **named)


def _call(call: ToolCall) -> dict[str, Any]:
    # As Anthropic's form of a transcript has arguments that are no valid JSON.
    arguments = call.arguments if isinstance(call.arguments, dict) else {"": call.arguments}
    return {"name": call.name, "args": arguments, "id": call.id, "type": "tool_call"}
