"""An append of several records in the middle of a segment, of which a crash kept any part."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from caravanserai_core.errors import JournalDamaged
from caravanserai_core.stores import FileStore
from caravanserai_core.stores.base import Bad
from caravanserai_core.testing import HandWriter

PAGE = 4096


def begin(root: Path) -> tuple[HandWriter, Path]:
    """Write some whole appends; returns the writer and the path of the segment."""
    writer = HandWriter(FileStore(root))
    writer.append(writer.state(b'"%b"' % (b"a" * 700)))
    writer.append(writer.entry(b'"one"'), writer.entry(b'"two"'))
    return writer, root / "run" / "journal-1.jsonl"


def end_of(root: Path) -> int:
    """Return the number of the last record, as another process reads it."""
    recent = FileStore(root).recent("run")
    assert recent is not None
    return recent.tail.seq


def goes_on(root: Path, seq: int, torn: bytes) -> None:
    """Check that the next writer sets the torn bytes aside and takes the next number."""
    writer = HandWriter(FileStore(root), name="next")

    appended = writer.append(writer.entry())

    assert appended.tail.seq == seq + 1
    kept = [path.read_bytes() for path in (root / "run").glob("*.damaged-*")]
    assert kept == ([torn] if torn else [])
    assert not [item for item in FileStore(root).scan("run", bodies=True) if isinstance(item, Bad)]


def test_any_pages_of_an_append_may_be_missing(tmp_path: Path) -> None:
    """A disk keeps pages in any order: all of the append is there, or none of it counts."""
    writer, path = begin(tmp_path / "runs")
    before = path.read_bytes()
    assert end_of(tmp_path / "runs") == 4
    writer.append(*(writer.entry(b'"%b"' % (letter * 5000)) for letter in (b"x", b"y", b"z")))
    after = path.read_bytes()
    pages = range(len(before) // PAGE, -(-len(after) // PAGE))
    assert len(pages) > 3

    for kept in itertools.product((True, False), repeat=len(pages)):
        data = bytearray(before.ljust(len(after), b"\0"))
        for page, there in zip(pages, kept, strict=True):
            if there:
                data[page * PAGE : (page + 1) * PAGE] = after[page * PAGE : (page + 1) * PAGE]
        for cut in (len(after), len(after) - 2000, len(after) - 7000):
            image = bytes(data[:cut])
            path.write_bytes(image)
            whole = image == after

            assert end_of(tmp_path / "runs") == (7 if whole else 4), kept
            found = list(FileStore(tmp_path / "runs").scan("run", bodies=True))
            assert [item.seq for item in found if not isinstance(item, Bad)][:4] == [1, 2, 3, 4]

            goes_on(tmp_path / "runs", 7 if whole else 4, b"" if whole else image[len(before) :])
            for aside in path.parent.glob("*.damaged-*"):
                aside.unlink()


def test_an_append_cut_at_any_byte_is_not_there(tmp_path: Path, thorough: bool) -> None:
    """Whole lines of an unfinished append do not count either, nor is their waypoint given."""
    writer, path = begin(tmp_path / "runs")
    before = path.read_bytes()
    writer.append(writer.entry(b"1"), writer.state(b'"new"'), writer.entry(b"2"))
    after = path.read_bytes()

    for cut in range(len(before), len(after) - 1, 1 if thorough else 3):
        path.write_bytes(after[:cut])

        assert end_of(tmp_path / "runs") == 4, cut
        assert FileStore(tmp_path / "runs").chain("run", 2) == [], cut
        if cut % 5 == 0:
            goes_on(tmp_path / "runs", 4, after[len(before) : cut])
            for aside in path.parent.glob("*.damaged-*"):
                aside.unlink()


def test_what_another_append_follows_was_acknowledged(tmp_path: Path) -> None:
    """A hole before a whole append, or before the beginning of a torn one, is damage."""
    writer, path = begin(tmp_path / "runs")
    start = path.stat().st_size
    writer.append(writer.entry(b'"acknowledged"'))
    stop = path.stat().st_size
    writer.append(writer.entry(b'"1"'), writer.entry(b'"2"'))
    data = bytearray(path.read_bytes())
    data[start : stop - 1] = bytes(stop - 1 - start)
    path.write_bytes(data[:-10])

    for use in (
        lambda: FileStore(tmp_path / "runs").recent("run"),
        lambda: HandWriter(FileStore(tmp_path / "runs")).append(writer.entry()),
    ):
        with pytest.raises(JournalDamaged) as found:
            use()
        assert (found.value.path, found.value.offset) == (str(path), start)
    assert path.read_bytes() == data[:-10]
    assert not list(path.parent.glob("*.damaged-*"))


def test_damage_in_what_a_writer_missed_is_refused(tmp_path: Path) -> None:
    """A writer decides on all news: a record that it cannot read might be a conflict."""
    writer, path = begin(tmp_path / "runs")
    sleeper = HandWriter(FileStore(tmp_path / "runs"))
    sleeper.known, sleeper.newest = writer.known, writer.newest
    start = path.stat().st_size
    writer.append(writer.state(b'"foreign"'))
    writer.append(writer.entry())
    data = path.read_bytes()
    path.write_bytes(data[: start + 100] + b"#" + data[start + 101 :])
    broken = path.read_bytes()

    with pytest.raises(JournalDamaged) as found:
        sleeper.append(sleeper.state(b'"mine"'))

    assert (found.value.path, found.value.offset) == (str(path), start)
    assert path.read_bytes() == broken


def test_readers_beside_a_writer_never_see_damage(tmp_path: Path, thorough: bool) -> None:
    """Large appends, one after the other, seen half-written: each look gives a whole end."""
    from integration_tests.stores.workers import join, start

    root = tmp_path / "runs"
    begin(root)

    def write() -> None:
        writer = HandWriter(FileStore(root), name="busy")
        for number in range(400 if thorough else 100):
            body = b'"%b"' % (b"%d " % number * 30_000)
            writer.append(writer.state(body), writer.entry(), writer.entry())

    pid = start(write)
    looks, last = 0, 0
    import os

    while not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        seq = end_of(root)
        assert seq >= last
        assert (seq - 4) % 3 == 0, "half of an append was seen"
        listed = list(FileStore(root).listing())
        assert [item.error for item in listed] == [None]
        looks, last = looks + 1, seq
    assert join(pid) == 0
    assert looks > 3
