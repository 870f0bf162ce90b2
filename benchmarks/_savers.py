"""LangGraph's savers by turns: what a step costs, takes on disk and in memory, and reading it."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._checkpoint import count_calls
from benchmarks._harness import ROOT, Context, Row, Samples, Worker, milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@dataclass(frozen=True)
class Task:
    """What is done, and what it may cost beside the SQLite saver.

    Attributes:
        title: in words.
        count: of steps or turns.
        quick: of them where it shall only be shown that it works.
        time: most of its time for a step, in "sync".
        aim: better.
        disk: most megabytes in the journal.
        get_state: most of its time for the newest state.
        history: most of its time for all states.
    """

    title: str
    count: int
    quick: int
    time: float | None = None
    aim: float | None = None
    disk: float | None = None
    get_state: float = 1.0
    history: float | None = None


TASKS = {
    "nodes": Task("3 nodes, small state, 500 steps", 500, 6, time=0.9, aim=0.7),
    "chat": Task("chat of 1,000 messages of 1 kB", 1000, 8, time=0.5, disk=6, history=0.1),
    "document": Task(
        "document of 1 MB and a counter, 300 steps", 300, 4, time=0.25, disk=5, get_state=2.0
    ),
    "react": Task("ReAct agent, 100 tool turns of 1 kB", 100, 4, disk=1.5),
}

OURS, SQLITE, MEMORY = "ours", "sqlite", "memory"
NAMES = {OURS: "WaypointSaver", SQLITE: "SqliteSaver", MEMORY: "InMemorySaver"}


@dataclass(frozen=True)
class Way:
    """A way to run a graph."""

    saver: str
    durability: str
    is_async: bool = False


WAYS = [
    *(Way(saver, mode) for mode in ("sync", "async") for saver in (MEMORY, SQLITE, OURS)),
    *(Way(saver, mode, True) for mode in ("sync", "async") for saver in (SQLITE, OURS)),
]

_MAIN = Way(OURS, "sync"), Way(SQLITE, "sync")
"""The runs that are read again, in a new process."""


class _Turns:
    """Gives each command a process of its own; in a quick run all share one."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._shared: Worker | None = None

    def __enter__(self) -> _Turns:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shared is not None:
            self._shared.close()

    def __call__(self, do: str, **arguments: Any) -> Any:
        if self.context.quick:
            self._shared = self._shared or _worker(self.context)
            return self._shared(do, **arguments)
        with _worker(self.context) as worker:
            return worker(do, **arguments)


def _worker(context: Context, prefix: Sequence[str] = ()) -> Worker:
    return Worker(
        "graph",
        context.folder,
        path=[ROOT / "adapters", *context.peers.values()],
        prefix=prefix,
        module="benchmarks._graph_worker",
    )


@dataclass
class Measured:
    """What was measured of one task.

    Attributes:
        runs: answers of each way, by rounds.
        reads: answers of `get_state` and `history` by saver, by rounds.
    """

    runs: dict[Way, list[Any]] = field(default_factory=dict)
    reads: dict[tuple[str, str], list[Any]] = field(default_factory=dict)

    def steps(self, way: Way, key: str = "ns") -> Samples:
        """Return the time of a step, in nanoseconds, of each round."""
        return Samples([[answer[key] / answer["supersteps"]] for answer in self.runs[way]])

    def peak(self, way: Way) -> Samples:
        return Samples([[answer["peak"]] for answer in self.runs[way]])

    def read(self, saver: str, what: str) -> Samples:
        return Samples([[answer["ns"]] for answer in self.reads[saver, what]])


def figure(name: str) -> Callable[[Context], list[Row]]:
    """Return the figure of a task."""

    def measured(context: Context) -> list[Row]:
        found = _measure(context, name)
        context.raw = _raw(found)
        return [*_times(name, found), *_sizes(name, found), *_reads(name, found)]

    return measured


def _measure(context: Context, name: str) -> Measured:
    task = TASKS[name]
    count = task.quick if context.quick else task.count
    ways = [way for way in WAYS if way.saver != SQLITE or SQLITE in context.peers]
    found = Measured()
    top = context.fresh(name)
    with _Turns(context) as turns:
        for _ in range(context.rounds):
            folders = {}
            for way in ways:
                folders[way] = tempfile.mkdtemp(prefix=f"{way.saver}-", dir=top)
                answer = turns("run", folder=folders[way], work=name, count=count, **vars(way))
                _check(way, answer)
                found.runs.setdefault(way, []).append(answer)
            kept = [way for way in _MAIN if way in folders]
            for what in ("get_state", "history"):
                for way in kept:
                    at = folders[way]
                    answer = turns(what, folder=at, work=name, count=count, saver=way.saver)
                    found.reads.setdefault((way.saver, what), []).append(answer)
            _same(found, kept)
            for folder in folders.values():
                _empty(Path(folder))
    return found


def _check(way: Way, answer: Any) -> None:
    # All the notes are there when the call returns: they are part of what it costs. Before the
    # first superstep there is a waypoint for the input.
    if way.saver == OURS and answer["note_count"] < answer["supersteps"] + 1:
        raise RuntimeError(f"{answer['note_count']} notes of {answer['supersteps']} steps")


def _same(found: Measured, kept: list[Way]) -> None:
    for what, key in (("get_state", "sha256"), ("history", "count")):
        if len({found.reads[way.saver, what][-1][key] for way in kept}) > 1:
            raise RuntimeError(f"{what}: the savers differ")


def _empty(folder: Path) -> None:
    """Give a database's bytes back, half a gigabyte; the file stays, see docs/benchmarks.md."""
    for database in folder.glob("*.sqlite"):
        os.truncate(database, 0)


