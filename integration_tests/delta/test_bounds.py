"""Disk stays in proportion to what is new, and a state to a few records, however long the run."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from caravanserai_core import FileStore, checkpoint, load
from caravanserai_core.journal import _table
from integration_tests.codec.values import same


def on_disk(folder: Path) -> int:
    """Bytes of the run's journal."""
    return sum(path.stat().st_size for path in folder.glob("journal-*"))


def longest_chain(store: FileStore, run_id: str, waypoints: int) -> tuple[int, int]:
    """Return the most records, and the most bytes, that any waypoint is rebuilt from."""
    chains = [store.chain(run_id, n) for n in range(1, waypoints + 1)]
    sizes = [sum(len(record.body or b"") for record in chain) for chain in chains]
    return max(map(len, chains)), max(sizes)


@pytest.mark.parametrize("cold", [False, True])
def test_constant_document_with_a_counter(cold: bool, store_dir: Path) -> None:
    """1 MB that never changes and a counter: 300 waypoints are less than three documents."""
    store = FileStore(store_dir)
    state: dict[str, Any] = {"document": "word " * 200_000, "n": 0}
    size = len(orjson.dumps(state))
    for step in range(300):
        state["n"] = step
        checkpoint("run", state, store=store)
        if cold and step % 50 == 0:
            _table.clear()
    assert on_disk(store_dir / "run") < 3 * size
    records, read = longest_chain(store, "run", 300)
    assert records <= 2, "the newest state is two records away"
    assert read < 2 * size
    assert same(load("run", store=store), state)


def test_large_document_with_small_changes(store_dir: Path, thorough: bool) -> None:
    """5 MB and a kilobyte of news each time: 200 waypoints are less than ten documents."""
    store = FileStore(store_dir)
    rng = random.Random(1)
    parts: dict[str, Any] = {f"part {i}": "w" * 50_000 for i in range(100)}
    state: dict[str, Any] = {"parts": parts, "log": [], "n": 0}
    size = len(orjson.dumps(state))
    steps = 200
    for step in range(steps):
        state["n"] = step
        state["log"].append("new " * 250)
        if step % 10 == 0:
            parts[f"part {rng.randrange(100)}"] = rng.choice("abc") * 50_000
        checkpoint("run", state, store=store)
    assert on_disk(store_dir / "run") < 10 * size
    for at in (1, steps // 2, steps):
        assert load("run", at=at, store=store)["n"] == at - 1
    assert same(load("run", store=store), state)


def test_growing_list(store_dir: Path, thorough: bool) -> None:
    """A chat that grows is written about once, not once per waypoint."""
    store = FileStore(store_dir)
    state: dict[str, Any] = {"messages": [], "turn": 0}
    steps = 3000 if thorough else 600
    for turn in range(steps):
        state["turn"] = turn
        state["messages"].append({"role": "user", "content": f"message {turn} " * 40})
        checkpoint("run", state, store=store)
    size = len(orjson.dumps(state))
    assert on_disk(store_dir / "run") < 4 * size
    assert longest_chain(store, "run", steps)[1] < 3 * size
    assert same(load("run", store=store), state)


def test_single_edits_in_a_large_dict(store_dir: Path, thorough: bool) -> None:
    """One of ten thousand members changes each time: the journal grows by the changes."""
    store = FileStore(store_dir)
    rng = random.Random(2)
    state: dict[str, Any] = {f"k{i}": {"n": 0, "text": "t" * 80} for i in range(10_000)}
    size = len(orjson.dumps(state))
    steps = 2000 if thorough else 300
    for step in range(steps):
        state[f"k{rng.randrange(10_000)}"]["n"] = step
        checkpoint("run", state, store=store)
    assert on_disk(store_dir / "run") < 4 * size
    assert longest_chain(store, "run", steps)[1] < 3 * size
    assert same(load("run", store=store), state)


def test_tiny_changes_of_a_large_document(store_dir: Path) -> None:
    """A few bytes of news each time do not make a chain of thousands: loading stays bounded."""
    store = FileStore(store_dir)
    state: dict[str, Any] = {"document": "w" * 50_000, "log": []}
    for step in range(400):
        state["log"].append(step)
        checkpoint("run", state, store=store)
    assert longest_chain(store, "run", 400)[0] < 110
    assert same(load("run", store=store), state)


def test_window_that_slides(store_dir: Path) -> None:
    """A list that drops its first item and gains one at the end is written as just that."""
    store = FileStore(store_dir)
    state = {"window": [{"n": i, "text": "t" * 100} for i in range(300)]}
    size = len(orjson.dumps(state))
    for step in range(300, 360):
        state["window"] = [*state["window"][1:], {"n": step, "text": "t" * 100}]
        checkpoint("run", state, store=store)
    assert on_disk(store_dir / "run") < 3 * size
    assert same(load("run", store=store), state)


def test_small_state_is_always_whole(store_dir: Path) -> None:
    """A state of a few kilobytes is one record away, whatever came before."""
    store = FileStore(store_dir)
    for step in range(50):
        checkpoint("run", {"n": step, "pad": "x" * 3000}, store=store)
    assert longest_chain(store, "run", 50)[0] == 1


def test_state_that_shrinks_and_grows(store_dir: Path) -> None:
    """A state that becomes small and large again loads exactly at every size."""
    store = FileStore(store_dir)
    expected = []
    for step in range(12):
        size = 200_000 if step % 4 < 2 else 10
        state = {"n": step, "pad": "x" * size, "log": list(range(step))}
        expected.append(state)
        checkpoint("run", state, store=store)
    for at, state in enumerate(expected, 1):
        assert same(load("run", at=at, store=store), state)
