"""Waypoints that repeat a state, and what an adapter notes in a head."""

from __future__ import annotations

import asyncio
import enum
from pathlib import Path
from typing import Any

import pytest

from caravanserai_core import Note, get_waypoint, history, load, open_run
from caravanserai_core.errors import Conflict, UsageError
from caravanserai_core.journal import forget
from caravanserai_core.records import Record
from caravanserai_core.stores import FileStore, MemoryStore, Store
from caravanserai_core.verify import verify
from integration_tests.stores.workers import join, start

RUN = "run"
STATES: dict[str, Any] = {
    "small": {"n": 1},
    "tagged": {"pair": (1, float("inf"))},
    "large": {"text": "x" * 30_000, "log": list(range(100))},
    "a list": list(range(5000)),
    "none": None,
}


def points(store: Store) -> list[Record]:
    """Return the records of all waypoints."""
    items = store.scan(RUN, bodies=True)
    return [item for item in items if isinstance(item, Record) and item.kind == "waypoint"]


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("fresh", [False, True])
def test_a_repeated_state_costs_an_empty_patch(tmp_path: Path, name: str, fresh: bool) -> None:
    """However small the state is; in this process or in the next one."""
    store = FileStore(tmp_path / "runs")
    open_run(RUN, store=store).checkpoint(STATES[name], "one")
    if fresh:
        forget(store, RUN)

    number = open_run(RUN, store=store).repeat(Note("It failed.", next="Try again."))

    assert number == 2
    last = points(store)[-1]
    assert last.body == b'"patch":[]'
    assert (last.head["base"], last.head["parent"]) == (1, 1)
    assert load(RUN, store=store) == load(RUN, 1, store=store) == STATES[name]
    assert [str(w.note) for w in history(RUN, store=store)] == ["one", "It failed."]
    assert not verify(store, RUN).findings


@pytest.mark.parametrize("name", STATES)
def test_repeating_for_ever_keeps_every_state_near(tmp_path: Path, name: str) -> None:
    """The chain of a repeated state stays bounded, and the lane goes on from any point of it."""
    store = MemoryStore()
    run = open_run(RUN, store=store)
    run.checkpoint(STATES[name], "one")
    for count in range(150):
        run.repeat(f"pause {count}")
    assert run.checkpoint({"other": 1, "text": "y" * 5000}, "other") == 152
    assert run.repeat("again") == 153

    assert all(load(RUN, n, store=store) == STATES[name] for n in range(1, 152))
    assert load(RUN, store=store) == {"other": 1, "text": "y" * 5000}
    from caravanserai_core import reading

    longest = max(len(reading.path(store.chain(RUN, n), n)) for n in range(1, 154))
    assert longest <= 40
    assert sum(record.full for record in points(store)) > 2, "the chain goes on for ever"
    assert not verify(store, RUN).damaged


def test_a_store_with_a_short_chain_gets_it(tmp_path: Path) -> None:
    """`max_chain` holds for repeated states too."""
    store = MemoryStore()
    store.max_chain = 3
    run = open_run(RUN, store=store)
    run.checkpoint({"text": "x" * 9000})
    for _ in range(10):
        run.repeat("again")
    since_full = 0
    for record in points(store):
        since_full = 0 if record.full else since_full + 1
        assert since_full <= 3


def test_repeating_follows_patches_and_lanes(tmp_path: Path) -> None:
    """The state repeated is that of the lane, whatever stands between."""
    store = FileStore(tmp_path / "runs")
    run = open_run(RUN, store=store)
    states = []
    for number in range(40):
        states.append({"text": "x" * 9000, "log": list(range(number)), "n": number})
        run.checkpoint(states[-1])
        run.checkpoint({"side": number}, lane="side")
        if number % 7 == 3:
            run.repeat("paused")
            assert load(RUN, store=store) == states[-1]
            run.repeat("paused", lane="side")
            assert get_waypoint(RUN, store=store).lane == ""
    assert run.repeat("end") == len(history(RUN, store=store))
    assert load(RUN, store=store) == states[-1]
    assert not verify(store, RUN).findings


def test_there_must_be_something_to_repeat(store_dir: Path) -> None:
    """An empty run, an empty lane, a note that is none: UsageError, and nothing written."""
    run = open_run(RUN)
    with pytest.raises(UsageError):
        run.repeat("paused")
    assert not run.exists
    run.checkpoint({"n": 1})
    with pytest.raises(UsageError):
        run.repeat("paused", lane="other")
    for note in (None, "", lambda state: "text", 3):
        with pytest.raises(UsageError):
            run.repeat(note)  # type: ignore[arg-type]
    assert len(history(RUN)) == 1


