"""`Runner`: the SDK's signatures, and what run_id adds; errors, guardrails, context, many runs."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agents
import pytest

from integration_tests.support import require

require("agents")

from agents import (
    Agent,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    ModelBehaviorError,
    OpenAIProvider,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    StopAtTools,
    function_tool,
    set_trace_processors,
    set_tracing_disabled,
    trace,
)
from agents.tool_context import ToolContext
from agents.tracing import TracingProcessor
from openai import AsyncOpenAI, InternalServerError

from caravanserai import InputChanged, answer, list_runs
from caravanserai.openai_agents import Runner
from integration_tests.api.helpers import forget_everything
from integration_tests.openai_agents import apps
from integration_tests.openai_agents.apps import KINDS, NESTED, REFUND, STRUCTURED, THREE, Verdict
from integration_tests.openai_agents.jobs import TASK, client_of, talk
from integration_tests.openai_agents.life import Life
from integration_tests.openai_agents.scripted import Refused, ScriptedOpenAI, by_rules

Start = Callable[..., Life]
OFF = RunConfig(tracing_disabled=True)


async def start(model: Any, given: Any = TASK, **options: Any) -> Any:
    """Start the nested run in this process."""
    given_options = {"run_id": "here", "run_config": OFF, **options}
    return await Runner.run(apps.nested(model), given, **given_options)


def lines_outside() -> list[str]:
    path = Path("outside.txt")
    return path.read_text().splitlines() if path.exists() else []


def forget_outside() -> None:
    Path("outside.txt").unlink(missing_ok=True)


def outside(line: str) -> int:
    return lines_outside().count(line)


# ---------------------------------------------------------------------- the line


@pytest.mark.parametrize("name", ["run", "run_sync", "run_streamed"])
def test_the_signatures_are_the_sdks(name: str) -> None:
    """Each parameter of the SDK is there, under its name, with its default; ours are added."""
    theirs = inspect.signature(getattr(agents.Runner, name)).parameters
    ours = inspect.signature(getattr(Runner, name)).parameters
    assert {p: theirs[p].default for p in theirs} == {p: ours[p].default for p in theirs}
    added = set(ours) - set(theirs)
    assert {"run_id", "store", "again", "takeover", "on_uncertain"} <= added


def test_without_a_run_id_it_says_what_to_write() -> None:
    agent = Agent(name="a")
    with pytest.raises(TypeError, match=r'run_id="order-a17"'):
        Runner.run_sync(agent, TASK)
    with pytest.raises(TypeError, match="run_id="):
        asyncio.run(Runner.run(agent, TASK))
    with pytest.raises(TypeError, match="run_id="):
        Runner.run_streamed(agent, TASK)
    assert list_runs() == []


def test_a_finished_run_returns_what_it_came_to() -> None:
    """The SDK's own type, with all that it has; nobody is asked, nothing runs."""
    with ScriptedOpenAI(NESTED) as server:

        async def work(model: Any) -> None:
            first = await start(model)
            forget_everything()
            again = await start(model)
            assert type(again) is type(first) is agents.RunResult
            assert again.final_output == first.final_output == "Done, kept."
            assert again.to_input_list() == first.to_input_list()
            assert [i.type for i in again.new_items] == [i.type for i in first.new_items]
            assert [r.response_id for r in again.raw_responses] == [
                r.response_id for r in first.raw_responses
            ]
            assert again.last_agent.name == "shop"
            assert again.last_response_id == first.last_response_id
            assert again.context_wrapper.usage.total_tokens == 75
            assert again.interruptions == []
            assert again.final_output_as(str) == "Done, kept."
            assert str(again)

        talk(server, work)
        assert len(server.answered) == 5


def test_a_structured_output_comes_back_as_its_type() -> None:
    with ScriptedOpenAI(STRUCTURED) as server:

        async def work(model: Any) -> None:
            async def once() -> Any:
                agent = apps.refund(model, structured=True)
                return await Runner.run(agent, TASK, run_id="here", run_config=OFF)

            await once()
            answer("here", True)
            first = await once()
            forget_everything()
            again = await once()
            expected = Verdict(order_id="A17", amount=40)
            assert first.final_output == again.final_output == expected

        talk(server, work)
        assert len(server.answered) == 5


