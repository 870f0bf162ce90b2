"""Killed at any place and started again: no answer is asked for twice, no finished tool runs twice.

What happened is counted outside: the model's server counts its answers, each tool leaves a line.
"""

# ruff: noqa: E402

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("agents")

from caravanserai import list_runs
from integration_tests.openai_agents.apps import BOTH, NESTED
from integration_tests.openai_agents.life import Life, comparable
from integration_tests.preloaded import Preloaded

Whole = Callable[..., dict[str, Any]]
Start = Callable[..., Life]


def check(
    one: Life, whole: dict[str, Any], *, again: tuple[str, ...] = (), unheard: int = 0
) -> Any:
    """Start a job that was killed to its end, and compare it with an undisturbed one.

    Args:
        one: the job.
        whole: see the fixture.
        again: lines of tools that happen once more: those of a call that has no result.
        unheard: answers of the model that its client had and did not write down.
    """
    one.check_store()
    found = one.finished()
    if not unheard:
        assert comparable(found) == comparable(whole["result"])
        assert list(one.server.bodies.values()) == whole["bodies"]
    else:  # an answer that was asked for again has other ids
        assert _bare(found) == _bare(whole["result"])
    assert one.asked() == whole["answers"] + unheard
    expected = Counter({k: n for k, n in whole["outside"].items() if k.startswith("end ")})
    expected.update(line for line in again if line.startswith("end "))
    done = Counter({k: n for k, n in one.outside().items() if k.startswith("end ")})
    assert done == expected
    one.check_store()
    assert [run.status for run in list_runs(store=one.store)] == ["finished"]
    before = one.asked(), one.outside(), one.refunds()
    assert comparable(one.ended()) == comparable(found), "the same line returns what it came to"
    assert (one.asked(), one.outside(), one.refunds()) == before, "and does nothing"
    return found


def _bare(found: dict[str, Any]) -> Any:
    return (found["final"], found["agent"], [item[:2] for item in found["items"]], found["tokens"])


# ---------------------------------------------------------------------- named places

PLACES = [
    "begin lookup_order",
    "end lookup_order",
    "hook model 1",
    "hook tool lookup_order",
    "between",
    "hook handoff refund agent",
    "paused",
    "begin issue_refund",
    "end issue_refund",
    "hook tool issue_refund",
    "hook end refund agent",
]


@pytest.mark.parametrize("way", ["run", "stream"])
@pytest.mark.parametrize("place", PLACES)
def test_killed_at_a_place(life: Start, whole: Whole, place: str, way: str) -> None:
    """Inside a tool and after its effect, after an answer, between two tools, at the hand-over."""
    one = life("refund", way=way)
    one.killed(place)
    again = (place,) if place.startswith("end ") else ()
    check(one, whole("refund", way=way), again=again)
    # A tool that needs an approval is asked about before it may run again, any other is not.
    assert one.uncertain == (place in ("begin issue_refund", "end issue_refund"))


def test_killed_inside_a_refund_that_happened(life: Start) -> None:
    """Said to have happened, with what it returned, it does not run again."""
    one = life("refund")
    one.killed("end issue_refund")
    waits = one.ended()
    assert list(waits) == ["waits"]
    assert "issue_refund" in one.latest()
    assert one.agree_that_it_happened("refunded 40 EUR") == 1
    assert one.finished()["final"] == "Refund for order A17: refunded 40 EUR."
    assert len(one.refunds()) == 1


def test_a_call_that_runs_again_has_the_same_id(life: Start) -> None:
    """So a service that takes an idempotency key does the work once."""
    one = life("refund")
    one.killed("end issue_refund")
    one.finished()
    assert len(one.refunds()) == 2
    assert len(set(one.refunds())) == 1


SESSION_PLACES = [f"session add {n} {side}" for n in (1, 2, 3, 4) for side in ("begins", "ends")]


@pytest.mark.parametrize("way", ["run", "stream"])
@pytest.mark.parametrize("place", [*SESSION_PLACES, "begin lookup_order", "between", "paused"])
def test_killed_with_a_session(life: Start, whole: Whole, place: str, way: str) -> None:
    """The user's own session ends with no lost and no doubled item; also around its own writes."""
    one = life("refund", way=way, session=True)
    one.killed(place)
    check(one, whole("refund", way=way, session=True))


@pytest.mark.parametrize("way", ["run", "stream"])
@pytest.mark.parametrize(
    "place",
    [
        "begin check_stock chair",
        "end check_stock chair",
        "hook tool ask_expert",
        "begin write_down",
    ],
)
def test_killed_in_a_nested_agent(life: Start, whole: Whole, place: str, way: str) -> None:
    """What an agent inside of a tool asked and did is not done again either."""
    one = life("nested", way=way)
    one.killed(place)
    check(one, whole("nested", way=way), again=(place,) if place.startswith("end ") else ())


@pytest.mark.parametrize("place", ["begin reserve chair", "end reserve chair", "paused"])
def test_killed_at_the_approval_of_a_nested_agent(life: Start, whole: Whole, place: str) -> None:
    one = life("approving")
    one.killed(place)
    check(one, whole("approving"), again=(place,) if place.startswith("end ") else ())


@pytest.mark.parametrize(
    "place",
    ["begin handed_over", "end handed_over", "hook handoff refund agent", "hook model 4"],
)
def test_killed_at_a_hand_over_with_a_callback(life: Start, whole: Whole, place: str) -> None:
    """What the program does at a hand-over is done once, unless it was cut off itself."""
    one = life("told")
    one.killed(place)
    check(one, whole("told"), again=(place,) if place.startswith("end ") else ())


