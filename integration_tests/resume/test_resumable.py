"""`@resumable` and `resumable_iterate`: the same line starts, goes on, and returns."""

from __future__ import annotations

import asyncio
import inspect
import logging
from pathlib import Path
from typing import Any

import pytest

from caravanserai import (
    MemoryStore,
    RunNotFound,
    UnserialisableState,
    UsageError,
    acheckpoint,
    again,
    checkpoint,
    current_run,
    get_waypoint,
    history,
    list_runs,
    load,
    open_run,
    remark,
    resumable,
)
from integration_tests.api.helpers import forget_everything, process


class Crash(Exception):
    """What stops a loop in these tests."""


worked: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_worked() -> None:
    worked.clear()


def status() -> str:
    """The status of the only run."""
    (info,) = list_runs()
    return info.status


@resumable
def steps(run_id: str, state: dict[str, Any], until: int = 5, *, crash_at: int = 0) -> Any:
    """Five steps, and a result of a type that JSON does not have."""
    while state["step"] < until:
        state["step"] += 1
        worked.append(state["step"])
        if state["step"] == crash_at:
            raise Crash(f"step {crash_at} went wrong")
        checkpoint(run_id, state, f"finished step {state['step']}")
    return ("result", state["step"])


@resumable
async def async_steps(run_id: str, state: dict[str, Any], crash_at: int = 0) -> Any:
    """The same in async code."""
    while state["step"] < 5:
        state["step"] += 1
        worked.append(state["step"])
        if state["step"] == crash_at:
            raise Crash(f"step {crash_at} went wrong")
        await acheckpoint(run_id, state, f"finished step {state['step']}")
        await asyncio.sleep(0)
    return ("result", state["step"])


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call one of the two."""
    if name == "steps":
        return steps(*args, **kwargs)
    return asyncio.run(async_steps(*args, **kwargs))


BOTH = pytest.mark.parametrize("name", ["steps", "async_steps"])


@BOTH
def test_goes_on_after_a_failure(name: str) -> None:
    """The failed run says why; the next call starts behind the last waypoint."""
    with pytest.raises(Crash):
        call(name, "run", {"step": 0}, crash_at=3)
    assert status() == "failed"
    latest = Path(".caravanserai/run/latest.md").read_text()
    assert latest.startswith("# Waypoint 2 ")
    assert "Since then: the run failed at " in latest
    assert "step 3 went wrong" in latest
    assert "Start it again to go on." in latest
    forget_everything()
    assert call(name, "run", {"step": 0}) == ("result", 5)
    assert worked == [1, 2, 3, 3, 4, 5]
    assert status() == "finished"
    assert len(history("run")) == 5


@BOTH
def test_finished_job_returns_its_result_and_does_no_work(name: str) -> None:
    """The same call again gives what was recorded, exactly, also in a new process."""
    assert call(name, "run", {"step": 0}) == ("result", 5)
    worked.clear()
    for _ in range(2):
        forget_everything()
        # The state given is no part of the call: it may differ.
        result = call(name, "run", {"step": 3})
        assert result == ("result", 5)
        assert type(result) is tuple
    assert worked == []
    assert len(history("run")) == 5


def test_other_arguments_go_on_from_the_last_state() -> None:
    """A call with other arguments is other work on the same state."""
    assert steps("run", {"step": 0}) == ("result", 5)
    assert steps("run", {"step": 0}, 7) == ("result", 7)
    assert worked == [1, 2, 3, 4, 5, 6, 7]
    assert steps("run", {"step": 0}, 7) == ("result", 7)
    assert worked[5:] == [6, 7]
    assert status() == "finished"


def test_other_function_is_not_given_the_result() -> None:
    """A result belongs to the function that returned it; another one gets the state."""

    @resumable
    def other(run_id: str, state: dict[str, Any]) -> str:
        return f"other work on {state}"

    assert steps("run", {"step": 0}) == ("result", 5)
    assert other("run", {}) == "other work on {'step': 5}"
    assert other("run", {}) == "other work on {'step': 5}"


def test_again_starts_afresh() -> None:
    """It ignores the recorded result and state, and continues the run's numbers."""
    assert steps("run", {"step": 0}) == ("result", 5)
    assert again(steps)("run", {"step": 3}) == ("result", 5)
    assert worked == [1, 2, 3, 4, 5, 4, 5]
    assert [w.number for w in history("run")] == list(range(1, 8))
    assert steps("run", {"step": 0}) == ("result", 5)
    assert asyncio.run(again(async_steps)("run", {"step": 4})) == ("result", 5)
    with pytest.raises(UsageError):
        again(len)


