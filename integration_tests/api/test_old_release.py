"""Folders that release 0.2.0 wrote go on, and programs that were written for it still work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import caravanserai
from caravanserai import (
    FileStore,
    RunNotFound,
    WaypointNotFound,
    checkpoint,
    clean,
    get_waypoint,
    history,
    last_updated,
    list_runs,
    load,
    load_command,
    load_latest,
    open_run,
    resumable,
    resumable_iterate,
)
from caravanserai_core.verify import renew_notes, verify
from integration_tests.api.helpers import forget_everything, process
from integration_tests.api.old_release import install, run_old

RUN_IDS = ["my-run", "My-Run", "a run with spaces", "ünïcode 世界", "dots.and_more", "x" * 100]

WRITE = """
import caravanserai
assert not hasattr(caravanserai, "save"), "this is not the old release"
for run_id in {run_ids!r}:
    for n in (1, 2, 3):
        caravanserai.checkpoint(run_id, {{"step": n, "by": run_id}}, f"finished step {{n}}")
"""


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the old release is installed."""
    return install(tmp_path_factory.mktemp("old") / "release")


@pytest.fixture
def old(release: Path, store_dir: Path) -> Path:
    """A store that the old release wrote."""
    run_old(release, WRITE.format(run_ids=RUN_IDS))
    return store_dir


