"""What needs no disk: encoding a state, importing the package."""

from __future__ import annotations

import compileall
import os
import subprocess
import sys

from benchmarks._harness import ROOT, Context, Row, Samples, Worker, environment

SIZES = {"100 kB": 100_000, "1 MB": 1_000_000, "10 MB": 10_000_000}
IMPORTS = {
    "ours": "import caravanserai",
    "base": "import orjson, hashlib, logging, pathlib, datetime, threading",
    "nothing": "pass",
}


def encoding(context: Context) -> list[Row]:
    """Measure the encoder beside orjson, which it ends in."""
    rows = []
    for label, size in SIZES.items():
        rounds = 3 if context.quick else 15
        n = max(3, (4_000_000 if context.quick else 10_000_000) // size)
        encode, dumps = Samples(), Samples()
        with Worker("codec", context.folder, size=size) as worker:
            for _ in range(rounds):
                dumps.rounds.append(worker("time", what="dumps", n=n)["times"])
                encode.rounds.append(worker("time", what="encode", n=n)["times"])
            exact = worker("about")["bytes"]
        key = f"encode_{label.replace(' ', '')}"
        context.raw[key] = {"encode": encode.raw(), "dumps": dumps.raw(), "bytes": exact}
        rows.append(
            Row(
                key,
                f"encoding a chat of {label} / orjson.dumps",
                encode.ratio(dumps),
                "x",
                6,
                5,
                f"{encode} / {dumps}",
            )
        )
    return rows


def imports(context: Context) -> list[Row]:
    """Measure the CPU time of processes that import, and do nothing else."""
    # Otherwise the first user's compilation is what is measured.
    for folder in (ROOT / "caravanserai_core", ROOT / "adapters/caravanserai"):
        compileall.compile_dir(folder, quiet=2)
    times = {name: Samples() for name in IMPORTS}
    for code in IMPORTS.values():
        _cpu_time(code, context)
    for _ in range(15 if context.quick else 41):
        for name, code in IMPORTS.items():
            times[name].rounds.append([_cpu_time(code, context)])
    context.raw = {name: samples.raw() for name, samples in times.items()}
    ours, base, nothing = (times[name].p50 for name in ("ours", "base", "nothing"))
    return [
        Row(
            "import",
            "CPU time: import caravanserai / its standard parts",
            ours / base,
            "x",
            1.5,
            None,
            f"{times['ours']} / {times['base']}; an empty program {times['nothing']}",
        ),
        Row(
            "import_net",
            "  the same, less the empty program",
            (ours - nothing) / (base - nothing),
            "x",
        ),
    ]


def _cpu_time(code: str, context: Context) -> float:
    """Run a program; returns its CPU time and that of its children, in nanoseconds."""
    process = subprocess.Popen([sys.executable, "-c", code], cwd=context.folder, env=environment())
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{code!r} ended with {process.returncode}")
    return (usage.ru_utime + usage.ru_stime) * 1e9
