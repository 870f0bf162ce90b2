"""Killed at each record of the journal, and in a run that goes on in another place."""

# ruff: noqa: E402

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from integration_tests.support import require

require("claude_agent_sdk")

from integration_tests.claude_agent.checking import check_goes_on, check_killed
from integration_tests.claude_agent.life import Life, waits

Whole = Callable[..., dict[str, Any]]
Start = Callable[..., Life]


def test_killed_in_a_run_that_is_resumed_from_its_store(life: Start, whole: Whole) -> None:
    """On another machine, so to speak: another folder, and none of the CLI's own files."""
    one = life("charges")
    one.killed("begin 2")
    assert waits(one.ended())
    assert one.agree() == 1
    one.environment["CLAUDE_CONFIG_DIR"] = str(one.folder / "elsewhere/config")
    (one.folder / "elsewhere/work").mkdir(parents=True)
    there: dict[str, Any] = {"sdk": {"cwd": str(one.folder / "elsewhere/work")}}
    one.killed("end 3", **there)
    left = list((one.folder / "tmp").glob("claude-resume-*"))
    assert left, "it was not resumed from the store"
    one.options.update(there)
    check_goes_on(one, whole("charges"), asked=(2,))
    assert not list((one.folder / "tmp").glob("claude-resume-*"))


@pytest.mark.parametrize("how", ["both", "python"])
def test_killed_at_every_append(life: Start, whole: Whole, how: str, thorough: bool) -> None:
    """Before it and behind it; never is a charge made twice without a question."""
    places = list(dict.fromkeys(whole("charges")["appends"]))
    assert len(places) > 60
    if not thorough:
        if how == "python":
            pytest.skip("an orphan at every append: part of --thorough")
        begin = random.randrange(len(places) // 6)
        places = places[begin :: len(places) // 6][:6]
    died = [check_killed(life("charges"), whole("charges"), place, how=how) for place in places]
    assert sum(died) > len(died) * 0.7


@pytest.mark.parametrize("how", ["both", "cli"])
def test_killed_while_the_end_is_written(life: Start, whole: Whole, how: str) -> None:
    """The run comes to its end, and is not a failed one, whatever the program is told."""
    for place in list(dict.fromkeys(whole("charges")["appends"]))[-8::2]:
        one = life("charges")
        one.start(place, how=how)
        check_goes_on(one, whole("charges"), asked=(0,))


# How often a person may be asked: a subagent is a call, too, and two calls run at once.
ANYWHERE = {"parallel": 2, "commands": 1, "agent": 2, "beside": 3, "shortened": 1}


@pytest.mark.parametrize("name", ANYWHERE)
def test_killed_anywhere(life: Start, whole: Whole, name: str, thorough: bool) -> None:
    """With calls side by side, in subagents, and around a conversation's shortening."""
    places = list(dict.fromkeys(whole(name)["appends"]))
    asked = tuple(range(ANYWHERE[name] + 1))
    # Without --thorough the same place each time: a red one is about the change at hand.
    chosen = (
        random.sample(places, min(len(places), 20)) if thorough else places[len(places) // 2 :][:1]
    )
    for place in chosen:
        check_killed(life(name), whole(name), place, how="both", asked=asked)