@pytest.mark.parametrize("tool", ["a_model", "a_dict", "a_dataclass", "a_number", "parts"])
def test_an_output_that_is_what_a_tool_returned(tool: str) -> None:
    """`tool_use_behavior` makes a tool's result the output; it comes back as it was."""
    with ScriptedOpenAI([{"call": [[tool, {}]]}]) as server:

        async def work(model: Any) -> None:
            async def once() -> Any:
                agent = apps.kinds(model, {tool: apps.RESULTS[tool]})
                agent.tool_use_behavior = StopAtTools(stop_at_tool_names=[tool])
                return await Runner.run(agent, TASK, run_id="here", run_config=OFF)

            first = (await once()).final_output
            forget_everything()
            again = (await once()).final_output
            assert (type(again), again) == (type(first), first)

        talk(server, work)
        assert len(server.answered) == 1
        assert outside(f"end {tool}") == 1


def test_another_input_is_refused_and_both_are_shown() -> None:
    """Of a run that is finished and of one that waits; again=True begins anew."""
    with ScriptedOpenAI(NESTED) as server:

        async def work(model: Any) -> None:
            await start(model)
            other = "Refund order B18 please."
            for given in (other, [{"role": "user", "content": TASK}]):
                with pytest.raises(InputChanged) as refused:
                    await start(model, given)
                assert TASK in str(refused.value)
            assert other in str(await _refusal(model, other))
            before = len(server.answered)
            result = await start(model, other, again=True)
            assert result.final_output == "Done, kept."
            assert len(server.answered) == before + 5
            with pytest.raises(InputChanged):
                await start(model)

        talk(server, work)


async def _refusal(model: Any, given: Any) -> Exception:
    with pytest.raises(InputChanged) as refused:
        await start(model, given)
    return refused.value


def test_an_input_of_items() -> None:
    """Also the list that another run left: the SDK's way to go on with a conversation."""
    with ScriptedOpenAI(NESTED) as server:

        async def work(model: Any) -> None:
            first = await start(model)
            given = [*first.to_input_list(), {"role": "user", "content": "And now?"}]
            for _ in range(2):
                second = await start(model, given, run_id="second")
            assert second.final_output == "Done, kept."
            assert second.to_input_list()[: len(given)] == given

        talk(server, work)
        assert len(server.answered) == 10


def test_from_code_that_is_not_async() -> None:
    """In the thread's own loop, which stays open, as the SDK has it: clients live in it."""
    with ScriptedOpenAI(NESTED) as server:
        client = client_of(server.url)
        model = agents.OpenAIResponsesModel("scripted", client)
        for _ in range(2):
            agent = apps.nested(model)
            result = Runner.run_sync(agent, TASK, run_id="here", run_config=OFF)
            assert result.final_output == "Done, kept."
        assert len(server.answered) == 5

        async def inside() -> None:
            with pytest.raises(RuntimeError, match="event loop"):
                Runner.run_sync(agent, TASK, run_id="other")
            await client.close()

        loop = asyncio.get_event_loop_policy().get_event_loop()
        loop.run_until_complete(inside())
        loop.close()


def test_a_model_by_its_name_and_a_provider() -> None:
    """The model that a `model_provider` gives is recorded like one that is handed over."""
    with ScriptedOpenAI(NESTED) as server:

        async def work(_: Any) -> None:
            async with client_of(server.url) as client:
                for name in ("one", None):
                    config = RunConfig(
                        tracing_disabled=True,
                        model_provider=OpenAIProvider(openai_client=client),
                        model=name,
                    )
                    for _ in range(2):
                        given = {"run_id": f"by {name}", "run_config": config}
                        result = await Runner.run(apps.nested("scripted"), TASK, **given)
                    assert result.final_output == "Done, kept."

        talk(server, work)
        assert len(server.answered) == 10


# ---------------------------------------------------------------------- what can go wrong


@pytest.mark.parametrize("way", ["run", "stream"])
def test_the_third_of_three_tools_fails(life: Start, way: str) -> None:
    """Its error comes through; at the next start it runs again, the two others do not."""
    one = life("three", way=way)
    (one.folder / "broken").touch()
    ended = one.start()
    assert ended.code == 1
    assert "the third is not there" in ended.out
    assert [run.status for run in list_runs(store=one.store)] == ["failed"]
    (one.folder / "broken").unlink()
    assert one.finished()["final"] == "All called."
    assert [one.outside()[f"begin {n}"] for n in ("first", "second", "third")] == [1, 1, 2]
    assert one.asked() == 2


def test_turns_run_out() -> None:
    """The SDK's error; with more of them the same line goes on, and nothing is done again."""
    with ScriptedOpenAI(NESTED) as server:

        async def work(model: Any) -> None:
            for turns in (1, 2):
                with pytest.raises(MaxTurnsExceeded):
                    await start(model, max_turns=turns)
            assert (await start(model, max_turns=3)).final_output == "Done, kept."

        talk(server, work)
        assert len(server.answered) == 5
        assert outside("end check_stock chair") == outside("end write_down") == 1


