"""Crews and flows in a process: run, killed, going on. Commands as in `benchmarks._worker`."""

# ruff: noqa: E402

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import os
import re
import signal
import sys
import time
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

# CrewAI stays at home, and its home is the working folder.
os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_TRACKING": "true",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "CREWAI_TESTING": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OPENAI_API_KEY": "none",
    "OTEL_SDK_DISABLED": "true",
}


def _at_home(folder: Path) -> None:
    os.environ |= {
        "CREWAI_STORAGE_DIR": str(folder / "storage"),
        "HOME": str(folder / "home"),
        "XDG_CONFIG_HOME": str(folder / "home/.config"),
        "XDG_DATA_HOME": str(folder / "home/.local/share"),
    }


_at_home(Path.cwd())

from crewai import LLM, Agent, Crew, Task
from crewai.flow.flow import Flow, listen, start
from crewai.flow.persistence import persist
from crewai.flow.persistence.sqlite import SQLiteFlowPersistence
from crewai.llms.base_llm import BaseLLM
from crewai.memory.storage.kickoff_task_outputs_storage import KickoffTaskOutputsSQLiteStorage
from crewai.state.checkpoint_config import CheckpointConfig
from crewai.tools import BaseTool
from pydantic import PrivateAttr

from benchmarks import _worker
from benchmarks._states import text
from benchmarks._worker import mark
from caravanserai.crewai import WaypointFlowPersistence, waypoints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STORE = "store"
CHECKPOINTS = "checkpoints"
FLOWS = "flows.db"
OUTSIDE = "outside.txt"
ROLES = ("Researcher", "Writer", "Editor")
TOOLS = 2
"""Calls of a tool in a task, one in each answer; then comes the result."""
RESULT = 1000
"""Characters that a tool, or a method of a flow, gives."""
WARM = 2
"""Tasks, or methods, of what runs before anything is timed."""


class Scripted(BaseLLM):
    """A model in the process that answers at once."""

    _asked: Any = PrivateAttr(default=None)

    def supports_function_calling(self) -> bool:
        return True

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        asked = next(m["content"] for m in reversed(messages) if m["role"] == "user")
        number = int(re.findall(r"TASK-(\d+)", asked)[0])
        turn = sum(message["role"] == "tool" for message in messages)
        if self._asked is not None and turn == 0:
            self._asked()
        if turn == TOOLS:
            return f"Task {number} is done."
        page = f"{number}-{turn + 1}"
        function = {"name": "read", "arguments": json.dumps({"page": page})}
        return [{"id": f"call-{page}", "type": "function", "function": function}]


class Read(BaseTool):
    """A tool as a class: CrewAI's checkpoints cannot hold one that `@tool` made (1.15.30)."""

    name: str = "read"
    description: str = "Read a page."

    def _run(self, page: str) -> str:
        number, _, turn = page.partition("-")
        return text(10 * int(number) + int(turn), RESULT)


class Seen(Read):
    """One that leaves a line where it begins."""

    def _run(self, page: str) -> str:
        _reach(page)
        return super()._run(page)


_killed_at: str | None = None


def _reach(place: str) -> None:
    """Leave a line, and die if this is the place for it."""
    with Path(OUTSIDE).open("a") as outside:
        outside.write(f"{place}\n")
    if place == _killed_at:
        os.kill(os.getpid(), signal.SIGKILL)


def crew_of(llm: Any, tasks: int, use: type[BaseTool] = Read, **more: Any) -> Crew:
    """Return a crew of three agents, each task with the result of the one before it."""
    agents = [
        Agent(role=role, goal="Read.", backstory="Reads.", llm=llm, tools=[use()]) for role in ROLES
    ]
    made: list[Task] = []
    for number in range(1, tasks + 1):
        made.append(
            Task(
                name=f"task-{number}",
                description=f"Do TASK-{number}.",
                expected_output="A line.",
                agent=agents[number % len(agents)],
                context=made[-1:],
            )
        )
    return Crew(name="readers", agents=agents, tasks=made, **more)


def flow_of(persistence: Any, methods: int, work: Callable[[int], str]) -> Any:
    """Return a flow whose methods run one after another, each with a state of 1 kB."""

    def method(number: int) -> Any:
        def do(self: Any) -> int:
            self.state["page"] = work(number)
            return number

        do.__name__ = f"method_{number}"
        begins = start() if number == 1 else listen(f"method_{number - 1}")
        return begins(do)

    body = {f"method_{number}": method(number) for number in range(1, methods + 1)}
    made = types.new_class("Chain", (Flow,), exec_body=lambda names: names.update(body))
    return made if persistence is None else persist(persistence)(made)


