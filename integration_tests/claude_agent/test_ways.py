"""The same line begins, returns and refuses; runs branch off; what is the run's is refused."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("claude_agent_sdk")

import claude_agent_sdk
from claude_agent_sdk import ClaudeAgentOptions

from caravanserai import UsageError, fork, history, list_runs, load
from caravanserai.claude_agent import WaypointClient, resumable_query, with_waypoints
from integration_tests.claude_agent.life import Life
from integration_tests.claude_agent.scripts import charge

Start = Callable[..., Life]

ONE = [charge(1), charge(2), {"say": "It is done."}]


def job(life: Start, script: list[Any] | None = None, **options: Any) -> Life:
    one = life("four", script=script or ONE, **options)
    one.call = "integration_tests.claude_agent.talking:run"
    one.options = {"way": "query", "says": ["Charge them."], **one.options}
    return one


def charged(one: Life) -> list[str]:
    return [line for line in one.lines("outside.txt") if line.startswith("begin")]


def test_another_prompt_is_refused_and_again_begins_anew(life: Start) -> None:
    one = job(life)
    first = one.ended()

    refused = one.ended(says=["Charge somebody else."])
    assert refused["error"].startswith("InputChanged")
    assert "Charge them." in refused["error"]
    assert "Charge somebody else." in refused["error"]
    assert charged(one) == ["begin 1", "begin 2"]
    again = one.ended(says=["Charge somebody else."], more={"again": True})

    assert charged(one) == ["begin 1", "begin 2"] * 2
    assert again["results"][0]["session_id"] != first["results"][0]["session_id"]
    assert one.ended(says=["Charge somebody else."])["results"] == again["results"]


def test_every_waypoint_can_be_forked_and_both_go_on(life: Start) -> None:
    one = job(life, [*ONE[:2], charge(3), ONE[2]])
    one.killed("end 3")
    points = history(one.run_id, store=one.store)
    assert {point.meta["at"] for point in points} >= {"begin", "batch"}
    journal = (one.folder / ".caravanserai" / one.run_id / "journal-1.jsonl").read_bytes()

    for point in points:
        done = len(charged(one))
        state = load(one.run_id, point.number, store=one.store)
        before = sum(fact["what"] == "tool" for fact in everything(one, point.number))
        branch = copy.copy(one)
        branch.run_id = f"{one.run_id}-at-{point.number}"
        # The parameters begin the branch once, and go on with it then.
        more = {"at": point.number, "new_run_id": branch.run_id}
        asked = one.ended(more=more)
        branch.agree()  # a call that was on its way at that moment
        found = one.ended(more=more)
        assert found["results"][-1]["result"] == "It is done.", (asked, found)
        # What was done at that waypoint is not done again, and all else is.
        new = charged(one)[done:]
        assert new == [f"begin {n}" for n in range(before + 1, 4)], (point.number, before)
        states = [
            load(branch.run_id, p.number, store=one.store)
            for p in history(branch.run_id, store=one.store)[1:]
        ]
        assert states
        assert state["session"]["id"] not in {one["session"]["id"] for one in states}
    assert (one.folder / ".caravanserai" / one.run_id / "journal-1.jsonl").read_bytes() == journal

    last = one.finished()

    assert last["results"][-1]["result"] == "It is done."
    assert {run.status for run in list_runs(store=one.store)} == {"finished"}


def everything(one: Life, number: int) -> list[dict[str, Any]]:
    points = [p for p in history(one.run_id, store=one.store) if p.number <= number]
    return [fact for p in points for fact in load(one.run_id, p.number, store=one.store)["did"]]


def test_a_fork_can_be_given_another_task(life: Start) -> None:
    script = [{**charge(9), "if_said": "OTHER"}, *ONE]
    one = job(life, script)
    one.ended()
    end = history(one.run_id, store=one.store)[-1].number
    fork(one.run_id, at=end, new_run_id="other", store=one.store)
    one.run_id = "other"

    found = one.ended(says=["Now the OTHER one."])

    assert found["results"][-1]["result"] == "It is done."
    assert charged(one) == ["begin 1", "begin 2", "begin 9"]
    assert "Charge them." in str(one.server.bodies[-1]["messages"]), "it knows what was said before"


@pytest.mark.parametrize("said", ["<task-notification> hello", "Continue from where you left off."])
def test_a_prompt_in_the_words_of_the_cli_is_a_persons(life: Start, said: str) -> None:
    one = job(life, [{"say": "It is done."}], says=[said])
    assert one.ended()["results"][-1]["result"] == "It is done."
    assert [run.status for run in list_runs(store=one.store)] == ["finished"]
    assert one.asked() == 1


def test_what_cannot_be_written_down_does_not_begin(life: Start) -> None:
    """The intent of the second charge cannot be written: it does not run, and nothing is lost."""
    one = job(life)
    found = one.ended(full="begin 2")

    assert found["error"].startswith("StoreFailed"), found
    assert charged(one) == ["begin 1"]
    one.check_store(torn=False)
    assert one.ended()["results"][-1]["result"] == "It is done."
    assert charged(one) == ["begin 1", "begin 2"]


# ---------------------------------------------------------------------- without a CLI

TAKEN = {
    "resume": "0" * 8,
    "session_id": "0" * 8,
    "continue_conversation": True,
    "fork_session": True,
    "resume_session_at": "x",
    "session_store": object(),
    "enable_file_checkpointing": True,
    "extra_args": {"resume": None},
}


@pytest.mark.parametrize("name", TAKEN)
def test_options_that_would_take_the_session_are_refused(name: str, tmp_path: Path) -> None:
    given = ClaudeAgentOptions(**{name: TAKEN[name]})

    async def ask() -> None:
        async for _ in resumable_query(prompt="x", run_id="r", options=given, store=tmp_path):
            pass

    with pytest.raises(UsageError, match="run"):
        asyncio.run(ask())
    with pytest.raises(UsageError, match="run"):
        WaypointClient(given, run_id="r", store=tmp_path)
    with pytest.raises(UsageError, match="run"):
        with_waypoints(given, run_id="r", store=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"run_id": ""}, "run_id="),
        ({"run_id": "r", "needs_approval": "Bash"}, "needs_approval="),
        ({"run_id": "r", "on_uncertain": "maybe"}, "on_uncertain="),
        ({"run_id": "r", "at": 3}, "new_run_id="),
        ({"run_id": "r", "at": "3", "new_run_id": "s"}, "at="),
    ],
)
def test_arguments_that_mean_nothing_are_refused(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        WaypointClient(**arguments)


def test_a_stream_of_messages_is_for_the_client(tmp_path: Path) -> None:
    async def ask() -> None:
        async for _ in resumable_query(prompt=iter(()), run_id="r", store=tmp_path):  # type: ignore[arg-type]
            pass

    with pytest.raises(UsageError, match="WaypointClient"):
        asyncio.run(ask())


def test_the_entry_points_have_the_sdks_signatures() -> None:
    theirs = inspect.signature(claude_agent_sdk.query).parameters
    ours = inspect.signature(resumable_query).parameters
    assert set(theirs) - {"transport"} <= set(ours)
    client = inspect.signature(claude_agent_sdk.ClaudeSDKClient.__init__).parameters
    assert set(client) <= set(inspect.signature(WaypointClient.__init__).parameters)
