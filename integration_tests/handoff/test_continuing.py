"""A run that goes on from another one: what it is handed, and what it does not do again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from caravanserai import (
    EffectStopped,
    InputChanged,
    RunBusy,
    RunNotFound,
    UsageError,
    WaitingForPerson,
    WaypointNotFound,
    again,
    answer,
    clean,
    current_run,
    fork,
    handoff,
    idempotency_key,
    once,
    open_run,
    prune,
    resumable,
)
from caravanserai_core.continuing import ENTRY, Inherited, begin
from caravanserai_core.copying import copy_runs
from caravanserai_core.doing import Inside
from caravanserai_core.handed import Handoff
from caravanserai_core.journal import Journal, journal_for
from caravanserai_core.listing import runs
from caravanserai_core.stepping import Step, same
from caravanserai_core.stores import open_store
from caravanserai_core.transcript import Message, ToolCall, Transcript
from integration_tests.support import ROOT


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store with a run that did two steps and was not sure of a third."""
    with open_run("first", store=tmp_path, goal="Charge all.") as run:
        run.once("charge", charge, 1, key=1)
        run.checkpoint({"messages": [{"role": "user", "content": "Charge all."}]}, "Charged 1.")
        run.once("charge", charge, 2, key=2)
    return tmp_path


done: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()


def charge(account: int) -> str:
    """Charge an account."""
    done.append(account)
    return f"charged {account}"


def note_of(store: Path, run_id: str, name: str) -> str:
    """Return a note."""
    return Path(open_store(store).where(run_id), name).read_text(encoding="utf-8")


def test_a_new_run_has_what_it_was_handed_and_repeats_no_step(store: Path) -> None:
    with open_run("second", store=store, continues="first") as run:
        assert run.state is None
        assert run.handoff == handoff("first", store=store)
        assert [run.once("charge", charge, n, key=n) for n in (1, 2, 3)] == [
            "charged 1",
            "charged 2",
            "charged 3",
        ]
        run.checkpoint({"n": 3}, "Charged 3.")

    assert done == [1, 2, 3]
    note = note_of(store, "second", "waypoint-1.md")
    assert "This run goes on from run `first` at waypoint 1: Charged 1." in note
    assert "Charge all." in note
    info = next(info for info in runs(open_store(store)) if info.run_id == "second")
    assert info.origin == {"run_id": "first", "waypoint": 1, "how": "handoff", "adapter": "python"}
    with open_run("second", store=store) as run:
        assert run.handoff is not None
        assert run.handoff.source == "first@1"


def test_at_an_earlier_waypoint_only_what_was_done_until_then_counts(store: Path) -> None:
    with open_run("first", store=store) as run:
        run.checkpoint({"n": 2}, "Charged 2.")
        run.once("charge", charge, 3, key=3)
    with open_run("second", store=store, continues="first@1") as run:
        assert run.handoff is not None
        assert run.handoff.waypoint == 1
        run.once("charge", charge, 1, key=1)
        run.once("charge", charge, 2, key=2)

    assert done == [1, 2, 3, 2]


def test_a_run_goes_on_from_what_it_was_handed_then(store: Path) -> None:
    with open_run("second", store=store, continues="first") as run:
        before = run.handoff
    with open_run("first", store=store) as run:
        run.checkpoint({"n": 9}, "Later.")
        run.finish()
    with open_run("second", store=store, continues="first@1") as run:
        assert run.handoff == before
    clean("first", store=store)
    with open_run("second", store=store) as run:
        assert run.handoff == before
        assert run.once("charge", charge, 1, key=1) == "charged 1"
    assert done == [1, 2]


def test_the_same_line_has_to_name_the_same_run(store: Path) -> None:
    with open_run("second", store=store, continues="first@1"):
        pass
    with open_run("second", store=store, continues="first"):
        pass  # as it was then
    with pytest.raises(InputChanged, match="was begun from first@1 and is now to go on from other"):
        open_run("second", store=store, continues="other")
    with pytest.raises(InputChanged, match="first@2"):
        open_run("second", store=store, continues="first@2")
    with pytest.raises(InputChanged, match="run first was begun on its own"):
        open_run("first", store=store, continues="second")


