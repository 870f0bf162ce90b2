"""A session that is killed and started again, with its model, and what is known from outside."""

from __future__ import annotations

import json
import os
import secrets
import select
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import psutil

from caravanserai import RunNotFound, answer
from caravanserai_core.ledger import Ledger, Question
from caravanserai_core.stores import FileStore
from caravanserai_core.verify import verify
from integration_tests.claude_agent import offline, places
from integration_tests.claude_agent.scripted import ScriptedAnthropic
from integration_tests.claude_agent.scripts import SUMMARY
from integration_tests.preloaded import Ended, Preloaded

JOBS = "integration_tests.claude_agent.jobs"
WARMED = "integration_tests.claude_agent.warmed"
PATIENCE = 100.0
"""Seconds after which a start that goes on is taken for one that hangs."""


class Server(ScriptedAnthropic):  # type: ignore[misc]
    """The scripted model; tells of places: "request 2", "text 2" (half of its answer), "summary".

    Args:
        script: see `ScriptedAnthropic`.
        passes: called at each place, before anything more is answered.
    """

    def __init__(self, script: Any, passes: Callable[[str], None]) -> None:
        super().__init__(script, summary=SUMMARY)
        self.requests = 0
        self._passes = passes

    def decide(self, body: dict[str, Any]) -> dict[str, Any]:
        told = super().decide(body)
        self.requests += 1
        self._passes(f"request {self.requests}")
        return {**told, "number": self.requests}

    def middle(self, told: dict[str, Any], gone: Callable[[], bool]) -> None:
        self._passes("summary" if told.get("summary") else f"text {told['number']}")
        super().middle(told, gone)


