"""Questions are answered only where the person who starts the server allowed that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from caravanserai import WaitingForPerson, open_run
from caravanserai_core.ledger import Ledger
from caravanserai_core.stores import FileStore
from integration_tests.mcp.talking import NAME, Client


def ask(store: Path, run_id: str, *questions: str, **more: Any) -> Any:
    """Ask, once; return what was answered."""
    with open_run(run_id, store=store) as run:
        return [run.ask(text, **more) for text in questions]


def waiting(store: Path, run_id: str, *questions: str, **more: Any) -> None:
    with pytest.raises(WaitingForPerson):
        ask(store, run_id, *questions, **more)


def answered(store: Path, run_id: str) -> list[dict[str, Any]]:
    """Return the heads of the answers of a run."""
    found = Ledger.read(FileStore(store), run_id, None).questions.values()
    return [one.answer.head for one in found if one.answer is not None]


def test_without_the_switch_nothing_is_answered(reader: Client, shared_store: Path) -> None:
    waiting(shared_store, "asked-0", "Pay?", options=[True, False])

    assert "answer" not in reader.tools()
    said = reader.refused("answer", run="asked-0", value=True)

    assert "this server only reads" in said
    assert "--allow-answers" in said
    assert answered(shared_store, "asked-0") == []


def test_the_tool_is_marked_as_one_that_writes(answerer: Client) -> None:
    tools = answerer.tools()
    assert list(tools) == ["list_runs", "read_note", "log", "diff", "handoff", "answer"]
    hints = tools["answer"]["annotations"]
    assert (hints["readOnlyHint"], hints["destructiveHint"]) == (False, True)
    assert "ask your user before each call" in answerer.instructions


@pytest.mark.parametrize(
    ("options", "value", "got"),
    [
        ([True, False], True, True),
        ([True, False], "true", True),
        (["yes", "no"], "no", "no"),
        (None, 7, 7),
        (None, "7 crates", "7 crates"),
        (None, {"a": [1]}, {"a": [1]}),
        (["1", "2"], "1", "1"),
    ],
)
def test_an_answer_is_recorded_with_who_gave_it(
    answerer: Client, shared_store: Path, options: Any, value: Any, got: Any
) -> None:
    run_id = f"asked {options} {value}"
    waiting(shared_store, run_id, "Pay?", options=options)

    said = answerer.told("answer", run=run_id, value=value, reason="the user said so")

    assert f"`{NAME} via MCP`" in said
    (head,) = answered(shared_store, run_id)
    assert head["who"] == f"{NAME} via MCP"
    assert head["reason"] == "the user said so"
    assert ask(shared_store, run_id, "Pay?", options=options) == [got]
    assert f"{NAME} via MCP" in answerer.told("log", run=run_id)


def test_what_is_no_answer_is_refused_and_the_first_one_counts(
    answerer: Client, shared_store: Path
) -> None:
    waiting(shared_store, "asked-twice", "Pay?", options=["yes", "no"])

    refused = answerer.refused("answer", run="asked-twice", value="perhaps")
    assert "yes" in refused
    assert "no run 'asked-twi'" in answerer.refused("answer", run="asked-twi", value="yes")
    assert "needs the argument 'value'" in answerer.refused("answer", run="asked-twice")
    assert "q9" in answerer.refused("answer", run="asked-twice", value="yes", question="q9")
    by = answerer.refused("answer", {"client": "the boss"}, run="asked-twice", value="yes")
    assert 'answer has no argument "client"' in by
    assert answered(shared_store, "asked-twice") == []

    answerer.told("answer", run="asked-twice", value="no", question="q1")

    assert "q1" in answerer.refused("answer", run="asked-twice", value="yes", question="q1")
    assert ask(shared_store, "asked-twice", "Pay?", options=["yes", "no"]) == ["no"]
