"""WaypointHooks: notes of a run of agents.Runner; they change nothing, and stop nothing."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("agents")

import agents
from agents import Agent, OpenAIResponsesModel, RunConfig, RunHooks, RunState
from openai import AsyncOpenAI

from caravanserai import (
    StoreFailed,
    UsageError,
    checkpoint,
    get_waypoint,
    history,
    list_runs,
    load,
    open_run,
)
from caravanserai.openai_agents import WaypointHooks
from caravanserai.openai_agents.transcript import transcript
from caravanserai_core.stores import FileStore
from integration_tests.openai_agents import apps
from integration_tests.openai_agents.scripted import ScriptedOpenAI

TASK = "Refund order A17 please."


def run(
    hooks: Any,
    build: Callable[[Any], Agent[Any]] = apps.refund,
    script: Any = apps.REFUND,
    *,
    given: Any = TASK,
    streamed: bool = False,
    approve: bool = True,
) -> Any:
    """Run an agent with the SDK's own runner; approve what it asks for. Return the output."""

    async def once(agent: Agent[Any], given: Any) -> Any:
        options: Any = {"hooks": hooks, "run_config": RunConfig(tracing_disabled=True)}
        if not streamed:
            return await agents.Runner.run(agent, given, **options)
        result = agents.Runner.run_streamed(agent, given, **options)
        async for _ in result.stream_events():
            pass
        return result

    async def work() -> Any:
        async with AsyncOpenAI(base_url=server.url, api_key="test", max_retries=0) as client:
            agent = build(OpenAIResponsesModel("scripted", client))
            result = await once(agent, given)
            if result.interruptions and approve:
                state = await RunState.from_json(agent, result.to_state().to_json())
                for item in state.get_interruptions():
                    state.approve(item)
                result = await once(agent, state)
            return result.final_output

    with ScriptedOpenAI(script) as server:
        output = asyncio.run(work())
        assert not server.errors
    return output


READ_ONLY = (
    " This run can be read and **not resumed**: hooks wrote it. `Runner` of "
    "`caravanserai.openai_agents` writes runs that go on after a crash."
)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_run_is_told_turn_by_turn(streamed: bool) -> None:
    hooks: Any = WaypointHooks("a17")
    assert run(hooks, streamed=streamed) == "Refund for order A17: refunded 40 EUR."
    told = [(str(point.note).removesuffix(READ_ONLY), point.note.next) for point in history("a17")]
    triage, refund = ("triage agent's model answers.",), ("refund agent's model answers.",)
    order = 'called `lookup_order(order_id="A17")`, which gave "order A17: 40 EUR, delivered".'
    policy = (
        'called `get_policy(topic="refund")`, which gave "a refund up to 50 EUR needs an approval"'
    )
    quote = 'called `shipping_quote(order_id="A17")`, which gave "5 EUR for A17".'
    paid = 'called `issue_refund(order_id="A17", amount=40)`, which gave "refunded 40 EUR".'
    said = 'said "Refund for order A17: refunded 40 EUR."'
    assert told == [
        ('The user said "Refund order A17 please."', triage),
        (f"triage agent {order}", triage),
        (f"triage agent {policy}. triage agent {quote}", triage),
        ("triage agent handed over to refund agent.", refund),
        (f"refund agent {paid}", refund),
        (
            f"refund agent {said} In all 5 answers of models, 75 tokens.",
            ("Nothing: the run has come to its end.",),
        ),
    ]
    assert all(str(point.note).endswith(READ_ONLY) for point in history("a17"))
    assert [info.status for info in list_runs()] == ["finished"]
    assert history("a17")[4].note.so_far == (
        'The user said "Refund order A17 please."',
        f"triage agent {order}",
        f"triage agent {policy}.",
        f"triage agent {quote}",
        "triage agent handed over to refund agent.",
    )


def test_the_state_is_the_conversation_and_another_agent_can_read_it() -> None:
    run(WaypointHooks("a17"))
    state = load("a17")
    assert set(state) == {"items", "agent"}
    assert state["agent"] == "refund agent"
    told = transcript(load("a17", raw=True))
    assert told.messages[0].text == TASK
    assert told.messages[-1].text == "Refund for order A17: refunded 40 EUR."
    results = [message.text for message in told.messages if message.role == "tool"]
    assert results[0] == "order A17: 40 EUR, delivered"
    for number in range(1, 7):
        assert not transcript(load("a17", at=number, raw=True)).uncertain
    assert get_waypoint("a17").adapter == "openai-agents"