def _page(number: int) -> str:
    return text(number, RESULT)


class Crews:
    """Runs crews and flows, one after another, in its working folder."""

    def __init__(self) -> None:
        self._warm: set[str] = set()
        self._count = 0

    def _crew(self, way: str, tasks: int, asked: Callable[[], None] | None = None) -> Path:
        """Run a crew; returns the folder of what was kept of it."""
        self._count += 1
        name = f"{way}-{self._count}"
        folder = Path(CHECKPOINTS if way == "checkpoint" else STORE) / name
        more: dict[str, Any] = {}
        if way == "ours":
            more = {"task_callback": waypoints(name, store=STORE)}
        elif way == "checkpoint":
            more = {"checkpoint": CheckpointConfig(location=str(folder))}
        llm = Scripted(model="scripted")
        llm._asked = asked
        self._start = (time.process_time_ns(), time.perf_counter_ns())
        result = crew_of(llm, tasks, **more).kickoff()
        self._end = (time.process_time_ns(), time.perf_counter_ns())
        if result.raw != f"Task {tasks} is done.":
            raise RuntimeError(f"the crew came to another end: {result.raw!r}")
        return folder

    def run(self, way: str, tasks: int, times: int = 1, marked: bool = False) -> Any:
        """Run crews anew; returns time and CPU time of a task in nanoseconds, and its bytes.

        The making of the crew is counted, too.
        """
        with _quiet():
            if way not in self._warm:
                self._warm.add(way)
                self._crew(way, WARM)
            found: dict[str, Any] = {"times": [], "cpu": [], "kept": []}
            for _ in range(times):
                if marked:
                    mark("begin")
                folder = self._crew(way, tasks)
                if marked:
                    mark("end")
                found["times"].append((self._end[1] - self._start[1]) / tasks)
                found["cpu"].append((self._end[0] - self._start[0]) / tasks)
                if way != "plain":
                    found["kept"].append(_kept(folder))
            return found

    def growth(self, way: str, tasks: int) -> Any:
        """Run a crew once; returns what each task but the last, or each file, takes, and all."""
        at: list[int] = []

        def look() -> None:
            at.append(_worker.measure(Path(STORE) / f"{way}-{self._count}")["journal"])

        with _quiet():
            folder = self._crew(way, tasks, look if way == "ours" else None)
            if way == "checkpoint":
                return {"sizes": _sizes(folder), **_kept(folder)}
            sizes = [after - before for before, after in itertools.pairwise(at)]
            return {"sizes": sizes, **_kept(folder)}

    def flow(self, way: str, methods: int, times: int = 1) -> Any:
        """Run flows anew; returns time and CPU time of a method in nanoseconds, and its bytes."""
        with _quiet():
            if f"flow {way}" not in self._warm:
                self._warm.add(f"flow {way}")
                self._flow(way, WARM)
            found: dict[str, Any] = {"times": [], "cpu": [], "kept": []}
            for _ in range(times):
                begun, ended, kept = self._flow(way, methods)
                found["times"].append((ended[1] - begun[1]) / methods)
                found["cpu"].append((ended[0] - begun[0]) / methods)
                found["kept"].append(kept)
            return found

    def _flow(self, way: str, methods: int) -> tuple[Any, Any, Any]:
        self._count += 1
        run_id = f"flow-{self._count}"
        persistence: Any = None
        if way == "ours":
            persistence = WaypointFlowPersistence(store=STORE)
        elif way == "sqlite":
            persistence = SQLiteFlowPersistence(FLOWS)
        made = flow_of(persistence, methods, _page)
        before = _database()
        begun = (time.process_time_ns(), time.perf_counter_ns())
        result = made(suppress_flow_events=True).kickoff(inputs={"id": run_id})
        ended = (time.process_time_ns(), time.perf_counter_ns())
        if result != methods:
            raise RuntimeError(f"the flow came to another end: {result!r}")
        if way == "ours":
            return begun, ended, _kept(Path(STORE) / run_id)
        return begun, ended, {"bytes": _database() - before}


