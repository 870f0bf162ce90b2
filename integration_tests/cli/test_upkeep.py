"""`fork`, `pin`, `prune` and `migrate`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caravanserai import WaitingForPerson, checkpoint, history, list_runs, load, open_run
from caravanserai_core import records
from integration_tests.support import ROOT

Cli = Callable[..., Any]


def saved(run_id: str, count: int) -> None:
    """Write waypoints 1 to `count`."""
    for number in range(1, count + 1):
        checkpoint(run_id, {"n": number}, f"step {number}")


def numbers(run_id: str) -> list[int]:
    """Return the numbers of a run's waypoints."""
    return [point.number for point in history(run_id)]


# ---------------------------------------------------------------------- fork


def test_fork_begins_a_run_and_tells_where_it_comes_from(cli: Cli) -> None:
    saved("parent", 5)

    assert cli("fork", "parent@3", "branch").stdout == "forked waypoint 3 of parent as branch\n"
    assert cli("fork", "parent@-1", "newest").exit_code == 0
    assert cli("fork", "@-", "copy of copy").exit_code == 0

    assert load("branch") == {"n": 3}
    assert load("newest") == load("copy of copy") == {"n": 5}
    origin = {"run_id": "parent", "waypoint": 3}
    assert json.loads(cli("show", "branch", "--json").stdout)["origin"] == origin
    assert json.loads(cli("log", "branch", "--json").stdout)["origin"] == origin
    listed = json.loads(cli("list", "--json").stdout)["runs"]
    assert {run["run"]: run["origin"] for run in listed}["branch"] == origin
    shown = cli("show", "branch").stdout
    assert "fork of parent@3\n" in shown
    assert "Forked from waypoint 3 of parent.\n\nstep 3" in shown


def test_a_terminal_lists_a_fork_as_one(cli: Cli, terminal: Callable[..., Any]) -> None:
    saved("parent", 2)
    cli("fork", "parent@1", "branch")

    assert "branch (fork of parent@1)" in terminal("list", COLUMNS="160").text


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("parent@9", "branch"), 3),
        (("parent@-9", "branch"), 3),
        (("nobody", "branch"), 3),
        (("par", "branch"), 3),
        (("parent", "other"), 2),
        (("parent", "parent"), 2),
        (("parent", ""), 2),
        (("parent",), 2),
    ],
)
def test_wrong_forks_are_refused(cli: Cli, words: tuple[str, ...], code: int) -> None:
    saved("parent", 2)
    saved("other", 1)

    assert cli("fork", *words).exit_code == code
    assert numbers("other") == [1]
    assert cli("list").stdout.count("\n") == 2


def test_the_fork_does_not_start_the_parents_program(cli: Cli) -> None:
    """The recorded command goes on with the parent, under its name."""
    saved("parent", 2)
    cli("fork", "parent", "branch")

    refused = cli("resume", "branch", "--yes")

    assert refused.exit_code == 3
    assert "no recorded command" in refused.stderr


# ---------------------------------------------------------------------- pin, prune


def test_prune_keeps_the_newest_and_what_is_pinned(cli: Cli) -> None:
    saved("run", 40)
    assert cli("pin", "run@7").stdout == "waypoint 7 of run is pinned\n"
    assert cli("pin", "run@-2").stdout == "waypoint 39 of run is pinned\n"
    assert cli("pin", "run@-2", "--remove").stdout == "waypoint 39 of run is no longer pinned\n"

    told = cli("prune", "run", "--keep", "3", "--dry-run").stdout
    assert told == "run: 36 waypoints would go, 4 stay: 1-6, 8-37\n"
    assert len(numbers("run")) == 40
    done = cli("prune", "run", "--keep", "3").stdout

    assert done.startswith("run: 36 waypoints removed; ")
    assert numbers("run") == [7, 38, 39, 40]
    assert cli("prune", "run", "--keep", "3").stdout == "run: 0 waypoints removed\n"