def test_must_exist(store_dir: Path) -> None:
    """Where a run must not begin by accident, an unknown id is an error."""

    @resumable(must_exist=True)
    def work(run_id: str, state: Any) -> Any:
        return state

    with pytest.raises(RunNotFound):
        work("mistyped", {"n": 0})
    assert not store_dir.exists()
    checkpoint("run", {"n": 1})
    assert work("run", {"n": 0}) == {"n": 1}


def test_store_of_the_decorator() -> None:
    """All that the function's run writes goes there; nothing here."""
    store = MemoryStore()

    @resumable(store=store)
    def work(run_id: str, state: Any) -> Any:
        current_run().checkpoint({"n": 1})
        return "done"

    assert work("run", {}) == "done"
    assert [info.status for info in list_runs(store=store)] == ["finished"]
    assert list_runs() == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_interrupted_job_is_stopped(error: type[BaseException]) -> None:
    """^C is no failure; no waypoint claims what was not done, and the next call goes on."""

    @resumable
    def work(run_id: str, state: dict[str, Any]) -> str:
        while state["n"] < 3:
            state["n"] += 1
            if state["n"] == 2 and not worked:
                worked.append(2)
                raise error
            checkpoint(run_id, state)
        return "done"

    with pytest.raises(error):
        work("run", {"n": 0})
    assert status() == "stopped"
    assert load("run") == {"n": 1}
    assert len(history("run")) == 1
    forget_everything()
    assert work("run", {"n": 0}) == "done"
    assert [w.state["n"] for w in history("run")] == [1, 2, 3]


def test_failure_before_the_first_waypoint() -> None:
    """A job that fails at once is in the list as failed, and begins with the caller's state."""

    @resumable
    def work(run_id: str, state: dict[str, Any]) -> Any:
        if not worked:
            worked.append(1)
            raise Crash
        return state

    with pytest.raises(Crash):
        work("run", {"n": 0})
    assert status() == "failed"
    latest = Path(".caravanserai/run/latest.md").read_text()
    assert latest.startswith("# No waypoint yet\n\nSince then: the run failed at ")
    assert "Crash" in latest
    assert work("run", {"n": 7}) == {"n": 7}


def test_arguments_that_cannot_be_compared_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """No recorded result is ever returned for them: the job is done again, and not in silence."""
    calls: list[int] = []

    @resumable
    def work(run_id: str, state: dict[str, Any], client: object) -> int:
        calls.append(1)
        return 5

    with caplog.at_level(logging.WARNING, logger="caravanserai"):
        assert [work("run", {}, object()) for _ in range(2)] == [5, 5]
    assert len(calls) == 2
    assert "run run is finished, and its arguments cannot be compared" in caplog.text


def test_result_that_cannot_be_kept(caplog: pytest.LogCaptureFixture) -> None:
    """The caller gets it; a warning says that it is not recorded; the next call goes on."""

    @resumable
    def work(run_id: str, state: dict[str, Any]) -> Any:
        worked.append(state["n"])
        checkpoint(run_id, {"n": state["n"] + 1})
        return {"handle": object()}

    caplog.set_level(logging.WARNING, "caravanserai")
    assert "handle" in work("run", {"n": 0})
    assert "$.handle" in caplog.text
    assert "run run is finished" in caplog.text
    assert status() == "finished"
    forget_everything()
    assert "handle" in work("run", {"n": 0})
    assert worked == [0, 1]


def test_state_that_cannot_be_kept_fails_the_job() -> None:
    """The failure names the path, in the list's note too."""

    @resumable
    def work(run_id: str, state: dict[str, Any]) -> None:
        checkpoint(run_id, {"n": 1})
        checkpoint(run_id, {"rows": [{"f": print}]})

    with pytest.raises(UnserialisableState, match=r"\$\.rows\[0\]\.f"):
        work("run", {})
    assert status() == "failed"
    assert "$.rows[0].f" in Path(".caravanserai/run/latest.md").read_text()
    assert load("run") == {"n": 1}


