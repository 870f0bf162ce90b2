"""The command line, the example and the tools of MCP on a store that is no folder."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from caravanserai_core import (
    Note,
    acheckpoint,
    checkpoint,
    clean,
    history,
    load,
    open_run,
    prune,
    resumable_iterate,
    save,
)
from caravanserai_core.copying import copy_runs
from caravanserai_core.errors import Conflict, RunBusy, StaleWriter, UsageError, WaitingForPerson
from caravanserai_core.stores import open_store
from caravanserai_core.verify import verify
from integration_tests.support import ROOT


def cli(*words: str, code: int = 0, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "caravanserai_core.cli", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1", **environment},
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def test_every_command(url: str, tmp_path: Path) -> None:
    """What a person does with a run in a folder does the same here."""
    for number in range(1, 5):
        note = Note(f"wrote page {number}", next=[f"write page {number + 1}"])
        checkpoint("book", {"page": number, "words": ["one"] * number}, note, store=url)
    env = {"CARAVANSERAI_STORE": url}

    assert "book" in cli("list", "--store", url)
    listed = json.loads(cli("list", "--json", **env))
    assert [run["run"] for run in listed["runs"]] == ["book"]
    assert "wrote page 4" in cli("show", "book", **env)
    assert "wrote page 2" in cli("show", "book@2", **env)
    assert json.loads(cli("show", "book@3", "--state", **env))["page"] == 3
    assert "wrote page 1" in cli("log", "book", **env)
    assert "page" in cli("diff", "book@1", "book@4", **env)
    assert "4" in cli("verify", "book", **env)
    assert "wrote page 4" in cli("handoff", "book", **env)
    cli("fork", "book@2", "sequel", **env)
    assert "sequel" in cli("log", "book", "--graph", **env)
    assert load("sequel", store=url)["page"] == 2
    cli("prune", "book", "--keep", "2", **env)
    assert [point.number for point in history("book", store=url)] == [3, 4]
    cli("doctor", **env)
    cli("clean", "sequel", **env)
    assert "sequel" not in cli("list", **env)
    assert "nothing.at.all" in cli("show", "nothing.at.all", code=3, **env)


def test_a_run_is_answered_and_resumed_from_the_command_line(url: str, tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text(
        "from caravanserai import open_run\n"
        "with open_run('job') as run:\n"
        "    if run.ask('Go on?') == 'yes':\n"
        "        run.checkpoint({'done': True}, 'went on')\n"
    )
    env = {**os.environ, "CARAVANSERAI_STORE": url}
    first = subprocess.run([sys.executable, str(program)], env=env, capture_output=True, text=True)
    assert "WaitingForPerson" in first.stderr
    assert "waits" in cli("list", "--store", url)
    cli("answer", "--store", url, "job", "yes")

    cli("resume", "--store", url, "job", "--yes")  # it tells the program where its run is

    assert load("job", store=url) == {"done": True}


def test_secrets_are_looked_for(url: str) -> None:
    """What was written before it was declared is found by run and record."""
    checkpoint("run", {"key": "correct-horse-battery-staple"}, "saved", store=url)
    env = {"CARAVANSERAI_STORE": url}
    assert "record" not in cli("verify", "--secrets", **env)
    told = cli("verify", "--secrets", code=1, **env, MY_API_KEY="correct-horse-battery-staple")
    assert "run, record 2" in told
    assert "MY_API_KEY" in told
    assert "correct-horse" not in told


def test_the_simple_calls(url: str) -> None:
    """Those of release 0.2.0, threads, and two that do not know of each other."""
    store = open_store(url)
    assert list(resumable_iterate([1, 2, 3], run_id="items", store=store)) == [1, 2, 3]
    save("plain", {"n": 1}, store=store)
    problems: list[BaseException] = []

    def add(number: int) -> None:
        try:
            with open_run("threads", store=store) as run:
                run.entry("note", {"n": number})
        except BaseException as problem:  # noqa: BLE001 - shown below
            problems.append(problem)

    threads = [threading.Thread(target=add, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    stranger = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import caravanserai as c; c.save('plain', {{'n': 2}}, store={url!r})",
        ],
        capture_output=True,
        text=True,
    )
    assert not stranger.returncode, stranger.stderr
    with pytest.raises(Conflict):
        checkpoint("plain", {"n": 3}, "late", store=store)
    assert load("plain", store=store) == {"n": 2}
    store.close()


def test_async_saves_in_several_loops(url: str) -> None:
    async def work(name: str) -> None:
        await asyncio.gather(
            *(acheckpoint(f"{name}-{run}", {"n": run}, "saved", store=url) for run in range(8))
        )

    for loop in range(2):
        asyncio.run(work(str(loop)))
    assert load("1-7", store=url) == {"n": 7}


def test_runs_are_copied_to_a_folder_and_back(url: str, tmp_path: Path) -> None:
    """With notes, lanes, questions and steps; a copy is compared with what was copied."""
    folder = tmp_path / "folder"
    with open_run("run", store=folder, goal="Copy it.") as run:
        for number in range(1, 40):
            run.checkpoint({"n": number, "all": list(range(number))}, f"step {number}")
        run.checkpoint({"side": 1}, "beside", lane="side")
        run.once("sent", str, 1)
        with pytest.raises(WaitingForPerson):
            run.ask("Go on?")
    checkpoint("other", {"big": "x" * 300_000}, "big", store=folder)

    cli("copy", "--store", str(folder), "--to", url)
    cli("copy", "--from", url, "--to", str(tmp_path / "back"), "run")

    for place in (url, str(tmp_path / "back")):
        store = open_store(place)
        assert not verify(store, "run").findings
        old, new = (
            [(p.number, p.lane, p.time, str(p.note), p.state) for p in history("run", store=s)]
            for s in (folder, place)
        )
        assert old == new
        assert store.get_note("run", "waypoint-39.md") == open_store(folder).get_note(
            "run", "waypoint-39.md"
        )
        with open_run("run", store=place) as run:
            assert run.once("sent", str, 1) == "1"
        store.close()
    again = list(copy_runs(folder, url))
    assert [(one.run_id, one.waypoints, one.before) for one in again] == [
        ("other", 1, True),
        ("run", 40, True),
    ]
    checkpoint("other", {"big": "and on"}, store=url)
    assert isinstance(next(copy_runs(folder, url, ["other"])).error, UsageError)
    with pytest.raises(UsageError, match="same one"):
        list(copy_runs(url, url))


def test_a_store_that_keeps_a_few(url: str) -> None:
    store = open_store(url + ("&" if "?" in url else "?") + "keep=3")
    for number in range(1, 13):
        checkpoint("run", {"n": number}, f"step {number}", store=store)
    left = [point.number for point in history("run", store=store)]
    assert left[-1] == 12
    assert 3 <= len(left) <= 6
    assert store.get_note("run", "waypoint-1.md") is None
    prune("run", keep=1, store=store)
    assert load("run", store=store) == {"n": 12}
    clean("run", store=store)
    checkpoint("run", {"n": "new"}, "begun again", store=store)
    assert [point.number for point in history("run", store=store)] == [1]
    store.close()


def test_a_run_is_worked_on_by_one(url: str) -> None:
    store = open_store(url)
    with open_run("run", store=store) as run:
        run.checkpoint({"n": 1}, "one")
        code = (
            "import caravanserai as c, sys\n"
            f"try:\n    with c.open_run('run', store={url!r}): pass\n"
            "except c.RunBusy as busy: print(busy)\n"
            f"with c.open_run('run', store={url!r}, takeover=True) as run:\n"
            "    run.checkpoint({'n': 2}, 'taken')\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert f"process {os.getpid()}" in done.stdout, done.stderr
        assert "After 30 s without a sign of life it is free." in done.stdout
        with pytest.raises(StaleWriter):
            run.checkpoint({"n": "stale"}, "late")
    assert load("run", store=store) == {"n": 2}
    store.close()


def test_two_machines(url: str) -> None:
    """The example: the second worker goes on where the first one was killed."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "two_machines.py"), "--store", url],
        capture_output=True,
        text=True,
        env={**os.environ, "DEMO_PAUSE": "0.25"},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "machine-2: takes the job; 3 of 6 are sent" in done.stdout, done.stdout
    assert "6 letters were sent, 0 of them twice" in done.stdout
    assert len(list(history("letters", store=url))) == 6


def test_busy_is_still_busy_for_a_plain_save(url: str) -> None:
    """A process that has no lease is refused while another one has it."""
    store = open_store(url)
    code = (
        "import caravanserai as c, sys, time\n"
        f"with c.open_run('run', store={url!r}) as run:\n"
        "    run.checkpoint({'n': 1}, 'one')\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "ready\n"
    with pytest.raises(RunBusy), open_run("run", store=store):
        pass
    with pytest.raises(RunBusy):
        clean("run", store=store)
    owner.communicate("end\n", timeout=30)
    assert clean("run", store=store)
    store.close()
