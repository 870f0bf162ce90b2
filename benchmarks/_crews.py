"""Crews and flows of CrewAI: a task's time and bytes, and what is done again after a SIGKILL."""

from __future__ import annotations

import contextlib
import functools
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._checkpoint import count_calls
from benchmarks._harness import MS, Context, Row, Samples, Worker, milliseconds, running
from examples.scripted_openai import ScriptedOpenAI

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PLAIN, OURS, CHECKPOINT, SQLITE = "plain", "ours", "checkpoint", "sqlite"

TASKS = {3: 8, 12: 3}
"""Tasks of a crew, and how many such crews run before another way has its turn."""

LONG = 40
"""Tasks of the crew whose growth is looked at."""

METHODS = 20

KILLED = 4
"""Tasks of the crew that is killed, in the second call of a tool of the third."""

ANSWER = 0.1
"""Seconds that the scripted server takes for an answer: CrewAI writes its files meanwhile."""

KEY = "sk-client-of-the-benchmark"
"""What the model's client is given, and must not be found on the disk."""


def _worker(kind: str, folder: Path, prefix: Sequence[str] = ()) -> Worker:
    return Worker(kind, folder, prefix=prefix, module="benchmarks._crew_worker")


# ---------------------------------------------------------------------- time and bytes


@dataclass
class _Measured:
    """Time and CPU time of a task or method, and what was kept of each crew or flow."""

    times: Samples = field(default_factory=Samples)
    cpu: Samples = field(default_factory=Samples)
    kept: list[dict[str, int]] = field(default_factory=list)

    def add(self, answer: Any) -> None:
        self.times.rounds.append(answer["times"])
        self.cpu.rounds.append(answer["cpu"])
        self.kept += answer["kept"]

    def bytes(self, key: str = "bytes") -> float:
        """Return the mean over all crews: files get lost in some of them."""
        return statistics.mean(one[key] for one in self.kept)

    def raw(self) -> dict[str, Any]:
        return {**self.times.raw(), "cpu_p50_ms": self.cpu.p50 / MS, "kept": self.kept}


@contextlib.contextmanager
def _workers(context: Context, ways: Sequence[str]) -> Iterator[dict[str, Worker]]:
    """Yield a process for each way; in a quick run they share one."""
    with contextlib.ExitStack() as stack:

        def start(way: str) -> Worker:
            return stack.enter_context(_worker("crews", context.fresh(f"crews-{way}")))

        shared = start("all") if context.quick else None
        yield {way: shared or start(way) for way in ways}


def _by_turns(
    context: Context, workers: dict[str, Worker], do: str, what: str, lengths: dict[int, int]
) -> dict[tuple[str, int], _Measured]:
    """Let each way run so many tasks, or methods, in its turn."""
    found = {(way, length): _Measured() for length in lengths for way in workers}
    for way, worker in workers.items():
        with running(worker):  # the warm-up, which is nobody's turn
            worker(do, way=way, **{what: 1})
    for _ in range(context.rounds):
        for length, times in lengths.items():
            for way, worker in workers.items():
                with running(worker):
                    answer = worker(do, way=way, times=times, **{what: length})
                found[way, length].add(answer)
    for worker in workers.values():
        worker.go_on()
    context.raw |= {f"{way} {length}": one.raw() for (way, length), one in found.items()}
    return found


def tasks(context: Context) -> list[Row]:
    """Measure a task, with a model in the process, beside CrewAI alone and its checkpoint."""
    lengths = {3: 1, 4: 1} if context.quick else TASKS
    with _workers(context, (PLAIN, OURS, CHECKPOINT)) as workers:
        found = _by_turns(context, workers, "run", "tasks", lengths)
        grown = _growth(context, workers)
    rows = []
    for length in lengths:
        plain, ours, theirs = (found[way, length] for way in (PLAIN, OURS, CHECKPOINT))
        for key, title, one in (
            ("", f"a task, {length} of them: waypoints / plain", ours),
            ("_checkpoint", "  … the same: CrewAI's checkpoint / plain", theirs),
        ):
            detail = _more(one, plain)
            if one is theirs:
                added, added_cpu = (
                    _added(a, p) / _added(b, p)
                    for a, b, p in (
                        (ours.times, theirs.times, plain.times),
                        (ours.cpu, theirs.cpu, plain.cpu),
                    )
                )
                detail += f"; added by ours / by this {added:.2f}, CPU {added_cpu:.2f}"
            ratio = one.times.ratio(plain.times)
            rows.append(Row(f"task_{length}{key}", title, ratio, "x", detail=detail))
        mine, other = ours.bytes() / length, theirs.bytes() / length
        files, wanted = sum(one["files"] for one in theirs.kept), length * len(theirs.kept)
        rows.append(
            Row(
                f"task_{length}_bytes",
                "  … bytes of a task: journal / CrewAI's JSON",
                mine / other,
                "x",
                detail=f"{mine:,.0f} / {other:,.0f} bytes; notes "
                f"{ours.bytes('notes') / length:,.0f}; CrewAI wrote {files} of {wanted} files",
            )
        )
    return [*rows, *grown]


