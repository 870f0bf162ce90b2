"""`examples/crewai_report.py`, as its head tells it: killed in a tool, gone on, finished."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from integration_tests.support import ROOT, require

require("crewai")

EXAMPLE = ROOT / "examples" / "crewai_report.py"

RESULT = "City bees give 29.6 kg of honey per hive."


def run(folder: Path, *words: str) -> tuple[int, list[str]]:
    """Start the example as a person does; returns its exit code and what it printed."""
    places = {"HOME": str(folder / "home"), "CREWAI_STORAGE_DIR": str(folder / "storage")}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *words],
        cwd=folder,
        env={**os.environ, **places, "CREWAI_TESTING": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode, done.stdout.splitlines()


def test_killed_once_and_gone_on(tmp_path: Path) -> None:
    """Nothing is asked or done twice but the tool that was killed in its middle."""
    code, first = run(tmp_path)
    assert code == -signal.SIGKILL
    assert first == [
        "model asked, with 0 results of tools",
        "tool: lookup hives",
        "model asked, with 1 results of tools",
        "model asked, with 0 results of tools",
        "tool: lookup honey yield",
        "kill -9, in the middle of a tool. Start me again.",
    ]
    code, second = run(tmp_path)
    assert (code, second) == (
        0,
        [
            "tool: lookup honey yield",
            "model asked, with 1 results of tools",
            "model asked, with 0 results of tools",
            RESULT,
        ],
    )
    assert run(tmp_path) == (0, [RESULT]), "finished, it gives what it came to"


def test_calm(tmp_path: Path) -> None:
    code, printed = run(tmp_path, "--calm")
    assert code == 0
    assert printed[-1] == RESULT
    assert sum(line.startswith("tool:") for line in printed) == 2