def files(folder: Path) -> dict[str, bytes]:
    """What the old release keeps in a run's folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("run_id", RUN_IDS)
def test_old_run_is_read(old: Path, run_id: str) -> None:
    """Its last state, all its notes; earlier states were never kept."""
    before = files(old / run_id)
    assert load(run_id) == {"step": 3, "by": run_id}
    assert load(run_id, 3) == {"step": 3, "by": run_id}
    found = history(run_id)
    assert [(w.number, str(w.note), w.parent) for w in found] == [
        (1, "finished step 1", None),
        (2, "finished step 2", 1),
        (3, "finished step 3", 2),
    ]
    assert found[2].state == {"step": 3, "by": run_id}
    for call in (lambda: load(run_id, 1), lambda: found[0].state):
        with pytest.raises(WaypointNotFound, match=r"0\.2\.0 kept only"):
            call()
    with pytest.raises(WaypointNotFound):
        load(run_id, 4)
    assert get_waypoint(run_id).number == 3
    assert str(get_waypoint(run_id, 2).note) == "finished step 2"
    assert load_latest(run_id) == ({"step": 3, "by": run_id}, "finished step 3", 3)
    assert load_command(run_id) == [sys.executable, "-c"]
    updated = last_updated(run_id)
    assert updated is not None
    assert abs(updated - (old / run_id / "latest").stat().st_mtime) < 2
    assert files(old / run_id) == before, "reading changes nothing"


@pytest.mark.parametrize("run_id", RUN_IDS)
def test_old_run_goes_on(old: Path, run_id: str) -> None:
    """Numbers go on, the old files stay byte for byte, and a list shows the run once."""
    before = files(old / run_id)
    assert checkpoint(run_id, {"step": 4}, "finished step 4") == 4
    for _ in range(2):
        assert load(run_id) == {"step": 4}
        assert load(run_id, 4) == {"step": 4}
        assert load(run_id, 3) == {"step": 3, "by": run_id}
        assert [(w.number, str(w.note)) for w in history(run_id)] == [
            (n, f"finished step {n}") for n in (1, 2, 3, 4)
        ]
        assert [w.parent for w in history(run_id)][2:] == [2, 3]
        assert [i.waypoints for i in list_runs() if i.run_id == run_id] == [4]
        # The program that took it over: the old one would repeat what was done since.
        assert load_command(run_id) == [sys.executable, *sys.orig_argv[1:]]
        forget_everything()
    after = files(old / run_id)
    assert {name: after.get(name) for name in before} == before
    assert sum(info.run_id == run_id for info in list_runs()) == 1
    assert len(list_runs()) == len(RUN_IDS)
    assert checkpoint(run_id, {"step": 5}) == 5
    with pytest.raises(WaypointNotFound):
        load(run_id, 2)


@pytest.mark.parametrize("run_id", RUN_IDS)
def test_old_run_is_verified_and_its_notes_are_left_alone(old: Path, run_id: str) -> None:
    """What the old release wrote is no damage, and nothing is written over it."""
    before = files(old / run_id)
    store = FileStore(old)
    assert verify(store, run_id).findings == []
    renew_notes(store, run_id)
    assert files(old / run_id) == before
    checkpoint(run_id, {"step": 4}, "finished step 4")
    renew_notes(store, run_id)
    assert not verify(store, run_id).damaged
    after = files(old / run_id)
    assert {name: after.get(name) for name in before} == before


def test_old_runs_are_listed(old: Path) -> None:
    """Each under its own name, with its number of waypoints."""
    found = list_runs()
    assert sorted(info.run_id for info in found) == sorted(RUN_IDS)
    assert {(info.status, info.waypoints) for info in found} == {("stopped", 3)}


@pytest.mark.parametrize("left", [b"", b'{"len":[30'])
def test_old_run_is_not_hidden_by_a_take_over_that_did_not_get_far(old: Path, left: bytes) -> None:
    """A crash between making the journal and filling it: still listed, read, and taken over."""
    folder = old / "my-run"
    (folder / "journal-1.jsonl").write_bytes(left)

    assert {info.run_id: info.waypoints for info in list_runs()}["my-run"] == 3
    assert load("my-run") == {"step": 3, "by": "my-run"}
    assert [point.number for point in history("my-run")] == [1, 2, 3]
    assert checkpoint("my-run", {"step": 4}) == 4
    assert {info.run_id: info.waypoints for info in list_runs()}["my-run"] == 4


@pytest.mark.parametrize("run_id", RUN_IDS)
@pytest.mark.parametrize("gone_on", [False, True])
def test_old_run_is_deleted_whole(old: Path, run_id: str, gone_on: bool) -> None:
    """`clean` removes what both releases wrote, and nothing of another run."""
    if gone_on:
        checkpoint(run_id, {"step": 4})
    assert clean(run_id) is True
    assert clean(run_id) is False
    assert not (old / run_id).exists()
    with pytest.raises(RunNotFound):
        load(run_id)
    assert sorted(i.run_id for i in list_runs()) == sorted(set(RUN_IDS) - {run_id})
    assert checkpoint(run_id, {"step": 1}) == 1


def test_old_run_is_resumed_by_the_decorator(old: Path) -> None:
    """The same program under this release goes on where the old one stopped."""
    done: list[int] = []

    @resumable
    def work(run_id: str, state: dict[str, Any]) -> str:
        step = state["step"]
        while step < 5:
            step += 1
            done.append(step)
            checkpoint(run_id, {"step": step}, f"finished step {step}")
        return "done"

    for run_id in ("my-run", "My-Run"):
        done.clear()
        assert work(run_id, {"step": 0}) == "done"
        assert done == [4, 5]
        assert work(run_id, {"step": 0}) == "done"
        assert done == [4, 5]


def test_old_run_is_opened(old: Path) -> None:
    """As an object, with must_exist too; entries come before its first new waypoint."""
    run = open_run("My-Run", must_exist=True)
    assert (run.waypoint, run.state) == (3, {"step": 3, "by": "My-Run"})
    run.entry("tool", 1, say="the tool began")
    forget_everything()
    run = open_run("My-Run")
    assert (run.waypoint, run.state) == (3, {"step": 3, "by": "My-Run"})
    assert [entry.data for entry in run.entries()] == [1]
    assert run.checkpoint({"step": 4}) == 4


def test_old_iteration_goes_on(release: Path, store_dir: Path) -> None:
    """A list that was begun under the old release is worked off to its end."""
    run_old(
        release,
        """
