"""The plain functions: what they take, what they return, what they refuse."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import caravanserai
from caravanserai import (
    AlreadyAnswered,
    CaravanseraiError,
    Conflict,
    EffectStopped,
    EffectUncertain,
    InputChanged,
    InvalidRunId,
    JournalDamaged,
    NewerFormat,
    NoRun,
    Note,
    OnceKeyReused,
    ProgramNotFound,
    QuestionExpired,
    RunBusy,
    RunNotFound,
    SchemaMismatch,
    SecretChanged,
    SecretFound,
    SecretMissing,
    StaleWriter,
    StoreBusy,
    StoreFailed,
    StoreRefused,
    UnknownType,
    UnserialisableState,
    UsageError,
    WaitingForPerson,
    WaypointNotFound,
    acheckpoint,
    aget_waypoint,
    ahistory,
    aload,
    asave,
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
    remark,
    resumable,
    resumable_iterate,
    save,
)

BASES: dict[type[CaravanseraiError], tuple[type[Exception], int]] = {
    InputChanged: (ValueError, 2),
    InvalidRunId: (ValueError, 2),
    UsageError: (ValueError, 2),
    RunNotFound: (LookupError, 3),
    WaypointNotFound: (LookupError, 3),
    ProgramNotFound: (FileNotFoundError, 3),
    JournalDamaged: (ValueError, 4),
    NewerFormat: (ValueError, 4),
    StoreBusy: (TimeoutError, 5),
    StaleWriter: (RuntimeError, 5),
    Conflict: (RuntimeError, 5),
    UnserialisableState: (ValueError, 1),
    UnknownType: (TypeError, 1),
    SchemaMismatch: (ValueError, 1),
    SecretFound: (ValueError, 1),
    SecretMissing: (LookupError, 1),
    SecretChanged: (ValueError, 1),
    StoreFailed: (OSError, 1),
    StoreRefused: (PermissionError, 1),
    NoRun: (RuntimeError, 1),
    OnceKeyReused: (ValueError, 2),
    EffectUncertain: (RuntimeError, 1),
    EffectStopped: (RuntimeError, 1),
    WaitingForPerson: (RuntimeError, 6),
    QuestionExpired: (TimeoutError, 1),
    AlreadyAnswered: (RuntimeError, 2),
    RunBusy: (RuntimeError, 5),
}


def test_every_exported_name_is_there() -> None:
    """`caravanserai` gives each name of the core that it promises, and no other object."""
    import caravanserai_core

    assert set(caravanserai_core.__all__) <= set(caravanserai.__all__)
    for name in caravanserai_core.__all__:
        assert getattr(caravanserai, name) is getattr(caravanserai_core, name)


def test_errors_have_one_root_and_a_builtin_base() -> None:
    """Whoever knows nothing of Caravanserai catches what he would have caught anyway."""
    exported = {
        value
        for name in caravanserai.__all__
        if isinstance(value := getattr(caravanserai, name), type)
        and issubclass(value, CaravanseraiError)
    }
    assert exported == {CaravanseraiError, *BASES}
    for error, (base, exit_code) in BASES.items():
        assert issubclass(error, base)
        assert error.exit_code == exit_code
        assert f"| {error.__name__} | {base.__name__} | {exit_code} |" in str(
            caravanserai_core_errors_doc()
        )


def caravanserai_core_errors_doc() -> str | None:
    """The table in the module's own documentation."""
    from caravanserai_core import errors

    return errors.__doc__


def test_numbers_count_from_one() -> None:
    """Each save is a waypoint of its own, numbered in the order of the saves."""
    assert checkpoint("run", {"n": 1}, "one") == 1
    assert save("run", {"n": 2}) == 2
    assert asyncio.run(acheckpoint("run", {"n": 3}, "three")) == 3
    assert asyncio.run(asave("run", {"n": 4})) == 4
    assert [load("run", at=n)["n"] for n in (1, 2, 3, 4)] == [1, 2, 3, 4]
    assert [w.parent for w in history("run")] == [None, 1, 2, 3]
    assert checkpoint("other", {}) == 1


def test_async_forms_give_what_the_plain_ones_give() -> None:
    """Every function with an `a` in front returns the same."""

    async def both() -> None:
        await acheckpoint("run", {"n": (1,)}, Note("first", next="second"))
        await asave("run", {"n": (2,)})
        assert await aload("run") == load("run") == {"n": (2,)}
        assert await aload("run", 1) == load("run", 1) == {"n": (1,)}
        assert await aload("run", raw=True) == load("run", raw=True) == {"n": {"$tuple": [2]}}
        mine, plain = await aget_waypoint("run", 1), get_waypoint("run", 1)
        assert (mine.number, mine.note, mine.time) == (plain.number, plain.note, plain.time)
        assert mine.state == plain.state == {"n": (1,)}
        assert [w.number for w in await ahistory("run")] == [w.number for w in history("run")]

    asyncio.run(both())


@pytest.mark.parametrize(
    ("note", "summary"),
    [
        ("a text", "a text"),
        (Note("a note", happened=["this"], next=["that"]), "a note"),
        (lambda state: f"n is {state['n']}", "n is 1"),
        (lambda state: Note(f"n is {state['n']}", goal="count"), "n is 1"),
        (None, "n: 1"),
        (lambda state: None, "n: 1"),
        ("", "n: 1"),
    ],
)
def test_note_forms(note: Any, summary: str) -> None:
    """A note is a text, a Note, a function that returns one, or is derived from the state."""
    checkpoint("run", {"n": 1}, note)
    assert str(get_waypoint("run").note) == summary
    made = note({"n": 1}) if callable(note) else note
    if isinstance(made, Note):
        assert get_waypoint("run").note == made


