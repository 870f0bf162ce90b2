"""The runner in front of the SDK's own: what it covers, and what it leaves as it was."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from integration_tests.support import require

require("agents")

import agents
from agents import (
    Agent,
    GuardrailFunctionOutput,
    RunConfig,
    RunResultStreaming,
    SQLiteSession,
    UserError,
    function_tool,
    input_guardrail,
)
from agents.model_settings import ModelSettings
from agents.models.openai_provider import OpenAIProvider
from agents.run import (
    AgentRunner,
    CallModelData,
    ModelInputData,
    get_default_agent_runner,
    set_default_agent_runner,
)
from agents.tool_context import ToolContext

from caravanserai.openai_agents import Runner, _sdk
from caravanserai.openai_agents._inner_runs import InFront
from caravanserai.openai_agents._kept_session import KeptSession
from integration_tests.api.helpers import forget_everything
from integration_tests.openai_agents.jobs import OFF, TASK, client_of, talk
from integration_tests.openai_agents.scripted import Asked, ScriptedOpenAI

OUTER = [
    {"if_said": "inner task", "say": "inner answer"},
    {"if_tool": "ask_inner", "call": [["ask_inner", {"input": "inner task"}]]},
    {"say": "outer answer"},
]


@pytest.fixture(autouse=True)
def unset() -> Iterator[None]:
    set_default_agent_runner(None)
    yield
    set_default_agent_runner(None)


class Noting(AgentRunner):
    """A runner of the program: notes what runs through it."""

    mine = "mine"

    def __init__(self, behind: AgentRunner | None = None) -> None:
        self.behind = AgentRunner() if behind is None else behind
        self.ran: list[str] = []
        self.given: list[dict[str, Any]] = []

    async def run(self, starting_agent: Any, input: Any, **given: Any) -> Any:  # noqa: A002
        self.ran.append(starting_agent.name)
        self.given.append(given)
        return await self.behind.run(starting_agent, input, **given)

    def run_streamed(self, starting_agent: Any, input: Any, **given: Any) -> Any:  # noqa: A002
        self.ran.append(starting_agent.name)
        self.given.append(given)
        return self.behind.run_streamed(starting_agent, input, **given)


def outer(model: Any, **options: Any) -> Agent[Any]:
    """Return an agent with an agent inside of a tool."""
    inner = Agent(name="inner", model=model)
    tool = inner.as_tool("ask_inner", "Ask.", **options)
    return Agent(name="outer", model=model, tools=[tool])


async def ours(agent: Agent[Any], run_id: str = "here", **given: Any) -> Any:
    return await Runner.run(agent, TASK, run_id=run_id, run_config=OFF, **given)


def work_with(work: Callable[[Any], Any], script: Any = OUTER) -> Any:
    with ScriptedOpenAI(script) as server:
        done = talk(server, work)
        assert server.errors == []
    return done


# ---------------------------------------------------------------------- whose runner runs


def test_it_is_put_there_once() -> None:
    async def work(model: Any) -> None:
        assert type(get_default_agent_runner()) is AgentRunner
        await ours(outer(model))
        front = get_default_agent_runner()
        assert type(front) is InFront
        await ours(outer(model), "again")
        assert get_default_agent_runner() is front

    work_with(work)


def test_a_runner_of_the_program_runs_all_whenever_it_was_set() -> None:
    """Before the first run, between two, and in the middle of one."""
    before, between, amid = Noting(), Noting(), Noting()

    async def work(model: Any) -> None:
        set_default_agent_runner(before)
        await ours(outer(model), "a")
        assert before.ran == ["outer", "inner"]
        assert get_default_agent_runner().mine == "mine"  # type: ignore[attr-defined]
        set_default_agent_runner(between)
        await ours(outer(model), "b")
        assert between.ran == ["outer", "inner"]

        class Setting(agents.RunHooks[Any]):
            async def on_llm_start(self, *args: Any) -> None:
                set_default_agent_runner(amid)

        await ours(outer(model, session=SQLiteSession("s")), "c", hooks=Setting())
        assert amid.ran == ["inner"]
        assert isinstance(amid.given[0]["session"], KeptSession)

    work_with(work)


def test_a_runner_that_has_ours_behind_it_keeps_a_session_once() -> None:
    async def work(model: Any) -> None:
        await ours(outer(model), "a")
        base = Noting()
        set_default_agent_runner(base)
        await ours(outer(model), "b")
        set_default_agent_runner(Noting(get_default_agent_runner()))
        session = SQLiteSession("s")
        await ours(outer(model, session=session), "c")
        given = base.given[-1]["session"]
        assert isinstance(given, KeptSession)
        assert given._session is session
        assert len(await session.get_items()) == 3

    work_with(work)


def test_outside_of_a_run_it_only_passes_on() -> None:
    behind = Noting()

    async def work(model: Any) -> None:
        set_default_agent_runner(behind)
        await ours(outer(model))
        session = SQLiteSession("s")
        agent = Agent(name="alone", model=model)
        options: Any = {"session": session, "run_config": {"tracing_disabled": True}}
        await agents.Runner.run(agent, "inner task", **options)
        async for _ in agents.Runner.run_streamed(agent, "inner task", **options).stream_events():
            pass
        for given in behind.given[-2:]:
            assert given["session"] is session
            assert given["run_config"] is options["run_config"]

    work_with(work)


# ---------------------------------------------------------------------- what keeps its meaning


def test_a_run_config_of_an_inner_agent_keeps_its_meaning() -> None:
    """The model is the one that it names, its settings and filters count, and guardrails judge."""
    judged: list[str] = []

    @input_guardrail
    async def judge(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        judged.append(given)
        return GuardrailFunctionOutput(None, tripwire_triggered=False)

    def shorten(data: CallModelData[Any]) -> ModelInputData:
        return ModelInputData(input=data.model_data.input, instructions="filtered")

    with ScriptedOpenAI(OUTER) as server:

        async def work(model: Any) -> None:
            async with client_of(server.url) as client:
                config = RunConfig(
                    model="named",
                    model_provider=OpenAIProvider(openai_client=client, use_responses=True),
                    model_settings=ModelSettings(temperature=0.5),
                    call_model_input_filter=shorten,
                    input_guardrails=[judge],
                    tracing_disabled=True,
                )
                await ours(outer(model, run_config=config))

        talk(server, work)
        asked = server.bodies[2]
    assert (asked["temperature"], asked["instructions"]) == (0.5, "filtered")
    assert judged == ["inner task"]
    assert [body["model"] for body in server.bodies.values()] == ["scripted", "named", "scripted"]


# ---------------------------------------------------------------------- runs of the program's own


def breaking(model: Any, tool: Any, broken: list[bool]) -> Agent[Any]:
    """Return an agent that calls a tool, and in the same turn one that raises."""

    @function_tool(failure_error_function=None)
    async def break_once() -> str:
        """Break."""
        if broken[0]:
            await ended.wait()
            raise ConnectionError("not now")
        return "whole"

    ended = asyncio.Event()

    class Telling(agents.AgentHooks[Any]):
        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
            ended.set()

    tools = [tool, break_once]
    return Agent(name="outer", model=model, tools=tools, hooks=Telling())


CALLS_BOTH = [("ask_inner", {"input": "inner task"}), ("break_once", {})]


def test_a_guardrail_that_runs_an_agent_is_not_taken_for_the_agent_that_it_guards() -> None:
    """Both ask the same model at once, inside of a tool; each gets its own answer again."""
    judge_asked: list[str] = []

    def decide(asked: Asked) -> Any:
        if "Judge" in asked.instructions:
            return "it is decent"
        if asked.user == "inner task":
            return "inner answer"
        called = {name for name, _ in asked.calls}
        return f"outer: {asked.outputs[0]}" if called else CALLS_BOTH

    with ScriptedOpenAI(decide) as server:

        async def work(model: Any) -> Any:
            judge_agent = Agent(name="judge", instructions="Judge.", model=model)

            @input_guardrail
            async def judge(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
                found = await agents.Runner.run(judge_agent, given, run_config=OFF)
                judge_asked.append(found.final_output)
                return GuardrailFunctionOutput(None, tripwire_triggered=False)

            broken = [True]
            inner = Agent(name="inner", model=model, input_guardrails=[judge])
            agent = breaking(model, inner.as_tool("ask_inner", "Ask."), broken)
            with pytest.raises(UserError, match="not now"):
                await ours(agent)
            broken[0] = False
            forget_everything()
            return (await ours(agent)).final_output

        assert talk(server, work) == "outer: inner answer"
    assert judge_asked == ["it is decent"] * 2


@pytest.mark.parametrize("way", ["async", "sync", "streamed"])
def test_a_tool_that_runs_an_agent_itself_gets_its_recorded_answers(way: str) -> None:
    """Named by a provider of its own, or by none; what the model said is not asked for again."""
    with ScriptedOpenAI(OUTER) as server:

        async def work(model: Any) -> Any:
            calls: list[str] = []
            broken = [True]

            def given(client: Any) -> dict[str, Any]:
                provider = OpenAIProvider(openai_client=client, use_responses=True)
                config = {"model": "named", "model_provider": provider, "tracing_disabled": True}
                return {"run_config": config}

            inner = Agent(name="inner")

            async def ask_async(input: str) -> str:  # noqa: A002
                """Ask."""
                async with client_of(server.url) as client:
                    result = await agents.Runner.run(inner, input, **given(client))
                return fail_once(result)

            async def ask_streamed(input: str) -> str:  # noqa: A002
                """Ask."""
                async with client_of(server.url) as client:
                    result = agents.Runner.run_streamed(inner, input, **given(client))
                    async for _ in result.stream_events():
                        pass
                return fail_once(result)

            def ask_sync(input: str) -> str:  # noqa: A002
                """Ask."""
                loop = asyncio.new_event_loop()
                asyncio.set_event_loop(loop)
                client = client_of(server.url)
                try:
                    return fail_once(agents.Runner.run_sync(inner, input, **given(client)))
                finally:
                    loop.run_until_complete(client.close())
                    loop.close()

            def fail_once(result: Any) -> str:
                calls.append(result.final_output)
                if broken[0]:
                    raise ConnectionError("not now")
                return str(result.final_output)

            asks: Any = {"async": ask_async, "sync": ask_sync, "streamed": ask_streamed}[way]
            tool = function_tool(asks, name_override="ask_inner", failure_error_function=None)
            agent = Agent(name="outer", model=model, tools=[tool])
            with pytest.raises(UserError, match="not now"):
                await ours(agent)
            broken[0] = False
            forget_everything()
            result = await ours(agent)
            assert calls == ["inner answer"] * 2
            return result.final_output

        assert talk(server, work) == "outer answer"
        models = [body["model"] for body in server.bodies.values()]
    assert models == ["scripted", "named", "scripted"]


def test_a_guardrail_judges_anew_by_what_its_model_says_then() -> None:
    """What a guardrail asks a model by name is no part of the run."""
    said = ["it is rude", "it is decent"]

    def decide(asked: Asked) -> Any:
        return said.pop(0) if "Judge" in asked.instructions else "the answer"

    with ScriptedOpenAI(decide) as server:

        async def work(model: Any) -> Any:
            provider = OpenAIProvider(openai_client=model._client, use_responses=True)
            config = RunConfig(model="named", model_provider=provider, tracing_disabled=True)
            judge_agent = Agent(name="judge", instructions="Judge.")

            @input_guardrail(run_in_parallel=False)
            async def judge(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
                found = await agents.Runner.run(judge_agent, given, run_config=config)
                rude = "rude" in found.final_output
                return GuardrailFunctionOutput(None, tripwire_triggered=rude)

            agent = Agent(name="outer", model=model, input_guardrails=[judge])
            with pytest.raises(agents.InputGuardrailTripwireTriggered):
                await ours(agent)
            forget_everything()
            return (await ours(agent)).final_output

        assert talk(server, work) == "the answer"


# ---------------------------------------------------------------------- contract with the SDK


def test_what_the_adapter_uses_of_the_sdks_runner() -> None:
    """0.20 to 0.24: every run comes to the default runner, an agent in a tool with its config."""
    noting = Noting()

    async def work(model: Any) -> None:
        set_default_agent_runner(noting)
        agent = outer(model, session=SQLiteSession("s"))
        streamed = outer(model, on_stream=lambda event: None)
        await agents.Runner.run(agent, TASK, run_config=OFF)
        await agents.Runner.run(streamed, TASK, run_config=OFF)
        assert noting.ran == ["outer", "inner"] * 2
        assert noting.given[1]["session"].session_id == "s"
        assert [given["run_config"] for given in noting.given] == [OFF] * 4

    work_with(work)
    assert "run_config" in ToolContext.__init__.__code__.co_varnames
    assert _sdk.config_of({"model": "m"})[0].model == "m"
    assert _sdk.config_of(None)[1]
    assert not _sdk.config_of(OFF)[1]


def test_a_provider_that_was_made_for_a_run_is_closed_as_the_sdk_does() -> None:
    """Since 0.24 the SDK closes the provider of a run that was given none."""
    closed: list[Any] = []

    class Provider(OpenAIProvider):
        async def aclose(self) -> None:
            closed.append(self)

    async def work(model: Any) -> None:
        config = RunConfig(model_provider=Provider(), tracing_disabled=True)
        result = agents.Runner.run_streamed(Agent(name="a", model=model), TASK, run_config=config)
        _sdk.close_provider_after(result, config)
        async for _ in result.stream_events():
            pass
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await _sdk.close_provider(config)

    work_with(work)
    assert len(closed) == (2 if hasattr(RunResultStreaming, _sdk._AFTER) else 0)
