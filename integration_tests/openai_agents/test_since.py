"""A killed run is read with what was recorded behind its newest waypoint."""

# ruff: noqa: E402

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("agents")

from caravanserai import checkpoint, handoff
from caravanserai.openai_agents._steps import call_key, digest
from caravanserai.openai_agents.transcript import transcript
from caravanserai_core.questions import digest_of
from caravanserai_core.transcript import Message, Since, ToolCall, Transcript
from integration_tests.openai_agents.jobs import TASK
from integration_tests.openai_agents.life import RUN, Life

Start = Callable[..., Life]

POLICY = "a refund up to 50 EUR needs an approval"
QUOTE = "5 EUR for A17"


def told(one: Life) -> Transcript:
    return handoff(RUN, store=one.store).transcript


def called(found: Transcript) -> list[str]:
    return [call.name for message in found.messages for call in message.tool_calls]


def results(found: Transcript) -> list[str]:
    return [message.text for message in found.messages if message.role == "tool"]


@pytest.mark.parametrize("place", ["hook model 1", "begin lookup_order"])
def test_killed_in_the_first_turn(life: Start, place: str) -> None:
    """The answer is there, and its call may have run: also where nothing of it is recorded."""
    one = life("refund")
    one.killed(place)

    found = told(one)

    first, asked = found.messages
    assert first == Message("user", TASK)
    assert (asked.name, called(found)) == ("triage agent", ["lookup_order"])
    assert found.uncertain == asked.tool_calls
    assert found.to_openai()[-1]["tool_call_id"] == asked.tool_calls[0].id


def test_killed_between_two_tools(life: Start) -> None:
    one = life("refund")
    one.killed("between")

    found = told(one)

    assert called(found) == ["lookup_order", "get_policy", "shipping_quote"]
    assert results(found) == ["order A17: 40 EUR, delivered", QUOTE]
    assert [call.name for call in found.uncertain] == ["get_policy"]


def test_killed_at_a_hand_over(life: Start) -> None:
    one = life("told")
    one.killed("hook handoff refund agent")

    found = told(one)

    assert found.uncertain == ()
    assert found.messages[-1].text == "Handed over to refund agent."


def test_a_call_that_waits_to_be_approved_did_not_run(life: Start) -> None:
    """Until it is approved, and begins."""
    one = life("refund")
    one.killed("paused")
    waits = told(one)
    assert waits.uncertain == ()
    assert results(waits)[-1] == "This call did not run: it waits for a person to approve it."

    one.killed("end issue_refund")
    assert [call.name for call in told(one).uncertain] == ["issue_refund"]
    assert handoff(RUN, at=-1, store=one.store).uncertain == ()

    one.agree_that_it_happened("refunded 40 EUR")
    one.start("hook tool issue_refund")
    assert one.agree_that_it_happened("refunded 40 EUR") == 1
    one.killed("hook tool issue_refund")
    ended = told(one)
    assert ended.uncertain == ()
    assert results(ended)[-1] == "refunded 40 EUR"


# ---------------------------------------------------------------------- made by hand

STATE = {"given": "Do it.", "at": "begin", "counts": {}, "run": None}


def answer(key: str, *calls: tuple[str, str, str], n: int = 1, path: str = "") -> Since:
    output = [
        {"type": "function_call", "name": name, "call_id": id_, "arguments": arguments}
        for name, id_, arguments in calls
    ]
    meta = {"key": key, "path": path, "n": n, "agent": "clerk"}
    return Since("entry", "model", {"name": "model", "meta": meta}, {"output": output})


def step(n: int, id_: str, what: str, data: Any = None, **head: Any) -> Since:
    key = digest_of(call_key("", n, id_), "a call")
    return Since("effect", "look", {"label": "look", "key": key, "what": what, **head}, data)


def test_steps_belong_to_calls_by_their_key() -> None:
    """Two calls with the same arguments and, in two answers, the same id."""
    found = transcript(
        STATE,
        since=[
            answer("#1", ("look", "c", "{}"), ("look", "d", "{}")),
            step(1, "c", "started"),
            step(1, "d", "started"),
            step(1, "d", "result", "second"),
            step(1, "c", "error", error="“broken”"),
            answer("#2", ("look", "c", "{}"), n=2),
            step(2, "c", "started"),
        ],
    )

    assert results(found) == ["“broken”", "second"]
    assert [m.failed for m in found.messages if m.role == "tool"] == [True, False]
    assert found.uncertain == (ToolCall("c_2", "look", {}),)


