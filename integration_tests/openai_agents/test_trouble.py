"""What can go wrong in a run: tools, turns, models, guardrails; and what the next start does."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import agents
import pytest

from integration_tests.support import require

require("agents")

from agents import (
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    ModelBehaviorError,
    OutputGuardrailTripwireTriggered,
    function_tool,
)
from openai import InternalServerError

from caravanserai import answer, list_runs
from caravanserai.openai_agents import Runner
from integration_tests.openai_agents import apps
from integration_tests.openai_agents.apps import (
    NESTED,
    REFUND,
    lines_outside,
    outside,
)
from integration_tests.openai_agents.jobs import OFF, TASK, run_nested, talk
from integration_tests.openai_agents.life import Life
from integration_tests.openai_agents.scripted import Refused, ScriptedOpenAI, by_rules

Start = Callable[..., Life]


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
                    await run_nested(model, max_turns=turns)
            assert (await run_nested(model, max_turns=3)).final_output == "Done, kept."

        talk(server, work)
        assert len(server.answered) == 5
        assert outside("end check_stock chair") == outside("end write_down") == 1


@pytest.mark.parametrize("way", ["run", "stream"])
@pytest.mark.parametrize("places", [["begin get_policy"] * 4, ["between", "hook tool get_policy"]])
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
                await run_nested(model)
            assert [run.status for run in list_runs()] == ["failed"]
            failing[0] = False
            assert (await run_nested(model)).final_output == "Done, kept."

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


def test_a_guardrail_beside_the_model_trips_late() -> None:
    """The model has answered by then: its tools do not run, now or later, and it is asked once."""
    answered = asyncio.Event()

    class Hooks(agents.RunHooks[Any]):
        async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
            answered.set()

    @agents.input_guardrail
    async def late(context: Any, agent: Any, given: Any) -> Any:
        await answered.wait()
        return agents.GuardrailFunctionOutput(None, tripwire_triggered=True)

    with ScriptedOpenAI(NESTED) as server:

        async def work(model: Any) -> None:
            for _ in range(2):
                agent = apps.nested(model)
                agent.input_guardrails = [late]
                given = {"run_id": "here", "run_config": OFF, "hooks": Hooks()}
                with pytest.raises(InputGuardrailTripwireTriggered):
                    await Runner.run(agent, TASK, **given)

        talk(server, work)
        assert len(server.answered) == 1
    assert lines_outside() == []


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
