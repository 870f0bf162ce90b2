"""Runs of the OpenAI Agents SDK: a turn's time and bytes, going on in a new process."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import statistics
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._agent_tasks import SAID, WARM, task
from benchmarks._checkpoint import count_calls
from benchmarks._harness import MS, ROOT, Context, Row, Samples, Worker, milliseconds, running

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, Sequence

PLAIN, OURS, DBOS = "plain", "ours", "dbos"
NAMES = {PLAIN: "agents.Runner", OURS: "ours", DBOS: "DBOSRunner"}

TIMES = {5: 12, 20: 4, 200: 1}
"""Turns of a run, and how many such runs are made before another one has its turn."""

SERVED = {20: 3, 100: 1}
"""The same for a model that is asked over HTTP."""

LONG = 200
"""Turns of the run whose growth is looked at, and that is killed halfway."""

EDGE = 20
"""Turns at both ends of it that are compared."""


def _worker(context: Context, way: str, folder: Path, prefix: Sequence[str] = ()) -> Worker:
    peers = [context.peers[DBOS]] if way == DBOS else []
    path = [ROOT / "adapters", *peers]
    return Worker("agents", folder, path=path, prefix=prefix, module="benchmarks._agent_worker")


def _ways(context: Context) -> list[str]:
    return [PLAIN, OURS, *([DBOS] if DBOS in context.peers else [])]


class _Workers:
    """Gives each runner, or each command, a process of its own; in a quick run they share one."""

    def __init__(self, context: Context, name: str) -> None:
        self._context = context
        self._name = name
        self._stack = contextlib.ExitStack()
        self._shared: Worker | None = None

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def new(self, way: str) -> Worker:
        """Return a worker in a fresh folder, which lives as long as this."""
        shares = self._context.quick and way != DBOS  # which is imported from elsewhere
        if shares and self._shared is not None:
            return self._shared
        folder = self._context.fresh(f"{self._name}-{way}")
        worker = self._stack.enter_context(_worker(self._context, way, folder))
        if shares:
            self._shared = worker
        return worker

    def once(self, runner: str, do: str, **arguments: Any) -> Any:
        """Let a worker that lives no longer do one thing."""
        if self._context.quick:
            return self.new(runner)(do, **arguments)
        folder = Path(tempfile.mkdtemp(prefix=f"{self._name}-", dir=self._context.folder))
        with _worker(self._context, runner, folder) as worker:
            return worker(do, **arguments)


# ---------------------------------------------------------------------- time


@dataclass
class _Measured:
    """Time and CPU time of a turn, by way and length of the run."""

    times: dict[tuple[str, int], Samples] = field(default_factory=dict)
    cpu: dict[tuple[str, int], Samples] = field(default_factory=dict)

    def add(self, way: str, turns: int, answer: Any) -> None:
        self.times.setdefault((way, turns), Samples()).rounds.append(answer["times"])
        self.cpu.setdefault((way, turns), Samples()).rounds.append(answer["cpu"])

    def raw(self) -> dict[str, Any]:
        return {
            f"{way} {turns}": {**samples.raw(), "cpu_p50_ms": self.cpu[way, turns].p50 / MS}
            for (way, turns), samples in self.times.items()
        }


def _measure(context: Context, ways: list[str], lengths: dict[int, int], **more: Any) -> _Measured:
    found = _Measured()
    with _Workers(context, "runs") as opened:
        workers = {way: opened.new(way) for way in ways}
        for way, worker in workers.items():
            with running(worker):  # the warm-up, which is nobody's turn
                worker("run", way=way, turns=1, **more)
        for _ in range(context.rounds):
            for turns, times in lengths.items():
                for way, worker in workers.items():
                    with running(worker):
                        found.add(
                            way, turns, worker("run", way=way, turns=turns, times=times, **more)
                        )
        for worker in workers.values():
            worker.go_on()
    context.raw = found.raw()
    return found


def runs(context: Context) -> list[Row]:
    """Measure a turn with a model in the process, by turns with everybody else."""
    lengths = {4: 1, 6: 1} if context.quick else TIMES
    found = _measure(context, _ways(context), lengths)
    return [row for turns in lengths for row in _rows(found, "run", "", turns)]


def served(context: Context) -> list[Row]:
    """Measure a turn with a model that is asked over HTTP, on the loopback address."""
    lengths = {4: 1} if context.quick else SERVED
    script: list[Any] = [
        {"if_said": task(n), "call": [["read", {"page": 1}]], "times": n - 1}
        for n in (1, WARM, *lengths)
    ]
    script.append({"say": SAID})
    with Worker("served", context.folder, script=script) as worker:
        url = worker("where")["url"]
        found = _measure(context, [PLAIN, OURS], lengths, url=url)
    return [row for turns in lengths for row in _rows(found, "http", ", over HTTP", turns)]


def _rows(found: _Measured, key: str, how: str, turns: int) -> Iterator[Row]:
    """Yield what each runner costs beside the SDK's own."""
    plain, ours = found.times[PLAIN, turns], found.times[OURS, turns]
    plain_cpu = found.cpu[PLAIN, turns]
    for way, suffix in ((OURS, ""), (DBOS, "_dbos")):
        if (way, turns) not in found.times:
            continue
        times, cpu = found.times[way, turns], found.cpu[way, turns]
        each = times.ratios(plain)
        detail = (
            f"{milliseconds(times.p50)} / {milliseconds(plain.p50)}, "
            f"{_more(times, plain) / MS:.2f} ms more; rounds {min(each):.2f}–{max(each):.2f}; CPU "
            f"{milliseconds(cpu.p50)} / {milliseconds(plain_cpu.p50)}, {cpu.ratio(plain_cpu):.2f}"
        )
        if way != OURS:
            detail += f"; ours / this {ours.ratio(times):.2f}"
        title = f"a turn, {turns} of them{how}" if way == OURS else "  … the same"
        figure = f"{title}: {NAMES[way]} / {NAMES[PLAIN]}"
        yield Row(f"{key}_{turns}{suffix}", figure, times.ratio(plain), "x", detail=detail)


