"""The operating system refuses, at every call in turn: typed errors, nothing lost or stuck."""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from caravanserai_core import (
    api,
    checkpoint,
    clean,
    history,
    lane,
    list_runs,
    load,
    open_run,
    reading,
)
from caravanserai_core.errors import RunNotFound, StoreFailed
from caravanserai_core.journal import forget
from caravanserai_core.stores import FileStore, _file, _folder
from caravanserai_core.verify import renew_notes, verify
from integration_tests.stores.seams import Failing

RUN = "run"
ERRORS = (errno.EIO, errno.ENOSPC, errno.EACCES, errno.EROFS)

Use = Callable[[FileStore], object]


class Operation(NamedTuple):
    """Something a program does, one fault at a time.

    Attributes:
        before: what is done first, undisturbed; the states are the oracle's.
        act: what is disturbed; it returns what `after` says.
        after: state of the newest waypoint afterwards, or None: no run.
    """

    before: Use
    act: Use
    after: Any


def state(number: int) -> dict[str, Any]:
    """Return the state that waypoint `number` is saved with."""
    return {"n": number, "text": "x" * 500}


def save(number: int) -> Use:
    return lambda store: checkpoint(RUN, state(number), f"step {number}", store=store)


def steps(count: int) -> Use:
    def do(store: FileStore) -> None:
        for number in range(1, count + 1):
            save(number)(store)

    return do


def torn(store: FileStore) -> None:
    steps(2)(store)
    forget(store, RUN)
    with (Path(store.root) / RUN / "journal-1.jsonl").open("ab") as file:
        file.write(b'{"len":[200,20],"seq":4,"kind"')


def legacy(store: FileStore) -> None:
    folder = Path(store.root) / RUN
    folder.mkdir(parents=True, mode=0o700)
    (folder / "state.json").write_text('{"n": 1, "text": "old"}')
    (folder / "waypoint-1.md").write_text("# Waypoint 1 — 2026-08-20T22:41:03+00:00\n\nold\n")
    (folder / "latest").write_text("1")


OPERATIONS = {
    "first checkpoint": Operation(lambda store: None, save(1), state(1)),
    "later checkpoint": Operation(steps(2), save(3), state(3)),
    "entry": Operation(
        steps(2), lambda store: open_run(RUN, store=store).entry("e", 1, say="called"), state(2)
    ),
    "finish": Operation(steps(2), lambda store: open_run(RUN, store=store).finish("end"), state(2)),
    "new segment": Operation(steps(5), save(6), state(6)),
    "torn tail": Operation(torn, save(3), state(3)),
    "taking over": Operation(legacy, save(2), state(2)),
    "compact": Operation(
        steps(6),
        lambda store: open_run(RUN, store=store).compact(lambda record: record.waypoint > 3),
        state(6),
    ),
    "delete": Operation(steps(2), lambda store: clean(RUN, store=store), None),
    "load": Operation(steps(6), lambda store: load(RUN, store=store), state(6)),
    "load at": Operation(steps(6), lambda store: load(RUN, 1, store=store), state(6)),
    "history": Operation(steps(6), lambda store: history(RUN, store=store), state(6)),
    "notes again": Operation(steps(2), lambda store: renew_notes(store, RUN), state(2)),
}


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_file, "SEGMENT_SIZE", 2500)
    monkeypatch.setattr(lane, "SMALL", 100)


def newest(root: Path) -> Any:
    """Return the newest state as another process reads it, or None."""
    try:
        return reading.load(FileStore(root), RUN)
    except RunNotFound:
        return None


def descriptors() -> set[str]:
    """Return what this process has open, by descriptor."""
    return set(os.listdir("/proc/self/fd"))


