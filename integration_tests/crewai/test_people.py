"""People who are asked: for feedback on a task, and about a tool that never reported back."""

# ruff: noqa: E402

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from caravanserai import answer
from integration_tests.support import require

require("crewai")

from integration_tests.crewai.life import RUN, Life, comparable
from integration_tests.crewai.scripts import ASKING

Whole = Callable[..., dict[str, Any]]
Start = Callable[..., Life]

WAYS = ["kickoff", "kickoff_async", "akickoff"]

# ---------------------------------------------------------------------- feedback


@pytest.mark.parametrize("way", WAYS)
def test_feedback_is_a_question_of_the_run(life: Start, way: str) -> None:
    """The crew ends, is answered from elsewhere, and the same line goes on."""
    one = life("asking", script=ASKING, way=way)
    assert list(one.ended()) == ["waits"]
    assert "'draft'" in one.latest() or '"draft"' in one.latest()
    assert one.asked() == 6
    assert list(one.ended()) == ["waits"], "unanswered, it waits on"
    assert one.asked() == 6

    assert one.agree("make it shorter") == 1
    assert list(one.ended()) == ["waits"], "what was changed is shown, too"
    assert one.asked() == 7

    assert one.agree("") == 1
    found = one.ended()
    assert [task["raw"] for task in found["tasks"]][1] == "Short draft."
    assert one.asked() == 10
    assert one.outside() == Counter(dict.fromkeys(one.outside(), 1)), "nothing was done twice"


@pytest.mark.parametrize("place", ["request 1", "begin lookup review", "then draft"])
def test_an_answer_counts_after_a_crash(life: Start, place: str) -> None:
    """It is not asked again."""
    one = life("asking", script=ASKING)
    one.ended()
    one.agree("make it shorter")
    if place == "request 1":
        one.killed(place)
    else:
        one.ended()
        one.agree("")
        one.killed(place)
    while list(found := one.ended()) == ["waits"]:
        one.agree("")
    assert found["tasks"][1]["raw"] == "Short draft."
    assert one.asked() == 10
    assert len(one.questions()) == 2


# ---------------------------------------------------------------------- uncertain tools


@pytest.mark.parametrize("way", WAYS)
def test_a_tool_that_never_reported_back_is_asked_about(
    life: Start, whole: Whole, way: str
) -> None:
    """Where the program says so; said to be done again, it has the key that it had."""
    one = life("report", way=way, more={"on_uncertain": "ask"})
    one.killed("end write_down draft")
    before = one.requests()
    assert list(one.ended()) == ["waits"]
    assert "write_down" in one.latest()
    assert one.requests() == before
    assert one.agree("rerun") == 1
    assert comparable(one.ended()) == comparable(whole("report")["result"])
    kept = [line for line in one.lines("kept.txt") if line.startswith("draft ")]
    assert len(kept) == 2
    assert len(set(kept)) == 1


def test_a_tool_that_happened_is_not_called_again(life: Start, whole: Whole) -> None:
    """The model is told what a person says that it returned."""
    one = life("report", more={"on_uncertain": {"write_down": "ask"}})
    one.killed("end write_down draft")
    one.ended()
    (question,) = one.questions()
    answer(RUN, "happened", question=question.id, result="kept draft", store=one.store)
    assert comparable(one.ended()) == comparable(whole("report")["result"])
    assert one.outside() == whole("report")["outside"]


def test_a_run_that_a_person_stops_does_not_go_on(life: Start) -> None:
    one = life("report", more={"on_uncertain": "ask"})
    one.killed("end write_down draft")
    one.ended()
    one.agree("stop")
    before = one.requests(), one.outside()
    assert "EffectStopped" in one.refused()
    assert (one.requests(), one.outside()) == before


def test_a_program_may_stop_where_a_tool_is_uncertain(life: Start) -> None:
    one = life("report", more={"on_uncertain": "stop"})
    one.killed("end write_down draft")
    before = one.requests(), one.outside()
    assert "EffectUncertain" in one.refused()
    assert (one.requests(), one.outside()) == before


@pytest.mark.parametrize("place", ["end lookup draft", "end write_down draft"])
def test_tools_may_be_told_apart(life: Start, whole: Whole, place: str) -> None:
    """A tool without a policy of its own is called again."""
    one = life("report", more={"on_uncertain": {"write_down": "ask"}})
    one.killed(place)
    asked = "write_down" in place
    assert (list(one.ended()) == ["waits"]) == asked
    if asked:
        one.agree("rerun")
    assert comparable(one.ended()) == comparable(whole("report")["result"])


@pytest.mark.parametrize("app", ["react", "parallel", "hierarchical", "hole"])
def test_a_tool_is_asked_about_in_every_kind_of_crew(life: Start, whole: Whole, app: str) -> None:
    """In ReAct, several at once, below a manager, in a thread of its own."""
    one = life(app, more={"on_uncertain": "ask"})
    place = {"hierarchical": "end lookup part of draft", "hole": "end slow research"}
    one.killed(place.get(app, "end write_down draft"))
    while list(found := one.ended()) == ["waits"]:
        assert one.agree("rerun")
    assert comparable(found) == comparable(whole(app)["result"])
    assert one.asked() == whole(app)["answers"]


# ---------------------------------------------------------------------- the program's hooks


@pytest.mark.parametrize("place", ["begin lookup review", "hook after write_down"])
def test_hooks_of_the_program_are_called_as_before(life: Start, whole: Whole, place: str) -> None:
    """Also for what is given again, since they may change what the model is told."""
    one = life("report", hooks=True)
    one.killed(place)
    found = one.ended()
    undisturbed = whole("report", hooks=True)
    assert comparable(found) == comparable(undisturbed["result"])
    again = one.outside() - undisturbed["outside"]
    assert again
    assert all(line.startswith("hook ") or line == place for line in again)
