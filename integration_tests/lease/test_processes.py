"""One process works on a run; others are told which, and take over only on purpose."""

from __future__ import annotations

import json
import os
import signal
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import caravanserai
from caravanserai import RunBusy, StaleWriter
from caravanserai_core.listing import runs
from caravanserai_core.stores import FileStore
from integration_tests.lease.programs import (
    Child,
    child,
    effect,
    effects,
    hold,
    job,
    tell,
    wait,
)


def notes() -> list[str]:
    """Return the notes of the run, oldest first."""
    return [str(point.note) for point in caravanserai.history("run")]


def test_of_two_starts_one_works_and_the_other_is_told_who() -> None:
    """RunBusy names the process, its machine, and since when."""
    before = datetime.now(UTC)
    with child(hold) as owner:
        wait("held")
        with child(hold, "second") as second:
            assert second.end() == 5
        told = second.busy
        assert told["pid"] == owner.pid
        assert told["host"] == os.uname().nodename
        assert before <= datetime.fromisoformat(told["since"]) <= datetime.now(UTC)
        assert f"process {owner.pid}" in told["text"]
        assert "--take-over" in told["text"]
        tell("held-go")
        assert owner.end() == 0
    assert effects() == ["held"]
    with caravanserai.open_run("run") as run:
        assert run.state == {"by": "held", "n": 2}


def test_a_job_that_another_process_does_is_refused_before_its_function() -> None:
    """`@resumable`: the second start does no work; after the first has ended it has its result."""
    with child(job, "first"):
        wait("first")
        with child(job, "second") as second:
            assert second.end() == 5
        assert effects() == ["first"]
        tell("go")
        wait("first-result")
    with child(job, "third") as third:
        assert third.end() == 0
    assert wait("third-result") == "first"
    assert effects() == ["first"]


def test_the_error_is_an_in_use_error() -> None:
    """Its exit code is that of "in use", and a caller may catch RuntimeError."""
    assert RunBusy.exit_code == 5
    assert issubclass(RunBusy, RuntimeError)


def test_a_stopped_owner_is_not_dead_and_is_fenced_when_taken_over() -> None:
    """SIGSTOP: a plain start is refused, a takeover works, and the old owner writes nothing."""
    with child(hold) as owner:
        wait("held")
        owner.signal(signal.SIGSTOP)
        with pytest.raises(RunBusy) as busy:
            caravanserai.open_run("run")
        assert busy.value.pid == owner.pid
        with caravanserai.open_run("run", takeover=True) as run:
            assert run.state == {"by": "held"}
            run.checkpoint({"by": "new"}, "the new one goes on")
            effect("new")
            tell("held-go")
            owner.signal(signal.SIGCONT)
            assert owner.end() == 1
            assert owner.error.startswith("StaleWriter")
            run.checkpoint({"by": "new", "n": 2}, "the new one is done")
    assert notes() == ["held began", "the new one goes on", "the new one is done"]
    assert [point.parent for point in caravanserai.history("run")] == [None, 1, 2]
    assert effects() == ["new"]


def test_a_fenced_owner_is_refused_until_it_opens_the_run_again() -> None:
    """Also by a bare checkpoint, also in a thread, also after its block; load() clears it."""

    def holds() -> None:
        raised: list[BaseException] = []

        def late() -> None:
            try:
                caravanserai.checkpoint("run", {"n": 2}, "late")
            except StaleWriter as error:
                raised.append(error)

        with caravanserai.open_run("run") as run:
            run.checkpoint({"n": 1}, "first")
            tell("ready")
            wait("taken")
            for _ in range(3):
                with pytest.raises(StaleWriter):
                    run.checkpoint({"n": 2}, "late")
            thread = threading.Thread(target=late)
            thread.start()
            thread.join()
            assert len(raised) == 1
            run.checkpoint({"n": 2}, "late")

    def refused() -> None:
        with pytest.raises(StaleWriter):
            holds()
        with pytest.raises(StaleWriter, match="took it over"):
            caravanserai.checkpoint("run", {"n": 2}, "late")
        tell("refused")
        wait("left")
        assert caravanserai.load("run") == {"n": "new"}
        caravanserai.checkpoint("run", {"n": 3}, "and on")

    with child(refused) as owner:
        wait("ready")
        with caravanserai.open_run("run", takeover=True) as run:
            run.checkpoint({"n": "new"}, "new")
            tell("taken")
            wait("refused")
        tell("left")
        assert owner.end() == 0, owner.error
    assert notes() == ["first", "new", "and on"]


