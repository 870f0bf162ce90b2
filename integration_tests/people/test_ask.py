"""Questions to people: asked once, answered from anywhere, used once."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from caravanserai import (
    AlreadyAnswered,
    NoRun,
    QuestionExpired,
    RunNotFound,
    UsageError,
    WaitingForPerson,
    aanswer,
    again,
    answer,
    ask,
    checkpoint,
    list_runs,
    load,
    open_run,
    resumable,
)
from caravanserai_core import survey
from caravanserai_core.cli import app
from caravanserai_core.ledger import Ledger
from caravanserai_core.verify import renew_notes, verify
from integration_tests.api.helpers import forget_everything
from integration_tests.support import ROOT


def latest() -> str:
    return Path(".caravanserai/run/latest.md").read_text()


def kinds() -> Counter[str]:
    store = open_run("run").store
    return Counter(record.kind for record in survey.records(store, "run", bodies=False))


def asked(text: str = "Send it?", **more: Any) -> Any:
    """Ask in a process of its own: the answer, or the ids that wait."""
    forget_everything()
    try:
        with open_run("run") as run:
            return run.ask(text, **more)
    except WaitingForPerson as waits:
        return waits.questions


def cli(*words: str) -> tuple[int, str]:
    forget_everything()
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.output


def test_a_question_is_recorded_once_and_its_answer_returned() -> None:
    """Until a waypoint is written; after that the same text is a new question."""
    assert asked() == ("q1",)
    assert asked() == ("q1",)
    assert kinds()["question"] == 1
    answer("run", {"to": ("ada", 1)})
    assert asked() == {"to": ("ada", 1)}
    assert asked() == {"to": ("ada", 1)}
    open_run("run").checkpoint({"n": 1}, lane="side")
    assert asked() == {"to": ("ada", 1)}, "a waypoint on another lane uses nothing up"
    open_run("run").checkpoint({"n": 1})
    assert asked() == ("q2",)


def test_waiting_is_no_failure() -> None:
    """Of a block, of a job, and of several tasks at once: status waiting, exit code 6."""
    assert asked() == ("q1",)
    assert list_runs()[0].status == "waiting"
    assert list_runs()[0].waits == ("q1",)

    @resumable
    def work(run_id: str, state: Any) -> Any:
        return ask("Send it?")

    with pytest.raises(WaitingForPerson) as raised:
        work("run", {})
    assert raised.value.exit_code == 6
    assert raised.value.run_id == "run"
    assert "caravanserai answer run q1" in str(raised.value)

    async def several() -> None:
        async with open_run("run") as run, asyncio.TaskGroup() as group:
            group.create_task(run.aask("One?"))
            group.create_task(run.aask("Two?"))

    with pytest.raises(ExceptionGroup):
        asyncio.run(several())
    assert list_runs()[0].status == "waiting"
    assert kinds()["finish"] == 0
    assert "To decide (q1)" in latest()


def test_outside_of_a_run_there_is_nobody_to_ask() -> None:
    with pytest.raises(NoRun):
        ask("Send it?")


def test_two_questions_are_answered_separately() -> None:
    """Each answer belongs to its question, in whatever order they come."""
    run = open_run("run")

    def one(text: str) -> Any:
        try:
            return run.ask(text)
        except WaitingForPerson:
            return None

    with run, ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(copy_context().run, one, text) for text in ("One?", "Two?")]
        assert [job.result() for job in jobs] == [None, None]
    store = run.store
    ids = {q.record.head["text"]: q.id for q in Ledger.read(store, "run", None).open}
    with pytest.raises(UsageError, match="several open questions"):
        answer("run", "x")
    answer("run", "to two", question=ids["Two?"])
    assert asked("Two?") == "to two"
    assert asked("One?") == (ids["One?"],)
    answer("run", "to one")
    assert asked("One?") == "to one"
    assert asked("Two?") == "to two"


def test_no_takes_only_the_branch_of_no() -> None:
    """Earlier steps are not run again, and the other branch not at all."""
    done: list[str] = []

    @resumable
    def work(run_id: str, state: Any) -> str:
        if not state["prepared"]:
            done.append("prepare")
            state = {"prepared": True}
            checkpoint(run_id, state, "prepared")
        said = ask("Send it?", options=["yes", "no"])
        done.append(said)
        return f"said {said}"

    with pytest.raises(WaitingForPerson):
        work("run", {"prepared": False})
    forget_everything()
    assert cli("answer", "run", "no")[0] == 0
    assert work("run", {"prepared": False}) == "said no"
    assert done == ["prepare", "no"]


def test_what_was_done_before_the_question_is_done_again_unless_recorded() -> None:
    """The rule of replay: from the last waypoint on, and steps under `once` return."""
    done: list[str] = []

    @resumable
    def work(run_id: str, state: list[int]) -> list[int]:
        from caravanserai import once

        state.append(1)
        done.append("plain")
        once("recorded", done.append, "recorded")
        ask("Go?")
        state.append(2)
        return state

    with pytest.raises(WaitingForPerson):
        work("run", [])
    answer("run", True)
    assert work("run", []) == [1, 2]
    assert done == ["plain", "recorded", "plain"]


def test_the_second_answer_is_refused_and_says_who_was_first() -> None:
    """Also from two processes at once, and after the answer was used."""
    asked()
    answer("run", "yes", by="ines", reason="it is paid")
    with pytest.raises(AlreadyAnswered) as raised:
        answer("run", "no")
    assert (raised.value.by, raised.value.question) == ("ines", "q1")
    code, output = cli("answer", "run", "q1", "no")
    assert code == 2
    assert "ines" in output
    assert asked() == "yes"
    open_run("run").checkpoint({})
    with pytest.raises(AlreadyAnswered):
        answer("run", "no", question="q1")
    assert kinds()["answer"] == 1


def test_two_that_answer_at_once(tmp_path: Path) -> None:
    """One is taken, the other one is told."""
    for number in range(5):
        run_id = f"run-{number}"
        with pytest.raises(WaitingForPerson), open_run(run_id) as run:
            run.ask("Send it?")
        barrier = threading.Barrier(4)
        results: list[str] = []

        def one(value: int, run_id: str = run_id, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(20)
            try:
                results.append(answer(run_id, value))  # noqa: B023 - joined below
            except AlreadyAnswered:
                results.append("late")  # noqa: B023

        threads = [threading.Thread(target=one, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert sorted(results) == ["late", "late", "late", "q1"]


def test_answers_that_do_not_fit_are_refused() -> None:
    """No question, no such question, not one of its options: nothing is recorded."""
    with pytest.raises(RunNotFound):
        answer("run", "yes")
    open_run("run").checkpoint({})
    with pytest.raises(UsageError, match="no open question"):
        answer("run", "yes")
    asked(options=["yes", "no", True, 3])
    with pytest.raises(UsageError, match="one of: yes, no, true, 3"):
        answer("run", "maybe")
    with pytest.raises(UsageError, match="one of"):
        answer("run", 1)
    with pytest.raises(UsageError, match="no question 'q7'"):
        answer("run", "yes", question="q7")
    with pytest.raises(UsageError, match="happened"):
        answer("run", "yes", result=5)
    assert kinds()["answer"] == 0
    answer("run", True)
    assert asked(options=["yes", "no", True, 3]) is True


def test_wrong_questions_are_refused() -> None:
    with open_run("run") as run:
        wrong: list[dict[str, Any]] = [
            {"options": []},
            {"options": "yes"},
            {"expires": datetime(2030, 1, 1)},  # noqa: DTZ001
            {"expires": 60},
            {"expires": timedelta.max},
            {"default": "no"},  # it would never be taken
        ]
        for more in wrong:
            with pytest.raises(UsageError):
                run.ask("Send it?", **more)
        with pytest.raises(UsageError):
            run.ask(" ")


def test_changed_arguments_ask_again() -> None:
    """An approval of one amount is none of another; the old question cannot be answered."""
    assert asked("Pay?", key="pay", payload={"amount": 40}) == ("q1",)
    answer("run", True)
    assert asked("Pay?", key="pay", payload={"amount": 4000}) == ("q2",)
    assert asked("Pay?", key="pay", payload={"amount": 4000}) == ("q2",)
    assert asked("Pay?", key="pay", payload={"amount": 40}) == ("q3",)
    with pytest.raises(UsageError, match="no longer asked"):
        answer("run", True, question="q2")
    answer("run", True)
    assert asked("Pay?", key="pay", payload={"amount": 40}) is True


def test_an_answer_that_does_not_fit_the_schema_is_asked_for_again() -> None:
    """With the reason; the next start applies it."""
    assert asked("How many?", answer_schema=int) == ("q1",)
    answer("run", "three")
    assert asked("How many?", answer_schema=int) == ("q2",)
    assert "The answer before was not taken: " in latest()
    assert "invalid literal" in latest()
    answer("run", "3")
    assert asked("How many?", answer_schema=int) == 3


def test_a_question_that_nobody_answers_in_time() -> None:
    """The default is taken, and recorded as that; without one it is an error."""
    soon = timedelta(milliseconds=1)
    assert asked("Go?", expires=soon, default="no") == ("q1",)
    time.sleep(0.01)
    assert asked("Go?", expires=soon, default="no") == "no"
    with pytest.raises(AlreadyAnswered) as raised:
        answer("run", "yes", question="q1")
    assert raised.value.by == "default"
    past = datetime.now(UTC) - timedelta(days=1)
    assert asked("Really?", expires=past) == ("q2",)
    with pytest.raises(QuestionExpired):
        asked("Really?", expires=past)
    later = datetime.now(UTC) + timedelta(days=1)
    assert asked("Then?", expires=later, default="no")[-1] == "q3"


def test_a_default_may_be_none_of_the_options() -> None:
    """So a program can tell that nobody decided from what a person may say."""
    soon = timedelta(milliseconds=1)
    assert asked("Go?", options=["yes", "no"], expires=soon, default="nobody") == ("q1",)
    time.sleep(0.01)
    assert asked("Go?", options=["yes", "no"], expires=soon, default="nobody") == "nobody"


def test_the_end_takes_back_what_is_open() -> None:
    """A finished run waits for nobody."""
    asked()
    open_run("run").finish("done")
    assert list_runs()[0].status == "finished"
    with pytest.raises(UsageError, match="no longer asked"):
        answer("run", "yes", question="q1")
    assert "To decide" not in latest()


def test_a_fresh_pass_asks_again() -> None:
    """Answers of an earlier pass do not count."""

    @resumable
    def work(run_id: str, state: Any) -> Any:
        return ask("Go?")

    with pytest.raises(WaitingForPerson):
        work("run", {})
    answer("run", "yes")
    with pytest.raises(WaitingForPerson) as raised:
        again(work)("run", {})
    assert raised.value.questions == ("q2",)


def test_an_answer_does_not_disturb_who_writes() -> None:
    """It comes in between two waypoints of a living process, and is found there."""
    with open_run("run") as run:
        run.checkpoint({"n": 1})
        with pytest.raises(WaitingForPerson):
            run.ask("Go?")
        answer("run", "yes")
        assert run.ask("Go?") == "yes"
        run.checkpoint({"n": 2})
    asyncio.run(_answered_async())


async def _answered_async() -> None:
    async with open_run("run") as run:
        with pytest.raises(WaitingForPerson):
            await run.aask("Go?")
        await aanswer("run", "yes")
        assert await run.aask("Go?") == "yes"


def test_notes_tell_who_is_waited_for_and_the_same_when_rendered_later() -> None:
    """The note of a waypoint written while a question is open shows it, for good."""
    asked(options=["yes", "no"])
    run = open_run("run")
    run.checkpoint({"n": 1}, "prepared")
    note = Path(".caravanserai/run/waypoint-1.md")
    text = note.read_text()
    assert text.split("\n")[2] == '**Waiting for a person:** "Send it?" (q1). prepared'
    assert list_runs()[0].status == "waiting"
    answer("run", "yes", by="ines")
    assert note.read_text() == text
    assert "To decide" not in latest()
    live = latest()
    for name in ("waypoint-1.md", "latest.md"):
        Path(".caravanserai/run", name).unlink()
    renew_notes(run.store, "run")
    assert note.read_text() == text
    assert latest() == live
    assert verify(run.store, "run").findings == []


def test_hostile_questions_stay_quoted() -> None:
    """A question of a model cannot forge a section, a command or reach the terminal."""
    evil = "Go?\n```\n## Next\n\nrun `rm -rf /`\x1b[2J"
    asked(evil, options=["a'; rm -rf /; '", "--help"], payload="```\n# x")
    text = latest()
    assert "\x1b" not in text
    assert "\\x1b" in text
    assert """caravanserai answer run q1 'a'"'"'; rm -rf /; '"'"''""" in text
    assert "caravanserai answer -- run q1 --help" in text
    code, output = cli("show", "run")
    assert code == 0
    assert "\x1b" not in output
    assert cli("answer", "--", "run", "q1", "--help")[0] == 0
    assert asked(evil, options=["a'; rm -rf /; '", "--help"], payload="```\n# x") == "--help"


def test_the_command_line_reads_a_value_as_it_is_meant() -> None:
    """As an option, else as JSON, else as a text; short forms, reason, who, JSON output."""
    for given, value in (("5", 5), ("hello there", "hello there"), ('{"a": [1]}', {"a": [1]})):
        asked()
        assert cli("answer", "run", given)[0] == 0
        assert asked() == value
        open_run("run").checkpoint({})
    asked(options=["5", "6"])
    assert cli("answer", "run", "5")[0] == 0
    assert asked(options=["5", "6"]) == "5"
    open_run("run").checkpoint({})
    asked()
    code, output = cli(
        "answer", "run", "q5", "--approve", "--by", "ines", "--reason", "ok", "--json"
    )
    assert code == 0
    assert json.loads(output) == {"run": "run", "question": "q5", "answer": True, "by": "ines"}
    assert asked() is True
    open_run("run").checkpoint({})
    asked()
    assert cli("answer", "run", "--reject")[0] == 0
    assert asked() is False
    assert cli("answer", "nobody", "x")[0] == 3
    assert cli("answer", "run", "x")[0] == 2
    assert cli("answer", "run")[0] == 2
    assert cli("answer", "run", "a", "b", "c")[0] == 2


def test_a_result_on_the_command_line_is_json() -> None:
    """The first answer counts, so a slip is not taken for a text."""

    def step() -> None:
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), open_run("run") as run:
        run.once("send", step)
    forget_everything()
    with suppress(WaitingForPerson), open_run("run") as run:
        run.once("send", step)
    for slip in ('{"id": 5', "tru", ""):
        code, output = cli("answer", "run", "happened", "--result", slip)
        assert code == 2
        assert "--result takes JSON" in output
    assert cli("answer", "run", "happened", "--result", '{"id": 5}')[0] == 0
    with open_run("run") as run:
        assert run.once("send", step) == {"id": 5}


def test_lists_say_who_is_waited_for() -> None:
    """In words and as JSON; `show` prints the question and the commands."""
    asked(options=["yes", "no"])
    assert "\twaits for you\t" in cli("list")[1]
    tree = json.loads(cli("list", "--json")[1])["runs"][0]
    assert (tree["status"], tree["waits"]) == ("waiting", ["q1"])
    shown = cli("show", "run")[1]
    assert '"Send it?"' in shown
    assert "caravanserai answer run q1 yes" in shown
    tree = json.loads(cli("show", "run", "--json")[1])
    assert tree["status"] == "waiting"
    assert tree["questions"][0]["question"] == "q1"
    assert "q1 asked: Send it?" in cli("log", "run")[1]


PROGRAM = """
import sys
import caravanserai as c

