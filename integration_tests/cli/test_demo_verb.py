"""`caravanserai demo`: killed in the middle, and nothing finished is done again."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caravanserai_core.cli._app import Session


def test_demo_shows_a_kill_and_a_resume(process: Callable[..., Any]) -> None:
    """The dead process's note, the second start, the counts, the honest word, and where to look."""
    begin = time.monotonic()
    done = process("demo")
    assert time.monotonic() - begin < 10
    assert (done.returncode, done.stderr) == (0, "")
    text = done.stdout
    run_id = re.search(r"caravanserai_core.cli show (demo-[0-9a-f]{4})", text)
    assert run_id is not None
    before, after = text.split("The same command again:")
    assert re.findall(r"\[(\d)/5\]", before) == ["1", "2", "3", "4"]
    assert re.findall(r"\[(\d)/5\]", after) == ["4", "5"]
    assert "# Waypoint 3 — " in before
    assert "Since then: the answer to Dora is being sent." in before
    assert "Ada 1, Bela 1, Chen 1, Dora 2, Emil 1" in after
    assert "Finished steps that ran again: 0." in after
    assert "only the one in flight" in after
    assert Path(".caravanserai", run_id[1], "waypoint-5.md").exists()
    assert "the run finished" in process("show", run_id[1]).stdout
    assert process("resume", run_id[1]).stdout == "finished, nothing to do\n"


def test_demo_says_what_to_type_as_it_was_called(tmp_path: Path) -> None:
    """Started by a path and with --store, its next commands are, too; each of them works."""
    program = tmp_path / "my bin" / "caravanserai"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nfrom caravanserai_core.cli import main\nmain()\n", encoding="utf-8"
    )
    program.chmod(0o755)
    command = [os.path.join("my bin", "caravanserai"), "demo", "--store", "my store"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = re.findall(r"^    ('my bin/caravanserai' .*?)  ", text, re.MULTILINE)
    assert [line.split(" --store 'my store' ")[1].split()[0] for line in lines] == [
        "show", "log", "clean",
    ]  # fmt: skip
    for line in lines:
        subprocess.run(shlex.split(line), capture_output=True, check=True)


@pytest.mark.parametrize(
    ("called", "words"),
    [
        ("caravanserai", "caravanserai"),
        (".venv/bin/caravanserai", ".venv/bin/caravanserai"),
        ("/found/caravanserai", "caravanserai"),
        ("/else where/caravanserai", "'/else where/caravanserai'"),
        ("/some/tests/runner.py", "caravanserai"),
    ],
)
def test_the_name_of_the_program(monkeypatch: pytest.MonkeyPatch, called: str, words: str) -> None:
    """A path as it was typed; the bare name where the shell finds the same program by it."""
    monkeypatch.setattr("shutil.which", lambda name: f"/found/{name}")
    monkeypatch.setattr(sys, "argv", [called])
    session = Session()
    assert session.called == words
    session.address = "my store"
    assert session.called == f"{words} --store 'my store'"


def test_demo_touches_no_other_run(process: Callable[..., Any]) -> None:
    """It takes a new name each time; what was there stays."""
    assert process("demo").returncode == 0
    first = sorted(path.name for path in Path(".caravanserai").iterdir())
    assert process("demo", "--store", ".caravanserai").returncode == 0
    second = sorted(path.name for path in Path(".caravanserai").iterdir())
    assert set(first) < set(second)
    assert sorted(path.name for path in Path.cwd().iterdir()) == [".caravanserai"]
