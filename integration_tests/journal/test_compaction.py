"""Removing waypoints: what stays loads, what goes is gone, and others go on as if nothing was."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caravanserai_core import (
    Note,
    api,
    checkpoint,
    get_waypoint,
    history,
    lane,
    load,
    open_run,
    reading,
)
from caravanserai_core.compaction import copy_run
from caravanserai_core.errors import Conflict, RunNotFound, UsageError, WaypointNotFound
from caravanserai_core.journal import Journal, forget
from caravanserai_core.records import Record
from caravanserai_core.stores import FileStore, MemoryStore, Store, _file
from caravanserai_core.survey import records
from caravanserai_core.verify import verify
from integration_tests.format.plain_reader import read_states

RUN = "run"


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store of each kind."""
    return FileStore(tmp_path / "runs") if request.param == "file" else MemoryStore()


def only(*numbers: int) -> Callable[[Record], bool | None]:
    """Keep these waypoints and what belongs to them."""
    return lambda record: record.waypoint in numbers if record.kind == "waypoint" else None


def various(store: Store, count: int, seed: int = 1) -> dict[int, Any]:
    """Save states of all kinds on three lanes, with entries; returns them by number."""
    chance = random.Random(seed)
    run = open_run(RUN, store=store, goal="to the end")
    states: dict[int, Any] = {}
    log: list[str] = []
    for step in range(count):
        log = [*log, f"step {step} " + "y" * chance.randrange(300)]
        if chance.random() < 0.05:
            log = log[len(log) // 2 :]
        state: Any = {"n": step, "log": log, "text": "x" * 5000, "pair": (step, {step})}
        if chance.random() < 0.1:
            state = dict(reversed(state.items()))
        where = chance.choice(["", "", "", "side", "a/b:ü"])
        if where == "side":
            state = {"side": list(range(step))}
        states[run.checkpoint(state, f"step {step}", lane=where, meta={"step": step})] = state
        if chance.random() < 0.3:
            run.entry("tool", {"of": step, "t": (1,)}, say=f"called {step}", lane=where)
        if chance.random() < 0.1:
            states[run.repeat("paused", lane=where)] = state
    return states


def check(store: Store, states: dict[int, Any]) -> None:
    """Check that exactly these waypoints are there, each as it was saved."""
    forget(store, RUN)
    assert [w.number for w in history(RUN, store=store)] == sorted(states)
    for number, state in states.items():
        found = load(RUN, number, store=store)
        assert found == state
        if isinstance(state, dict):
            assert list(found) == list(state)
    assert verify(store, RUN).findings == []


@pytest.mark.parametrize("small", [False, True])
def test_what_is_kept_loads_and_the_rest_is_gone(
    store: Store, small: bool, monkeypatch: pytest.MonkeyPatch, thorough: bool
) -> None:
    """Any choice of waypoints: states, order, notes, times, lanes, metadata; twice in a row."""
    if small:
        monkeypatch.setattr(_file, "SEGMENT_SIZE", 20_000)
    for seed in range(30 if thorough else 4):
        states = various(store, 60, seed)
        before = {
            w.number: (str(w.note), w.time, w.lane, w.meta) for w in history(RUN, store=store)
        }
        chance = random.Random(seed)
        for share in (0.6, 0.3):
            kept = sorted(n for n in states if chance.random() < share or n == max(states))
            gone = len(states) - len(kept)

            assert open_run(RUN, store=store).compact(only(*kept)) == gone

            for number in set(states) - set(kept):
                with pytest.raises(WaypointNotFound):
                    load(RUN, number, store=store)
                assert store.get_note(RUN, f"waypoint-{number}.md") is None
            states = {number: states[number] for number in kept}
            check(store, states)
            after = {
                w.number: (str(w.note), w.time, w.lane, w.meta) for w in history(RUN, store=store)
            }
            assert after == {number: before[number] for number in kept}
        store.delete(RUN)
        forget(store, RUN)


def test_the_specification_is_enough_to_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plain reader checks the chain behind the anchor, and finds the same states."""
    monkeypatch.setattr(_file, "SEGMENT_SIZE", 20_000)
    store = FileStore(tmp_path / "runs")
    states = various(store, 50)
    run = open_run(RUN, store=store)
    run.compact(only(*[n for n in states if n % 3 == 0 or n > 45]))
    for step in range(30):
        run.checkpoint({"n": step, "text": "z" * 3000})

    found = read_states(tmp_path / "runs" / RUN)

    assert list(found) == [w.number for w in history(RUN, store=store)]
    for number, tree in found.items():
        assert json.dumps(tree) == json.dumps(load(RUN, number, store=store, raw=True))


def test_entries_go_with_their_waypoint_unless_they_are_kept(store: Store) -> None:
    """None: as its waypoint does; True and False decide for themselves."""
    run = open_run(RUN, store=store)
    for number in (1, 2, 3):
        run.checkpoint({"n": number})
        for name in ("by itself", "kept", "dropped"):
            run.entry(name, number)

    def keep(record: Record) -> bool | None:
        if record.kind == "waypoint":
            return record.waypoint != 2
        return {"kept": True, "dropped": False}.get(record.head["name"])

    assert run.compact(keep) == 1

    found = [
        (r.head["name"], r.data()) for r in records(store, RUN, bodies=True) if r.kind == "entry"
    ]
    assert found == [("by itself", 1), ("kept", 1), ("kept", 2), ("by itself", 3), ("kept", 3)]
    assert [entry.data for entry in run.entries()] == [3, 3]


def test_what_nobody_was_asked_about_stays(store: Store) -> None:
    """Results, records of unknown kinds, the run's beginning; over segments and twice."""
    run = open_run(RUN, store=store, goal="the goal", adapter="mine")
    journal = run._journal
    run.checkpoint({"n": 1})
    journal.turns.do(lambda: journal.add("pin", {"waypoint_": 1}, body=b'"data":["pinned"]'))
    run.finish({"first": True})
    run.checkpoint({"n": 2})
    run.finish({"result": (1, 2)})

    for _ in range(2):
        run.compact(lambda record: record.waypoint == 2)

    kinds = [record.kind for record in records(store, RUN, bodies=False)]
    assert kinds == ["open", "snapshot", "pin", "finish", "waypoint", "finish"]
    forget(store, RUN)
    again = open_run(RUN, store=store)
    assert again.finished() == (True, {"result": (1, 2)})
    assert (again._journal.goal, again._journal.adapter) == ("the goal", "mine")
    found = store.recent(RUN)
    assert found is not None
    assert found.opening.head["generation"] == 3


def test_numbers_are_never_given_twice(store: Store) -> None:
    """Also where the newest waypoints went, or all of them."""
    run = open_run(RUN, store=store)
    for number in (1, 2, 3, 4):
        run.checkpoint({"n": number}, lane="" if number < 3 else "side")

    assert run.compact(only(1, 3)) == 2
    assert load(RUN, store=store) == {"n": 1}
    run.entry("e", 5)
    assert [entry.data for entry in open_run(RUN, store=store).entries()] == [5]
    assert run.checkpoint({"n": 5}) == 5
    assert get_waypoint(RUN, 5, store=store).parent == 1
    check(store, {1: {"n": 1}, 3: {"n": 3}, 5: {"n": 5}})

    assert open_run(RUN, store=store).compact(lambda record: False) == 3
    with pytest.raises(WaypointNotFound):
        load(RUN, store=store)
    forget(store, RUN)
    assert open_run(RUN, store=store).checkpoint({"n": 6}) == 6
    check(store, {6: {"n": 6}})


def test_hundreds_of_kept_waypoints_take_no_more_than_their_content(tmp_path: Path) -> None:
    """Every third of a growing list: patches among themselves, not a full state each."""
    store = FileStore(tmp_path / "runs")
    run = open_run(RUN, store=store)
    log: list[str] = []
    for number in range(1, 901):
        log.append(f"line {number} " + "x" * 100)
        run.checkpoint({"log": log})
    before = (tmp_path / "runs" / RUN / "journal-1.jsonl").stat().st_size

    assert run.compact(lambda record: record.waypoint % 3 == 0) == 600

    after = sum(p.stat().st_size for p in (tmp_path / "runs" / RUN).glob("journal-*.jsonl"))
    assert after < 2 * before
    forget(store, RUN)
    assert load(RUN, 450, store=store) == {"log": log[:450]}
    assert load(RUN, store=store) == {"log": log}


def test_a_store_with_a_short_chain_keeps_it(store: Store) -> None:
    """`max_chain` holds in the new journal too, also for a copy from a store without."""
    states = various(store, 60)
    target = MemoryStore()
    target.max_chain = 4

    copy_run(store, RUN, target, RUN)

    for number in states:
        assert len(reading.path(target.chain(RUN, number), number)) <= 5
    check(target, states)


# ---------------------------------------------------------------------- others at work


def other(store: Store) -> Journal:
    """Return the journal of a process that looked at the run."""
    found = Journal(store, RUN)
    found.turns.do(found.look)
    return found


def save(journal: Journal, state: object, lane: str = "") -> int:
    """Save as that process does."""
    prepared = journal.prepare(state, lane)
    return int(journal.turns.do(lambda: journal.checkpoint(prepared, None, lane)))


def test_another_writer_goes_on_where_its_head_is_kept(store: Store) -> None:
    """It is no conflict that somebody removed what lies before."""
    run = open_run(RUN, store=store)
    for number in range(1, 6):
        run.checkpoint({"n": number, "text": "x" * 9000})
    writer = other(store)
    run.compact(only(4, 5))

    writer.turns.do(lambda: writer.add("entry", {"name": "e"}))
    assert save(writer, {"n": 6, "text": "x" * 9000}) == 6

    run.compact(only(6))
    assert save(writer, {"n": 7, "text": "x" * 9000}) == 7
    check(store, {n: {"n": n, "text": "x" * 9000} for n in (6, 7)})


def test_another_writer_is_refused_where_its_head_is_not_the_newest(store: Store) -> None:
    """A foreign waypoint, or a head that went, is a conflict as it would have been before."""
    run = open_run(RUN, store=store)
    run.checkpoint({"n": 1})
    run.checkpoint({"n": 2}, lane="side")
    writer, asides = other(store), other(store)
    asides.turns.do(lambda: asides.look("side"))
    save(other(store), {"n": 3})
    forget(store, RUN)
    open_run(RUN, store=store).compact(lambda record: True)
    # The third waypoint is this process's own: a foreign one has another nonce.
    assert save(writer, {"n": 4}) == 4

    open_run(RUN, store=store).compact(only(1, 3, 4))
    with pytest.raises(Conflict, match="removed"):
        save(asides, {"n": 5}, "side")
    assert save(asides, {"n": 5}) == 5


def test_a_foreign_waypoint_is_seen_through_a_replacement(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written, then compacted, by somebody else: a writer that slept is refused until it looks."""
    open_run(RUN, store=store).checkpoint({"n": 1})
    writer = other(store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("caravanserai_core.journal.writer", lambda: "somebody else")
        foreign = other(store)
        save(foreign, {"n": 2})
        foreign.turns.do(lambda: foreign.compact(lambda record: True))
    with pytest.raises(Conflict, match="waypoint 2"):
        save(writer, {"n": 3})
    with pytest.raises(Conflict):
        save(writer, {"n": 3})
    writer.turns.do(writer.look)
    assert save(writer, {"n": 3}) == 3


def test_a_run_deleted_and_begun_again_is_no_replacement(store: Store) -> None:
    """Compacted or not: it is not the run that the writer knows."""
    open_run(RUN, store=store).checkpoint({"n": 1})
    writer = other(store)
    store.delete(RUN)
    forget(store, RUN)
    run = open_run(RUN, store=store)
    run.checkpoint({"n": 1})
    run.compact(lambda record: True)

    with pytest.raises(Conflict, match="deleted"):
        writer.turns.do(lambda: writer.add("entry", {"name": "e"}))
    with pytest.raises(Conflict):
        save(writer, {"n": 2})
    assert len(history(RUN, store=store)) == 1


def test_a_bare_save_goes_on_after_a_replacement(tmp_path: Path) -> None:
    """Plain `checkpoint` in a loop does not notice that an operator prunes the run."""
    root = tmp_path / "runs"
    for number in range(1, 20):
        assert checkpoint(RUN, {"n": number}, store=root) == number
        pruner = other(FileStore(root))
        pruner.turns.do(lambda at=number, own=pruner: own.compact(lambda r: r.waypoint >= at - 2))
    assert [w.number for w in history(RUN, store=root)] == [17, 18, 19]


def test_there_must_be_something_to_compact(store: Store) -> None:
    """A run that is not there is not begun by it."""
    with pytest.raises(RunNotFound):
        open_run(RUN, store=store).compact(lambda record: True)
    assert list(store.listing()) == []


def test_release_0_2_0_is_not_invented_again(tmp_path: Path) -> None:
    """Notes of the old release stay; waypoints removed since do not turn into old ones."""
    folder = tmp_path / "runs" / RUN
    folder.mkdir(parents=True)
    (folder / "state.json").write_text('{"old": true}')
    for number in (1, 2):
        (folder / f"waypoint-{number}.md").write_text(
            f"# Waypoint {number} — 2026-08-20T22:41:03+00:00\n\nold {number}\n"
        )
    (folder / "latest").write_text("2")
    store = FileStore(tmp_path / "runs")
    run = open_run(RUN, store=store)
    for number in (3, 4, 5):
        assert run.checkpoint({"n": number}) == number

    run.compact(only(5))

    assert [w.number for w in history(RUN, store=store)] == [1, 2, 5]
    assert load(RUN, store=store) == {"n": 5}
    assert (folder / "waypoint-1.md").exists()


def test_a_journal_that_lost_its_beginning_is_damaged(tmp_path: Path) -> None:
    """Only an anchor may stand in for what was removed, and only the right one."""
    store = FileStore(tmp_path / "runs")
    run = open_run(RUN, store=store)
    for number in (1, 2, 3):
        run.checkpoint({"n": number})
    run.compact(only(2, 3))
    path = tmp_path / "runs" / RUN / "journal-1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)

    path.write_bytes(b"".join(lines[2:]))

    assert verify(store, RUN).damaged


# ---------------------------------------------------------------------- copies


def test_a_copy_is_a_run_of_its_own(store: Store) -> None:
    """Numbers, lanes, notes, times, metadata, entries are kept; it says where it comes from."""
    states = various(store, 40)
    target = MemoryStore()

    assert copy_run(store, RUN, target, "copy") == len(states)

    for number, state in states.items():
        mine, theirs = (
            get_waypoint("copy", number, store=target),
            get_waypoint(RUN, number, store=store),
        )
        assert mine.state == state
        assert (mine.note, mine.time, mine.lane, mine.meta, mine.parent) == (
            *(theirs.note, theirs.time, theirs.lane, theirs.meta, theirs.parent),
        )
    found = target.recent("copy")
    assert found is not None
    assert reading.opening(found.opening, "copy").goal == "to the end"
    assert found.opening.data()["origin"] == {"run_id": RUN}
    ours = [r.data() for r in records(store, RUN, bodies=True) if r.kind == "entry"]
    assert [r.data() for r in records(target, "copy", bodies=True) if r.kind == "entry"] == ours
    assert verify(target, "copy").findings == []
    assert api.checkpoint("copy", {"on": 1}, store=target) == max(states) + 1
    check(store, states)


def test_a_copy_of_some_and_in_the_same_store(store: Store) -> None:
    """Only what is kept; the copy and the original go their own ways."""
    states = various(store, 30)
    kept = [n for n in states if n % 4 == 0]

    assert copy_run(store, RUN, store, "copy", only(*kept)) == len(kept)

    assert [w.number for w in history("copy", store=store)] == kept
    assert all(load("copy", n, store=store) == states[n] for n in kept)
    assert api.checkpoint("copy", {}, store=store) == max(states) + 1
    check(store, states)


def test_a_copy_holds_the_digest_of_its_own_notes(store: Store) -> None:
    """A structured note is rendered for the run it belongs to."""
    run = open_run(RUN, store=store)
    run.checkpoint({"n": 1}, Note("One.", next="Two."))
    copy_run(store, RUN, store, "copy")
    for name in (RUN, "copy"):
        text = store.get_note(name, "waypoint-1.md") or ""
        head = store.chain(name, 1)[-1].head
        assert head["note_sha256"] == hashlib.sha256(text.encode()).hexdigest()
        assert verify(store, name).findings == []


def test_a_copy_writes_over_nothing(store: Store) -> None:
    """An existing target, and a source that is not there, are refused."""
    open_run(RUN, store=store).checkpoint({"n": 1})
    open_run("other", store=store).checkpoint({"n": 2})
    with pytest.raises(UsageError, match="exists"):
        copy_run(store, RUN, store, "other")
    with pytest.raises(UsageError):
        copy_run(store, RUN, store, RUN)
    with pytest.raises(RunNotFound):
        copy_run(store, "none", store, "new")
    assert load("other", store=store) == {"n": 2}
    assert len(list(store.listing())) == 2


def test_small_states_are_copied_as_they_are(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands whole in the old journal stands whole in the new one."""
    run = open_run(RUN, store=store)
    for number in range(1, 11):
        run.checkpoint({"n": number})
    monkeypatch.setattr(lane, "SMALL", 0)
    run.compact(lambda record: record.waypoint % 2 == 0)
    points = [r for r in records(store, RUN, bodies=True) if r.kind == "waypoint"]
    assert [r.body for r in points] == [b'"state":{"n":%d}' % n for n in (2, 4, 6, 8, 10)]
