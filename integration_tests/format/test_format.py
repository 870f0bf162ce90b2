"""The specification is enough to read a journal, and golden journals stay readable."""

from __future__ import annotations

import ast
import datetime
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

import caravanserai
from caravanserai_core import reading, survey
from caravanserai_core.stores import _file
from caravanserai_core.verify import verify
from integration_tests.codec.values import same
from integration_tests.format import golden
from integration_tests.format.plain_reader import read_entries, read_records, read_states

HERE = Path(__file__).parent


def various_states(count: int) -> list[object]:
    """Make states that use every way of writing one: whole, patched, tagged, reordered."""
    states: list[object] = []
    messages = [{"role": "user", "content": "x" * 900, "id": n} for n in range(12)]
    for n in range(count):
        messages = [*messages, {"role": "assistant", "content": f"answer {n}" * 20, "id": n}]
        state = {
            "messages": messages,
            "n": n,
            "a/b~c": {"deep": {"er": list(range(n))}},
            "window": list(range(n, n + 200)),
            "when": datetime.datetime(2026, 1, 1, n % 24, tzinfo=datetime.UTC),
            "pair": (n, float("nan")),
        }
        states.append(dict(reversed(state.items())) if n % 7 == 3 else state)
    return states


def test_a_reader_of_plain_python_reads_every_state(
    store_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the specification's own reader gives is what `load(raw=True)` gives."""
    monkeypatch.setattr(_file, "SEGMENT_SIZE", 20_000)
    for state in various_states(40):
        caravanserai.checkpoint("run", state, store=store_dir)
    with caravanserai.open_run("run", store=store_dir) as run:
        run.entry("tool", {"result": {1, 2}})
        run.finish(b"done")
    states = read_states(store_dir / "run")
    assert sorted(states) == list(range(1, 41))
    for number, tree in states.items():
        ours = caravanserai.load("run", at=number, store=store_dir, raw=True)
        assert json.dumps(tree) == json.dumps(ours)
    kinds = [head["kind"] for head, _, _ in read_records(store_dir / "run")]
    assert {"open", "snapshot", "waypoint", "entry", "finish", "roll"} == set(kinds)
    assert (store_dir / "run" / "journal-2.jsonl").exists()


def test_the_reader_needs_nothing_of_this_project() -> None:
    """It is at most 100 lines long and imports the standard library alone."""
    source = (HERE / "plain_reader.py").read_text()
    nodes = list(ast.walk(ast.parse(source)))
    names = {alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names}
    names |= {n.module or "." for n in nodes if isinstance(n, ast.ImportFrom)}
    assert names <= sys.stdlib_module_names
    assert len(source.splitlines()) <= 100


@pytest.mark.parametrize(
    "run", sorted((HERE / "golden").glob("*/*")), ids=lambda run: f"{run.parent.name}/{run.name}"
)
def test_the_plain_reader_reads_golden_journals(run: Path) -> None:
    """Compacted ones too: the chain goes on from the anchor."""
    store = caravanserai.FileStore(run.parent)
    states = read_states(run)
    assert list(states) == [w.number for w in caravanserai.history(run.name, store=store)]
    for number, tree in states.items():
        ours = caravanserai.load(run.name, at=number, store=store, raw=True)
        assert json.dumps(tree) == json.dumps(ours)


@pytest.mark.parametrize("later", [False, True])
def test_golden_journals_load(later: bool, tmp_path: Path) -> None:
    """What was ever written is read exactly, verified, and gone on from."""
    shutil.copytree(golden.FOLDER, tmp_path / "store", symlinks=True)
    for run in golden.LATER.iterdir() if later else ():
        shutil.rmtree(tmp_path / "store" / run.name, ignore_errors=True)
        shutil.copytree(run, tmp_path / "store" / run.name, symlinks=True)
    store = caravanserai.FileStore(tmp_path / "store")
    for name, make in golden.RUNS.items():
        for number, state in enumerate(make(), 1):
            assert same(caravanserai.load(name, at=number, store=store), state), (name, number)
        assert verify(store, name).findings == []
        newest = caravanserai.get_waypoint(name, store=store).number
        assert caravanserai.checkpoint(name, {"gone": "on"}, store=store) > newest
    for number, state in enumerate(golden.growing(), 1):
        if golden.stays(number):
            assert same(caravanserai.load(golden.REMOVED, at=number, store=store), state), number
    assert verify(store, golden.REMOVED).findings == []
    kept = [n for n in range(1, 61) if golden.stays(n)] + [61]
    assert [w.number for w in caravanserai.history(golden.REMOVED, store=store)] == kept
    assert caravanserai.checkpoint(golden.REMOVED, {}, store=store) == 62
    noted = caravanserai.history("noted", store=store)
    sources = ["loop", "loop", "loop", "pause", None]
    assert [w.meta.get("source") for w in noted] == sources
    assert noted[3].state == noted[2].state
    kept = caravanserai.history(golden.KEPT, store=store)
    assert [(w.number, w.schema) for w in kept] == [(2, 1), (4, 1), (5, 2)]
    assert [w.state for w in kept] == [{"n": 2, "pair": (2,)}, {"n": 4, "pair": (4,)}, {"m": 4}]
    assert caravanserai.prune(golden.KEPT, keep=1, store=store) == 1
    assert [w.number for w in caravanserai.history(golden.KEPT, store=store)] == [2, 5]
    [forked] = caravanserai.history(golden.BRANCH, store=store)
    assert (forked.number, forked.state) == (4, {"n": 4, "pair": (4,)})
    assert str(forked.note) == "Forked from waypoint 4 of kept.\n\nstep 4"
    origins = {run.run_id: run.origin for run in caravanserai.list_runs(store=store)}
    assert origins[golden.BRANCH] == {"run_id": golden.KEPT, "waypoint": 4}
    for name in (golden.KEPT, golden.BRANCH):
        assert verify(store, name).findings == []
    waypoints = {w.number: w for w in caravanserai.history("small", store=store)}
    assert waypoints[6].note.decided == ("Because it was asked for.",)
    assert (waypoints[7].lane, waypoints[7].parent) == ("side", None)


def test_the_golden_chat_is_read(tmp_path: Path) -> None:
    """Its entries hold what they share with waypoints, its notes the goal that they leave out."""
    shutil.copytree(golden.LATER / golden.CHAT, tmp_path / golden.CHAT, symlinks=True)
    store = caravanserai.FileStore(tmp_path)
    records = list(survey.records(store, golden.CHAT, bodies=True))
    expected = [golden.said(number) for number in range(1, 6)]
    assert [reading.data_of(r) for r in records if r.kind == "entry"] == expected
    assert read_entries(tmp_path / golden.CHAT) == expected
    raw = list(read_records(tmp_path / golden.CHAT))
    assert [head["in"] for head, _, _ in raw if "in" in head] == [2, 3, 4, 5]
    assert not any("goal" in head["note"] for head, _, _ in raw if "note" in head)
    goals = {w.note.goal for w in caravanserai.history(golden.CHAT, store=store)}
    assert goals == {"to be read for ever"}
    assert verify(store, golden.CHAT).findings == []
    assert caravanserai.checkpoint(golden.CHAT, {}, store=store) == 6


def test_golden_steps_and_questions_are_read_and_gone_on_with(tmp_path: Path) -> None:
    """What ended is not run again, what was answered and used is asked anew."""
    shutil.copytree(golden.LATER / golden.ASKED, tmp_path / golden.ASKED, symlinks=True)
    store = caravanserai.FileStore(tmp_path)
    kinds = [record.kind for record in survey.records(store, golden.ASKED, bodies=False)]
    assert [kinds.count(kind) for kind in ("effect", "question", "answer")] == [6, 2, 2]
    assert verify(store, golden.ASKED).findings == []
    last = caravanserai.get_waypoint(golden.ASKED, store=store)
    assert last.state == {"n": 2, "when": "tomorrow"}
    assert "Broken goods are paid back at once." in last.note.decided

    with caravanserai.open_run(golden.ASKED, store=store) as run:
        assert run.once("look up", len, "A17") == ("A17", 40)
        assert run.once("refund", max, "A17", 40, key="A17") == "paid 40 for A17"
        with pytest.raises(caravanserai.WaitingForPerson) as waits:
            run.ask("When is the next one sent?")
    assert waits.value.questions == ("q3",)


def test_a_golden_handoff_is_read_and_gone_on_with(tmp_path: Path) -> None:
    """All that it was handed is in it: the other run is not there any more."""
    shutil.copytree(golden.LATER / golden.HANDED, tmp_path / golden.HANDED, symlinks=True)
    store = caravanserai.FileStore(tmp_path)
    assert verify(store, golden.HANDED).findings == []
    with caravanserai.open_run(golden.HANDED, store=store, continues="before") as run:
        handed = run.handoff
        assert handed is not None
        assert (handed.source, handed.goal, handed.next) == ("before@1", "Pay once.", ("Pay.",))
        assert [call.name for call in handed.uncertain] == ["pay"]
        assert [question.id for question in handed.open_questions] == ["q1"]
        assert run.once("look up", golden.look_up, "A17") == ("A17", 40)
    records = list(survey.records(store, golden.HANDED, bodies=False))
    told = [r.head.get("what") for r in records if "carried" in r.head]
    assert told == ["result", "started", "uncertain"]


def test_golden_journals_of_this_format_are_what_is_written(tmp_path: Path) -> None:
    """This version writes the kinds, bases and bodies that the golden journals hold."""
    golden.make(tmp_path / "now")
    for name in (
        *golden.RUNS,
        golden.REMOVED,
        golden.KEPT,
        golden.BRANCH,
        golden.CHAT,
        golden.ASKED,
        golden.HANDED,
    ):
        kept = list(read_records(golden.folder_of(name) / name))
        made = list(read_records(tmp_path / "now" / name))
        assert [shape(*record) for record in made] == [shape(*record) for record in kept]


def shape(head: dict[str, object], name: str, value: bytes) -> tuple[object, ...]:
    """Return what does not differ between two runs of the same program."""
    chance = ("time", "by", "prev", "note_sha256", "run")
    fixed = {key: item for key, item in head.items() if key not in chance}
    if "anchor" in fixed:
        fixed["anchor"] = {**head["anchor"], "sum": ""}  # type: ignore[dict-item]
    if "pending" in fixed:
        pending = json.dumps(fixed["pending"])
        fixed["pending"] = re.sub(r'"time": "[^"]*"', "", pending)
    if head.get("name") == "handoff":  # times are in it
        fixed.pop("body_sha256", None)
        value = " ".join(json.loads(value)).encode()
    return fixed, name, value if head["kind"] != "snapshot" else None