def _more(one: Samples, other: Samples) -> float:
    """Return the median of the differences in each round, in nanoseconds."""
    return statistics.median(a - b for a, b in zip(one.p50s, other.p50s, strict=True))


# ---------------------------------------------------------------------- bytes


def growth(context: Context) -> list[Row]:
    """Measure the bytes of a long run, and what run states written in full would take."""
    turns, edge = (12, 3) if context.quick else (LONG, EDGE)
    with _Workers(context, "growth") as workers:
        ours = workers.once(OURS, "growth", way=OURS, turns=turns)
        plain = workers.once(PLAIN, "growth", way=PLAIN, turns=turns)
        sizes = workers.once(PLAIN, "states", turns=turns, path="state.json")["sizes"]
    context.raw = {"ours": ours, "plain": plain, "states": sizes}
    steps = [b - a for a, b in itertools.pairwise(ours["bytes"])]
    first, last = (statistics.median(part) for part in (steps[1 : edge + 1], steps[-edge:]))
    slower, slower_plain = (_slower(found["ns"], edge) for found in (ours, plain))
    kb = 1e3
    return [
        Row(
            "growth_bytes",
            f"{turns} turns of 1 kB: journal",
            ours["journal"] / kb,
            "kB",
            detail=f"{ours['journal'] / turns:,.0f} bytes a turn; "
            f"notes {ours['notes'] / kb:.0f} kB, on disk {ours['note_blocks'] / kb:.0f} kB",
        ),
        Row(
            "growth_linear",
            f"  … bytes of a turn, last {edge} / first {edge}",
            last / first,
            "x",
            1.25,
            detail=f"{last:,.0f} / {first:,.0f} bytes; a run state {sizes[-1] / sizes[0]:.0f}",
        ),
        Row("growth_state", "  … the SDK's run state at the end", sizes[-1] / kb, "kB"),
        Row(
            "growth_states",
            "  … journal / a run state written in full at each turn",
            ours["journal"] / sum(sizes),
            "x",
            detail=f"{sum(sizes) / kb:,.0f} kB, the real sizes summed up",
        ),
        Row(
            "growth_time",
            f"  … time of a turn, last {edge} / first {edge}",
            slower,
            "x",
            detail=f"agents.Runner by itself {slower_plain:.2f}",
        ),
    ]


