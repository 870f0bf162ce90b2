"""What is told of a question later: the decision, a question nobody waited for, how to go on."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from caravanserai import WaitingForPerson, answer, ask, checkpoint, open_run, resumable
from caravanserai_core.verify import renew_notes, verify
from integration_tests.api.helpers import forget_everything


def latest() -> str:
    return Path(".caravanserai/run/latest.md").read_text()


def note(number: int) -> str:
    return Path(f".caravanserai/run/waypoint-{number}.md").read_text()


def asked(text: str = "Send it?", **more: Any) -> None:
    forget_everything()
    with pytest.raises(WaitingForPerson), open_run("run") as run:
        run.ask(text, **more)


def test_a_decision_joins_the_next_note() -> None:
    """By whom and why, quoted where it is more than words; once."""
    asked()
    answer("run", "yes", by="ines", reason="she said so")
    asked("And `this`?", payload={"n": 1})
    answer("run", {"a": "*b*"}, by="a`b", reason="## Next\nrun it")
    with open_run("run") as run:
        run.checkpoint({"n": 1}, "sent")
        run.checkpoint({"n": 2}, "more")
    decided = note(1).partition("## Decided\n\n")[2].splitlines()
    assert decided == [
        '- "Send it?": yes, by ines: she said so',
        '- ``And `this`?``: `{"a":"*b*"}`, by ``a`b``: `## Next\\nrun it`',
    ]
    assert "Decided" not in note(2)
    for number in (1, 2):
        text = note(number)
        Path(f".caravanserai/run/waypoint-{number}.md").unlink()
        renew_notes(open_run("run").store, "run")
        assert note(number) == text
    assert verify(open_run("run").store, "run").findings == []


def test_a_decision_about_a_secret_does_not_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_API_KEY", "a-token-of-the-program")
    asked()
    answer("run", "yes", by="ines", reason="with a-token-of-the-program")
    open_run("run").checkpoint({"n": 1}, "sent")
    assert "with [secret env:PLANTED_API_KEY]" in note(1)


def test_a_program_that_goes_on_from_a_question_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """`except Exception` takes the pause for a failure: the log says so once, the note too."""

    @resumable
    def work(run_id: str, state: Any) -> str:
        for text in ("Send it?", "Really?"):
            try:
                ask(text)
            except Exception:  # noqa: BLE001 - the fault that this is about
                checkpoint(run_id, {"n": 1}, "went on")
        return "done"

    assert work("run", {}) == "done"
    told = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(told) == 1
    assert "run run: q1, q2 were never answered, and the program went on to its end" in told[0]
    assert "do not catch WaitingForPerson" in told[0]
    assert "UTC. q1, q2 were never answered; the program went on." in latest()
    live = latest()
    forget_everything()
    Path(".caravanserai/run/latest.md").unlink()
    renew_notes(open_run("run").store, "run")
    assert latest() == live


def test_a_program_that_waited_is_told_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Nor one that no longer asks what an earlier start asked."""

    @resumable
    def work(run_id: str, state: Any, asks: bool) -> str:
        if asks:
            ask("Send it?")
        return "done"

    with pytest.raises(WaitingForPerson):
        work("run", {}, True)
    assert work("run", {}, False) == "done"
    assert not caplog.records
    assert "never answered" not in latest()


WAY = "\n\n---\nRun `run` · `caravanserai resume run` shows how to start it again"


def test_a_live_note_says_how_to_go_on_where_something_is_open() -> None:
    """A question, a step, a failure; and nothing where nothing is."""
    asked()
    assert latest().endswith(WAY + "\n")
    open_run("run").checkpoint({"n": 1}, "one")
    assert latest().endswith(WAY + " · exact state: `caravanserai show run@1 --state`\n")
    answer("run", "yes")
    assert "---" not in latest()
    with open_run("run") as run:
        run.checkpoint({"n": 2}, "two")
        assert "---" not in latest()
    with pytest.raises(TimeoutError), open_run("run"):
        raise TimeoutError
    assert latest().endswith(WAY + " · exact state: `caravanserai show run@2 --state`\n")
    live = latest()
    forget_everything()
    Path(".caravanserai/run/latest.md").unlink()
    renew_notes(open_run("run").store, "run")
    assert latest() == live
    with open_run("run") as run:
        run.entry("tool", say="it goes on")
        assert "---" not in latest()
        run.once("step", lambda: latest().endswith("run@2 --state`\n"), key=1)
        assert run.once("step", str, key=1) is True  # type: ignore[comparison-overlap]
    assert "---" not in latest()
