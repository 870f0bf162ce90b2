"""Reading: nothing is decoded that was not asked for, and nothing depends on clock or place."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from caravanserai import (
    FileStore,
    JournalDamaged,
    RunNotFound,
    checkpoint,
    clean,
    get_waypoint,
    history,
    list_runs,
    load,
    open_run,
    resumable,
)
from caravanserai_core import codec, records
from integration_tests.api.helpers import forget_everything, process, set_clock


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the states and patches that are parsed, by their sizes."""
    sizes: list[int] = []
    real = codec.parse

    def parse(data: bytes) -> Any:
        sizes.append(len(data))
        return real(data)

    monkeypatch.setattr(codec, "parse", parse)
    monkeypatch.setattr(records, "parse_json", parse)
    return sizes


def test_lists_decode_no_state(decoded: list[int]) -> None:
    """Notes, times and statuses are read from heads; a state is decoded when it is asked for."""
    for n in range(20):
        checkpoint("run", {"n": n, "pad": "x" * 50_000}, f"note {n}")
    forget_everything()
    decoded.clear()
    found = history("run")
    newest = get_waypoint("run")
    seventh = get_waypoint("run", 7)
    assert [str(w.note) for w in found] == [f"note {n}" for n in range(20)]
    assert (newest.number, str(newest.note)) == (20, "note 19")
    assert (seventh.number, str(seventh.note)) == (7, "note 6")
    assert [info.waypoints for info in list_runs()] == [20]
    assert [size for size in decoded if size > 1000] == []
    assert found[4].state["n"] == 4
    assert any(size > 1000 for size in decoded)


def test_state_of_a_waypoint_is_read_each_time() -> None:
    """Changing what was read changes nothing that is stored."""
    checkpoint("run", {"log": [1]})
    waypoint = get_waypoint("run")
    waypoint.state["log"].append(2)
    assert waypoint.state == {"log": [1]}
    assert history("run")[0].state == {"log": [1]}
    assert repr(waypoint) == "<Waypoint 1: log: 1 item>"
    assert waypoint.time.utcoffset() == dt.timedelta(0)


def test_runs_and_their_statuses(store_dir: Path) -> None:
    """Status is derived from the journal: new, stopped, failed, finished, damaged."""

    @resumable
    def broken(run_id: str, state: Any) -> None:
        checkpoint(run_id, {"n": 1})
        raise ZeroDivisionError

    open_run("a new one").entry("began")
    checkpoint("stopped", {})
    with pytest.raises(ZeroDivisionError):
        broken("failed", {})
    open_run("finished").finish(1)
    checkpoint("damaged", {})
    journal = store_dir / "damaged" / "journal-1.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"waypoint":1', b'"waypoint":7'))
    found = {info.run_id: info for info in list_runs()}
    assert {name: info.status for name, info in found.items()} == {
        "a new one": "new",
        "stopped": "stopped",
        "failed": "failed",
        "finished": "finished",
        "damaged": "damaged",
    }
    assert found["failed"].waypoints == 1
    assert found["damaged"].error is not None
    assert str(journal) in found["damaged"].error
    assert found["a new one"].folder.startswith("a-new-one~")
    assert all(info.error is None for info in found.values() if info.status != "damaged")
    forget_everything()
    with pytest.raises(JournalDamaged):
        load("damaged")


def test_runs_are_listed_with_the_newest_first() -> None:
    """The run that was written last is what one looks for."""
    for run_id in ("b", "c", "a"):
        checkpoint(run_id, {})
    checkpoint("c", {})
    assert [info.run_id for info in list_runs()] == ["c", "a", "b"]


def test_clean_removes_the_run_alone(store_dir: Path) -> None:
    """Its folder is gone, others stay, and it is not there any more for anybody."""
    checkpoint("run", {})
    checkpoint("other", {"n": 1})
    assert clean("run") is True
    assert not (store_dir / "run").exists()
    assert clean("run") is False
    with pytest.raises(RunNotFound):
        load("run")
    assert load("other") == {"n": 1}
    assert [info.run_id for info in list_runs()] == ["other"]
    assert [name for name in os.listdir(store_dir) if name.startswith(".deleted")] == []


@pytest.mark.parametrize("years", [[1970, 1970], [2030, 1970, 2001]])
def test_clock_does_not_matter(years: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Order is by number: a clock that goes backwards, or stands in 1970, loses nothing."""

    for n, year in enumerate([2026, *years], 1):
        set_clock(monkeypatch, f"{year}-01-01T00:00:00")
        assert checkpoint("run", {"n": n}, f"note {n}") == n
        forget_everything()
        assert load("run") == {"n": n}
    assert [w.time.year for w in history("run")] == [2026, *years]
    assert [w.number for w in history("run")] == list(range(1, len(years) + 2))
    assert list_runs()[0].waypoints == len(years) + 1
    last = Path(".caravanserai/run/latest.md").read_text()
    assert last.startswith(f"# Waypoint {len(years) + 1} — {years[-1]}-01-01T00:00:00+00:00\n")


def content(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_copy_of_a_store_is_independent(store_dir: Path, tmp_path: Path) -> None:
    """What is saved in a copy leaves the original as it was, and the other way round."""
    for n in range(3):
        checkpoint("run", {"n": n, "pad": "x" * 9000}, f"note {n}")
    shutil.copytree(store_dir, tmp_path / "copy", symlinks=True)
    before = content(store_dir)
    assert checkpoint("run", {"n": "copy"}, store=tmp_path / "copy") == 4
    assert content(store_dir) == before
    assert load("run") == {"n": 2, "pad": "x" * 9000}
    assert checkpoint("run", {"n": "original"}) == 4
    assert load("run", store=tmp_path / "copy") == {"n": "copy"}
    copied = content(tmp_path / "copy" / "run")
    assert copied["latest.md"] == copied["waypoint-4.md"]


def test_store_can_be_moved(store_dir: Path, tmp_path: Path) -> None:
    """A store holds no path of its own."""
    checkpoint("run", {"n": 1})
    checkpoint("My Run!", {"n": 1})
    moved = tmp_path / "some" / "where"
    moved.parent.mkdir()
    os.rename(store_dir, moved)
    for run_id in ("run", "My Run!"):
        assert load(run_id, store=moved) == {"n": 1}
        assert checkpoint(run_id, {"n": 2}, store=moved) == 2
    assert (moved / "run" / "latest.md").read_text().startswith("# Waypoint 2 ")
    assert not store_dir.exists()


def test_store_that_was_moved_under_a_running_program(store_dir: Path, tmp_path: Path) -> None:
    """The next save there is refused, instead of beginning an empty run in the old place."""
    from caravanserai import Conflict

    checkpoint("run", {"n": 1})
    os.rename(store_dir, tmp_path / "moved")
    with pytest.raises(Conflict):
        checkpoint("run", {"n": 2})
    assert load("run", store=tmp_path / "moved") == {"n": 1}


def test_other_process_sees_what_was_saved_at_once(store_dir: Path) -> None:
    """What `checkpoint` has acknowledged is there for everybody."""
    checkpoint("run", {"n": (1,)})
    assert process("import caravanserai; print(caravanserai.load('run'))") == "{'n': (1,)}\n"


def test_reader_does_not_create_anything(tmp_path: Path) -> None:
    """Lists, loads and looks leave no file behind."""
    store = FileStore(tmp_path / "empty")
    assert list_runs(store=store) == []
    for call in (load, history, get_waypoint):
        with pytest.raises(RunNotFound):
            call("run", store=store)
    assert os.listdir(tmp_path) == []
