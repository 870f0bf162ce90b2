"""Schemas and migrations inside one process."""

from __future__ import annotations

import enum
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any

import pytest

from caravanserai import (
    SchemaMismatch,
    UsageError,
    aload,
    checkpoint,
    get_waypoint,
    history,
    load,
    open_run,
    register_type,
)
from caravanserai_core import codec
from caravanserai_core.journal import forget
from caravanserai_core.stores import FileStore

NEWER = r"run run, waypoint 1: \$: the state (has|was saved with) schema 3"


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass
class Point:
    x: int
    color: Color


# A later version of it, with a field less.
Smaller = make_dataclass("Point", ["x"])
Smaller.__module__ = __name__


def another_process(store_dir: Path, run_id: str = "run") -> None:
    """Forget what this process knows of a run, its schema too."""
    forget(FileStore(store_dir), run_id)


def renamed(state: dict[str, Any]) -> dict[str, Any]:
    state["steps"] = state.pop("step")
    return state


def doubled(state: dict[str, Any]) -> dict[str, Any]:
    return {"steps": state["steps"] * 2}


def test_load_applies_the_steps_and_checkpoint_writes_the_new_schema(store_dir: Path) -> None:
    checkpoint("run", {"step": 3})
    another_process(store_dir)

    state = load("run", migrations=[renamed, doubled])
    checkpoint("run", state)

    assert state == {"steps": 6}
    assert [w.schema for w in history("run")] == [1, 3]
    assert get_waypoint("run", 1).state == {"step": 3}
    assert load("run", 1) == {"steps": 6}, "the process declared its schema"
    another_process(store_dir)
    assert load("run", schema=3) == {"steps": 6}
    assert load("run", schema=4, migrations=[lambda s: [s]]) == [{"steps": 6}]


async def _loaded() -> Any:
    return await aload("run", migrations=[renamed])


def test_aload_does_the_same(store_dir: Path) -> None:
    import asyncio

    checkpoint("run", {"step": 3})

    assert asyncio.run(_loaded()) == {"steps": 3}


def test_a_newer_state_is_refused_and_can_be_read_raw(store_dir: Path) -> None:
    open_run("run", store=store_dir, schema=3).checkpoint({"n": (1,)})
    another_process(store_dir)

    for read in (
        lambda: load("run"),
        lambda: load("run", 1),
        lambda: load("run", schema=2),
        lambda: open_run("run"),
    ):
        with pytest.raises(SchemaMismatch, match=NEWER):
            read()
        another_process(store_dir)
    assert load("run", raw=True) == {"n": {"$tuple": [1]}}
    assert get_waypoint("run").state == {"n": (1,)}


def test_a_new_run_has_the_declared_schema(store_dir: Path) -> None:
    with open_run("run", schema=2, migrations=[renamed]) as run:
        run.checkpoint({"steps": 1})
        run.repeat("paused")
    checkpoint("run", {"steps": 2})

    assert [w.schema for w in history("run")] == [2, 2, 2]


def test_a_repeated_waypoint_has_the_schema_of_the_state_it_repeats(store_dir: Path) -> None:
    checkpoint("run", {"step": 1})
    another_process(store_dir)

    run = open_run("run", migrations=[renamed])
    run.repeat("a pause before anything was done")

    assert [w.schema for w in history("run")] == [1, 1]
    assert load("run", migrations=[renamed]) == {"steps": 1}


def test_the_first_waypoint_of_a_new_schema_may_be_a_patch(store_dir: Path) -> None:
    text = "x" * 100_000
    checkpoint("run", {"step": 1, "text": text})
    another_process(store_dir)

    state = load("run", migrations=[renamed])
    checkpoint("run", state)

    journal = (store_dir / "run/journal-1.jsonl").read_bytes()
    assert journal.count(b'"patch":') == 1
    another_process(store_dir)
    assert load("run", schema=2) == {"steps": 1, "text": text}