@pytest.mark.parametrize("note", [1, b"bytes", ["list"], {"summary": "x"}, lambda state: 5])
def test_other_notes_are_refused(note: Any) -> None:
    """What is no note is refused before anything is written."""
    with pytest.raises(UsageError):
        checkpoint("run", {"n": 1}, note)
    with pytest.raises(RunNotFound):
        load("run")


def test_note_function_that_fails_leaves_no_waypoint() -> None:
    """An error in the function that makes the note comes out as it is; nothing is written."""

    def broken(state: Any) -> str:
        raise ZeroDivisionError

    checkpoint("run", {"n": 1}, "first")
    with pytest.raises(ZeroDivisionError):
        checkpoint("run", {"n": 2}, broken)
    assert load("run") == {"n": 1}


CALLS: dict[str, Any] = {
    "checkpoint": lambda run_id: checkpoint(run_id, {}),
    "acheckpoint": lambda run_id: asyncio.run(acheckpoint(run_id, {})),
    "save": lambda run_id: save(run_id, {}),
    "asave": lambda run_id: asyncio.run(asave(run_id, {})),
    "load": lambda run_id: load(run_id),
    "aload": lambda run_id: asyncio.run(aload(run_id)),
    "get_waypoint": lambda run_id: get_waypoint(run_id),
    "aget_waypoint": lambda run_id: asyncio.run(aget_waypoint(run_id)),
    "history": lambda run_id: history(run_id),
    "ahistory": lambda run_id: asyncio.run(ahistory(run_id)),
    "clean": lambda run_id: clean(run_id),
    "load_latest": lambda run_id: load_latest(run_id),
    "load_command": lambda run_id: load_command(run_id),
    "last_updated": lambda run_id: last_updated(run_id),
    "open_run": lambda run_id: open_run(run_id),
    "resumable": lambda run_id: resumable(lambda run_id, state: None)(run_id, {}),
    "resumable_iterate": lambda run_id: list(resumable_iterate([1], run_id)),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("run_id", [1, b"x", None, "", 1.5, ("a",), Path("x")])
def test_other_ids_than_texts_are_refused(call: str, run_id: object, store_dir: Path) -> None:
    """1 and "1" must not be one run here and two there: an id is a text of at least a character."""
    with pytest.raises(InvalidRunId, match="run_id"):
        CALLS[call](run_id)
    assert not store_dir.exists()


UNKNOWN = ["load", "aload", "get_waypoint", "aget_waypoint", "history", "ahistory"]


@pytest.mark.parametrize("call", UNKNOWN)
def test_unknown_run_is_never_an_empty_one(call: str, store_dir: Path) -> None:
    """Reading a run that is not there says so, names the store, and creates nothing."""
    with pytest.raises(RunNotFound) as caught:
        CALLS[call]("mistyped")
    assert "mistyped" in str(caught.value)
    assert str(store_dir) in str(caught.value)
    assert not store_dir.exists()


def test_functions_of_the_first_releases_return_nothing_for_an_unknown_run() -> None:
    """Their callers test for None."""
    assert load_latest("run") is None
    assert load_command("run") is None
    assert last_updated("run") is None
    assert clean("run") is False
    assert list_runs() == []


@pytest.mark.parametrize("at", [0, 2, -2, 10**12])
def test_unknown_waypoint_is_an_error(at: int) -> None:
    """A number that the run does not have is neither the newest nor the nearest."""
    checkpoint("run", {"n": 1})
    for call in (load, get_waypoint):
        with pytest.raises(WaypointNotFound, match="run"):
            call("run", at)


def test_state_that_cannot_be_kept_leaves_the_one_before() -> None:
    """The error names the path; nothing is written."""
    checkpoint("run", {"n": 1}, "first")
    with pytest.raises(ValueError, match=r"\$\.a\[1\]\.b") as caught:
        checkpoint("run", {"a": [0, {"b": object()}]}, "second")
    assert isinstance(caught.value, UnserialisableState)
    assert caught.value.path == "$.a[1].b"
    with pytest.raises(UnserialisableState):
        # Not even a coroutine: the state is judged where it is given.
        acheckpoint("run", {"a": object()})
    assert load("run") == {"n": 1}
    assert checkpoint("run", {"n": 2}) == 2


def test_falsy_states_are_states() -> None:
    """None, 0 and an empty dict come back as what they are."""
    for state in (None, 0, False, "", [], {}, ()):
        checkpoint("run", state)
        assert load("run") == state
        assert type(load("run")) is type(state)


def test_remark_needs_an_open_run() -> None:
    """Outside of a run there is no note that a remark could join."""
    with pytest.raises(NoRun):
        remark("why")
    with open_run("run") as run:
        remark("why")
    with pytest.raises(NoRun):
        remark("why")
    assert run.checkpoint({}, "text") == 1
    assert get_waypoint("run").note.decided == ("why",)


def test_last_updated_and_command() -> None:
    """When it was last written and how it was started are known."""
    import sys
    import time

    before = time.time()
    checkpoint("run", {})
    updated = last_updated("run")
    assert updated is not None
    assert before - 0.001 <= updated <= time.time()
    command = load_command("run")
    assert command is not None
    assert command[0] == sys.executable
    assert load_latest("run") == ({}, "empty state", 1)