def each_call(
    operation: Operation, tmp_path: Path, **how: Any
) -> Iterator[tuple[Path, FileStore, Failing, Callable[[BaseException], None]]]:
    """Prepare a store for each call of the operation, until it completes untouched."""
    for at in range(1, 200):
        seam = Failing()
        root = tmp_path / f"{len(os.listdir(tmp_path))}"
        store = FileStore(root, files=seam, timeout=1.0)
        operation.before(store)
        yield root, store, seam, lambda problem, at=at, seam=seam: seam.arm(at, problem, **how)
        forget(store, RUN)
        if not seam.fired:
            assert at > 1, "the operation makes no call"
            return
    raise AssertionError("it never completes untouched")


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_error_at_any_call_is_typed_and_loses_nothing(
    name: str, tmp_path: Path, thorough: bool
) -> None:
    """`StoreFailed` with errno and path, the journal as it was, and the run goes on afterwards."""
    operation = OPERATIONS[name]
    for shift in range(len(ERRORS) if thorough else 1):
        for count, (root, store, seam, arm) in enumerate(each_call(operation, tmp_path)):
            code = ERRORS[(count + shift) % len(ERRORS)]
            before, opened = newest(root), descriptors()
            arm(OSError(code, os.strerror(code)))

            failure: StoreFailed | None = None
            try:
                operation.act(store)
            except StoreFailed as found:
                failure = found
            seam.at = 0

            call = seam.calls[-1] if seam.fired else "none"
            assert descriptors() == opened, call
            if failure is not None:
                assert failure.errno == code, call
                assert failure.filename.startswith(str(tmp_path)), call
                assert os.strerror(code) in str(failure), call
                if name != "delete":
                    assert newest(root) == before, call
                    operation.act(store)
            if name == "delete":
                assert newest(root) in (before, None)
                operation.act(store)
            assert newest(root) == operation.after, call
            goes_on(root)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_interrupt_at_any_call_loses_nothing(name: str, tmp_path: Path) -> None:
    """^C at any moment: the state before or after, whole; the lock is free; the run goes on."""
    operation = OPERATIONS[name]
    for root, store, seam, arm in each_call(operation, tmp_path):
        before = newest(root)
        arm(KeyboardInterrupt())

        interrupted = False
        try:
            operation.act(store)
        except KeyboardInterrupt:
            interrupted = True
        seam.at = 0

        assert interrupted == seam.fired
        assert newest(root) in (before, operation.after), seam.calls
        if interrupted and newest(root) == before:
            operation.act(store)
        assert newest(root) == operation.after, seam.calls
        goes_on(root)


def goes_on(root: Path) -> None:
    """Check that another process can write at once, and that nothing is damaged."""
    forget(FileStore(root), RUN)
    store = FileStore(root, timeout=0.5)
    checkpoint(RUN, state(99), "went on", store=store)
    assert newest(root) == state(99)
    assert not verify(store, RUN).damaged
    numbers = [waypoint.number for waypoint in history(RUN, store=store)]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert numbers[0] in (1, 4)
    assert not list((root / RUN).glob(".journal*"))
    forget(store, RUN)


def test_what_a_deletion_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    """A crash or an error after the run is gone leaves no private data behind for ever."""
    seam = Failing()
    store = FileStore(tmp_path / "runs", files=seam)
    steps(2)(store)
    checkpoint("other", {}, store=store)
    seam.arm(3, OSError(errno.EIO, "I/O"), only="unlink")
    assert store.delete(RUN), "the run is gone, whatever became of its files"
    assert newest(tmp_path / "runs") is None
    assert [info.run_id for info in list_runs(store=store)] == ["other"]
    assert list((tmp_path / "runs").glob(".deleted-*"))

    assert not store.delete(RUN)

    assert sorted(os.listdir(tmp_path / "runs")) == [".gitignore", "other"]


def test_a_list_shows_the_other_runs(tmp_path: Path) -> None:
    """An error in one folder is that run's, not the list's."""
    seam = Failing()
    store = FileStore(tmp_path / "runs", files=seam)
    for name in ("a", "b", "c"):
        checkpoint(name, {"of": name}, store=store)
    for at in range(1, 100):
        seam.arm(at, OSError(errno.EIO, "I/O"))
        try:
            found = list_runs(store=store)
        except StoreFailed as failure:
            assert (at, failure.errno, failure.filename) == (1, errno.EIO, store.root)  # noqa: PT017
            continue
        if not seam.fired:
            break
        assert len(found) == 3
        assert len([info for info in found if info.error]) <= 1
        assert all("errno 5" in info.error for info in found if info.error)
    assert at > 10


