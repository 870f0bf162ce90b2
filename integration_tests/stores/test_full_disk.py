"""A disk that is full, a folder that is read-only, a user who may not write: all of them real."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from caravanserai_core import checkpoint, history, load, open_run
from caravanserai_core.errors import StoreFailed, StoreRefused
from caravanserai_core.journal import forget
from caravanserai_core.stores import FileStore
from caravanserai_core.verify import verify

RUN = "run"
NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it mounts, or changes user")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=755", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def in_new_process(root: Path) -> Any:
    """Return the newest state as a new program reads it."""
    code = (
        "import sys, json; from caravanserai_core import load; "
        "print(json.dumps(load('run', store=sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@needs_root
def test_a_full_disk_keeps_the_state_before_and_goes_on_when_there_is_room(
    small_disk: Path,
) -> None:
    """`StoreFailed` with ENOSPC; a new process reads what was acknowledged; then it goes on."""
    store = FileStore(small_disk / "runs")
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 100_000)
    numbers = iter(range(1, 100))

    def save_on() -> None:
        for number in numbers:
            checkpoint(RUN, {"n": number, "text": "x" * 7_000}, f"step {number}", store=store)

    with pytest.raises(StoreFailed) as found:
        save_on()
    saved = next(numbers) - 2
    assert saved > 2
    assert found.value.errno == errno.ENOSPC
    assert found.value.filename.startswith(str(small_disk))

    with pytest.raises(StoreFailed):
        open_run(RUN, store=store).entry("large", "y" * 50_000)

    assert in_new_process(small_disk / "runs")["n"] == saved
    assert not [f for f in verify(store, RUN).findings if f.level != "note"]

    ballast.unlink()
    assert checkpoint(RUN, {"n": "after"}, store=store) == saved + 1
    assert in_new_process(small_disk / "runs") == {"n": "after"}
    assert [w.number for w in history(RUN, store=store)] == list(range(1, saved + 2))


@needs_root
def test_a_full_disk_before_the_first_waypoint(small_disk: Path) -> None:
    """Nothing is begun, and nothing stands in the way of beginning it later."""
    ballast = small_disk / "ballast"
    ballast.touch()
    with pytest.raises(OSError, match="No space"):
        ballast.write_bytes(b"x" * (1 << 20))
    store = FileStore(small_disk / "runs")

    for _ in range(2):
        with pytest.raises(StoreFailed) as found:
            checkpoint(RUN, {"n": 1}, store=store)
        assert found.value.errno == errno.ENOSPC

    ballast.unlink()
    assert checkpoint(RUN, {"n": 1}, store=store) == 1
    assert in_new_process(small_disk / "runs") == {"n": 1}


@needs_root
def test_a_full_disk_leaves_the_journal_that_was_to_be_rewritten(small_disk: Path) -> None:
    """There is no room for both: `StoreFailed`, the old one as it was, nothing left beside it."""
    store = FileStore(small_disk / "runs")
    for number in range(1, 20):
        checkpoint(RUN, {"n": number, "text": str(number) * 4_000}, f"step {number}", store=store)
    folder = small_disk / "runs" / RUN
    before = (folder / "journal-1.jsonl").read_bytes()
    assert len(before) > 100_000

    with pytest.raises(StoreFailed) as found:
        open_run(RUN, store=store).compact(lambda record: True)

    assert found.value.errno == errno.ENOSPC
    assert (folder / "journal-1.jsonl").read_bytes() == before
    assert not list(folder.glob(".journal*"))
    assert in_new_process(small_disk / "runs")["n"] == 19
    assert open_run(RUN, store=store).compact(lambda record: record.waypoint > 15) == 15
    assert [w.number for w in history(RUN, store=store)] == [16, 17, 18, 19]
    assert checkpoint(RUN, {"n": 20, "text": ""}, store=store) == 20


@needs_root
def test_a_read_only_disk(small_disk: Path) -> None:
    """Reading goes on; writing is refused with EROFS and changes nothing."""
    store = FileStore(small_disk / "runs")
    checkpoint(RUN, {"n": 1}, store=store)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    try:
        for run_id in (RUN, "new"):
            with pytest.raises(StoreFailed) as found:
                checkpoint(run_id, {"n": 2}, store=store)
            assert found.value.errno == errno.EROFS
        assert load(RUN, store=store) == {"n": 1}
        assert in_new_process(small_disk / "runs") == {"n": 1}
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert checkpoint(RUN, {"n": 2}, store=store) == 2


# ---------------------------------------------------------------------- other users


def as_nobody(work: Callable[[], object]) -> None:
    """Do `work` in a child that is not root; what it raises fails the test."""
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - shown, then told by the exit code
            traceback.print_exc()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def open_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that every user reaches."""
    import tempfile

    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@needs_root
def test_a_folder_that_may_not_be_written(open_folder: Path) -> None:
    """A user without the right gets EACCES and the path, and the journal is as it was."""
    closed = open_folder / "closed"
    closed.mkdir(mode=0o755)

    def work() -> None:
        store = FileStore(closed / "runs")
        with pytest.raises(StoreFailed) as found:
            checkpoint(RUN, {"n": 1}, store=store)
        assert found.value.errno == errno.EACCES
        assert found.value.filename.startswith(str(closed))
        with pytest.raises(OSError, match=r"Permission denied \(errno 13\)"):
            checkpoint(RUN, {"n": 1}, store=store)

    as_nobody(work)
    assert list(closed.iterdir()) == []


@needs_root
def test_a_run_folder_that_became_read_only(open_folder: Path) -> None:
    """The owner reads on; saves are refused until the right is back, then go on."""

    def work() -> None:
        store = FileStore(open_folder / "runs")
        folder = open_folder / "runs" / RUN
        checkpoint(RUN, {"n": 1}, store=store)
        (folder / "lock").unlink()
        folder.chmod(0o500)
        with pytest.raises(StoreFailed) as found:
            checkpoint(RUN, {"n": 2}, store=store)
        assert found.value.errno == errno.EACCES
        assert load(RUN, store=store) == {"n": 1}
        folder.chmod(0o700)
        assert checkpoint(RUN, {"n": 2}, store=store) == 2
        (folder / "journal-1.jsonl").chmod(0o000)
        forget(store, RUN)
        with pytest.raises(StoreFailed) as found:
            load(RUN, store=store)
        assert found.value.errno == errno.EACCES
        with pytest.raises(StoreFailed):
            checkpoint(RUN, {"n": 3}, store=store)

    as_nobody(work)


@needs_root
def test_a_run_of_another_user_is_refused(open_folder: Path) -> None:
    """What somebody else put there is neither read nor continued."""

    def begin() -> None:
        (open_folder / "runs").mkdir(mode=0o777)
        (open_folder / "runs").chmod(0o777)
        checkpoint("theirs", {"n": 1}, store=FileStore(open_folder / "runs"))

    as_nobody(begin)
    store = FileStore(open_folder / "runs")
    for use in (
        lambda: load("theirs", store=store),
        lambda: checkpoint("theirs", {"n": 2}, store=store),
        lambda: store.delete("theirs"),
    ):
        with pytest.raises(StoreRefused, match=f"uid {NOBODY}"):
            use()
    assert list(store.listing()) == []
