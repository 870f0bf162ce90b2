"""Programs that are killed: each step has an effect outside the store, then a checkpoint.

Run as a module it is a fork server: it imports everything once, and for each line on its
standard input forks a child that runs a program, so that a new process costs milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from typing import Any

import caravanserai

PAD = "words " * 12_000


class Outside:
    """What the world outside of the store saw, one line each, on the disk before it returns."""

    def __init__(self, folder: str) -> None:
        self._effects = _open(f"{folder}/effects")
        self._acks = _open(f"{folder}/acks")

    def effect(self, step: int) -> None:
        """Do what the step is there for."""
        _line(self._effects, f"{step}")

    def acknowledged(self, step: int, waypoint: int) -> None:
        """Note that `checkpoint` returned."""
        _line(self._acks, f"{step} {waypoint}")


def _open(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _line(fd: int, text: str) -> None:
    os.write(fd, text.encode() + b"\n")
    os.fsync(fd)


def note(step: int) -> str:
    """The note of a step."""
    return f"finished step {step}, next is step {step + 1}"


def small(run_id: str, steps: int, outside: Outside) -> Any:
    """A loop with a small state."""

    @caravanserai.resumable
    def work(run_id: str, state: dict[str, Any]) -> str:
        while state["step"] < steps:
            state["step"] += 1
            outside.effect(state["step"])
            number = caravanserai.checkpoint(run_id, state, note(state["step"]))
            outside.acknowledged(state["step"], number)
        return "done"

    return work(run_id, {"step": 0})


def large(run_id: str, steps: int, outside: Outside) -> Any:
    """A state of 72 kB with a list that grows: patches, and full records in between."""

    @caravanserai.resumable
    def work(run_id: str, state: dict[str, Any]) -> str:
        while state["step"] < steps:
            step = state["step"] + 1
            outside.effect(step)
            state["step"] = step
            state["log"].append({"step": step, "text": ("tool result " * 20, step)})
            state["window"] = [*state["window"][-20:], step]
            if step % 40 == 0:
                state["document"] = PAD[step:]
            number = caravanserai.checkpoint(run_id, state, note(step))
            outside.acknowledged(step, number)
        return "done"

    return work(run_id, {"step": 0, "document": PAD, "log": [], "window": []})


def entries(run_id: str, steps: int, outside: Outside) -> Any:
    """Two entries between waypoints, one of which is shown in the live note."""
    with caravanserai.open_run(run_id) as run:
        state = run.state or {"step": 0}
        while state["step"] < steps:
            step = state["step"] + 1
            run.entry("tool started", {"step": step}, say=f"step {step} began, no result yet")
            outside.effect(step)
            run.entry("tool result", (step,))
            state["step"] = step
            outside.acknowledged(step, run.checkpoint(state, note(step)))
        run.finish("done")
        return "done"


def asynchronous(run_id: str, steps: int, outside: Outside) -> Any:
    """The same loop in async code."""

    @caravanserai.resumable
    async def work(run_id: str, state: dict[str, Any]) -> str:
        while state["step"] < steps:
            state["step"] += 1
            outside.effect(state["step"])
            number = await caravanserai.acheckpoint(run_id, state, note(state["step"]))
            outside.acknowledged(state["step"], number)
        return "done"

    return asyncio.run(work(run_id, {"step": 0}))


def keyed(run_id: str, steps: int, outside: Outside) -> Any:
    """The rounds that are done are the keys of a dict: numbers, not texts."""

    @caravanserai.resumable
    def work(run_id: str, done: dict[int, str]) -> int:
        for step in range(1, steps + 1):
            if step not in done:
                outside.effect(step)
                done[step] = "done"
                number = caravanserai.checkpoint(run_id, done, note(step))
                outside.acknowledged(step, number)
        return len(done)

    return work(run_id, {})


PROGRAMS = {f.__name__: f for f in (small, large, entries, asynchronous, keyed)}


def done(state: Any) -> int:
    """Return how many steps a state says are done."""
    return state["step"] if "step" in state else len(state)


def _serve() -> None:
    # Threads do not survive a fork: nothing here may start one before.
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            code = 1
            try:
                os.chdir(order["folder"])
                os.write(1, b"%d\n" % os.getpid())
                program = PROGRAMS[order["program"]]
                program(order["run_id"], order["steps"], Outside(order["folder"]))
                code = 0
            except BaseException:  # noqa: BLE001 - the end of a child
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        os.write(1, b"exit %d\n" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    _serve()
