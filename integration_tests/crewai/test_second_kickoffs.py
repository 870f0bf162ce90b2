"""A kickoff that failed or was ended by ^C, and a second one in the same process."""

# ruff: noqa: E402

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("crewai")

from integration_tests.crewai import offline  # noqa: F401 - before CrewAI is imported

# isort: split
from crewai import Agent, Crew, CrewOutput, Task
from crewai.llms.base_llm import BaseLLM
from crewai.tools import tool

from caravanserai import InputChanged
from caravanserai.crewai import waypoints

LONG = "x" * 60_000
"""More than CrewAI gives to a model: it is put into a file, with a name by chance."""


class Scripted(BaseLLM):
    """Calls the tools that it is told, each with the number of its question, then answers."""

    calls: list[str] = []  # noqa: RUF012 - a field of a pydantic model
    asked: list[int] = []  # noqa: RUF012

    def supports_function_calling(self) -> bool:
        return True

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        self.asked.append(len(self.asked) + 1)
        done = sum(message["role"] == "tool" for message in messages)
        if done >= len(self.calls):
            return f"Answer {len(self.asked)}"
        function = {"name": self.calls[done], "arguments": json.dumps({"key": str(self.asked[-1])})}
        return [{"id": f"call_{done}", "type": "function", "function": function}]


class World:
    """A crew of one task, what its tools do, and how often it is asked."""

    def __init__(self, store: Path, *calls: str) -> None:
        self.store = store
        self.done: list[str] = []
        self.stops = True
        self.model = Scripted(model="scripted", calls=list(calls), asked=[])

    def crew(self, **options: Any) -> Crew:
        @tool
        def page(key: str) -> str:
            """Read a page."""
            self.done.append(f"page {key}")
            return LONG

        @tool
        def pay(key: str) -> str:
            """Pay."""
            self.done.append(f"pay {key}")
            return "paid"

        @tool
        def stop(key: str) -> str:
            """Be ended by ^C, once."""
            self.done.append(f"stop {key}")
            if self.stops:
                self.stops = False
                raise KeyboardInterrupt
            return "went on"

        agent = Agent(
            role="Worker", goal="Work", backstory="Works.", llm=self.model, tools=[page, pay, stop]
        )
        guardrail = options.pop("guardrail", None)
        task = Task(
            name="work",
            description="Work on {topic}.",
            expected_output="It.",
            agent=agent,
            guardrail=guardrail,
        )
        callback = waypoints("again", store=self.store, **options)
        return Crew(agents=[agent], tasks=[task], task_callback=callback)

    def kickoff(self, topic: Any = "bees", **options: Any) -> CrewOutput:
        result = self.crew(**options).kickoff(inputs={"topic": topic})
        assert isinstance(result, CrewOutput)
        return result


@pytest.fixture
def world(tmp_path: Path) -> Callable[..., World]:
    return lambda *calls: World(tmp_path / "store", *calls)


def test_behind_a_result_too_long_for_the_model_nothing_is_repeated(
    world: Callable[..., World],
) -> None:
    its = world("page", "pay", "stop")
    with pytest.raises(KeyboardInterrupt):
        its.kickoff()
    assert its.kickoff().raw == "Answer 4"
    assert its.done == ["page 1", "pay 2", "stop 3", "stop 3"]


def test_a_callback_that_raises_costs_no_answer(world: Callable[..., World]) -> None:
    its, told = world("pay"), []

    def then(output: Any) -> None:
        told.append(output.raw)
        if len(told) == 1:
            raise ValueError("no disk")

    with pytest.raises(ValueError, match="no disk"):
        its.kickoff(then=then)
    assert its.kickoff(then=then).raw == "Answer 2"
    assert told == ["Answer 2", "Answer 2"]
    assert its.model.asked == [1, 2]


def test_a_guardrail_that_raises_costs_no_answer(world: Callable[..., World]) -> None:
    its, judged = world("pay"), []

    def judge(output):  # type: ignore[no-untyped-def]  # CrewAI reads annotations
        judged.append(output.raw)
        if len(judged) == 1:
            raise ConnectionError("no judge")
        return True, output.raw

    with pytest.raises(ConnectionError, match="no judge"):
        its.kickoff(guardrail=judge)
    assert its.kickoff(guardrail=judge).raw == "Answer 2"
    assert its.model.asked == [1, 2]


def test_a_guardrail_that_refuses_to_the_end_is_given_another_answer_next_time(
    world: Callable[..., World],
) -> None:
    its = world()
    good: list[bool] = []

    def judge(output):  # type: ignore[no-untyped-def]  # CrewAI reads annotations
        return (True, output.raw) if good else (False, "Not good.")

    with pytest.raises(Exception, match="guardrail"):
        its.kickoff(guardrail=judge)
    asked = len(its.model.asked)
    good.append(True)
    assert its.kickoff(guardrail=judge).raw == f"Answer {asked + 1}"


@pytest.mark.parametrize(("before", "now"), [(1, True), (1, 1.0), ("1", 1)])
def test_inputs_that_only_seem_equal_are_refused(
    world: Callable[..., World], before: Any, now: Any
) -> None:
    its = world()
    its.kickoff(before)
    with pytest.raises(InputChanged):
        its.kickoff(now)
    assert its.kickoff(before).raw == "Answer 1"


def test_a_policy_for_a_tool_that_nobody_has_is_warned_of(
    world: Callable[..., World], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="caravanserai"):
        world().kickoff(on_uncertain={"payy": "ask", "pay": "ask"})
    assert [record.getMessage() for record in caplog.records if "payy" in record.getMessage()]
    assert not [record for record in caplog.records if "tool pay," in record.getMessage()]
