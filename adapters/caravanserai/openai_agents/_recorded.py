"""The result of a run that is finished or waits for a person, as it was; no model is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents import (
    AgentOutputSchema,
    AgentUpdatedStreamEvent,
    ItemHelpers,
    MessageOutputItem,
    RawResponsesStreamEvent,
    RunItemStreamEvent,
    RunResult,
    RunResultStreaming,
)
from agents.agent_output import AgentOutputSchemaBase

from caravanserai.openai_agents import _answers, _sdk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from agents import Agent, RunState

    from caravanserai.openai_agents._job import Recorded


def output_again(state: RunState[Any]) -> Any:
    """Return the final output of a state from its last message, as the SDK reads it there."""
    items = list(state._session_items)
    messages = [item for item in items if isinstance(item, MessageOutputItem)]
    text = ItemHelpers.text_message_output(messages[-1]) if messages else ""
    schema = _schema(state._current_agent)
    if schema is None or schema.is_plain_text():
        return text
    return schema.validate_json(text)


def _schema(agent: Agent[Any] | None) -> AgentOutputSchemaBase | None:
    kind = None if agent is None else agent.output_type
    if kind is None or kind is str:
        return None
    return kind if isinstance(kind, AgentOutputSchemaBase) else AgentOutputSchema(kind)


def plain(recorded: Recorded, max_turns: int | None) -> RunResult:
    """Return where a run stands as `Runner.run` gives it."""
    result: RunResult = _sdk.result_of(
        RunResult, recorded.state, recorded.output, max_turns=max_turns
    )
    result.to_state = recorded.again  # type: ignore[method-assign]
    return result


def streaming(recorded: Recorded, max_turns: int | None) -> RunResultStreaming:
    """Return where a run stands as a streamed run, whose events tell its last answer."""
    result: RunResultStreaming = _sdk.result_of(
        RunResultStreaming, recorded.state, recorded.output, max_turns=max_turns
    )

    async def stream_events() -> AsyncIterator[Any]:
        yield AgentUpdatedStreamEvent(new_agent=result.current_agent)
        if result.raw_responses and not result.interruptions:
            for event in _answers.events(result.raw_responses[-1]):
                yield RawResponsesStreamEvent(data=event)
        last = result.new_items[-1] if result.new_items else None
        if isinstance(last, MessageOutputItem):
            yield RunItemStreamEvent(name="message_output_created", item=last)

    result.stream_events = stream_events  # type: ignore[method-assign]
    result.to_state = recorded.again  # type: ignore[method-assign]
    return result
