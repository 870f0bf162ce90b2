"""A crew that is killed and started again, with its model, and what is known of it from outside."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Self

from caravanserai import RunNotFound, answer
from caravanserai_core import survey
from caravanserai_core.ledger import Ledger, Question
from caravanserai_core.stores import FileStore
from caravanserai_core.verify import verify
from integration_tests.openai_agents.scripted import ScriptedOpenAI, by_rules
from integration_tests.preloaded import Ended, Preloaded

JOBS = "integration_tests.crewai.jobs"
WARMED = "integration_tests.crewai.warmed"
RUN = "job"
PATIENCE = 100.0
"""Seconds after which a start that goes on is taken for one that hangs."""


class Life:
    """A folder in which a crew is started, and the model that it asks; a context manager.

    Args:
        preloaded: what forks its processes.
        folder: where it works.
        options: those of `jobs.run`, for every start.
        script: of its model.
    """

    def __init__(
        self, preloaded: Preloaded, folder: Path, options: dict[str, Any], script: Any
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.preloaded = preloaded
        self.folder = folder
        self.options = options
        self.script = script
        self.store = FileStore(folder / ".caravanserai")
        self.server = ScriptedOpenAI(self._decide)
        self._kill_at: int | None = None
        self._requests = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self.server.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.server.__exit__()

    def _decide(self, asked: Any) -> Any:
        with self._lock:
            self._requests += 1
            kill = self._requests == self._kill_at
        if kill:
            self._kill()
        script = self.script
        return by_rules(script, asked) if isinstance(script, list) else script(asked)

    def _kill(self) -> None:
        """Kill who asks, and wait until the connection knows it."""
        handle = os.pidfd_open(int((self.folder / "pid.txt").read_text()))
        try:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            _wait_readable(handle)
        finally:
            os.close(handle)

    # ------------------------------------------------------------------ what happens to it

    def start(self, place: str | None = None, *, job: str = f"{JOBS}:run", **options: Any) -> Ended:
        """Start a job once, to be killed at a place."""
        given = {**self.options, **options, "place": place}
        request = re.fullmatch(r"request (\d+)", place or "")
        self._kill_at = int(request[1]) if request else None
        self._requests = 0
        (self.folder / "result.json").unlink(missing_ok=True)
        (self.folder / "out.txt").touch()  # a child that is killed at once has not made it
        ended = self.preloaded.run(
            job, self.server.url, given, folder=self.folder, kill_after=PATIENCE
        )
        assert ended.seconds < PATIENCE, f"it hangs: {ended.out}"
        return ended

    def ended(self, **options: Any) -> Any:
        """Start it once, to its end or until it waits, and return what came of it."""
        ended = self.start(**options)
        assert ended.code == 0, ended.out
        return json.loads((self.folder / "result.json").read_text())

    def did(self, **options: Any) -> None:
        """Start it once, to its end, where there is no result."""
        ended = self.start(**options)
        assert ended.code == 0, ended.out

    def refused(self, **options: Any) -> str:
        """Start it once, see it fail, and return what it said."""
        ended = self.start(**options)
        assert ended.code == 1, ended
        return ended.out

    def killed(self, place: str, **options: Any) -> None:
        """Start it, and see it die at a place."""
        ended = self.start(place, **options)
        assert ended.killed, f"it never came to {place!r}: {ended.out}"

    def agree(self, value: Any = "rerun", run_id: str = RUN) -> int:
        """Answer all open questions."""
        open_ = [question for question in self.questions(run_id) if question.state == "open"]
        for question in open_:
            answer(run_id, value, question=question.id, store=self.store)
        return len(open_)

    # ------------------------------------------------------------------ what is known of it

    def questions(self, run_id: str = RUN) -> list[Question]:
        """Return the questions that it had, oldest first."""
        try:
            return list(Ledger.read(self.store, run_id, None).questions.values())
        except RunNotFound:
            return []

    def recorded(self, run_id: str = RUN) -> Counter[str]:
        """Count what the journal has: answers of models, and steps that ended, by their label."""
        try:
            records = list(survey.records(self.store, run_id, bodies=False))
        except RunNotFound:
            return Counter()
        found: Counter[str] = Counter()
        for record in records:
            head = record.head
            if record.kind == "entry" and "|model|" in str((head.get("meta") or {}).get("key")):
                found["model"] += 1
            elif record.kind == "effect" and head.get("what") == "result":
                found[str(head.get("label"))] += 1
        return found

    def outside(self) -> Counter[str]:
        """Count what happened in the world."""
        return Counter(self.lines("outside.txt"))

    def lines(self, name: str) -> list[str]:
        """Return the lines of one of the files that the job leaves."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def files(self) -> dict[str, str]:
        """Return the files that tasks wrote (`output_file`)."""
        return {path.name: path.read_text() for path in self.folder.glob("output-*")}

    def asked(self) -> int:
        """Count the requests that the model answered in full; none was refused."""
        assert self.server.errors == []
        return len(self.server.answered)

    def requests(self) -> int:
        """Count the requests that reached the model."""
        return len(self.server.asked)

    def latest(self, run_id: str = RUN) -> str:
        """Return the newest note."""
        return (self.folder / ".caravanserai" / run_id / "latest.md").read_text(encoding="utf-8")

    def check_store(self, run_id: str = RUN) -> None:
        """The journal is whole, but for what a kill cut off."""
        try:
            levels = {finding.level for finding in verify(self.store, run_id).findings}
        except RunNotFound:
            return
        assert levels <= {"torn", "note"}, levels


def _wait_readable(handle: int) -> None:
    assert select.select([handle], [], [], 20)[0], "the process does not die"


def comparable(found: Any) -> Any:
    """Return an outcome without what differs in each process, or with each answer of a model.

    The ids of tasks are gone, those of tool calls are numbered as they are told.
    """
    names: dict[str, str] = {}

    def named(match: re.Match[str]) -> str:
        return names.setdefault(match[0], f"call-{len(names)}")

    text = re.sub(r'"task_id": "[0-9a-f-]+"', '"task_id": ""', json.dumps(found))
    return json.loads(re.sub(r"call_\d{4}_\d+", named, text))
