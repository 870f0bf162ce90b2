"""Damage, refusals and unexpected errors: the exit code says which, a sentence says where."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caravanserai_core import checkpoint, open_run
from caravanserai_core.stores import FileStore

from .journals import reseal


def journal_of(run_id: str = "demo") -> Path:
    return Path(".caravanserai") / run_id / "journal-1.jsonl"


def make(run_id: str = "demo") -> None:
    for step in range(1, 5):
        checkpoint(run_id, {"step": step}, f"step {step}")


def flip(journal: Path, waypoint: int) -> None:
    """Change one byte of the state of a waypoint."""
    data = journal.read_bytes()
    assert data.count(b'"step":%d' % waypoint) == 1
    journal.write_bytes(data.replace(b'"step":%d' % waypoint, b'"step":9'))


def test_a_damaged_run_is_listed_as_damaged(cli: Callable[..., Any]) -> None:
    """It is not hidden, and the others are listed as always."""
    make("good")
    make("demo")
    with journal_of().open("ab") as file:
        file.write(b"stale bytes " * 90 + b"\n")
    rows = {line.split("\t")[0]: line.split("\t") for line in cli("list").output.splitlines()}
    assert rows["demo"][3] == "damaged"
    assert "byte" in rows["demo"][5]
    assert rows["good"][3] == "stopped"
    listed = json.loads(cli("list", "--json").output)["runs"]
    assert {info["run"]: bool(info["error"]) for info in listed} == {"demo": True, "good": False}


def test_show_of_a_damaged_end_is_exit_code_4(cli: Callable[..., Any]) -> None:
    """The newest waypoint cannot be told; every whole one is still shown by its number."""
    make()
    flip(journal_of(), 4)
    result = cli("show", "demo")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "journal-1.jsonl" in result.stderr
    assert "byte" in result.stderr
    assert "Traceback" not in result.stderr
    whole = cli("show", "demo@3")
    assert whole.exit_code == 0
    assert whole.stdout.startswith("waypoint 3\n")
    assert "damaged" in whole.stderr


def test_log_lists_what_lies_on_both_sides_of_damage(cli: Callable[..., Any]) -> None:
    """Nothing whole is hidden; exit code 4."""
    make()
    flip(journal_of(), 2)
    result = cli("log", "demo")
    assert result.exit_code == 4
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == ["1", "3", "4"]
    assert "damaged" in result.stderr
    assert len(json.loads(cli("log", "demo", "--json").stdout)["damage"]) == 1


@pytest.mark.parametrize("what", ["a link", "a pipe", "a folder", "a copy"])
def test_a_run_that_cannot_be_opened_is_not_left_out(cli: Callable[..., Any], what: str) -> None:
    """A look at all runs tells of each folder that holds a journal, and of which it is."""
    make("good")
    make("demo")
    name = "demo"
    if what == "a copy":
        name = "demo-backup"
        shutil.copytree(journal_of().parent, journal_of(name).parent)
    else:
        journal_of().rename("moved")
        if what == "a link":
            journal_of().symlink_to(Path("moved").absolute())
        elif what == "a pipe":
            os.mkfifo(journal_of())
        else:
            journal_of().mkdir()

    verified = cli("verify")
    assert verified.exit_code == 4
    assert "good: ok" in verified.output
    assert f"{name}: damaged" in verified.output
    rows = {line.split("\t")[0]: line.split("\t") for line in cli("list").output.splitlines()}
    assert rows[name][3] == "damaged"
    assert rows["good"][3] == "stopped"
    if what == "a copy":
        assert rows["demo"][3] == "stopped"


def test_verify_names_file_and_waypoint(cli: Callable[..., Any]) -> None:
    """Exit code 4, all runs checked, the damaged one described."""
    make()
    make("good")
    flip(journal_of(), 3)
    result = cli("verify")
    assert result.exit_code == 4
    assert "good: ok, 4 waypoint(s)" in result.stdout
    assert "demo: damaged" in result.stdout
    assert "journal-1.jsonl, byte" in result.stdout
    assert "waypoint 2)" in result.stdout
    assert cli("verify", "good").exit_code == 0
    report = json.loads(cli("verify", "demo", "--json").stdout)
    assert report["damaged"] is True
    assert report["runs"][0]["findings"][0]["waypoint"] == 2


def test_a_note_edited_by_hand_is_reported_and_no_error(cli: Callable[..., Any]) -> None:
    """The journal has the note as it was; `show` does not write over the edit."""
    make()
    note = Path(".caravanserai/demo/waypoint-2.md")
    note.write_text("# mine\n")
    result = cli("verify", "demo")
    assert result.exit_code == 0
    assert "waypoint-2.md was edited by hand" in result.stdout
    cli("show", "demo")
    assert note.read_text() == "# mine\n"


def test_a_torn_end_is_reported_and_no_error(cli: Callable[..., Any]) -> None:
    """An append that was never acknowledged is not there; the byte count says so in verify."""
    make()
    with journal_of().open("ab") as file:
        file.write(b'{"len":[300,20],"seq":6,"ki')
    assert cli("show", "demo").output.startswith("waypoint 4\n")
    result = cli("verify", "demo")
    assert result.exit_code == 0
    assert "torn: 27 bytes" in result.stdout


def test_a_run_whose_first_line_is_gone_is_verified_under_its_folder(
    cli: Callable[..., Any],
) -> None:
    """Not even its name can be read: it is listed and reported all the same."""
    make("Run One")
    folder = next(Path(".caravanserai").glob("run-one~*"))
    (folder / "journal-1.jsonl").write_bytes(b"garbage\n" * 9)
    assert cli("list").output.split("\t")[3] == "damaged"
    result = cli("verify")
    assert result.exit_code == 4
    assert folder.name in result.stdout
    assert cli("show", "Run One").exit_code == 4


def test_a_newer_format_is_exit_code_4(cli: Callable[..., Any]) -> None:
    """The message says which version is there, and the command that upgrades."""
    make()
    data = journal_of().read_bytes()
    assert b'"format":1' in data
    journal_of().write_bytes(data.replace(b'"format":1', b'"format":2'))
    reseal(journal_of(), lambda tree: tree)
    for args in (["show", "demo"], ["log", "demo"], ["resume", "demo", "--yes"]):
        result = cli(*args)
        assert result.exit_code == 4, args
        assert "format 2" in result.stderr
        assert "pip install --upgrade" in result.stderr
    assert cli("list").output.split("\t")[3] == "damaged"


def test_repair_keeps_what_loads_and_says_what_is_lost(cli: Callable[..., Any]) -> None:
    """One or two sentences, exit code 0; the run goes on, the damaged part stays beside it."""
    make()
    flip(journal_of(), 3)
    damaged = journal_of().read_bytes()

    result = cli("verify", "demo", "--repair", "--yes")

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("demo: repaired. 3 waypoint(s) kept, lost: 3. ")
    aside = list(journal_of().parent.glob("journal-1.damaged-*"))
    assert [path.read_bytes() for path in aside] == [damaged]
    assert aside[0].name in result.stdout
    assert cli("verify", "demo").exit_code == 0
    assert [line.split("\t")[0] for line in cli("log", "demo").stdout.splitlines()] == [
        "1",
        "2",
        "4",
    ]
    assert checkpoint("demo", {"went": "on"}) == 5


def test_repair_as_json(cli: Callable[..., Any]) -> None:
    """The same as one document; a run that is whole is not changed."""
    make()
    before = journal_of().read_bytes()
    whole = json.loads(cli("verify", "demo", "--repair", "--json").stdout)
    assert (whole["repaired"], whole["lost"], whole["aside"]) == (False, [], [])
    assert journal_of().read_bytes() == before
    assert "nothing to repair" in cli("verify", "demo", "--repair").stdout

    flip(journal_of(), 3)
    found = json.loads(cli("verify", "demo", "--repair", "--yes", "--json").stdout)

    assert found["repaired"] is True
    assert (found["run"], found["kept"], found["lost"]) == ("demo", [1, 2, 4], [3])
    assert len(found["aside"]) == 1


def test_repair_asks(cli: Callable[..., Any], terminal: Callable[..., Any]) -> None:
    """Without a terminal it is refused; on one, no is no and yes is yes."""
    make()
    flip(journal_of(), 3)
    before = journal_of().read_bytes()

    for args in (["verify", "demo", "--repair"], ["verify", "--repair", "--yes"]):
        assert cli(*args).exit_code == 2, args
    assert cli("verify", "dem", "--repair", "--yes").exit_code == 3
    assert terminal("verify", "demo", "--repair", typed="n\n").code == 1
    assert journal_of().read_bytes() == before
    shown = terminal("verify", "demo", "--repair", typed="y\n")
    assert shown.code == 0
    assert "damage:" in shown.text
    assert cli("verify", "demo").exit_code == 0


def test_an_unexpected_error_is_a_sentence_unless_debug(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A traceback comes with --debug only."""

    def broken(self: FileStore) -> None:
        raise ZeroDivisionError("ouch \x1b[2J")

    monkeypatch.setattr(FileStore, "listing", broken)
    result = cli("list")
    assert result.exit_code == 1
    assert "ZeroDivisionError: ouch \\x1b[2J" in result.stderr
    assert "--debug" in result.stderr
    assert isinstance(cli("--debug", "list").exception, ZeroDivisionError)