def test_unfit_values_come_as_what_was_recorded(
    store_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removed member, a removed field, a class that is gone: wherever they stood."""
    checkpoint("run", {"at": Point(1, Color.RED), "set": {Color.RED, Color.BLUE}, "ok": Color.BLUE})
    another_process(store_dir)
    other = enum.Enum("Color", ["BLUE"], module=__name__)
    monkeypatch.setattr(f"{__name__}.Color", other)
    monkeypatch.setattr(f"{__name__}.Point", Smaller)
    seen: list[Any] = []

    def step(state: Any) -> Any:
        seen.append(state)
        return 1

    with pytest.raises(SchemaMismatch):
        load("run")
    assert load("run", migrations=[step]) == 1

    [state] = seen
    assert state["ok"] is other["BLUE"], "what still fits comes as itself"
    assert type(state["at"]) is codec.Unfit
    assert state["at"].type_name == f"{__name__}:Point"
    assert state["at"]["x"] == 1
    assert state["at"]["color"] == {"name": "RED"}
    assert state["at"]["color"].type_name == f"{__name__}:Color"
    assert {"name": "RED"} in [dict(v) for v in state["set"] if isinstance(v, codec.Unfit)]


def test_a_result_that_cannot_be_kept_is_found_when_it_is_loaded(store_dir: Path) -> None:
    checkpoint("run", {"step": 1})

    with pytest.raises(SchemaMismatch, match=r"\$\.f: ") as caught:
        load("run", migrations=[lambda s: {"f": renamed}])

    assert caught.value.path == "$.f"


def forgetful(state: Any) -> None:
    state["steps"] = state.pop("step")


def test_a_step_that_returns_nothing_is_refused(store_dir: Path) -> None:
    """It changed its state in place and forgot to return it; the work of weeks would be None."""
    checkpoint("run", {"step": 3})
    checkpoint("empty", None)
    another_process(store_dir)
    before = (store_dir / "run/journal-1.jsonl").read_bytes()

    for read in (load, open_run):
        with pytest.raises(SchemaMismatch, match=r"from schema 1 to 2, forgetful, .*`return`\?"):
            read("run", migrations=[forgetful])
    assert (store_dir / "run/journal-1.jsonl").read_bytes() == before
    assert load("empty", migrations=[lambda _: None]) is None, "there was nothing to return"


def test_a_bare_save_that_takes_the_schema_back_is_told_of_once(
    store_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is written, as it always was; the next load of the program migrates it once more."""
    open_run("run", schema=3).checkpoint({"steps": 1})
    open_run("first").checkpoint({"steps": 1})
    another_process(store_dir)
    another_process(store_dir, "first")

    for _ in range(2):
        checkpoint("run", {"steps": 2})
        checkpoint("first", {"steps": 2})

    [told] = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert told.startswith("run run: its newest state has schema 3, and this process saves one as")
    assert [w.schema for w in history("run")] == [3, 1, 1]


@pytest.mark.parametrize(
    ("schema", "steps", "said"),
    [
        (0, [], "a number from 1"),
        (True, [], "a number from 1"),
        ("2", [], "a number from 1"),
        (2, [renamed, doubled], "do not fit together"),
        (None, ["no function"], "takes functions"),
        (None, renamed, r"takes a list of functions: migrations=\[renamed\]"),
        (2, 7, "takes a list of functions"),
        (2, "ab", "takes a list of functions"),
    ],
)
def test_a_wrong_declaration_is_refused(
    store_dir: Path, schema: Any, steps: Any, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        load("run", schema=schema, migrations=steps)
    with pytest.raises(UsageError, match=said):
        open_run("run", schema=schema, migrations=steps)


def test_a_type_without_a_stable_name_is_refused_at_save(store_dir: Path) -> None:
    @dataclass
    class Local:
        x: int

    with pytest.raises(ValueError, match="name="):
        checkpoint("run", {"p": Local(1)})
    register_type(Point, name="versions.point")
    with pytest.raises(UsageError, match="already belongs to"):
        register_type(Color, name="versions.color", aliases=["versions.point"])
