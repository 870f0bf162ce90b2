"""resume: what was recorded is shown, asked for, and started without a shell."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caravanserai_core import history, load, open_run
from caravanserai_core.cli._resume import _script
from caravanserai_core.cli._shell import quote

from .journals import reseal

PROGRAM = """
import sys, os
from caravanserai_core import resumable, checkpoint, open_run

mode = sys.argv[1] if len(sys.argv) > 1 else ""
with open_run("demo") as run:
    step = (run.state or {"step": 0})["step"] + 1
    run.checkpoint({"step": step, "folder": os.getcwd(), "args": sys.argv[1:]}, f"step {step}")
    if mode == "finish":
        run.finish(None)
print("step", step, flush=True)
sys.exit(7 if step > 1 else 0)
"""


def begin(folder: Path, *args: str) -> None:
    """Start the program in a folder; its run is left there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "my program.py").write_text(PROGRAM)
    subprocess.run([sys.executable, "my program.py", *args], cwd=folder, check=True)


def test_starts_the_recorded_command_and_ends_with_its_exit_code(
    process: Callable[..., Any], tmp_path: Path
) -> None:
    """With --yes: one line that says what is started, then the program's own output and code."""
    begin(tmp_path, "a b", "$HOME", "*")
    done = process("resume", "demo", "--yes")
    command = shlex.join([sys.executable, "my program.py", "a b", "$HOME", "*"])
    assert done.stdout == f"resuming: {command}\nstep 2\n"
    assert done.returncode == 7
    assert "'args': ['a b', '$HOME', '*']" in process("show", "demo").stdout


def test_a_run_keeps_all_that_it_had_when_it_is_resumed(
    process: Callable[..., Any], tmp_path: Path
) -> None:
    """52 waypoints: shown, loaded, resumed; not one byte of them differs, and one is added."""
    begin(tmp_path)
    with open_run("demo") as run:
        for step in range(2, 53):
            run.checkpoint({"step": step, "text": "x" * 3000}, f"step {step}")
    folder = tmp_path / ".caravanserai/demo"
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "lease"}
    assert load("demo", at=40)["step"] == 40

    assert process("show", "demo@7").returncode == 0
    assert process("resume", "demo", "--yes").stdout.endswith("\nstep 53\n")

    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    journal = "journal-1.jsonl"
    assert after[journal].startswith(before[journal])
    notes = {name for name in before if name.startswith("waypoint-")}
    assert len(notes) == 52
    assert {name: after[name] for name in notes} == {name: before[name] for name in notes}
    assert [point.number for point in history("demo")] == list(range(1, 54))


def test_is_refused_without_a_terminal(process: Callable[..., Any], tmp_path: Path) -> None:
    """Nobody can be asked: nothing is started, the command is shown, and what to add."""
    begin(tmp_path)
    done = process("resume", "demo")
    assert (done.returncode, done.stdout) == (2, "")
    assert "my program.py" in done.stderr
    assert "--yes" in done.stderr
    assert "waypoint 1" in process("show", "demo").stdout


def test_asks_on_a_terminal(terminal: Callable[..., Any], tmp_path: Path) -> None:
    """No: nothing is started. Yes: it is."""
    begin(tmp_path)
    refused = terminal("resume", "demo", typed="n\n")
    assert refused.code == 1
    assert "my program.py" in refused.text
    assert "resuming" not in refused.text
    started = terminal("resume", "demo", typed="y\n")
    assert started.code == 7
    assert "step 2" in started.text


def test_an_earlier_waypoint_cannot_be_resumed(process: Callable[..., Any], tmp_path: Path) -> None:
    """The program would go on from the newest one; how to look at the other is said."""
    begin(tmp_path)
    done = process("resume", "demo@1", "--yes")
    assert (done.returncode, done.stdout) == (2, "")
    assert "newest waypoint" in done.stderr
    assert "show demo@1" in done.stderr
    assert "waypoint 1\n" in process("show", "demo").stdout


def test_a_finished_run_is_not_started(process: Callable[..., Any], tmp_path: Path) -> None:
    """There is nothing to do: exit code 0, no question, no program."""
    begin(tmp_path, "finish")
    done = process("resume", "demo")
    assert (done.returncode, done.stdout) == (0, "finished, nothing to do\n")
    assert process("resume", "demo", "--yes").stdout == "finished, nothing to do\n"
    assert "waypoint 1" in process("show", "demo").stdout


