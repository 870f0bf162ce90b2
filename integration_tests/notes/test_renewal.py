"""Notes are derived: lost or stale ones are written again, edited ones are kept and reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from caravanserai import FileStore, Note, checkpoint, load, open_run
from caravanserai_core.verify import renew_notes, verify
from integration_tests.api.helpers import forget_everything

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
    assert os.readlink(FOLDER / "latest.md") == "waypoint-4.md"


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


def test_notes_that_cannot_be_written_fail_no_save(
    store: FileStore, caplog: pytest.LogCaptureFixture
) -> None:
    """They are derived: a folder in a note's place costs a warning, not the waypoint."""
    (FOLDER / "waypoint-4.md").mkdir()
    (FOLDER / "waypoint-4.md" / "x").touch()
    assert checkpoint("run", {"n": 4}, "four", store=store) == 4
    assert "note could not be written" in caplog.text
    forget_everything()
    assert load("run", store=store) == {"n": 4}