def test_prune_takes_all_runs_and_an_age(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    then = records.time.time_ns() - 31 * 86_400 * 10**9
    with monkeypatch.context() as clock:
        clock.setattr(records.time, "time_ns", lambda: then)
        saved("one", 3)
        saved("two", 3)
    saved("two", 2)

    assert cli("prune", "--all", "--older-than", "30d", "--keep", "4").exit_code == 0
    assert (numbers("one"), numbers("two")) == ([1, 2, 3], [2, 3, 4, 5])
    assert cli("prune", "--all", "--older-than", "4w").exit_code == 0
    assert (numbers("one"), numbers("two")) == ([3], [4, 5])


def test_prune_goes_past_a_damaged_run(cli: Cli) -> None:
    saved("bad", 3)
    saved("good", 3)
    journal = Path(".caravanserai/bad/journal-1.jsonl")
    journal.write_bytes(journal.read_bytes().replace(b"step 2", b"step X"))

    done = cli("prune", "--all", "--keep", "1")

    assert done.exit_code == 4
    assert "damaged" in done.stderr
    assert numbers("good") == [3]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("run",),
        ("--all",),
        ("run", "--all", "--keep", "1"),
        ("run", "--keep", "0"),
        ("run@2", "--keep", "1"),
        ("run", "--older-than", "soon"),
        ("run", "--older-than", "-1d"),
    ],
)
def test_a_wrong_pruning_removes_nothing(cli: Cli, words: tuple[str, ...]) -> None:
    saved("run", 3)

    assert cli("prune", *words).exit_code == 2
    assert numbers("run") == [1, 2, 3]


def test_clean_takes_what_is_finished_or_old(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """And leaves what is in work, waits or is damaged."""
    then = records.time.time_ns() - 31 * 86_400 * 10**9
    with monkeypatch.context() as clock:
        clock.setattr(records.time, "time_ns", lambda: then)
        for name in ("old", "old and done", "in work", "damaged"):
            saved(name, 2)
        open_run("old and done").finish()
        with open_run("waiting") as run, pytest.raises(WaitingForPerson):
            run.ask("Go on?")
    saved("done", 1)
    open_run("done").finish()
    saved("new", 1)
    journal = Path(".caravanserai/damaged/journal-1.jsonl")
    journal.write_bytes(journal.read_bytes()[:-9] + b"damaged!\n")

    def left() -> set[str]:
        return {info.run_id for info in list_runs()}

    with open_run("in work"):
        assert cli("clean", "--finished", "--older-than", "30d").exit_code == 0
        assert left() == {"old", "in work", "damaged", "waiting", "done", "new"}
        said = cli("clean", "--older-than", "30d").stdout
        assert said == "deleted checkpoints for 'old': the whole run, with its notes\n"
        assert left() == {"in work", "damaged", "waiting", "done", "new"}
        assert cli("clean", "--finished").exit_code == 0
    assert left() == {"in work", "damaged", "waiting", "new"}
    for words in ((), ("new", "--finished"), ("--older-than", "long")):
        assert cli("clean", *words).exit_code == 2
    assert "new" in left()


# ---------------------------------------------------------------------- migrate

PROGRAM = """
from caravanserai import checkpoint, resumable

@resumable
def work(run_id, state):
    checkpoint(run_id, {"name": "Ada Lovelace"}, "a name")
    raise KeyboardInterrupt

if __name__ == "__main__":
    work("job", None)
"""

TODAY = """
from caravanserai import resumable

def split(state):
    first, last = state["name"].split()
    return {"first": first, "last": last}

def listed(state):
    return {"names": [state["first"], state["last"]]}

STEPS = [split, listed]

@resumable(migrations=STEPS)
def work(run_id, state):
    print(state["names"])

@resumable
def other(run_id, state):
    pass

if __name__ == "__main__":
    work("job", None)
"""


def run_program(folder: Path, source: str) -> str:
    """Write a program and run it; returns what it printed."""
    (folder / "agent.py").write_text(source, encoding="utf-8")
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    env = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "agent.py"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True).stdout


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """Leave a run of yesterday's program, and today's program."""
    run_program(tmp_path, PROGRAM)
    (tmp_path / "agent.py").write_text(TODAY, encoding="utf-8")
    return tmp_path


def test_migrate_shows_and_writes_what_the_program_would_do(
    changed: Path, process: Callable[..., Any]
) -> None:
    journal = changed / ".caravanserai/job/journal-1.jsonl"
    before = journal.read_bytes()

    shown = process("migrate", "job", "--dry-run", "--yes", cwd=changed)
    assert shown.stdout == (
        '- /name: "Ada Lovelace"\n'
        '+ /names: ["Ada","Lovelace"]\n'
        "this is what leads from schema 1 to 3; nothing was written\n"
    ), shown.stderr
    assert journal.read_bytes() == before
    done = process("migrate", "job", "--yes", cwd=changed)
    assert done.stdout.endswith("migrated from schema 1 to 3: waypoint 2\n"), done.stderr
    assert journal.read_bytes().startswith(before)

    logged = json.loads(process("log", "job", "--json", cwd=changed).stdout)["events"]
    assert [event["text"] for event in logged] == ["a name", "Migrated from schema 1 to 3."]
    again = process("migrate", "job", "--yes", cwd=changed)
    assert again.stdout == "run job has schema 3 already, nothing to do\n"
    assert run_program(changed, TODAY) == "['Ada', 'Lovelace']\n"
    assert process("migrate", "job", "--yes", cwd=changed).stdout == "finished, nothing to do\n"