@pytest.mark.parametrize(
    "name", ["with space", 'it\'s "q" $(touch x) `y` ;&', "ünï\tcode\n\x1b[2J"]
)
def test_the_printed_command_can_be_pasted(
    process: Callable[..., Any], tmp_path: Path, name: str
) -> None:
    """From another folder a `cd` stands before it; in a shell it goes exactly there."""
    folder = tmp_path / name
    begin(folder)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    store = str(folder / ".caravanserai")
    done = process("--store", store, "resume", "demo", "--yes", cwd=elsewhere)
    assert done.returncode == 7
    command = done.stdout.splitlines()[0].removeprefix("resuming: ")
    assert command.startswith("cd ")
    assert "\x1b" not in command
    pasted = subprocess.run(
        [shutil.which("bash") or "sh", "-c", command],
        cwd=elsewhere,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (pasted.returncode, pasted.stdout) == (7, "step 3\n"), pasted.stderr
    shown = process("--store", store, "show", "demo").stdout
    assert f"'folder': {str(folder)!r}" in shown
    assert not (elsewhere / "x").exists()
    assert not (elsewhere / ".caravanserai").exists()


def test_quoted_words_come_back_as_they_were() -> None:
    """Every byte but NUL, through a real shell."""
    words = ["", "plain", "a b", "'", '"', "\\", "$x`y`!", "\t\n\r\x1b\x7f", "\x9b", "\u202e7",
             "\udcff", "\x1b'\\7", "-n", "~", "*"]  # fmt: skip
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    script = "printf '%s\\0' " + " ".join(quote(word) for word in words)
    done = subprocess.run([bash, "-c", script], capture_output=True, check=True)
    assert [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]] == words


def test_a_run_in_another_store_is_found_by_its_program(
    process: Callable[..., Any], tmp_path: Path
) -> None:
    """The program opens the store that --store named, not a new one where it stands."""
    work, moved = tmp_path / "work", tmp_path / "moved"
    begin(work)
    (work / ".caravanserai").rename(moved)
    done = process("--store", str(moved), "resume", "demo", "--yes", cwd=tmp_path)
    assert "step 2" in done.stdout
    assert f"CARAVANSERAI_STORE={moved}" in done.stdout
    assert not (work / ".caravanserai").exists()


def test_a_moved_project_is_resumed_with_folder(
    process: Callable[..., Any], tmp_path: Path
) -> None:
    """The recorded folder is gone: exit code 3 and what to do; --folder goes on."""
    begin(tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "new")
    new = tmp_path / "new"
    refused = process("resume", "demo", "--yes", cwd=new)
    assert refused.returncode == 3
    assert "--folder" in refused.stderr
    done = process("resume", "demo", "--yes", "--folder", ".", cwd=new)
    assert done.returncode == 7
    assert "step 2" in done.stdout


def test_a_program_that_is_gone_is_exit_code_3(process: Callable[..., Any], tmp_path: Path) -> None:
    """A supervisor can tell it from a failure: it will not help to try again."""
    begin(tmp_path)
    (tmp_path / "my program.py").unlink()
    done = process("resume", "demo", "--yes")
    assert (done.returncode, done.stdout) == (3, "")
    assert "my program.py" in done.stderr


def test_a_command_that_was_edited_is_shown_and_not_started(
    process: Callable[..., Any], terminal: Callable[..., Any], tmp_path: Path
) -> None:
    """A journal whose chain was sealed again around another command: still only shown."""
    begin(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("here")
    reseal(
        tmp_path / ".caravanserai/demo/journal-1.jsonl",
        lambda data: {**data, "argv": ["/bin/rm", "-rf", "\x1b[2J", str(victim)]},
    )
    assert process("verify", "demo").returncode == 0  # no attacker is found by a sum
    done = process("resume", "demo")
    assert done.returncode == 2
    assert f"/bin/rm -rf $'\\033[2J' {victim}" in done.stderr
    shown = terminal("resume", "demo", typed="n\n")
    assert shown.code == 1
    assert "/bin/rm -rf" in shown.text
    assert victim.exists()


def test_a_missing_interpreter_is_exit_code_3(process: Callable[..., Any], tmp_path: Path) -> None:
    """The recorded program itself is not there."""
    begin(tmp_path)
    journal = tmp_path / ".caravanserai/demo/journal-1.jsonl"
    reseal(journal, lambda data: {**data, "argv": ["/no/such/program", "x"]})
    done = process("resume", "demo", "--yes")
    assert done.returncode == 3
    assert "/no/such/program" in done.stderr
    reseal(journal, lambda data: {**data, "argv": []})
    assert process("resume", "demo", "--yes").returncode == 3


def test_a_program_that_was_typed_in_cannot_be_started(
    process: Callable[..., Any], tmp_path: Path
) -> None:
    """Python would read the standard input, do nothing, and end with 0."""
    begin(tmp_path)
    journal = tmp_path / ".caravanserai/demo/journal-1.jsonl"
    for argv in ([sys.executable, "-"], [sys.executable]):
        reseal(journal, lambda data, argv=argv: {**data, "argv": argv})
        done = process("resume", "demo", "--yes")
        assert (done.returncode, done.stdout) == (3, "")
        assert "standard input" in done.stderr


@pytest.mark.parametrize(
    ("argv", "script"),
    [
        (["python", "a.py", "b.py"], "a.py"),
        (["/x/python3.11", "-u", "-W", "error", "-X", "dev", "a.py"], "a.py"),
        (["python3", "-Werror", "-Xdev", "-OO", "a.py"], "a.py"),
        (["python", "-m", "mod", "a.py"], None),
        (["python", "-c", "print()", "a.py"], None),
        (["python", "-um", "mod"], None),
        (["python"], "-"),
        (["python", "-u", "-", "a.py"], "-"),
        (["node", "a.js"], None),
    ],
)
def test_the_script_of_a_python_command(argv: list[str], script: str | None) -> None:
    """Options and their values are skipped; -c and -m have no script, "-" is standard input."""
    assert _script(argv) == script
