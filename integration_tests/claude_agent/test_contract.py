"""What the adapter relies on beyond the SDK's documented interface; an upgrade breaks it here.

Seen with claude-agent-sdk 0.2.189 and CLI 2.1.332. The sessions have no waypoints: what fails here
is a change of the CLI or the SDK.
"""

# ruff: noqa: E402

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from integration_tests.support import require

require("claude_agent_sdk")

from claude_agent_sdk import (
    AssistantMessage,
    ProcessError,
    ResultError,
    ResultMessage,
    SystemMessage,
    UserMessage,
)

from integration_tests.claude_agent.life import Life
from integration_tests.claude_agent.scripts import COUNTER, SUMMARY, agent, charge
from integration_tests.claude_agent.sessions import Sessions, decision, sessions

Start = Callable[..., Life]

PLAN = {"call": [["TaskCreate", {"subject": "Charge one", "description": "The first."}]]}


def _said(text: str, *rules: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"if_said": text, **rule} for rule in rules]


def _results(messages: list[Any]) -> list[ResultMessage]:
    return [message for message in messages if isinstance(message, ResultMessage)]


def _cost(message: ResultMessage) -> float:
    assert message.total_cost_usd is not None
    return message.total_cost_usd


def _deferred(message: ResultMessage) -> Any:
    return message.deferred_tool_use and message.deferred_tool_use.input


def _last_request(all_: Sessions) -> str:
    return json.dumps(all_.server.bodies[-1]["messages"])


# ---------------------------------------------------------------------- one session, looked at

SCRIPT = [
    *_said(COUNTER, charge(5), {"say": "Five is charged."}),
    # Behind the summary nothing of the conversation before it is left.
    *_said(SUMMARY, {"say": "It was shortened."}),
    *_said("Second.", {**charge(2), "tokens": 95_000}, {"say": "Not shortened?"}),
    PLAN,
    {"call": [*charge(1)["call"], *charge(9)["call"]], "once": True},
    agent(beside=False),
    {"say": "All is done."},
]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sessions, list[Any]]]:
    """A session of two turns: a plan, tools, a subagent, and a conversation that is shortened."""
    with sessions(tmp_path_factory.mktemp("seen"), SCRIPT) as all_:
        yield all_, all_.talk("First.", "Second.", session_id=str(uuid.uuid4()))


def test_a_tool_does_not_begin_before_its_hook_answered(seen: Any) -> None:
    """`_recorder._before_tool`: what is not written down does not begin."""
    log = [
        (event, given["n"] if event == "tool" else given["tool_input"].get("n"))
        for event, given in seen[0].log
        if event in ("tool", "PreToolUse")
    ]
    for n in (1, 2, 5, 9):
        assert log.index(("PreToolUse", n)) < log.index(("tool", n))


def test_hooks_that_the_sdk_does_not_name_are_called(seen: Any) -> None:
    """`_recorder.Recorder.hooks`: PostToolBatch, PostCompact and TaskCreated."""
    all_, _ = seen
    batches = [
        [call["tool_use_id"] for call in given["tool_calls"]] for given in all_.of("PostToolBatch")
    ]
    begun = {given["tool_use_id"] for given in all_.of("PreToolUse")}
    assert {id_ for batch in batches for id_ in batch} == begun
    assert max(map(len, batches)) == 2  # those of one answer together
    created = all_.of("TaskCreated")
    assert [(one["task_id"], one["task_subject"]) for one in created] == [("1", "Charge one")]
    compacted = all_.of("PostCompact")
    assert [(one["trigger"], SUMMARY in one["compact_summary"]) for one in compacted] == [
        ("auto", True)
    ]
    assert [one["prompt"] for one in all_.of("UserPromptSubmit")] == ["First.", "Second."]


def test_events_of_tools_tell_what_is_recorded_of_them(seen: Any) -> None:
    """`_recorder._after_tool`, `_after_failure`: id, result, time taken, error."""
    all_, _ = seen
    ended = {given["tool_input"].get("n"): given for given in all_.of("PostToolUse")}
    assert ended[1]["tool_response"] == [{"type": "text", "text": "charged 1"}]
    assert isinstance(ended[1]["duration_ms"], int)
    assert "agent_id" not in ended[1]
    failed = all_.of("PostToolUseFailure")
    assert [(one["tool_input"], one["error"]) for one in failed] == [({"n": 9}, "no such customer")]