def test_what_waits_for_an_approval_is_in_the_live_note(store_dir: Path) -> None:
    """The SDK calls no hook where it stops."""
    run(WaypointHooks("a17"), approve=False)
    live = (store_dir / "a17" / "latest.md").read_text()
    assert 'Since then: refund agent called `issue_refund(order_id="A17", amount=40)`.' in live


def test_a_second_run_goes_on_in_the_same_notes() -> None:
    hooks: Any = WaypointHooks("talk")
    script = [{"say": "Good."}]

    def build(model: Any) -> Agent[Any]:
        return Agent(name="clerk", model=model)

    run(hooks, build, script, given="One.")
    run(WaypointHooks("talk"), build, script, given="Two.")
    run(hooks, build, script, given="Three.")
    told = [str(point.note).removesuffix(READ_ONLY) for point in history("talk")]
    assert told[::2] == [f'The user said "{word}."' for word in ("One", "Two", "Three")]
    assert all(line.startswith('clerk said "Good."') for line in told[1::2])


# ---------------------------------------------------------------------- the program's own hooks


class Seen(RunHooks[Any]):
    """Hooks of a program; tells what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[str, ...]]] = []

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("on_"):
            return super().__getattribute__(name)

        async def called(*args: Any, **named: Any) -> None:
            kinds = [type(arg).__name__ for arg in args]
            self.calls.append((name, (*kinds, *sorted(named))))

        return called


def test_the_programs_hooks_are_called_as_without_ours() -> None:
    alone, chained = Seen(), Seen()
    run(alone)
    run(WaypointHooks("a17", hooks=chained))
    assert chained.calls == alone.calls
    assert {name for name, _ in alone.calls} == {
        *("on_agent_start", "on_agent_end", "on_handoff"),
        *("on_llm_start", "on_llm_end", "on_tool_start", "on_tool_end"),
    }


def test_every_hook_of_the_sdk_is_chained_under_its_own_names() -> None:
    """Contract with 0.20 and 0.24: a new hook has to be passed on."""
    for name, method in inspect.getmembers(RunHooks, inspect.isfunction):
        if name.startswith("on_"):
            ours = getattr(WaypointHooks, name)
            assert ours is not method, name
            assert list(inspect.signature(ours).parameters) == list(
                inspect.signature(method).parameters
            )


def test_an_error_of_the_programs_hooks_is_the_programs() -> None:
    class Breaks(RunHooks[Any]):
        async def on_tool_end(self, *args: Any) -> None:
            raise ZeroDivisionError

    with pytest.raises(Exception, match="lookup_order") as caught:
        run(WaypointHooks("a17", hooks=Breaks()))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


# ---------------------------------------------------------------------- where the store fails


class Full(FileStore):
    """A store whose disk is full from the n-th append on."""

    def __init__(self, path: str, first: int) -> None:
        super().__init__(path)
        self.left = first - 1

    def append(self, *args: Any, **options: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise StoreFailed("no space left on device")
        return super().append(*args, **options)


@pytest.mark.parametrize("first", [1, 3])
def test_a_store_that_fails_stops_no_agent_and_is_warned_of_once(
    first: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="caravanserai"):
        output = run(WaypointHooks("a17", store=Full("full", first)))
    assert output == "Refund for order A17: refunded 40 EUR."
    warnings = [record for record in caplog.records if record.name == "caravanserai"]
    assert len(warnings) == 1
    assert "hooks of run a17: a note was not written" in warnings[0].getMessage()


def test_a_run_of_another_kind_is_left_alone_before_a_model_is_asked() -> None:
    checkpoint("a17", {"step": 1})
    with ScriptedOpenAI() as server:
        with pytest.raises(UsageError, match="something else than a conversation"):
            run(WaypointHooks("a17"))
        assert not server.asked
    assert load("a17") == {"step": 1}


def test_hooks_take_no_lease() -> None:
    with open_run("a17"):  # somebody else works on it, and the hooks write their notes
        run(WaypointHooks("a17"))
    assert len(history("a17")) == 6


def test_they_say_what_they_are(store_dir: Path) -> None:
    assert repr(WaypointHooks("a17")).startswith("<WaypointHooks 'a17' in ")
    assert str(store_dir) in repr(WaypointHooks("a17"))
