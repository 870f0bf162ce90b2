"""Notes are derived: lost or stale ones are written again, edited ones are kept and reported."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path

import pytest

from caravanserai import FileStore, Note, StoreFailed, checkpoint, load, open_run
from caravanserai_core.stores._seam import Files
from caravanserai_core.verify import renew_notes, verify
from integration_tests.api.helpers import forget_everything
from integration_tests.stores.seams import Failing

FOLDER = Path(".caravanserai/run")


@pytest.fixture
def store(store_dir: Path) -> FileStore:
    """A run with three waypoints and something since then."""
    made = FileStore(store_dir)
    run = open_run("run", store=made)
    run.checkpoint({"n": 1}, "one")
    run.checkpoint({"n": 2}, Note("two", happened=["this"], next="three", goal="count"))
    run.checkpoint({"n": 3})
    run.entry("tool", say="the tool began")
    forget_everything()
    return made


def interrupted() -> None:
    raise KeyboardInterrupt


def notes() -> dict[str, str]:
    """All notes beside the journal."""
    return {path.name: path.read_text() for path in FOLDER.glob("*.md")}


def test_missing_notes_are_written_again(store: FileStore) -> None:
    """To the byte what they were, whichever are gone."""
    before = notes()
    assert set(before) == {"waypoint-1.md", "waypoint-2.md", "waypoint-3.md", "latest.md"}
    for gone in (["waypoint-2.md"], ["latest.md"], ["waypoint-1.md", "waypoint-3.md"], before):
        for name in gone:
            (FOLDER / name).unlink()
        missing = sorted(f.what.split()[0] for f in verify(store, "run").findings)
        assert missing == sorted(name for name in gone if name != "latest.md")
        renew_notes(store, "run")
        assert notes() == before
        assert verify(store, "run").findings == []


@pytest.mark.parametrize("left", [0, 1, 40])
def test_a_note_that_was_not_written_to_its_end_is_written_again(
    store: FileStore, left: int
) -> None:
    """A process may be killed between creating the file and filling it."""
    before = notes()
    (FOLDER / "waypoint-2.md").write_text(before["waypoint-2.md"][:left])
    assert [f.what.split(";")[0] for f in verify(store, "run").findings] == [
        "waypoint-2.md is unfinished"
    ]
    renew_notes(store, "run")
    assert notes() == before
    assert verify(store, "run").findings == []


def test_stale_live_note_is_renewed(store: FileStore) -> None:
    """What a process left that was killed before its note was written."""
    before = notes()
    (FOLDER / "latest.md").unlink()
    os.symlink("waypoint-1.md", FOLDER / "latest.md")
    renew_notes(store, "run")
    assert notes() == before
    (FOLDER / "latest.md").write_text("# Waypoint 9\n\nwrong\n")
    renew_notes(store, "run")
    assert notes() == before


def test_next_waypoint_sets_the_live_note_right(store: FileStore) -> None:
    """Also where nobody looked in between."""
    (FOLDER / "latest.md").unlink()
    checkpoint("run", {"n": 4}, "four", store=store)
    after = notes()
    assert after["latest.md"] == after["waypoint-4.md"]


def test_the_live_note_never_ends_with_an_older_one(tmp_path: Path) -> None:
    """It is written over in its place: whatever a kill leaves is the older text, or the newer."""
    path = tmp_path / "runs/run/latest.md"
    for long in (100, 4000, 4090, 5000, 9000):
        for call in ("open", "fstat", "write", "truncate", "close", "rename"):
            for at in range(1, 12):
                files = Failing()
                store = FileStore(tmp_path / "runs", files=files)
                checkpoint("run", {"n": 1}, "a" * long, store=store)
                before = path.read_text()
                files.arm(at, KeyboardInterrupt(), only=call)
                with contextlib.suppress(KeyboardInterrupt):
                    checkpoint("run", {"n": 2}, "b", store=store)
                files.arm(0, OSError())
                after = path.read_text()
                assert after == before or re.fullmatch(r"# Waypoint \d+ .*\n\nb\n+", after), call
                checkpoint("run", {"n": 3}, "c", store=store)
                assert path.read_text().endswith("\n\nc\n")


def test_edited_note_is_kept_and_reported(store: FileStore) -> None:
    """A person's words are not written over; what the journal says stays what it is."""
    path = FOLDER / "waypoint-2.md"
    path.write_text(path.read_text() + "\nI have read this.\n")
    edited = path.read_text()
    (FOLDER / "waypoint-1.md").unlink()
    renew_notes(store, "run")
    assert path.read_text() == edited
    (finding,) = verify(store, "run").findings
    assert (finding.level, finding.waypoint) == ("note", 2)
    assert "waypoint-2.md was edited" in finding.what
    assert not verify(store, "run").damaged
    assert load("run", 2, store=store) == {"n": 2}