def test_an_answer_that_the_sdk_could_make_nothing_of_does_not_count() -> None:
    void = Since("entry", "model", {"name": "model", "meta": {"key": "#1"}}, {"void": True})
    other = answer("#1", ("look", "new", "{}"))

    assert called(transcript(STATE, since=[answer("#1", ("send", "c", "{}")), void])) == []
    assert called(transcript(STATE, since=[answer("#1", ("send", "c", "{}")), void, other])) == [
        "look"
    ]


def test_what_an_agent_inside_of_a_tool_asks_is_no_part_of_it() -> None:
    inner = answer("1.c#1", ("count", "d", "{}"), path="1.c")

    found = transcript(STATE, since=[answer("#1", ("ask_expert", "c", "{}")), inner])

    assert called(found) == ["ask_expert"]


def test_a_hand_over_of_any_name_is_told() -> None:
    key = call_key("", 1, f"to_desk:{digest('{}')}")
    over = Since("entry", "handoff", {"name": "handoff", "meta": {"key": key}}, "desk")

    found = transcript(STATE, since=[answer("#1", ("to_desk", "c", "{}")), over])

    assert results(found) == ["Handed over to desk."]


def test_what_a_session_held_comes_first() -> None:
    """In the first turn no state has it yet."""
    items = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Yes?"}]
    read = Since("entry", "session", {"meta": {"key": "get-1"}}, {"items": items})

    assert [m.text for m in transcript(STATE, since=[read]).messages] == [
        "Hello.",
        "Yes?",
        "Do it.",
    ]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("plain", "plain"),
        ({"a": [1, None]}, '{"a": [1, null]}'),
        ({"$tuple": [1, 2]}, "[1, 2]"),
        (
            {"$object": {"kind": "pydantic", "value": {"fields": {"a": 1}, "set": ["a"]}}},
            '{"a": 1}',
        ),
        (
            [
                {"$object": {"value": {"fields": {"type": "text", "text": "one"}}}},
                {"$object": {"value": {"fields": {"type": "image", "image_url": "u"}}}},
            ],
            "one",
        ),
        ({"$secret": "env:KEY"}, "[secret env:KEY]"),
    ],
)
def test_results_of_any_type_are_told(data: Any, text: str) -> None:
    found = transcript(
        STATE, since=[answer("#1", ("look", "c", "{}")), step(1, "c", "result", data)]
    )

    assert results(found) == [text]


def test_a_run_without_a_waypoint_has_no_conversation() -> None:
    assert transcript(None, since=[]) == Transcript(())


ERROR = "An error occurred while running the tool. Please try again. Error: unreachable"


@pytest.mark.parametrize(
    ("later", "left"),
    [
        (['{"n": 1}', "paid"], ["c2"]),
        (['{"n": 1}', ERROR], ["c1", "c2"]),
        (['{"n": 1}', "Tool execution was not approved."], ["c1", "c2"]),
        (['{"n": true}', "paid"], ["c1", "c2"]),
        (['{"n": 1.0}', "paid"], ["c1", "c2"]),
    ],
)
def test_an_equal_call_that_did_not_fail_settles_one_that_was_not_certain(
    later: list[str], left: list[str]
) -> None:
    calls = (ToolCall("c1", "pay", {"n": 1}), ToolCall("c2", "pay", {"n": 1}))
    asked = (Message("user", "Pay."), Message("assistant", "", calls))
    handed = Transcript(asked, calls).to_json()
    seed = {"source": "a@1", "conversation": handed, "brief": "A brief."}
    given, result = later
    since = [
        answer("#1", ("pay", "d", given)),
        step(1, "d", "started"),
        step(1, "d", "result", result),
    ]

    found = transcript({**STATE, "seed": seed}, since=since)

    assert [call.id for call in found.uncertain] == left
    told = {m.tool_call_id: m.failed for m in found.messages if m.role == "tool"}
    assert told == {"d": result != "paid", **({} if "c1" in left else {"c1": True})}


def test_killed_before_its_first_waypoint_a_run_has_what_it_was_handed(tmp_path: Path) -> None:
    checkpoint("a", {"messages": [{"role": "user", "content": "Pay."}]}, store=tmp_path)
    handed = handoff("a", store=tmp_path).to_json()

    found = transcript(None, since=[Since("entry", "handoff", {"name": "handoff"}, handed)])

    assert found.messages[0] == Message("user", "Pay.")