def test_keys_that_are_numbers_are_found_again() -> None:
    """Rounds that are done are not done again because their keys became texts."""

    @resumable
    def rounds(run_id: str, done: dict[int, str], crash_at: int = 0) -> int:
        for n in range(1, 6):
            if n in done:
                continue
            if n == crash_at:
                raise Crash
            worked.append(n)
            done[n] = "done"
            checkpoint(run_id, done)
        return len(done)

    with pytest.raises(Crash):
        rounds("run", {}, crash_at=4)
    forget_everything()
    assert rounds("run", {}) == 5
    assert worked == [1, 2, 3, 4, 5]


def test_arguments_that_cannot_be_compared() -> None:
    """With a client as argument the job runs and resumes; its result is not given to anybody."""

    @resumable
    def work(run_id: str, state: dict[str, Any], client: Any) -> str:
        worked.append(state["n"])
        checkpoint(run_id, {"n": state["n"] + 1})
        return "done"

    assert work("run", {"n": 0}, object()) == "done"
    assert work("run", {"n": 0}, object()) == "done"
    assert worked == [0, 1]


def test_keywords_and_positions() -> None:
    """All of a call's arguments may be keywords; the order of keywords does not matter."""
    assert steps(run_id="run", state={"step": 0}, until=2, crash_at=0) == ("result", 2)
    assert steps(run_id="run", crash_at=0, until=2, state={"step": 0}) == ("result", 2)
    assert worked == [1, 2]
    assert load("run") == {"step": 2}


def test_run_is_open_inside() -> None:
    """`remark` and `current_run` work inside the function and in what it calls."""

    @resumable
    def work(run_id: str, state: Any) -> None:
        remark("because")
        assert current_run().run_id == run_id
        checkpoint(run_id, {}, "text")

    work("run", {})
    assert get_waypoint("run").note.decided == ("because",)


def test_wrapped_function_keeps_its_face() -> None:
    """Name, documentation and signature are those of the function."""
    assert steps.__name__ == "steps"
    assert "Five steps" in str(steps.__doc__)
    assert list(inspect.signature(steps).parameters) == ["run_id", "state", "until", "crash_at"]
    assert inspect.iscoroutinefunction(async_steps)


def test_changed_comment_does_not_matter(tmp_path: Path) -> None:
    """A program whose text was edited without changing the job is given its result."""
    program = """
import caravanserai
@caravanserai.resumable
def job(run_id, state):
    # COMMENT
    print("worked")
    caravanserai.checkpoint(run_id, {"n": 1})
    return 1
print(job("run", {}))
"""
    assert process(program) == "worked\n1\n"
    assert process(program.replace("COMMENT", "another\n    # comment")) == "1\n"


def test_the_same_arguments_are_the_same_call_however_they_are_written() -> None:
    """Positional, by keyword or left to the default: one call, one recorded result."""
    calls = []

    @resumable
    def job(run_id: str, state: int, limit: int = 5) -> int:
        calls.append(limit)
        checkpoint(run_id, state)
        return limit

    assert [job("run", 0, 5), job("run", 0, limit=5), job("run", 0)] == [5, 5, 5]
    assert calls == [5]
    assert job("run", 0, 6) == 6
    assert calls == [5, 6]


def test_an_error_inside_open_run_marks_it_failed() -> None:
    """An exception that leaves the block is recorded; ^C is not."""

    def work(error: BaseException) -> None:
        with open_run("run") as run:
            run.checkpoint(1)
            raise error

    with pytest.raises(ValueError, match="boom"):
        work(ValueError("boom"))
    assert [info.status for info in list_runs()] == ["failed"]
    with pytest.raises(KeyboardInterrupt):
        work(KeyboardInterrupt())
    assert [info.status for info in list_runs()] == ["stopped"]


def test_a_start_after_a_crash_says_where_it_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """The log names the run, the waypoint and the folder."""
    checkpoint("run", {"n": 1})
    with caplog.at_level(logging.INFO, logger="caravanserai"):
        open_run("run")
    assert "run run goes on from waypoint 1 in" in caplog.text
