"""Killed at any place and started again: no charge happens twice unless a person said so.

What happened is counted outside: the model's server counts its requests, each tool leaves a line.
The real CLI runs, and is killed with the program, survives it, or is killed alone.
"""

# ruff: noqa: E402

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from integration_tests.support import require

require("claude_agent_sdk")

from integration_tests.claude_agent.checking import check_goes_on, check_killed
from integration_tests.claude_agent.life import Life, waits

Whole = Callable[..., dict[str, Any]]
Start = Callable[..., Life]


# ---------------------------------------------------------------------- inside of a tool


@pytest.mark.parametrize("how", ["both", "python", "cli"])
def test_killed_inside_a_tool(life: Start, whole: Whole, how: str) -> None:
    """Before its effect; a person lets it run again."""
    one = life("charges")
    check_killed(one, whole("charges"), "begin 3", how=how, asked=(1,))
    assert one.outside()["begin 3"] == 2
    # A program that outlives its CLI may end the call that was on its way.
    assert one.outside()["end 3"] in ({1, 2} if how == "cli" else {1})


def test_killed_behind_the_effect_of_a_tool(life: Start, whole: Whole) -> None:
    """A person says that it happened, and it does not run again."""
    one = life("charges")
    check_killed(one, whole("charges"), "end 3", said="happened", asked=(1,))
    assert one.outside() == whole("charges")["outside"]


def test_a_power_cut_where_a_tool_begins(life: Start, whole: Whole) -> None:
    """What the CLI wrote of the call may be lost; that it was about to begin is known."""
    one = life("charges")
    check_killed(one, whole("charges"), "enter 3", asked=(1,))
    assert one.outside() == whole("charges")["outside"]


def test_the_person_sees_which_call_is_not_certain(life: Start) -> None:
    one = life("charges")
    one.killed("begin 3")
    assert waits(one.ended())
    assert "charge(n=3)" in one.latest()
    before = one.asked(), one.outside()
    assert waits(one.ended()), "without an answer it waits on"
    assert (one.asked(), one.outside()) == before


def test_killed_with_two_tools_at_once(life: Start, whole: Whole) -> None:
    """Each of the two is asked about, or was never begun."""
    one = life("parallel")
    check_killed(one, whole("parallel"), "begin 2", asked=(1, 2))


# ---------------------------------------------------------------------- the orphaned CLI


def test_an_orphan_begins_nothing_new(life: Start, whole: Whole) -> None:
    """It finishes the command that runs, and the next one is refused to it."""
    one = life("commands")
    one.killed("line begin two", how="python")
    one.wait_for_orphans()
    assert one.outside() == {"begin one": 1, "end one": 1, "begin two": 1, "end two": 1}
    check_goes_on(one, whole("commands"), asked=(0,))
    assert one.outside() == whole("commands")["outside"]
    assert "Not certain" not in one.latest()


def test_a_command_of_an_orphan_is_waited_for(life: Start, whole: Whole) -> None:
    """The next start takes its result over, and does not make it again."""
    one = life("commands")
    check_killed(one, whole("commands"), "line begin two", how="python", asked=(0,))
    assert one.outside() == whole("commands")["outside"]


def test_an_orphan_that_writes_a_false_end(life: Start, whole: Whole) -> None:
    """Its tools are gone with the program: what it says then is no result."""
    one = life("charges")
    one.killed("begin 3", how="python")
    one.wait_for_orphans()
    check_goes_on(one, whole("charges"), asked=(1,))


def test_runs_of_one_name_in_two_stores(life: Start, whole: Whole) -> None:
    """The CLI of the one is no orphan of the other, though both ran under one name."""
    one, other = life("commands"), life("charges")
    other.run_id = one.run_id
    one.killed("line begin two", how="python")
    assert one.processes()
    other.finished()
    assert other.outside() == whole("charges")["outside"]
    assert "still works" not in "\n".join(other.lines("out.txt"))
    check_goes_on(one, whole("commands"), asked=(0,))