def _added(one: Samples, other: Samples) -> float:
    """Return the median of the differences in each round, in nanoseconds."""
    return statistics.median(a - b for a, b in zip(one.p50s, other.p50s, strict=True))


def _more(one: _Measured, plain: _Measured) -> str:
    each = one.times.ratios(plain.times)
    return (
        f"{milliseconds(one.times.p50)} / {milliseconds(plain.times.p50)}, "
        f"{_added(one.times, plain.times) / MS:.2f} ms more; rounds {min(each):.2f}–"
        f"{max(each):.2f}; CPU {milliseconds(one.cpu.p50)} / {milliseconds(plain.cpu.p50)}, "
        f"{_added(one.cpu, plain.cpu) / MS:.2f} ms more"
    )


def _growth(context: Context, workers: dict[str, Worker]) -> list[Row]:
    """Measure the bytes of a long crew: each task of ours, and CrewAI's files."""
    length = 10 if context.quick else LONG
    edge = length // 10
    ours, theirs = (workers[way]("growth", way=way, tasks=length) for way in (OURS, CHECKPOINT))
    context.raw |= {f"growth {OURS}": ours, f"growth {CHECKPOINT}": theirs}
    sizes = ours["sizes"]
    first, last = (statistics.median(part) for part in (sizes[:edge], sizes[-edge:]))
    return [
        Row(
            "growth_ours",
            f"{length} tasks: bytes of a task, last tenth / first tenth",
            last / first,
            "x",
            detail=f"{last:,.0f} / {first:,.0f} bytes",
        ),
        Row(
            "growth_checkpoint",
            "  … CrewAI's last file, which holds what all others do",
            theirs["sizes"][-1] / 1e3,
            "kB",
            detail=f"{theirs['files']} of {length} files were written",
        ),
        Row(
            "growth_bytes",
            "  … journal / CrewAI's files",
            ours["bytes"] / theirs["bytes"],
            "x",
            detail=f"{ours['bytes'] / 1e6:.2f} / {theirs['bytes'] / 1e6:.1f} MB",
        ),
    ]


def flows(context: Context) -> list[Row]:
    """Measure a method of a flow, beside CrewAI's own persistence."""
    times = {METHODS: 1 if context.quick else 5}
    with _workers(context, (PLAIN, OURS, SQLITE)) as workers:
        found = _by_turns(context, workers, "flow", "methods", times)
    plain, ours, sqlite = (found[way, METHODS] for way in (PLAIN, OURS, SQLITE))
    mine, other = ours.bytes() / METHODS, sqlite.bytes() / METHODS
    each = ours.times.ratios(sqlite.times)
    return [
        Row(
            "method",
            f"a method, {METHODS} of them: WaypointFlowPersistence / SQLiteFlowPersistence",
            ours.times.ratio(sqlite.times),
            "x",
            detail=f"{milliseconds(ours.times.p50)} / {milliseconds(sqlite.times.p50)}, without "
            f"any {milliseconds(plain.times.p50)}; rounds {min(each):.2f}–{max(each):.2f}; CPU "
            f"{milliseconds(ours.cpu.p50)} / {milliseconds(sqlite.cpu.p50)}",
        ),
        Row(
            "method_bytes",
            "  … bytes of a method: journal / CrewAI's database",
            mine / other,
            "x",
            detail=f"{mine:,.0f} / {other:,.0f} bytes; notes {ours.bytes('notes') / METHODS:,.0f}",
        ),
    ]


# ---------------------------------------------------------------------- system calls


_TRACED = "trace=?stat,?newfstatat,?statx,fsync,fdatasync"
"""The syncs, and the calls that are marks: every further one slows the program down."""


def calls(context: Context) -> list[Row]:
    """Count the syncs of a task with strace; CrewAI's table of outputs has some without us."""
    if shutil.which("strace") is None:
        context.raw = {"strace": "not installed"}
        return []
    length = 3 if context.quick else 12
    ways = (PLAIN, OURS, CHECKPOINT)
    folder = Path(tempfile.mkdtemp(prefix="strace-", dir=context.folder))
    trace = folder / "trace"
    prefix = ["strace", "-f", "--seccomp-bpf", "-qq", "-e", _TRACED, "-o", str(trace)]
    try:
        with _worker("crews", folder, prefix) as worker:
            for way in ways:
                worker("run", way=way, tasks=length, marked=True)
    except (RuntimeError, OSError, subprocess.SubprocessError):
        context.raw = {"ours": "strace cannot trace here"}
        return []
    # A part for each way, with its own mark of the beginning.
    parts = trace.read_text(errors="replace").split("/benchmark-mark-end")
    counts = {way: count_calls(part) for way, part in zip(ways, parts, strict=False)}
    context.raw = {way: dict(found) for way, found in counts.items()}
    plain, ours, theirs = (counts[way]["fdatasync"] + counts[way]["fsync"] for way in ways)
    return [
        Row(
            "syncs_ours",
            "syncs of a task: waypoints",
            (ours - plain) / length,
            "calls",
            detail=f"{ours} in {length} tasks, start and end included; {plain} with neither, "
            f"{theirs} with CrewAI's checkpoint",
        )
    ]


