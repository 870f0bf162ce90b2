"""A journal that is no longer what was written: flipped bits, foreign lines, hand edits."""

from __future__ import annotations

import random
import re

import pytest

from caravanserai_core import api, history, list_runs, load, open_run
from caravanserai_core.errors import JournalDamaged
from caravanserai_core.stores import FileStore
from caravanserai_core.verify import verify
from integration_tests.journal.damage import RUN, Case, Written, parsed

BOM = b"\xef\xbb\xbf"
GARBAGE = [
    b"garbage\n",
    b"\n",
    b"{}\n",
    b'{"len":[2,0],"seq":1,"sum":"x"}\n',
    b"\xff\xfe\n",
    b"[]\n",
]

BEHIND_AN_APPEND = {"journal-1.jsonl": 1, "journal-2.jsonl": 2}
"""Index of the last line of the first append of a segment, which has several."""


def levels(case: Case) -> set[str]:
    """Return the levels of what verify finds in the journal."""
    report = verify(FileStore(case.root), RUN)
    return {finding.level for finding in report.findings} - {"note"}


def test_a_flipped_bit_never_gives_a_wrong_state(
    written: Written, case: Case, thorough: bool
) -> None:
    """One changed byte anywhere: the right states, or an error that says where."""
    chance = random.Random(1)
    for name, data in written.segments.items():
        offsets = range(len(data)) if thorough else sorted(chance.sample(range(len(data)), 150))
        for offset in offsets:
            changed = bytearray(data)
            changed[offset] ^= 1 << chance.randrange(8)
            case.put(name, bytes(changed))

            outcome = case.examine()

            assert isinstance(outcome, JournalDamaged) or outcome == written.newest, offset
            if name != written.last:
                assert outcome == written.newest, offset
            if thorough or offset % 5 == 0:
                case.write_on()
            list_runs(store=FileStore(case.root))
            case.reset()


def test_a_flipped_bit_in_the_last_record_is_found_and_named(
    written: Written, case: Case, thorough: bool
) -> None:
    """What a program would go on from is checked to its last byte, by readers and writers."""
    data, line = written.segments[written.last], written.lines(written.last)[-2]
    start = data.rindex(line)
    size = line.rindex(b',"loc":')
    for at in range(0, size, 1 if thorough else 17):
        changed = bytearray(data[: start + len(line)])
        changed[start + at] ^= 1
        case.put(written.last, bytes(changed))

        outcome, refused = case.examine(), case.write_on()

        assert isinstance(outcome, JournalDamaged), at
        assert isinstance(refused, JournalDamaged), at
        assert outcome.path.endswith(written.last)
        assert outcome.offset is not None
        assert start <= outcome.offset <= start + at + 1
        assert outcome.last_waypoint == written.newest - 1
        assert "damage" in levels(case)
        case.reset()


def test_a_line_that_claims_an_earlier_number_hides_nothing(written: Written, case: Case) -> None:
    """A number that was hit is damage to its own waypoint, not to the one that it now names."""
    for name, data in written.segments.items():
        for place in re.finditer(rb'"waypoint":(\d),', data):
            for number in written.states:
                if number == int(place[1]):
                    continue
                claimed = data[: place.start(1)] + b"%d" % number + data[place.end(1) :]
                case.put(name, claimed)

                case.examine()

                case.reset()


def test_a_hint_that_leads_nowhere_is_searched_for(written: Written, case: Case) -> None:
    """`loc` is outside the sum: a wrong one costs time, never a state."""
    data = written.segments[written.last]
    places = [m.start(1) for m in re.finditer(rb'"loc":(\d+)\}', data)]
    records = [0, *(m.end() for m in re.finditer(rb"\n", data))][:-1]
    for place in places:
        for value in (b"0", b"1", b"99999999", *(b"%d" % at for at in records)):
            end = data.index(b"}", place)
            case.put(written.last, data[:place] + value + data[end:])

            assert case.examine() == written.newest
            assert [info.waypoints for info in list_runs(store=FileStore(case.root))] == [9]
            case.reset()


def test_a_wrong_hint_in_a_large_last_record_breaks_no_list(written: Written, case: Case) -> None:
    """A list follows the hint of a large record, wherever it leads."""
    run = open_run(RUN, store=FileStore(case.root))
    number = run.checkpoint({"large": "x" * 20_000})
    path = case.folder / written.last
    whole = path.read_bytes()
    for value in (b"0", b"5", b"99999999", b"9999999999999999"):
        path.write_bytes(re.sub(rb'"loc":\d+\}\n$', b'"loc":%b}\n' % value, whole))

        found = list_runs(store=FileStore(case.root))

        assert [(info.waypoints, info.error) for info in found] == [(number, None)]


@pytest.mark.parametrize("line", GARBAGE)
def test_a_foreign_line_at_the_end_is_damage(written: Written, case: Case, line: bytes) -> None:
    """A crash tears lines; it does not write complete wrong ones."""
    data = written.segments[written.last]
    case.put(written.last, data + line)

    outcome, refused = case.examine(), case.write_on()

    assert isinstance(outcome, JournalDamaged)
    assert isinstance(refused, JournalDamaged)
    assert (outcome.offset, outcome.last_waypoint) == (len(data), written.newest)
    assert "damage" in levels(case)


