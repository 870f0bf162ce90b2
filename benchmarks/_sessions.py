"""Sessions of the Claude Agent SDK: what a call of a tool costs, in time, appends and bytes."""

from __future__ import annotations

import itertools
import shutil
import statistics
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._checkpoint import count_calls
from benchmarks._harness import MS, Context, Row, Samples, Worker, milliseconds, running
from examples.scripted_anthropic import ScriptedAnthropic

if TYPE_CHECKING:
    from collections.abc import Sequence

PLAIN, BARE, OURS = "plain", "bare", "ours"

CALLS = 40
"""Calls of the tool in a session, one in each answer of the model."""

TOOL = "mcp__bench__read"


def _script(calls: int) -> Any:
    """Return a model that calls the tool so often, one call after the other."""

    def decide(asked: Any) -> Any:
        made = len(asked.results)
        if made == calls:
            return {"say": f"{calls} pages are read."}
        return {"call": [[TOOL, {"page": made + 1}]]}

    return decide


def _worker(folder: Path, server: ScriptedAnthropic, prefix: Sequence[str] = ()) -> Worker:
    return Worker(
        "sessions",
        folder,
        prefix=prefix,
        module="benchmarks._session_worker",
        server=server.environment,
    )


@dataclass
class _Measured:
    """What the sessions of one way took."""

    between: Samples = field(default_factory=Samples)
    whole: Samples = field(default_factory=Samples)
    cpu: Samples = field(default_factory=Samples)
    cli: Samples = field(default_factory=Samples)
    kept: list[dict[str, Any]] = field(default_factory=list)

    def add(self, answer: Any) -> None:
        self.between.rounds.append(answer["between"])
        for name in ("whole", "cpu", "cli"):
            getattr(self, name).rounds.append([answer[name]])
        self.kept.append(answer["kept"])

    def middle(self, name: str) -> float:
        return float(statistics.median(one[name] for one in self.kept))

    def raw(self) -> dict[str, Any]:
        return {
            **self.between.raw(),
            "whole_p50_ms": self.whole.p50 / MS,
            "cpu_p50_ms": self.cpu.p50 / MS,
            "cli_cpu_p50_ms": self.cli.p50 / MS,
            "kept": self.kept,
        }


def sessions(context: Context) -> list[Row]:
    """Measure a call of a tool beside the SDK alone, and beside its own hooks and mirror."""
    length = 6 if context.quick else CALLS
    ways = (PLAIN, BARE, OURS)
    found = {way: _Measured() for way in ways}
    with (
        ScriptedAnthropic(_script(length)) as server,
        _worker(context.fresh("sessions"), server) as worker,
    ):
        for way in ways:
            worker("run", way=way)  # the warm-up, which is nobody's turn
        for _ in range(context.rounds):
            for way, one in found.items():
                with running(worker):
                    one.add(worker("run", way=way))
        worker.go_on()
    context.raw |= {way: one.raw() for way, one in found.items()}
    return [*_time(length, found), *_bytes(length, found[OURS])]


def _time(length: int, found: dict[str, _Measured]) -> list[Row]:
    plain, bare, ours = (found[way] for way in (PLAIN, BARE, OURS))
    rows = []
    for key, title, one in (
        ("call", f"a call, {length} of them: resumable_query / query", ours),
        ("call_bare", "  … the same: query with hooks and a store that do nothing / query", bare),
    ):
        each = one.between.ratios(plain.between)
        cpu, cli = (
            (getattr(one, name).p50 - getattr(plain, name).p50) / length for name in ("cpu", "cli")
        )
        detail = (
            f"{milliseconds(one.between.p50)} / {milliseconds(plain.between.p50)}, "
            f"{_added(one.between, plain.between) / MS:.2f} ms more; rounds {min(each):.2f}–"
            f"{max(each):.2f}; CPU of a call: {cpu / MS:.2f} ms more, CLI and git {cli / MS:.2f} ms"
        )
        rows.append(Row(key, title, one.between.ratio(plain.between), "x", detail=detail))
    rows.append(
        Row(
            "session",
            "  … a session with start and end: resumable_query / query",
            ours.whole.ratio(plain.whole),
            "x",
            detail=f"{ours.whole.p50 / MS:,.0f} / {plain.whole.p50 / MS:,.0f} ms",
        )
    )
    return rows


def _added(one: Samples, other: Samples) -> float:
    """Return the median of the differences in each round, in nanoseconds."""
    return statistics.median(a - b for a, b in zip(one.p50s, other.p50s, strict=True))


def _bytes(length: int, ours: _Measured) -> list[Row]:
    journal, transcript = ours.middle("journal"), ours.middle("transcript")
    sizes = [
        [after - before for before, after in itertools.pairwise(one["sizes"])] for one in ours.kept
    ]
    edge = max(len(sizes[0]) // 4, 1)
    # The first ones have what the CLI writes once: its system prompt and its tools.
    second = statistics.median(size for one in sizes for size in one[edge : 2 * edge])
    last = statistics.median(size for one in sizes for size in one[-edge:])
    return [
        Row(
            "bytes",
            "bytes of a session: journal / the CLI's own transcript",
            journal / transcript,
            "x",
            detail=f"{journal:,.0f} / {transcript:,.0f} bytes; {ours.middle('waypoints'):.0f} "
            f"notes, {ours.middle('notes'):,.0f} bytes",
        ),
        Row(
            "bytes_call",
            "  … bytes of a call, last quarter / second quarter",
            last / second,
            "x",
            detail=f"{last:,.0f} / {second:,.0f} bytes",
        ),
        Row(
            "appends",
            "appends of a call",
            ours.middle("appends") / length,
            "calls",
            detail=f"{ours.middle('appends'):.0f} in {length} calls, start and end included; "
            f"{ours.middle('synced'):.0f} of them wait for the disk",
        ),
    ]


# ---------------------------------------------------------------------- system calls


_TRACED = "trace=?stat,?newfstatat,?statx,fsync,fdatasync"
"""The syncs, and the calls that are marks: every further one slows the program down."""


def calls(context: Context) -> list[Row]:
    """Count the syncs of a call with strace, less those of the SDK and the CLI by themselves."""
    if shutil.which("strace") is None:
        context.raw = {"strace": "not installed"}
        return []
    length = 6 if context.quick else CALLS
    ways = (PLAIN, OURS)
    folder = Path(tempfile.mkdtemp(prefix="strace-", dir=context.folder))
    trace = folder / "trace"
    prefix = ["strace", "-f", "--seccomp-bpf", "-qq", "-e", _TRACED, "-o", str(trace)]
    try:
        with (
            ScriptedAnthropic(_script(length)) as server,
            _worker(folder, server, prefix) as worker,
        ):
            for way in ways:
                worker("run", way=way, marked=True)
    except (RuntimeError, OSError, subprocess.SubprocessError):
        context.raw = {"ours": "strace cannot trace here"}
        return []
    # A part for each way, with its own mark of the beginning.
    parts = trace.read_text(errors="replace").split("/benchmark-mark-end")
    counts = {way: count_calls(part) for way, part in zip(ways, parts, strict=False)}
    context.raw = {way: dict(found) for way, found in counts.items()}
    plain, ours = (counts[way]["fdatasync"] + counts[way]["fsync"] for way in ways)
    return [
        Row(
            "syncs",
            "syncs of a call",
            (ours - plain) / length,
            "calls",
            detail=f"{ours} in {length} calls, start and end included; {plain} with query",
        )
    ]