# ---------------------------------------------------------------------- killed


WAYS = {
    "none": "started again",
    "replay": "crew.replay(last task)",
    "checkpoint": "CrewAI's checkpoint, JSON",
    "ours": "waypoints",
    "flow_sqlite": "a flow, @persist()",
    "flow_ours": "a flow, WaypointFlowPersistence",
}


@dataclass
class _Crash:
    """What a second start did."""

    again: int
    """Answers of the model; of a flow: methods."""
    repeated: list[str]
    """Tool calls, or methods, that began twice."""
    secrets: int
    """Files with the key in clear text, after both starts."""
    files: int | None
    """Those that CrewAI's checkpoint had when the process was killed."""


def _decide(seconds: float, asked: Any) -> Any:
    """Answer for the scripted model: two calls of the tool in each task, then a result."""
    time.sleep(seconds)
    (number,) = re.findall(r"TASK-(\d+)", asked.user)
    turn = len(asked.calls)
    if turn == 2:
        return f"Task {number} is done."
    return [("read", {"page": f"{number}-{turn + 1}"})]


def beside(context: Context) -> list[Row]:
    """Kill crews and flows with SIGKILL, and count what is done again in a new process."""
    found: dict[str, list[_Crash]] = {way: [] for way in WAYS}
    decide = functools.partial(_decide, 0 if context.quick else ANSWER)
    with (
        ScriptedOpenAI(decide) as server,
        _worker("lives", context.fresh("beside")) as worker,
    ):
        for _ in range(context.rounds):
            for way, crashes in found.items():
                crashes.append(_crash(context, worker, server, way))
        if server.errors:
            raise RuntimeError(f"the scripted server refused: {server.errors[0]}")
    context.raw = {way: [vars(crash) for crash in crashes] for way, crashes in found.items()}
    return [_beside(way, crashes) for way, crashes in found.items()]


def _crash(context: Context, worker: Worker, server: ScriptedOpenAI, way: str) -> _Crash:
    folder = Path(tempfile.mkdtemp(prefix=f"{way}-", dir=context.folder))
    flow = way.startswith("flow")
    given = {"way": way, "folder": str(folder), "tasks": KILLED, "url": server.url}
    given["key"] = KEY
    if worker("live", at="3" if flow else "3-2", **given)["code"] != -9:
        raise RuntimeError(f"{way}: it was not killed: {_said(folder)}")
    asked, reached = len(server.answered), len(_reached(folder))
    written = [*folder.glob("checkpoints/**/*.json")]
    if worker("live", **given)["code"] != 0:
        raise RuntimeError(f"{way}: it did not go on: {_said(folder)}")
    methods = len(_reached(folder)) - reached
    return _Crash(
        again=methods if flow else len(server.answered) - asked,
        repeated=[place for place, count in Counter(_reached(folder)).items() if count > 1],
        secrets=sum(KEY.encode() in p.read_bytes() for p in folder.rglob("*") if p.is_file()),
        files=len(written) if way == "checkpoint" else None,
    )


def _reached(folder: Path) -> list[str]:
    return (folder / "outside.txt").read_text().splitlines()


def _said(folder: Path) -> str:
    path = folder / "said.txt"
    return path.read_text(errors="replace")[-2000:] if path.exists() else ""


def _beside(way: str, crashes: list[_Crash]) -> Row:
    flow = way.startswith("flow")
    again = [crash.again for crash in crashes]
    repeated = Counter(", ".join(crash.repeated) for crash in crashes)
    told = "; ".join(
        names if len(repeated) == 1 else f"{names} ({count} times)"
        for names, count in repeated.most_common()
    )
    what = "methods run" if flow else "model calls"
    detail = f"again: {told}; {len(crashes)} kills"
    if min(again) != max(again):
        detail = f"{min(again)} to {max(again)}; {detail}"
    if not flow:
        detail += f"; files with the API key: {max(crash.secrets for crash in crashes)}"
    if way == "checkpoint":
        written = sum(crash.files or 0 for crash in crashes)
        detail += f"; {written} of {2 * len(crashes)} files were there"
    return Row(
        f"beside_{way}",
        f"killed in 3 of {KILLED}, {WAYS[way]}: {what} after",
        statistics.median(again),
        "calls",
        detail=detail,
    )