def test_debug_prints_a_traceback(process: Callable[..., Any]) -> None:
    """For a known error as well; the option may stand before and behind the verb."""
    for args in (["--debug", "show", "nope"], ["show", "nope", "--debug"]):
        done = process(*args)
        assert "Traceback" in done.stderr
        assert "RunNotFound" in done.stderr
    for verb in ("list", "log", "diff", "resume", "verify", "clean", "completion", "demo"):
        assert "--debug" in process(verb, "--help").stdout


def test_verify_of_a_store_that_is_not_there_is_exit_code_3(cli: Callable[..., Any]) -> None:
    """Nothing was checked, which must not look as if all were well."""
    result = cli("verify", "--store", "nowhere")
    assert (result.exit_code, result.stdout) == (3, "")
    assert f"no store at {Path.cwd()}/nowhere" in result.stderr


@pytest.mark.parametrize("args", [["list"], ["verify"], ["show", "demo"]])
def test_a_store_that_is_a_file_is_refused(cli: Callable[..., Any], args: list[str]) -> None:
    """A sentence that names it, exit code 1."""
    Path("store").write_text("x")
    result = cli(*args, "--store", "store")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{Path.cwd()}/store" in result.stderr


_AS_NOBODY = """
import os, sys
from caravanserai_core.cli import app
os.setgid(65534); os.setuid(65534)
app(sys.argv[1:], prog_name="caravanserai")
"""


