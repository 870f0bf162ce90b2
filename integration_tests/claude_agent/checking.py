"""How a session that was killed is compared with one that was not."""

from __future__ import annotations

from typing import Any

from caravanserai import list_runs
from integration_tests.claude_agent.life import Life
from integration_tests.claude_agent.scripts import CHARGE


def check_killed(
    one: Life,
    whole: dict[str, Any],
    place: str,
    *,
    how: str = "both",
    said: str = "rerun",
    asked: tuple[int, ...] = (0, 1),
) -> bool:
    """Kill a session at a place, start it again to its end, and compare it with an undisturbed one.

    Args:
        one: the session, not yet started.
        whole: see the fixture.
        place: where it dies.
        how: who dies there; see `places`.
        said: what a person says where it is asked whether a call happened.
        asked: how often that may be asked.

    Returns:
        Whether it died there. How many appends there are differs from run to run, so one of the
        last may never come; any other place has to.
    """
    if place.startswith("append "):
        died = one.start(place, how=how).killed
    else:
        one.killed(place, how=how)
        died = True
    one.check_store()
    check_goes_on(one, whole, said=said, asked=asked)
    return died


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
        reruns = _answered(one, thing, "rerun")
        assert outside[line] <= 1 + reruns, (line, outside)
        # One that a person took as done has begun, and may have been killed on its way.
        taken = _answered(one, thing, "happened")
        assert outside[line] or (taken and side == "end"), (line, outside)


def _answered(one: Life, thing: str, said: str) -> int:
    """Count how often a person answered about a charge, or about any command, in a way."""
    begins = f"{CHARGE}(n={thing}) " if thing.isdigit() else "Bash("
    return sum(
        str(question.record.head["text"]).startswith(begins)
        for question in one.questions()
        if question.answer is not None and question.answer.head["text"] == said
    )
