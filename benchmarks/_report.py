"""What every benchmark has in common: its options, the machine it runs on, the table it prints."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import _peers
from benchmarks._harness import MS, ROOT, SETTLED, Context, Row, milliseconds, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Figures = Mapping[str, Callable[[Context], list[Row]]]


def options_of(name: str, doc: str | None, figures: Figures) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks have."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=doc)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--quick", action="store_true", help="only show that everything works")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=figures,
        metavar="NAME",
        default=[*figures],
        help=f"take these figures: {', '.join(figures)}",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=ROOT / "build",
        help="folder for the data, on the disk to be measured",
    )
    parser.add_argument(
        "--peers",
        type=Path,
        help="folder where the packages to compare with are kept between calls",
    )
    parser.add_argument(
        "--no-install", action="store_true", help="leave out what is not in --peers"
    )
    return parser


def run(
    options: argparse.Namespace,
    figures: Figures,
    peers: Mapping[str, _peers.Peer],
    packages: Sequence[str] = (),
    *,
    waypoints: int = 0,
    rounds: int = 3,
) -> None:
    """Take the figures, print them, and remove the data.

    Args:
        options: what `options_of` has parsed.
        figures: all that there are.
        peers: those that the chosen figures need.
        packages: whose versions matter.
        waypoints: see `Context`.
        rounds: see `Context`.
    """
    options.dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="benchmarks-", dir=options.dir)).resolve()
    try:
        where = (options.peers or folder / "peers").resolve()
        found, missing = _peers.find(where, peers, install=not options.no_install)
        result: dict[str, Any] = {
            "quick": options.quick,
            "machine": machine(folder, packages),
            "missing": missing,
            "disk": [disk(folder, quick=options.quick)],
            "figures": {},
        }
        for name in options.only:
            say(f"measuring: {name} …")
            context = Context(folder, options.quick, found, waypoints, rounds)
            rows = figures[name](context)
            result["figures"][name] = {
                "rows": [{**vars(row), "ok": row.ok} for row in rows],
                "raw": context.raw,
            }
        result["disk"].append(disk(folder, quick=options.quick))
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # not earlier: see docs/benchmarks.md
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        show(result)


def disk(folder: Path, *, quick: bool) -> dict[str, Any]:
    """Measure the disk alone: 1 kB appended and synced; an empty file made."""
    path = Path(tempfile.mkdtemp(prefix="disk-", dir=folder))
    create = settle(path / "settle", 0.2 if quick else 30)
    data, sync = os.urandom(1024), []
    fd = os.open(path / "appended", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for _ in range(300):
        os.write(fd, data)
        start = time.perf_counter_ns()
        os.fdatasync(fd)
        sync.append(time.perf_counter_ns() - start)
    os.close(fd)
    return {
        "fdatasync_p50_ms": statistics.median(sync) / MS,
        "fdatasync_p99_ms": sorted(sync)[296] / MS,
        "create_p50_ms": create / MS,
        "load": os.getloadavg(),
    }


def machine(folder: Path, packages: Sequence[str]) -> dict[str, Any]:
    """Return what the figures depend on, without naming the machine."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        **{name: _version(name) for name in ("orjson", *packages)},
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processors": os.cpu_count(),
        "file_system": _file_system(folder),
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed here"


def _file_system(folder: Path) -> str:
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    found = [(line.split(" ")[4], line.partition(" - ")[2].split(" ")[0]) for line in mounts]
    over = [(len(at), kind) for at, kind in found if folder.resolve().is_relative_to(at)]
    return max(over)[1] if over else "unknown"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def show(result: dict[str, Any]) -> None:
    """Print the result as a table."""
    rows = [Row(**{k: v for k, v in row.items() if k != "ok"}) for row in _rows(result)]
    width = max((len(row.figure) for row in rows), default=0)
    for row in rows:
        target = "" if row.target is None else f"≤ {row.target:g} {row.unit}"
        if row.aim is not None:
            target += f" (aim {row.aim:g})"
        verdict = {True: "ok", False: "OVER", None: ""}[row.ok]
        value = f"{_number(row.value)} {row.unit}"
        print(f"{row.figure:{width}}  {value:>11}  {target:18} {verdict:4}  {row.detail}".rstrip())
    calls = result["figures"].get("calls", {}).get("raw", {})
    if "strace" in calls:
        print("sync calls: strace not installed")
    for problem in result["missing"].values():
        print(f"left out: {problem}")
    print("\n" + ", ".join(f"{key} {value}" for key, value in result["machine"].items()))
    for when, found in zip(("before", "after"), result["disk"], strict=False):
        sync, create = found["fdatasync_p50_ms"] * MS, found["create_p50_ms"] * MS
        print(
            f"disk {when}: sync p50 {milliseconds(sync)} p99 "
            f"{milliseconds(found['fdatasync_p99_ms'] * MS)}, a new file {milliseconds(create)}; "
            f"load {found['load'][0]:.2f}"
        )
    if max(found["create_p50_ms"] for found in result["disk"]) * MS > SETTLED:
        print("new files are dear: were many deleted just before? See docs/benchmarks.md.")
    if result["quick"]:
        print("quick: sizes and repetitions are reduced; this shows only that everything works.")


def _rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for figure in result["figures"].values() for row in figure["rows"]]


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