@pytest.mark.parametrize("way", ["run", "stream"])
@pytest.mark.parametrize(
    "places", [["begin lookup_order"] * 4, ["between", "hook tool get_policy"]]
)
def test_a_crash_uses_up_no_turn(life: Start, places: list[str], way: str) -> None:
    """Five are needed and five are given, however often the process dies."""
    one = life("refund", way=way, more={"max_turns": 5})
    for place in places:
        one.killed(place)
    assert one.finished()["final"] == "Refund for order A17: refunded 40 EUR."
    assert one.asked() == 5


def test_a_model_that_fails() -> None:
    """The client's error comes through, and the same line goes on with what is there."""
    failing = [False]

    def decide(asked: Any) -> Any:
        if failing[0] and len(asked.outputs) == 1 and "write_down" in asked.tools:
            raise Refused("overloaded", 500)
        return by_rules(NESTED, asked)

    with ScriptedOpenAI(decide) as server:

        async def work(model: Any) -> None:
            failing[0] = True
            with pytest.raises(InternalServerError, match="overloaded"):
                await start(model)
            assert [run.status for run in list_runs()] == ["failed"]
            failing[0] = False
            assert (await start(model)).final_output == "Done, kept."

        talk(server, work)
        assert len(server.answered) == 5
        assert outside("end check_stock chair") == 1


def test_a_call_id_that_comes_again_is_refused_by_the_sdk() -> None:
    """Some servers number calls anew in each answer; openai-agents 0.20 to 0.24 refuses them."""
    for runner, more in ((agents.Runner, {}), (Runner, {"run_id": "here"})):
        with ScriptedOpenAI(NESTED, reuse_ids=True) as server:

            async def work(model: Any, runner: Any = runner, more: Any = more) -> None:
                with pytest.raises(ModelBehaviorError, match="reused a completed tool call ID"):
                    await runner.run(apps.nested(model), TASK, run_config=OFF, **more)

            talk(server, work, "chat")


def test_cancelled_it_goes_on_later() -> None:
    """A task that is cancelled in the middle of a tool leaves the run to the next start."""
    reached: list[asyncio.Event] = []

    @function_tool
    async def write_down(text: str) -> str:
        """Keep a text."""
        if not reached[0].is_set():
            reached[0].set()
            await asyncio.Event().wait()
        apps.reach("end write_down")
        return "kept"

    with ScriptedOpenAI(NESTED) as server:

        async def work(model: Any) -> None:
            reached.append(asyncio.Event())
            agent = apps.nested(model)
            agent.tools[1] = write_down
            given = {"run_id": "here", "run_config": OFF}
            task = asyncio.create_task(Runner.run(agent, TASK, **given))
            await reached[0].wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await Runner.run(agent, TASK, **given)).final_output == "Done, kept."

        talk(server, work)
        assert len(server.answered) == 5
        assert outside("end write_down") == outside("end check_stock chair") == 1


# ---------------------------------------------------------------------- guardrails


async def _read(agent: Any, given: Any, **options: Any) -> None:
    async for _ in Runner.run_streamed(agent, given, **options).stream_events():
        pass


@pytest.mark.parametrize("streams", [False, True])
def test_a_guardrail_that_trips_trips_again(streams: bool) -> None:
    """The input is refused before a model is asked, at each start."""
    with ScriptedOpenAI(REFUND) as server:

        async def work(model: Any) -> None:
            for _ in range(2):
                agent = apps.refund(model, guarded=True)
                given = {"run_id": "here", "run_config": OFF}
                with pytest.raises(InputGuardrailTripwireTriggered):
                    await (_read if streams else Runner.run)(agent, "damn refund", **given)

        talk(server, work)
        assert server.answered == []


def test_an_output_that_is_refused_is_no_result() -> None:
    """The same answer is judged again by the next start, and not asked for again."""
    script = [
        {**rule, "say": "damn"} if "say" in rule and rule.get("if_tool") else rule
        for rule in REFUND
    ]
    with ScriptedOpenAI(script) as server:

        async def work(model: Any) -> None:
            async def once() -> Any:
                agent = apps.refund(model, guarded=True)
                return await Runner.run(agent, TASK, run_id="here", run_config=OFF)

            await once()
            answer("here", True)
            for _ in range(2):
                with pytest.raises(OutputGuardrailTripwireTriggered):
                    await once()

        talk(server, work)
        assert len(server.answered) == 5
        assert [run.status for run in list_runs()] == ["failed"]


