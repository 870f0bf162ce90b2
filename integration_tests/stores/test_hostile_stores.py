"""Stores that somebody prepared: links, pipes, foreign records, numbers that are too large."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from caravanserai import (
    FileStore,
    JournalDamaged,
    StoreRefused,
    checkpoint,
    clean,
    list_runs,
    load,
    save,
)
from caravanserai_core.journal import forget
from caravanserai_core.verify import renew_notes, verify


def filled(store: FileStore, run_id: str, count: int) -> Path:
    """Write a run and forget it; returns its journal."""
    for number in range(count):
        checkpoint(run_id, {"of": run_id, "n": number}, f"step {number}", store=store)
    forget(store, run_id)
    return Path(store.folder(run_id), "journal-1.jsonl")


@pytest.fixture
def store(store_dir: Path) -> FileStore:
    """A store in the test's folder."""
    return FileStore(store_dir)


def test_a_deletion_follows_no_link(store: FileStore, tmp_path: Path) -> None:
    """A planted `.deleted-…` link loses its name; what it points at is untouched."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("precious")
    filled(store, "run", 1)
    os.symlink(victim, Path(store.root, ".deleted-x"))
    assert clean("run", store=store)
    assert (victim / "file").read_text() == "precious"
    assert not Path(store.root, ".deleted-x").is_symlink()


@pytest.mark.parametrize("name", ["journal-1.jsonl", "journal-2.jsonl"])
def test_a_pipe_in_a_journals_place_is_refused(store: FileStore, name: str) -> None:
    """It is not waited for, neither by a list nor by a load or a save."""
    folder = filled(store, "run", 2).parent
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    code = (
        "import caravanserai as c\n"
        f"s = c.FileStore({store.root!r})\n"
        "c.list_runs(store=s)\n"
        "for f in (lambda: c.load('run', store=s), lambda: c.save('run', 1, store=s)):\n"
        "    try: f(); raise SystemExit('not refused')\n"
        "    except c.StoreRefused: pass\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["waypoint-1.md", "latest.md"])
def test_a_pipe_or_a_device_in_a_notes_place_is_passed_over(store: FileStore, name: str) -> None:
    """A note is looked at only where it is a file of a sensible size."""
    folder = filled(store, "run", 1).parent
    for plant in (os.mkfifo, lambda path: os.symlink("/dev/zero", path)):
        (folder / name).unlink(missing_ok=True)
        plant(folder / name)
        assert store.get_note("run", name) is None
        assert not verify(store, "run").damaged
        renew_notes(store, "run")


def test_a_record_of_another_run_is_damage(store: FileStore) -> None:
    """A line that is not chained to the one before it is no newest waypoint."""
    journal, other = filled(store, "a", 3), filled(store, "b", 10)
    with journal.open("ab") as file:
        file.write(other.read_bytes().splitlines(keepends=True)[-1])
    with pytest.raises(JournalDamaged):
        load("a", store=store)
    with pytest.raises(JournalDamaged):
        save("a", 1, store=store)
    assert [i.status for i in list_runs(store=store) if i.run_id == "a"] in (["damaged"], [])
    assert load("a", at=3, store=store) == {"of": "a", "n": 2}


def test_a_journal_of_another_run_is_refused_for_any_waypoint(store: FileStore) -> None:
    """Whose journal it is, is asked also where an old waypoint is wanted by number."""
    journal, other = filled(store, "a", 2), filled(store, "b", 2)
    shutil.copy(other, journal)
    for at in (None, 1):
        with pytest.raises(JournalDamaged, match="holds the run b"):
            load("a", at=at, store=store)


def test_a_waypoint_that_was_taken_out_is_damage(store: FileStore) -> None:
    """A number that was acknowledged is never 'not found'."""
    journal = filled(store, "run", 5)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:3] + lines[4:]))
    with pytest.raises(JournalDamaged):
        load("run", at=3, store=store)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"seq":4,', b'"seq":4,"app":[4,1000000000],'),
        (b'"seq":4,', b'"seq":4,"app":[-5,10],'),
        (b'"seq":4,', b'"seq":4,"epoch":"x",'),
        (b'"seq":4,', b'"seq":4,"epoch":null,'),
        (b'"note":"step 2"', b'"note":7'),
        (b'"note":"step 2"', b'"note":{"summary":"s","plan":1}'),
        (b'"note":"step 2"', b'"note":{"summary":"s","plan":[1]}'),
        (b'"note":"step 2"', b'"note":"step 2","say":5,"remark":[1]'),
    ],
)
def test_a_head_with_hostile_values_gives_a_typed_error_or_none(
    store: FileStore, old: bytes, new: bytes
) -> None:
    """Sums that were computed anew protect nothing; no value in a head may do harm."""
    journal = filled(store, "run", 3)
    lines = journal.read_bytes().splitlines(keepends=True)
    head_size = int(lines[-1].partition(b"[")[2].partition(b",")[0])
    start = lines[-1].index(b"],") + 2
    head = lines[-1][start : start + head_size].replace(old, new)
    body = lines[-1][start + head_size + 1 : lines[-1].rindex(b',"sum"')]
    total = hashlib.sha256(head + b"," + body).hexdigest()[:32].encode()
    lines[-1] = b'{"len":[%d,%d],%b,%b,"sum":"%b"}\n' % (len(head), len(body), head, body, total)
    journal.write_bytes(b"".join(lines))

    for action in (
        lambda: load("run", store=store),
        lambda: list_runs(store=store),
        lambda: verify(store, "run"),
        lambda: renew_notes(store, "run"),
        lambda: save("run", {"n": 9}, store=store),
    ):
        try:
            action()
        except (JournalDamaged, StoreRefused):
            forget(store, "run")


def test_a_length_that_is_not_there_is_not_asked_for(store: FileStore) -> None:
    """A line that claims to hold terabytes is damage, and no MemoryError."""
    journal = filled(store, "run", 4)
    data = journal.read_bytes()
    at = data.index(b'"waypoint":2,')
    start = data.rindex(b'{"len":[', 0, at)
    end = data.index(b"]", start)
    journal.write_bytes(data[:start] + b'{"len":[200,9000000000000' + data[end:])
    with pytest.raises(JournalDamaged):
        load("run", at=2, store=store)
    assert load("run", store=store)["n"] == 3
