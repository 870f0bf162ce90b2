"""A checkpoint of 1 kB: beside a bare append, the last release and DBOS; its calls and bytes."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks._harness import MS, Context, Row, Samples, Worker, milliseconds, take_turns

NAMES = {
    "raw": "append + fdatasync",
    "release": "release 0.2.0 (no sync)",
    "dbos": "DBOS step on SQLite",
}
TARGETS: dict[str, tuple[float, float | None]] = {
    "raw": (1.6, 1.4),
    "release": (0.5, None),
    "dbos": (0.2, None),
}
CALLS = ("fdatasync", "fsync", "openat", "write", "close", "rename", "symlink", "flock")


def checkpoint(context: Context) -> list[Row]:
    """Measure a checkpoint of 1 kB with its note against each participant."""
    rounds, n = (3, 40) if context.quick else (15, 200)
    with contextlib.ExitStack() as stack:

        def start(name: str, **arguments: Any) -> Worker:
            kind = name.partition("-")[0]
            path = [context.peers[kind]] if kind in context.peers else None
            worker = Worker(kind, context.fresh(name), path=path, **arguments)
            return stack.enter_context(worker)

        workers = {"raw": start("raw", journal=str(_journal(context))), "ours": start("ours")}
        workers |= {name: start(name) for name in context.peers}
        workers["ours-without-sync"] = start("ours-without-sync", sync=False)
        times, cpu = take_turns(workers, rounds, n)
        size = workers["ours"]("bytes")
        about = {name: worker("about") for name, worker in workers.items()}
    context.raw = {
        name: {**times[name].raw(), "cpu_p50_ms": cpu[name].p50 / MS, **about[name]}
        for name in workers
    }
    context.raw["bytes"] = size
    rows = []
    for name in ("raw", *context.peers):
        rows += _against(times["ours"], times[name], name, about[name]["version"])
    rows.append(
        Row(
            "checkpoint_without_sync",
            "checkpoint of 1 kB, its sync left out",
            times["ours-without-sync"].p50 / MS,
            "ms",
            detail=f"{times['ours-without-sync']}; CPU {milliseconds(cpu['ours'].p50)} with sync, "
            f"{milliseconds(cpu['ours-without-sync'].p50)} without",
        )
    )
    for key, of in (("journal", "in the journal"), ("notes", "in its note")):
        value = size[key] / size["count"]
        rows.append(Row(f"bytes_{key}", f"bytes per checkpoint {of}", value, "bytes"))
    return rows


def _against(ours: Samples, other: Samples, name: str, version: str) -> list[Row]:
    target, aim = TARGETS[name]
    label = f"{NAMES[name]} {version}" if name == "dbos" else NAMES[name]
    each = ours.ratios(other)
    spread = f"rounds {min(each):.2f}–{max(each):.2f}"
    return [
        Row(
            f"checkpoint_{name}",
            f"checkpoint of 1 kB with its note / {label}",
            ours.ratio(other),
            "x",
            target,
            aim,
            f"{ours} / {other}; {spread}",
        ),
        Row(f"checkpoint_{name}_p99", "  the same, p99", ours.p99 / other.p99, "x"),
    ]


def _journal(context: Context) -> Path:
    """Write a journal, for its bytes: what the bare append writes are the same lines."""
    folder = context.fresh("lines")
    with Worker("ours", folder) as worker:
        worker("block", n=200)
    return folder / ".caravanserai/run/journal-1.jsonl"


# ---------------------------------------------------------------------- system calls


def calls(context: Context) -> list[Row]:
    """Count the system calls of a checkpoint with strace."""
    if shutil.which("strace") is None:
        context.raw = {"strace": "not installed"}
        return []
    n = 50 if context.quick else 200
    rows: list[Row] = []
    for name in ("ours", *context.peers):
        counts = _trace(context, name, n)
        if counts is None:
            context.raw[name] = "strace cannot trace here"
            continue
        context.raw[name] = {call: count / n for call, count in counts.most_common()}
        syncs = (counts["fdatasync"] + counts["fsync"]) / n
        detail = ", ".join(f"{counts[c] / n:.4g} {c}" for c in CALLS if counts[c])
        label = "a checkpoint" if name == "ours" else NAMES[name]
        rows.append(
            Row(
                f"syncs_{name}",
                f"sync calls of {label}",
                syncs,
                "calls",
                detail=f"{detail}; {sum(counts.values()) / n:.4g} calls in all",
            )
        )
    return rows


def _trace(context: Context, name: str, n: int) -> Counter[str] | None:
    folder = context.fresh(f"strace-{name}")
    trace = folder / "trace"
    path = [context.peers[name]] if name in context.peers else None
    try:
        with Worker(
            name, folder, path=path, prefix=["strace", "-f", "-qq", "-o", str(trace)]
        ) as worker:
            worker("block", n=10)
            worker("marked", n=n)
    except (RuntimeError, OSError, subprocess.SubprocessError):
        return None
    return count_calls(trace.read_text(errors="replace"))


def count_calls(trace: str) -> Counter[str]:
    """Count the calls between the two marks; one that was interrupted is counted once."""
    between = trace.partition("/benchmark-mark-begin")[2].partition("/benchmark-mark-end")[0]
    lines = between.splitlines()[1:-1]
    found = (re.match(r"\d+ +(\w+)\(", line) for line in lines)
    return Counter(match[1] for match in found if match)