def test_a_foreign_waypoint_in_between(store_dir: Path) -> None:
    """A program that looked gets Conflict; one that never did repeats what is there now."""
    run = open_run(RUN)
    run.checkpoint({"n": 1})
    store = run.store

    def bare() -> None:
        from caravanserai_core.api import _Bare

        forget(store, RUN)
        mine = _Bare(RUN, store)
        mine._journal.turns.do(mine._journal._catch_up)
        assert join(start(lambda: open_run(RUN, store=store).checkpoint({"n": 2}))) == 0
        assert mine.repeat("again") == 3

    assert join(start(bare)) == 0
    assert load(RUN, 3) == {"n": 2}
    forget(store, RUN)
    run = open_run(RUN)
    assert join(start(lambda: open_run(RUN, store=store).checkpoint({"n": 4}))) == 0
    with pytest.raises(Conflict):
        run.repeat("again")


def test_a_run_of_release_0_2_0_is_repeated(store_dir: Path) -> None:
    """Its state is taken over and written whole."""
    folder = store_dir / RUN
    folder.mkdir(parents=True)
    (folder / "state.json").write_text('{"old": {"$tuple": [1]}}')
    (folder / "waypoint-1.md").write_text("# Waypoint 1 — 2026-08-20T22:41:03+00:00\n\nold\n")
    (folder / "latest").write_text("1")

    assert open_run(RUN).repeat("went on") == 2

    assert load(RUN) == {"old": {"$tuple": [1]}}
    assert not verify(open_run(RUN).store, RUN).findings


# ---------------------------------------------------------------------- meta

META = {"source": "loop", "step": 3, "ok": True, "none": None, "deep": [{"x": 1.5}], "é": "\x00"}


def test_meta_stands_in_the_head(store_dir: Path) -> None:
    """Waypoints, repeated ones and entries give it back; where there is none it is empty."""
    run = open_run(RUN)
    run.checkpoint({"n": 1}, "one", meta=META)
    run.checkpoint({"n": 2}, "two")
    run.repeat("three", meta={"error": "e"})
    seq = run.entry("e", 1, meta=META)
    assert run.entry("e", 2) == seq + 1

    assert [w.meta for w in history(RUN)] == [META, {}, {"error": "e"}]
    assert get_waypoint(RUN, 1).meta == META
    assert [(e.data, e.meta) for e in run.entries()] == [(1, META), (2, {})]


def test_meta_in_async_code(store_dir: Path) -> None:
    """What is changed after the call is not what is written."""

    async def work() -> None:
        run = open_run(RUN)
        meta: dict[str, Any] = {"list": [1]}
        saved = run.acheckpoint({"n": 1}, "one", meta=meta)
        meta["list"].append(2)
        assert await saved == 1
        assert await run.arepeat("again", meta={"a": 1}) == 2
        first = await run.aentry("e", 1, meta={"b": 2}, durable=False)
        assert await run.aentry("e", 2) == first + 1

    asyncio.run(work())
    assert [w.meta for w in history(RUN)] == [{"list": [1]}, {"a": 1}]


class Text(str):
    """A str of the program's own."""


class Number(enum.IntEnum):
    """An int of the program's own."""

    ONE = 1


_DEEP: list[Any] = []
for _ in range(500):
    _DEEP = [_DEEP]


@pytest.mark.parametrize(
    "meta",
    [
        *([], "text", 1, {1: 2}, {"a": (1,)}, {"a": {1}}, {"a": float("nan")}, {"a": 2**64}),
        *({"a": b"x"}, {"a": "\ud800"}, {"\ud800": 1}, {"a": Text("x")}, {"a": Number.ONE}),
        *({Text("a"): 1}, {"a": _DEEP}, {"a": object()}, {"a": -(2**63) - 1}),
    ],
)
def test_meta_is_plain_json_or_refused(store_dir: Path, meta: Any) -> None:
    """Nothing is changed silently, and nothing written."""
    run = open_run(RUN)
    with pytest.raises(UsageError, match="meta"):
        run.checkpoint({}, meta=meta)
    with pytest.raises(UsageError, match="meta"):
        run.entry("e", meta=meta)
    assert not run.exists