def test_what_there_is_none_of_is_refused_and_begins_nothing(store: Path) -> None:
    with pytest.raises(RunNotFound):
        open_run("second", store=store, continues="nobody")
    with pytest.raises(WaypointNotFound):
        open_run("second", store=store, continues="first@7")
    with pytest.raises(UsageError, match="would go on from itself"):
        open_run("second", store=store, continues="second")
    wrong: Any = 7
    with pytest.raises(UsageError, match="continues= takes the run to go on from"):
        open_run("second", store=store, continues=wrong)
    assert [info.run_id for info in runs(open_store(store))] == ["first"]


def test_a_name_that_holds_an_at_sign_is_that_of_the_run(tmp_path: Path) -> None:
    with open_run("a@1", store=tmp_path) as run:
        run.checkpoint({}, "The one with the sign.")
    with open_run("a", store=tmp_path) as run:
        run.checkpoint({}, "The other one.")
    with open_run("next", store=tmp_path, continues="a@1") as run:
        assert run.handoff is not None
        assert run.handoff.run_id == "a@1"


def test_a_run_that_a_living_process_works_on_is_not_taken_from_it(store: Path) -> None:
    code = """
        import sys
        from caravanserai import open_run
        with open_run("first", store=sys.argv[1]):
            print("here", flush=True)
            sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(store)]
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, **pipes) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "here\n"
        with pytest.raises(RunBusy):
            open_run("second", store=store, continues="first")
        assert handoff("first", store=store).status == "running"
        other.kill()
    with open_run("second", store=store, continues="first") as run:
        assert run.handoff is not None


# ---------------------------------------------------------------------- steps that are not certain


CRASH = """
    import os, sys
    from caravanserai import open_run

    def charge(account):
        open(sys.argv[2], "a").write(f"{account}\\n")
        os.kill(os.getpid(), 9)

    with open_run("first", store=sys.argv[1]) as run:
        run.checkpoint({}, "Begins.")
        run.once("charge", charge, 7, key=7)
"""


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """Return a store with a run that was killed inside of a step."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    command = [sys.executable, "-c", textwrap.dedent(CRASH), str(tmp_path), str(tmp_path / "log")]
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False)
    assert ended.returncode == -signal.SIGKILL
    return tmp_path


def test_a_step_that_may_have_happened_is_asked_about_in_the_new_run(crashed: Path) -> None:
    found = handoff("first", store=crashed)
    assert "never reported back" in found.unsure[0]
    token = ""

    def again(account: int) -> str:
        nonlocal token
        token = idempotency_key()
        return charge(account)

    again.__name__ = "charge"
    with (
        open_run("second", store=crashed, continues="first") as run,
        pytest.raises(WaitingForPerson),
    ):
        run.once("charge", again, 7, key=7)
    assert "## Not certain" in note_of(crashed, "second", "latest.md")
    answer("second", "rerun", store=crashed)
    with open_run("second", store=crashed, continues="first") as run:
        assert run.once("charge", again, 7, key=7) == "charged 7"
        run.checkpoint({}, "Done.")

    assert done == [7]
    assert token.startswith("first/")  # who keeps it knows that it is the same charge
    assert "may have happened twice" in note_of(crashed, "second", "waypoint-1.md")


def test_it_is_taken_to_have_happened_or_ends_the_run(crashed: Path) -> None:
    for name, said in (("yes", "happened"), ("no", "stop")):
        with (
            open_run(name, store=crashed, continues="first") as run,
            pytest.raises(WaitingForPerson),
        ):
            run.once("charge", charge, 7, key=7)
        given = {"result": "charged 7"} if said == "happened" else {}
        answer(name, said, store=crashed, **given)
    with open_run("yes", store=crashed) as run:
        assert run.once("charge", charge, 7, key=7) == "charged 7"
    with pytest.raises(EffectStopped), open_run("no", store=crashed) as run:
        run.once("charge", charge, 7, key=7)
    assert done == []


# ---------------------------------------------------------------------- calls of tools


