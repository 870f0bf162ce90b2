"""What the tests of the command line share."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from caravanserai_core.cli import app

COMMAND = [sys.executable, "-m", "caravanserai_core.cli"]


@pytest.fixture
def cli() -> Callable[..., Result]:
    """Run the command line in this process, piped: `cli("show", "demo")`."""

    def call(*args: str) -> Result:
        return CliRunner().invoke(app, list(args), prog_name="caravanserai")

    return call


@pytest.fixture
def process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command line as a process of its own, without a terminal."""

    def call(*args: str, **options: object) -> subprocess.CompletedProcess[str]:
        given = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": 60, **options}
        return subprocess.run([*COMMAND, *args], text=True, **given)  # type: ignore[call-overload]

    return call


class Terminal:
    """What a command did on a terminal.

    Attributes:
        code: its exit code.
        output: all that reached the terminal, bytes as they came.
    """

    def __init__(self, code: int, output: bytes) -> None:
        self.code = code
        self.output = output

    @property
    def text(self) -> str:
        return self.output.decode().replace("\r\n", "\n")


@pytest.fixture
def terminal() -> Callable[..., Terminal]:
    """Run the command line on a pseudo-terminal; `typed` is the answer to its question."""

    def call(*args: str, typed: str = "", cwd: Path | None = None, **env: str) -> Terminal:
        parent, child = pty.openpty()
        running = subprocess.Popen(
            [*COMMAND, *args],
            stdin=child,
            stdout=child,
            stderr=child,
            cwd=cwd,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **env},
            start_new_session=True,
        )
        os.close(child)
        output = b""
        deadline = time.monotonic() + 60
        try:
            while time.monotonic() < deadline:
                if typed and b"[y/N]" in output:
                    os.write(parent, typed.encode())
                    typed = ""
                if not select.select([parent], [], [], 0.1)[0]:
                    continue
                try:
                    data = os.read(parent, 65536)
                except OSError:  # the other end is closed: the command is done
                    break
                if not data:
                    break
                output += data
        finally:
            os.close(parent)
        return Terminal(running.wait(60), output)

    return call
