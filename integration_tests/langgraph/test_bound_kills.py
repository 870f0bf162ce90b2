"""Programs that are killed while a node is asked again whether its answer is for it."""

# ruff: noqa: E402

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.support import require

require("langgraph")

from caravanserai_core.stores import FileStore
from caravanserai_core.verify import verify
from integration_tests.langgraph.shop import GIVEN
from integration_tests.langgraph.test_people import JOBS, Program
from integration_tests.preloaded import Preloaded


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    with Preloaded(JOBS) as process:
        yield process


FORMS = ["job", "ajob", "job-default"]

SAME = ["begins 1", "next round", "begins 2", "tea got yes", "tea did", "put 1", "b"]
"""What happens where the same is asked again, in order."""

CHANGED = ["begins 1", "record the question", "store the pause"]
FREE = ["begins 1", "paid", "put 1", "b"]


def asking(
    preloaded: Preloaded, folder: Path, form: str, things: str, said: str = "yes"
) -> Program:
    """Return a program that asked about the first of some things, tea, and was answered."""
    program = Program(preloaded, "priced", form, folder)
    (folder / "price.txt").write_text(things)
    assert (program.start() or {})["asked"] == [{"question": "pay tea?"}]
    assert program.answer(said).code == 0
    return program


@pytest.mark.parametrize("form", FORMS)
def test_killed_while_the_same_is_asked_again(
    preloaded: Preloaded, tmp_path: Path, form: str
) -> None:
    """Once, and once more after that: nothing is lost, and what hangs on it is done once."""
    for number, place in enumerate(SAME):
        program = asking(preloaded, tmp_path / str(number), form, "tea")
        program.start(place)
        if place in ("begins 1", "next round"):
            program.start(place)
        assert program.start() == {"log": ["given", "a", "tea: yes", "b"], "asked": []}, place
        seen = program.seen()
        assert (seen["a"], seen["tea does yes"]) == (1, 1), place
        assert list(program.questions().values()) == [("question: pay tea?", "spent")], place


@pytest.mark.parametrize("form", FORMS)
def test_killed_while_something_else_is_asked(
    preloaded: Preloaded, tmp_path: Path, form: str
) -> None:
    """The old answer goes nowhere, whatever was written of the new question."""
    for number, place in enumerate(CHANGED):
        program = asking(preloaded, tmp_path / str(number), form, "tea")
        (program.folder / "price.txt").write_text("salt")
        program.start(place)
        assert (program.start() or {})["asked"] == [{"question": "pay salt?"}], place
        assert program.status() == "waiting"
        assert program.answer("no").code == 0
        assert (program.start() or {})["log"] == ["given", "a", "salt: no", "b"], place
        seen = program.seen()
        assert (seen["salt does no"], seen["salt got yes"], seen["tea got yes"]) == (1, 0, 0)
        assert len(program.questions()) == 2


@pytest.mark.parametrize("form", FORMS)
def test_killed_while_it_goes_on_without_asking(
    preloaded: Preloaded, tmp_path: Path, form: str
) -> None:
    for number, place in enumerate(FREE):
        program = asking(preloaded, tmp_path / str(number), form, "tea")
        (program.folder / "price.txt").write_text("")
        program.start(place)
        assert (program.start() or {})["log"] == ["given", "a", "free", "b"], place
        assert [state for _, state in program.questions().values()] == ["spent"]


@pytest.mark.parametrize("form", ["job", "ajob"])
def test_killed_between_two_that_are_asked_again(
    preloaded: Preloaded, tmp_path: Path, form: str
) -> None:
    """Both are asked again in each start, and what hangs on each is done once."""
    for number, place in enumerate(["begins 1", "begins 2", "tea did", "begins 3", "salt got no"]):
        program = asking(preloaded, tmp_path / str(number), form, "tea salt")
        assert (program.start() or {})["asked"] == [{"question": "pay salt?"}]
        assert program.answer("no").code == 0
        program.start(place)
        result = program.start() or {}
        assert result["log"] == ["given", "a", "tea: yes", "salt: no", "b"], place
        seen = program.seen()
        assert (seen["tea does yes"], seen["salt does no"]) == (1, 1), place
        assert [state for _, state in program.questions().values()] == ["spent", "spent"]


@pytest.mark.parametrize("thing", ["tea", "salt"])
def test_a_job_goes_on_where_a_saver_was_killed_with_its_answer(
    preloaded: Preloaded, tmp_path: Path, thing: str
) -> None:
    """LangGraph keeps that answer for whatever is asked next; a job, for its question alone."""
    (tmp_path / "price.txt").write_text("tea")
    saver = Program(preloaded, "priced", "saver", tmp_path)
    saver.start()
    saver.start("tea got yes", ["answer", "yes"])
    (tmp_path / "price.txt").write_text(thing)
    job = Program(preloaded, "priced", "job", tmp_path)
    result = job.start(value=None) or {}
    if result["asked"]:  # of tea, where the saver was killed before the answer was recorded
        assert result["asked"] == [{"question": f"pay {thing}?"}]
        assert job.answer({"tea": "yes", "salt": "no"}[thing]).code == 0
        result = job.start(value=None) or {}
    said = {"tea": "yes", "salt": "no"}[thing]
    assert result["log"] == ["given", "a", f"{thing}: {said}", "b"]
    assert job.seen()[f"{thing} does {said}"] == 1
    assert job.seen()["salt got yes"] == 0


def test_killed_at_any_moment_while_what_is_asked_changes(
    preloaded: Preloaded, tmp_path: Path, thorough: bool
) -> None:
    """Whatever is done was approved in these very words, and is done once."""
    rng = random.Random("prices")
    for number in range(60 if thorough else 2):
        form = FORMS[number % 2]
        program = asking(preloaded, tmp_path / str(number), form, "tea salt", "to-tea")
        live(program, rng)
        for place, count in program.seen().items():
            thing, got, said = place.partition(" got ")
            if got:
                assert said == f"to-{thing}", place
            if " does " in place:
                assert count == 1, place
        assert not verify(FileStore(program.folder / ".caravanserai"), "run").damaged


def live(program: Program, rng: random.Random) -> None:
    """Start a program, change what it asks, kill it, answer it, until it is done."""
    for step in range(60):
        if step < 10:
            things = rng.choice(["tea salt", "tea rice", "rice salt", "salt tea", "tea"])
            (program.folder / "price.txt").write_text(things)
        ended = program.begin(GIVEN, kill_after=rng.uniform(0.01, 0.4) if step < 12 else None)
        assert ended.killed or ended.code == 0 or "WaitingForPerson" in ended.out, ended.out
        if (
            ended.code == 0
            and not json.loads((program.folder / "result.json").read_text())["asked"]
        ):
            return
        for question in program.ledger().open:
            head = question.record.head
            words = [f"to-{head['text'].removeprefix('question: pay ').removesuffix('?')}"]
            if "about" in head:  # a step of which it is not certain that it happened
                done = any(s.startswith(f"{head['about'][0][3:]} does") for s in program.seen())
                words = ["happened", "--result", "null"] if done else ["rerun"]
            assert program.answer(question.id, *words).code == 0
    raise AssertionError("it asks and asks")
