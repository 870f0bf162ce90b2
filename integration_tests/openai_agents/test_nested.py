"""Agents inside of tools: two at once, two deep, with approvals; what each did stays its own."""

# ruff: noqa: E402

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from integration_tests.support import require

require("agents")

from agents import Agent, RunConfig, UserError, function_tool

from caravanserai import answer
from caravanserai.openai_agents import Runner
from integration_tests.api.helpers import forget_everything
from integration_tests.openai_agents import apps
from integration_tests.openai_agents.apps import BOTH
from integration_tests.openai_agents.jobs import TASK, talk
from integration_tests.openai_agents.life import RUN, Life
from integration_tests.openai_agents.scripted import ScriptedOpenAI

Whole = Callable[..., dict[str, Any]]
Start = Callable[..., Life]
OFF = RunConfig(tracing_disabled=True)
ITEMS = ("chair", "table")


def check(one: Life, *, answers: int) -> None:
    """Start a killed job to its end; what has a record is not done again, what has none may be."""
    unheard = one.asked() - one.recorded()["model"]
    calls = [line for line in one.outside() if line.startswith("end ")]
    lost = sum(one.outside()[line] for line in calls) - sum(
        count for name, count in one.recorded().items() if name != "model"
    )
    assert unheard in (0, 1, 2), "two may be asked at once"
    assert lost in (0, 1, 2)
    found = one.finished()
    assert found["final"] == "Done, kept."
    assert one.asked() == answers + unheard
    done = sum(count for line, count in one.outside().items() if line.startswith("end "))
    assert done == len(_whole_calls(one)) + lost
    one.check_store()


def _whole_calls(one: Life) -> list[str]:
    reserved = ["reserve"] * 2 if one.options["app"] == "approving both" else []
    return ["check_stock"] * 2 + reserved + ["write_down"]


def _around(whole: dict[str, Any]) -> list[str]:
    """Return the places around the appends, but for the last: one may join another."""
    places = list(dict.fromkeys(whole["appends"]))
    assert len(places) > 20
    return places[:-4]


@pytest.mark.parametrize("way", ["run", "stream"])
def test_two_at_once_killed_around_records(
    life: Start, whole: Whole, way: str, thorough: bool
) -> None:
    """They ask the same model in whatever order; each gets its own recorded answers again."""
    places = _around(whole("both", way=way))
    for place in places if thorough else random.sample(places, 4):
        one = life("both", way=way)
        one.killed(place)
        check(one, answers=7)


@pytest.mark.parametrize("api", ["responses", "chat"])
@pytest.mark.parametrize("item", ITEMS)
def test_one_of_two_waits_for_approval(life: Start, item: str, api: str) -> None:
    """Both wait; one is approved, then the other; nobody is asked anything twice."""
    one = life("approving both", api=api)
    assert [asked[:2] for asked in one.ended()["asked"]] == [["expert", "reserve"]] * 2
    assert one.asked() == 5
    questions = one.questions()
    first = next(q for q in questions if item in str(q.record.head.get("shown", q.record.head)))
    answer(RUN, True, question=first.id, store=one.store)
    assert len(one.ended()["asked"]) == 1
    assert one.outside()[f"end reserve {item}"] == 1
    assert sum(one.outside()[f"end reserve {name}"] for name in ITEMS) == 1
    one.agree()
    assert one.finished()["final"] == "Done, kept."
    assert [one.outside()[f"end reserve {name}"] for name in ITEMS] == [1, 1]
    assert [one.outside()[f"end check_stock {name}"] for name in ITEMS] == [1, 1]
    assert one.asked() == 9


def test_two_that_wait_killed_around_records(life: Start, whole: Whole, thorough: bool) -> None:
    """Also while what was approved runs."""
    places = _around(whole("approving both"))
    for place in places if thorough else random.sample(places, 4):
        one = life("approving both")
        one.killed(place)
        check(one, answers=9)


def test_two_deep() -> None:
    """An agent inside of a tool of an agent inside of a tool; its model is asked once."""
    broken = [True]
    script = [
        *({**rule, "if_tool": rule.get("if_tool", "check_stock")} for rule in BOTH[:2]),
        {"if_tool": "check_stock", "say": "Enough."},
        {"if_tool": "ask_expert", "call": [["ask_expert", {"input": "chairs and tables: chair"}]]},
        {"if_tool": "ask_expert", "say": "The expert: {last}"},
        {"call": [["ask_shop", {"input": "Ask for chairs."}]]},
        {"call": [["break_once", {}]]},
        {"say": "In the end: {last}"},
    ]

    def build(model: Any) -> Agent[Any]:
        @function_tool(failure_error_function=None)
        async def break_once() -> str:
            """Break."""
            if broken[0]:
                raise ConnectionError("not now")
            return "whole"

        shop = apps.nested(model)
        shop.tools = shop.tools[:1]
        tools = [shop.as_tool("ask_shop", "Ask the shop."), break_once]
        return Agent(name="front", instructions="Ask.", model=model, tools=tools)

    with ScriptedOpenAI(script) as server:

        async def work(model: Any) -> None:
            with pytest.raises(UserError, match="not now"):
                await Runner.run(build(model), TASK, run_id="here", run_config=OFF)
            asked = len(server.answered)
            broken[0] = False
            forget_everything()
            result = await Runner.run(build(model), TASK, run_id="here", run_config=OFF)
            assert result.final_output == "In the end: whole"
            assert len(server.answered) == asked + 1

        talk(server, work)


def test_an_agent_inside_streams_to_the_program() -> None:
    """`on_stream` of `Agent.as_tool` hears the inner agent."""
    heard: list[str] = []
    script = [
        {"if_tool": "ask_inner", "call": [["ask_inner", {"input": "Say it."}]]},
        {"if_tool": "ask_inner", "say": "Said: {last}"},
        {"say": "It is said."},
    ]

    async def hear(event: Any) -> None:
        heard.append(event["event"].type)

    with ScriptedOpenAI(script) as server:

        async def work(model: Any) -> Any:
            inner = Agent(name="inner", model=model)
            tool = inner.as_tool("ask_inner", "Ask.", on_stream=hear)
            outer = Agent(name="outer", model=model, tools=[tool])
            return await Runner.run(outer, TASK, run_id="here", run_config=OFF)

        assert talk(server, work).final_output == "Said: It is said."
    assert heard.count("run_item_stream_event") == 2, "its reasoning and its message"
    assert heard.count("raw_response_event") > 5


def test_an_agent_inside_that_fails_is_told_to_the_model() -> None:
    """Its turns run out: the SDK makes a text of that, and the outer agent goes on."""
    with ScriptedOpenAI(BOTH) as server:

        async def work(model: Any) -> Any:
            shop = apps.nested(model)
            expert = shop.tools[0]._agent_instance  # type: ignore[union-attr]
            shop.tools[0] = expert.as_tool("ask_expert", "Ask.", max_turns=1)
            for _ in range(2):
                result = await Runner.run(shop, TASK, run_id="here", run_config=OFF)
            return result

        assert talk(server, work).final_output == "Done, kept."
        assert len(server.answered) == 5
