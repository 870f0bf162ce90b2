"""One graph with one saver in a process: run, read again. Commands as in `benchmarks._worker`."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import _graphs as graphs
from benchmarks import _worker
from benchmarks._worker import mark

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

DATABASE = "checkpoints.sqlite"
STORE = "store"
THREAD = "thread"


def database() -> str:
    """Return the address of the working folder's database; it is made where it is not there."""
    import psycopg

    server = os.environ["BENCHMARK_POSTGRES"]
    name = "b" + hashlib.sha256(str(Path.cwd()).encode()).hexdigest()[:16]
    with psycopg.connect(server + "/postgres", autocommit=True) as connection:
        if not connection.execute(
            "SELECT 1 FROM pg_database WHERE datname = %s", (name,)
        ).fetchone():
            connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    return f"{server}/{name}"


@contextlib.contextmanager
def saver_of(name: str) -> Iterator[Any]:
    """Open a saver in the working folder."""
    if name == "ours":
        from caravanserai.langgraph import WaypointSaver

        yield WaypointSaver(STORE)
    elif name == "ours_postgres":
        from caravanserai.langgraph import WaypointSaver

        saver = WaypointSaver(database())
        saver.store.recent("nothing")  # the tables are made before the clock starts
        yield saver
        saver.store.close()
    elif name == "postgres":
        from langgraph.checkpoint.postgres import PostgresSaver

        with PostgresSaver.from_conn_string(database()) as saver:
            saver.setup()
            yield saver
    elif name == "memory":
        from langgraph.checkpoint.memory import InMemorySaver

        yield InMemorySaver()
    else:
        from langgraph.checkpoint.sqlite import SqliteSaver

        with SqliteSaver.from_conn_string(DATABASE) as saver:
            yield saver


@contextlib.asynccontextmanager
async def async_saver_of(name: str) -> AsyncIterator[Any]:
    """Open a saver for `ainvoke` in the working folder."""
    if name == "postgres":
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

        async with AsyncPostgresSaver.from_conn_string(database()) as saver:
            await saver.setup()
            yield saver
        return
    if name != "sqlite":
        with saver_of(name) as saver:
            yield saver
        return
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(DATABASE) as found:
        yield found


class Graph:
    """Runs a graph with a saver, or reads what such a run has left.

    Before anything is timed a small run of the same kind is done in a folder beside it: what is
    imported late, and what is prepared for the first call, does not count.
    """

    def __init__(self) -> None:
        self._warm: set[tuple[str, str, bool]] = set()

    def run(
        self,
        folder: str,
        work: str,
        count: int,
        saver: str,
        durability: str,
        is_async: bool,
        marked: bool = False,
    ) -> Any:
        run = _Run(work, count, durability, marked)
        self._warm_up(folder, work, saver, read=False)
        os.chdir(folder)
        before = peak()
        if is_async:
            asyncio.run(run.in_loop(saver))
        else:
            run.here(saver)
        return {
            "ns": run.spent,
            "cpu": run.cpu,
            "supersteps": run.work.supersteps,
            "peak": peak(),
            "peak_before": before,
            **disk(saver),
        }

    def get_state(self, folder: str, work: str, count: int, saver: str) -> Any:
        compile_with = graphs.WORKS[work](count).build()
        self._warm_up(folder, work, saver)
        os.chdir(folder)
        start = time.perf_counter_ns()
        with saver_of(saver) as opened:
            opening = time.perf_counter_ns() - start
            graph = compile_with(checkpointer=opened)
            start = time.perf_counter_ns()
            found = graph.get_state(config())
            spent = time.perf_counter_ns() - start
        return {"ns": opening + spent, "sha256": _digest(found.values)}

    def history(self, folder: str, work: str, count: int, saver: str) -> Any:
        compile_with = graphs.WORKS[work](count).build()
        self._warm_up(folder, work, saver)
        os.chdir(folder)
        with saver_of(saver) as opened:
            graph = compile_with(checkpointer=opened)
            start = time.perf_counter_ns()
            found = list(graph.get_state_history(config()))
            spent = time.perf_counter_ns() - start
        return {"ns": spent, "count": len(found), "peak": peak()}

    def _warm_up(self, folder: str, work: str, saver: str, *, read: bool = True) -> None:
        if (work, saver, read) in self._warm:
            return
        self._warm.add((work, saver, read))
        beside = Path(folder) / f"warm-{os.getpid()}-{read}"
        beside.mkdir()
        os.chdir(beside)
        small = graphs.WORKS[work](3)
        with saver_of(saver) as opened:
            graph = small.build()(checkpointer=opened)
            graph.invoke(small.first, config(), durability="sync")
            if read:  # not otherwise: what it takes would count as memory of a run
                list(graph.get_state_history(config()))


class _Run:
    """One run, timed."""

    def __init__(self, work: str, count: int, durability: str, marked: bool) -> None:
        self.work = graphs.WORKS[work](count)
        self.compile = self.work.build()
        self.durability = durability
        self.marked = marked
        self.spent = self.cpu = 0

    def here(self, saver: str) -> None:
        with saver_of(saver) as opened:
            graph = self.compile(checkpointer=opened)
            with self._timed():
                values = graph.invoke(self.work.first, config(), durability=self.durability)
        self._check(values)

    async def in_loop(self, saver: str) -> None:
        async with async_saver_of(saver) as opened:
            graph = self.compile(checkpointer=opened)
            with self._timed():
                values = await graph.ainvoke(self.work.first, config(), durability=self.durability)
        self._check(values)

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        if self.marked:
            mark("begin")
        cpu, start = time.process_time_ns(), time.perf_counter_ns()
        yield
        self.spent = time.perf_counter_ns() - start
        self.cpu = time.process_time_ns() - cpu
        if self.marked:
            mark("end")

    def _check(self, values: Any) -> None:
        if not self.work.check(values):
            raise RuntimeError("the graph came to another end")


def config() -> Any:
    return {"configurable": {"thread_id": THREAD}, "recursion_limit": 100_000}


def _digest(values: Any) -> str:
    """Return a sum that is the same for two runs; ids that LangGraph makes up are left out."""
    plain = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "", repr(values))
    return hashlib.sha256(plain.encode()).hexdigest()


def peak() -> int:
    """Return the most memory that this process has had, in bytes."""
    # Not ru_maxrss where there is better: it counts what the parent had before this program began.
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def disk(saver: str) -> dict[str, int]:
    """Count the bytes in the working folder, or in its database, once all is closed."""
    if "postgres" in saver:
        import psycopg

        with psycopg.connect(database(), autocommit=True) as connection:
            tables = (
                "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n "
                "ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND n.nspname IN "
                "('public', 'caravanserai')"
            )
            row = connection.execute(tables).fetchone()
            return {"bytes": int(row[0]) if row else 0}
    if Path(DATABASE).exists():
        return {"bytes": sum(path.stat().st_size for path in Path().glob(f"{DATABASE}*"))}
    if not Path(STORE).exists():
        return {"bytes": 0}
    found = _worker.measure(Path(STORE) / THREAD)
    notes = sum(1 for entry in os.scandir(Path(STORE) / THREAD) if entry.name[:9] == "waypoint-")
    return {"bytes": found["journal"], "note_count": notes, **found}


if __name__ == "__main__":
    _worker.main({"graph": Graph})
