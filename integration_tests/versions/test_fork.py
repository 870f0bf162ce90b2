"""A fork begins with the exact state of a waypoint, and both branches go on."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from caravanserai import (
    JournalDamaged,
    Note,
    RunNotFound,
    UsageError,
    WaitingForPerson,
    WaypointNotFound,
    afork,
    checkpoint,
    fork,
    get_waypoint,
    history,
    list_runs,
    load,
    open_run,
    pin,
    prune,
)
from caravanserai_core import reading
from caravanserai_core.journal import forget
from caravanserai_core.records import Malformed
from caravanserai_core.stores import FileStore, MemoryStore, _file
from caravanserai_core.verify import verify


def state(number: int) -> dict[str, Any]:
    """A state that is large enough to be written as patches."""
    text = "z" * 9000 + str(number // 2)
    return {"n": number, "pair": (number, "x"), "log": ["y" * 50] * number, "text": text}


def files(folder: Path) -> dict[str, str]:
    """Return what lies in a run's folder, by digest."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name != "lock"
    }


@pytest.fixture
def parent(store_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a run of 50 waypoints in several segments; returns its folder."""
    monkeypatch.setattr(_file, "SEGMENT_SIZE", 40_000)
    for number in range(1, 51):
        checkpoint("parent", state(number), f"step {number}")
    forget(FileStore(store_dir), "parent")
    assert len(list((store_dir / "parent").glob("journal-*.jsonl"))) > 1
    return store_dir / "parent"


def test_every_waypoint_can_be_forked_and_both_go_on(parent: Path, store_dir: Path) -> None:
    before = files(parent)

    for number in range(1, 51):
        new = f"fork-{number}"
        assert fork("parent", at=number, new_run_id=new) == number
        assert load(new) == state(number)
        checkpoint(new, {**state(number), "branch": number}, "the branch goes on")
        forget(FileStore(store_dir), new)
        assert load(new) == {**state(number), "branch": number}
        assert [w.number for w in history(new)] == [number, number + 1]
        assert not verify(FileStore(store_dir), new).findings

    assert files(parent) == before, "forking touches nothing of the parent"
    checkpoint("parent", state(51), "the parent goes on too")
    assert [load("parent", n) for n in range(1, 52)] == [state(n) for n in range(1, 52)]


def test_the_first_record_and_the_note_say_where_it_comes_from(
    parent: Path, store_dir: Path
) -> None:
    fork("parent", at=17, new_run_id="branch")

    recent = reading.recent(FileStore(store_dir), "branch")
    assert recent is not None
    opening = reading.opening(recent.opening)
    assert opening.origin == {"run_id": "parent", "waypoint": 17}
    assert opening.argv == [], "its command would go on with the parent"
    assert str(get_waypoint("branch").note) == "Forked from waypoint 17 of parent.\n\nstep 17"
    assert recent.chain[-1].full
    note = (store_dir / "branch/waypoint-17.md").read_text(encoding="utf-8")
    assert "Forked from waypoint 17 of parent." in note
    assert {info.run_id for info in list_runs()} == {"parent", "branch"}


def test_a_structured_note_stays_one(store_dir: Path) -> None:
    checkpoint("parent", {"n": 1}, Note("One.", next="Two comes.", goal="Count."))

    fork("parent", new_run_id="branch")

    note = get_waypoint("branch").note
    assert str(note) == "Forked from waypoint 1 of parent.\n\nOne."
    assert (note.next, note.goal) == (("Two comes.",), "Count.")
    assert not verify(FileStore(store_dir), "branch").findings


def test_waypoints_may_be_counted_from_the_end(parent: Path) -> None:
    assert fork("parent", at=-2, new_run_id="branch") == 49
    assert load("parent", -1) == state(50)
    assert get_waypoint("parent", -50).number == 1
    with pytest.raises(WaypointNotFound, match="50 waypoints; -51 is not one"):
        load("parent", -51)


def test_lanes_are_as_they_were(store_dir: Path) -> None:
    """The newest waypoint of each lane at that moment, and nothing that came later."""
    run = open_run("parent", store=store_dir)
    run.checkpoint({"main": 1})
    run.checkpoint({"side": 1}, lane="side")
    run.checkpoint({"main": 2})
    run.checkpoint({"side": 2}, lane="side")
    run.checkpoint({"late": 1}, lane="late")

    fork("parent", at=3, new_run_id="branch")

    assert [(w.number, w.lane, w.state) for w in history("branch")] == [
        (2, "side", {"side": 1}),
        (3, "", {"main": 2}),
    ]
    branch = open_run("branch", store=store_dir)
    assert branch.checkpoint({"side": 3}, lane="side") == 4


def test_what_came_after_the_waypoint_is_not_in_the_fork(store_dir: Path) -> None:
    with open_run("parent", store=store_dir) as run:
        run.checkpoint({"n": 1})
        run.entry("tool", 1)
        run.checkpoint({"n": 2})
        run.entry("tool", 2)
        pin("parent", 1)
        run.finish("done")

    fork("parent", at=1, new_run_id="early")
    fork("parent", new_run_id="late")

    assert open_run("early").entries() == []
    assert [entry.data for entry in open_run("late").entries()] == [2]
    assert open_run("late").finished() == (False, None), "a fork has its work before it"
    assert open_run("late").state == {"n": 2}


def test_effects_until_the_waypoint_are_known_in_the_fork(store_dir: Path) -> None:
    """What `once` recorded before it is returned; what came later is done by each branch."""
    done: list[str] = []

    def act(what: str) -> str:
        done.append(what)
        return f"result of {what} {len(done)}"

    with open_run("parent", store=store_dir) as run:
        run.once("early", act, "early")
        run.checkpoint({"n": 1})
        run.once("late", act, "late")
        run.checkpoint({"n": 2})
        run.once("last", act, "last")

    fork("parent", at=1, new_run_id="first", store=store_dir)
    fork("parent", new_run_id="second", store=store_dir)
    with open_run("first", store=store_dir) as run:
        assert run.once("early", act, "early") == "result of early 1"
        assert run.once("late", act, "late") == "result of late 4"
    with open_run("second", store=store_dir) as run:
        assert run.once("last", act, "last") == "result of last 3"

    assert done == ["early", "late", "last", "late"]


def test_effects_are_known_after_a_pruning_too(store_dir: Path) -> None:
    with open_run("parent", store=store_dir) as run:
        run.once("send", int, "7")
        for number in range(1, 6):
            run.checkpoint({"n": number})
    prune("parent", keep=1, store=store_dir)
    forget(FileStore(store_dir), "parent")

    fork("parent", new_run_id="branch", store=store_dir)

    for name in ("parent", "branch"):
        with open_run(name, store=store_dir) as run:
            assert run.once("send", int, "7") == 7
    kinds = (store_dir / "branch/journal-1.jsonl").read_bytes()
    assert kinds.count(b'"kind":"effect"') == 2, "begun and ended, once"


def test_an_open_question_stays_with_the_parent(store_dir: Path) -> None:
    checkpoint("parent", {"n": 1})
    with open_run("parent", store=store_dir) as run, pytest.raises(WaitingForPerson):
        run.ask("Go on?")
    checkpoint("parent", {"n": 2}, "while it waits")
    assert "Go on?" in (store_dir / "parent/waypoint-2.md").read_text(encoding="utf-8")

    fork("parent", new_run_id="branch")

    for name in ("waypoint-2.md", "latest.md"):
        assert "Go on?" not in (store_dir / "branch" / name).read_text(encoding="utf-8")
    assert {info.run_id: info.status for info in list_runs()}["branch"] == "stopped"
    assert not verify(FileStore(store_dir), "branch").findings
    with pytest.raises(WaitingForPerson), open_run("branch") as run:
        run.ask("Go on?")


async def _forked() -> int:
    return await afork("parent", at=1, new_run_id="branch")


def test_afork_does_the_same(store_dir: Path) -> None:
    import asyncio

    checkpoint("parent", {"n": 1})

    assert asyncio.run(_forked()) == 1
    assert load("branch") == {"n": 1}


def test_wrong_forks_are_refused_and_leave_nothing(store_dir: Path) -> None:
    checkpoint("parent", {"n": 1})
    checkpoint("other", {"n": 7})

    with pytest.raises(RunNotFound):
        fork("no-such-run", new_run_id="branch")
    with pytest.raises(WaypointNotFound):
        fork("parent", at=2, new_run_id="branch")
    with pytest.raises(UsageError, match="other exists already"):
        fork("parent", new_run_id="other")
    with pytest.raises(UsageError, match="name of its own"):
        fork("parent", new_run_id="parent")
    with pytest.raises(UsageError, match="an int, not str"):
        fork("parent", at="1", new_run_id="branch")  # type: ignore[arg-type]

    assert load("other") == {"n": 7}
    assert {path.name for path in store_dir.iterdir()} == {".gitignore", "parent", "other"}


def test_this_process_goes_on_with_its_fork(
    store_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it looked for the run before, and where it changed its folder since."""
    checkpoint("parent", {"n": 1})
    with pytest.raises(RunNotFound):
        load("branch", store=store_dir)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    fork("parent", new_run_id="branch")
    checkpoint("branch", {"n": 2})

    assert load("branch") == {"n": 2}
    assert (store_dir / "branch").is_dir()
    assert checkpoint("branch", {"n": 3}, store=store_dir) == 3


def test_a_fork_keeps_its_schema(store_dir: Path) -> None:
    open_run("parent", store=store_dir, schema=4).checkpoint({"n": 1})

    fork("parent", new_run_id="branch")

    assert get_waypoint("branch").schema == 4


def test_a_store_in_memory_forks_too() -> None:
    store = MemoryStore()
    checkpoint("parent", {"n": (1,)}, store=store)

    fork("parent", new_run_id="branch", store=store)

    assert load("branch", store=store) == {"n": (1,)}


def test_a_fork_of_a_run_that_is_rewritten_meanwhile(
    store_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the journal more than once; a prune in between is no damage."""
    for n in range(1, 41):
        checkpoint("run", {"n": n, "text": "x" * 3000}, f"step {n}")
    real, left = FileStore.chain, [2]

    def chain(self: FileStore, run_id: str, number: int) -> Any:
        if run_id == "run" and left[0]:
            left[0] -= 1
            raise Malformed("a waypoint that this one builds on is missing")
        return real(self, run_id, number)

    monkeypatch.setattr(FileStore, "chain", chain)
    assert fork("run", at=30, new_run_id="other") == 30
    assert left == [0]
    assert load("other") == {"n": 30, "text": "x" * 3000}

    left[0] = 1000
    with pytest.raises(JournalDamaged, match="does not fit together"):
        fork("run", at=30, new_run_id="third")
    assert [run.run_id for run in list_runs()].count("third") == 0
