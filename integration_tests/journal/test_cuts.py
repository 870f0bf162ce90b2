"""A journal that was cut off: what a crash leaves behind, and what no crash does."""

from __future__ import annotations

from itertools import pairwise

import pytest

from caravanserai_core import load
from caravanserai_core.errors import JournalDamaged
from caravanserai_core.stores import FileStore
from integration_tests.journal.damage import RUN, Case, Written, parsed


def ends(written: Written, name: str) -> list[tuple[int, int]]:
    """Return (offset behind the line without its line end, newest waypoint up to there)."""
    found, offset, newest = [(0, 0)], 0, 0
    for line in written.lines(name):
        record = parsed(line)
        offset += len(line)
        newest = max(newest, record["waypoint"])
        first, count = record.get("app", (record["seq"], 1))
        if record["seq"] == first + count - 1:
            found.append((offset - 1, newest))
    return found


def newest_up_to(written: Written, name: str, cut: int) -> int:
    """Return the newest waypoint whose append is whole in the first `cut` bytes."""
    found = [newest for offset, newest in ends(written, name) if offset <= cut]
    return found[-1] or newest_up_to(written, "journal-1.jsonl", 1 << 30)


def cuts(written: Written, *, every: int) -> list[int]:
    """Return offsets in the last segment: around line ends, in its last records, and some more."""
    data = written.segments[written.last]
    last = len(data) - sum(len(line) for line in written.lines(written.last)[-3:])
    edges = {at + d for at, _ in ends(written, written.last) for d in (-1, 0, 1, 2) if at + d >= 0}
    return sorted({*range(last, len(data), every), *range(0, last, 23 * every), *edges})


def test_a_torn_tail_is_not_there(written: Written, case: Case, thorough: bool) -> None:
    """Cut at any byte with no note of what is missing: the newest whole waypoint is loaded."""
    data = written.segments[written.last]
    for cut in cuts(written, every=1):
        newest = newest_up_to(written, written.last, cut)
        case.put(written.last, data[:cut])
        case.drop_notes(newest)

        assert case.examine() == newest, cut

        if thorough or cut % 11 == 0 or data[cut - 1 : cut] == b"\n":
            assert case.write_on() == newest + 1, cut
            kept = [p for p in case.folder.iterdir() if ".damaged-" in p.name]
            whole = max(at for at, _ in ends(written, written.last) if at <= cut)
            torn = data[whole:cut].removeprefix(b"\n")
            assert [p.read_bytes() for p in kept] == ([torn] if torn else []), cut
        case.reset()


def test_a_journal_that_ends_before_its_newest_note_is_damaged(
    written: Written, case: Case, thorough: bool
) -> None:
    """Cut at any byte with the notes in place: what was acknowledged is gone, and that is said."""
    data = written.segments[written.last]
    for cut in cuts(written, every=1 if thorough else 7):
        newest = newest_up_to(written, written.last, cut)
        case.put(written.last, data[:cut])

        outcome = case.examine()
        refused = case.write_on()

        if newest == written.newest:
            assert (outcome, refused) == (newest, newest + 1), cut
        else:
            assert isinstance(outcome, JournalDamaged), cut
            assert isinstance(refused, JournalDamaged), cut
            assert outcome.last_waypoint == newest, cut
            assert outcome.path.endswith(written.last)
            whole = max((at for at, _ in ends(written, written.last) if at <= cut), default=0)
            assert outcome.offset is not None, cut
            assert whole <= outcome.offset <= whole + 1, cut
        case.reset()


def test_an_earlier_segment_that_was_cut_spoils_only_its_own_waypoints(
    written: Written, case: Case, thorough: bool
) -> None:
    """The newest state needs only the last segment; the rest is found by verify and by at=."""
    data = written.segments["journal-1.jsonl"]
    for cut in range(0, len(data), 1 if thorough else 61):
        case.put("journal-1.jsonl", data[:cut])

        assert case.examine() == written.newest, cut
        assert case.write_on() == written.newest + 1, cut
        case.reset()