from caravanserai import resumable_iterate
for item in resumable_iterate("abcdef", run_id="Letters"):
    if item == "d":
        break
""",
    )
    assert list(resumable_iterate("abcdef", run_id="Letters")) == ["d", "e", "f"]


def test_two_processes_take_an_old_run_over(old: Path) -> None:
    """The second one goes on from what the first one made of it."""
    code = "import caravanserai; print(caravanserai.checkpoint('My-Run', {'n': 1}))"
    assert [process(code) for _ in range(3)] == ["4\n", "5\n", "6\n"]


def test_calls_of_the_old_release(store_dir: Path) -> None:
    """Every signature of 0.2.0, called as its documentation does."""
    assert caravanserai.checkpoint("run", {"step": 1}, "finished step 1") == 1
    assert caravanserai.checkpoint(run_id="run", state={"step": 2}, note="two") == 2
    assert caravanserai.load_latest("run") == ({"step": 2}, "two", 2)
    assert caravanserai.load_latest(run_id="run") == ({"step": 2}, "two", 2)
    assert isinstance(caravanserai.load_command("run"), list)
    assert isinstance(caravanserai.last_updated("run"), float)
    with pytest.raises(ValueError, match="step"):
        caravanserai.checkpoint("run", {"step": object()}, "three")

    @caravanserai.resumable
    def job(run_id: str, state: dict[str, Any], extra: int, *, more: int = 0) -> Any:
        return run_id, state, extra, more

    assert job("run", {"step": 0}, 5, more=6) == ("run", {"step": 2}, 5, 6)
    assert caravanserai.clean("run") is True
    assert caravanserai.clean("run") is False
    items = caravanserai.resumable_iterate([1, 2], "list", lambda item: f"did {item}")
    assert list(items) == [1, 2]
    state, note, number = caravanserai.load_latest("list")
    assert (state["_i"], note, number) == (2, "did 2", 2)


README_LIST = """
from caravanserai import resumable_iterate

for f in resumable_iterate(all_files(), run_id="my-run"):
    convert_file(f)
"""

README_LOOP = """
from caravanserai import checkpoint, resumable

@resumable
def do_the_task(run_id, state):
    step = state.get("step", 0)
    while step < 5:
        step += 1
        # ... do the actual work ...
        checkpoint(run_id, {"step": step}, f"finished step {step}, next is step {step+1}")

do_the_task("my-run", {"step": 0})
"""

KILLED = """
import os, signal
import caravanserai
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
real = caravanserai.checkpoint
def checkpoint(*args):
    number = real(*args)
    if number == 3:
        os.kill(os.getpid(), signal.SIGINT)
    return number
caravanserai.checkpoint = checkpoint
"""


def test_loop_of_the_old_readme(store_dir: Path) -> None:
    """Verbatim: killed after three steps, run again, it goes on; its note is the documented one."""
    with pytest.raises(AssertionError, match="KeyboardInterrupt"):
        process(KILLED + README_LOOP)
    assert load("my-run") == {"step": 3}
    note = (store_dir / "my-run" / "waypoint-3.md").read_text()
    assert note.split("\n")[1:] == ["", "finished step 3, next is step 4", ""]
    process(README_LOOP)
    assert load("my-run") == {"step": 5}
    assert [str(w.note) for w in history("my-run")] == [
        f"finished step {n}, next is step {n + 1}" for n in range(1, 6)
    ]


def test_list_of_the_old_readme(store_dir: Path) -> None:
    """Verbatim: the item in work when it was killed comes again, the others do not."""
    prelude = """
def all_files():
    return ["a", "b", "c", "d"]
def convert_file(f):
    print(f)
    if f == CRASH:
        raise KeyboardInterrupt
"""
    with pytest.raises(AssertionError, match="KeyboardInterrupt"):
        process("CRASH = 'c'" + prelude + README_LIST)
    assert process("CRASH = ''" + prelude + README_LIST) == "c\nd\n"
    assert process("CRASH = ''" + prelude + README_LIST) == ""