def _raw(found: Measured) -> dict[str, Any]:
    return {
        "runs": [{**vars(way), "rounds": answers} for way, answers in found.runs.items()],
        "reads": [
            {"saver": saver, "what": what, "rounds": answers}
            for (saver, what), answers in found.reads.items()
        ],
    }


# ---------------------------------------------------------------------- rows


def _times(name: str, found: Measured) -> Iterator[Row]:
    task = TASKS[name]
    for way in found.runs:
        if way.saver == OURS:
            continue
        ours = Way(OURS, way.durability, way.is_async)
        first = way == Way(SQLITE, "sync")
        other = f"Async{NAMES[way.saver]}" if way.is_async else NAMES[way.saver]
        key = "_".join([name, "step", other.lower(), way.durability])
        mine, theirs = found.steps(ours), found.steps(way)
        cpu = found.steps(ours, "cpu"), found.steps(way, "cpu")
        each = mine.ratios(theirs)
        yield Row(
            key,
            f"{task.title}: step / {other}, {way.durability}",
            mine.ratio(theirs),
            "x",
            task.time if first else None,
            task.aim if first else None,
            f"{milliseconds(mine.p50)} / {milliseconds(theirs.p50)}; rounds "
            f"{min(each):.2f}–{max(each):.2f}; "
            f"CPU {milliseconds(cpu[0].p50)} / {milliseconds(cpu[1].p50)}, "
            f"{cpu[0].ratio(cpu[1]):.2f}",
        )


def _sizes(name: str, found: Measured) -> Iterator[Row]:
    task, ours, sqlite = TASKS[name], Way(OURS, "sync"), Way(SQLITE, "sync")
    answers = found.runs[ours]
    sizes = {
        key: statistics.median(answer[key] for answer in answers) / 1e6
        for key in ("journal", "notes", "note_blocks")
    }
    detail = f"notes {sizes['notes']:.3g} MB, on disk {sizes['note_blocks']:.3g} MB"
    if sqlite in found.runs:
        theirs = statistics.median(answer["bytes"] for answer in found.runs[sqlite]) / 1e6
        detail = f"SqliteSaver {theirs:.3g} MB; {detail}"
    yield Row(f"{name}_disk", "  … journal", sizes["journal"], "MB", task.disk, None, detail)
    if sqlite not in found.runs:
        return
    memory = found.peak(Way(MEMORY, "sync"))
    for key, way, other in (
        ("peak", ours, sqlite),
        ("peak_ainvoke", Way(OURS, "async", True), Way(SQLITE, "async", True)),
    ):
        mine, theirs = found.peak(way), found.peak(other)
        how = "ainvoke, async / AsyncSqliteSaver" if way.is_async else "sync / SqliteSaver"
        yield Row(
            f"{name}_{key}",
            f"  … peak memory, {how}",
            mine.ratio(theirs),
            "x",
            1,
            None,
            f"{mine.p50 / 1e6:.0f} MB / {theirs.p50 / 1e6:.0f} MB; "
            f"InMemorySaver {memory.p50 / 1e6:.0f} MB",
        )


def _reads(name: str, found: Measured) -> Iterator[Row]:
    if (SQLITE, "history") not in found.reads:
        return
    task = TASKS[name]
    for what, title, target in (
        ("get_state", "get_state in a new process", task.get_state),
        ("history", "get_state_history", task.history),
    ):
        mine, theirs = found.read(OURS, what), found.read(SQLITE, what)
        yield Row(
            f"{name}_{what}",
            f"  … {title} / SqliteSaver",
            mine.ratio(theirs),
            "x",
            target,
            None,
            f"{milliseconds(mine.p50)} / {milliseconds(theirs.p50)}",
        )


# ---------------------------------------------------------------------- system calls

_TRACED = "trace=?stat,?newfstatat,?statx,fsync,fdatasync"
"""The syncs, and the calls that are marks: every further one slows the program down."""


def calls(context: Context) -> list[Row]:
    """Count the syncs of a superstep of one node, with strace."""
    if shutil.which("strace") is None:
        context.raw = {"strace": "not installed"}
        return []
    steps = 20 if context.quick else 200
    rows = []
    for way in _MAIN if context.quick else WAYS:
        if way.saver == MEMORY or (way.saver == SQLITE and SQLITE not in context.peers):
            continue
        kind = f"{'Async' * (way.is_async and way.saver == SQLITE)}{NAMES[way.saver]}"
        how = f"{'ainvoke' if way.is_async else 'invoke'}, {way.durability}"
        label = f"{kind}, {how}"
        counts = _trace(context, way, steps)
        if counts is None:
            context.raw[label] = "strace cannot trace here"
            continue
        context.raw[label] = dict(counts)
        syncs = counts["fdatasync"] + counts["fsync"]
        rows.append(
            Row(
                f"syncs_{label.lower().replace(', ', '_')}",
                f"syncs of a superstep: {label}",
                syncs / steps,
                "calls",
                1.1 if way.saver == OURS else None,
                None,
                f"{syncs} in {steps} steps, the start included",
            )
        )
    return rows


def _trace(context: Context, way: Way, steps: int) -> Counter[str] | None:
    folder = Path(tempfile.mkdtemp(prefix=f"strace-{way.saver}-", dir=context.folder))
    trace = folder / "trace"
    prefix = ["strace", "-f", "--seccomp-bpf", "-qq", "-e", _TRACED, "-o", str(trace)]
    try:
        with _worker(context, prefix) as worker:
            worker("run", folder=str(folder), work="single", count=steps, marked=True, **vars(way))
    except (RuntimeError, OSError, subprocess.SubprocessError):
        return None
    return count_calls(trace.read_text(errors="replace"))
