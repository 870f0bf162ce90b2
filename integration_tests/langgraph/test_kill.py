"""Killed at any moment, started again, until done: what was stored is not done again."""

# ruff: noqa: E402

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import ROOT, require

require("langgraph")

from caravanserai_core import FileStore, RunNotFound, reading, survey
from caravanserai_core.ledger import MARKS
from caravanserai_core.listing import waits_of
from caravanserai_core.notes import recorded
from caravanserai_core.verify import verify
from integration_tests.langgraph.killing_graph import ORDER, RUN, step_of
from integration_tests.preloaded import Preloaded

GRAPH = "integration_tests.langgraph.killing_graph"

DONE = ["plan", "work-10", "work-20", "work-30", "left", "right", "join", *ORDER[4:]]
RESULT = {"number": 7, "done": DONE, "total": 68, "answer": "yes"}

PROGRAMS = [
    pytest.param(
        name, asynchronous, mode, id=f"{name}-{'async' if asynchronous else 'sync'}-{mode}"
    )
    for name, mode in (("job", "sync"), ("saver", "sync"), ("saver", None))
    for asynchronous in (False, True)
]
"""`resumable_graph`, and the saver alone with `invoke(None)`, also in LangGraph's default mode."""


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    with Preloaded(GRAPH) as process:
        yield process


