"""`verify --repair`: every kind of damage is mended, what still loads stays, numbers go on."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
from pathlib import Path

import pytest

from caravanserai_core import api, history, load, open_run
from caravanserai_core.errors import JournalDamaged, RunNotFound, StoreFailed
from caravanserai_core.journal import forget
from caravanserai_core.records import Record
from caravanserai_core.repair import Repaired, repair
from caravanserai_core.stores import FileStore, MemoryStore
from caravanserai_core.verify import verify
from integration_tests.journal.crash import Disk, lay_out
from integration_tests.journal.damage import RUN, Case, Written, parsed
from integration_tests.stores.seams import Failing, Logging


def damaged(case: Case) -> bool:
    """Say whether verify finds damage."""
    return verify(FileStore(case.root), RUN).damaged


def loading(case: Case) -> set[int]:
    """Return the waypoints that load, each as it was saved."""
    found: set[int] = set()
    for number, state in case.written.states.items():
        try:
            if load(RUN, number, store=FileStore(case.root)) == state:
                found.add(number)
        except (JournalDamaged, LookupError):
            continue
    return found


def mend(case: Case) -> Repaired:
    """Repair, and check all that is promised of that."""
    before, whole, could = case.bytes(), case.whole(), loading(case)
    notes = {name: data for name, data in before.items() if name.startswith("waypoint-")}
    case.forget()

    done = repair(FileStore(case.root), RUN)

    assert done.damaged
    store = FileStore(case.root)
    assert set(done.kept) >= whole | could
    assert not set(done.kept) & set(done.lost)
    assert set(done.kept) | set(done.lost) == set(case.written.states)
    assert [w.number for w in history(RUN, store=store)] == done.kept
    for number in done.kept:
        assert load(RUN, number, store=store) == case.written.states[number]
    assert not damaged(case)
    after = case.bytes()
    assert {name: after[name] for name in notes} == notes
    # Each damaged segment is there, byte for byte, under its new name.
    assert done.aside or not any(name.startswith("journal") for name in before)
    for path in done.aside:
        segment = Path(path).name.partition(".")[0] + ".jsonl"
        assert Path(path).read_bytes() == before[segment]
    assert [p.name for p in case.folder.glob("journal-*.jsonl")] == ["journal-1.jsonl"]
    assert not list(case.folder.glob(".journal*"))

    case.forget()
    state = {"after": "the repair"}
    assert api.checkpoint(RUN, state, store=store) == case.written.newest + 1
    assert load(RUN, store=store) == state
    assert not damaged(case)
    assert not repair(store, RUN).damaged
    return done


def reset(case: Case) -> None:
    """Make the copy whole again."""
    case.forget()
    shutil.rmtree(case.root)
    shutil.copytree(case.written.root, case.root, symlinks=True)


def test_a_flipped_bit_anywhere_is_mended(written: Written, case: Case, thorough: bool) -> None:
    """It takes the record, and what builds on it; nothing else."""
    chance = random.Random(5)
    for name, data in written.segments.items():
        for offset in chance.sample(range(len(data)), len(data) // 4 if thorough else 25):
            changed = bytearray(data)
            changed[offset] ^= 1 << chance.randrange(8)
            case.put(name, bytes(changed))
            if damaged(case):
                mend(case)
            reset(case)


@pytest.mark.parametrize("line", [b"garbage\n", b"\n", b"{}\n", b"\xff\xfe\n"])
def test_a_foreign_line_anywhere_is_mended(written: Written, case: Case, line: bytes) -> None:
    """Everything that was saved is kept."""
    for name in written.segments:
        lines = written.lines(name)
        for index in range(0, len(lines) + 1, 3):
            case.put(name, b"".join([*lines[:index], line, *lines[index:]]))
            assert mend(case).lost == []
            reset(case)


def test_lines_twice_removed_or_in_another_order_are_mended(written: Written, case: Case) -> None:
    """A doubled line counts once, the order is that of the numbers, a removed line is lost."""
    for name in written.segments:
        lines = written.lines(name)
        for index in range(len(lines) - 1):
            pair = lines[index : index + 2]
            for put, whole in (
                ([*pair[:1], *pair], True),
                (pair[::-1], True),
                (pair[1:], parsed(pair[0])["kind"] != "waypoint"),
            ):
                case.put(name, b"".join([*lines[:index], *put, *lines[index + 2 :]]))
                if damaged(case):
                    assert (mend(case).lost == []) is whole, index
                reset(case)


def test_a_journal_that_ends_too_early_is_mended(written: Written, case: Case) -> None:
    """Lost waypoints are named by the notes beside, and their numbers are not given again."""
    lines = written.lines(written.last)
    case.put(written.last, b"".join(lines[:-3]))

    done = mend(case)

    assert done.lost == [written.newest - 1, written.newest]


def test_a_missing_segment_is_mended(written: Written, case: Case) -> None:
    """What was in it is lost; the other one is kept."""
    for name, other in (("journal-1.jsonl", "journal-2.jsonl"), ("journal-2.jsonl", None)):
        case.put(name, None)
        if damaged(case):
            done = mend(case)
            kept = {parsed(line)["waypoint"] for line in written.lines(other or "journal-1.jsonl")}
            assert set(done.kept) <= kept
            assert done.kept
        reset(case)


def test_a_journal_of_nothing_but_garbage_is_mended(written: Written, case: Case) -> None:
    """Nothing can be kept; the run goes on under the next number all the same."""
    case.put("journal-2.jsonl", None)
    for data in (b"garbage\n" * 100, b"\0" * 5000, b""):
        case.put("journal-1.jsonl", data)

        done = mend(case)

        assert done.kept == []
        assert done.lost == sorted(written.states)
        reset(case)
        case.put("journal-2.jsonl", None)


def test_a_damaged_beginning_of_each_segment_is_mended(written: Written, case: Case) -> None:
    """Not even the generation can be read: the records behind it are kept."""
    for name, data in written.segments.items():
        case.put(name, b"X" + data[1:])
        assert mend(case).lost == []
        reset(case)
    for name, data in written.segments.items():
        case.put(name, b"X" + data[1:])
    assert mend(case).lost == []


def test_entries_and_results_are_kept(written: Written, case: Case) -> None:
    """All entries that are whole, also those of a lost waypoint."""
    lines = written.lines("journal-1.jsonl")
    index = next(i for i, line in enumerate(lines) if parsed(line)["waypoint"] == 2)
    case.put("journal-1.jsonl", b"".join([*lines[:index], b"X", *lines[index:]]))

    done = mend(case)

    assert 2 in done.lost
    items = FileStore(case.root).scan(RUN, bodies=True)
    kept = [r.data() for r in items if isinstance(r, Record) and r.kind == "entry"]
    assert kept == [{"call": 2}, {"call": 6}, {"call": "last"}]


def test_a_torn_tail_is_not_kept(written: Written, case: Case) -> None:
    """What was never acknowledged does not become a waypoint by a repair."""
    lines = written.lines(written.last)
    flipped = lines[3].replace(b'"by":"', b'"By":"')
    case.put(written.last, b"".join([*lines[:3], flipped, *lines[4:], b'{"len":[3,4],"seq":99']))

    done = mend(case)

    assert len(done.lost) >= 1
    assert b'"seq":99' not in (case.folder / "journal-1.jsonl").read_bytes()


def test_what_is_whole_is_not_changed(written: Written, case: Case) -> None:
    """No damage, nothing done; so too with an edited note and a torn tail."""
    (case.folder / "waypoint-2.md").write_text("mine")
    case.put(written.last, written.segments[written.last] + b'{"len":[3')
    before = case.bytes()

    assert not repair(FileStore(case.root), RUN).damaged

    assert case.bytes() == before
    with pytest.raises(RunNotFound):
        repair(FileStore(case.root), "none")
    store = MemoryStore()
    open_run(RUN, store=store).checkpoint({})
    assert not repair(store, RUN).damaged


def test_the_journal_of_another_run_is_not_mended_into_this_one(
    written: Written, case: Case
) -> None:
    """A copied folder gets its own name back, and no repair."""
    other = FileStore(case.root)
    api.checkpoint("other", {"of": "other"}, store=other)
    data = (case.root / "other" / "journal-1.jsonl").read_bytes()
    case.put("journal-1.jsonl", data)
    case.put("journal-2.jsonl", None)
    before = case.bytes()

    with pytest.raises(JournalDamaged, match="other"):
        repair(FileStore(case.root), RUN)

    assert {n: d for n, d in case.bytes().items() if n != "lock"} == {
        n: d for n, d in before.items() if n != "lock"
    }


def spoil(written: Written, case: Case) -> None:
    """Damage both segments."""
    for name, data in written.segments.items():
        middle = len(data) // 2
        case.put(name, data[:middle] + b"\x01" + data[middle + 1 :])


def test_a_crash_at_any_call_leaves_the_damaged_or_the_mended_journal(
    written: Written, case: Case, tmp_path: Path, thorough: bool
) -> None:
    """Whatever the disk kept: the bytes of the damaged segments are there, and repair ends it."""
    spoil(written, case)
    before = case.bytes()
    wanted = sorted(loading(case))
    shutil.copytree(case.root, tmp_path / "base" / "runs", symlinks=True)
    seam = Logging()
    repair(FileStore(case.root, files=seam), RUN)
    here, there = str(case.root), str(tmp_path / "base" / "runs")
    disk = Disk(tmp_path / "base")
    seen = 0
    for count, (name, args, result) in enumerate(seam.log):
        moved = tuple(a.replace(here, there) if isinstance(a, str) else a for a in args)
        disk.do((name, moved, result))
        if name not in (*("rename", "unlink", "truncate", "sync_dir"), *(("write",) * thorough)):
            continue
        for image in list(disk.images())[:: 1 if thorough else 6]:
            seen += 1
            lay_out(image, tmp_path / "image")
            store = FileStore(tmp_path / "image" / "runs")
            folder = tmp_path / "image" / "runs" / RUN
            kept = [p.read_bytes() for p in folder.glob("journal-*")]
            for segment in written.segments:
                assert before[segment] in kept, f"after {count} calls"
            forget(store, RUN)
            repair(store, RUN)
            assert [w.number for w in history(RUN, store=store)] == wanted, f"after {count} calls"
            assert api.checkpoint(RUN, {}, store=store) == written.newest + 1
            assert not verify(store, RUN).damaged
            forget(store, RUN)
            shutil.rmtree(tmp_path / "image")
    assert seen > 20


def test_an_error_at_any_call_is_typed_and_repair_can_be_tried_again(
    written: Written, case: Case
) -> None:
    """`StoreFailed` at each call in turn; the next try mends it."""
    wanted: list[int] | None = None
    for at in range(1, 2000, 3):
        spoil(written, case)
        wanted = wanted or sorted(loading(case))
        seam = Failing()
        seam.arm(at, OSError(errno.EIO, os.strerror(errno.EIO)))
        with contextlib.suppress(StoreFailed):
            repair(FileStore(case.root, files=seam), RUN)
        if not seam.fired:
            break
        repair(FileStore(case.root), RUN)
        assert [w.number for w in history(RUN, store=FileStore(case.root))] == wanted
        reset(case)
    else:
        raise AssertionError("it never completes untouched")


def test_a_damaged_line_end_takes_no_record(written: Written, case: Case) -> None:
    """Both records beside it are whole, and all that builds on them loads."""
    for name, data in written.segments.items():
        for offset in (at for at, byte in enumerate(data[:-1]) if byte == ord("\n")):
            case.put(name, data[:offset] + b"\x8a" + data[offset + 1 :])
            assert mend(case).lost == [], offset
            reset(case)