def test_an_owner_that_wrote_nothing_yet_can_be_taken_over() -> None:
    """The record that fences it is then the first of the run."""

    def idle() -> None:
        with caravanserai.open_run("run") as run:
            tell("ready")
            wait("taken")
            run.checkpoint({"n": 1}, "late")

    with child(idle) as owner:
        wait("ready")
        with caravanserai.open_run("run", takeover=True) as run:
            tell("taken")
            assert owner.end() == 1
            assert owner.error.startswith("StaleWriter")
            assert run.state is None
            run.checkpoint({"n": 2}, "mine")
    assert notes() == ["mine"]


@pytest.mark.parametrize("how", ["roll", "compact"])
def test_a_stale_writer_stays_fenced_behind_a_new_segment_or_journal(how: str) -> None:
    """The epoch goes along where records do not."""
    with child(hold) as owner:
        wait("held")
        with caravanserai.open_run("run", takeover=True) as run:
            if how == "compact":
                run.checkpoint({"n": 1}, "one")
                run.checkpoint({"n": 2}, "two")
                run.compact(lambda record: record.waypoint > 1)
            else:
                for number in range(8):
                    run.checkpoint({"n": number, "text": os.urandom(100_000).hex()}, "large")
                assert (Path(FileStore().folder("run")) / "journal-2.jsonl").exists()
        tell("held-go")
        assert owner.end() == 1
        assert owner.error.startswith("StaleWriter")
    assert "held goes on" not in notes()


def test_a_writer_without_a_lease_follows_the_epoch() -> None:
    """A bare checkpoint of a process that was not the owner is no stale writer."""

    def bare() -> None:
        caravanserai.load("run")
        tell("bare")
        wait("taken")
        caravanserai.load("run")
        caravanserai.checkpoint("run", {"n": "bare"}, "bare")
        recent = FileStore().recent("run")
        assert recent is not None
        assert recent.tail.epoch == 2

    with child(hold):
        wait("held")
        with child(bare) as other:
            wait("bare")
            with caravanserai.open_run("run", takeover=True):
                pass
            tell("taken")
            assert other.end() == 0, other.error
    assert notes() == ["held began", "bare"]


def test_the_journal_says_who_took_over_from_whom() -> None:
    """A `lease` record, with the epoch in its head."""
    with child(hold) as owner:
        wait("held")
        with caravanserai.open_run("run", takeover=True):
            pass
        scan = FileStore().scan("run", bodies=True)
        (lease,) = [record for record in scan if getattr(record, "kind", "") == "lease"]
        data: Any = lease.data()  # type: ignore[union-attr]
    assert lease.head["epoch"] == 2  # type: ignore[union-attr]
    assert data["pid"] == os.getpid()
    assert data["from"]["pid"] == owner.pid


def test_a_plain_start_writes_no_record() -> None:
    """Nobody was taken over, so there is nothing to tell."""
    with caravanserai.open_run("run") as run:
        run.checkpoint({"n": 1}, "one")
    with caravanserai.open_run("run"):
        pass
    kinds = [getattr(record, "kind", "") for record in FileStore().scan("run", bodies=False)]
    assert kinds == ["open", "waypoint"]


def test_of_eight_starts_at_once_exactly_one_works(tmp_path: Path, thorough: bool) -> None:
    """Whoever comes first; the others are refused, in a new run and in one that exists."""

    def start(number: int, run_id: str) -> None:
        wait(f"start-{run_id}")
        with caravanserai.open_run(run_id) as run:
            effect(run_id)
            run.checkpoint({"by": number}, "mine")
            wait(f"stop-{run_id}")

    for turn in range(200 if thorough else 15):
        run_id = f"run-{turn % 3}-{turn // 2}"
        for name in (f"start-{run_id}", f"stop-{run_id}"):
            Path(name).unlink(missing_ok=True)
        before = effects().count(run_id)
        children = [Child(start, number, run_id) for number in range(8)]
        try:
            tell(f"start-{run_id}")
            codes: list[int] = []
            while len(codes) < 7:
                pid, status = os.waitpid(-1, 0)
                codes.append(os.waitstatus_to_exitcode(status))
                children = [one for one in children if one.pid != pid]
            assert codes == [5] * 7, [one.error for one in children]
            tell(f"stop-{run_id}")
            assert children[0].end() == 0
            children = []
        finally:
            for one in children:
                one.signal(signal.SIGKILL)
                one.end()
        assert effects().count(run_id) == before + 1


