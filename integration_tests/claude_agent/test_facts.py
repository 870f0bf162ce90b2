"""What is known of calls and subagents when a session was cut off; no CLI runs."""

# ruff: noqa: E402

from __future__ import annotations

from typing import Any

from integration_tests.support import require

require("claude_agent_sdk")

from caravanserai.claude_agent import _facts, _processes
from caravanserai.claude_agent._calls import Ended, digest_of
from caravanserai.claude_agent._start import _unknown

CHARGE = "mcp__pay__charge"


class Kept:
    """The transcripts of a run, with the results that they have."""

    def __init__(self, answered: dict[str, bool], entries: list[dict[str, Any]]) -> None:
        self.answered = answered
        self._entries = entries

    def read(self, key: Any) -> list[dict[str, Any]]:
        return self._entries if key.path else []


def charged(n: int, **more: Any) -> dict[str, Any]:
    given = {"n": n}
    digest = digest_of(CHARGE, given)
    told = {"id": f"call {n}", "whole": f"charged {n}", "call": digest, **more}
    return _facts.tool_fact(CHARGE, given, result=f"charged {n}", **told)


def begun(*facts: dict[str, Any]) -> dict[str, Any]:
    tree = _facts.begun("job", "1", "Charge them.")
    for fact in facts:
        _facts.take(tree, fact)
    return tree


def unknown(tree: dict[str, Any], *answered: int, entries: Any = ()) -> set[str]:
    _facts.cut_off(tree)
    kept: Any = Kept({f"call {n}": True for n in answered}, list(entries))
    return {ended.result for ended in _unknown(tree, kept, "s").values()}


def test_a_result_that_the_transcript_lost_is_known() -> None:
    tree = begun(charged(1), charged(2))
    assert unknown(tree, 1) == {"charged 2"}
    kept: Any = Kept({}, [])
    assert (
        Ended(CHARGE, digest_of(CHARGE, {"n": 2}), "n=2", "charged 2")
        in _unknown(tree, kept, "s").values()
    )


def test_two_equal_calls_are_two() -> None:
    twice = [charged(1), charged(1) | {"id": "another"}]
    tree = begun(*twice)
    _facts.cut_off(tree)
    kept: Any = Kept({}, [])
    assert len(_unknown(tree, kept, "s")) == 2


def test_the_end_of_a_turn_leaves_what_a_subagent_at_work_did() -> None:
    agent = {"what": "agent begun", "id": "a", "type": "counter"}
    tree = begun(agent, charged(1), charged(2, agent="a"))
    _facts.turn_over(tree)
    assert unknown(tree) == {"charged 2"}

    # Once the subagent has ended, and the model was told so, it is its own matter again.
    tree = begun(agent, charged(2, agent="a"), {"what": "agent ended", "id": "a"})
    _facts.turn_over(tree)
    assert unknown(tree) == set()


def test_a_call_that_sent_a_subagent_to_the_background_did_not_end_with_that() -> None:
    sent = _facts.tool_fact(
        "Agent",
        {"prompt": "x"},
        result="launched",
        id="call 9",
        whole="launched",
        call="d",
        beside=True,
        of="a",
    )
    tree = begun({"what": "agent begun", "id": "a", "type": "counter", "beside": True}, sent)
    assert unknown(tree) == set()


def test_what_a_subagent_in_the_background_did_is_known_until_its_end_was_told() -> None:
    entries = [
        {
            "type": "assistant",
            "message": {
                "content": [{"type": "tool_use", "id": "x", "name": CHARGE, "input": {"n": 5}}]
            },
        },
        {
            "type": "user",
            "message": {
                "content": [{"type": "tool_result", "tool_use_id": "x", "content": "charged 5"}]
            },
        },
    ]
    agent = {"id": "a", "type": "counter", "beside": True}
    facts = [{"what": "agent begun", **agent}, {"what": "agent ended", **agent}]
    assert unknown(begun(*facts[:1]), entries=entries) == {"charged 5"}
    assert unknown(begun(*facts), entries=entries) == {"charged 5"}
    tree = begun(*facts)
    _facts.turn_over(tree)
    assert unknown(tree, entries=entries) == set()


def test_what_a_session_cost_is_added_up_where_the_cli_begins_to_count_anew() -> None:
    tree = begun()
    for counted in (0.1, 0.25, 0.0, 0.05):
        _facts.take(tree, {"what": "cost", "total": counted})
    assert tree["cost"] == {"counted": 0.05, "total": 0.3, "turn": 0.05}


def test_many_facts_are_counted_and_not_kept() -> None:
    tree = begun(*({"what": "said", "text": str(n)} for n in range(1000)))
    assert len(tree["did"]) < 1000
    assert len(tree["did"]) + tree["left_out"] == 1000


def test_a_state_of_another_version_is_filled_up() -> None:
    whole = begun({"what": "prompt", "text": "x"})
    for name in whole.keys() - {"run", "prompt", "at"}:
        state = {key: value for key, value in whole.items() if key != name}
        assert _facts.filled(state).keys() == whole.keys()
    state = {**whole, "session": {"id": "s"}, "later": 1}
    found = _facts.filled(state)
    assert found["session"]["parent"] is None
    assert found["session"]["id"] == "s"
    assert found["later"] == 1


def test_a_fact_that_cannot_be_read_is_passed_over() -> None:
    tree = begun({"what": "plan"}, {"what": "begins"}, {"what": "cost"}, {"what": "from later"})
    assert tree["plan"] == []
    assert tree["running"] == {}


def test_a_fork_works_on_its_own_session() -> None:
    class Process:
        def __init__(self, *words: str) -> None:
            self._words = ["claude", *words]

        def cmdline(self) -> list[str]:
            return self._words

    def session(*words: str) -> list[str]:
        process: Any = Process(*words)
        return list(_processes._sessions(process))

    assert session("--resume=a", "--fork-session", "--session-id=b") == ["b"]
    assert session("--resume", "a") == ["a"]
    assert session("--session-id=b", "--verbose") == ["b"]
    assert session("--verbose") == []
