"""Killed at any moment: no step under `once` runs twice without that being said."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from caravanserai import FileStore, answer, load
from caravanserai_core import survey
from caravanserai_core.errors import CaravanseraiError
from caravanserai_core.ledger import Ledger
from caravanserai_core.notes import recorded
from caravanserai_core.verify import verify
from integration_tests.effects.programs import KEYS, PROGRAMS
from integration_tests.support import ROOT

WAITS = 6


class Server:
    """Starts children of a preloaded process, which kill themselves after a while."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "integration_tests.effects.programs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")])},
        )

    def run(self, **order: Any) -> tuple[int, int]:
        """Run a program to its end or its kill; returns its pid and exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        pid, code = self._process.stdout.readline().split()
        return int(pid), int(code)

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


def seen(folder: Path) -> Counter[tuple[str, ...]]:
    """What the world saw, by key and idempotency key."""
    path = folder / "effects"
    lines = path.read_text().splitlines() if path.exists() else []
    return Counter(tuple(line.split()) for line in lines)


def answer_all(store: FileStore, folder: Path, run_id: str, caught: Counter[str]) -> None:
    """Answer each open question by looking at the world, as a person would."""
    acted = {key for key, _ in seen(folder)}
    for question in Ledger.read(store, run_id, None).open:
        head = question.record.head
        about, number = head["about"], question.id
        effect = Ledger.read(store, run_id, None).effects[about[0], about[1]]
        token = effect.records[0].head["token"]
        done = [key for key, used in seen(folder) if used == token]
        if done:
            assert set(done) <= acted
            caught["happened"] += 1
            answer(run_id, "happened", question=number, result=f"done {done[0]}", store=store)
        else:
            caught["did not"] += 1
            answer(run_id, "rerun", question=number, store=store)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("policy", ["ask", "rerun"])
def test_killed_at_any_moment(
    program: str, policy: str, server: Server, tmp_path: Path, thorough: bool
) -> None:
    """Asked about, a step happens exactly once; run again, each repetition is recorded and told."""
    kills = 50 if thorough else 4
    rng = random.Random(f"{program} {policy}")
    killed = number = 0
    caught: Counter[str] = Counter()
    # Most kills come before or between the steps: go on until one came in the middle.
    while killed < kills or (not caught["uncertain"] and killed < 50 * kills):
        number += 1
        folder = tmp_path / f"life-{number}"
        folder.mkdir()
        store = FileStore(folder / ".caravanserai")
        run_id = f"run {number}"
        order = {"program": program, "policy": policy, "folder": str(folder), "run_id": run_id}
        delay: float | None = rng.uniform(0.003, 0.03)
        for _ in range(200):
            _, code = server.run(**order, delay=delay)
            if code == -signal.SIGKILL:
                killed += 1
                delay = rng.uniform(0.003, 0.03) * 1.2 if rng.random() < 0.7 else None
            elif code == WAITS:
                assert policy == "ask"
                assert "**" in live_note(store, run_id).split("\n")[2]
                answer_all(store, folder, run_id, caught)
                assert "To decide" not in live_note(store, run_id)
            else:
                assert code == 0
                break
        assert code == 0
        check(store, folder, run_id, policy, caught)
    assert caught["uncertain"], "no kill came in the middle of a step"


def live_note(store: FileStore, run_id: str) -> str:
    return store.get_note(run_id, "latest.md") or ""


def check(
    store: FileStore,
    folder: Path,
    run_id: str,
    policy: str,
    caught: Counter[str],
) -> None:
    """Compare what the world saw with what was recorded."""
    world = seen(folder)
    times = Counter[str]()
    for (key, _), count in world.items():
        times[key] += count
    assert set(times) == {str(key) for key in range(KEYS)}
    assert len(world) == KEYS, "a step had two idempotency keys"
    begun: Counter[str] = Counter()
    again: Counter[str] = Counter()
    for record in survey.records(store, run_id, bodies=True):
        if record.kind == "effect" and record.head["what"] == "started":
            begun[record.head["token"]] += 1
            again[record.head["token"]] += bool(record.head.get("again"))
    for (key, token), count in world.items():
        if policy == "ask":
            assert count == 1, f"step {key} happened {count} times"
        else:
            assert count <= begun[token]
            assert count - 1 <= again[token], "a possible repetition that nobody recorded"
    # As they are rendered: a kill right behind a record leaves its note to the next command.
    records = survey.records(store, run_id, bodies=False)
    notes = "".join(recorded(r.head, run_id, None, None) for r in records if r.kind == "waypoint")
    told = len(re.findall(r"`act\(\d+\)` was run again: attempt ", notes))
    assert told == min(sum(again.values()), told if told >= 10 else KEYS * 100)
    caught["uncertain"] += sum(again.values()) + caught["happened"]
    findings = verify(store, run_id).findings
    assert [f for f in findings if f.level in ("damage", "torn")] == []
    assert len(load(run_id, store=store)["done"]) == KEYS


def test_a_killed_step_is_named_before_anybody_starts_again(server: Server, tmp_path: Path) -> None:
    """What the dead process left says which step was in flight, when it began, and where."""
    for number in range(100):
        store = FileStore(tmp_path / ".caravanserai")
        run_id = f"run-{number}"
        order = {"program": "loop", "policy": "ask", "folder": str(tmp_path), "run_id": run_id}
        pid, code = server.run(**order, delay=0.012)
        assert code in (0, -signal.SIGKILL)
        try:
            open_effects = [
                e for e in Ledger.read(store, run_id, None).effects.values() if e.what == "started"
            ]
        except CaravanseraiError:
            continue
        note = live_note(store, run_id)
        if open_effects and f"(process {pid} on " in note:
            assert re.search(r"`act\(\d+\)` began ", note)
            assert re.search(r"no result yet\n\n---\nRun `run-\d+` · .+\n\Z", note)
            return
    pytest.fail("no kill came in the middle of a step")
