"""Answers of models: recorded, given again, streamed again, exactly."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Model, ModelResponse, Usage, function_tool
from openai.types.responses import (
    ResponseFileSearchToolCall,
    ResponseFunctionToolCall,
    ResponseFunctionWebSearch,
    ResponseOutputMessage,
    ResponseReasoningItem,
)
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

from caravanserai.openai_agents import Runner, _answers, _sdk
from integration_tests.openai_agents.paused import QUIET, agent_of, model_of, says, start
from integration_tests.openai_agents.test_versions import Stopping, Stops

ITEMS: dict[str, Any] = {
    "a message": says("Hello – «ok» \u2028 \x07"),
    "a refusal": ResponseOutputMessage.model_validate(
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "refusal", "refusal": "I will not."}],
        }
    ),
    "annotations": ResponseOutputMessage.model_validate(
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [
                {
                    "type": "output_text",
                    "text": "See there.",
                    "annotations": [
                        {
                            "type": "url_citation",
                            "url": "https://example.org",
                            "start_index": 0,
                            "end_index": 3,
                            "title": "There",
                        }
                    ],
                }
            ],
        }
    ),
    "a call": ResponseFunctionToolCall(
        type="function_call", name="look", call_id="c1", arguments='{"a": 1}', id="fc_1"
    ),
    "a call with what its provider adds": ResponseFunctionToolCall.model_validate(
        {
            "type": "function_call",
            "name": "look",
            "call_id": "c1",
            "arguments": "{}",
            "provider_data": {"model": "gemini", "thought_signature": "c2ln"},
        }
    ),
    "reasoning": ResponseReasoningItem.model_validate(
        {"id": "rs", "type": "reasoning", "summary": [], "encrypted_content": "b64=="}
    ),
    "a web search": ResponseFunctionWebSearch.model_validate(
        {
            "id": "ws",
            "type": "web_search_call",
            "status": "completed",
            "action": {"type": "search", "query": "caravans"},
        }
    ),
    "a file search": ResponseFileSearchToolCall.model_validate(
        {
            "id": "fs",
            "type": "file_search_call",
            "status": "completed",
            "queries": ["q"],
            "results": [{"text": "t", "score": 0.5}],
        }
    ),
    "an item of no class": {"type": "function_call", "name": "x", "call_id": "c", "arguments": ""},
}

USAGE = Usage(
    requests=1,
    input_tokens=11,
    output_tokens=7,
    total_tokens=18,
    input_tokens_details=InputTokensDetails.model_validate(
        {"cached_tokens": 3, "cache_write_tokens": 0}
    ),
    output_tokens_details=OutputTokensDetails(reasoning_tokens=2),
)


@pytest.mark.parametrize("name", ITEMS)
def test_an_answer_is_given_again_as_it_was(name: str) -> None:
    """With its class, the fields that were set, and those that the class does not know."""
    before = ModelResponse([ITEMS[name]], USAGE, "resp_1", "req_1")

    after = _answers.from_data(json.loads(json.dumps(_answers.to_data(before))))

    item, again = before.output[0], after.output[0]
    assert type(again) is type(item)
    assert again == item
    if not isinstance(item, dict):
        assert again.model_dump(exclude_unset=True) == item.model_dump(exclude_unset=True)
        assert again.model_extra == item.model_extra
    assert after.to_input_items() == before.to_input_items()
    assert (after.usage, after.response_id, after.request_id) == (USAGE, "resp_1", "req_1")


def test_a_name_in_a_file_is_no_way_to_a_class() -> None:
    """Only the SDK's own kinds of items are looked up; anything else is read as one of them."""
    data = _answers.to_data(ModelResponse([ITEMS["a call"]], USAGE, None, None))
    data["classes"] = ["os.system"]

    assert type(_answers.from_data(data).output[0]) is ResponseFunctionToolCall


@pytest.mark.parametrize("name", [name for name in ITEMS if name != "an item of no class"])
def test_an_answer_is_streamed_again_as_a_whole(name: str) -> None:
    """Begun, each item added and done, texts in one piece, completed; numbered without a gap."""
    answer = ModelResponse([ITEMS[name], says("Bye.")], USAGE, "resp_1", "req_1")

    events: list[Any] = list(_answers.events(answer))

    kinds = [event.type for event in events]
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.output_item.added") == 2
    assert kinds.count("response.output_item.done") == 2
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert deltas[-1] == "Bye."
    again = _answers.of_event(events[-1].response, [])
    assert again.output == answer.output
    assert (again.usage, again.response_id, again.request_id) == (USAGE, "resp_1", "req_1")


def test_a_stream_whose_end_is_empty_keeps_the_items_before_it() -> None:
    """Some providers leave the last event empty."""
    answer = ModelResponse([says("Hello.")], USAGE, "r", None)
    last: Any = list(_answers.events(answer))[-1]
    last.response.output = []

    assert _answers.of_event(last.response, [says("Hello.")]).output == [says("Hello.")]


class Gemini(Model):
    """A model whose calls carry a signature that the next request has to bring back."""

    def __init__(self) -> None:
        self.asked = 0
        self.signatures: list[Any] = []

    async def get_response(self, *args: Any, **_: Any) -> Any:
        self.asked += 1
        items = args[1] if isinstance(args[1], list) else []
        calls = [item for item in items if item.get("type") == "function_call"]
        self.signatures = [item.get("provider_data", {}).get("thought_signature") for item in calls]
        output = says("Done.") if calls else ITEMS["a call with what its provider adds"]
        return ModelResponse([output], Usage(), None, None)

    def stream_response(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError


def test_what_a_provider_adds_to_a_call_reaches_it_again_after_a_crash(
    tmp_path: Path,
) -> None:
    done: list[str] = []

    @function_tool
    def look() -> str:
        """Look."""
        done.append("look")
        return "seen"

    async def start(model: Model, **more: Any) -> Any:
        agent = Agent(name="a", instructions="Look.", model=model, tools=[look])
        given: dict[str, Any] = {"run_id": "g", "store": tmp_path, "run_config": QUIET, **more}
        return await Runner.run(agent, "Look.", **given)

    with pytest.raises(Stops):
        asyncio.run(start(Gemini(), hooks=Stopping(1)))
    model = Gemini()
    result = asyncio.run(start(model))

    assert result.final_output == "Done."
    assert (done, model.asked, model.signatures) == (["look"], 1, ["c2ln"])


def test_a_request_whose_provider_counts_no_tokens_is_counted_again() -> None:
    """Chat Completions streams say nothing of usage unless they are asked to."""
    answer = ModelResponse([says("Hello.")], Usage(requests=1), None, None)

    last: Any = list(_answers.events(answer))[-1]

    assert last.response.usage is None
    assert _answers.of_event(last.response, []).usage.requests == 1


def test_a_run_state_is_what_the_sdk_writes_without_the_context(tmp_path: Path) -> None:
    """Each item is turned into JSON once and not for each list; nothing of it may differ."""
    agent = agent_of(model_of(), lambda _: None)
    result = start(agent, tmp_path, context={"key": "of the program"})
    state = result.to_state()
    whole = state.to_json()

    ours = _sdk.state_json(state)

    whole["context"]["context"] = ours["context"]["context"]
    whole["context"]["context_meta"] = ours["context"].get("context_meta")
    ours["context"].setdefault("context_meta", None)
    assert ours == whole
    assert "of the program" not in str(ours)
    assert len(ours["generated_items"]) == 4
