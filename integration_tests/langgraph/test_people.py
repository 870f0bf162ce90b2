"""What a graph asks is a question of its run: asked once, answered from anywhere, given once."""

# ruff: noqa: E402

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("langgraph")

from caravanserai_core import survey
from caravanserai_core.ledger import Ledger
from caravanserai_core.stores import FileStore
from caravanserai_core.verify import verify
from integration_tests.preloaded import Ended, Preloaded

JOBS = "integration_tests.langgraph.asking_jobs"

GIVEN: dict[str, Any] = {"log": ["given"]}

FORMS = ["job", "saver", "ajob", "asaver", "job-default", "saver-default"]


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    with Preloaded(JOBS) as process:
        yield process


class Program:
    """A program whose every start is a process of its own."""

    def __init__(self, preloaded: Preloaded, graph: str, form: str, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._preloaded = preloaded
        self._graph = graph
        self._form = form
        self.folder = folder
        self._begun = False

    def start(self, place: str | None = None, value: Any = GIVEN) -> dict[str, Any] | None:
        """Start it, the way its user goes on; None: it was killed at a place."""
        if self._begun and value is GIVEN and not self._form.partition("-")[0].endswith("job"):
            value = None
        self._begun = True
        ended = self.begin(value, place)
        if place is not None:
            assert ended.killed, (place, ended.out)
            return None
        assert ended.code == 0, ended.out
        found: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return found

    def refused(self, value: Any) -> str:
        """Start it with a value that is refused; returns what it said."""
        ended = self.begin(value, None)
        assert ended.code == 1, ended.out
        return ended.out

    def begin(self, value: Any, place: str | None = None, kill_after: float | None = None) -> Ended:
        order = (f"{JOBS}:start", self._graph, self._form, value, place)
        return self._preloaded.run(*order, folder=self.folder, kill_after=kill_after)

    def seconds(self) -> float:
        """Return how long a calm start takes."""
        return self.begin(GIVEN, None).seconds

    def live(self, rng: random.Random, seconds: float) -> int:
        """Start it, and kill it at any moment, until it is done; returns how often it was killed.

        Whatever it asks is answered: a step that may have happened is looked for outside.
        """
        killed = 0
        while True:
            begun = any(
                r.kind == "waypoint" for r in survey.records(self._store(), "run", bodies=False)
            )
            value = None if begun and "saver" in self._form else GIVEN
            ended = self.begin(value, None, rng.uniform(0.2, 1) * seconds if killed < 5 else None)
            killed += ended.killed
            if not (ended.killed or ended.code == 0 or "WaitingForPerson" in ended.out):
                raise AssertionError(ended.out)
            if (
                ended.code == 0
                and not json.loads((self.folder / "result.json").read_text())["asked"]
            ):
                return killed
            for question in self.ledger().open:
                step = str(question.record.head.get("about", [""])[0]).removeprefix("do ")
                words = ["yes"]
                if step:
                    happened = self.seen()[f"{step} does yes"]
                    words = ["happened", "--result", "null"] if happened else ["rerun"]
                assert self.answer(question.id, *words).code == 0

    def answer(self, *words: str) -> Ended:
        """Answer on the command line."""
        return self._preloaded.run(f"{JOBS}:cli", "answer", "run", *words, folder=self.folder)

    def status(self) -> str:
        ended = self._preloaded.run(f"{JOBS}:cli", "list", "--json", folder=self.folder)
        found: str = json.loads(ended.out)["runs"][0]["status"]
        return found

    def questions(self) -> dict[str, tuple[str, str]]:
        """Return the text and the state of each question."""
        found = self.ledger().questions.values()
        return {q.id: (q.record.head["text"], q.state) for q in found}

    def ledger(self) -> Ledger:
        return Ledger.read(self._store(), "run", None)

    def _store(self) -> FileStore:
        return FileStore(self.folder / ".caravanserai")

    def latest(self) -> str:
        return (self.folder / ".caravanserai" / "run" / "latest.md").read_text(encoding="utf-8")

    def seen(self) -> Counter[str]:
        """Return how often each place was reached."""
        return Counter((self.folder / "outside.txt").read_text().splitlines())


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_from_the_command_line_after_three_restarts(
    preloaded: Preloaded, tmp_path: Path, form: str
) -> None:
    """The program's own line goes on with it; nothing is asked or done twice."""
    program = Program(preloaded, "one", form, tmp_path)
    for _ in range(3):
        result = program.start()
        assert result is not None
        assert result["asked"] == [{"question": "send?"}]
    assert program.status() == "waiting"
    assert program.questions() == {"q1": ("question: send?", "open")}
    note = program.latest()
    assert note.splitlines()[2].startswith('**Waiting for a person:** "question: send?" (q1).')
    assert "caravanserai answer run q1 true" in note

    assert program.answer("yes").code == 0
    assert "**Waiting" not in program.latest()
    assert program.answer("q1", "no").code == 2

    result = program.start()
    assert result == {"log": ["given", "a", "send: yes", "b"], "asked": []}
    seen = program.seen()
    assert (seen["a"], seen["b"], seen["send does yes"], seen["send got yes"]) == (1, 1, 1, 1)
    assert program.status() != "waiting"
    notes = [path.read_text() for path in program.folder.glob(".caravanserai/run/waypoint-*.md")]
    assert any('answered q1: "yes". Node `asks` wrote' in note for note in notes)


PLACES = [
    "send",
    "record the question",
    "store the pause",
    "answer",
    "send",
    "send got yes",
    "send does yes",
    "send did",
    "put 1",
    "b",
]
"""Everything that happens around the answer, in order."""


@pytest.mark.parametrize("form", FORMS)
def test_killed_at_every_place_around_the_answer(
    preloaded: Preloaded, tmp_path: Path, form: str
) -> None:
    """Each in a life of its own: one question, one answer, and what was done is done once."""
    for number, place in enumerate(PLACES):
        if place == "answer":
            continue
        program = Program(preloaded, "one", form, tmp_path / str(number))
        before = number < PLACES.index("answer")
        if before:
            program.start(place)
        assert (program.start() or {})["asked"] == [{"question": "send?"}]
        assert program.answer("yes").code == 0
        if not before:
            program.start(place)
            if place == "send does yes":  # whether it was done is for a person to say
                assert "`do send" in program.latest()
                out = program.refused(None if "saver" in form else GIVEN)
                assert "WaitingForPerson" in out
                assert "## Not certain" in program.latest()
                assert program.answer("q2", "happened", "--result", "null").code == 0
        result = program.start() or {}
        while result["asked"]:
            result = program.start() or {}
        assert result["log"] == ["given", "a", "send: yes", "b"], place
        seen = program.seen()
        assert seen["send does yes"] == 1, place
        assert not [said for said in seen if said.startswith("send got") and said != "send got yes"]
        texts = [text for text, _ in program.questions().values()]
        assert texts.count("question: send?") == 1, (place, texts)


@pytest.mark.parametrize("form", ["job", "ajob", "asaver", "saver-default"])
def test_killed_at_any_moment(
    preloaded: Preloaded, tmp_path: Path, form: str, thorough: bool
) -> None:
    """Questions side by side, in a row, and deep inside: what hangs on each answer is done once."""
    rng = random.Random(form)
    calm = Program(preloaded, "deep", form, tmp_path / "calm")
    seconds = min(calm.seconds() for _ in range(2))
    killed = number = 0
    while killed < (200 if thorough else 6) or number < 3:
        graph = ("two", "deep", "one")[number % 3]
        program = Program(preloaded, graph, form, tmp_path / str(number))
        killed += program.live(rng, seconds)
        number += 1
        does = {place: count for place, count in program.seen().items() if " does " in place}
        names = {"two": "pq", "deep": ("send", "more"), "one": ("send",)}[graph]
        assert does == {f"{name} does yes": 1 for name in names}, graph
        texts = [text for text, _ in program.questions().values() if text.startswith("question")]
        assert len(texts) == len(set(texts)) == len(names)
        assert not verify(FileStore(program.folder / ".caravanserai"), "run").damaged


@pytest.mark.parametrize("form", FORMS)
def test_two_questions_at_once_are_answered_one_now_one_later(
    preloaded: Preloaded, tmp_path: Path, form: str
) -> None:
    """What has its answer goes on, the other one waits; the join comes last."""
    program = Program(preloaded, "two", form, tmp_path)
    asked = (program.start() or {})["asked"]
    assert sorted(item["question"] for item in asked) == ["p?", "q?"]
    ids = {text: name for name, (text, _) in program.questions().items()}
    assert program.answer("yes").code == 2  # which one?
    assert program.answer(ids["question: q?"], "late").code == 0
    result = program.start() or {}
    assert result["asked"] == [{"question": "p?"}]
    assert program.status() == "waiting"
    assert program.seen()["q does late"] == 1
    assert (program.start() or {})["asked"] == [{"question": "p?"}]
    assert program.answer("now").code == 0
    result = program.start() or {}
    assert sorted(result["log"]) == ["b", "given", "p: now", "q: late"]
    seen = program.seen()
    assert (seen["p does now"], seen["q does late"], seen["q got late"]) == (1, 1, 1)
    assert len(program.questions()) == 2


@pytest.mark.parametrize("form", FORMS)
def test_a_question_two_levels_down(preloaded: Preloaded, tmp_path: Path, form: str) -> None:
    """One question, not three; and the next one of the same node is asked, not answered with it."""
    program = Program(preloaded, "deep", form, tmp_path)
    program.start()
    assert [text for text, _ in program.questions().values()] == ["question: send?"]
    assert program.answer("yes").code == 0
    program.start("send did")
    assert (program.start() or {})["asked"] == [{"question": "more?"}]
    assert [state for _, state in program.questions().values()].count("open") == 1
    assert program.answer("twice").code == 0
    result = program.start() or {}
    assert [line for line in result["log"] if ":" in line] == ["send: yes", "more: twice"]
    seen = program.seen()
    assert (seen["x"], seen["send does yes"], seen["more does twice"]) == (1, 1, 1)
    assert len(program.questions()) == 2


@pytest.mark.parametrize("form", ["job-default", "saver-default", "asaver-default"])
def test_a_subgraph_that_stores_nothing(preloaded: Preloaded, tmp_path: Path, form: str) -> None:
    """Its question is that of the node it is in. (With "sync" langgraph 1.2.24 fails there.)"""
    program = Program(preloaded, "unkept", form, tmp_path)
    program.start()
    assert program.answer("yes").code == 0
    result = program.start() or {}
    assert result["log"][-2:] == ["send: yes", "b"]
    assert len(program.questions()) == 1


@pytest.mark.parametrize("form", ["job", "saver", "asaver", "saver-default"])
def test_two_questions_one_after_the_other(preloaded: Preloaded, tmp_path: Path, form: str) -> None:
    """Killed in between: the first answer is for the first question alone."""
    program = Program(preloaded, "twice", form, tmp_path)
    program.start()
    assert program.answer("one").code == 0
    program.start("first did")
    assert (program.start() or {})["asked"] == [{"question": "second?"}]
    assert (program.start() or {})["asked"] == [{"question": "second?"}]
    assert program.answer("two").code == 0
    assert (program.start() or {})["log"] == ["given", "first: one", "second: two", "b"]


@pytest.mark.parametrize("form", ["job", "saver"])
def test_tasks_of_a_function_ask(preloaded: Preloaded, tmp_path: Path, form: str) -> None:
    """The answer goes to the task that asked, and not to the function around it."""
    program = Program(preloaded, "function", form, tmp_path)
    program.start()
    assert [text for text, _ in program.questions().values()] == ["deep?"]
    assert program.answer("yes").code == 0
    assert (program.start() or {})["asked"] == ["self?"]
    assert program.answer("me").code == 0
    assert (program.start() or {})["log"] == ["given", "deep: yes", "self: me"]


@pytest.mark.parametrize("form", ["job", "saver"])
def test_no_takes_the_branch_of_no(preloaded: Preloaded, tmp_path: Path, form: str) -> None:
    """And an answer that the question does not allow is refused."""
    program = Program(preloaded, "branch", form, tmp_path)
    program.start()
    assert program.answer("perhaps").code == 2
    assert "caravanserai answer run q1 no" in program.latest()
    assert program.answer("no").code == 0
    assert (program.start() or {})["log"] == ["given", "keep"]
    assert program.seen()["send"] == 0


@pytest.mark.parametrize("form", FORMS)
def test_a_command_answers_for_everybody(preloaded: Preloaded, tmp_path: Path, form: str) -> None:
    """The question has its answer, the command line is refused, and no next question gets it."""
    program = Program(preloaded, "twice", form, tmp_path)
    program.start()
    program.start("first did", ["answer", "one"])
    assert program.answer("q1", "other").code == 2
    assert (program.start() or {})["asked"] == [{"question": "second?"}]
    assert (program.start() or {})["asked"] == [{"question": "second?"}]
    result = program.start(value=["answer", "two"]) or {}
    assert result["log"] == ["given", "first: one", "second: two", "b"]
    seen = program.seen()
    assert (seen["first does one"], seen["second does two"]) == (1, 1)
    assert {state for _, state in program.questions().values()} == {"spent"}


@pytest.mark.parametrize("form", FORMS)
def test_a_command_after_an_answer_from_elsewhere_is_refused(
    preloaded: Preloaded, tmp_path: Path, form: str
) -> None:
    """The first answer counts: it is kept, and the same program goes on with it."""
    program = Program(preloaded, "one", form, tmp_path)
    program.start()
    assert program.answer("yes").code == 0
    error = "InputChanged" if "job" in form else "AlreadyAnswered"
    assert error in program.refused(["answer", "no"])
    assert (program.start() or {})["log"][-2:] == ["send: yes", "b"]
    assert program.seen()["send does no"] == 0