@pytest.mark.parametrize("empty", ["journal-1.jsonl", "journal-2.jsonl"])
def test_an_empty_file_beside_notes_is_no_fresh_start(
    written: Written, case: Case, empty: str
) -> None:
    """Load refuses, or gives the newest state where the empty segment is not needed."""
    case.put(empty, b"")

    outcome, refused = case.examine(), case.write_on()

    if empty == written.last:
        assert isinstance(outcome, JournalDamaged)
        assert isinstance(refused, JournalDamaged)
        assert outcome.path.endswith("journal-2.jsonl")
    else:
        assert outcome == written.newest


@pytest.mark.parametrize("left", [b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n", b"\r\n"])
def test_what_an_editor_leaves_of_an_emptied_file_is_no_fresh_start(
    written: Written, case: Case, left: bytes
) -> None:
    """A byte order mark alone, or a line end: an error that names the file, and nothing begun."""
    for name in written.segments:
        case.put(name, left if name == written.last else None)

    outcome, refused = case.examine(), case.write_on()

    assert isinstance(outcome, JournalDamaged)
    assert isinstance(refused, JournalDamaged)
    assert str(case.folder / "journal-") in str(outcome)


@pytest.mark.parametrize("notes", [True, False])
def test_a_missing_segment_is_no_fresh_start(written: Written, case: Case, notes: bool) -> None:
    """Whatever lies beside: nothing is begun anew, and later waypoints load by their number."""
    for name in written.segments:
        case.put(name, None)
        if not notes:
            case.drop_notes(0)

        outcome, refused = case.examine(), case.write_on()

        if notes or name == "journal-1.jsonl":
            assert isinstance(outcome, JournalDamaged), name
            assert isinstance(refused, JournalDamaged), name
        case.reset()


def test_every_segment_gone_is_no_fresh_start(written: Written, case: Case) -> None:
    """Notes without a journal say that there was one."""
    for name in written.segments:
        case.put(name, None)

    assert isinstance(case.examine(), JournalDamaged)
    assert isinstance(case.write_on(), JournalDamaged)


def test_a_crash_between_making_a_segment_and_filling_it(written: Written, case: Case) -> None:
    """An empty or half-written third segment is not there yet, and is used by the next writer."""
    first = written.segments["journal-1.jsonl"]
    case.put("journal-2.jsonl", written.segments["journal-2.jsonl"])
    for left in (b"", first[:1], first[:200], b"\0" * 4096):
        case.put("journal-3.jsonl", left)

        assert case.examine() == written.newest
        assert case.write_on() == written.newest + 1

        kept = [p.read_bytes() for p in case.folder.iterdir() if ".damaged-" in p.name]
        assert kept == ([left] if left else [])
        assert parsed((case.folder / "journal-3.jsonl").read_bytes().split(b"\n")[0])["seq"] > 10
        case.reset()


def test_holes_that_a_crash_leaves_are_torn(written: Written, case: Case, thorough: bool) -> None:
    """The file's length can be durable before its data: NUL bytes instead of the last append."""
    data, line = written.segments[written.last], written.lines(written.last)[-2]
    start = data.rindex(line)
    newest, size = newest_up_to(written, written.last, start), len(line)
    holes = [(0, size), (0, 60), (1, 2), (40, 90), (size // 2, size), (size - 2, size)]
    holes += pairwise(range(0, size, 7)) if thorough else []
    for begin, stop in holes:
        torn = line[:begin] + bytes(stop - begin) + line[stop:]
        case.put(written.last, data[:start] + torn)
        case.drop_notes(newest)

        assert case.examine() == newest, (begin, stop)
        assert case.write_on() == newest + 1
        case.reset()


def test_torn_bytes_stay_until_somebody_writes(written: Written, case: Case) -> None:
    """Reading twice gives the same, also when the tail is longer than a record."""
    data = written.segments[written.last]
    case.put(written.last, data + b'{"len":[' + b"x" * 100_000)

    assert case.examine() == case.examine() == written.newest
    assert load(RUN, store=FileStore(case.root)) == written.states[written.newest]
    assert case.write_on() == written.newest + 1
