"""Killed at any place and started again: no answer is asked for twice, no finished tool runs twice.

What happened is counted outside: the model's server counts its requests, each tool leaves a line.
"""

# ruff: noqa: E402

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from integration_tests.support import require

require("crewai")

from integration_tests.crewai.checking import ASKED_AT_ONCE, AT_ONCE, check_killed, places_of
from integration_tests.crewai.life import Life, comparable
from integration_tests.crewai.scripts import SCRIPTS

Whole = Callable[..., dict[str, Any]]
Start = Callable[..., Life]

WAYS = ["kickoff", "kickoff_async", "akickoff"]

PLACES = [
    "request 1",  # nothing is done yet
    "request 5",  # inside of the second task
    "begin lookup draft",
    "end lookup draft",
    "end write_down review",  # the last thing that happens
    "then research",  # the task is done, and is not written down as such
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", WAYS)
def test_killed_at_a_place(life: Start, whole: Whole, place: str, way: str, thorough: bool) -> None:
    """While the model is asked, inside of a tool and after its effect, in a callback."""
    if way == "kickoff_async" and place not in PLACES[-2:] and not thorough:
        pytest.skip("a kickoff in a thread: part of --thorough")
    check_killed(life("report", way=way), whole("report", way=way), place)


NAMED = {
    "react": ["end lookup draft", "request 6"],
    "parallel": ["end write_down draft", "begin lookup draft too"],
    "hierarchical": ["end lookup part of draft", "request 3"],
    "hole": ["begin slow research", "end slow research", "then draft"],
    "done": ["decide", "end lookup draft"],
    "left out": ["decide", "begin lookup review"],
    "guarded": ["guard BAD draft", "end lookup draft again", "guard GOOD draft", "then draft"],
    "judged": ["request 5", "end lookup draft again", "request 8"],
    "structured": ["then research", "file 1 begins", "file 1 ends", "file 2 begins"],
    "planned": ["request 1", "end lookup research", "then research"],
    "heard": ["before kickoff", "own draft", "step AgentFinish of agent", "after kickoff"],
    "class": ["before kickoff", "begin lookup draft", "after kickoff"],
    "raising": ["end visit draft", "end lookup draft"],
}


@pytest.mark.parametrize(
    ("app", "place"), [(app, place) for app, places in NAMED.items() for place in places]
)
def test_killed_in_any_kind_of_crew(life: Start, whole: Whole, app: str, place: str) -> None:
    """Tools by text, several at once, delegation, guardrails, plans, files, callbacks."""
    check_killed(life(app), whole(app), place)


# CrewAI 1.15.30 cannot plan inside of akickoff.
@pytest.mark.parametrize("app", [app for app in SCRIPTS if app not in ("report", "planned")])
def test_killed_in_any_kind_of_crew_with_async_kickoff(
    life: Start, whole: Whole, app: str, thorough: bool
) -> None:
    undisturbed = whole(app, way="akickoff")
    places = places_of(undisturbed)
    for place in random.sample(places, min(len(places), 20) if thorough else 1):
        check_killed(life(app, way="akickoff"), undisturbed, place)


@pytest.mark.parametrize("app", SCRIPTS)
def test_killed_anywhere(life: Start, whole: Whole, app: str, thorough: bool) -> None:
    """At each request, line and append to the journal: before it, and behind it."""
    undisturbed = whole(app)
    places = places_of(undisturbed)
    assert len(places) > 30
    for place in places if thorough else random.sample(places, 2):
        check_killed(life(app), undisturbed, place)


@pytest.mark.parametrize("app", ["report", "react", "hierarchical", "guarded", "planned"])
def test_killed_at_every_second_request(
    life: Start, whole: Whole, app: str, thorough: bool
) -> None:
    """Each start has one answer more, and at last all is done, as if nothing had been."""
    if app in ("react", "planned") and not thorough:
        pytest.skip("part of --thorough")
    one = life(app)
    kills = 0
    while one.start("request 2").killed:
        kills += 1
        one.check_store()
    undisturbed = whole(app)
    assert kills == undisturbed["answers"] - 1
    assert comparable(one.ended()) == comparable(undisturbed["result"])
    assert one.asked() == undisturbed["answers"]
    assert one.outside() == undisturbed["outside"]


@pytest.mark.parametrize("app", ["report", "parallel", "hole"])
def test_killed_again_and_again(life: Start, whole: Whole, app: str, thorough: bool) -> None:
    """Anywhere, also while it goes on: a tool whose result is recorded never runs again."""
    chance = random.Random(app)
    for _ in range(10 if thorough else 1):
        one = life(app)
        kills = 0
        while one.start(f"append {chance.randint(4, 14)} {chance.choice(SIDES)}").killed:
            kills += 1
            one.check_store()
        undisturbed = whole(app)
        assert kills
        assert comparable(one.ended()) == comparable(undisturbed["result"])
        at_once = ASKED_AT_ONCE.get(app, 1)
        assert one.requests() <= undisturbed["answers"] + kills * at_once
        assert not undisturbed["outside"] - one.outside()
        again = one.outside() - undisturbed["outside"]
        assert max(again.values(), default=0) <= kills
        ends = [line for line in again.elements() if not line.startswith("begin ")]
        assert len(ends) <= kills * AT_ONCE.get(app, 1)


SIDES = ("begins", "ends")
