"""New processes in milliseconds: a process that has imported everything forks one for each job.

Run as a module it is that process; `Preloaded` starts it and gives it jobs. A job is a function
of a module, with arguments that JSON can hold. Its child has a folder and an output of its own,
and is killed with SIGKILL after a time, if one is given.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple, Self

from integration_tests.support import ROOT


class Ended(NamedTuple):
    """How a child ended.

    Attributes:
        code: its exit code; minus the number of the signal that ended it.
        out: what it printed, on both streams.
        seconds: how long it lived.
    """

    code: int
    out: str
    seconds: float

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Preloaded:
    """A process with modules imported; a context manager.

    Args:
        modules: what it imports before it forks. Importing them may start no thread.
    """

    def __init__(self, *modules: str) -> None:
        path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "integration_tests.preloaded", *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()

    def run(self, call: str, *args: Any, folder: Path, kill_after: float | None = None) -> Ended:
        """Run `module:function` in a new process and wait for its end.

        Args:
            call: the function; its result is the exit code, None is 0.
            args: for it.
            folder: the child's working folder.
            kill_after: seconds from its start to SIGKILL; None: it ends by itself.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        out = folder / "out.txt"
        order = {"call": call, "args": args, "folder": str(folder), "kill_after": kill_after}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the process that forks is gone"
        code, seconds = json.loads(line)
        return Ended(code, out.read_text(encoding="utf-8"), seconds)


def _child(order: dict[str, Any]) -> None:
    code = 1
    try:
        os.chdir(order["folder"])
        out = os.open("out.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        module, _, name = order["call"].partition(":")
        code = getattr(sys.modules[module], name)(*order["args"]) or 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:  # noqa: BLE001 - the end of a child
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve() -> None:
    for name in sys.argv[1:]:
        importlib.import_module(name)
    assert threading.active_count() == 1, "threads do not survive a fork"
    # Held back, so that `sigtimedwait` below finds it, whenever it came.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    for line in sys.stdin:
        order = json.loads(line)
        begin = time.monotonic()
        child = os.fork()
        if not child:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            _child(order)
        if order["kill_after"] is None:
            signal.sigwait({signal.SIGCHLD})
        elif signal.sigtimedwait({signal.SIGCHLD}, order["kill_after"]) is None:
            os.kill(child, signal.SIGKILL)
            signal.sigwait({signal.SIGCHLD})
        _, status = os.waitpid(child, 0)
        ended = [os.waitstatus_to_exitcode(status), time.monotonic() - begin]
        os.write(1, json.dumps(ended).encode() + b"\n")


if __name__ == "__main__":
    _serve()
