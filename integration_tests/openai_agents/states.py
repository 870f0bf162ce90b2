"""Run states as the SDK gives them, of each turn of some runs; the model is a list of answers.

`golden/states/` holds those of both ends of the supported versions, for tests that read them
without the SDK. To write them anew: python -m integration_tests.openai_agents.states
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agents import Agent, RunConfig, RunHooks, Runner, Usage, function_tool
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.tool import ToolOutputImage
from openai.types.responses import Response, ResponseCompletedEvent, ResponseOutputItem
from pydantic import TypeAdapter

FOLDER = Path(__file__).parent / "golden" / "states"
VERSIONS = ("0.20", "0.24")

_ITEM: TypeAdapter[Any] = TypeAdapter(ResponseOutputItem)

PIXEL = "data:image/png;base64,AAAA"


class Listed(Model):
    """A model that gives one answer after the other."""

    def __init__(self, *answers: list[dict[str, Any]]) -> None:
        self._answers = list(answers)
        self._given = 0

    def _next(self) -> list[Any]:
        self._given += 1
        return [_ITEM.validate_python(item) for item in self._answers[self._given - 1]]

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        usage = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
        return ModelResponse(output=self._next(), usage=usage, response_id=f"resp_{self._given}")

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        details = {"cached_tokens": 0, "cache_write_tokens": 0}
        usage = {
            "input_tokens": 10,
            "output_tokens": 5,
            "total_tokens": 15,
            "input_tokens_details": details,
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        response = Response.model_validate(
            {
                "id": f"resp_{self._given}",
                "created_at": 0,
                "model": "m",
                "tools": [],
                "object": "response",
                "tool_choice": "auto",
                "parallel_tool_calls": True,
                "output": self._next(),
                "usage": usage,
            }
        )
        yield ResponseCompletedEvent(
            response=response, type="response.completed", sequence_number=0
        )


def call(name: str, id_: str, **arguments: Any) -> dict[str, Any]:
    written = json.dumps(arguments)
    return {"type": "function_call", "name": name, "arguments": written, "call_id": id_}


def says(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "type": "message",
        "id": "msg",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


_THINKS = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm."}]}


def _tool(name: str, result: Any, **options: Any) -> Any:
    def returns() -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    tool = function_tool(returns, name_override=name, description_override="", **options)
    tool.params_json_schema = {"type": "object", "properties": {}}
    tool.strict_json_schema = False
    return tool


def refund() -> tuple[Agent[Any], Any]:
    """A look-up, two tools at once, a hand-over, a tool that needs an approval."""
    model = Listed(
        [_THINKS, call("lookup_order", "c1", order_id="A17")],
        [
            _THINKS,
            call("get_policy", "c2", topic="refund"),
            call("shipping_quote", "c3", order_id="A17"),
        ],
        [call("transfer_to_refund_agent", "c4")],
        [call("issue_refund", "c5", order_id="A17", amount=40)],
        [says("Refund of 40 for order A17 is done.")],
    )
    issue = _tool("issue_refund", "refunded 40", needs_approval=True)
    refunds = Agent(name="refund agent", model=model, tools=[issue])
    tools = [
        _tool("lookup_order", "order A17: 40 EUR, delivered"),
        _tool("get_policy", "refunds up to 50 EUR need approval"),
        _tool("shipping_quote", "5 EUR"),
    ]
    triage = Agent(name="triage agent", model=model, tools=tools, handoffs=[refunds])
    return triage, "Refund order A17 please."


def rich() -> tuple[Agent[Any], Any]:
    """What else an answer may hold: tools of the provider, images, an error, an agent as a tool."""
    model = Listed(
        [
            {
                "type": "web_search_call",
                "id": "ws",
                "status": "completed",
                "action": {"type": "search", "query": "caravans"},
            },
            {"type": "mcp_list_tools", "id": "ml", "server_label": "files", "tools": []},
            {
                "type": "mcp_call",
                "id": "mc",
                "server_label": "files",
                "name": "read",
                "arguments": '{"path": "a.txt"}',
                "output": "hello",
            },
            {
                "type": "image_generation_call",
                "id": "ig",
                "status": "completed",
                "result": "AAAA",
            },
            says("Looking."),
            call("photo", "c1"),
            call("boom", "c2"),
        ],
        [call("ask_expert", "c3", input="how deep?")],
        [says("All done.")],
    )
    expert = Agent(name="expert", model=Listed([says("Very deep.")]))
    tools = [
        _tool("photo", ToolOutputImage(image_url=PIXEL)),
        _tool("boom", ValueError("broken"), failure_error_function=lambda *_: "It is broken."),
        expert.as_tool("ask_expert", "Ask."),
    ]
    shown = {"type": "input_image", "image_url": PIXEL, "detail": "auto"}
    content = [{"type": "input_text", "text": "Look at this."}, shown]
    agent = Agent(name="rich agent", model=model, tools=tools)
    return agent, [{"role": "user", "content": content}]


def nested() -> tuple[Agent[Any], Any]:
    """An agent inside a tool that wants an approval itself."""
    inner = Listed([call("reserve", "d1", item="chair")], [says("Reserved.")])
    reserve = _tool("reserve", "one put aside", needs_approval=True)
    expert = Agent(name="expert", model=inner, tools=[reserve])
    outer = Listed([call("ask_expert", "c1", input="a chair?")], [says("There is one.")])
    asking = expert.as_tool("ask_expert", "Ask.")
    return Agent(name="shop", model=outer, tools=[asking]), "Is there a chair?"


CASES: dict[str, Callable[[], tuple[Agent[Any], Any]]] = {
    "refund": refund,
    "rich": rich,
    "nested": nested,
}


class _Snapshots(RunHooks[Any]):
    """Takes the run state when a model of the run itself is asked, so at the end of each turn."""

    def __init__(self, agents: set[str]) -> None:
        self.agents = agents
        self.result: Any = None
        self.taken: list[dict[str, Any]] = []

    async def on_llm_start(self, context: Any, agent: Any, *args: Any) -> None:
        if agent.name in self.agents:
            state = self.result.to_state().to_json()
            state["current_turn"] -= 1
            self.taken.append(state)


async def _record(agent: Agent[Any], given: Any, *, approve: bool) -> list[dict[str, Any]]:
    hooks = _Snapshots({agent.name, *(one.name for one in agent.handoffs)})
    config = RunConfig(tracing_disabled=True)
    while True:
        hooks.result = Runner.run_streamed(agent, given, hooks=hooks, run_config=config)
        async for _ in hooks.result.stream_events():
            pass
        given = hooks.result.to_state()
        hooks.taken.append(given.to_json())
        if not hooks.result.interruptions:
            return hooks.taken
        for item in hooks.result.interruptions:
            if approve:
                given.approve(item)
            else:
                given.reject(item, rejection_message="Not today.")


def record(case: str, *, approve: bool = True) -> list[dict[str, Any]]:
    """Return the states of a run: before its first turn, and behind each turn and pause."""
    agent, given = CASES[case]()
    return asyncio.run(_record(agent, given, approve=approve))


def waypoint(run: dict[str, Any], given: Any) -> dict[str, Any]:
    """Return the state of a waypoint that holds a run state."""
    return {"given": given, "run": run, "counts": {"": len(run["model_responses"])}}


def golden(release: str, case: str) -> list[dict[str, Any]]:
    """Return the states of a case as that release of the SDK gave them."""
    text = (FOLDER / f"{release}-{case}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _write() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    release = ".".join(version("openai-agents").split(".")[:2])
    for case in CASES:
        path = FOLDER / f"{release}-{case}.jsonl"
        path.write_text("".join(json.dumps(state) + "\n" for state in record(case)))


if __name__ == "__main__":
    _write()
