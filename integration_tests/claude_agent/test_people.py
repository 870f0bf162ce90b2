"""People approve, reject, or say what happened; in other processes, while nothing runs."""

# ruff: noqa: E402

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from integration_tests.support import require

require("claude_agent_sdk")

from caravanserai import answer, list_runs
from integration_tests.claude_agent.life import Life
from integration_tests.claude_agent.scripts import CHARGE, agent, charge

Start = Callable[..., Life]

TWO = [charge(1), charge(2), {"say": "It is done."}]
PAID = {"needs_approval": ["mcp__pay__*"]}


def job(life: Start, script: list[object], **options: object) -> Life:
    one = life("four", script=script, **options)
    one.call = "integration_tests.claude_agent.talking:run"
    one.options |= {"way": "query", "says": ["Charge them."]}
    return one


def charged(one: Life) -> list[str]:
    return [line for line in one.lines("outside.txt") if line.startswith("begin")]


def test_a_call_is_approved_another_is_rejected_and_each_runs_once_or_never(life: Start) -> None:
    one = job(life, TWO, more=PAID)
    first = one.ended()
    asked = one.asked()
    again = one.ended()
    assert again["results"] == first["results"], "a start before the answer gives the same"
    assert one.asked() == asked, "and asks no model"

    command = [sys.executable, "-m", "caravanserai_core.cli", "answer", "--store"]
    words = [str(one.folder / ".caravanserai"), one.run_id]
    subprocess.run([*command, *words, "--approve"], check=True, capture_output=True)
    second = one.ended()
    assert second["results"][-1]["deferred_tool_use"]["input"] == {"n": 2}
    assert charged(one) == ["begin 1"]
    reject = ["q2", "--reject", "--reason", "Customer two has left."]
    subprocess.run([*command, *words, *reject], check=True, capture_output=True)
    last = one.ended()

    assert charged(one) == ["begin 1"]
    assert last["results"][-1]["result"] == "It is done."
    told = [result for result in results_of(one) if "Customer two has left." in result]
    assert told, "the model is given the reason"
    assert [run.status for run in list_runs(store=one.store)] == ["finished"]


def results_of(one: Life) -> list[str]:
    found = []
    for message in one.server.bodies[-1]["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else []:
            if block["type"] == "tool_result":
                content = block["content"]
                parts = [content] if isinstance(content, str) else [p["text"] for p in content]
                found.append("\n".join(parts))
    return found


def test_two_calls_of_one_answer_are_asked_about_one_after_the_other(life: Start) -> None:
    """The CLI keeps one deferred call and drops the other; that one is made again."""
    one = job(life, [charge(1, 2), {"say": "It is done."}], more=PAID)
    one.ended()
    assert [question.state for question in one.questions()] == ["open", "open"]
    answer(one.run_id, True, question="q1", store=one.store)
    answer(one.run_id, True, question="q2", store=one.store)

    last = one.ended()

    assert sorted(charged(one)) == ["begin 1", "begin 2"]
    assert last["results"][-1]["result"] == "It is done."


def test_a_subagent_leaves_it_to_the_main_agent_to_wait(life: Start) -> None:
    def decide(asked: object) -> dict[str, object]:
        said = "\n".join([asked.system, *asked.said])  # type: ignore[attr-defined]
        if "You charge customers one and two." in said:
            tried = [call for call in asked.calls.values() if call[0] == CHARGE]  # type: ignore[attr-defined]
            return {"say": "A person has to decide."} if tried else charge(1)
        send = agent(beside=False)
        if not asked.made(*send["call"][0]):  # type: ignore[attr-defined]
            return send
        if not asked.made(CHARGE, {"n": 1}):  # type: ignore[attr-defined]
            return charge(1)
        return {"say": "It is done."}

    one = job(life, decide, more=PAID)  # type: ignore[arg-type]
    asked = one.ended()
    assert asked["results"][-1]["stop_reason"] == "tool_deferred"
    assert len(one.questions()) == 1, "it is one question, whoever makes the call"
    answer(one.run_id, True, store=one.store)

    last = one.ended()

    assert charged(one) == ["begin 1"]
    assert last["results"][-1]["result"] == "It is done."


@pytest.mark.parametrize("said", ["happened", "stop"])
def test_a_person_says_what_became_of_a_call(life: Start, said: str) -> None:
    one = job(life, TWO)
    one.killed("begin 1")
    assert one.ended()["results"][-1]["stop_reason"] == "tool_deferred"
    result = {"result": "receipt 77"} if said == "happened" else {}
    answer(one.run_id, said, store=one.store, **result)

    last = one.ended()

    assert charged(one)[:1] == ["begin 1"]
    if said == "happened":
        assert charged(one) == ["begin 1", "begin 2"]
        assert [text for text in results_of(one) if "receipt 77" in text]
        assert last["results"][-1]["result"] == "It is done."
    else:
        assert last["error"].startswith("EffectStopped")
        assert charged(one) == ["begin 1"]
        assert one.ended()["error"].startswith("EffectStopped"), "at each start"
        assert [run.status for run in list_runs(store=one.store)] == ["failed"]


def test_a_pattern_that_means_no_tool_is_told(life: Start) -> None:
    one = job(life, TWO, more={"needs_approval": ["mcp__pya__*"], "on_uncertain": {"Bash": "ask"}})
    one.ended()
    told = (one.folder / "out.txt").read_text()
    assert "is meant by `mcp__pya__*`" in told
    assert told.count("is meant by") == 1


def background(command: str) -> dict[str, object]:
    return {"call": [["Bash", {"command": command, "run_in_background": True}]]}


def test_a_command_in_the_background_that_was_cut_off_is_asked_about(life: Start) -> None:
    """That it was begun is no end of it."""
    script = [background("sleep 30; echo late >> outside.txt"), charge(1), {"say": "It is done."}]
    one = job(life, script)
    one.killed("begin 1")
    one.ended()
    bodies = [str(body["messages"]) for body in one.server.bodies]
    told = [body for body in bodies if "began and never reported back" in body]
    assert told
    assert "sleep 30" in told[0].partition("began and never reported back")[2]
    assert not any("Not run again" in body for body in bodies)
    assert one.outside()["late"] == 0


def test_the_end_of_a_command_in_the_background_is_known(life: Start) -> None:
    script = [background("echo early >> outside.txt"), charge(1), {"say": "It is done."}]
    one = job(life, script, pace=0.6)
    one.killed("end 1")

    last = one.finished()

    assert one.outside()["early"] == 1
    asked = [str(question.record.head["text"]) for question in one.questions()]
    assert not any("early" in text for text in asked), asked
    assert last["results"][-1]["result"] == "It is done."


def test_policies_for_calls_that_may_have_happened(life: Start) -> None:
    one = job(life, TWO, more={"on_uncertain": {"mcp__pay__*": "rerun"}})
    one.killed("begin 1")

    last = one.ended()

    assert charged(one) == ["begin 1", "begin 1", "begin 2"]
    assert last["results"][-1]["result"] == "It is done."
    folder = one.folder / ".caravanserai" / one.run_id
    notes = [path.read_text(encoding="utf-8") for path in folder.glob("waypoint-*.md")]
    assert any("may have happened twice" in note for note in notes)

    two = job(life, TWO, more={"on_uncertain": "stop"})
    two.killed("begin 1")
    assert two.ended()["error"].startswith("EffectUncertain")
    assert charged(two) == ["begin 1"]
