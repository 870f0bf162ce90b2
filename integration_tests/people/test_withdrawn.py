"""What an adapter does with questions beside asking: taking them back, waypoints that repeat."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from caravanserai import UsageError, WaitingForPerson, answer, list_runs, open_run
from caravanserai_core import questions, survey
from caravanserai_core.journal import journal_for
from caravanserai_core.ledger import Ledger
from caravanserai_core.notes import Note
from caravanserai_core.pending import asked, commands
from caravanserai_core.stores import FileStore, Store
from caravanserai_core.verify import renew_notes, verify
from integration_tests.api.helpers import forget_everything


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return FileStore(tmp_path / "store")


def ask(store: Store, text: str = "Send it?") -> None:
    with pytest.raises(WaitingForPerson), open_run("run", store=store) as run:
        run.ask(text)


def latest(store: Store) -> str:
    return Path(store.where("run"), "latest.md").read_text(encoding="utf-8")


def test_a_question_that_is_taken_back_waits_for_nobody(store: Store) -> None:
    """Its answer is refused, notes and lists do not ask it, and the same text is a new question."""
    open_run("run", store=store).checkpoint({})
    ask(store)
    journal = journal_for(store, "run")
    journal.turns.do(lambda: questions.withdraw(journal, "q1"))
    for _ in range(2):
        assert list_runs(store=store)[0].status == "stopped"
        assert "**Waiting" not in latest(store)
        assert "q1 is no longer asked: the program went on without it." in latest(store)
        with pytest.raises(UsageError, match="no longer asked"):
            answer("run", "yes", question="q1", store=store)
        forget_everything()
        renew_notes(store, "run")
    ask(store)
    assert [q.id for q in Ledger.read(store, "run", None).open] == ["q2"]
    assert not verify(store, "run").damaged


def test_a_question_that_was_taken_back_stays_so_in_a_rewritten_journal(store: Store) -> None:
    open_run("run", store=store).checkpoint({})
    ask(store)
    journal = journal_for(store, "run")
    journal.turns.do(lambda: questions.withdraw(journal, "q1"))
    open_run("run", store=store).compact(lambda record: None)
    forget_everything()
    assert Ledger.read(store, "run", None).questions["q1"].state == "withdrawn"
    assert list_runs(store=store)[0].waits == ()


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_waypoint_that_repeats_the_state_uses_no_answer_up(store: Store, forgotten: bool) -> None:
    """Who goes on from it comes to the question again; the next other waypoint does use it up."""
    with open_run("run", store=store) as run:
        run.checkpoint({"n": 1})
    ask(store)
    answer("run", "yes", store=store)
    with open_run("run", store=store) as run:
        assert run.ask("Send it?") == "yes"
        run.repeat(Note("It stopped here."))
        if forgotten:
            forget_everything()
    with open_run("run", store=store) as run:
        assert run.ask("Send it?") == "yes"
        run.checkpoint({"n": 2})
    ask(store)
    heads = [r.head for r in survey.records(store, "run", bodies=False) if r.kind == "waypoint"]
    assert [head.get("repeats") for head in heads] == [None, True, None]


def test_likely_answers_are_shown_and_others_allowed(store: Store) -> None:
    """An adapter knows what is asked for; the person may say something else."""
    question = questions.wanted(
        "?", payload={"a": 1}, shown="Send it?", examples=[True, "a 'b'"], meta={"of": "x"}
    )
    open_run("run", store=store).checkpoint({})
    journal = journal_for(store, "run")
    journal.turns.do(lambda: questions.put(journal, question))
    found = Ledger.read(store, "run", None).questions["q1"].record
    assert found.head["meta"] == {"of": "x"}
    assert json.loads(b"{" + (found.body or b"") + b"}")["data"]["payload"] == {"a": 1}
    assert commands(asked(found.head), "run") == [
        "caravanserai answer run q1 true",
        "caravanserai answer run q1 'a '\"'\"'b'\"'\"''",
        "caravanserai answer run q1 'YOUR ANSWER'",
    ]
    note = latest(store)
    assert "Send it?" in note
    assert "answer run q1 true" in note
    answer("run", {"some": "thing"}, store=store)