# ---------------------------------------------------------------------- what is written


def everything(folder: Path) -> str:
    return "\n".join(p.read_text() for p in folder.rglob("*") if p.is_file())


def test_no_context_key_header_or_client_reaches_the_disk(store_dir: Path) -> None:
    """They are the program's; with a serialiser it says itself what is kept of the context."""

    @function_tool
    async def write_down(context: ToolContext[Any], text: str) -> str:
        """Keep a text."""
        context.context["count"] = context.context.get("count", 0) + 1
        return "kept"

    with ScriptedOpenAI(NESTED) as server:

        async def work(_: Any) -> None:
            async with AsyncOpenAI(
                base_url=server.url,
                api_key="key-of-the-client-3141",
                default_headers={"X-Header": "header-of-the-client-2718"},
                max_retries=0,
            ) as client:
                agent = apps.nested(agents.OpenAIResponsesModel("scripted", client))
                agent.tools[1] = write_down
                context = {"password": "value-of-the-context-1618", "client": client}
                given = {"context": context, "run_config": OFF}
                result = await Runner.run(agent, TASK, run_id="bare", **given)
                assert result.context_wrapper.context is context
                assert context["count"] == 1
                told = {"context_serializer": lambda context: {"count": context.get("count")}}
                await Runner.run(agent, TASK, run_id="told", **given, **told)

        talk(server, work)
    written = everything(store_dir)
    for secret in ("key-of-the-client", "header-of-the-client", "value-of-the-context"):
        assert secret not in written
    assert '"context":{"count":2}' in written
    assert '"context":{"count"' not in everything(store_dir / "bare")


def test_a_context_is_given_back_by_the_programs_own_function() -> None:
    """What was kept of it counts, and not what the next start is given."""
    seen: list[Any] = []
    users = itertools.count(1)

    @function_tool(needs_approval=True)
    async def issue_refund(context: ToolContext[Any], order_id: str, amount: int) -> str:
        """Pay money back."""
        seen.append(context.context)
        return "refunded"

    with ScriptedOpenAI(REFUND) as server:

        async def once(model: Any) -> Any:
            agent = Agent(name="refund agent", model=model, tools=[issue_refund])
            return await Runner.run(
                agent,
                TASK,
                run_id="here",
                run_config=OFF,
                context={"user": next(users)},
                context_serializer=lambda context: {"kept": context["user"]},
                context_deserializer=lambda kept: {"user": kept["kept"] + 41},
            )

        talk(server, once)
        answer("here", True)
        forget_everything()
        talk(server, once)
    assert seen == [{"user": 42}]


# ---------------------------------------------------------------------- beside others


def test_agents_are_the_sdks_again_afterwards() -> None:
    """Outside of a run of ours nothing is looked up and nothing is written."""
    with ScriptedOpenAI(NESTED) as server:

        async def work(model: Any) -> None:
            agent = apps.nested(model)
            await Runner.run(agent, TASK, run_id="here", run_config=OFF)
            before = everything(Path(".caravanserai"))
            for _ in range(2):
                result = await agents.Runner.run(agent, TASK, run_config=OFF)
                assert result.final_output == "Done, kept."
            assert everything(Path(".caravanserai")) == before

        talk(server, work)
        assert len(server.answered) == 15


def test_runs_at_once_share_agents() -> None:
    """Each has its own answers and its own tool calls, whatever comes first."""
    with ScriptedOpenAI(NESTED) as server:

        async def work(model: Any) -> None:
            agent = apps.nested(model)
            given = {"run_config": OFF}
            names = [f"run-{n}" for n in range(6)]
            for _ in range(2):
                results = await asyncio.gather(
                    *(Runner.run(agent, f"{TASK} {n}", run_id=n, **given) for n in names)
                )
                assert [r.final_output for r in results] == ["Done, kept."] * 6
                assert [r.to_input_list()[0]["content"] for r in results] == [
                    f"{TASK} {n}" for n in names
                ]

        talk(server, work)
        assert len(server.answered) == 30
        assert outside("end write_down") == 6


def test_one_run_started_twice_at_once() -> None:
    """The second waits for the first, and returns its result."""
    with ScriptedOpenAI(NESTED) as server:

        async def work(model: Any) -> None:
            results = await asyncio.gather(*(start(model) for _ in range(3)))
            assert [r.final_output for r in results] == ["Done, kept."] * 3

        talk(server, work)
        assert len(server.answered) == 5


