"""`examples/demo.py`: the transcript that the README prints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from integration_tests.support import ROOT

DEMO = [sys.executable, str(ROOT / "examples" / "demo.py")]
WORK = [f"[{n}/5] doing work..." for n in range(1, 6)]
GOODBYE = "crashed/killed mid-task. run me again — I'll resume, not restart."


def start(pause: float) -> subprocess.Popen[str]:
    env = {**os.environ, "DEMO_PAUSE": str(pause), "PYTHONUTF8": "1"}
    return subprocess.Popen(
        DEMO, env=env, text=True, encoding="utf-8", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def run() -> tuple[int, str]:
    process = start(0)
    out, _ = process.communicate(timeout=60)
    return process.returncode, out


def stop_after(step: int, how: signal.Signals) -> tuple[int, str]:
    """Start the demo and send it a signal once waypoint `step` lies on the disk.

    It pauses for a minute after each step, so this is the only step that this start makes.
    """
    process = start(60)
    note = Path(".caravanserai/demo", f"waypoint-{step}.md")
    deadline = time.monotonic() + 30
    while not note.exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(how)
    out, _ = process.communicate(timeout=60)
    return process.returncode, out


def test_ctrl_c_after_three_steps_and_again_gives_the_transcript() -> None:
    """^C after step three says how to go on; the next start does steps four and five."""
    process = start(1)
    while not Path(".caravanserai/demo/waypoint-3.md").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out == "\n".join([*WORK[:3], "", GOODBYE, ""])
    assert process.returncode == 130
    assert run() == (0, "\n".join([*WORK[3:], "done.", ""]))
    assert run() == (0, "done.\n")
    shown = subprocess.run(
        [sys.executable, "-m", "caravanserai_core.cli", "show", "demo"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.startswith("waypoint 5\n\nfinished step 5/5\n\nstate: {'step': 5}\n")


def test_killed_after_every_step_each_step_is_done_once() -> None:
    """SIGKILL after each waypoint: the next start begins with the step after it."""
    printed: list[str] = []
    for step in range(1, 6):
        code, out = stop_after(step, signal.SIGKILL)
        assert code == -signal.SIGKILL
        printed += out.splitlines()
    assert printed == WORK
    assert run() == (0, "done.\n")


def test_the_note_is_the_one_the_readme_shows() -> None:
    """A plain note is its title, an empty line and the text, nothing else."""
    assert run()[0] == 0
    lines = Path(".caravanserai/demo/waypoint-3.md").read_text(encoding="utf-8").split("\n")
    assert lines[0].startswith("# Waypoint 3 — ")
    assert lines[1:] == ["", "finished step 3/5", ""]
