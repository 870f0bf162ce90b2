"""Worker processes that take turns, and the numbers that come of it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._worker import WARM_UP as WARM_UP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]

MS = 1e6
"""Nanoseconds in a millisecond."""


@dataclass
class Row:
    """One line of the result.

    Attributes:
        key: its name in the JSON document.
        figure: what it says, in words.
        value: what was measured.
        unit: x (a ratio), ms, s, bytes or calls.
        target: most that it may be, or None: for information.
        aim: what it should be, where that is less.
        detail: the numbers behind it.
    """

    key: str
    figure: str
    value: float
    unit: str
    target: float | None = None
    aim: float | None = None
    detail: str = ""

    @property
    def ok(self) -> bool | None:
        return None if self.target is None else self.value <= self.target


@dataclass
class Context:
    """What a figure needs to know.

    Attributes:
        folder: where its data goes; nothing in it is deleted before the end.
        quick: only show that it works.
        peers: folder of each package to compare with that is there.
        waypoints: how many the long runs have.
        rounds: how often everything takes its turn, where a turn is a whole run.
        raw: what was measured, for the JSON document.
    """

    folder: Path
    quick: bool
    peers: dict[str, Path]
    waypoints: int = 0
    rounds: int = 3
    raw: dict[str, Any] = field(default_factory=dict)

    def fresh(self, name: str) -> Path:
        """Make a folder in which new files cost what they usually do; see `settle`."""
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))
        settle(folder / "settle", 0.2 if self.quick else 30)
        return folder


SETTLED = 0.03 * MS
"""Time for a new file that has nothing in its way; 0.01 ms is usual, in the trap it is 0.3."""


def settle(folder: Path, seconds: float) -> float:
    """Make empty files until one costs little, or `seconds` are over; returns the last median.

    ext4 without a journal goes past each inode that was deleted in the last minutes, which makes
    a new file 20 times as dear: after a test run, and after an earlier benchmark. The files made
    here take the places behind them; they stay until the end.
    """
    folder.mkdir()
    end = time.monotonic() + seconds
    number = 0
    while True:
        spent = []
        for _ in range(200):
            number += 1
            start = time.perf_counter_ns()
            os.close(os.open(folder / str(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            spent.append(time.perf_counter_ns() - start)
        middle = statistics.median(spent)
        if middle <= SETTLED or time.monotonic() > end:
            return middle


@dataclass
class Samples:
    """Times of one participant, in nanoseconds, by rounds."""

    rounds: list[list[float]] = field(default_factory=list)

    @property
    def p50s(self) -> list[float]:
        return [statistics.median(times) for times in self.rounds]

    @property
    def p50(self) -> float:
        return statistics.median(self.p50s)

    @property
    def p99(self) -> float:
        """Of all rounds together: a single one has too few calls for it."""
        times = sorted(t for times in self.rounds for t in times)
        return times[math.ceil(0.99 * len(times)) - 1]

    @property
    def most(self) -> float:
        return max(t for times in self.rounds for t in times)

    def ratio(self, other: Samples) -> float:
        """Return the median of the ratios in each round: what drifts hits both."""
        return statistics.median(self.ratios(other))

    def ratios(self, other: Samples) -> list[float]:
        return [a / b for a, b in zip(self.p50s, other.p50s, strict=True)]

    def raw(self) -> dict[str, Any]:
        return {
            "p50_ms": self.p50 / MS,
            "p99_ms": self.p99 / MS,
            "rounds_p50_ms": [p / MS for p in self.p50s],
            "calls": sum(map(len, self.rounds)),
        }

    def __str__(self) -> str:
        return f"p50 {milliseconds(self.p50)} p99 {milliseconds(self.p99)}"


def milliseconds(ns: float) -> str:
    ms = ns / MS
    return f"{ms:.3f} ms" if ms < 1 else f"{ms:.3g} ms" if ms < 100 else f"{ms:.0f} ms"


class Worker:
    """A process that does what it is told; between two commands it can be stopped.

    Args:
        kind: what it is; see `benchmarks._worker`.
        folder: its working folder.
        path: folders that its imports come from, before this project's.
        prefix: a command to run it under.
        module: where its kind is.
        **arguments: for its constructor.
    """

    def __init__(
        self,
        kind: str,
        folder: Path,
        *,
        path: Sequence[Path] | None = None,
        prefix: Sequence[str] = (),
        module: str = "benchmarks._worker",
        **arguments: Any,
    ) -> None:
        self.kind = kind
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-m", module, kind, json.dumps(arguments)],
            cwd=folder,
            env=environment(path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def __call__(self, do: str, **arguments: Any) -> Any:
        if self._process.stdin is None:
            raise RuntimeError("no pipe")
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        if self._process.stdout is None:
            raise RuntimeError("no pipe")
        line = self._process.stdout.readline()
        if not line:
            _, said = self._process.communicate()
            raise RuntimeError(f"the worker {self.kind} ended: {said.strip()[-2000:]}")
        return json.loads(line)

    def stop(self) -> None:
        """Stop it: background threads must not disturb whoever comes next."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        if self._process.poll() is None:
            self.go_on()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=10)
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def environment(path: Sequence[Path] | None = None) -> dict[str, str]:
    """Return a worker's environment; nobody's settings take part in it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CARAVANSERAI_", "PYTHON"))}
    folders = [ROOT / "adapters", ROOT] if path is None else [*path, ROOT]
    kept["PYTHONPATH"] = os.pathsep.join(map(str, folders))
    return kept


def take_turns(workers: dict[str, Worker], rounds: int, n: int) -> tuple[Any, Any]:
    """Let each write `n` times in turn, `rounds` times; the others are stopped meanwhile.

    Returns:
        Samples of the time, and of the CPU time, by name.
    """
    times = {name: Samples() for name in workers}
    cpu = {name: Samples() for name in workers}
    for worker in workers.values():
        worker("block", n=10)
        worker.stop()
    for _ in range(rounds):
        for name, worker in workers.items():
            with running(worker):
                answer = worker("block", n=n)
            times[name].rounds.append(answer["times"])
            cpu[name].rounds.append(answer["cpu"])
    for worker in workers.values():
        worker.go_on()
    return times, cpu


@contextlib.contextmanager
def running(worker: Worker) -> Iterator[None]:
    worker.go_on()
    try:
        yield
    finally:
        worker.stop()


def cold(folder: Path, do: str, **arguments: Any) -> Any:
    """Do one thing in a new process."""
    with Worker("cold", folder) as worker:
        return worker(do, **arguments)