def test_a_run_inside_of_a_tool_of_another_run() -> None:
    """The inner one is a run of its own."""
    with ScriptedOpenAI([{"call": [["ask", {}]]}, *NESTED]) as server:

        async def work(model: Any) -> None:
            @function_tool
            async def ask() -> str:
                """Ask."""
                return str((await start(model, run_id="inner")).final_output)

            agent = Agent(name="outer", model=model, tools=[ask])
            for _ in range(2):
                result = await Runner.run(agent, TASK, run_id="outer", run_config=OFF)
            assert result.final_output == "Done, Done, kept.."

        talk(server, work)
        assert len(server.answered) == 7
    assert {run.run_id: run.status for run in list_runs()} == {
        "inner": "finished",
        "outer": "finished",
    }


class Spans(TracingProcessor):
    """Collects what is traced."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_trace_start(self, trace: Any) -> None:
        self.names.append(f"trace {trace.name}")

    def on_trace_end(self, trace: Any) -> None:
        pass

    def on_span_start(self, span: Any) -> None:
        pass

    def on_span_end(self, span: Any) -> None:
        self.names.append(span.span_data.type)

    def shutdown(self) -> None:
        pass

    def force_flush(self) -> None:
        pass


def test_with_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same spans as without us, in the program's own trace."""
    spans = Spans()
    set_trace_processors([spans])
    set_tracing_disabled(False)
    try:
        with ScriptedOpenAI(NESTED) as server:

            async def work(model: Any) -> list[list[str]]:
                found = []
                for runner, more in ((agents.Runner, {}), (Runner, {"run_id": "here"})):
                    spans.names.clear()
                    with trace("mine"):
                        await runner.run(apps.nested(model), TASK, **more)
                    found.append(sorted(spans.names))
                return found

            theirs, ours = talk(server, work)
            assert "trace mine" in ours
            assert [name for name in ours if name != "custom"] == theirs
    finally:
        set_tracing_disabled(True)
        set_trace_processors([])


def test_hooks_of_the_program_are_called_as_ever() -> None:
    """Hooks of the run and of an agent, with the SDK's own arguments."""
    heard: list[str] = []

    class Agents(agents.AgentHooks[Any]):
        async def on_start(self, context: Any, agent: Any) -> None:
            heard.append(f"start {agent.name}")

        async def on_handoff(self, context: Any, agent: Any, source: Any) -> None:
            heard.append(f"handoff {source.name} to {agent.name}")

        async def on_end(self, context: Any, agent: Any, output: Any) -> None:
            heard.append(f"end {output}")

    with ScriptedOpenAI(REFUND) as server:

        async def work(model: Any) -> list[list[str]]:
            found = []
            for runner, more in ((agents.Runner, {}), (Runner, {"run_id": "here"})):
                heard.clear()
                forget_outside()
                agent = apps.refund(model)
                agent.hooks = agent.handoffs[0].hooks = Agents()
                result = await runner.run(agent, TASK, hooks=apps.Places(), run_config=OFF, **more)
                state = result.to_state()
                state.approve(state.get_interruptions()[0])
                given = {"hooks": apps.Places(), "run_config": OFF, **more}
                await runner.run(agent, state, **given)
                # Sorted: two tools run beside each other.
                found.append([*heard, *sorted(lines_outside())])
            return found

        theirs, ours = talk(server, work)
        assert ours == theirs
        assert "start refund agent" in ours


# ---------------------------------------------------------------------- kept by the provider


@pytest.mark.parametrize("place", ["begin lookup_order", "between", "paused", "hook model 2"])
def test_a_conversation_that_the_provider_keeps(life: Start, place: str) -> None:
    """`auto_previous_response_id`: each answer names the one before, also after a crash."""
    one = life("refund", more={"auto_previous_response_id": True})
    one.killed(place)
    assert one.finished()["final"] == "Refund for order A17: refunded 40 EUR."
    assert one.asked() == 5
    sent = [body.get("previous_response_id") for body in one.server.bodies.values()]
    assert sent == [None, "resp_0001", "resp_0002", "resp_0003", "resp_0004"]


@pytest.mark.parametrize("app", ["kinds", "three"])
def test_the_model_is_told_what_the_sdk_tells_it(life: Start, app: str) -> None:
    """Request by request the same as without us, whatever the tools return."""
    script = {"kinds": KINDS, "three": THREE}[app]
    ours, theirs = life(app, script=script), life(app, script=script, plain=True)
    ours.finished(), theirs.finished()
    assert _requests(ours) == _requests(theirs)


def _requests(one: Life) -> list[Any]:
    return [json.loads(json.dumps(body)) for body in one.server.bodies.values()]