PAY = ToolCall("c1", "mcp__pay__pay", {"to": "b", "eur": 5})


def with_calls(store: Path, **more: Any) -> Handoff:
    """Return a handoff with a call that may have happened, and results of others."""
    with open_run("first", store=store) as run:
        calls = [
            {"id": "c0", "function": {"name": "look", "arguments": '{"key": "a"}'}},
            {"id": "c1", "function": {"name": PAY.name, "arguments": '{"eur": 5, "to": "b"}'}},
        ]
        said = {"role": "assistant", "content": "", "tool_calls": calls}
        result = {"role": "tool", "tool_call_id": "c0", "content": "found a"}
        run.checkpoint({"messages": [said, result]}, "Looked.")
    return handoff("first", store=store)


def pay_in(
    journal: Journal, inherited: Inherited, number: int, policy: Any, later: bool = False
) -> Any:
    """Call the tool as an adapter does, in the place of `number`."""
    step = Step(("pay", f"own-{number}"), "", "to", f"second/{number}")
    given = {"to": "b", "eur": 5}
    if later:
        return asyncio.run(inherited.aonce(journal, step, given, lambda: _paid(number), policy))
    return inherited.once(journal, step, given, lambda: charge(number), policy)


async def _paid(number: int) -> str:
    return charge(number)


@pytest.mark.parametrize("later", [False, True])
def test_an_equal_call_takes_the_place_of_one_that_may_have_happened(
    tmp_path: Path, later: bool
) -> None:
    handed = with_calls(tmp_path)
    assert [call.id for call in handed.uncertain] == ["c1"]
    journal = journal_for(open_store(tmp_path), "second")
    inherited = Inherited(begin(journal, "first"))

    with pytest.raises(WaitingForPerson):
        pay_in(journal, inherited, 1, "ask", later)
    answer("second", "happened", result="paid", store=tmp_path)

    assert pay_in(journal, inherited, 1, "ask", later) == "paid"
    assert pay_in(journal, inherited, 1, "ask", later) == "paid"
    assert pay_in(journal, inherited, 2, "ask", later) == "charged 2"  # it is another one
    assert done == [2]


def test_an_equal_call_runs_again_where_that_is_the_policy(tmp_path: Path) -> None:
    with_calls(tmp_path)
    journal = journal_for(open_store(tmp_path), "second")
    inherited = Inherited(begin(journal, "first"))

    assert pay_in(journal, inherited, 1, "rerun") == "charged 1"
    assert pay_in(journal, inherited, 1, "rerun") == "charged 1"

    assert done == [1]
    with open_run("second", store=tmp_path) as run:
        run.checkpoint({}, "Paid.")
    assert "may have happened twice" in note_of(tmp_path, "second", "waypoint-1.md")


def test_recorded_results_are_given_again_by_name(tmp_path: Path) -> None:
    with_calls(tmp_path)
    journal = journal_for(open_store(tmp_path), "second")
    inherited = Inherited(begin(journal, "first"), ["look"])

    def look(given: dict[str, Any], number: int) -> Any:
        step = Step(("look", f"own-{number}"), "", "", f"second/{number}")
        return inherited.once(journal, step, given, lambda: charge(number), "rerun")

    assert look({"key": "a"}, 1) == "found a"
    assert look({"key": "a"}, 2) == "found a"
    assert look({"key": "b"}, 3) == "charged 3"
    assert done == [3]
    with pytest.raises(UsageError, match="replay= goes with continues="):
        Inherited(None, ["look"])
    with pytest.raises(UsageError, match="replay= is a list of names"):
        Inherited(handoff("first", store=tmp_path), "look")
    note = note_of(tmp_path, "second", "latest.md")
    assert "was not run: its result is the one that run `first` recorded" in note


def test_a_failed_result_is_not_given_again_and_a_long_one_is_given_whole() -> None:
    long = "x" * 50_000
    calls = (ToolCall("a", "look", {}), ToolCall("b", "look", {"at": 1}))
    fields = handed_fields()
    fields["transcript"] = Transcript(
        (
            Message("assistant", "", calls),
            Message("tool", "no such thing", (), "a", "look", failed=True),
            Message("tool", long, (), "b", "look"),
        )
    )

    inherited = Inherited(Handoff(**fields), ["look"])

    assert inherited.recorded("look", {}) is None
    assert inherited.recorded("look", {"at": 1}) == long


