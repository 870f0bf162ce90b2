"""Approvals: answered later, elsewhere, in part, by the SDK's own idiom; and what they hold for."""

# ruff: noqa: E402

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("agents")

from agents import Agent, RunConfig, RunState, function_tool
from agents.tool_context import ToolContext

from caravanserai import (
    AlreadyAnswered,
    InputChanged,
    JournalDamaged,
    answer,
    fork,
    list_runs,
)
from caravanserai.openai_agents import Runner
from caravanserai_core.ledger import Ledger
from caravanserai_core.stores import FileStore
from integration_tests.api.helpers import forget_everything
from integration_tests.openai_agents import apps
from integration_tests.openai_agents.apps import PAIR, REFUND
from integration_tests.openai_agents.jobs import TASK, talk
from integration_tests.openai_agents.life import RUN, Life
from integration_tests.openai_agents.scripted import ScriptedOpenAI

Start = Callable[..., Life]
OFF = RunConfig(tracing_disabled=True)


def by_command(one: Life, *words: str) -> str:
    """Answer from the command line, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "caravanserai_core.cli", "answer", RUN, *words],
        cwd=one.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("way", ["run", "stream", "sync"])
def test_approved_from_the_command_line(life: Start, way: str) -> None:
    """The run ends, somebody says yes, the same line goes on; asked again it does nothing."""
    one = life("refund", way=way)
    waits = one.ended()
    assert waits["asked"] == [["refund agent", "issue_refund", "call_0004_0"]]
    assert waits["final"] is None
    assert one.ended()["asked"] == waits["asked"], "the same line asks again"
    assert (one.asked(), one.outside()["begin issue_refund"]) == (4, 0)
    assert len(one.questions()) == 1
    by_command(one, "--approve")
    assert one.ended()["final"] == "Refund for order A17: refunded 40 EUR."
    assert (one.asked(), len(one.refunds())) == (5, 1)


def test_rejected_with_a_reason(life: Start) -> None:
    """The tool does not run, and the model is told why."""
    one = life("refund")
    one.ended()
    by_command(one, "--reject", "--reason", "the shop pays that itself")
    found = one.ended()
    assert found["final"] == "Refund for order A17: the shop pays that itself."
    assert one.refunds() == []
    assert "the shop pays that itself" in one.latest()


def test_rejected_without_a_reason_the_sdk_has_its_own_words(life: Start) -> None:
    one = life("refund")
    one.ended()
    by_command(one, "--reject")
    assert "not approved" in one.ended()["final"]
    assert one.refunds() == []


@pytest.mark.parametrize("way", ["run", "stream"])
def test_one_of_two_is_approved(life: Start, way: str) -> None:
    """It runs, the other still waits, and the third that needs nobody is not lost or repeated."""
    one = life("pair", way=way)
    assert [asked[1] for asked in one.ended()["asked"]] == ["pay", "ship"]
    assert one.outside()["end count"] == 1
    first, second = one.questions()
    answer(RUN, True, question=second.id, store=one.store)
    assert [asked[1] for asked in one.ended()["asked"]] == ["pay"]
    assert [one.outside()[f"end {name}"] for name in ("pay", "count", "ship")] == [0, 1, 1]
    answer(RUN, False, question=first.id, reason="not today", store=one.store)
    found = one.ended()
    assert found["final"].startswith("Both, ")
    assert [one.outside()[f"end {name}"] for name in ("pay", "count", "ship")] == [0, 1, 1]
    assert one.asked() == 2
    body = one.server.bodies[2]
    outputs = {
        item["call_id"]: item["output"]
        for item in body["input"]
        if item.get("type") == "function_call_output"
    }
    assert outputs == {
        "call_0001_0": "not today",
        "call_0001_1": "count done for A17",
        "call_0001_2": "ship done for A17",
    }


@pytest.mark.parametrize("place", ["begin ship", "end ship", "hook tool ship", "begin pay"])
def test_killed_between_two_approved_calls(life: Start, place: str) -> None:
    """What was approved and done is not done again, what was not is."""
    one = life("pair")
    one.ended()
    one.agree()
    one.killed(place)
    # Each runs in a thread of its own: the other may have been in flight beside it.
    done, recorded = one.outside(), one.recorded()
    lost = {name: done[f"end {name}"] - recorded[name] for name in ("pay", "count", "ship")}
    assert lost["ship"] == 1 or place != "end ship"
    assert set(lost.values()) <= {0, 1}
    one.finished()
    assert {name: one.outside()[f"end {name}"] - 1 for name in lost} == lost
    assert one.asked() == 2


def test_approved_twice_is_refused(life: Start) -> None:
    """The first answer counts, also where the second says the same."""
    one = life("refund")
    one.ended()
    answer(RUN, True, by="ines", store=one.store)
    question = one.questions()[0].id
    for value in (True, False):
        with pytest.raises(AlreadyAnswered, match="ines"):
            answer(RUN, value, question=question, store=one.store)
    one.ended()
    with pytest.raises(AlreadyAnswered):
        answer(RUN, False, question=question, store=one.store)
    assert len(one.refunds()) == 1


@pytest.mark.parametrize("value", [True, False])
def test_an_agent_inside_of_a_tool_waits_too(life: Start, value: bool) -> None:
    """Its call is approved in another process, and neither agent is asked anything twice."""
    one = life("approving")
    assert one.ended()["asked"] == [["expert", "reserve", "call_0003_0"]]
    by_command(one, "--approve" if value else "--reject")
    found = one.ended()
    assert found["final"] == "Done, kept."
    assert one.outside()["end reserve chair"] == (1 if value else 0)
    assert one.outside()["end check_stock chair"] == 1
    assert one.asked() == 6


# ---------------------------------------------------------------------- in this process


async def start(model: Any, given: Any = TASK, run_id: str = "here", **options: Any) -> Any:
    """Start the refund in this process."""
    return await Runner.run(apps.refund(model), given, run_id=run_id, run_config=OFF, **options)


def ends() -> int:
    path = Path("outside.txt")
    return path.read_text().splitlines().count("end issue_refund") if path.exists() else 0


def decided(decide: Callable[[RunState[Any], Any], None]) -> Callable[[Any], Any]:
    """Return work that pauses, decides on the run state, and goes on with it."""

    async def work(model: Any) -> Any:
        state = (await start(model)).to_state()
        decide(state, state.get_interruptions()[0])
        return await start(model, state)

    return work


def test_decided_on_the_run_state_and_given_as_input() -> None:
    """The SDK's idiom; who decided stands in the journal, and the question is closed."""
    with ScriptedOpenAI(REFUND) as server:
        result = talk(server, decided(lambda state, item: state.approve(item)))
        assert result.final_output == "Refund for order A17: refunded 40 EUR."
        assert (len(server.answered), ends()) == (5, 1)
    questions = Ledger.read(FileStore(".caravanserai"), "here", None).questions
    assert [q.state for q in questions.values()] == ["spent"]
    with pytest.raises(AlreadyAnswered):
        answer("here", False, question="q1")