@c.resumable
def work(run_id, state):
    c.once("prepare", print, "prepared")
    said = c.ask("Send it?", options=["yes", "no"])
    c.once("send", print, f"sent after {said}")
    return said

try:
    print("result", work("offer", {}))
except c.WaitingForPerson as waits:
    sys.exit(waits.exit_code)
"""


def test_an_approval_days_later_after_three_restarts_of_the_program() -> None:
    """The pause holds no process; the answer comes from the command line, in a new process."""
    Path("program.py").write_text(PROGRAM)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")])}

    def run(*command: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, *command],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout

    assert run("program.py") == (6, "prepared\n")
    assert run("program.py") == (6, "")
    assert run("program.py") == (6, "")
    assert run("-m", "caravanserai_core.cli", "resume", "offer", "--yes")[0] == 6
    code, output = run("-m", "caravanserai_core.cli", "answer", "offer", "yes")
    assert code == 0
    assert "answered q1 of offer: yes" in output
    assert run("program.py") == (0, "sent after yes\nresult yes\n")
    assert run("program.py") == (0, "result yes\n")
    assert load_or_none("offer") is None


def load_or_none(run_id: str) -> Any:
    from caravanserai import WaypointNotFound

    try:
        return load(run_id)
    except WaypointNotFound:
        return None
