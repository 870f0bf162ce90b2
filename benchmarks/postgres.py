"""Our store in Postgres beside LangGraph's saver: `python -m benchmarks.postgres`.

Needs the project with the extras langgraph, postgres and dev; it starts a server of its own.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks import _report, _savers
from benchmarks._harness import MS, Context, Row, Samples, milliseconds
from benchmarks._savers import Measured, Task, Way
from integration_tests.postgres_server import postgres

if TYPE_CHECKING:
    from collections.abc import Callable

OURS, THEIRS = "ours_postgres", "postgres"
WAYS = [
    *(Way(saver, "sync") for saver in (OURS, THEIRS)),
    *(Way(saver, "sync", True) for saver in (OURS, THEIRS)),
]
TASKS = _savers.TASKS | {
    "prose": Task("chat of 1,000 messages of 1 kB, words that do not repeat", 1000, 8)
}
TARGETS = {
    "nodes": (0.9, None),
    "chat": (0.5, None),
    "prose": (0.5, 1 / 30),
    "document": (None, None),
}
PACKAGES = ("langgraph", "langgraph-checkpoint-postgres", "psycopg", "psycopg-pool")


def figure(name: str) -> Callable[[Context], list[Row]]:
    """Return the figure of a task: the time of a step and the bytes of all tables."""

    def measured(context: Context) -> list[Row]:
        task = TASKS[name]
        count = task.quick if context.quick else task.count
        found = Measured()
        top = context.fresh(name)
        with _savers._Turns(context) as turns:
            for _ in range(context.rounds):
                for way in WAYS:
                    folder = tempfile.mkdtemp(prefix=f"{way.saver}-", dir=top)
                    answer = turns("run", folder=folder, work=name, count=count, **vars(way))
                    found.runs.setdefault(way, []).append(answer)
        context.raw = _savers._raw(found)
        return rows(name, task.title, found)

    return measured


def rows(name: str, title: str, found: Measured) -> list[Row]:
    """Return the ratios of a task."""
    result = []
    time_target, bytes_target = TARGETS[name]
    for mine, theirs in (WAYS[:2], WAYS[2:]):
        saver = "AsyncPostgresSaver" if theirs.is_async else "PostgresSaver"
        one, two = found.steps(mine), found.steps(theirs)
        cpu = found.steps(mine, "cpu"), found.steps(theirs, "cpu")
        result.append(
            Row(
                f"{name}_step_{saver.lower()}",
                f"{title}: step / {saver}, sync",
                one.ratio(two),
                "x",
                None if theirs.is_async else time_target,
                None,
                f"{milliseconds(one.p50)} / {milliseconds(two.p50)}; "
                f"CPU {milliseconds(cpu[0].p50)} / {milliseconds(cpu[1].p50)}",
            )
        )
    sizes = [statistics.median(a["bytes"] for a in found.runs[way]) / 1e6 for way in WAYS[:2]]
    detail = f"{sizes[0]:.3g} MB / {sizes[1]:.3g} MB, indexes and notes counted in"
    ratio = sizes[0] / sizes[1]
    return [*result, Row(f"{name}_bytes", "  … tables", ratio, "x", bytes_target, None, detail)]


def checkpoint(context: Context) -> list[Row]:
    """Measure a plain checkpoint beside one INSERT of its bytes, by turns, in one process."""
    from caravanserai_core import checkpoint as save
    from caravanserai_core.stores import PostgresStore

    server = os.environ["BENCHMARK_POSTGRES"]
    store = PostgresStore(f"{server}/postgres")
    calls = 20 if context.quick else 200
    ours, raw = Samples(), Samples()
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute("CREATE TABLE raw (n int PRIMARY KEY, line bytea)")
        number = 0
        for turn in range(3 if context.quick else 9):
            times: dict[str, list[float]] = {"ours": [], "raw": []}
            for _ in range(calls):
                number += 1
                state: Any = {"step": number, "text": "x" * 900}
                start = time.perf_counter_ns()
                save(f"turn-{turn}", state, f"finished step {number}", store=store)
                times["ours"].append(time.perf_counter_ns() - start)
            for _ in range(calls):
                number += 1
                start = time.perf_counter_ns()
                connection.execute("INSERT INTO raw VALUES (%s, %s)", (number, b"x" * 1200))
                times["raw"].append(time.perf_counter_ns() - start)
            ours.rounds.append(times["ours"][3:])
            raw.rounds.append(times["raw"][3:])
    store.close()
    context.raw = {"ours": ours.rounds, "raw": raw.rounds}
    detail = f"{ours.p50 / MS:.2f} ms / {raw.p50 / MS:.2f} ms"
    title = "checkpoint of 1 kB with its note / one INSERT of its bytes, committed"
    return [Row("checkpoint_insert", title, ours.ratio(raw), "x", None, None, detail)]


FIGURES: dict[str, Callable[[Context], list[Row]]] = {
    "checkpoint": checkpoint,
    **{name: figure(name) for name in TARGETS},
}


def main() -> None:
    """Run it."""
    parser = _report.options_of("postgres", __doc__, FIGURES)
    parser.add_argument("--rounds", type=int, metavar="N", help="turns of each saver; 3")
    options = parser.parse_args()
    with postgres() as server:
        os.environ["BENCHMARK_POSTGRES"] = server.url("").rstrip("/")
        rounds = options.rounds or (1 if options.quick else 3)
        _report.run(options, FIGURES, {}, PACKAGES, rounds=rounds)


if __name__ == "__main__":
    main()
