"""A run that is killed and started again, with its model, and what is known of it from outside."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Self

from caravanserai import RunNotFound, answer
from caravanserai_core import survey
from caravanserai_core.ledger import Ledger, Question
from caravanserai_core.stores import FileStore
from caravanserai_core.verify import verify
from integration_tests.openai_agents.scripted import ScriptedOpenAI
from integration_tests.preloaded import Ended, Preloaded

JOBS = "integration_tests.openai_agents.jobs"
WARMED = "integration_tests.openai_agents.warmed"
RUN = "job"
PATIENCE = 100.0
"""Seconds after which a start that goes on is taken for one that hangs."""


class Life:
    """A folder in which a job is started, and the model that it asks; a context manager.

    Args:
        preloaded: what forks its processes.
        folder: where it works.
        options: those of `jobs.run`, for every start.
        script: of its model.
        server: options of the model's server.

    Attributes:
        call: what each start calls, as "module:function".
        uncertain: how often it was asked whether a call of a tool had happened.
    """

    def __init__(
        self,
        preloaded: Preloaded,
        folder: Path,
        options: dict[str, Any],
        script: Any,
        **server: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.preloaded = preloaded
        self.folder = folder
        self.options = options
        self.store = FileStore(folder / ".caravanserai")
        self.server = ScriptedOpenAI(script, **server)
        self.call = f"{JOBS}:run"
        self.uncertain = 0

    def __enter__(self) -> Self:
        self.server.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.server.__exit__()

    # ------------------------------------------------------------------ what happens to it

    def start(
        self, place: str | None = None, *, kill_after: float = PATIENCE, **options: Any
    ) -> Ended:
        """Start it once, to be killed at a place or after some seconds."""
        given = {**self.options, **options, "place": place}
        (self.folder / "result.json").unlink(missing_ok=True)
        (self.folder / "out.txt").touch()  # a child that is killed at once has not made it
        url = self.server.url
        ended = self.preloaded.run(self.call, url, given, folder=self.folder, kill_after=kill_after)
        assert ended.seconds < PATIENCE, f"it hangs: {ended.out}"
        return ended

    def ended(self, **options: Any) -> dict[str, Any]:
        """Start it once, to its end or until it waits, and return what came of it."""
        ended = self.start(**options)
        assert ended.code == 0, ended.out
        found: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return found

    def killed(self, place: str) -> None:
        """Start it, and see it die at a place; where it waits before that, say yes."""
        for _ in range(4):
            ended = self.start(place)
            if ended.killed:
                return
            assert ended.code == 0, ended.out
            assert self.agree(), f"it never came to {place!r}: {ended.out}"
        raise AssertionError(f"it never came to {place!r}")

    def finished(self) -> dict[str, Any]:
        """Start it, and agree to all it asks, until it is finished; return what came of it."""
        for _ in range(6):
            found = self.ended()
            if not self.agree():
                assert not found.get("asked"), found
                return found
        raise AssertionError("it waits for ever")

    def agree(self, value: Any = True, **options: Any) -> int:
        """Answer all open questions: approve, and let uncertain steps run again."""
        count = 0
        for question in self.questions():
            if question.state != "open":
                continue
            head = question.record.head
            uncertain = "rerun" in (head.get("options") or ())
            said = "rerun" if uncertain else value
            answer(RUN, said, question=question.id, store=self.store, **options)
            self.uncertain += uncertain
            count += 1
        return count

    def agree_that_it_happened(self, result: Any) -> int:
        """Answer that uncertain steps happened, and returned this."""
        uncertain = [q for q in self.questions() if q.state == "open"]
        for question in uncertain:
            answer(RUN, "happened", question=question.id, result=result, store=self.store)
        return len(uncertain)

    # ------------------------------------------------------------------ what is known of it

    def questions(self) -> list[Question]:
        """Return the questions that it had, oldest first."""
        try:
            return list(Ledger.read(self.store, RUN, None).questions.values())
        except RunNotFound:
            return []

    def recorded(self) -> Counter[str]:
        """Count what stands in the journal: answers of models, and tools that ended, by name."""
        try:
            records = list(survey.records(self.store, RUN, bodies=False))
        except RunNotFound:
            return Counter()
        found: Counter[str] = Counter()
        for record in records:
            head = record.head
            if record.kind == "entry" and head.get("name") == "model":
                found["model"] += 1
            elif record.kind == "effect" and head.get("what") == "result":
                found[str(head.get("label"))] += 1
        return found

    def outside(self) -> Counter[str]:
        """Count what happened in the world."""
        path = self.folder / "outside.txt"
        return Counter(path.read_text().splitlines() if path.exists() else ())

    def refunds(self) -> list[str]:
        """Return what was paid, with the id of the call."""
        path = self.folder / "refunds.txt"
        return path.read_text().splitlines() if path.exists() else []

    def appends(self) -> list[str]:
        """Return the places around appends that were reached, of all starts."""
        path = self.folder / "appends.txt"
        return path.read_text().splitlines() if path.exists() else []

    def events(self) -> list[list[str]]:
        """Return the events that consumers of all starts had, killed or not."""
        path = self.folder / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def asked(self) -> int:
        """Count the requests that the model answered in full; none was refused."""
        assert self.server.errors == []
        return len(self.server.answered)

    def latest(self) -> str:
        """Return the newest note."""
        return (self.folder / ".caravanserai" / RUN / "latest.md").read_text(encoding="utf-8")

    def check_store(self) -> None:
        """The journal is whole, but for what a kill cut off."""
        try:
            levels = {finding.level for finding in verify(self.store, RUN).findings}
        except RunNotFound:
            return
        assert levels <= {"torn", "note"}, levels


def comparable(found: dict[str, Any]) -> dict[str, Any]:
    """Return what has to be equal in a run that was killed and one that was not."""
    return {name: value for name, value in found.items() if name not in ("events", "turns")}