def as_another_user(*args: str) -> subprocess.CompletedProcess[str]:
    """Run a verb as a user without rights here; as root that needs a change of the user."""
    if os.geteuid() == 0:
        command = [sys.executable, "-c", _AS_NOBODY, *args]
    else:
        command = [sys.executable, "-m", "caravanserai_core.cli", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def reachable(tmp_path: Path) -> Path:
    """A folder that another user can get to."""
    for folder in [tmp_path, *tmp_path.parents]:
        try:
            if not folder.stat().st_mode & 0o001:
                folder.chmod(folder.stat().st_mode | 0o011)
        except PermissionError:
            pytest.skip(f"{folder} cannot be opened for another user")
    return tmp_path


@pytest.mark.parametrize("args", [["list"], ["show", "demo"], ["log", "demo"], ["verify"]])
def test_a_folder_that_cannot_be_read_is_named_with_errno(reachable: Path, args: list[str]) -> None:
    """Path, reason and number, not "unknown"."""
    make()
    store = reachable / ".caravanserai"
    store.chmod(0o000)
    try:
        done = as_another_user("--store", str(store), *args)
    finally:
        store.chmod(0o700)
    assert done.returncode == 1
    assert str(store) in done.stderr
    assert "errno 13" in done.stderr.lower() or "[errno 13]" in done.stderr.lower(), done.stderr
    assert "Traceback" not in done.stderr


def test_show_in_a_store_that_cannot_be_written(cli: Callable[..., Any]) -> None:
    """Reading needs no right to write, also where a note is missing beside the journal."""
    make()
    folder = Path(".caravanserai/demo")
    (folder / "waypoint-1.md").unlink()
    code = (
        "import sys, caravanserai_core.stores._file as f\n"
        "def refuse(*a, **k): raise PermissionError(13, 'no')\n"
        "f.FileStore.put_note = refuse\n"
        "from caravanserai_core.cli import app\napp(['show', 'demo'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("waypoint 4\n")
    assert done.stderr == ""
    assert not (folder / "waypoint-1.md").exists()


def test_a_run_of_another_adapter_with_only_side_lanes(cli: Callable[..., Any]) -> None:
    """Where the main lane has no waypoint, the newest of any lane is shown."""
    with open_run("demo") as run:
        run.checkpoint({"n": 1}, "one", lane="a")
        run.checkpoint({"n": 2}, "two", lane="b")
    assert cli("show", "demo").output.startswith("waypoint 2\n\ntwo\n")