def test_a_disk_that_takes_half_a_record_and_then_no_more(tmp_path: Path) -> None:
    """The half that was written is cut off again before the lock is given back."""
    for name in ("first checkpoint", "later checkpoint", "new segment", "torn tail"):
        operation = OPERATIONS[name]
        how = {"only": "write", "short": True, "lasting": True}
        for root, store, seam, arm in each_call(operation, tmp_path, **how):
            before = newest(root)
            lines = count_lines(root)
            arm(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
            try:
                operation.act(store)
            except StoreFailed as failure:
                assert failure.errno == errno.ENOSPC  # noqa: PT017
                if name != "torn tail":
                    assert count_lines(root) == lines
                assert newest(root) == before
            seam.at = 0
            forget(store, RUN)
            goes_on(root)


def count_lines(root: Path) -> list[bytes]:
    """Return the bytes of all segments that hold any."""
    found = [path.read_bytes() for path in sorted((root / RUN).glob("journal-*.jsonl"))]
    return [data for data in found if data]


# ---------------------------------------------------------------------- a failed sync


def test_after_a_failed_sync_everybody_begins_a_new_segment(tmp_path: Path) -> None:
    """Its data may be gone although a second sync succeeds, so nobody builds on that file."""
    for writer in ("the same process", "another process"):
        seam = Failing()
        root = tmp_path / writer.replace(" ", "-")
        store = FileStore(root, files=seam)
        steps(2)(store)
        journal = root / RUN / "journal-1.jsonl"
        acknowledged = journal.read_bytes()

        seam.arm(1, OSError(errno.EIO, "I/O"), only="sync_data")
        with pytest.raises(StoreFailed, match="did not keep"):
            save(3)(store)
        assert journal.read_bytes() == acknowledged

        if writer == "another process":
            forget(store, RUN)
            store = FileStore(root)
        save(3)(store)
        save(4)(store)
        assert journal.read_bytes() == acknowledged
        assert (root / RUN / "journal-2.jsonl").exists()
        assert not (root / RUN / "journal-3.jsonl").exists()
        assert newest(root) == state(4)
        assert [load(RUN, n, store=store)["n"] for n in range(1, 5)] == [1, 2, 3, 4]
        goes_on(root)


def test_a_writer_that_slept_through_a_failed_sync_follows(tmp_path: Path) -> None:
    """A process whose tail is still the end of the old segment does not write behind it."""
    store = FileStore(tmp_path / "runs")
    steps(2)(store)
    sleeper = open_run(RUN, store=store)
    forget(store, RUN)
    seam = Failing()
    other = FileStore(store.root, files=seam)
    run = open_run(RUN, store=other)
    seam.arm(1, OSError(errno.EIO, "I/O"), only="sync_data")
    with pytest.raises(StoreFailed):
        run.entry("e", 1)
    run.entry("e", 2)

    sleeper.entry("e", 3)

    names = [entry.data for entry in open_run(RUN, store=other).entries()]
    assert names == [2, 3]
    assert (Path(store.root) / RUN / "journal-2.jsonl").read_bytes().count(b"\n") == 4
    assert not verify(store, RUN).damaged


def test_a_disk_that_cannot_sync_is_used_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fsync(2) gives EINVAL on some file systems: there is nothing to wait for."""
    monkeypatch.setattr(_folder, "_cannot_sync", set())
    seam = Failing()
    store = FileStore(tmp_path / "runs", files=seam)
    for only in ("sync_data", "sync_dir"):
        seam.arm(1, OSError(errno.EINVAL, "invalid"), only=only, lasting=True)
        with caplog.at_level(logging.WARNING, "caravanserai"):
            for number in range(1, 4):
                checkpoint(only, state(number), store=store)
            assert clean(only, store=store)

    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    assert re.search("cannot sync", warnings[0])
    checkpoint(RUN, state(1), store=store)
    assert newest(tmp_path / "runs") == state(1)


def test_a_note_that_cannot_be_written_fails_no_save(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Notes are derived: the save is acknowledged, a warning says it, they come back later."""
    seam = Failing()
    store = FileStore(tmp_path / "runs", files=seam)
    save(1)(store)
    (tmp_path / "runs" / RUN / "waypoint-1.md").unlink()
    real = seam.open

    def full(path: str, *rest: Any) -> int:
        if path.endswith(".md") or "/.latest" in path:
            raise OSError(errno.ENOSPC, "full")
        return int(real(path, *rest))

    seam.open = full  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING, "caravanserai"):
        assert checkpoint(RUN, state(2), store=store) == 2
    assert "note could not be written" in caplog.text
    assert newest(tmp_path / "runs") == state(2)
    assert api.get_waypoint(RUN, store=store).number == 2

    renew_notes(FileStore(store.root), RUN)

    assert (tmp_path / "runs" / RUN / "waypoint-1.md").exists()
    assert (tmp_path / "runs" / RUN / "waypoint-2.md").exists()
