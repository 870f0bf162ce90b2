"""What is measured, each kind in a process of its own, on command of the benchmark.

    python -m benchmarks._worker KIND ARGUMENTS

Reads one JSON object per line, `{"do": method, …}`, and answers with one. So packages of the
same name do not meet, all participants are timed by the same loop, and rounds interleave.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import _states as states

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WARM_UP = 3
"""Calls at the start of a block that do not count: another process had the caches."""


def timed(prepare: Callable[[int], Any], call: Callable[[int, Any], Any], numbers: range) -> Any:
    """Time each call alone; what `prepare` does is not counted."""
    clock, cpu = time.perf_counter_ns, time.process_time_ns
    times: list[int] = []
    used: list[int] = []
    for number in numbers:
        value = prepare(number)
        cpu_start = cpu()
        start = clock()
        call(number, value)
        end = clock()
        used.append(cpu() - cpu_start)
        times.append(end - start)
    return {"times": times[WARM_UP:], "cpu": used[WARM_UP:]}


class Participant:
    """Writes 1 kB again and again; subclasses say how."""

    version = ""

    def __init__(self) -> None:
        self.count = 0

    def call(self, number: int, state: Any) -> Any:
        raise NotImplementedError

    def block(self, n: int) -> Any:
        numbers = range(self.count + 1, self.count + n + WARM_UP + 1)
        self.count = numbers[-1]
        return self.run(numbers)

    def run(self, numbers: range) -> Any:
        return timed(states.kilobyte, self.call, numbers)

    def marked(self, n: int) -> Any:
        """Run a block between two system calls that a trace shows."""
        mark("begin")
        self.block(n - WARM_UP)
        mark("end")
        return {"calls": n}

    def about(self) -> Any:
        return {"version": self.version, "count": self.count}


def mark(name: str) -> None:
    """Make a system call that a trace shows."""
    with contextlib.suppress(FileNotFoundError):
        os.stat(f"/benchmark-mark-{name}")


class Raw(Participant):
    """Append the lines of an existing journal to a file, each with its data sync."""

    def __init__(self, journal: str) -> None:
        super().__init__()
        with open(journal, "rb") as file:
            self.lines = file.readlines()[1:]  # without the one that tells of the run
        self.fd = os.open("raw.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def call(self, number: int, state: Any) -> Any:
        os.write(self.fd, self.lines[number % len(self.lines)])
        os.fdatasync(self.fd)


class Ours(Participant):
    """The plain function of this package; `sync=False` shows what the sync costs."""

    def __init__(self, sync: bool = True) -> None:
        super().__init__()
        import caravanserai

        self.version = caravanserai.__version__
        self.checkpoint = caravanserai.checkpoint
        if not sync:
            from caravanserai_core.stores._seam import Files

            Files.sync_data = lambda *_: None  # type: ignore[method-assign]

    def call(self, number: int, state: Any) -> Any:
        self.checkpoint("run", state, states.note(number))

    def bytes(self) -> Any:
        return {**measure(Path(".caravanserai/run")), "count": self.count}


class Release(Ours):
    """The last release, which never syncs."""

    def __init__(self) -> None:
        Participant.__init__(self)
        import importlib.metadata

        import caravanserai

        self.version = importlib.metadata.version("caravanserai")
        self.checkpoint = caravanserai.checkpoint
        if "caravanserai_core" in sys.modules:
            raise RuntimeError("this is not the release")


class Dbos(Participant):
    """A workflow of DBOS with a step for each kilobyte, in its SQLite database."""

    def __init__(self) -> None:
        super().__init__()
        import importlib.metadata

        from dbos import DBOS  # type: ignore[import-not-found, unused-ignore]

        self.version = importlib.metadata.version("dbos")
        DBOS(
            config={
                "name": "benchmark",
                "system_database_url": f"sqlite:///{Path.cwd()}/dbos.sqlite",
                "run_admin_server": False,
                "log_level": "WARNING",
            }
        )

        @DBOS.step()  # type: ignore[untyped-decorator, unused-ignore]
        def step(state: Any) -> Any:
            return state

        @DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
        def workflow(first: int, last: int) -> None:
            numbers = range(first, last + 1)
            self.result = timed(states.kilobyte, lambda _, state: step(state), numbers)

        self.workflow = workflow
        DBOS.launch()

    def run(self, numbers: range) -> Any:
        self.workflow(numbers[0], numbers[-1])
        return self.result


class Growth(Participant):
    """One of the long runs."""

    def __init__(self, name: str, run_id: str) -> None:
        super().__init__()
        import orjson

        from caravanserai import checkpoint
        from caravanserai_core import codec

        self.work = states.WORKLOADS[name]()
        self.run_id = run_id
        self.checkpoint, self.codec, self.dumps = checkpoint, codec, orjson.dumps

    def run(self, numbers: range) -> Any:
        return timed(self.work.advance, self.call, numbers)

    def call(self, number: int, state: Any) -> Any:
        self.checkpoint(self.run_id, self.work.state, states.note(number))

    def encode(self, n: int) -> Any:
        state, encode = self.work.state, self.codec.encode
        return timed(lambda _: None, lambda _, __: encode(state), range(n + WARM_UP))

    def end(self) -> Any:
        plain = self.dumps(self.work.state)
        path = Path(f"{self.run_id}.json")
        path.write_bytes(plain)
        found = measure(Path(".caravanserai") / self.run_id)
        document = len(self.dumps(self.work.state.get("document")))
        return {
            **found,
            "count": self.count,
            "plain": str(path.resolve()),
            "state_bytes": len(plain),
            "document_bytes": document,
        }


class Codec(Participant):
    """Encoding, beside the encoder that it is built on."""

    def __init__(self, size: int) -> None:
        super().__init__()
        import orjson

        from caravanserai_core import codec

        self.state = states.chat(size)
        self.calls: dict[str, Callable[[Any], Any]] = {
            "encode": codec.encode,
            "dumps": orjson.dumps,
        }
        self.size = len(orjson.dumps(self.state))

    def time(self, what: str, n: int) -> Any:
        call, state = self.calls[what], self.state
        return timed(lambda _: None, lambda _, __: call(state), range(n + WARM_UP))

    def about(self) -> Any:
        return {"bytes": self.size}


class Cold:
    """Does one thing once, in a new process; the import is not counted."""

    def __init__(self) -> None:
        import orjson

        import caravanserai

        self.api, self.orjson = caravanserai, orjson

    def load(self, run_id: str, at: int | None = None) -> Any:
        start = time.perf_counter_ns()
        state = self.api.load(run_id, at)
        spent = time.perf_counter_ns() - start
        return {"ns": spent, "sha256": hashlib.sha256(self.orjson.dumps(state)).hexdigest()}

    def plain(self, path: str) -> Any:
        data = Path(path).read_bytes()
        start = time.perf_counter_ns()
        state = self.orjson.loads(data)
        spent = time.perf_counter_ns() - start
        return {"ns": spent, "sha256": hashlib.sha256(self.orjson.dumps(state)).hexdigest()}

    def history(self, run_id: str) -> Any:
        start = time.perf_counter_ns()
        notes = [waypoint.note.summary for waypoint in self.api.history(run_id)]
        return {"ns": time.perf_counter_ns() - start, "count": len(notes)}

    def runs(self) -> Any:
        start = time.perf_counter_ns()
        found = self.api.list_runs()
        return {"ns": time.perf_counter_ns() - start, "count": len(found)}


class Runs:
    """Fills a store with many short runs."""

    def make(self, n: int) -> Any:
        import caravanserai

        for number in range(n):
            for step in (1, 2, 3):
                caravanserai.checkpoint(f"run-{number}", states.kilobyte(step), states.note(step))
        return {"count": n}


class Served:
    """The scripted model of the examples, for as long as this process lives.

    Args:
        script: see `examples/scripted_openai.py`.
    """

    def __init__(self, script: Any) -> None:
        from examples.scripted_openai import ScriptedOpenAI

        self._server = ScriptedOpenAI(script)
        self._server.__enter__()

    def where(self) -> Any:
        return {"url": self._server.url}


def measure(folder: Path) -> dict[str, int]:
    """Count the bytes of a run: journal, notes, and the blocks that the notes take on disk."""
    journal = notes = blocks = other = 0
    for entry in os.scandir(folder):
        found = entry.stat(follow_symlinks=False)
        if entry.name.startswith("journal-"):
            journal += found.st_size
        elif entry.name.startswith("waypoint-"):
            notes += found.st_size
            blocks += found.st_blocks * 512
        else:
            other += found.st_size
    return {"journal": journal, "notes": notes, "note_blocks": blocks, "other": other}


KINDS: dict[str, Callable[..., Any]] = {
    "raw": Raw,
    "ours": Ours,
    "release": Release,
    "dbos": Dbos,
    "growth": Growth,
    "codec": Codec,
    "cold": Cold,
    "runs": Runs,
    "served": Served,
}


def main(kinds: Mapping[str, Callable[..., Any]]) -> None:
    # What a package prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(value: Any) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    worker = kinds[sys.argv[1]](**json.loads(sys.argv[2]))
    answer({"ready": True})
    for line in sys.stdin:
        command = json.loads(line)
        answer(getattr(worker, command.pop("do"))(**command))
    sys.stderr.flush()
    os._exit(0)  # background threads of a package have nothing more to do here


if __name__ == "__main__":
    main(KINDS)
