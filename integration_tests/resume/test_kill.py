"""Killed at any moment, started again, until done: what was acknowledged is there, exactly once."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from caravanserai_core import FileStore, RunNotFound, WaypointNotFound, get_waypoint, load, open_run
from caravanserai_core.journal import _table
from caravanserai_core.verify import renew_notes, verify
from integration_tests.codec.values import same
from integration_tests.resume.programs import PROGRAMS, done, note
from integration_tests.support import ROOT

STEPS = 120


class Server:
    """Starts children of a preloaded process, and kills them."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "integration_tests.resume.programs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")])},
        )

    def start(self, program: str, run_id: str, folder: Path, steps: int) -> int:
        """Start a program in a process of its own and return its pid once it runs."""
        order = {"program": program, "run_id": run_id, "folder": str(folder), "steps": steps}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._answer())

    def ended(self) -> int:
        """Wait for the end of the child and return its exit code; minus the signal if killed."""
        word, code = self._answer().split()
        assert word == "exit"
        return int(code)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the fork server is gone"
        return line

    def close(self) -> None:
        """End the server."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def lines(path: Path) -> list[list[int]]:
    """Read an outside log: whole lines of numbers."""
    if not path.exists():
        return []
    text = path.read_text()
    assert text == "" or text.endswith("\n")
    return [[int(word) for word in line.split()] for line in text.splitlines()]


class Life:
    """A run that is killed again and again, and what is known of it from outside."""

    def __init__(self, server: Server, program: str, folder: Path, run_id: str) -> None:
        folder.mkdir()
        self.server = server
        self.program = program
        self.folder = folder
        self.run_id = run_id
        self.store = FileStore(folder / ".caravanserai")
        self.steps_done = 0
        self.left = 0
        self.seen_effects = 0
        self.in_flight: Counter[int] = Counter()
        self.caught = Counter[str]()

    def run(self, delay: float | None) -> bool:
        """Start the program, kill it after `delay` seconds; returns whether it ended by itself."""
        pid = self.server.start(self.program, self.run_id, self.folder, STEPS)
        if delay is not None:
            time.sleep(delay)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        code = self.server.ended()
        assert code in (0, -signal.SIGKILL)
        return code == 0

    def check(self, *, renew: bool) -> None:
        """Look at what the dead process left behind."""
        _table.clear()
        acks = lines(self.folder / "acks")
        # What an earlier look has loaded is as good as acknowledged.
        acknowledged = max(acks[-1][0] if acks else 0, self.steps_done)
        left = self._latest()
        try:
            state = load(self.run_id, store=self.store)
            waypoint = get_waypoint(self.run_id, store=self.store)
            step = done(state)
        except (RunNotFound, WaypointNotFound):  # the latter: killed after its first entry
            step = 0
        if not step:
            assert acknowledged == 0, "an acknowledged waypoint is gone"
            assert left in (None, 0)
        else:
            assert step in (acknowledged, acknowledged + 1), "neither acknowledged nor the next"
            assert str(waypoint.note) == note(step), "state and note disagree"
            assert waypoint.number == step
            # Notes are written before `checkpoint` returns, and after the journal.
            # A process that wrote one waypoint, or none, may leave what the one before left.
            older = {self.steps_done, self.left} if step - self.steps_done < 2 else set()
            assert (left or 0) in {step, step - 1} | older
            assert (left or 0) >= (acks[-1][0] if acks else 0)
            self.caught["note behind"] += left != step
            if renew:
                renew_notes(self.store, self.run_id)
                left = self._latest()
                assert left == step
        self.left = left or 0
        self._check_effects(step)
        self.caught["not acknowledged"] += step != acknowledged

    def _latest(self) -> int | None:
        path = Path(self.store.folder(self.run_id), "latest.md")
        if not path.exists():
            assert not path.is_symlink(), "a link that leads nowhere"
            return None
        text = path.read_text()
        if text.startswith("# No waypoint yet\n"):
            return 0
        found = re.match(r"# Waypoint (\d+) — \S+\n\n(.*)\n", text)
        assert found, text
        number = int(found[1])
        assert found[2] == note(number)
        return number

    def _check_effects(self, step: int) -> None:
        """In each life of the process the steps that were not done ran once, in order."""
        effects = [line[0] for line in lines(self.folder / "effects")]
        news = effects[self.seen_effects :]
        self.seen_effects = len(effects)
        assert news == list(range(self.steps_done + 1, self.steps_done + 1 + len(news)))
        last = news[-1] if news else self.steps_done
        assert last in (step, step + 1), "a step is missing or was not asked for"
        if last == step + 1:
            self.in_flight[last] += 1
        self.steps_done = step

    def check_end(self, undisturbed: Any) -> None:
        """Look at the finished run."""
        _table.clear()
        assert same(load(self.run_id, store=self.store), undisturbed)
        counts = Counter(line[0] for line in lines(self.folder / "effects"))
        assert set(counts) == set(range(1, STEPS + 1))
        for step, count in counts.items():
            assert count == 1 + self.in_flight[step], f"step {step} ran {count} times"
        findings = verify(self.store, self.run_id).findings
        assert [f for f in findings if f.level in ("damage", "torn")] == []
        before = lines(self.folder / "effects")
        assert self.run(None), "the finished run starts and ends"
        assert lines(self.folder / "effects") == before, "a finished run does no work"


@pytest.mark.parametrize("program", PROGRAMS)
def test_killed_at_any_moment(program: str, server: Server, tmp_path: Path, thorough: bool) -> None:
    """After each SIGKILL state and note are an acknowledged pair or the next, no effect is lost."""
    kills = 500 if thorough else 60 if program == "small" else 25
    rng = random.Random(program)
    begin = time.monotonic()
    calm = Life(server, program, tmp_path / "calm", "run")
    assert calm.run(None)
    calm.check(renew=False)
    undisturbed = load("run", store=calm.store)
    assert done(undisturbed) == STEPS
    per_step = (time.monotonic() - begin) / STEPS
    killed = 0
    caught: Counter[str] = Counter()
    for number in range(kills):
        life = Life(server, program, tmp_path / f"life-{number}", f"run {number}")
        while not (ended := life.run(rng.uniform(0, 12 * per_step))):
            killed += 1
            life.check(renew=rng.random() < 0.5)
            if rng.random() < 0.1:
                damaged = [f for f in verify_if_there(life) if f.level == "damage"]
                assert damaged == []
        assert ended
        life.check_end(undisturbed)
        caught += life.caught
        if killed >= kills:
            break
    assert killed >= kills
    assert caught["not acknowledged"], "no kill came between a write and its acknowledgement"


def verify_if_there(life: Life) -> list[Any]:
    """Verify a run that may not have been begun."""
    try:
        return verify(life.store, life.run_id).findings
    except RunNotFound:
        return []


def test_entries_survive_the_process_that_wrote_them(server: Server, tmp_path: Path) -> None:
    """What a killed process wrote down since its last waypoint is there, and tells what began."""
    life = Life(server, "entries", tmp_path / "life", "run")
    rng = random.Random(4)
    kinds: Counter[tuple[str, ...]] = Counter()
    for _ in range(400):
        if life.run(rng.uniform(0.001, 0.01)):
            break
        _table.clear()
        run = open_run("run", store=life.store)
        names = tuple(entry.name for entry in run.entries())
        step = run.waypoint + 1
        whole = ("tool started", "tool result")
        began = [n for n, entry in enumerate(run.entries()) if entry.name == "tool started"]
        for start in began:  # a step that was killed began again
            assert names[start : start + 2] in (whole, whole[:1], ("tool started",) * 2)
        assert all(
            same(e.data, {"step": step} if e.name == "tool started" else (step,))
            for e in run.entries()
        )
        kinds[names[-1:]] += 1
    assert len(kinds) == 3, "killed after a waypoint, with a tool running, and with its result"
