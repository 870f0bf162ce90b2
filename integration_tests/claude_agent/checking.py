"""How a session that was killed is compared with one that was not."""

from __future__ import annotations

import re
from typing import Any

from caravanserai import list_runs
from integration_tests.claude_agent.life import Life


def check_killed(
    one: Life,
    whole: dict[str, Any],
    place: str,
    *,
    how: str = "both",
    said: str = "rerun",
    asked: tuple[int, ...] = (0, 1),
) -> None:
    """Kill a session at a place, start it again to its end, and compare it with an undisturbed one.

    Args:
        one: the session, not yet started.
        whole: see the fixture.
        place: where it dies.
        how: who dies there; see `places`.
        said: what a person says where it is asked whether a call happened.
        asked: how often that may be asked.
    """
    one.killed(place, how=how)
    one.check_store()
    check_goes_on(one, whole, said=said, asked=asked)


def check_goes_on(
    one: Life, whole: dict[str, Any], *, said: str = "rerun", asked: tuple[int, ...] = (0, 1)
) -> None:
    """Start a session that was killed to its end; see `check_killed`."""
    found = one.finished(said)
    assert one.uncertain in asked, one.uncertain
    assert found["results"][-1]["result"] == whole["text"]
    assert found["results"][-1]["is_error"] is False
    check_world(one, whole)
    one.check_store(torn=False)
    assert [run.status for run in list_runs(store=one.store)] == ["finished"]
    before = one.asked(), one.outside()
    assert one.ended()["results"] == found["results"][-1:], "the same line returns its result"
    assert (one.asked(), one.outside()) == before, "and does nothing"


def check_world(one: Life, whole: dict[str, Any]) -> None:
    """Nothing is missing, and what happens again was asked about before."""
    outside = one.outside()
    again = outside - whole["outside"]
    assert set(again) <= set(whole["outside"]), again
    for line in whole["outside"]:
        side, _, thing = line.partition(" ")
        reruns = sum(thing in things for things in _answered(one, "rerun"))
        taken = any(thing in things for things in _answered(one, "happened"))
        assert outside[line] <= 1 + reruns, (line, outside)
        # One that a person took as done has begun, and may have been killed on its way.
        assert outside[line] or (taken and side == "end"), (line, outside)


def _answered(one: Life, said: str) -> list[list[str]]:
    """Return the charges and commands that a person answered about in a way."""
    return [
        re.findall(r"n=(\d+)|echo begin (\w+)", str(question.record.head["text"]))[0]
        for question in one.questions()
        if question.answer is not None
        and question.answer.head["text"] == said
        and not str(question.record.head["text"]).startswith("Agent(")
    ]