def test_migrate_takes_a_function_or_a_list_of_steps(
    changed: Path, process: Callable[..., Any]
) -> None:
    for name in ("agent:work", "agent:STEPS"):
        shown = process("migrate", "job", "--with", name, "--dry-run", "--yes", cwd=changed)
        assert shown.returncode == 0, shown.stderr
        assert '+ /names: ["Ada","Lovelace"]' in shown.stdout


def test_migrate_asks_before_it_imports_what_was_recorded(
    changed: Path, process: Callable[..., Any], terminal: Callable[..., Any]
) -> None:
    mark = "open('imported', 'w').close()\n"
    (changed / "agent.py").write_text(mark + TODAY, encoding="utf-8")

    alone = process("migrate", "job", cwd=changed)
    named = process("migrate", "job", "--with", "agent:work", cwd=changed)
    no = terminal("migrate", "job", typed="n\n", cwd=changed)
    assert (alone.returncode, named.returncode, no.code) == (2, 2, 1)
    assert "add --yes" in named.stderr
    assert "agent:work" in alone.stderr
    assert "agent:work" in no.text
    assert not (changed / "imported").exists()

    yes = terminal("migrate", "job", "--dry-run", typed="y\n", cwd=changed)
    assert (yes.code, (changed / "imported").exists()) == (0, True)


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("agent:gone", 3, "cannot be imported"),
        ("no_such_module:work", 3, "cannot be imported"),
        ("agent", 2, "not of the form"),
        ("agent:work()", 2, "not of the form"),
        ("agent:split", 2, "no function under @resumable"),
        ("agent:other", 2, "declares no schema"),
    ],
)
def test_migrate_refuses_what_leads_nowhere(
    changed: Path, process: Callable[..., Any], name: str, code: int, said: str
) -> None:
    refused = process("migrate", "job", "--with", name, "--yes", cwd=changed)

    assert (refused.returncode, said in refused.stderr) == (code, True), refused.stderr


WORKS_AT_IMPORT = """
def mailed():
    open("mails", "a").write("mail\\n")

@resumable(migrations=STEPS)
def mailing(run_id, state):
    mailed()
"""


@pytest.mark.parametrize(
    "call",
    [
        'mailing("job", None)',
        'mailing("another job", {})',
        'with open_run("job", migrations=STEPS) as run: run.once("mail", mailed)',
        'checkpoint("job", {"names": []}); mailed()',
        'for item in resumable_iterate([1], "list"): mailed()',
        'load("job", raw=True); clean("job"); mailed()',
        'fork("job", new_run_id="branch"); mailed()',
        'prune("job", keep=1); pin("job", 1); mailed()',
        'answer("job", "yes"); mailed()',
        "try: mailing('job', None)\nexcept Exception as error: raise SystemExit(0)",
    ],
)
def test_migrate_starts_no_job_of_a_module_that_calls_one_when_it_is_imported(
    changed: Path, process: Callable[..., Any], call: str
) -> None:
    """Whatever the module does with a run is refused before it happens, and migrate says why."""
    source = f"from caravanserai import *\n{TODAY}\n{WORKS_AT_IMPORT}\n{call}\n"
    (changed / "agent.py").write_text(source, encoding="utf-8")
    store = changed / ".caravanserai"
    before = {p: p.read_bytes() for p in store.rglob("*.jsonl")}

    for name in ("agent:work", "agent:STEPS"):
        refused = process("migrate", "job", "--with", name, "--yes", cwd=changed)

        assert refused.returncode == 2, refused.stderr
        assert 'put the call under `if __name__ == "__main__":`' in refused.stderr
        assert "agent" in refused.stderr
    assert not (changed / "mails").exists()
    assert {p: p.read_bytes() for p in store.rglob("*.jsonl")} == before


def test_a_module_that_fails_when_it_is_imported_is_no_surprise(
    changed: Path, process: Callable[..., Any]
) -> None:
    for line, said in (("1 / 0", "ZeroDivisionError"), ("raise SystemExit(0)", "SystemExit")):
        (changed / "agent.py").write_text(f"{TODAY}\n{line}\n", encoding="utf-8")

        refused = process("migrate", "job", "--yes", cwd=changed)

        assert (refused.returncode, said in refused.stderr) == (3, True), refused.stderr


def test_migrate_refuses_a_run_of_an_adapter(cli: Cli) -> None:
    open_run("thread", adapter="langgraph").checkpoint({"v": 1})

    refused = cli("migrate", "thread", "--with", "agent:STEPS")

    assert refused.exit_code == 2
    assert "a form of their own" in refused.stderr
