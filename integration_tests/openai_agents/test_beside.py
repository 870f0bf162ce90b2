"""Runs beside others: the SDK's own runner, many at once, tracing, the program's hooks."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agents
import pytest

from integration_tests.support import require

require("agents")

from agents import (
    Agent,
    function_tool,
    set_trace_processors,
    set_tracing_disabled,
    trace,
)
from agents.tracing import TracingProcessor

from caravanserai import list_runs
from caravanserai.openai_agents import Runner
from integration_tests.openai_agents import apps
from integration_tests.openai_agents.apps import (
    NESTED,
    REFUND,
    forget_outside,
    lines_outside,
    outside,
)
from integration_tests.openai_agents.jobs import OFF, TASK, run_nested, talk
from integration_tests.openai_agents.life import Life
from integration_tests.openai_agents.scripted import ScriptedOpenAI

Start = Callable[..., Life]


def journal() -> bytes:
    return Path(".caravanserai/here/journal-1.jsonl").read_bytes()


def test_agents_are_the_sdks_again_afterwards() -> None:
    """Outside of a run of ours nothing is looked up and nothing is written."""
    with ScriptedOpenAI(NESTED) as server:

        async def work(model: Any) -> None:
            agent = apps.nested(model)
            await Runner.run(agent, TASK, run_id="here", run_config=OFF)
            before = journal()
            for _ in range(2):
                result = await agents.Runner.run(agent, TASK, run_config=OFF)
                assert result.final_output == "Done, kept."
            assert journal() == before

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
            results = await asyncio.gather(*(run_nested(model) for _ in range(3)))
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
                return str((await run_nested(model, run_id="inner")).final_output)

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