def handed_fields() -> dict[str, Any]:
    """Return the fields of a handoff with nothing in it."""
    empty: tuple[Any, ...] = ()
    names = ("done", "plan", "since", "next", "open_questions", "unsure", "decided", "results")
    return {
        "run_id": "first",
        "waypoint": 1,
        "adapter": "python",
        "framework": None,
        "status": "stopped",
        "goal": None,
        "summary": "",
        **dict.fromkeys(names, empty),
        "files": (),
        "transcript": Transcript((Message("user", "x"),)),
    }


# ---------------------------------------------------------------------- it stays


def test_a_kill_between_the_first_records_changes_nothing(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Journal.add_made
    left = 0

    def add_made(self: Journal, kind: str, *args: Any, **more: Any) -> int:
        nonlocal left
        left -= kind == "effect"
        if kind == "effect" and not left:
            raise KeyboardInterrupt
        return real(self, kind, *args, **more)

    monkeypatch.setattr(Journal, "add_made", add_made)
    for fails_at in (1, 2):
        left, name = fails_at, f"second-{fails_at}"
        with pytest.raises(KeyboardInterrupt):
            open_run(name, store=store, continues="first")
        left = 0
        with open_run(name, store=store, continues="first") as run:
            assert run.once("charge", charge, 1, key=1) == "charged 1"
            assert run.once("charge", charge, 2, key=2) == "charged 2"
    assert done == [1, 2]


def test_pruned_forked_and_copied_it_is_still_handed_the_same(store: Path, tmp_path: Path) -> None:
    with open_run("second", store=store, continues="first") as run:
        handed = run.handoff
        for n in range(6):
            run.checkpoint({"n": n}, f"Step {n}.")
    prune("second", keep=2, store=store)
    fork("second", at=-1, new_run_id="third", store=store)
    other = tmp_path / "other"
    assert not [one.error for one in copy_runs(open_store(store), other, ["second"]) if one.error]

    for where, name in ((store, "second"), (store, "third"), (other, "second")):
        with open_run(name, store=where, continues="first@1") as run:
            assert run.handoff == handed, (where, name)
            assert run.once("charge", charge, 1, key=1) == "charged 1"
    assert done == [1, 2]


def test_a_handoff_may_come_from_another_store(store: Path, tmp_path: Path) -> None:
    handed = handoff("first", store=store)
    other = tmp_path / "other"

    with open_run("second", store=other, continues=handed) as run:
        assert run.handoff == handed
        assert run.once("charge", charge, 1, key=1) == "charged 1"
    with open_run("second", store=other, continues=handed):
        pass
    assert done == [1, 2]


def test_resumable_functions_go_on_from_another_run(store: Path) -> None:
    @resumable(store=store, continues="first")
    def work(run_id: str, state: dict[str, Any] | None = None) -> list[str]:
        run: Any = current_run()
        assert run.handoff.run_id == "first"
        return [once("charge", charge, n, key=n) for n in (1, 2, 3)]

    @resumable(store=store, continues="first")
    async def awork(run_id: str, state: dict[str, Any] | None = None) -> list[str]:
        return [once("charge", charge, n, key=n) for n in (1, 2, 3)]

    wanted = ["charged 1", "charged 2", "charged 3"]
    assert work("second") == wanted
    assert work("second") == wanted
    assert asyncio.run(awork("third")) == wanted
    assert done == [1, 2, 3, 3]


def test_a_fresh_pass_is_handed_the_same(store: Path) -> None:
    @resumable(store=store, continues="first")
    def work(run_id: str, state: dict[str, Any] | None = None) -> list[str]:
        return [once("charge", charge, n, key=n) for n in (1, 2, 3)]

    work("second")
    again(work)("second")

    assert done == [1, 2, 3, 3]  # its own step is done anew; those of the other run are done


def test_two_processes_begin_it_once(store: Path) -> None:
    code = """
        import sys
        from caravanserai import RunBusy, open_run
        try:
            with open_run("second", store=sys.argv[1], continues="first") as run:
                print(run.once("charge", str, 1, key=1), run.handoff.source)
        except RunBusy:
            print("busy")
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(store)]
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    env = {**os.environ, "PYTHONPATH": path}
    started = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    said = [process.communicate(timeout=60)[0].strip() for process in started]
    assert set(said) <= {"charged 1 first@1", "busy"}
    assert "charged 1 first@1" in said
    journal = journal_for(open_store(store), "second")
    journal.look()
    kinds = [r.head.get("name") for r in journal.entries() if r.kind == "entry"]
    assert kinds.count(ENTRY) == 1


def test_a_step_of_a_framework_knows_what_its_run_was_handed(store: Path) -> None:
    """`current_run()` is no `Run` inside of a node or a tool."""
    with open_run("second", store=store, continues="first") as run:
        inside = Inside(journal_for(open_store(store), "second"))
        assert inside.handoff == run.handoff is not None
    assert Inside(journal_for(open_store(store), "first")).handoff is None


# ---------------------------------------------------------------------- over several handoffs


class Killed(BaseException):
    """A process dies: nothing is recorded of it."""


def dies(*_: Any) -> Any:
    raise Killed


def open_steps(store: Path, run_id: str) -> list[dict[str, Any]]:
    """Return what a run that goes on from this one would take over as begun."""
    steps = handoff(run_id, store=store).steps
    return [step["head"] for step in steps if step["head"]["what"] == "started"]


def in_run(store: Path, run_id: str, continues: str) -> tuple[Journal, Inherited]:
    """Begin a run as an adapter does."""
    journal = journal_for(open_store(store), run_id)
    return journal, Inherited(begin(journal, continues))


def call_in(journal: Journal, inherited: Inherited, call: Any, policy: Any = "rerun") -> Any:
    """Make the call that may have happened."""
    step = Step(("pay", "own"), "", "to", f"{journal.run_id}/1")
    return inherited.once(journal, step, {"to": "b", "eur": 5}, call, policy)


def test_a_call_keeps_its_key_over_any_number_of_handoffs(tmp_path: Path) -> None:
    with_calls(tmp_path)
    token = open_steps(tmp_path, "first")[0]["token"]
    before = "first"
    for name in ("second", "third", "fourth"):
        journal, inherited = in_run(tmp_path, name, before)
        with pytest.raises(Killed):
            call_in(journal, inherited, dies)
        before = name

    for name in ("second", "third", "fourth"):
        assert [step["token"] for step in open_steps(tmp_path, name)] == [token]
    seen: list[str] = []
    journal, inherited = in_run(tmp_path, "fifth", "fourth")
    assert call_in(journal, inherited, lambda: seen.append(idempotency_key()) or "paid") == "paid"
    assert seen == [token]
    assert not open_steps(tmp_path, "fifth")
    assert "it may have happened twice" in handoff("fifth", store=tmp_path).text


def test_what_ended_is_known_as_ended_wherever_a_kill_came(tmp_path: Path) -> None:
    """Between the record of the call that came along and that of the call that did it."""
    with_calls(tmp_path)
    journal, inherited = in_run(tmp_path, "second", "first")
    real = Journal.add
    added: list[str] = []

    def add(self: Journal, kind: str, fields: dict[str, Any], *args: Any, **more: Any) -> int:
        if fields.get("what") == "result":
            added.append(kind)
            if len(added) == 2:
                raise Killed
        return real(self, kind, fields, *args, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "add", add)
        with pytest.raises(Killed):
            call_in(journal, inherited, lambda: charge(5))

    found = handoff("second", store=tmp_path)
    assert not open_steps(tmp_path, "second")
    assert not found.uncertain
    assert done == [5]


def test_what_a_person_said_counts_in_the_next_run(crashed: Path) -> None:
    with open_run("first", store=crashed) as run, pytest.raises(WaitingForPerson):
        run.once("charge", charge, 7, key=7)
    answer("first", "happened", result="charged at 9:14", store=crashed)

    with open_run("second", store=crashed, continues="first") as run:
        assert run.once("charge", charge, 7, key=7, on_uncertain="rerun") == "charged at 9:14"

    assert done == []


def test_a_step_and_a_tool_of_one_name_are_one_call(crashed: Path) -> None:
    """In both directions: a tool does what a step of the program may have done."""
    journal, inherited = in_run(crashed, "second", "first")
    step = Step(("charge", "own"), "", "account=7", "second/1")
    with pytest.raises(WaitingForPerson):
        inherited.once(journal, step, {"account": 7}, lambda: charge(7), "ask")
    answer("second", "happened", result="charged 7", store=crashed)
    assert inherited.once(journal, step, {"account": 7}, lambda: charge(7), "ask") == "charged 7"

    with_calls(crashed.joinpath("other"))
    with (
        open_run("third", store=crashed / "other", continues="first") as run,
        pytest.raises(WaitingForPerson),
    ):
        run.once("pay", lambda *_: charge(5), 5, "b", key="mine")
    assert done == []


def test_the_name_is_read_as_it_was(tmp_path: Path) -> None:
    """Whatever runs there are by then, and whatever became of the other one."""
    with open_run("team@3", store=tmp_path) as run:
        run.checkpoint({}, "Its name has a sign.")
    with open_run("one", store=tmp_path, continues="team@3"):
        pass
    with open_run("job", store=tmp_path) as run:
        run.checkpoint({}, "First.")
    with open_run("two", store=tmp_path, continues="job@1"):
        pass
    clean("team@3", store=tmp_path)
    with open_run("job@1", store=tmp_path) as run:
        run.checkpoint({}, "Another one.")

    for name, other in (("one", "team@3"), ("two", "job@1"), ("two", "job"), ("two", "job@-1")):
        with open_run(name, store=tmp_path, continues=other):
            pass
    journal = next(Path(open_store(tmp_path).where("job")).glob("*.jsonl"))
    journal.write_bytes(b"garbage\n" * 9)
    with open_run("two", store=tmp_path, continues="job@1") as run:
        assert run.handoff is not None


def test_a_goal_of_the_programs_own_stays(store: Path) -> None:
    with open_run("second", store=store, goal="Write it down.", continues="first") as run:
        run.checkpoint({}, "Begun.")
    assert handoff("second", store=store).goal == "Write it down."


def test_equal_calls_are_equal_to_the_type() -> None:
    values = [1, True, 1.0, "1", None, float("nan"), float("inf"), [1], {"a": 1}, 2**70]
    digests = [same({"x": value}) for value in values]
    assert len(set(digests)) == len(values)
    assert same({"a": {"y": 1, "x": 2**70}, "b": 1}) == same({"b": 1, "a": {"x": 2**70, "y": 1}})


def test_a_call_that_came_along_is_asked_about_and_told_once(tmp_path: Path) -> None:
    """It is one call, though the run has a step of its own for it, too."""
    with_calls(tmp_path)
    journal, inherited = in_run(tmp_path, "second", "first")
    with pytest.raises(WaitingForPerson):
        call_in(journal, inherited, dies, "ask")
    answer("second", "rerun", store=tmp_path)
    with pytest.raises(Killed):
        call_in(journal, inherited, dies, "ask")
    note = note_of(tmp_path, "second", "latest.md")
    assert note.count("no result yet") == 1
    found = handoff("second", store=tmp_path)
    assert sum("never reported back. It may have happened or not" in s for s in found.unsure) == 1

    with pytest.raises(WaitingForPerson):
        call_in(journal, inherited, lambda: charge(5), "ask")
    answer("second", "rerun", store=tmp_path)
    assert call_in(journal, inherited, lambda: charge(5), "ask") == "charged 5"

    assert list(journal.ledger.questions) == ["q1", "q2"]
    with open_run("second", store=tmp_path) as run:
        run.checkpoint({}, "Paid.")
    told = note_of(tmp_path, "second", "waypoint-1.md")
    assert told.count("was run again: attempt 1") == 1
    assert done == [5]
