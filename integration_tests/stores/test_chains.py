"""The records that a state is rebuilt from are found, wherever they lie in a segment."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from caravanserai_core import FileStore, JournalDamaged, load, open_run
from caravanserai_core.stores import _segment
from caravanserai_core.stores._segment import Backwards


def _line(rng: random.Random, number: int) -> bytes:
    """Return what begins like a waypoint's line; in some, the text holds another's beginning."""
    other = b'"kind":"waypoint","waypoint":%d,' % rng.randrange(8)
    body = rng.choice([b"", b"x" * rng.randrange(300), b"{%b}" % other, b"y" * 250 + other])
    return b'{"len":[1,2],"seq":1,"kind":"waypoint","waypoint":%d,%b\n' % (number, body)


def _naive(data: bytes, start: int, end: int, claim: bytes) -> set[int]:
    """Return where the lines between two offsets begin that hold a text."""
    found, at = set(), start
    for line in data[start:end].splitlines(keepends=True):
        if claim in line:
            found.add(at)
        at += len(line)
    return found


@pytest.mark.parametrize("window", [32, 100, 1000, 1 << 16])
def test_lines_are_found_backwards(
    window: int, monkeypatch: pytest.MonkeyPatch, thorough: bool
) -> None:
    """Whatever is read at once, each line that may be the waypoint is given, the last one first."""
    monkeypatch.setattr(_segment, "_BACK", window)
    rng = random.Random(window)
    for _ in range(300 if thorough else 40):
        lines = [_line(rng, rng.randrange(8)) for _ in range(rng.randrange(1, 30))]
        data = b"".join(lines)
        bounds = [sum(map(len, lines[:n])) for n in range(len(lines) + 1)]
        start, end = sorted(rng.choices(bounds, k=2))
        read = Backwards(lambda offset, size, data=data: data[offset : offset + size], start)
        number = rng.randrange(8)
        claim = b'"kind":"waypoint","waypoint":%d,' % number
        found: list[int] = []
        at = end
        while (line := read.claim(number, at)) is not None:
            at, text, begin, stop = line
            assert text[begin:stop] + b"\n" == data[at : data.index(b"\n", at) + 1]
            found.append(at)
        expected = _naive(data, start, end, claim)
        if start == 0:
            expected.discard(0)  # a segment begins with `open`, and no break stands before it
        assert found == sorted(expected, reverse=True)


def test_a_file_that_was_cut_off_meanwhile_ends_the_search() -> None:
    """Where fewer bytes are there than were a moment ago, nothing is found, and nothing hangs."""
    data = b"\n".join([b"", *(b'"kind":"waypoint","waypoint":%d,' % n for n in range(9)), b""])
    for left in range(len(data) - 1):
        read = Backwards(lambda offset, size, left=left: data[:left][offset : offset + size], 0)
        assert read.claim(5, len(data)) is None


def test_patches_of_all_sizes_with_others_between(store_dir: Path, thorough: bool) -> None:
    """Patches larger than what is read at once, other lanes, and states that look like heads."""
    rng = random.Random(7)
    store = FileStore(store_dir)
    state: dict[str, Any] = {"pages": {f"p{n}": "x" * 30_000 for n in range(40)}, "log": []}
    states: dict[int, Any] = {}
    with open_run("run", store=store) as run:
        for step in range(200 if thorough else 60):
            size = rng.choice([10, 2_000, 2_100, 60_000, 140_000])
            looks = {"kind": "waypoint", "waypoint": step, "base": step - 1}
            state["pages"][f"p{rng.randrange(40)}"] = [rng.choice("abc") * size, looks]
            state["log"] = [*state["log"], looks]
            lane = rng.choice(["", "", "", "side"])
            number = run.checkpoint(state, lane=lane)
            states[number] = (dict(state["pages"]), list(state["log"]))
            if rng.random() < 0.2:
                run.entry("seen", {"step": step, "text": "y" * size})
    for number, (pages, log) in states.items():
        assert load("run", number, store=store) == {"pages": pages, "log": log}


def test_damage_on_the_way_is_named(store_dir: Path) -> None:
    """One byte of a patch that the newest state needs: the error says where, and nothing loads."""
    store = FileStore(store_dir)
    state: dict[str, Any] = {"log": ["x" * 20_000]}
    with open_run("run", store=store) as run:
        for step in range(12):
            state["log"].append({"step": step, "text": "y" * 900})
            run.checkpoint(state)
    journal = store_dir / "run" / "journal-1.jsonl"
    data = journal.read_bytes()
    at = data.rindex(b'"kind":"waypoint","waypoint":7,')
    line = data.rindex(b"\n", 0, at) + 1
    hit = data.index(b"yyyy", at)
    journal.write_bytes(data[:hit] + b"z" + data[hit + 1 :])

    with pytest.raises(JournalDamaged, match="the sum is wrong") as caught:
        load("run", store=store)

    assert caught.value.offset == line
    assert load("run", 6, store=store)["log"][-1]["step"] == 5