class Life:
    """A run that is killed again and again, and what is known of it from outside."""

    def __init__(self, preloaded: Preloaded, program: tuple[str, bool, str | None], folder: Path):
        folder.mkdir()
        self.preloaded = preloaded
        self.program = program
        self.folder = folder
        self.store = FileStore(folder / ".caravanserai")
        self.starts: list[int] = []

    def start(self, kill_after: float | None, *, cold: bool = False) -> bool:
        """Start the program, kill it after some seconds; return whether it ended by itself."""
        self.starts.append(len(self.lines()))
        if cold:
            return self._start_cold(kill_after)
        call = f"{GRAPH}:program"
        ended = self.preloaded.run(call, *self.program, folder=self.folder, kill_after=kill_after)
        assert ended.killed or ended.code == 0, ended.out
        return not ended.killed

    def _start_cold(self, kill_after: float | None) -> bool:
        """Do the same with a new interpreter; the seconds count from its first sign of life."""
        name, asynchronous, mode = self.program
        words = [name, "async" if asynchronous else "sync", *([mode] if mode else [])]
        path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
        process = subprocess.Popen(
            [sys.executable, "-m", GRAPH, *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path},
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 60
        while len(self.lines()) == self.starts[-1] and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        if kill_after is not None:
            time.sleep(kill_after)
            process.kill()
        _, err = process.communicate(timeout=60)
        assert process.returncode in (0, -signal.SIGKILL), err
        return process.returncode == 0

    def lines(self) -> list[tuple[str, str]]:
        """Return what was seen outside: nodes, and what became of them."""
        path = self.folder / "outside.txt"
        if not path.exists():
            return []
        return [(name, what) for name, what in map(str.split, path.read_text().splitlines())]

    # ------------------------------------------------------------------ what must hold

    def check_store(self) -> None:
        """The journal is whole, and the notes say what it says."""
        before = {finding.level for finding in self._findings()}
        assert before <= {"torn", "note"}, self._findings()
        if not (self.folder / ".caravanserai").exists():
            return
        assert self._verb("verify").code == 0
        shown = self._verb("show", RUN)
        if shown.code == 3:  # killed before its first record was written
            return
        assert shown.code == 0, shown.out
        left = [finding for finding in self._findings() if finding.level != "torn"]
        assert left == [], (left, shown.out)
        records = list(survey.records(self.store, RUN, bodies=False))
        main = [r for r in records if r.kind == "waypoint" and r.lane == ""]
        if not main:
            return
        since = [r for r in records if r.seq > main[-1].seq]
        latest = self.folder / ".caravanserai" / RUN / "latest.md"
        told = latest.read_text(encoding="utf-8")
        framework = f"LangGraph {version('langgraph')}"
        goal = reading.opening(records[0]).goal
        whole = recorded(main[-1].head, RUN, framework, goal)
        if any(r.kind in MARKS for r in since):
            assert ("**Waiting for a person" in told) == bool(waits_of(records[-1])), told
            return
        says = [r.head["say"] for r in since if r.kind == "entry" and r.head.get("say")]
        if not says and not any(r.kind == "finish" for r in since):
            assert told == whole
        # Title and story first, then what came since, then the rest of the note.
        assert told.split("\n\n")[:2] == whole.split("\n\n")[:2]
        for say in says[-3:]:
            assert str(say) in told, (say, told)

    def _verb(self, *argv: str) -> Any:
        return self.preloaded.run(f"{GRAPH}:verb", *argv, folder=self.folder)

    def _findings(self) -> list[Any]:
        try:
            return verify(self.store, RUN).findings
        except RunNotFound:
            return []

    def check_outside(self) -> None:
        """No node that is finished begins again.

        With durability="sync" a node is finished when its writes were acknowledged, or when it
        ended and a node of a later step began. In the default mode a synchronous graph may lose
        one step, and an asynchronous one, which nothing holds up, what the disk is behind with.
        """
        lines = self.lines()
        _, asynchronous, mode = self.program
        strict = mode == "sync"
        most = 0 if strict else len(ORDER) if asynchronous else 1
        for place, (name, what) in enumerate(lines):
            if what != "begins":
                continue
            before = lines[:place]
            if strict:
                assert (name, "acknowledged") not in before, self._told(place)
            if (name, "ends") in before:
                later = [step_of(other) for other, how in before if how == "begins"]
                lost = max(later) - step_of(name)
                assert lost <= most, self._told(place)

    def _told(self, place: int) -> str:
        lines = [
            f"{'> ' if n in self.starts else ''}{a} {b}" for n, (a, b) in enumerate(self.lines())
        ]
        return f"{lines[place]!r} again, in {', '.join(lines)}"

    def check_end(self) -> None:
        """The result is that of a run that nobody killed."""
        assert json.loads((self.folder / "result.json").read_text()) == RESULT
        before = self.lines()
        assert {name for name, what in before if what == "ends"} == set(DONE)
        assert self.start(None)
        assert self.lines() == before, "what is finished does no work"
        assert [f for f in self._findings() if f.level != "note"] == []


@pytest.mark.timeout(1200)  # with --thorough
@pytest.mark.parametrize(("name", "asynchronous", "mode"), PROGRAMS)
def test_killed_at_any_moment(
    name: str,
    asynchronous: bool,
    mode: str | None,
    preloaded: Preloaded,
    tmp_path: Path,
    thorough: bool,
) -> None:
    """SIGKILL across fan-out, join, subgraph and question: the state is that of a calm run."""
    program = (name, asynchronous, mode)
    kills = (200 if program == PROGRAMS[0] else 50) if thorough else 8
    rng = random.Random(str(program))
    seconds = []
    for number in range(2):  # the first one pays for what only the first one needs
        calm = Life(preloaded, program, tmp_path / f"calm-{number}")
        begin = time.monotonic()
        assert calm.start(None)
        seconds.append(time.monotonic() - begin)
    calm.check_outside()
    calm.check_end()
    killed = 0
    caught: set[str] = set()
    # A few kills may by chance all come at one or two places.
    while killed < kills or (len(caught) <= 2 and killed < 4 * kills):
        life = Life(preloaded, program, tmp_path / f"life-{killed}-{rng.random()}")
        ended = False
        while not ended:
            # Two in ten from cold; without --thorough one, since such a start takes two seconds.
            cold = rng.random() < 0.2 if thorough else killed == kills - 1
            last = killed >= kills
            ended = life.start(None if last else min(seconds) * rng.uniform(0.2, 1), cold=cold)
            life.check_outside()
            if not ended:
                killed += 1
                lines = life.lines()
                caught.add(" ".join(lines[-1]) if lines else "nothing yet")
                life.check_store()
        life.check_end()
    assert len(caught) > 2, "the kills came at different moments"


def test_the_join_goes_on_through_the_join(preloaded: Preloaded, tmp_path: Path) -> None:
    """Killed as soon as one of two branches has ended: the other runs, then what waits for both."""
    for number, mode in enumerate(("sync", None, "sync", None)):
        life = Life(preloaded, ("saver", number > 1, mode), tmp_path / f"life-{number}")
        for _ in range(60):
            life.start(0.005 * len(life.starts) + 0.05)
            names = [name for name, what in life.lines() if what == "ends"]
            if "left" in names or "right" in names:
                break
        assert life.start(None)
        life.check_outside()
        life.check_end()
        assert re.search("(left|right) ends.* join ends", " ".join(map(" ".join, life.lines())))