def test_a_killed_owner_is_gone_at_once_though_its_forked_child_lives() -> None:
    """The lease is the process's own: what it forked has no part in it."""

    def parent() -> None:
        with caravanserai.open_run("run") as run:
            run.checkpoint({"n": 1}, "one")
            sleeper = os.fork()
            if not sleeper:
                wait("over")
                os._exit(0)
            tell("ready", str(sleeper))
            wait("over")

    with child(parent) as owner:
        sleeper = int(wait("ready"))
        owner.signal(signal.SIGKILL)
        owner.end()
        os.kill(sleeper, 0)  # it lives
        with caravanserai.open_run("run") as run:
            assert run.state == {"n": 1}
        tell("over")


def test_a_file_that_names_a_living_process_proves_nothing() -> None:
    """After a reboot, or in a new container, the number may be anybody's."""
    caravanserai.checkpoint("run", {"n": 1}, "one")
    told = {"host": os.uname().nodename, "pid": os.getppid(), "since": "2026-01-01T00:00:00"}
    lease = Path(FileStore().folder("run")) / "lease"
    lease.write_text(json.dumps({**told, "epoch": 1, "by": "x"}))
    with caravanserai.open_run("run") as run:
        run.checkpoint({"n": 2}, "two")
        assert json.loads(lease.read_text())["pid"] == os.getpid()
        assert (lease.stat().st_mode & 0o777) in (0o600, 0o644)


def test_a_held_run_is_not_deleted_by_another_process() -> None:
    """`clean` is refused like a second start; the owner itself may."""
    with child(hold) as owner:
        wait("held")
        with pytest.raises(RunBusy) as busy:
            caravanserai.clean("run")
        assert busy.value.pid == owner.pid
        tell("held-go")
        assert owner.end() == 0, owner.error
    assert caravanserai.clean("run")
    with caravanserai.open_run("run") as run:
        run.checkpoint({"n": 1}, "one")
        assert caravanserai.clean("run")
    assert not Path(FileStore().folder("run")).exists()


def test_a_run_whose_folder_is_removed_while_it_is_held() -> None:
    """The owner finds out at its next save, and another start is a new run."""

    def parent() -> None:
        with caravanserai.open_run("run") as run:
            run.checkpoint({"n": 1}, "one")
            tell("ready")
            wait("removed")
            run.checkpoint({"n": 2}, "two")

    with child(parent) as owner:
        wait("ready")
        os.rename(FileStore().folder("run"), "elsewhere")
        with caravanserai.open_run("run") as run:
            assert run.state is None
            run.checkpoint({"n": "new"}, "new")
            tell("removed")
            assert owner.end() == 1
            assert owner.error.startswith("Conflict")
    assert notes() == ["new"]


def test_who_holds_a_run_is_listed_as_running() -> None:
    """By another process, by this one, and no longer when it has ended, by whatever end."""

    def status() -> str:
        return runs(FileStore())[0].status

    with child(hold) as owner:
        wait("held")
        assert status() == "running"
        owner.signal(signal.SIGKILL)
        owner.end()
        assert status() == "stopped"
    with caravanserai.open_run("run") as run:
        assert status() == "running"
        run.checkpoint({"n": 5}, "five")
        with child(hold, "second") as second:  # looking did not give the lease away
            assert second.end() == 5
        run.finish("done")
    assert status() == "finished"


def test_of_takeovers_at_once_exactly_one_is_not_fenced(thorough: bool) -> None:
    """Each takes the run from the one before; the last one is who is told to others."""

    def take(number: int, turn: int) -> None:
        wait(f"start-{turn}")
        with caravanserai.open_run("run", takeover=True) as run:
            tell(f"in-{turn}-{number}", str(os.getpid()))
            for other in range(4):
                wait(f"in-{turn}-{other}")
            run.checkpoint({"by": os.getpid()}, "mine")
            tell(f"won-{turn}", str(os.getpid()))
            wait(f"end-{turn}")

    with child(hold) as owner:
        wait("held")
        owner.signal(signal.SIGSTOP)
        for turn in range(40 if thorough else 4):
            children = [Child(take, number, turn) for number in range(4)]
            tell(f"start-{turn}")
            winner = int(wait(f"won-{turn}"))
            holder = FileStore().holder("run")
            assert holder is not None
            assert holder.pid == winner
            tell(f"end-{turn}")
            codes = {one.pid: one.end() for one in children}
            assert sorted(codes.values()) == [0, 1, 1, 1]
            assert codes[winner] == 0
            assert all(one.error.startswith("StaleWriter") for one in children if codes[one.pid])
        owner.signal(signal.SIGCONT)
        tell("held-go")
        assert owner.end() == 1
    epoch = FileStore().recent("run").tail.epoch  # type: ignore[union-attr]
    assert epoch == 1 + 4 + 3 * turn  # from the second turn on the first of them finds it free