def test_events_of_subagents_name_them(seen: Any) -> None:
    """`_recorder._agent_begins`, `_agent_ends`; of an end without a type see `_agent_ends`."""
    all_, _ = seen
    (begins,) = all_.of("SubagentStart")
    ends = [given for given in all_.of("SubagentStop") if given["agent_type"]]
    inside = [given for given in all_.of("PreToolUse") if given.get("agent_id")]
    assert {begins["agent_id"]} == {given["agent_id"] for given in [*ends, *inside]}
    assert begins["agent_type"] == ends[0]["agent_type"] == "counter"
    assert ends[0]["last_assistant_message"] == "Five is charged."
    called = next(one for one in all_.of("PostToolUse") if one["tool_name"] == "Agent")
    assert called["tool_response"]["agentId"] == begins["agent_id"]
    session = begins["session_id"]
    assert (session, f"subagents/agent-{begins['agent_id']}") in all_.store.kept


def test_a_shortened_conversation_tells_its_sizes(seen: Any) -> None:
    """`_recorder._seen_by_system`."""
    (boundary,) = [
        message
        for message in seen[1]
        if isinstance(message, SystemMessage) and message.subtype == "compact_boundary"
    ]
    told = boundary.data["compact_metadata"]
    assert told["pre_tokens"] > told["post_tokens"] > 0


def test_a_turn_begins_with_what_runs_it(seen: Any) -> None:
    """`_recorder._seen_by_system`: version and model."""
    inits = [one for one in seen[1] if getattr(one, "subtype", "") == "init"]
    assert {one.data["model"] for one in inits} == {"claude-sonnet-4-5"}
    assert all(one.data["claude_code_version"] for one in inits)


def test_messages_have_the_ids_of_the_transcript(seen: Any) -> None:
    """`_recorder._close`: a waypoint stands at an entry, and a fork begins there."""
    all_, messages = seen
    session = _results(messages)[0].session_id
    known = {entry.get("uuid") for entry in all_.store.kept[session, ""]}
    said = [
        message.uuid
        for message in messages
        if isinstance(message, (AssistantMessage, UserMessage)) and not message.parent_tool_use_id
    ]
    assert len(said) > 8
    assert set(said) <= known


def test_the_mirror_has_the_results_of_all_calls(seen: Any) -> None:
    """`_recorder._write_batches`: a waypoint is written where the transcript has them."""
    all_, messages = seen
    session = _results(messages)[0].session_id
    results = {block["tool_use_id"] for block in all_.store.blocks(session, "tool_result")}
    outside = {g["tool_use_id"] for g in all_.of("PreToolUse") if not g.get("agent_id")}
    assert outside == results
    assert {block["id"] for block in all_.store.blocks(session, "tool_use")} == outside


def test_what_a_session_cost_is_counted_over_all_of_it(seen: Any) -> None:
    """`_facts._cost`."""
    first, second = (_cost(message) for message in _results(seen[1]))
    assert 0 < first < second


# ---------------------------------------------------------------------- a session that goes on


def test_a_session_goes_on_from_the_local_file(seen: Any) -> None:
    """`_transcripts.RunSessionStore.load`: None lets the CLI read its own; the id stays."""
    all_, messages = seen
    before = _results(messages)[-1]
    all_.store.gives = False
    try:
        (result,) = _results(all_.talk("And now?", resume=before.session_id))
    finally:
        all_.store.gives = True
    assert result.session_id == before.session_id
    assert _cost(result) > _cost(before)
    assert SUMMARY in _last_request(all_)


def test_a_fork_has_the_id_that_it_is_given_and_mirrors_all_of_it(seen: Any) -> None:
    """`_start.make_ready`: a run that branches off has the whole transcript in its own journal."""
    all_, messages = seen
    before, new = _results(messages)[-1], str(uuid.uuid4())
    (result,) = _results(
        all_.talk("And now?", resume=before.session_id, fork_session=True, session_id=new)
    )
    assert result.session_id == new
    assert _cost(result) > _cost(before)
    copied = all_.store.blocks(new, "tool_use")
    assert {block["id"] for block in copied}
    assert SUMMARY in json.dumps(all_.store.kept[new, ""])


def test_a_session_that_is_not_there_is_said_to_be_lost(seen: Any) -> None:
    """`_sdk.LOST`."""
    error = seen[0].fails("Go on.", resume=str(uuid.uuid4()))
    assert isinstance(error, ResultError)
    assert "No conversation found" in str(error)


