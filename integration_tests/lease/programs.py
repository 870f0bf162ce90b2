"""Programs that hold a run, each a process of its own; what they did stands in files.

Forked from a process that has imported everything, so that a new one costs milliseconds. A program
tells how far it is by files of its folder, and waits for files: nothing is left to luck.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import caravanserai

PATIENCE = 20.0


def tell(name: str, text: str = "") -> None:
    """Leave a file, whole as soon as it is there."""
    Path(f".{name}").write_text(text)
    os.rename(f".{name}", name)


def wait(name: str) -> str:
    """Wait for a file that another process leaves, and return what is in it."""
    end = time.monotonic() + PATIENCE
    while not os.path.exists(name):
        assert time.monotonic() < end, f"{name} never came"
        time.sleep(0.002)
    return Path(name).read_text()


def effect(text: str) -> None:
    """Do something outside the store."""
    fd = os.open("effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, f"{text}\n".encode())
    os.close(fd)


def effects() -> list[str]:
    """Return what was done outside the store."""
    return Path("effects").read_text().split() if os.path.exists("effects") else []


class Child:
    """A forked process that runs a function; its error is in its own file."""

    def __init__(self, work: Callable[..., Any], *args: Any) -> None:
        self.pid = os.fork()
        if not self.pid:
            code = 1
            try:
                work(*args)
                code = 0
            except caravanserai.RunBusy as busy:
                told = {"host": busy.host, "pid": busy.pid, "since": busy.since, "text": str(busy)}
                tell(f"busy-{os.getpid()}", json.dumps(told))
                code = 5
            except BaseException as error:  # noqa: BLE001 - the end of a child
                tell(f"error-{os.getpid()}", f"{type(error).__name__}: {error}")
            finally:
                os._exit(code)

    def end(self) -> int:
        """Wait for its end, and return its exit code."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    @property
    def busy(self) -> dict[str, Any]:
        """What it was told by `RunBusy`."""
        told: dict[str, Any] = json.loads(Path(f"busy-{self.pid}").read_text())
        return told

    @property
    def error(self) -> str:
        """What else it raised."""
        path = Path(f"error-{self.pid}")
        return path.read_text() if path.exists() else ""


@contextmanager
def child(work: Callable[..., Any], *args: Any) -> Iterator[Child]:
    """Run a function in a process that does not outlive the block."""
    started = Child(work, *args)
    try:
        yield started
    finally:
        try:
            os.kill(started.pid, 9)
            os.waitpid(started.pid, 0)
        except (ChildProcessError, ProcessLookupError):
            pass  # it has ended


def hold(name: str = "held", run_id: str = "run") -> None:
    """Hold a run, say so, write a waypoint, and go on when told to."""
    with caravanserai.open_run(run_id) as run:
        run.checkpoint({"by": name}, f"{name} began")
        tell(name, str(os.getpid()))
        wait(f"{name}-go")
        run.checkpoint({"by": name, "n": 2}, f"{name} goes on")
        effect(name)


def job(name: str, run_id: str = "run") -> None:
    """Do the job of a run, whose effect is to be done once."""

    @caravanserai.resumable
    def work(run_id: str, state: dict[str, Any]) -> str:
        tell(name, str(os.getpid()))
        effect(name)
        caravanserai.checkpoint(run_id, {"by": name}, f"{name} works")
        wait("go")
        return name

    tell(f"{name}-result", work(run_id, {}))
