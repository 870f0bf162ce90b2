"""Whatever a program does to a large state, every waypoint comes back exactly as it was saved."""

from __future__ import annotations

import copy
import os
import random
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from caravanserai_core import checkpoint, history, load, open_run
from caravanserai_core.journal import _table
from caravanserai_core.stores import FileStore, MemoryStore, Store, _file
from caravanserai_core.verify import verify
from integration_tests.codec.values import Model, Point, same
from integration_tests.delta.edits import Editor

LENGTH = 50
"""Waypoints of one sequence."""


def check(store: Store, run_id: str, expected: list[Any]) -> None:
    """Load every waypoint, from the first to the newest, and compare types and key order too."""
    for number, state in enumerate(expected, 1):
        found = load(run_id, at=number, store=store)
        assert same(found, state), f"waypoint {number} of {len(expected)}"
    assert same(load(run_id, store=store), expected[-1])
    assert verify(store, run_id).findings == []


def patches(store: Store, run_id: str) -> int:
    """Count the waypoints that were written as a patch."""
    return sum(
        "base" in record.head  # type: ignore[union-attr]
        for record in store.scan(run_id, bodies=False)
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tagged", [0.0, 0.3])
def test_sequences_on_disk_come_back(
    seed: int, tagged: float, store_dir: Path, thorough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every state of random edit sequences loads as it was, also where the journal went cold."""
    store = FileStore(store_dir)
    written = 0
    for number in range(40 if thorough else 4):
        run_id = f"run-{number}"
        rng = random.Random(seed * 1000 + number)
        monkeypatch.setattr(_file, "SEGMENT_SIZE", rng.choice([1 << 20, 1 << 14]))
        editor = Editor(rng.random(), tagged=tagged)  # type: ignore[arg-type]
        expected: list[Any] = []
        for _ in range(LENGTH):
            state = editor.step()
            assert checkpoint(run_id, editor.state, store=store) == len(expected) + 1
            expected.append(state)
            if rng.random() < 0.1:
                _table.clear()  # what a new process knows: nothing
        check(store, run_id, expected)
        written += patches(store, run_id)
    assert written > 20, "these tests are about patches"


@pytest.mark.parametrize("seed", range(2))
def test_sequences_in_memory_come_back(seed: int, thorough: bool) -> None:
    """The same in a store that keeps nothing but the lines."""
    store = MemoryStore()
    for number in range(40 if thorough else 4):
        editor = Editor(seed * 1000 + number)
        expected: list[Any] = []
        for _ in range(LENGTH):
            expected.append(editor.step())
            checkpoint(str(number), editor.state, store=store)
        check(store, str(number), expected)


@hypothesis.given(
    seed=st.integers(0, 2**32),
    tagged=st.sampled_from([0.0, 0.1, 0.9]),
    steps=st.integers(2, 12),
    cold=st.sets(st.integers(0, 12), max_size=3),
)
@hypothesis.settings(
    max_examples=hypothesis.settings().max_examples * 2,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
def test_any_short_sequence_comes_back(
    seed: int, tagged: float, steps: int, cold: set[int]
) -> None:
    """Short sequences in memory, with the process starting anew in between."""
    store = MemoryStore()
    editor = Editor(seed, tagged=tagged)
    expected: list[Any] = []
    for step in range(steps):
        expected.append(editor.step())
        checkpoint("run", editor.state, store=store)
        if step in cold:
            _table.clear()
    check(store, "run", expected)


@pytest.mark.parametrize("segment", [1 << 20, 1 << 14])
@pytest.mark.parametrize("seed", range(3))
def test_lanes_do_not_mix(
    seed: int,
    segment: int,
    store_dir: Path,
    thorough: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lanes that are saved in turn each come back, also where the segment rolls over under them."""
    monkeypatch.setattr(_file, "SEGMENT_SIZE", segment)
    for number in range(20 if thorough else 2):
        rng = random.Random(seed * 1000 + number)
        lanes = {lane: Editor(rng.randrange(2**32)) for lane in ("", "worker/1", "worker/2")}
        store = FileStore(store_dir)
        run_id = f"run-{number}"
        run = open_run(run_id, store=store)
        expected: list[Any] = []
        last: dict[str, Any] = {}
        for _ in range(LENGTH):
            lane = rng.choice(list(lanes))
            state = lanes[lane].step()
            expected.append(state)
            assert run.checkpoint(lanes[lane].state, lane=lane) == len(expected)
            last[lane] = state
            if rng.random() < 0.1:
                run.entry("tool", {"n": 1}, lane=lane)
            if rng.random() < 0.05:
                _table.clear()
                run = open_run(run_id, store=store)
        for at, state in enumerate(expected, 1):
            assert same(load(run_id, at=at, store=store), state), f"waypoint {at}"
        assert same(load(run_id, store=store), last[""])
        assert verify(store, run_id).findings == []


def test_lanes_keep_their_parents_in_a_new_process(store_dir: Path) -> None:
    """A waypoint's parent is the one before it on its own lane, whoever wrote that."""
    store = FileStore(store_dir)
    for _ in range(3):
        _table.clear()
        run = open_run("run", store=store)
        run.checkpoint({"lane": "side"}, "side", lane="side")
        run.checkpoint({"lane": "main"}, "main")
    parents = {w.number: (w.lane, w.parent) for w in history("run", store=store)}
    assert parents == {
        1: ("side", None),
        2: ("", None),
        3: ("side", 1),
        4: ("", 2),
        5: ("side", 3),
        6: ("", 4),
    }


def test_processes_that_follow_each_other(store_dir: Path, thorough: bool) -> None:
    """Real processes that each write a few waypoints of one large state go on with its patches."""
    store = FileStore(store_dir)
    whole = {"pad": "x" * 70_000, "messages": [], "by_name": {"a": {"n": 1}}}
    editor = Editor(5, state=whole)
    expected: list[Any] = []
    for _ in range(60 if thorough else 8):
        todo = []
        for _ in range(6):
            editor.step()
            if not isinstance(editor.state, dict) or "pad" not in editor.state:
                editor.state = {"pad": "x" * 70_000, "messages": []}
            todo.append(copy.deepcopy(editor.state))
        child = os.fork()
        if not child:
            code = 1
            try:
                for state in todo:
                    checkpoint("run", state, store=store)
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        expected += todo
    check(store, "run", expected)
    assert patches(store, "run") > len(expected) // 2


def test_alternating_between_tagged_and_plain(store_dir: Path) -> None:
    """A patch without tags on a state with tags, and the other way round, loses no type."""
    store = FileStore(store_dir)
    state: dict[str, Any] = {"pad": "x" * 9000, "kept": (1, (2,)), "n": 0, "odd": None}
    expected = []
    for step in range(30):
        state["n"] = step
        state["odd"] = (step,) if step % 3 == 0 else {"plain": step}
        if step == 20:
            state["kept"] = [1]
        expected.append(copy.deepcopy(state))
        checkpoint("run", state, store=store)
    check(store, "run", expected)
    assert patches(store, "run") > 20


def test_state_in_a_program_type_is_patched_inside(store_dir: Path) -> None:
    """One member changed in a model or dataclass is a small record, not the whole value again."""
    store = FileStore(store_dir)
    for run_id, made in (("model", Model), ("dataclass", Point)):
        for step in range(20):
            value = {"pad": "x" * 20_000, "n": step}
            state = made(value=value) if made is Model else made(value)
            checkpoint(run_id, state, store=store)
        assert Path(store.folder(run_id), "journal-1.jsonl").stat().st_size < 60_000
        assert same(load(run_id, store=store), state)


def test_key_order_comes_back(store_dir: Path) -> None:
    """Moving a key, inserting one in front, replacing one by another: the order is kept."""
    store = FileStore(store_dir)
    pad = {f"k{i}": "x" * 100 for i in range(60)}
    orders: list[dict[str, Any]] = [
        {"a": 1, "b": 2, **pad},
        {"b": 2, "a": 1, **pad},
        {"new": 0, "b": 2, "a": 1, **pad},
        {**pad, "a": 1, "b": 2},
        {"x": {"p": 1, "q": {"r": 1, "s": 2}}, **pad},
        {"x": {"p": 1, "q": {"s": 2, "r": 1}}, **pad},
        {"x": {"q": {"s": 2, "r": 1}, "p": 1, "t": 0}, **dict(reversed(pad.items()))},
    ]
    for state in orders:
        checkpoint("run", state, store=store)
    check(store, "run", orders)