def test_an_id_that_is_in_use_is_refused(seen: Any) -> None:
    """`_local.Local.blocked`: a new session needs another id."""
    all_, messages = seen
    error = all_.fails("Hello.", session_id=_results(messages)[0].session_id)
    assert isinstance(error, ProcessError)
    assert any("already in use" in line for line in all_.stderr)


# ---------------------------------------------------------------------- what a hook decides

DECIDED = [
    *_said("Both.", {**charge(2, 3), "once": True}, {"say": "Both."}),
    *_said("Block.", {**charge(1), "once": True}, {"say": "Blocked."}),
    {**charge(4), "once": True},
    {"say": "Done."},
]


def test_deferred_calls(tmp_path_factory: pytest.TempPathFactory) -> None:
    """`_calls._ask`: replayed with their id and without a prompt; of two the last alone is kept."""
    with sessions(tmp_path_factory.mktemp("defer"), DECIDED) as all_:
        session = str(uuid.uuid4())
        all_.decides[4] = decision("defer")
        (result,) = _results(all_.talk("Go.", session_id=session))
        assert (result.stop_reason, _deferred(result)) == ("tool_deferred", {"n": 4})
        assert all_.charges() == []
        all_.decides[4] = decision("allow")
        (result,) = _results(all_.talk(resume=session))
        assert all_.charges() == [4]
        assert len({given["tool_use_id"] for given in all_.of("PreToolUse")}) == 1
        assert [one["prompt"] for one in all_.of("UserPromptSubmit")][1:] == [
            "Continue from where you left off."
        ]
        assert "charged 4" in _last_request(all_)
        assert result.result == "Done."

        all_.log.clear()
        all_.decides.update({2: decision("defer"), 3: decision("defer")})
        (result,) = _results(all_.talk("Both.", resume=session))
        assert _deferred(result) == {"n": 3}
        all_.decides.update({2: decision("allow"), 3: decision("allow")})
        all_.talk(resume=session)
        ids = [(g["tool_input"]["n"], g["tool_use_id"]) for g in all_.of("PreToolUse")]
        again = [call for call in ids if ids.count(call) > 1]
        assert [n for n, _ in again] == [3, 3]
        # The conversation has lost the other one: this model makes it anew.
        assert len({id_ for n, id_ in ids if n == 2}) == 2
        assert all_.charges() == [3, 2]


def test_the_result_of_a_deferred_call_is_dropped_where_it_was_not_alone(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """`_entries.is_alone`: the model is told it in another way; a hook that fails blocks a tool."""
    with sessions(tmp_path_factory.mktemp("not-alone"), DECIDED) as all_:
        session = str(uuid.uuid4())

        def fails() -> Any:
            raise OSError("the disk is full")

        all_.decides[1] = fails
        all_.decides[2] = decision("defer")
        blocked, deferred = _results(all_.talk("Block.", "Both.", session_id=session))
        assert blocked.result == "Blocked."
        assert _deferred(deferred) == {"n": 2}
        assert all_.charges() == [3]
        all_.decides[2] = decision("allow")
        all_.talk(resume=session)
        assert all_.charges() == [3, 2]
        told = _last_request(all_)
        assert "charged 3" in told
        assert "charged 2" not in told
        assert "Tool result missing due to internal error" in told


# ---------------------------------------------------------------------- what a kill leaves


def test_a_call_that_was_cut_off_gets_a_result_that_says_so(life: Start) -> None:
    """`_entries.is_told`: it is the CLI's own, and none of the tool."""
    session = str(uuid.uuid4())
    # The CLI writes a call down a tenth of a second after it began; one that is cut off before
    # that is not in its transcript at all.
    one = life("charges", plain=True, pace=0.5)
    one.killed("end 1", sdk={"session_id": session})
    one.ended(sdk={"resume": session}, prompt="Go on.")
    told = json.dumps(one.server.bodies[1]["messages"])
    assert "Tool call interrupted: the session ended" in told


@pytest.mark.parametrize("guarded", [True, False])
def test_an_orphan_begins_no_tool_whose_hook_nobody_answers(life: Start, guarded: bool) -> None:
    """`_recorder`: the hook in front of each tool is a dead man's switch."""
    session = str(uuid.uuid4())
    hooks = ["PreToolUse"] if guarded else []
    one = life("commands", plain=True, hooks=hooks, sdk={"session_id": session})
    one.killed("line begin two", how="python")
    one.wait_for_orphans()
    assert one.outside()["end two"] == 1
    assert one.outside()["begin three"] == (0 if guarded else 1)
