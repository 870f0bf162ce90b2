"""Runs inside of a run, with a session or a provider of their own: killed anywhere, all comes once.

The inner agent's session is read at the end, and the model's server counts what it answered.
"""

# ruff: noqa: E402

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from integration_tests.support import require

require("agents")

from integration_tests.openai_agents.life import Life, comparable

Whole = Callable[..., dict[str, Any]]
Start = Callable[..., Life]

APPS = ["inner", "inner streaming", "inner by name", "inner streaming by name", "calling"]


def check(one: Life, whole: dict[str, Any], place: str) -> None:
    """Start a killed job to its end; what has a record is not done again, what has none may be."""
    recorded, before = one.recorded(), one.outside()
    unheard = one.asked() - recorded["model"]
    lost = Counter({line: n - recorded[line.split()[1]] for line, n in _ended(before).items()})
    assert unheard in (0, 1), place
    found = one.finished()
    one.check_store()
    assert one.asked() == whole["answers"] + unheard, place
    assert _ended(one.outside()) == _ended(whole["outside"]) + lost, place
    if unheard:  # an answer that was asked for again has other ids
        assert _kinds(found) == _kinds(whole["result"]), place
    else:
        assert comparable(found) == comparable(whole["result"]), place


def _ended(lines: Counter[str]) -> Counter[str]:
    return Counter({line: n for line, n in lines.items() if line.startswith("end ")})


def _kinds(found: dict[str, Any]) -> Any:
    inner = Counter(str(item.get("type") or item["role"]) for item in found["inner"])
    return found["final"], inner, [item[:2] for item in found["items"]]


@pytest.mark.parametrize("app", [*APPS, "inner approving"])
def test_undisturbed_its_session_is_as_the_sdks_runner_leaves_it(
    life: Start, whole: Whole, app: str
) -> None:
    assert life(app, plain=True).finished()["inner"] == whole(app)["result"]["inner"]


INNER = [f"inner add {n} {side}" for n in (1, 2, 3) for side in ("begins", "ends")]


@pytest.mark.parametrize("app", APPS)
@pytest.mark.parametrize("place", [*INNER, "begin check_stock chair", "begin write_down"])
def test_killed_around_the_sessions_own_writes(
    life: Start, whole: Whole, app: str, place: str
) -> None:
    one = life(app)
    if place.startswith("inner add 3") and place not in whole(app)["outside"]:
        pytest.skip("its runner writes twice")
    one.killed(place)
    check(one, whole(app), place)


@pytest.mark.parametrize("app", [*APPS, "inner approving"])
@pytest.mark.parametrize("way", ["run", "stream"])
def test_killed_around_every_record(
    life: Start, whole: Whole, app: str, way: str, thorough: bool
) -> None:
    undisturbed = whole(app, way=way)
    places = list(dict.fromkeys(undisturbed["appends"]))
    assert len(places) > 20
    for place in random.sample(places, 20 if thorough else 3):
        one = life(app, way=way)
        one.killed(place)
        check(one, undisturbed, place)


@pytest.mark.parametrize("app", ["inner both", "calling both"])
def test_two_at_once_with_one_session_killed_around_records(
    life: Start, whole: Whole, app: str, thorough: bool
) -> None:
    """Each gets its own answers again, and the session that they share what both said."""
    undisturbed = whole(app)
    # The last may join another, which of the two writes first is chance.
    places = list(dict.fromkeys(undisturbed["appends"]))[:-6]
    assert len(places) > 20
    for place in random.sample(places, 40 if thorough else 4):
        one = life(app)
        one.killed(place)
        unheard = one.asked() - one.recorded()["model"]
        assert unheard in (0, 1, 2), place
        found = one.finished()
        assert one.asked() == undisturbed["answers"] + unheard, place
        assert _kinds(found) == _kinds(undisturbed["result"]), place
        one.check_store()