@pytest.mark.parametrize("place", ["begin decent", "end decent", "hook model 1", "begin polite"])
@pytest.mark.parametrize("way", ["run", "stream"])
def test_killed_with_guardrails(life: Start, whole: Whole, place: str, way: str) -> None:
    """What a guardrail found is not looked for again."""
    one = life("guarded", way=way)
    one.killed(place)
    check(one, whole("guarded", way=way), again=(place,) if place.startswith("end ") else ())


@pytest.mark.parametrize("place", ["begin lookup_order", "between", "paused", "begin issue_refund"])
def test_killed_with_a_structured_answer(life: Start, whole: Whole, place: str) -> None:
    one = life("structured")
    one.killed(place)
    assert check(one, whole("structured"))["final"] == {"order_id": "A17", "amount": 40}


@pytest.mark.parametrize("place", ["begin a_dataclass", "hook tool parts", "append 12 begins"])
def test_killed_among_tools_that_return_no_strings(life: Start, whole: Whole, place: str) -> None:
    """The model is told exactly what it would have been told."""
    one = life("kinds")
    one.killed(place)
    lost = one.outside() - Counter({f"end {name}": n for name, n in one.recorded().items()})
    again = [line for line in lost if line.startswith("end ")]
    check(one, whole("kinds"), again=tuple(again))
    assert _outputs(one.server) == _outputs_of(one)


def _outputs(server: Any) -> Any:
    body = server.bodies[max(server.bodies)]
    return [i["output"] for i in body["input"] if i.get("type") == "function_call_output"]


def _outputs_of(one: Life) -> Any:
    with Life(one.preloaded, one.folder / "other", one.options, one.server.script) as other:
        other.finished()
        return _outputs(other.server)


@pytest.mark.parametrize("way", ["run", "stream"])
@pytest.mark.parametrize("place", ["begin lookup_order", "between", "paused", "begin issue_refund"])
def test_killed_with_chat_completions(life: Start, whole: Whole, place: str, way: str) -> None:
    one = life("refund", way=way, api="chat")
    one.killed(place)
    check(one, whole("refund", way=way, api="chat"))


# ---------------------------------------------------------------------- an MCP server


def test_killed_by_the_tool_of_an_mcp_server(life: Start, whole: Whole) -> None:
    """The finished call of the first turn is not repeated; the one that was cut off is."""
    one = life("weather")
    one.killed("append 5 begins")
    recorded = one.recorded()["forecast"]
    happened = sum(n for line, n in one.outside().items() if line.startswith("end forecast"))
    one.finished()
    assert one.asked() == whole("weather")["answers"]
    after = sum(n for line, n in one.outside().items() if line.startswith("end forecast"))
    assert after == 2 + happened - recorded


# ---------------------------------------------------------------------- every record


def _around(appends: list[str]) -> list[str]:
    return [place for place in appends if place.startswith("append ")]


@pytest.mark.parametrize("app", ["refund", "nested", "approving"])
@pytest.mark.parametrize("way", ["run", "stream"])
def test_killed_around_every_record(
    life: Start, whole: Whole, app: str, way: str, thorough: bool
) -> None:
    """Before and after each append to the journal of the first start, and of the second."""
    undisturbed = whole(app, way=way, session=True)
    places = list(dict.fromkeys(_around(undisturbed["appends"])))
    assert len(places) > 20
    for place in places if thorough else random.sample(places, 4):
        one = life(app, way=way, session=True)
        one.killed(place)
        check_by_record(one, undisturbed, place)


def check_by_record(one: Life, whole: dict[str, Any], place: str) -> None:
    """Compare a killed job with a whole one; what may be repeated is what has no record."""
    answered = one.asked()
    recorded, outside = one.recorded(), one.outside()
    unheard = answered - recorded["model"]
    assert unheard in (0, 1), place
    lost = [
        line
        for line, count in outside.items()
        if line.startswith("end ") and count > recorded[line.split()[1]]
    ]
    assert len(lost) <= 2, place  # two may run at once
    check(one, whole, again=tuple(lost), unheard=unheard)


# ---------------------------------------------------------------------- any moment


@pytest.mark.parametrize("script", [NESTED, BOTH], ids=["one", "two at once"])
@pytest.mark.parametrize("way", ["run", "stream"])
def test_killed_again_and_again(
    preloaded: Preloaded, tmp_path: Path, script: Any, way: str, thorough: bool
) -> None:
    """At random moments, until it is done: a finished tool never runs a second time."""
    chance = random.Random(way)
    for number in range(20 if thorough else 2):
        options = {"app": "both", "way": way, "session": True}
        with Life(preloaded, tmp_path / str(number), options, script) as one:
            kills = 0
            # Later and later, so that a busy machine ends, too.
            while one.start(kill_after=chance.uniform(0.02, 0.2) * 1.05**kills).killed:
                kills += 1
                one.check_store()
            found = one.ended()
            assert found["final"] == "Done, kept."
            recorded = one.recorded()
            for line, count in one.outside().items():
                if line.startswith("end "):
                    assert count <= 1 + kills
            assert recorded["check_stock"] == len({"chair"} if script is NESTED else {1, 2})
            assert recorded["model"] == (5 if script is NESTED else 7)
            assert one.asked() <= recorded["model"] + kills
