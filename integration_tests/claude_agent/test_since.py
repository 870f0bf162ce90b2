"""The conversation as it is now: what was recorded behind a waypoint, and not in the transcript."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from caravanserai import fork, handoff
from caravanserai.claude_agent import _facts, _tools
from caravanserai.claude_agent.transcript import transcript
from caravanserai_core.conversation import read
from caravanserai_core.run import open_run
from caravanserai_core.transcript import Message, Since, ToolCall, Transcript
from integration_tests.claude_agent.test_transcript import (
    BATCH,
    CHARGED,
    PROMPT,
    SESSION,
    call,
    gave,
    piece,
    raw,
    says,
    text,
    tree,
    user,
)

CHARGE = ToolCall("c3", "charge", {"n": 3})


def fact(what: str, **fields: Any) -> Since:
    return Since("entry", "fact", {"kind": "entry", "name": "fact"}, raw({"what": what, **fields}))


def new(*entries: Any, **more: Any) -> Since:
    return Since("entry", "transcript", {"kind": "entry"}, piece(*entries, **more))


def begins(id_: str = "c3", n: int = 3, **more: Any) -> Since:
    made = {"tool": "charge", "call": f"digest-{n}", "given": {"n": n}, **more}
    return fact("begins", id=id_, **made)


def ended(id_: str = "c3", n: int = 3, **more: Any) -> Since:
    told = {"tool": "charge", "call": f"digest-{n}", "result": f"charged {n}", **more}
    return fact("tool", id=id_, whole=told["result"], **told)


def now(*since: Since, state: Any = None, entries: Any = BATCH[:8]) -> Transcript:
    return transcript(tree("r2") if state is None else state, [piece(*entries)], since=since)


def test_entries_behind_the_waypoint_are_read() -> None:
    found = now(new(*BATCH[8:]), new(user("u2", "a4", "And three?")))

    assert found.messages[len(CHARGED) :] == (
        Message("assistant", "One is charged."),
        Message("user", "And three?"),
    )
    assert found.uncertain == ()


def test_a_call_that_began_and_is_in_no_transcript_is_uncertain() -> None:
    found = now(fact("said", text="On with it."), begins())

    assert found.messages == (*CHARGED, Message("assistant", "On with it.", (CHARGE,)))
    assert found.uncertain == (CHARGE,)


def test_what_both_have_is_said_once() -> None:
    """The facts are first, the transcript comes some time behind."""
    behind = says("b3", "r2", text("On with it."), call("c3", 3))

    found = now(
        fact("prompt", text="And three?"),
        new(user("u2", "r2", "And three?")),
        fact("said", text="On with it."),
        begins(),
        new(behind | {"parentUuid": "u2"}),
    )

    assert found.messages[len(CHARGED) :] == (
        Message("user", "And three?"),
        Message("assistant", "On with it.", (CHARGE,)),
    )
    assert found.uncertain == (CHARGE,)


def test_a_result_that_the_transcript_lacks_is_that_which_was_recorded() -> None:
    found = now(new(says("a5", "r2", call("c3", 3))), begins(), ended(), begins("c4", 4))

    four = ToolCall("c4", "charge", {"n": 4})
    assert found.messages[len(CHARGED) :] == (
        Message("assistant", "", (CHARGE,)),
        Message("tool", "charged 3", (), "c3", "charge"),
        Message("assistant", "", (four,)),
    )
    assert found.uncertain == (four,)


def test_results_that_a_state_keeps_for_the_transcript_are_there() -> None:
    state = tree("a5")
    state["fresh"] = {"c3": {"tool": "charge", "arguments": "n=3", "call": "", "whole": "charged"}}

    found = transcript(state, [piece(*BATCH[:8], says("a5", "r2", call("c3", 3)))])

    assert found.messages[-1] == Message("tool", "charged", (), "c3", "charge")
    assert found.uncertain == ()


@pytest.mark.parametrize(
    ("end", "told", "failed"),
    [
        (ended(result="no card", failed=True), "no card", True),
        (fact("refused", id="c3", tool="charge", reason="Not allowed."), "Not allowed.", True),
        (fact("refused", id="c3", tool="charge", reason=_tools.given("paid")), "paid", False),
        (fact("refused", id="c3", tool="charge", reason=_tools.taken("paid")), "paid", False),
        (fact("deferred", id="c3", tool="charge", arguments="n=3"), "This call was not made", True),
    ],
)
def test_a_call_that_did_not_succeed_is_not_uncertain(end: Since, told: str, failed: bool) -> None:
    found = now(begins(), end)

    assert found.messages[-1].text.startswith(told)
    assert found.messages[-1].failed is failed
    assert found.uncertain == ()


def test_what_the_cli_made_up_is_no_result_of_a_call_that_never_reported_back() -> None:
    made_up = gave("r3", "a5", "c3", "[Tool result missing due to internal error]", failed=True)

    found = now(begins(), new(says("a5", "r2", call("c3", 3)), made_up), fact("resumed", text="…"))

    assert found.messages[-1] == Message("assistant", "", (CHARGE,))
    assert found.uncertain == (CHARGE,)


def test_a_call_that_was_decided_about_is_no_longer_uncertain() -> None:
    """Whether in front of the newest waypoint or behind it."""
    state = tree("r2")
    state["open"] = {"c3": {"tool": "charge", "call": "digest-3", "given": {"n": 3}}}
    assert now(state=state).uncertain == (CHARGE,)
    assert now(begins("c4"), ended("c4"), state=state).uncertain == ()
    assert now(begins("c4"), ended("c4", 5), state=state).uncertain == (CHARGE,)
    assert now(begins(), fact("continued"), begins("c4"), ended("c4")).uncertain == ()
    # Of two that are made at once neither stands for the other.
    assert now(begins(), begins("c4"), ended("c4")).uncertain == (CHARGE,)


def test_a_call_of_a_subagent_is_uncertain_and_no_part_of_the_conversation() -> None:
    inside = new(says("i1", None, call("c4", 4)), path="subagents/agent-1")

    found = now(begins(agent="1"), begins("c4", 4, given=None), inside)

    assert found.messages == CHARGED
    assert found.uncertain == (CHARGE, ToolCall("c4", "charge", {"n": 4}))


def test_a_call_that_changes_nothing_is_never_uncertain() -> None:
    found = now(begins(tool="Read", given={"file_path": "a"}))

    assert found.messages[-1].text.startswith("This call was cut off")
    assert found.uncertain == ()


def test_a_call_that_a_person_decided_about_and_that_began_again_is_uncertain() -> None:
    waits = (begins(), fact("deferred", id="c3", tool="charge", arguments="n=3"))

    assert now(*waits, new(says("a5", "r2", call("c3", 3)))).uncertain == ()
    found = now(*waits, new(says("a5", "r2", call("c3", 3))), fact("continued"), begins())
    assert found.uncertain == (CHARGE,)
    assert found.messages[-1].role == "assistant"


def test_a_new_session_of_which_nothing_is_written_hides_no_old_one() -> None:
    found = now(fact("session", id="another", number=2, run="bill", parent=None))

    assert found.messages == CHARGED
    started = now(
        fact("session", id="another", number=2, run="bill", parent=None),
        new(user("n1", None, "Go on."), session="another"),
    )
    assert started.messages == (Message("user", "Go on."),)
    assert started.losses == ("1 × earlier session of the run",)


def test_before_the_transcript_has_anything_it_is_what_was_asked() -> None:
    state = tree(id=None)

    assert transcript(state, since=[fact("prompt", text=PROMPT)]).messages == (
        Message("user", PROMPT),
    )
    long_ = "x" * 3000
    state["prompt"] = long_
    asked = fact("prompt", text=_facts.text(long_))
    assert transcript(state, since=[asked, begins()]).messages == (
        Message("user", long_),
        Message("assistant", "", (CHARGE,)),
    )


@pytest.mark.parametrize("odd", [{}, {"what": "begins"}, {"what": "tool", "id": 3}, None, [1]])
def test_facts_of_an_odd_form_are_passed_over(odd: Any) -> None:
    one = Since("entry", "fact", {}, odd)

    assert now(one).messages[: len(CHARGED)] == CHARGED
    assert transcript(None, since=[one, Since("effect", "charge", {}, None)]).losses == ()


# ---------------------------------------------------------------------- what was handed over

BEFORE = Transcript(
    (Message("user", "Charge all."), Message("assistant", "", (CALL := ToolCall("x", "pay", {}),))),
    (CALL,),
    ("1 × image",),
)


def handed(prefix: str = "Handed over:\n\n") -> Since:
    data = {"session": "", "path": "handoff", "entries": [], "prefix": prefix}
    return Since("entry", "transcript", {}, raw({**data, "handed": BEFORE.to_json()}))


def test_what_was_handed_over_stands_in_front_and_once() -> None:
    first = user("u1", None, f"Handed over:\n\n{PROMPT}")

    found = transcript(tree(), [handed().data, piece(first, *BATCH[2:8])])

    assert found.messages == (*BEFORE.messages, *CHARGED)
    assert found.uncertain == (CALL,)
    assert found.losses == ("1 × image",)


def test_before_the_first_waypoint_it_is_what_the_core_keeps_of_it() -> None:
    core = {"transcript": BEFORE.to_json()}
    kept = Since("entry", "handoff", {}, raw(core))

    assert transcript(None, since=[kept]) == BEFORE
    assert transcript(None, since=[kept, handed()]) == BEFORE
    assert transcript(None, since=[Since("entry", "handoff", {}, raw({}))]) == Transcript(())


@pytest.mark.parametrize("result", ["paid", _tools.taken(None)])
def test_a_call_that_was_handed_over_is_decided_about_by_an_equal_one(result: str) -> None:
    own = {"type": "tool_use", "id": "c9", "name": "mcp__shop__pay", "input": {}}
    failed = result != "paid"
    entries = (user("u1", None, PROMPT), says("a1", "u1", own))
    done = gave("r1", "a1", "c9", f"PreToolUse:pay hook error: {result}" if failed else result)
    done["message"]["content"][0]["is_error"] = failed

    assert transcript(tree(), [handed().data, piece(*entries)]).uncertain[0] == CALL
    found = transcript(tree(), [handed().data, piece(*entries, done)])
    assert found.uncertain == ()
    assert found.messages[2].tool_call_id == "x"
    assert found.messages[-1].failed is False


# ---------------------------------------------------------------------- from the store


def killed(store: Path) -> None:
    """Write a run as the adapter does, up to a call that never reported back."""
    with open_run("bill", store=store, adapter="claude-agent") as run:
        run.entry("transcript", {"session": SESSION, "path": "", "entries": list(BATCH[:8])})
        run.checkpoint(orjson.loads(orjson.dumps(tree("r2"))), "One batch.")
        run.entry("fact", {"what": "said", "text": "On with it."})
        begun = {"id": "c3", "tool": "charge", "call": "d", "given": {"n": 3}}
        run.entry("fact", {"what": "begins", **begun})


READER = """
import sys
sys.modules["claude_agent_sdk"] = sys.modules["psutil"] = sys.modules["mcp"] = None  # imports fail
from caravanserai import handoff
found = handoff("bill", store=sys.argv[1])
print(found.uncertain)
"""


def test_a_handoff_of_a_killed_run_names_what_is_not_certain(tmp_path: Path) -> None:
    killed(tmp_path)

    assert read("bill", at=1, store=tmp_path).messages == CHARGED
    assert handoff("bill", store=tmp_path).uncertain == (CHARGE,)
    command = [sys.executable, "-c", READER, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == repr((CHARGE,))


def test_a_fork_has_what_was_handed_over(tmp_path: Path) -> None:
    with open_run("bill", store=tmp_path, adapter="claude-agent") as run:
        data = {"session": "", "path": "handoff", "entries": [], "prefix": "Handed over:\n\n"}
        run.entry("transcript", {**data, "handed": BEFORE.to_json()})
        first = user("u1", None, f"Handed over:\n\n{PROMPT}")
        entries = [first, *BATCH[2:8]]
        run.entry("transcript", {"session": SESSION, "path": "", "entries": entries})
        run.checkpoint(orjson.loads(orjson.dumps(tree("r2"))), "One batch.")
    fork("bill", at=1, new_run_id="other", store=tmp_path)

    assert read("other", store=tmp_path).messages == (*BEFORE.messages, *CHARGED)