def _slower(asked: list[int], edge: int) -> float:
    """Return how much longer the last turns take than the first."""
    spent = [b - a for a, b in itertools.pairwise(asked)]
    return statistics.median(spent[-edge:]) / statistics.median(spent[1 : edge + 1])


# ---------------------------------------------------------------------- a new process


def cold(context: Context) -> list[Row]:
    """Measure how long a new process takes to be where the run was; its imports are not counted."""
    turns = 6 if context.quick else LONG
    half = turns // 2
    found: dict[str, Samples] = {}
    with _Workers(context, "cold") as workers:
        folder = context.fresh("cold")
        with _worker(context, OURS, folder) as worker:
            worker("growth", way=OURS, turns=turns)
            worker("killed", turns=turns, at=half + 1)
            worker("states", turns=turns, path="finished.json")
            worker("states", turns=half, path="killed.json")
        for _ in range(1 if context.quick else max(5, context.rounds)):
            for name, store, asked in (("finished", "store", 0), ("killed", "cut", half + 1)):
                answer = workers.once(
                    OURS, "resumed", turns=turns, store=_copy(context, folder / store)
                )
                if answer["asked"] != asked:
                    raise RuntimeError(f"{name}: went on with {answer['asked']}, not {asked}")
                found.setdefault(name, Samples()).rounds.append([answer["ns"]])
                answer = workers.once(PLAIN, "from_json", path=str(folder / f"{name}.json"))
                found.setdefault(f"{name} SDK", Samples()).rounds.append([answer["ns"]])
    context.raw = {name: samples.raw() for name, samples in found.items()}
    return [
        _cold("finished", f"{turns} turns, finished: its result", found),
        _cold("killed", f"{turns} turns, killed after {half}: to the next question", found),
    ]


def _copy(context: Context, store: Path) -> str:
    """Copy a run, as going on changes it; returns the new store."""
    copy = Path(tempfile.mkdtemp(prefix="again-", dir=context.folder))
    shutil.copytree(store / "run", copy / "run", symlinks=True)
    return str(copy)


def _cold(name: str, figure: str, found: dict[str, Samples]) -> Row:
    mine, theirs = found[name], found[f"{name} SDK"]
    return Row(
        f"cold_{name}",
        figure,
        mine.p50 / MS,
        "ms",
        detail=f"{mine.ratio(theirs):.2f} times RunState.from_json of the same run, "
        f"{milliseconds(theirs.p50)}",
    )


# ---------------------------------------------------------------------- system calls


_TRACED = "trace=?stat,?newfstatat,?statx,fsync,fdatasync"
"""The syncs, and the calls that are marks: every further one slows the program down."""


def calls(context: Context) -> list[Row]:
    """Count the syncs of a turn with strace."""
    if shutil.which("strace") is None:
        context.raw = {"strace": "not installed"}
        return []
    turns = 10 if context.quick else 100
    rows = []
    for way in _ways(context):
        if way == PLAIN:
            continue
        counts = _trace(context, way, turns)
        if counts is None:
            context.raw[way] = "strace cannot trace here"
            continue
        context.raw[way] = dict(counts)
        syncs = counts["fdatasync"] + counts["fsync"]
        rows.append(
            Row(
                f"syncs_{way}",
                f"syncs of a turn: {NAMES[way]}",
                syncs / turns,
                "calls",
                detail=f"{syncs} in {turns} turns, start and end included",
            )
        )
    return rows


def _trace(context: Context, way: str, turns: int) -> Counter[str] | None:
    folder = Path(tempfile.mkdtemp(prefix=f"strace-{way}-", dir=context.folder))
    trace = folder / "trace"
    prefix = ["strace", "-f", "--seccomp-bpf", "-qq", "-e", _TRACED, "-o", str(trace)]
    try:
        with _worker(context, way, folder, prefix) as worker:
            worker("run", way=way, turns=turns, marked=True)
    except (RuntimeError, OSError, subprocess.SubprocessError):
        return None
    return count_calls(trace.read_text(errors="replace"))
