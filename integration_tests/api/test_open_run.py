"""A run as an object: state, waypoints, entries, lanes, remarks, its end."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from caravanserai import (
    Entry,
    NoRun,
    Note,
    RunNotFound,
    UnserialisableState,
    UsageError,
    acheckpoint,
    checkpoint,
    current_run,
    get_waypoint,
    history,
    list_runs,
    load,
    open_run,
    remark,
)
from caravanserai_core import survey
from caravanserai_core.journal import journal_for
from integration_tests.api.helpers import forget_everything


def test_new_run_is_empty_until_something_is_written(store_dir: Path) -> None:
    """Opening creates nothing; the first waypoint does."""
    run = open_run("run", goal="sort the letters", adapter="mine")
    assert (run.run_id, run.state, run.waypoint, run.exists) == ("run", None, 0, False)
    assert run.entries() == []
    assert run.finished() == (False, None)
    assert not store_dir.exists()
    assert run.checkpoint({"n": 1}, "one") == 1
    assert run.exists
    assert get_waypoint("run").adapter == "mine"


def test_opening_gives_the_state_to_go_on_from() -> None:
    """State and number are those of the newest waypoint when it was opened."""
    checkpoint("run", {"n": (1,)})
    checkpoint("run", {"n": (2,)})
    run = open_run("run", must_exist=True)
    assert (run.state, run.waypoint, run.exists) == ({"n": (2,)}, 2, True)
    assert "run" in repr(run)
    assert "waypoint 2" in repr(run)


def test_run_that_must_exist(store_dir: Path) -> None:
    """A mistyped id is an error where the caller says so, and leaves nothing behind."""
    with pytest.raises(RunNotFound):
        open_run("mistyped", must_exist=True)
    assert not store_dir.exists()


def test_entries_since_the_newest_waypoint() -> None:
    """They come back exactly, in order, until the next waypoint of their lane."""
    run = open_run("run")
    run.entry("before the first waypoint", {"n": 0})
    assert [e.name for e in run.entries()] == ["before the first waypoint"]
    run.checkpoint({"n": 1})
    assert run.entries() == []
    run.entry("model answer", {"text": ("a", 1)})
    run.entry("tool", None, say="lookup began")
    run.entry("other lane", 1, lane="side")
    found = run.entries()
    assert [(e.name, e.data, e.say) for e in found] == [
        ("model answer", {"text": ("a", 1)}, None),
        ("tool", None, "lookup began"),
    ]
    assert isinstance(found[0], Entry)
    assert found[0].time.endswith("+00:00")
    assert [e.name for e in run.entries("side")] == ["other lane"]
    forget_everything()
    assert open_run("run").entries() == found
    run = open_run("run")
    run.checkpoint({"n": 2})
    assert run.entries() == []
    assert [e.name for e in run.entries("side")] == ["other lane"]


def test_entry_that_cannot_be_kept_is_refused() -> None:
    """Nothing is written of it."""
    run = open_run("run")
    run.checkpoint({})
    with pytest.raises(UnserialisableState, match=r"\$\.a"):
        run.entry("tool", {"a": object()})
    assert run.entries() == []


def test_lanes_have_heads_of_their_own() -> None:
    """Numbers count through the run; parents stay on the lane; the main lane is what loads."""
    run = open_run("run")
    assert run.checkpoint({"main": 1}) == 1
    assert run.checkpoint({"side": 1}, lane="node:1") == 2
    assert run.checkpoint({"side": 2}, "second", lane="node:1") == 3
    assert run.checkpoint({"main": 2}) == 4
    assert [(w.number, w.lane, w.parent) for w in history("run")] == [
        (1, "", None),
        (2, "node:1", None),
        (3, "node:1", 2),
        (4, "", 1),
    ]
    assert load("run") == {"main": 2}
    assert load("run", 3) == {"side": 2}
    run.checkpoint({"side": 3}, lane="node:1")
    forget_everything()
    assert load("run") == {"main": 2}
    assert open_run("run").state == {"main": 2}
    assert get_waypoint("run").number == 4
    with pytest.raises(UsageError):
        run.checkpoint({}, lane=None)  # type: ignore[arg-type]


def test_current_run_is_the_innermost_one() -> None:
    """`remark` and `current_run` find the run of the block they are called in."""
    with pytest.raises(NoRun, match="open_run"):
        current_run()
    with open_run("outer") as outer:
        assert current_run() is outer
        with open_run("inner") as inner:
            assert current_run() is inner
            remark("inside")
        assert current_run() is outer
        remark("outside")
        outer.checkpoint({}, "o")
    inner.checkpoint({}, "i")
    assert get_waypoint("outer").note.decided == ("outside",)
    assert get_waypoint("inner").note.decided == ("inside",)
    with pytest.raises(NoRun):
        current_run()


def test_tasks_have_a_current_run_each() -> None:
    """Tasks that run at once do not see each other's run."""

    async def work(run_id: str) -> str:
        async with open_run(run_id) as run:
            for n in range(5):
                await asyncio.sleep(0)
                assert current_run() is run
                await run.acheckpoint({"n": n}, f"{run_id} {n}")
        return run_id

    async def main() -> None:
        await asyncio.gather(*(work(f"run-{n}") for n in range(4)))

    asyncio.run(main())
    for n in range(4):
        assert [str(w.note) for w in history(f"run-{n}")] == [f"run-{n} {i}" for i in range(5)]