class Life:
    """A folder in which a session is started, and the model that it asks; a context manager.

    Args:
        preloaded: what forks its processes.
        folder: where it works.
        options: those of `jobs.run`, for every start.
        script: of its model.
        environment: what is different in that of its starts.

    Attributes:
        call: what each start calls, as "module:function".
        run_id: the name of the run; no two have the same one, so that they can run side by side.
        uncertain: how often a person was asked whether a call had happened.
    """

    def __init__(
        self,
        preloaded: Preloaded,
        folder: Path,
        options: dict[str, Any],
        script: Any,
        environment: dict[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.preloaded = preloaded
        self.folder = folder
        self.options = options
        self.store = FileStore(folder / ".caravanserai")
        self.server = Server(script, self._pass)
        self.environment = environment or {}
        self.uncertain = 0
        self.call = f"{JOBS}:run"
        self.run_id = f"job-{secrets.token_hex(4)}"
        self._place: str | None = None
        self._how = "both"
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self.server.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self.processes():
            process.kill()
        self.server.__exit__()

    def _pass(self, place: str) -> None:
        with self._lock:
            if place != self._place:
                return
            self._place = None
            pid = int((self.folder / "pid.txt").read_text())
            handle = os.pidfd_open(pid)
            try:
                places.kill(pid, self._how)
                if self._how != "cli":  # nothing more is answered before it is dead
                    assert select.select([handle], [], [], 20)[0], "the process does not die"
            finally:
                os.close(handle)

    def _watch(self, over: threading.Event) -> None:
        """Tell of the lines that commands leave, as places: "line begin two"."""
        known = len(self.lines(places.OUTSIDE))
        while (self._place or "").startswith("line ") and not over.wait(0.01):
            lines = self.lines(places.OUTSIDE)
            for line in lines[known:]:
                self._pass(f"line {line}")
            known = len(lines)

    # ------------------------------------------------------------------ what happens to it

    def start(self, place: str | None = None, *, how: str = "both", **options: Any) -> Ended:
        """Start it once, to be killed at a place; see `places` for how."""
        named = {"run_id": self.run_id, "place": place, "how": how}
        given = {**named, **self.options, **options}
        environment = offline.environment(
            self.folder, {**self.server.environment, **self.environment}
        )
        self._place, self._how, self.server.requests = place, how, 0
        (self.folder / "pid.txt").unlink(missing_ok=True)
        (self.folder / "result.json").unlink(missing_ok=True)
        (self.folder / "out.txt").touch()  # a child that is killed at once has not made it
        over = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            watching = pool.submit(self._watch, over)
            ended = self.preloaded.run(
                self.call, environment, given, folder=self.folder, kill_after=PATIENCE
            )
            over.set()
            watching.result()
        assert ended.seconds < PATIENCE, f"it hangs: {ended.out}"
        return ended

    def ended(self, **options: Any) -> dict[str, Any]:
        """Start it once, to its end or until it waits, and return what came of it."""
        ended = self.start(**options)
        assert ended.code == 0, ended.out
        found: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return found

    def killed(self, place: str, *, how: str = "both", **options: Any) -> None:
        """Start it, and see it die, or lose its CLI, at a place."""
        if how == "cli":
            found = self.ended(place=place, how=how, **options)
            assert "failed" in found, f"it never came to {place!r}: {found}"
            return
        ended = self.start(place, how=how, **options)
        assert ended.killed, f"it never came to {place!r}: {ended.out}"

    def finished(self, said: str = "rerun", **options: Any) -> dict[str, Any]:
        """Start it, and answer what it asks, until it is finished; return what came of it."""
        for _ in range(6):
            found = self.ended(**options)
            assert "failed" not in found, found
            if not waits(found):
                assert not self.agree(said), "it came to its end without an answer"
                return found
            assert self.agree(said), f"it waits for nobody: {found}"
        raise AssertionError("it waits for ever")

    def agree(self, said: Any = "rerun") -> int:
        """Answer all open questions: whether a call happened, or whether it may."""
        open_ = [question for question in self.questions() if question.state == "open"]
        for question in open_:
            assert said in question.record.head["options"], question.record.head
            result = {"result": "it is done"} if said == "happened" else {}
            answer(self.run_id, said, question=question.id, store=self.store, **result)
        self.uncertain += len(open_)
        return len(open_)

    def wait_for_orphans(self) -> None:
        """Wait until the CLI that outlived its program has ended by itself."""
        _, alive = psutil.wait_procs(self.processes(), timeout=PATIENCE)
        assert not alive

    # ------------------------------------------------------------------ what is known of it

    def processes(self) -> list[psutil.Process]:
        """Return the processes of the CLI that work in this folder."""
        config = str(self.folder)
        return [process for process in psutil.process_iter() if _works_in(process, config)]

    def questions(self) -> list[Question]:
        """Return the questions that it had, oldest first."""
        try:
            return list(Ledger.read(self.store, self.run_id, None).questions.values())
        except RunNotFound:
            return []

    def outside(self) -> Counter[str]:
        """Count what happened in the world."""
        return Counter(self.lines(places.OUTSIDE))

    def lines(self, name: str) -> list[str]:
        """Return the lines of one of the files that the job leaves."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def asked(self) -> int:
        """Count the requests that reached the model; it refused none."""
        assert not [line for line in self.server.lines if line["decided"].get("status")]
        return len(self.server.lines)

    def latest(self) -> str:
        """Return the newest note."""
        return (self.folder / ".caravanserai" / self.run_id / "latest.md").read_text(
            encoding="utf-8"
        )

    def check_store(self, *, torn: bool = True) -> None:
        """The journal is whole, but for what a kill cut off."""
        try:
            findings = verify(self.store, self.run_id).findings
        except RunNotFound:
            return
        levels = {finding.level for finding in findings}
        # A note that a killed process did not come to is written by who looks at it.
        assert levels <= ({"torn", "note"} if torn else {"note"}), findings


def waits(found: dict[str, Any]) -> bool:
    """Say whether what came of a start is that a person has to decide."""
    return bool(found["results"]) and found["results"][-1]["stop_reason"] == "tool_deferred"


def _works_in(process: psutil.Process, folder: str) -> bool:
    try:
        if "claude" not in process.name():
            return False
        home: str = process.environ().get("HOME", "")
        return home.startswith(f"{folder}/")
    except psutil.Error:
        return False