def test_renewal_changes_nothing_that_is_right(store: FileStore) -> None:
    """A look at a healthy run writes nothing."""
    before = {path.name: path.lstat().st_mtime_ns for path in FOLDER.iterdir()}
    renew_notes(store, "run")
    assert {path.name: path.lstat().st_mtime_ns for path in FOLDER.iterdir()} == before


def test_renewal_of_what_is_not_there(store_dir: Path) -> None:
    """An unknown run stays unknown."""
    renew_notes(FileStore(store_dir), "run")
    assert not store_dir.exists()


def test_the_live_note_says_what_it_leaves_out(store: FileStore) -> None:
    """Of many lines the last ones; a step that has no result yet never falls out."""
    run = open_run("run", store=store)
    with run:
        run.checkpoint({"n": 4}, "four")
        with pytest.raises(KeyboardInterrupt):
            run.once("pay", interrupted, key="a")
        for n in range(30):
            run.once("look up", str, n, key=n)
        told = notes()["latest.md"].partition("Since then:")[2].strip().splitlines()
        assert told[0] == "- 11 more came before these; `caravanserai log` has them."
        assert told[1].startswith('- `pay("a")` began')
        assert told[1].endswith("no result yet")
        assert "- `look up(29)` came to its end" in told[20]
        before = notes()
        (FOLDER / "latest.md").unlink()
        forget_everything()
        renew_notes(store, "run")
        assert notes() == before


class FullDisk(Files):
    """System calls of a disk on which no further file can be made."""

    @staticmethod
    def open(path: str, flags: int, mode: int = 0o777) -> int:  # type: ignore[override]
        if flags & os.O_CREAT and str(path).endswith(".md"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.open(path, flags, mode)


def test_notes_that_cannot_be_written_fail_no_save(
    store: FileStore, caplog: pytest.LogCaptureFixture
) -> None:
    """They are derived: a disk that is full for them costs a warning, not the waypoint."""
    full = FileStore(store.root, files=FullDisk())
    assert checkpoint("run", {"n": 4}, "four", store=full) == 4
    assert caplog.text.count("note could not be written") == 1
    assert notes()["latest.md"].endswith("\n\nfour\n")  # it was there, and takes no new room
    assert "waypoint-4.md" not in notes()
    forget_everything()
    assert load("run", store=store) == {"n": 4}
    renew_notes(store, "run")
    assert notes()["waypoint-4.md"].endswith("\n\nfour\n")
    assert notes()["latest.md"] == notes()["waypoint-4.md"]


class BrokenSync(Files):
    """System calls of a disk that keeps nothing for a while."""

    broken = False

    def sync_data(self, fd: int) -> None:
        if self.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync_data(fd)


def test_failed_save_repeats_no_line(store_dir: Path) -> None:
    """What somebody else wrote is told once, however often this process had to try."""
    files = BrokenSync()
    run = open_run("run", store=FileStore(store_dir, files=files))
    run.checkpoint({"n": 1}, "one")
    child = os.fork()
    if not child:
        try:
            open_run("run", store=store_dir).entry("tool", say="begun elsewhere")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    files.broken = True
    for _ in range(2):
        with pytest.raises(StoreFailed):
            run.entry("tool", say="begun here")
    files.broken = False
    run.entry("tool", say="begun here")
    told = (FOLDER / "latest.md").read_text().split("\n")[6:-1]
    assert told == ["- begun elsewhere", "- begun here"]
