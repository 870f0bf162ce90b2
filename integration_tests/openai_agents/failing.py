"""Runs that end with an exception of the SDK, each in another way, and what that tells of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import agents
from agents import (
    Agent,
    AgentsException,
    GuardrailFunctionOutput,
    ModelBehaviorError,
    RunConfig,
    SQLiteSession,
    ToolGuardrailFunctionOutput,
    UserError,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
    tool_input_guardrail,
    tool_output_guardrail,
)
from agents.extensions.handoff_filters import remove_all_tools
from agents.usage import serialize_usage
from pydantic import BaseModel

from caravanserai.openai_agents import Runner
from integration_tests.openai_agents import jobs

Build = Callable[[Any], tuple[Agent[Any], dict[str, Any]]]
"""Makes an agent with a model, and what else its runner is given; `guards` of the whole run."""

_LOOK: Any = {"call": [["look", {"what": "A17"}]]}
_MANY: Any = {"call": [["ship", {"what": "A17"}], ["look", {"what": "B2"}], ["fail", {}]]}
_HAND: Any = {"call": [["transfer_to_second", {}]]}
_END: Any = {"say": "Done: {last}."}


async def look_up(what: str) -> str:
    """Look something up."""
    return f"{what}: there"


@function_tool
async def ship(what: str) -> str:
    """Ship something."""
    return f"{what}: shipped"


@function_tool(failure_error_function=None)
async def fail() -> str:
    """Fail."""
    raise ConnectionError("not now")


look = function_tool(look_up, name_override="look")


def _one(model: Any, **options: Any) -> Agent[Any]:
    return Agent(name="one", model=model, **{"tools": [look, ship, fail], **options})


# ---------------------------------------------------------------------- tools, turns, models


def a_tool(model: Any) -> Any:
    return _one(model), {}


def a_tool_at_once(model: Any) -> Any:
    return _one(model, tools=[ship, fail, look]), {}


def a_tool_with_a_session(model: Any) -> Any:
    return _one(model), {"session": SQLiteSession("s")}


def a_tool_after_a_handoff(model: Any) -> Any:
    second = Agent(name="second", model=model, tools=[ship, fail, look])
    return _one(model, tools=[], handoffs=[second]), {}


def a_tool_after_a_handoff_with_a_filter(model: Any) -> Any:
    second = Agent(name="second", model=model, tools=[ship, fail, look])
    to = handoff(second, input_filter=remove_all_tools)
    return _one(model, tools=[look], handoffs=[to]), {}


def a_tool_of_an_agent_in_a_tool(model: Any) -> Any:
    second = Agent(name="second", model=model, tools=[fail])
    ask = second.as_tool("ask_second", "Ask.", failure_error_function=None)
    return _one(model, tools=[ask]), {}


def too_few_turns(model: Any) -> Any:
    return _one(model), {"max_turns": 1}


def a_tool_that_there_is_not(model: Any) -> Any:
    return _one(model, tools=[look, ship]), {}


class Price(BaseModel):
    """What no answer of the script is."""

    amount: int


def an_output_of_another_form(model: Any) -> Any:
    return _one(model, output_type=Price), {}


def a_model(model: Any) -> Any:
    """Its second answer makes no sense."""
    get_response, stream_response = model.get_response, model.stream_response

    def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        items = kwargs["input"] if "input" in kwargs else args[1]
        if any(item.get("type") == "function_call_output" for item in items):
            raise ModelBehaviorError("nonsense")

    async def response(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        return await get_response(*args, **kwargs)

    async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        check(args, kwargs)
        async for event in stream_response(*args, **kwargs):
            yield event

    model.get_response, model.stream_response = response, stream
    return _one(model), {}


# ---------------------------------------------------------------------- guardrails


@input_guardrail
async def fine(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput("fine", tripwire_triggered=False)


@input_guardrail(run_in_parallel=False)
async def before(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput({"seen": "it"}, tripwire_triggered=True)


@input_guardrail
async def beside(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput({"seen": "it"}, tripwire_triggered=True)


@input_guardrail
async def broken(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
    raise UserError("broken")


@output_guardrail
async def good(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput("good", tripwire_triggered=False)


@output_guardrail
async def bad(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput({"seen": "it"}, tripwire_triggered=True)


@tool_input_guardrail
def into(data: Any) -> ToolGuardrailFunctionOutput:
    if "B2" in data.context.tool_arguments:
        return ToolGuardrailFunctionOutput.raise_exception({"seen": "B2"})
    return ToolGuardrailFunctionOutput.allow("fine")


@tool_output_guardrail
def out(data: Any) -> ToolGuardrailFunctionOutput:
    if "B2" in data.output:
        return ToolGuardrailFunctionOutput.raise_exception({"seen": "B2"})
    return ToolGuardrailFunctionOutput.allow("fine")


def an_input_refused_before_the_model(model: Any) -> Any:
    return _one(model, input_guardrails=[fine, before]), {}


def an_input_refused_beside_the_model(model: Any) -> Any:
    return _one(model, input_guardrails=[fine, beside]), {}


def an_input_refused_for_the_whole_run(model: Any) -> Any:
    return _one(model), {"guards": [before]}


def an_output_refused(model: Any) -> Any:
    return _one(model, output_guardrails=[good, bad]), {}


def a_call_refused(model: Any) -> Any:
    guarded = function_tool(look_up, name_override="look", tool_input_guardrails=[into])
    return _one(model, tools=[guarded, ship, fail]), {}


def a_result_refused(model: Any) -> Any:
    guarded = function_tool(look_up, name_override="look", tool_output_guardrails=[out])
    return _one(model, tools=[guarded, ship, fail]), {}


def a_guardrail_that_fails(model: Any) -> Any:
    return _one(model, input_guardrails=[fine, broken]), {}


_CALLS = [_LOOK, _MANY, _END]
_SCRIPTS: dict[Build, Any] = {
    a_tool: _CALLS,
    a_tool_at_once: [_MANY],
    a_tool_with_a_session: _CALLS,
    a_tool_after_a_handoff: [_MANY, _HAND],
    a_tool_after_a_handoff_with_a_filter: [{**_MANY, "if_tool": "fail"}, _LOOK, _HAND],
    a_tool_of_an_agent_in_a_tool: [
        {"call": [["ask_second", {"input": "go"}]]},
        {"call": [["fail", {}]]},
    ],
    too_few_turns: _CALLS,
    a_tool_that_there_is_not: lambda asked: [_LOOK, _MANY][len(asked.calls)]["call"],
    an_output_of_another_form: [_LOOK, _END],
    a_model: _CALLS,
    an_input_refused_before_the_model: _CALLS,
    an_input_refused_beside_the_model: _CALLS,
    an_input_refused_for_the_whole_run: _CALLS,
    an_output_refused: [_LOOK, _END],
    a_call_refused: _CALLS,
    a_result_refused: _CALLS,
    a_guardrail_that_fails: _CALLS,
}
SCRIPTS: dict[str, Any] = {build.__name__: script for build, script in _SCRIPTS.items()}
BUILDS: dict[str, Build] = {build.__name__: build for build in _SCRIPTS}


# ---------------------------------------------------------------------- what they tell


async def raised(name: str, url: str, *, streams: bool, given: Any, run_id: str | None) -> Any:
    """Return what the exception tells that one start ends with.

    Args:
        name: of what fails.
        url: of the scripted model.
        streams: with `run_streamed`.
        given: the input.
        run_id: of the run; None: with the SDK's own runner.
    """
    async with jobs.client_of(url) as client:
        agent, options = BUILDS[name](jobs.model_of(client))
        guards = options.pop("guards", None)
        options["run_config"] = RunConfig(tracing_disabled=True, input_guardrails=guards)
        runner: Any = agents.Runner if run_id is None else Runner
        options |= {} if run_id is None else {"run_id": run_id}
        try:
            if streams:
                result = runner.run_streamed(agent, given, **options)
                async for _ in result.stream_events():
                    pass
            else:
                await runner.run(agent, given, **options)
        except AgentsException as error:
            return told(error)
        raise AssertionError("it does not fail")


def run(url: str, options: dict[str, Any]) -> int:
    """Run it once, as a process that may be killed; see `jobs.run`."""
    jobs.begin(options)
    streams = options.get("way") == "stream"
    work = raised(options["app"], url, streams=streams, given=jobs.TASK, run_id=jobs.RUN)
    Path("result.json").write_text(json.dumps(asyncio.run(work)))
    return 0


def told(error: AgentsException) -> dict[str, Any]:
    """Return what an exception tells, as JSON; of input guardrails in no order: chance has it."""
    found = error.run_data
    told = {"error": [type(error).__name__, str(error)]}
    if found is None:  # as the SDK has it where it keeps what the model said to itself
        return told
    return told | {
        "input": found.input,
        "items": [[item.type, item.agent.name, _plain(item.raw_item)] for item in found.new_items],
        "outputs": [repr(getattr(item, "output", None)) for item in found.new_items],
        "answers": [
            [answer.response_id, _plain(answer.output), serialize_usage(answer.usage)]
            for answer in found.raw_responses
        ],
        "agent": found.last_agent.name,
        "requests": found.context_wrapper.usage.requests,
        "input guardrails": sorted(map(_judged, found.input_guardrail_results)),
        "output guardrails": list(map(_judged, found.output_guardrail_results)),
        "tool input guardrails": list(map(_judged, found.tool_input_guardrail_results)),
        "tool output guardrails": list(map(_judged, found.tool_output_guardrail_results)),
    }


def _judged(result: Any) -> list[str]:
    return [result.guardrail.get_name(), repr(result.output)]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value
