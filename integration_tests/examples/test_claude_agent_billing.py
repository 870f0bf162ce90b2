"""`examples/claude_agent_billing.py`, as its head tells it: killed, asked about, gone on, done."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from integration_tests.support import ROOT, require

require("claude_agent_sdk")

EXAMPLE = ROOT / "examples" / "claude_agent_billing.py"

RESULT = "All four customers are charged."
ALL = [f"customer {number}" for number in (1, 2, 3, 4)]


def environment(folder: Path) -> dict[str, str]:
    """Return what the example finds in its environment; the real API is named there, too."""
    places = {"HOME": folder / "home", "TMPDIR": folder / "tmp"}
    for place in places.values():
        place.mkdir(exist_ok=True)
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")]),
        # Discarded by the operating system: whoever used it would be told that nobody is there.
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
        "ANTHROPIC_API_KEY": "the key of the one who tries the example",
        **{name: str(place) for name, place in places.items()},
    }


def run(folder: Path, *words: str) -> tuple[int, list[str]]:
    """Start the example as a person does; returns its exit code and what it printed."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *words],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode, done.stdout.splitlines()


def said_on_the_command_line(folder: Path, command: str) -> None:
    words = shlex.split(command)
    assert words[:2] == ["caravanserai", "answer"]
    subprocess.run(
        [sys.executable, "-m", "caravanserai_core.cli", *words[1:]],
        cwd=folder,
        env=environment(folder),
        check=True,
        capture_output=True,
    )


def charges(folder: Path) -> list[str]:
    return (folder / "charges.txt").read_text().splitlines()


def orphans(folder: Path) -> list[psutil.Process]:
    """Return the processes of the CLI that were begun for a test."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME", "").startswith(str(folder)):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_killed_once_asked_about_and_gone_on(tmp_path: Path) -> None:
    """The charge that nobody was told of is asked about, and no customer is charged twice."""
    code, first = run(tmp_path)
    assert code == -signal.SIGKILL
    assert first == [
        "model asked, with 0 results of tools",
        "tool: charge customer 1",
        "model asked, with 1 results of tools",
        "tool: charge customer 2",
        "model asked, with 2 results of tools",
        "tool: charge customer 3",
        "kill -9, before anybody was told of that charge. Start me again.",
    ]
    code, second = run(tmp_path)
    assert code == 0
    assert second[:2] == [
        "model asked, with 3 results of tools",
        "waits for you: did mcp__pay__charge({'customer': 3}) happen? Look, then:",
    ]
    assert charges(tmp_path) == ALL[:3]
    assert orphans(tmp_path) == [], "nobody works on the session while it waits"
    # A further start asks no model, and says the same.
    assert run(tmp_path) == (0, second[1:])

    command = second[2]
    assert command in EXAMPLE.read_text(encoding="utf-8")
    said_on_the_command_line(tmp_path, command)
    assert run(tmp_path) == (
        0,
        [
            "model asked, with 4 results of tools",
            "tool: charge customer 4",
            "model asked, with 5 results of tools",
            RESULT,
        ],
    )
    assert charges(tmp_path) == ALL
    assert run(tmp_path) == (0, [RESULT]), "finished, it gives what it came to"
    assert not (tmp_path / "home" / ".claude").exists()


def test_calm(tmp_path: Path) -> None:
    code, printed = run(tmp_path, "--calm")
    assert code == 0
    assert printed[-1] == RESULT
    assert charges(tmp_path) == ALL
    assert not re.search("waits|kill", "\n".join(printed))
