"""Conversations: a client, or options for one's own loop, in one process after another."""

# ruff: noqa: E402

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("claude_agent_sdk")

from caravanserai import answer, history, list_runs, load
from integration_tests.claude_agent.life import Life
from integration_tests.claude_agent.scripts import charge

Start = Callable[..., Life]

SCRIPT = [
    {**charge(1), "if_said": "ALPHA"},
    {**charge(2), "if_said": "BETA"},
    {**charge(3), "if_said": "GAMMA"},
    {"say": "It is done."},
]


def talk(life: Start, **options: Any) -> Life:
    one = life("four", script=SCRIPT, **options)
    one.call = "integration_tests.claude_agent.talking:run"
    return one


def charged(one: Life) -> list[str]:
    return [line for line in one.lines("outside.txt") if line.startswith("begin")]


@pytest.mark.parametrize("way", ["client", "with"])
def test_a_conversation_goes_on_in_the_next_process_after_a_kill(life: Start, way: str) -> None:
    one = talk(life, way=way)
    first = one.ended(says=["Charge ALPHA."])
    one.killed("begin 2", says=["Now BETA."])

    # The same message again, as who talked would send it: the model is told what is not certain.
    asked = one.ended(says=["Now BETA."])
    assert asked["results"][-1]["stop_reason"] == "tool_deferred", asked
    assert [run.status for run in list_runs(store=one.store)] == ["waiting"]
    question = one.questions()[-1]
    answer(one.run_id, "happened", question=question.id, result="charged 2", store=one.store)
    went_on = one.ended(says=["Go on."])
    last = one.ended(says=["And GAMMA."])

    assert charged(one) == ["begin 1", "begin 2", "begin 3"]
    results = [*first["results"], *went_on["results"], *last["results"]]
    assert {result["result"] for result in results} == {"It is done."}
    assert len({result["session_id"] for result in results}) == 1
    told = [text for body in one.server.bodies for text in texts(body) if "began and never" in text]
    assert told, "the model was told beside the message"
    assert "mcp__pay__charge(n=2)" in told[0]
    if way == "client":
        assert "began and never" in asked["cut off"]
        assert went_on["cut off"] is None
    one.check_store(torn=False)


def texts(body: dict[str, Any]) -> list[str]:
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [block.get("text", "") for block in blocks if isinstance(block, dict)]


def test_each_turn_has_its_waypoint_with_its_cost(life: Start) -> None:
    one = talk(life)
    found = one.ended(says=["Charge ALPHA.", "Now BETA."])

    totals = [result["total_cost_usd"] for result in found["results"]]
    turns = [point for point in history(one.run_id, store=one.store) if point.meta["at"] == "turn"]
    costs = [load(one.run_id, point.number, store=one.store)["cost"] for point in turns]
    assert [cost["total"] for cost in costs] == pytest.approx(totals)
    assert costs[1]["turn"] == pytest.approx(totals[1] - totals[0])
    assert [run.status for run in list_runs(store=one.store)] == ["stopped"]


def test_a_message_that_is_delivered_again_is_not_asked_again(life: Start) -> None:
    one = talk(life)
    first = one.ended(says=[["Charge ALPHA.", "m1"], ["Charge ALPHA.", "m1"]])
    asked = one.asked()

    again = one.ended(says=[["Charge ALPHA.", "m1"]])

    assert first["results"][0] == first["results"][1] == again["results"][0]
    assert one.asked() == asked
    assert charged(one) == ["begin 1"]


def test_an_id_of_another_message_is_refused(life: Start) -> None:
    one = talk(life)
    one.ended(says=[["Charge ALPHA.", "m1"]])
    asked = one.asked()
    assert one.ended(says=[["Now BETA.", "m1"]])["error"].startswith("InputChanged")
    assert one.asked() == asked
    assert [run.status for run in list_runs(store=one.store)] == ["stopped"]


@pytest.mark.parametrize("ids", [True, False])
def test_no_message_drops_a_call_that_waits_and_none_gets_its_result(
    life: Start, ids: bool
) -> None:
    """The result of the call that was approved comes first, and then that of the message."""

    def message(said: str, id_: str) -> object:
        return [said, id_] if ids else said

    one = talk(life, more={"needs_approval": ["mcp__pay__*"]})
    one.ended(says=[message("Charge ALPHA.", "m1")])
    refused = one.ended(says=[message("What about PEARS?", "m2")])
    assert refused["error"].startswith("WaitingForPerson"), refused
    assert f"caravanserai answer {one.run_id} q1" in refused["error"]
    assert refused["waits"] is True
    answer(one.run_id, True, store=one.store)

    went_on = one.ended(says=[message("What about PEARS?", "m2")])

    assert charged(one) == ["begin 1"]
    assert len(went_on["results"]) == 2
    assert "PEARS" in str(one.server.bodies[-1]["messages"][-1])
    if ids:
        again = one.ended(says=[["What about PEARS?", "m2"], ["Charge ALPHA.", "m1"]])
        assert again["results"] == went_on["results"][::-1]


def test_a_second_client_is_refused(life: Start, tmp_path: Path) -> None:
    one = talk(life)
    found = one.ended(says=["Charge ALPHA."], second=True)

    assert found["second"].startswith("RunBusy"), found["second"]
    assert "RunBusy" in found["other process"][0], found["other process"]
    # In the next process it is free again.
    assert one.ended(says=["Now BETA."])["error"] is None


@pytest.mark.parametrize("way", ["client", "with"])
def test_a_call_waits_for_a_person_and_runs_once(life: Start, way: str) -> None:
    """The client goes on with the call by itself where it is approved."""
    one = talk(life, way=way, more={"needs_approval": ["mcp__pay__*"]})
    asked = one.ended(says=["Charge ALPHA."])
    assert asked["results"][-1]["deferred_tool_use"]["input"] == {"n": 1}
    assert charged(one) == []
    assert "**Waiting for a person:**" in one.latest()

    answer(one.run_id, True, store=one.store)
    done = one.ended(says=[""] if way == "client" else ["Go on."])

    assert charged(one) == ["begin 1"]
    assert done["results"][-1]["result"] == "It is done."
    assert history(one.run_id, store=one.store)[-1].meta["at"] == "turn"


@pytest.mark.parametrize("way", ["client", "with", "query"])
def test_the_programs_own_hooks_and_permissions_stay(life: Start, way: str) -> None:
    one = talk(life, way=way, own=True)
    found = one.ended(says=["Charge ALPHA and BETA."])

    assert found["error"] is None
    assert found["results"][-1]["result"] == "It is done."
    assert charged(one) == ["begin 1"]
    outside = one.outside()
    assert outside["hook PreToolUse"] >= 2
    assert outside["may mcp__pay__charge 1"] == 1
    assert outside["may mcp__pay__charge 2"] >= 1
    note = "".join(str(point.note.happened) for point in history(one.run_id, store=one.store))
    told = "".join(point.note.summary for point in history(one.run_id, store=one.store)) + note
    assert "Customer two is not charged." in told
    # What was not allowed did not begin, and is not uncertain.
    assert "Not certain" not in one.latest()