@pytest.mark.parametrize("line", GARBAGE)
def test_a_foreign_line_in_between_is_found(written: Written, case: Case, line: bytes) -> None:
    """The newest state stands where it does not need that stretch; verify and history say it."""
    for name in written.segments:
        lines = written.lines(name)
        for index in range(len(lines)):
            case.put(name, b"".join([*lines[:index], line, *lines[index:]]))

            outcome = case.examine()

            assert isinstance(outcome, JournalDamaged) or outcome == written.newest
            assert "damage" in levels(case)
            with pytest.raises(JournalDamaged) as found:
                history(RUN, store=FileStore(case.root))
            assert found.value.path.endswith(name)
            assert found.value.offset == len(b"".join(lines[:index]))
            case.reset()


@pytest.mark.parametrize("edit", ["mark", "line ends", "both", "last line end", "one line end"])
def test_what_an_editor_does_to_a_text_file_is_no_damage(
    written: Written, case: Case, edit: str
) -> None:
    """A byte order mark, CRLF, a lost last line end: every state loads, and writing goes on."""
    for name in written.segments:
        data = written.segments[name]
        if edit in ("line ends", "both"):
            data = data.replace(b"\n", b"\r\n")
        if edit in ("mark", "both"):
            data = BOM + data
        if edit == "last line end":
            data = data[:-1]
        if edit == "one line end":
            data = data.replace(b"\n", b"\r\n", 1)
        case.put(name, data)

        assert case.whole() == set(written.states)
        assert case.examine() == written.newest
        assert case.write_on() == written.newest + 1
        assert not levels(case) & {"damage", "torn"}
        if edit != "last line end":
            assert "edited" in levels(case)
        assert [w.number for w in history(RUN, store=FileStore(case.root))] == [*range(1, 11)]
        case.reset()


def test_a_line_twice_is_found(written: Written, case: Case) -> None:
    """A doubled line gives no wrong state, and verify names it."""
    for name in written.segments:
        lines = written.lines(name)
        for index in range(len(lines)):
            if index == BEHIND_AN_APPEND.get(name):
                continue  # see below
            case.put(name, b"".join([*lines[: index + 1], *lines[index:]]))

            outcome = case.examine()

            assert isinstance(outcome, JournalDamaged) or outcome == written.newest, index
            assert levels(case) & {"damage", "torn"}
            if name == written.last and index == len(lines) - 1:
                assert isinstance(case.write_on(), JournalDamaged)
            case.reset()


def test_the_last_line_of_an_append_twice_is_found(written: Written, case: Case) -> None:
    """A doubled last line of an append of several is no less damage."""
    for name, index in BEHIND_AN_APPEND.items():
        lines = written.lines(name)
        case.put(name, b"".join([*lines[: index + 1], *lines[index:]]))

        assert "damage" in levels(case)
        case.reset()


def test_half_an_append_in_between_is_damage(written: Written, case: Case) -> None:
    """What another append follows was acknowledged."""
    lines = written.lines("journal-1.jsonl")
    case.put("journal-1.jsonl", b"".join([lines[0], *lines[2:]]))

    assert "damage" in levels(case)


def test_a_list_of_waypoints_with_a_hole_is_refused(written: Written, case: Case) -> None:
    """A removed waypoint is not passed over in silence."""
    lines = written.lines("journal-1.jsonl")
    case.put("journal-1.jsonl", b"".join([*lines[:4], *lines[5:]]))

    with pytest.raises(JournalDamaged):
        history(RUN, store=FileStore(case.root))


def test_lines_in_another_order_are_found(written: Written, case: Case) -> None:
    """Swapped neighbours never make an older waypoint the newest one."""
    for notes in (True, False):
        for name in written.segments:
            lines = written.lines(name)
            for index in range(len(lines) - 1):
                swapped = [*lines[:index], lines[index + 1], lines[index], *lines[index + 2 :]]
                case.put(name, b"".join(swapped))
                if not notes:
                    case.drop_notes(0)

                outcome = case.examine()

                assert isinstance(outcome, JournalDamaged) or outcome == written.newest, index
                assert levels(case) & {"damage", "torn"}
                case.reset()


def test_a_removed_line_is_found(written: Written, case: Case) -> None:
    """A line that is gone breaks the chain of sums, and takes only what builds on it."""
    for name in written.segments:
        lines = written.lines(name)
        for index in range(len(lines) - (name == written.last)):
            case.put(name, b"".join([*lines[:index], *lines[index + 1 :]]))

            outcome = case.examine()

            assert isinstance(outcome, JournalDamaged) or outcome == written.newest, index
            assert levels(case) & {"damage", "torn"}, index
            case.reset()


def test_half_an_append_is_not_there(written: Written, case: Case) -> None:
    """The first append of a segment has several records: any of them missing, and none counts."""
    lines = written.lines(written.last)
    first, count = parsed(lines[0])["app"]
    assert (parsed(lines[count - 1])["seq"], count) == (first + count - 1, 3)
    before = parsed(lines[0])["waypoint"]
    for left in (lines[:1], lines[:2], [*lines[:2], lines[2][:40]], [lines[0], lines[1][:-5]]):
        case.put(written.last, b"".join(left))
        case.drop_notes(before)

        assert case.examine() == before
        assert case.write_on() == before + 1
        case.reset()


def test_a_damaged_opening_is_no_other_run(written: Written, case: Case) -> None:
    """The journal of another run in this folder is refused, not continued."""
    data = written.segments["journal-1.jsonl"]
    other = FileStore(case.root)
    api.checkpoint("other", {"of": "other"}, store=other)
    case.put("journal-1.jsonl", (case.root / "other" / "journal-1.jsonl").read_bytes())
    case.put("journal-2.jsonl", None)
    case.drop_notes(1)

    for use in (lambda: load(RUN, store=other), lambda: api.checkpoint(RUN, {}, store=other)):
        case.forget()
        with pytest.raises(JournalDamaged, match="other"):
            use()
    case.put("journal-1.jsonl", data)