def test_rejected_on_the_run_state() -> None:
    with ScriptedOpenAI(REFUND) as server:
        no = "too much"
        result = talk(server, decided(lambda s, item: s.reject(item, rejection_message=no)))
        assert result.final_output == "Refund for order A17: too much."
        assert ends() == 0


def test_a_run_state_that_was_stored_elsewhere() -> None:
    """As text, in the program's own database, and read again."""
    with ScriptedOpenAI(REFUND) as server:

        async def work(model: Any) -> Any:
            text = (await start(model)).to_state().to_string()
            state = await RunState.from_string(apps.refund(model), text)
            state.approve(state.get_interruptions()[0])
            return await start(model, state)

        assert talk(server, work).final_output == "Refund for order A17: refunded 40 EUR."
        assert (len(server.answered), ends()) == (5, 1)


def test_a_run_state_that_decided_nothing_still_waits() -> None:
    with ScriptedOpenAI(REFUND) as server:
        result = talk(server, decided(lambda state, item: None))
        assert len(result.interruptions) == 1
        assert (len(server.answered), ends()) == (4, 0)
    assert [run.status for run in list_runs()] == ["waiting"]


def test_an_old_run_state_is_refused() -> None:
    """The run has gone on since; nothing is done a second time."""
    with ScriptedOpenAI(REFUND) as server:

        async def work(model: Any) -> Any:
            old = (await start(model)).to_state()
            answer("here", True)
            await start(model)
            old.approve(old.get_interruptions()[0])
            with pytest.raises(InputChanged, match="is not of there"):
                await start(model, old)

        talk(server, work)
        assert (len(server.answered), ends()) == (5, 1)


