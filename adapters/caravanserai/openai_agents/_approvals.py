"""Approvals of tool calls, as questions of the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from caravanserai.openai_agents import _sdk
from caravanserai.openai_agents._items import arguments_of
from caravanserai.openai_agents._telling import agent_name
from caravanserai_core import questions
from caravanserai_core.questions import wanted
from caravanserai_core.words import call_text

if TYPE_CHECKING:
    from agents import RunState, ToolApprovalItem

    from caravanserai_core.journal import Journal
    from caravanserai_core.questions import Wanted

PROGRAM = "the program"
"""Who answered, where the program was started with a run state that has the answer."""


def question_of(item: ToolApprovalItem) -> Wanted:
    """Return what a person is asked about a call: bound to its id, tool and arguments."""
    tool, arguments = item.tool_name or "a tool", _arguments(item)
    call_id = _sdk.call_id(item)
    agent = agent_name(item.agent.name)
    read = arguments_of(arguments)
    call = call_text(tool, read if isinstance(read, dict) else {"arguments": read}).strip("`")
    return wanted(
        f"Run {tool}?",
        options=[True, False],
        key=["approval", call_id],
        payload={"tool": tool, "arguments": arguments, "call_id": call_id},
        shown=f"{agent} asks to run {call}",
        how="Approve or reject it, then start the program again with the same `run_id`.",
    )


def _arguments(item: ToolApprovalItem) -> str:
    found = item.arguments
    return found if isinstance(found, str) else ""


def ask(journal: Journal, items: list[ToolApprovalItem]) -> None:
    """Record what is to be approved, unless it is. Runs in its turn of the queue."""
    for item in items:
        question = question_of(item)
        while questions.find(journal, question) is None:
            try:
                questions.put(journal, question)
            except questions.Changed:
                continue


def decide(journal: Journal, state: RunState[Any]) -> list[str]:
    """Tell a run state what people answered. Runs in its turn of the queue.

    Returns:
        The ids of the questions that have an answer.
    """
    told: list[str] = []
    for item in state.get_interruptions():
        found = questions.find(journal, question_of(item))
        if found is None or found.answer is None or _sdk.decision(state, item) is not None:
            continue
        value = questions.value_of(found)[0]
        if value is True:
            state.approve(item)
        else:
            reason = found.answer.head.get("reason")
            state.reject(item, rejection_message=str(reason) if reason else None)
        questions.give(journal, found.id)
        told.append(found.id)
    return told


def take_over(journal: Journal, state: RunState[Any]) -> None:
    """Record what the program itself decided in a run state. Runs in its turn of the queue.

    Raises:
        AlreadyAnswered: somebody else was first, with another answer.
    """
    for item in state.get_interruptions():
        decision = _sdk.decision(state, item)
        found = questions.find(journal, question_of(item))
        if decision is None or found is None:
            continue
        if found.answer is None or questions.value_of(found)[0] is not decision:
            questions.record_answer(
                journal,
                decision,
                question=found.id,
                by=PROGRAM,
                reason=_sdk.rejection(state, item) if decision is False else None,
            )
        questions.give(journal, found.id)