# ---------------------------------------------------------------------- while the model speaks


@pytest.mark.parametrize("how", ["both", "python", "cli"])
def test_killed_while_a_text_streams(life: Start, whole: Whole, how: str) -> None:
    one = life("charges")
    check_killed(one, whole("charges"), "text 2", how=how, asked=(0,))
    assert one.outside() == whole("charges")["outside"]


def test_killed_at_a_piece_of_a_text(life: Start, whole: Whole) -> None:
    """By a program that reads the stream."""
    one = life("charges", sdk={"include_partial_messages": True})
    check_killed(one, whole("charges"), "delta 1", asked=(0,))
    assert one.outside() == whole("charges")["outside"]


@pytest.mark.parametrize("place", ["request 1", "request 3", "text 5"])
def test_killed_while_the_model_is_asked(life: Start, whole: Whole, place: str) -> None:
    """The first time, in the middle, and for the last answer."""
    one = life("charges")
    check_killed(one, whole("charges"), place, asked=(0,))
    assert one.outside() == whole("charges")["outside"]


@pytest.mark.parametrize("how", ["both", "cli"])
def test_killed_behind_the_result(life: Start, whole: Whole, how: str) -> None:
    """The program has it, and it is the end of the run, whatever becomes of the CLI."""
    one = life("charges")
    one.start("result 1", how=how)
    check_goes_on(one, whole("charges"), asked=(0,))
    assert one.asked() == whole("charges")["asked"]


# ---------------------------------------------------------------------- inside of a subagent


def test_killed_inside_a_subagent(life: Start, whole: Whole) -> None:
    """What it had done is not done again, though its transcript is lost to the model."""
    one = life("agent")
    # The subagent itself is asked about, and the call that was cut off.
    check_killed(one, whole("agent"), "begin 2", asked=(2,))
    assert one.outside()["begin 1"] == 1
    assert one.outside()["begin 2"] == 2


def test_killed_behind_a_tool_of_a_subagent(life: Start, whole: Whole) -> None:
    one = life("agent", hooks=["PostToolUse"])
    check_killed(one, whole("agent"), "hook PostToolUse", asked=(1,))
    assert one.outside() == whole("agent")["outside"]


def test_killed_where_a_subagent_has_ended_and_its_call_has_not(life: Start, whole: Whole) -> None:
    """A person lets its call be made again: what it did itself is not done again for that."""
    one = life("agent", hooks=["SubagentStop"])
    check_killed(one, whole("agent"), "hook SubagentStop", asked=(1,))
    assert one.outside() == whole("agent")["outside"]


def test_killed_inside_a_subagent_in_the_background(life: Start, whole: Whole) -> None:
    one = life("beside")
    check_killed(one, whole("beside"), "begin 2", asked=(1, 2))
    assert one.outside()["begin 1"] == 1


def test_killed_while_a_subagent_is_alone_at_work(life: Start, whole: Whole) -> None:
    """The first turn is over; nothing but the subagent is cut off."""
    one = life("beside", pace=0.3)
    check_killed(one, whole("beside"), "end 2", said="happened", asked=(1,))
    assert one.outside() == whole("beside")["outside"]


# ---------------------------------------------------------------------- a shortened conversation


@pytest.mark.parametrize("how", ["both", "python"])
def test_killed_while_the_conversation_is_shortened(life: Start, whole: Whole, how: str) -> None:
    one = life("shortened")
    check_killed(one, whole("shortened"), "summary", how=how, asked=(0,))
    assert one.outside() == whole("shortened")["outside"]


def test_killed_when_the_conversation_was_shortened(life: Start, whole: Whole) -> None:
    one = life("shortened", hooks=["PostCompact"])
    check_killed(one, whole("shortened"), "hook PostCompact", asked=(0,))
    assert one.outside() == whole("shortened")["outside"]