def test_approved_for_good() -> None:
    """`always_approve` holds for later calls of the tool."""
    script = [{"call": [["issue_refund", {"order_id": "A17", "amount": 40}]], "times": 3}]
    with ScriptedOpenAI([*script, *REFUND]) as server:
        result = talk(server, decided(lambda s, item: s.approve(item, always_approve=True)))
        assert result.final_output == "Refund for order A17: refunded 40 EUR."
        assert ends() == 3


def test_two_forks_of_one_pause() -> None:
    """One is approved and one rejected; they go on apart, and the origin still waits."""
    with ScriptedOpenAI(REFUND) as server:
        talk(server, start)
        (before,) = list_runs()
        for name in ("yes", "no"):
            fork("here", at=before.waypoints, new_run_id=name)
            forget_everything()
            paused = talk(server, lambda model, name=name: start(model, run_id=name))
            assert len(paused.interruptions) == 1
        answer("yes", True)
        answer("no", False, reason="too much")
        outputs = [
            talk(server, lambda model, name=name: start(model, run_id=name)).final_output
            for name in ("yes", "no")
        ]
    assert outputs == [
        "Refund for order A17: refunded 40 EUR.",
        "Refund for order A17: too much.",
    ]
    assert ends() == 1
    status = {run.run_id: run.status for run in list_runs()}
    assert status == {"here": "waiting", "yes": "finished", "no": "finished"}


def test_an_approval_holds_for_nothing_but_what_was_asked() -> None:
    """Begun anew, the model wants more under the same call id: it is asked again."""

    def wants(amount: int) -> list[Any]:
        return [{"call": [["issue_refund", {"order_id": "A17", "amount": amount}]]}, *REFUND]

    with ScriptedOpenAI(wants(40)) as server:
        talk(server, start)
        answer("here", True)
    with ScriptedOpenAI(wants(4000)) as server:
        paused = talk(server, lambda model: start(model, again=True))
        assert [item.call_id for item in paused.interruptions] == ["call_0004_0"]
        assert json.loads(paused.interruptions[0].arguments)["amount"] == 4000
        assert len(talk(server, start).interruptions) == 1
    assert ends() == 0


def test_a_context_does_not_undo_an_approval() -> None:
    """It is given at each start, the tool gets it, and runs exactly once."""
    seen: list[Any] = []

    @function_tool(needs_approval=True)
    async def issue_refund(context: ToolContext[Any], order_id: str, amount: int) -> str:
        """Pay money back."""
        seen.append(context.context)
        return f"refunded {amount} EUR"

    async def once(model: Any) -> Any:
        agent = Agent(name="refund agent", model=model, tools=[issue_refund])
        given = {"run_id": "here", "context": {"user": 7}, "run_config": OFF}
        return await Runner.run(agent, TASK, **given)

    with ScriptedOpenAI(REFUND) as server:
        talk(server, once)
        answer("here", True)
        forget_everything()
        assert talk(server, once).final_output == "Refund for order A17: refunded 40 EUR."
    assert seen == [{"user": 7}]


def test_what_is_to_be_approved_cannot_be_forged_in_the_file() -> None:
    """Whoever edits the waypoint breaks the chain of sums; it is refused before anything runs."""
    with ScriptedOpenAI(REFUND) as server:
        talk(server, start)
        answer("here", True)
        forget_everything()
        journal = Path(".caravanserai/here/journal-1.jsonl")
        text = journal.read_text()
        forged = text.replace('\\"amount\\": 40', '\\"amount\\": 90')
        assert forged != text
        journal.write_text(forged)
        with pytest.raises(JournalDamaged):
            talk(server, start)
        assert ends() == 0


def test_both_of_a_pair_in_one_process() -> None:
    async def once(model: Any) -> Any:
        return await Runner.run(apps.pair(model), TASK, run_id="here", run_config=OFF)

    async def work(model: Any) -> Any:
        assert len((await once(model)).interruptions) == 2
        for question in ("q1", "q2"):
            answer("here", True, question=question)
        return await once(model)

    with ScriptedOpenAI(PAIR) as server:
        assert talk(server, work).final_output == "Both, ship done for A17."
        assert len(server.answered) == 2
