"""What surrounds a lease: its price, faults of the disk, spawned processes, the command line."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import caravanserai
from caravanserai import FileStore, StoreFailed, open_run, resumable
from caravanserai_core.journal import forget
from integration_tests.lease import spawned
from integration_tests.lease.programs import child, hold, tell, wait
from integration_tests.stores.seams import Failing, Logging
from integration_tests.support import ROOT

PROGRAM = """
import sys, time, pathlib
from caravanserai import checkpoint, resumable

@resumable
def work(run_id, state):
    name = "second" if pathlib.Path("first").exists() else "first"
    checkpoint(run_id, {"by": name}, f"{name} works")
    pathlib.Path(name).touch()
    while name == "first" and not pathlib.Path("go").exists():
        time.sleep(0.005)
    checkpoint(run_id, {"by": name, "n": 2}, f"{name} is done")
    return name

print(work("run", {}))
"""


def test_a_start_costs_no_sync() -> None:
    """Where the run exists none at all; a new one has its folder made a moment earlier."""
    seam = Logging()
    store = FileStore("runs", files=seam)

    def syncs() -> list[str]:
        found = [name for name, _, _ in seam.log if name.startswith("sync")]
        seam.log.clear()
        return found

    caravanserai.checkpoint("bare", {"n": 1}, store=store)
    caravanserai.checkpoint("like", {"n": 1}, store=store)
    before = len(syncs())
    with open_run("held", store=store) as run:
        run.checkpoint({"n": 1})
    assert len(syncs()) <= before
    with open_run("held", store=store):
        pass
    assert syncs() == []


def test_a_start_is_quick() -> None:
    """Taking a lease and giving it back is some calls of the system, and no wait for the disk."""
    store = FileStore("runs")
    caravanserai.checkpoint("run", {"n": 1}, store=store)
    times = []
    for _ in range(50):
        run = open_run("run", store=store)
        begin = time.perf_counter()
        with run:
            pass
        times.append(time.perf_counter() - begin)
    assert sorted(times)[25] < 0.002


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("name", ["open", "write", "own", "lock", "fstat"])
def test_a_disk_that_refuses_the_lease_is_a_typed_error(name: str, code: int) -> None:
    """And nothing is held afterwards."""
    seam = Failing()
    store = FileStore("runs", files=seam)
    caravanserai.checkpoint("run", {"n": 1}, store=store)
    run = open_run("run", store=store)
    seam.arm(1, OSError(code, "refused"), only=name)
    with pytest.raises(StoreFailed) as failed, run:
        pass
    assert failed.value.errno == code
    assert seam.fired
    seam.arm(0, OSError())
    with open_run("run", store=store) as run:
        run.checkpoint({"n": 2})


def test_a_takeover_that_fails_at_any_call_leaves_the_run_usable() -> None:
    """The old owner is fenced or not; somebody can always go on, on purpose."""
    with child(hold) as owner:
        wait("held")
        for at in range(1, 60):
            seam = Failing()
            store = FileStore(files=seam)
            forget(store, "run")  # what this process knows of the run it knows of another store
            run = open_run("run", store=store, takeover=True)
            seam.arm(at, OSError(errno.EIO, "broken"))
            try:
                with run:
                    fired = seam.fired
                    seam.arm(0, OSError())
                    run.checkpoint({"n": at}, f"{at}")
                    if not fired:
                        break
            except caravanserai.CaravanseraiError:
                seam.arm(0, OSError())
        else:
            pytest.fail("there are more calls than that")
        assert at > 10
        tell("held-go")
        assert owner.end() == 1
    assert owner.error.startswith(("StaleWriter", "Conflict"))
    assert not [name for name in os.listdir(store.folder("run")) if name.startswith(".")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_a_typed_error() -> None:
    """A read-only store: the state can be read, and no job can be begun."""
    caravanserai.checkpoint("run", {"n": 1})
    folder = Path(FileStore().folder("run"))
    folder.chmod(0o500)
    (folder / "lock").chmod(0o400)
    try:
        with pytest.raises(StoreFailed), open_run("run"):
            pass
    finally:
        folder.chmod(0o700)


def test_a_finished_job_is_read_without_a_lease() -> None:
    """Its result is there for everybody, also from a folder that cannot be written."""

    @resumable
    def work(run_id: str, state: object) -> int:
        caravanserai.checkpoint(run_id, {"n": 1})
        return 7

    assert work("run", {}) == 7
    lease = Path(FileStore().folder("run")) / "lease"
    lease.unlink()
    assert work("run", {}) == 7
    assert not lease.exists()


def test_a_run_that_must_exist_is_not_made_by_its_lease() -> None:
    """A mistyped name leaves nothing behind."""
    with pytest.raises(caravanserai.RunNotFound):
        open_run("run", must_exist=True)
    assert not Path(FileStore().root).exists()


def test_a_spawned_process_is_another_one(tmp_path: Path) -> None:
    """Inside the block it is refused, after it not."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        with open_run("run") as run:
            run.checkpoint({"n": 1})
            assert pool.apply(spawned.open_it, (str(tmp_path),)) == os.getpid()
        assert pool.apply(spawned.open_it, (str(tmp_path),)) == 0


def test_resume_is_refused_while_somebody_works_and_takes_over_when_asked() -> None:
    """`caravanserai resume`: exit code 5 and who it is; `--take-over` starts the program."""
    Path("program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")])}
    command = [sys.executable, "program.py"]
    first = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        wait("first")
        first.send_signal(signal.SIGSTOP)
        cli = [sys.executable, "-m", "caravanserai_core.cli"]
        refused = subprocess.run(
            [*cli, "resume", "run", "--yes"], env=environment, capture_output=True, text=True
        )
        assert refused.returncode == 5, refused.stderr
        assert f"process {first.pid}" in refused.stderr
        assert refused.stdout == ""
        listed = subprocess.run(
            [*cli, "list", "--json"], env=environment, capture_output=True, text=True
        )
        assert json.loads(listed.stdout)["runs"][0]["status"] == "running"
        shown = subprocess.run(
            [*cli, "show", "run", "--json"], env=environment, capture_output=True, text=True
        )
        assert json.loads(shown.stdout)["status"] == "running"
        taken = subprocess.run(
            [*cli, "resume", "run", "--yes", "--take-over"],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert taken.returncode == 0, taken.stderr
        assert "CARAVANSERAI_TAKE_OVER=run" in taken.stdout
        assert taken.stdout.endswith("second\n")
        Path("go").touch()
        first.send_signal(signal.SIGCONT)
        _, error = first.communicate(timeout=20)
        assert first.returncode == 1
        assert "StaleWriter" in error
    finally:
        first.kill()
        first.wait()
    told = [str(point.note) for point in caravanserai.history("run")]
    assert told == ["first works", "second works", "second is done"]


def test_the_wish_to_take_over_is_for_one_run_and_one_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is no setting that a program hands on to what it starts."""
    monkeypatch.setenv("CARAVANSERAI_TAKE_OVER", "run")
    with child(hold, "a", "other"), child(hold, "b", "run"):
        wait("a")
        wait("b")
        with pytest.raises(caravanserai.RunBusy):
            open_run("other")
        with open_run("run"):
            assert "CARAVANSERAI_TAKE_OVER" not in os.environ


def test_clean_on_the_command_line_is_refused_too() -> None:
    """Exit code 5, and nothing is gone."""
    with child(hold):
        wait("held")
        command = [sys.executable, "-m", "caravanserai_core.cli", "clean", "run"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 5, done.stderr
        assert "is being worked on" in done.stderr
    assert caravanserai.load("run") == {"by": "held"}
