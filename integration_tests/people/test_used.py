"""When an answer is used up: once it was given out, and a waypoint of its lane followed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from caravanserai import WaitingForPerson, answer, ask, checkpoint, open_run, resumable
from caravanserai_core import retention, survey
from caravanserai_core.ledger import Ledger
from integration_tests.api.helpers import forget_everything
from integration_tests.support import ROOT


def states() -> dict[str, str]:
    """What became of each question, read from the disk."""
    found = Ledger.read(open_run("run").store, "run", None)
    return {name: question.state for name, question in found.questions.items()}


def heads() -> list[dict[str, Any]]:
    """The heads of the waypoints."""
    store = open_run("run").store
    return [r.head for r in survey.records(store, "run", bodies=False) if r.kind == "waypoint"]


def test_a_waypoint_on_the_way_back_to_a_question_does_not_use_its_answer_up() -> None:
    """A program that begins at its top writes one each time, and is asked once."""
    told: list[str] = []

    @resumable
    def work(run_id: str, state: Any) -> str:
        checkpoint(run_id, {"n": 1}, "about to ask")
        told.append(ask("Send?"))
        checkpoint(run_id, {"n": 2}, "sent")
        return "done"

    with pytest.raises(WaitingForPerson):
        work("run", {})
    forget_everything()
    answer("run", "yes")
    assert work("run", {}) == "done"
    assert told == ["yes"]
    assert [head.get("used") for head in heads()] == [None, None, ["q1"]]
    assert states() == {"q1": "spent"}


def test_an_answer_is_given_out_again_after_a_crash_before_the_next_waypoint() -> None:
    """Also where the start that got it failed in this very process and begins again."""

    @resumable
    def work(run_id: str, state: Any, fails: bool) -> str:
        checkpoint(run_id, {"n": 1}, "about to ask")
        said: str = ask("Send?")
        if fails:
            raise TimeoutError
        return said

    with pytest.raises(WaitingForPerson):
        work("run", {}, True)
    answer("run", "yes")
    for _ in range(2):
        with pytest.raises(TimeoutError):
            work("run", {}, True)
    assert work("run", {}, False) == "yes"


def test_in_a_loop_the_same_text_is_a_new_question() -> None:
    """Asked, used by a waypoint, asked again: in one process and in several."""
    with open_run("run") as run:
        for number in (1, 2):
            with pytest.raises(WaitingForPerson) as raised:
                run.ask("More?")
            assert raised.value.questions == (f"q{number}",)
            answer("run", number)
            assert run.ask("More?") == number
            run.checkpoint({"n": number})
    forget_everything()
    with pytest.raises(WaitingForPerson) as raised, open_run("run") as run:
        run.ask("More?")
    assert raised.value.questions == ("q3",)
    answer("run", 3)
    with open_run("run") as run:
        assert run.ask("More?") == 3
        run.checkpoint({"s": 1}, lane="side")
        assert run.ask("More?") == 3, "a waypoint on another lane uses nothing up"
        run.repeat("paused")
        assert run.ask("More?") == 3, "nor does one that repeats a state"
    with open_run("run") as run:
        run.checkpoint({"n": 3}, "what came of it, in a block of its own")
    assert states() == {"q1": "spent", "q2": "spent", "q3": "spent"}


def test_a_used_answer_stays_used_in_new_segments_and_pruned_journals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the waypoint that used it goes, from one segment or from several."""
    monkeypatch.setattr("caravanserai_core.stores._file.SEGMENT_SIZE", 4_000)
    for round_ in (1, 2):
        with pytest.raises(WaitingForPerson), open_run("run") as run:
            run.ask("More?")
        answer("run", round_)
        with open_run("run") as run:
            assert run.ask("More?") == round_
            run.checkpoint({"n": round_})
            run.checkpoint({"n": round_, "text": "x" * 5000})
        forget_everything()
        store = open_run("run").store
        open_run("run").compact(retention.Pruning(store, "run", retention.Rules(1)))
        forget_everything()
        assert len(heads()) == 1
        assert states() == {f"q{n}": "spent" for n in range(1, round_ + 1)}
    with pytest.raises(WaitingForPerson) as raised, open_run("run") as run:
        run.ask("More?")
    assert raised.value.questions == ("q3",)


PROGRAM = """
import os, signal, sys
from caravanserai import WaitingForPerson, ask, checkpoint, resumable

@resumable
def work(run_id, state):
    checkpoint(run_id, {"n": 1}, "about to ask")
    said = ask("Send?")
    print("got", said, flush=True)
    if sys.argv[1] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    checkpoint(run_id, {"n": 2}, "sent")
    print("asks", ask("Send?"))

try:
    work("run", {})
except WaitingForPerson as waits:
    print("waits", *waits.questions)
"""


def test_a_process_that_is_killed_with_an_answer_in_hand_gets_it_again() -> None:
    """And the one that wrote a waypoint after it asks anew."""
    Path("program.py").write_text(PROGRAM)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")])}

    def start(how: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "program.py", how],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout

    assert start("lives") == (0, "waits q1\n")
    answer("run", "yes")
    for _ in range(2):
        assert start("dies") == (-signal.SIGKILL, "got yes\n")
    assert start("lives") == (0, "got yes\nwaits q2\n")
    assert states() == {"q1": "spent", "q2": "open"}
