"""What the command line says where a newcomer goes wrong, and that it says it in its own words."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caravanserai import (
    RunBusy,
    WaitingForPerson,
    WaypointNotFound,
    answer,
    checkpoint,
    fork,
    load,
    open_run,
    pin,
    prune,
)
from caravanserai_core.stores.owners import Holder, busy_error

from .test_trouble import flip, journal_of, make

Cli = Callable[..., Any]


def test_two_answers_at_once_are_none(cli: Cli, store_dir: Path) -> None:
    """Neither is recorded, whichever stands last."""
    with pytest.raises(WaitingForPerson), open_run("run") as run:
        run.ask("Pay?", options=[True, False])
    before = (store_dir / "run/journal-1.jsonl").read_bytes()

    for flags in (("--approve", "--reject"), ("--reject", "--approve")):
        result = cli("answer", "run", *flags)
        assert (result.exit_code, "one" in result.stderr) == (2, True)

    assert (store_dir / "run/journal-1.jsonl").read_bytes() == before
    assert cli("answer", "run", "--reject").exit_code == 0
    with open_run("run") as run:
        assert run.ask("Pay?", options=[True, False]) is False


def test_a_missing_library_is_named_with_the_command_that_brings_it(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as something that should not happen."""
    from caravanserai_core.cli import _copy

    def copy_runs(*_: object, **__: object) -> Any:
        raise ImportError('it needs another library: pip install "caravanserai[langgraph]" more')

    monkeypatch.setattr(_copy, "copy_runs", copy_runs)
    result = cli("copy", "--from", "sqlite:///threads.db", "--to", "copies")

    assert result.exit_code == 1
    assert result.stderr == (
        'Error: it needs another library: pip install "caravanserai[langgraph]" more\n'
    )


def test_the_form_of_a_sqlite_address_is_shown(cli: Cli) -> None:
    """Two slashes are what one would think of first."""
    result = cli("copy", "--from", "sqlite://threads.db", "--to", "copies")

    assert result.exit_code == 2
    assert "sqlite:///threads.db" in result.stderr


def test_prune_names_its_options(cli: Cli) -> None:
    checkpoint("run", 1)
    result = cli("prune", "run")

    assert (result.exit_code, "keep=" in result.stderr) == (2, False)
    assert "--keep, --older-than" in result.stderr


def test_copy_offers_no_name_that_it_does_not_take(cli: Cli, tmp_path: Path) -> None:
    checkpoint("run", 1)
    assert cli("copy", "--to", str(tmp_path / "two")).exit_code == 0
    assert cli("copy", "--to", str(tmp_path / "two")).stdout == (
        "copied run before, and it is the same: 1 waypoints\n"
    )
    assert load("run", store=tmp_path / "two") == 1

    checkpoint("run", 2)
    again = cli("copy", "--to", str(tmp_path / "two"))

    assert again.exit_code == 2
    assert "exists already" in again.stderr
    assert "another name" not in again.stderr


def test_a_pruned_waypoint_was_removed(cli: Cli) -> None:
    """It is not unknown; one beyond the newest is, and one before the beginning of a fork."""
    for number in range(1, 9):
        checkpoint("run", number)
    fork("run", at=6, new_run_id="branch")
    prune("run", keep=2)

    with pytest.raises(WaypointNotFound, match=r"waypoint 3 was removed \(pruned\)"):
        load("run", at=3)
    for words in (("show", "run@3"), ("diff", "run@3", "run@8"), ("diff", "run@7")):
        result = cli(*words)
        assert result.exit_code == 3, words
        assert "was removed (pruned)" in result.stderr
    for at in ("run@9", "branch@5", "branch@9"):
        result = cli("show", at)
        assert (result.exit_code, "removed" in result.stderr) == (3, False)
    assert cli("show", "branch@6").exit_code == 0


def test_a_busy_run_is_named_in_the_command_that_takes_it_over() -> None:
    """So that it can be pasted, whatever the run is called."""
    error = busy_error("the job", Holder("", 7, "", 1, ""))

    assert isinstance(error, RunBusy)
    assert "`caravanserai resume 'the job' --take-over`" in str(error)


def test_damage_is_told_once(cli: Cli) -> None:
    make()
    flip(journal_of(), 2)

    told = cli("show", "demo").stderr

    assert told.count("caravanserai verify") == 1


def test_log_tells_what_was_pinned_and_no_time_twice(cli: Cli) -> None:
    """Piped, and as a document."""
    with open_run("run") as run:
        run.checkpoint(1, "one")
        run.once("mail at 10:00:00 UTC", dict)
    pin("run", 1)
    pin("run", 1, unpin=True)
    with pytest.raises(WaitingForPerson), open_run("run") as run:
        run.ask("Go on at 00:00:00 UTC?", options=["yes", "no"])
    answer("run", "yes", by="ines")

    texts = [line.split("\t")[5] for line in cli("log", "run").stdout.splitlines()]

    assert texts[0] == "one"
    assert texts[1].startswith("`mail at 10:00:00 UTC` began (process ")
    assert texts[2:] == [
        "`mail at 10:00:00 UTC` came to its end.",
        "waypoint 1 pinned",
        "waypoint 1 is no longer pinned",
        "q1 asked: Go on at 00:00:00 UTC?",
        'q1 was answered "yes" by "ines".',
    ]


def test_log_has_columns_only_for_what_they_tell(terminal: Callable[..., Any]) -> None:
    """On a terminal; a program gets all of them, see above."""
    for number in range(3):
        checkpoint("line", number, f"step {number}")
    with open_run("lanes") as run:
        run.checkpoint(1, "one")
        run.checkpoint(2, "two", lane="side")

    line, lanes = terminal("log", "line").text, terminal("log", "lanes").text

    assert "parent" not in line
    assert "lane" not in line
    assert "step 2" in line
    assert "parent" in lanes
    assert "side" in lanes


def test_the_schema_is_told_where_it_is_not_the_first(cli: Cli) -> None:
    checkpoint("plain", 1)
    with open_run("run", schema=1) as run:
        run.checkpoint({"n": 1})
    with open_run("run", schema=2, migrations=[lambda state: state]) as run:
        run.checkpoint({"n": 2})

    events = json.loads(cli("log", "run", "--json").stdout)["events"]

    assert [event.get("schema") for event in events] == [None, 2]
    assert json.loads(cli("show", "run", "--json").stdout)["schema"] == 2
    assert "schema" not in json.loads(cli("show", "plain", "--json").stdout)


def test_without_the_sqlite_saver_copy_says_what_to_install(tmp_path: Path) -> None:
    """The real reader of such files, where LangGraph cannot be imported."""
    (tmp_path / "threads.db").touch()
    code = (
        "import sys; sys.modules['langgraph'] = None; "
        "sys.argv = ['caravanserai', 'copy', '--from', 'sqlite:///threads.db', '--to', 'copies']; "
        "from caravanserai_core.cli import main; main()"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert "langgraph-checkpoint-sqlite" in done.stderr
    assert "should not happen" not in done.stderr