def test_async_entries_keep_their_order() -> None:
    """Entries and waypoints that are not awaited at once land in the order of the calls."""

    async def main() -> None:
        run = open_run("run")
        waiting: list[Any] = []
        for n in range(10):
            waiting.append(run.aentry("tool", n))
            if n == 4:
                waiting.append(run.acheckpoint({"n": n}))
        await asyncio.gather(*waiting)
        assert [e.data for e in run.entries()] == [5, 6, 7, 8, 9]

    asyncio.run(main())


@pytest.mark.parametrize("text", ["", "  ", None, 5])
def test_empty_remarks_are_refused(text: Any) -> None:
    """A remark says something."""
    with open_run("run"), pytest.raises(UsageError):
        remark(text)


def test_remark_joins_the_next_note_once() -> None:
    """It stands under Decided of the next note, beside what the note itself decided."""
    with open_run("run") as run:
        remark("because of the rain")
        remark("because of the rain")
        run.checkpoint({"n": 1}, Note("one", decided=["by hand"]))
        run.checkpoint({"n": 2}, "two")
    notes = [w.note.decided for w in history("run")]
    assert notes == [("by hand", "because of the rain"), ()]


def test_remark_survives_a_kill(store_dir: Path) -> None:
    """The why of a killed process joins the note of the next one, once."""
    checkpoint("run", {"n": 1}, "one")
    child = os.fork()
    if not child:
        try:
            with open_run("run"):
                remark("letters without a postcode go by hand")
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    forget_everything()
    checkpoint("run", {"n": 2}, "two")
    checkpoint("run", {"n": 3}, "three")
    decided = [w.note.decided for w in history("run")]
    assert decided == [(), ("letters without a postcode go by hand",), ()]


def test_remark_of_another_process_joins_the_next_note(store_dir: Path) -> None:
    """Also where this process knew the run before the remark was made."""
    run = open_run("run")
    run.checkpoint({"n": 1}, "one")
    child = os.fork()
    if not child:
        try:
            with open_run("run"):
                remark("said elsewhere")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    run.checkpoint({"n": 2}, "two")
    run.checkpoint({"n": 3}, "three")
    decided = [text for w in history("run") for text in w.note.decided]
    assert decided == ["said elsewhere"]


def test_result_is_recorded_and_taken_back_by_the_next_waypoint() -> None:
    """`finished` gives the exact result, until the run goes on."""
    run = open_run("run")
    run.checkpoint({"n": 1})
    assert run.finished() == (False, None)
    run.finish({"mean": (1, 2)})
    forget_everything()
    assert open_run("run").finished() == (True, {"mean": (1, 2)})
    assert list_runs()[0].status == "finished"
    run = open_run("run")
    run.checkpoint({"n": 2})
    assert run.finished() == (False, None)
    assert list_runs()[0].status == "stopped"
    with pytest.raises(UnserialisableState):
        run.finish(object())
    assert run.finished() == (False, None)
    run.finish()
    assert run.finished() == (True, None)


def test_result_belongs_to_its_call() -> None:
    """Who asks for another call's result does not get this one."""
    run = open_run("run")
    run.finish(1, call="a")
    assert run.finished("a") == (True, 1)
    assert run.finished("b") == (False, None)
    assert run.finished() == (False, None)


def test_open_run_and_plain_functions_are_one(store_dir: Path) -> None:
    """Mixing them in one process is no conflict."""
    run = open_run("run")
    run.checkpoint({"n": 1})
    checkpoint("run", {"n": 2})
    asyncio.run(acheckpoint("run", {"n": 3}))
    assert run.checkpoint({"n": 4}) == 4
    assert [w.parent for w in history("run")] == [None, 1, 2, 3]


def test_a_new_segment_carries_records_of_unknown_kinds(
    store_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a newer version put into a run is not lost when an older one rolls its journal over."""
    monkeypatch.setattr("caravanserai_core.stores._file.SEGMENT_SIZE", 4_000)
    run = open_run("run")
    run.checkpoint({"n": 0})
    journal = journal_for(run.store, "run")
    for kind in ("hint", "pin", "wish"):
        journal.turns.do(lambda kind=kind: journal.add(kind, {"id": kind}, body=b'"data":["x"]'))
    for n in range(1, 120):
        run.checkpoint({"n": n, "fill": "x" * 100})
        if n == 60:
            forget_everything()
            run = open_run("run")
    records = list(survey.records(run.store, "run", bodies=True))
    snapshots = [r.data()["carried"] for r in records if r.kind == "snapshot"]
    assert len(snapshots) >= 3
    for carried in snapshots:
        assert [item["head"]["kind"] for item in carried] == ["hint", "pin", "wish"]
        assert [item["head"]["id"] for item in carried] == ["hint", "pin", "wish"]
        assert {item["body"] for item in carried} == {'"data":["x"]'}