def _kept(folder: Path) -> Any:
    """Return the bytes of our journal and notes, or of CrewAI's files."""
    if folder.parts[0] == STORE:
        found = _worker.measure(folder)
        return {"bytes": found["journal"], "notes": found["notes"]}
    sizes = _sizes(folder)
    return {"bytes": sum(sizes), "files": len(sizes)}


def _database() -> int:
    """Return the bytes of CrewAI's database of flows."""
    return sum(path.stat().st_size for path in Path().glob(f"{FLOWS}*"))


def _sizes(folder: Path) -> list[int]:
    """Return the sizes of CrewAI's files, which grow from task to task."""
    return sorted(path.stat().st_size for path in folder.rglob("*.json"))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Send what CrewAI prints to a file: the pipe it would go to is read at the end only."""
    kept = [os.dup(number) for number in (1, 2)]
    with open("said.txt", "ab") as said:
        for number in (1, 2):
            os.dup2(said.fileno(), number)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, old in zip((1, 2), kept, strict=True):
            os.dup2(old, number)
            os.close(old)


# ---------------------------------------------------------------------- killed


class Lives:
    """Starts crews and flows, each in a process that is forked here, where none ever ran."""

    def __init__(self) -> None:
        gc.freeze()

    def live(
        self, way: str, folder: str, tasks: int, url: str, key: str, at: str | None = None
    ) -> Any:
        """Start a crew, or a flow, once; returns how it ended.

        Args:
            way: what keeps it.
            folder: where it works; a second start there goes on.
            tasks: how many it has, or methods.
            url: of the scripted model.
            key: which its client is given.
            at: the place where it is killed; None: it goes on.
        """
        global _killed_at
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.chdir(folder)
                _at_home(Path(folder))
                os.environ["OPENAI_API_KEY"] = key
                _killed_at = at
                with _quiet():
                    WAYS[way](tasks, url, at is None)
                code = 0
            finally:
                os._exit(code)  # nothing else of the parent is to go on here
        _, status = os.waitpid(pid, 0)
        return {"code": os.waitstatus_to_exitcode(status)}


def _served(url: str, tasks: int, **more: Any) -> Crew:
    """Return a crew that asks CrewAI's own client for a model."""
    llm = LLM(
        model="openai/gpt-4o-mini",
        base_url=url,
        max_retries=0,
        api_key=os.environ["OPENAI_API_KEY"],
    )
    return crew_of(llm, tasks, Seen, **more)


def _none(tasks: int, url: str, *_: Any) -> None:
    _served(url, tasks).kickoff()


def _ours(tasks: int, url: str, *_: Any) -> None:
    _served(url, tasks, task_callback=waypoints("run", store=STORE)).kickoff()


def _checkpoint(tasks: int, url: str, resumed: bool) -> None:
    """Go on from the newest file that can be read; begin anew where there is none."""
    found = _newest_checkpoint() if resumed else None
    config = CheckpointConfig(location=CHECKPOINTS, restore_from=found)
    if found is None:
        _served(url, tasks, checkpoint=config).kickoff()
    else:
        _served(url, tasks).kickoff(from_checkpoint=config)


def _newest_checkpoint() -> Path | None:
    files = sorted(Path(CHECKPOINTS).rglob("*.json"), key=lambda p: p.stat().st_mtime_ns)
    for path in reversed(files):
        with contextlib.suppress(ValueError):
            json.loads(path.read_text())
            return path
    return None


def _replay(tasks: int, url: str, resumed: bool) -> None:
    """Replay the last task that CrewAI's table has."""
    crew = _served(url, tasks)
    if resumed:
        crew.replay(KickoffTaskOutputsSQLiteStorage().load()[-1]["task_id"])
    else:
        crew.kickoff()


def _flow_ours(methods: int, *_: Any) -> None:
    _flow(WaypointFlowPersistence(store=STORE), methods)


def _flow_sqlite(methods: int, *_: Any) -> None:
    _flow(SQLiteFlowPersistence(FLOWS), methods)


def _flow(persistence: Any, methods: int) -> None:
    def work(number: int) -> str:
        _reach(str(number))
        return _page(number)

    flow_of(persistence, methods, work)().kickoff(inputs={"id": "flow"})


WAYS: dict[str, Callable[[int, str, bool], None]] = {
    "none": _none,
    "replay": _replay,
    "checkpoint": _checkpoint,
    "ours": _ours,
    "flow_sqlite": _flow_sqlite,
    "flow_ours": _flow_ours,
}


if __name__ == "__main__":
    _worker.main({"crews": Crews, "lives": Lives})
