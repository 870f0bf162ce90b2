"""The conversation of a run, whatever framework it is of, is read by one function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from caravanserai import RunNotFound, UsageError, WaypointNotFound
from caravanserai_core.conversation import read
from caravanserai_core.run import open_run
from caravanserai_core.transcript import Message, Transcript
from integration_tests.crewai import trees


def from_state(tree: Any) -> Transcript:
    """Read a conversation that the states themselves hold."""
    return Transcript(tuple(Message("user", said) for said in tree["said"]))


def from_entries(tree: Any, entries: list[Any]) -> Transcript:
    """Read one that is in the journal."""
    said = [entry["text"] for entry in entries]
    return Transcript(tuple(Message("user", one) for one in [*said, tree["end"]]))


from_entries.entries = "heard"  # type: ignore[attr-defined]


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have an adapter of each kind installed."""
    kinds = {"state-kind": from_state, "entry-kind": from_entries}
    monkeypatch.setattr("caravanserai_core.conversation.find", kinds.get)


def said(found: Transcript) -> list[str]:
    return [message.text for message in found.messages]


@pytest.mark.usefixtures("readers")
def test_a_conversation_that_states_hold_is_read_of_any_waypoint(tmp_path: Path) -> None:
    with open_run("chat", store=tmp_path, adapter="state-kind") as run:
        run.checkpoint({"said": ["a"]}, "One.")
        run.checkpoint({"said": ["a", "b"]}, "Two.")

    assert said(read("chat", store=tmp_path)) == ["a", "b"]
    assert said(read("chat", at=1, store=tmp_path)) == ["a"]
    assert said(read("chat", at=-2, store=tmp_path)) == ["a"]


@pytest.mark.usefixtures("readers")
def test_one_that_entries_hold_is_read_up_to_the_waypoint(tmp_path: Path) -> None:
    """Entries of other names are not handed over, and none that stand behind the waypoint."""
    with open_run("chat", store=tmp_path, adapter="entry-kind") as run:
        run.entry("heard", {"text": "a"})
        run.entry("seen", {"text": "no"})
        run.checkpoint({"end": "1"}, "One.")
        run.entry("heard", {"text": "b"})
        run.checkpoint({"end": "2"}, "Two.")
        run.entry("heard", {"text": "c"})

        assert said(read("chat", store=tmp_path)) == ["a", "b", "2"]  # while it is held, too
    assert said(read("chat", at=1, store=tmp_path)) == ["a", "1"]


def test_the_readers_of_installed_adapters_are_found(tmp_path: Path) -> None:
    """No framework is needed for it."""
    crew = trees.crew(trees.done(0, "Three causes.", "Researcher"))
    with open_run("bees", store=tmp_path, adapter="crewai") as run:
        run.checkpoint(crew, "One task.")

    assert "Three causes." in said(read("bees", store=tmp_path))


def test_a_run_of_which_nobody_reads_a_conversation_is_refused(tmp_path: Path) -> None:
    open_run("plain", adapter="nobody", store=tmp_path).checkpoint({"said": ["a"]}, "One.")

    with pytest.raises(UsageError, match="run plain: it was written by 'nobody'"):
        read("plain", store=tmp_path)


@pytest.mark.usefixtures("readers")
def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound):
        read("nobody", store=tmp_path)
    with open_run("chat", store=tmp_path, adapter="state-kind") as run:
        run.checkpoint({"said": ["a"]}, "One.")
    with pytest.raises(WaypointNotFound):
        read("chat", at=7, store=tmp_path)
    with pytest.raises(UsageError, match="takes a waypoint's number"):
        read("chat", at="1", store=tmp_path)  # type: ignore[arg-type]
