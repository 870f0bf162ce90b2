"""`once`: what is returned, what is run again, and what is asked about."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from caravanserai import (
    EffectStopped,
    EffectUncertain,
    NoRun,
    OnceKeyReused,
    StaleWriter,
    UnserialisableState,
    UsageError,
    WaitingForPerson,
    again,
    answer,
    aonce,
    ask,
    checkpoint,
    clean,
    fork,
    idempotency_key,
    list_runs,
    once,
    open_run,
    prune,
    remark,
    resumable,
)
from caravanserai_core import effects, survey
from caravanserai_core.calls import briefly
from caravanserai_core.cli import app
from caravanserai_core.verify import verify
from integration_tests.api.helpers import forget_everything


class World:
    """Counts what happened, by argument."""

    def __init__(self) -> None:
        self.acts: Counter[Any] = Counter()
        self.tokens: list[str] = []

    def act(self, what: Any = "it") -> tuple[str, Any]:
        self.acts[what] += 1
        self.tokens.append(idempotency_key())
        return ("did", what)

    async def aact(self, what: Any = "it") -> tuple[str, Any]:
        await asyncio.sleep(0)
        return self.act(what)


class Killed(BaseException):
    """Ends a step as the end of its process does: nothing is recorded."""


def killed() -> None:
    raise Killed


def leave_uncertain(label: str = "send") -> None:
    """Let a step begin in a process that dies in it."""
    with pytest.raises(Killed), open_run("run") as run:
        run.once(label, killed, key=1)
    forget_everything()


def events() -> list[str]:
    """What the journal says of steps, in order."""
    run = open_run("run")
    records = survey.records(run.store, "run", bodies=False)
    return [f"{r.head['what']} {r.head.get('attempt', '')}" for r in records if r.kind == "effect"]


def latest() -> str:
    return Path(".caravanserai/run/latest.md").read_text()


def test_a_step_runs_once_and_its_exact_result_comes_back() -> None:
    """In the same process and in a later one, types included."""
    world = World()
    with open_run("run") as run:
        assert run.once("send", world.act, dt.date(2026, 1, 1)) == ("did", dt.date(2026, 1, 1))
        assert run.once("send", world.act, dt.date(2026, 1, 1)) == ("did", dt.date(2026, 1, 1))
    forget_everything()
    with open_run("run") as run:
        assert run.once("send", world.act, dt.date(2026, 1, 1)) == ("did", dt.date(2026, 1, 1))
    assert world.acts == {dt.date(2026, 1, 1): 1}


def test_another_function_under_the_label_is_the_same_step() -> None:
    """A renamed function does not send the mail a second time."""
    world = World()
    with open_run("run") as run:
        run.once("send", world.act)
        assert run.once("send", World().act) == ("did", "it")


def test_the_same_label_with_other_arguments_is_refused_and_says_key() -> None:
    """A loop that sends mails must not skip the second one in silence."""
    world = World()
    with open_run("run") as run:
        run.once("send", world.act, "ada")
        with pytest.raises(OnceKeyReused, match="key=") as raised:
            run.once("send", world.act, "bela")
        assert raised.value.exit_code == 2
        assert isinstance(raised.value, UsageError)
        for name in ("ada", "bela"):
            run.once("send", world.act, name, key=name)
        with pytest.raises(OnceKeyReused):
            run.once("send", world.act, "chen", key="bela")
    assert world.acts == {"ada": 2, "bela": 1}


@pytest.mark.parametrize("fn", [lambda: 1, lambda x=1: x])
def test_a_lambda_needs_a_key(fn: Callable[[], int]) -> None:
    """What it does is not seen from outside."""
    with open_run("run") as run:
        with pytest.raises(UsageError, match="key="):
            run.once("send", fn)
        assert run.once("send", fn, key=1) == 1


def test_arguments_that_cannot_be_kept_need_a_key() -> None:
    """They cannot be compared at the next start."""
    with open_run("run") as run:
        with pytest.raises(UsageError, match="key="):
            run.once("send", World().act, object())
        with pytest.raises(UsageError, match="key="):
            run.once("send", World().act, "x", key=object())
        run.once("send", World.act, World(), key="first")  # type: ignore[call-arg]


def test_outside_of_a_run_there_is_no_step() -> None:
    """`once` needs a run, `idempotency_key` a step."""
    with pytest.raises(NoRun):
        once("send", World().act)
    with open_run("run"), pytest.raises(NoRun):
        idempotency_key()


def test_a_failed_step_is_run_again_and_attempts_are_counted_on() -> None:
    """Two tries failed before the process ended: the next one is the third."""
    tries = []

    def flaky() -> str:
        tries.append(idempotency_key())
        if len(tries) < 3:
            raise TimeoutError("try *later*")
        return "ok"

    for _ in range(2):
        with pytest.raises(TimeoutError), open_run("run") as run:
            run.once("fetch", flaky)
    with pytest.raises(KeyboardInterrupt), open_run("run") as run:
        raise KeyboardInterrupt
    forget_everything()
    with open_run("run") as run:
        assert run.once("fetch", flaky) == "ok"
    assert events() == ["started 1", "error 1", "started 2", "error 2", "started 3", "result 3"]
    assert len(set(tries)) == 1, "one idempotency key for all attempts"


class Mute(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text either")


def mute() -> None:
    raise Mute


def test_an_error_without_a_text_is_recorded_and_raised_as_it_is() -> None:
    """What the program's own exception does when it is printed changes nothing."""
    with pytest.raises(Mute), open_run("run") as run:
        run.once("send", mute)
    latest = Path(".caravanserai/run/latest.md").read_text()
    assert "`send` failed" in latest
    assert "no result yet" not in latest
    assert list_runs()[0].status == "failed"


def test_an_async_function_needs_aonce() -> None:
    """It is refused, and the step is not uncertain: nothing of it ran."""
    world = World()
    with open_run("run") as run:
        for _ in range(2):
            with pytest.raises(UsageError, match=r"await aonce"):
                run.once("send", world.aact, key=1)
        assert asyncio.run(run.aonce("send", world.aact, key=1)) == ("did", "it")
    assert world.acts["it"] == 1


def test_who_has_to_decide_is_told_which_of_many_steps_it_was() -> None:
    """By its key: in the question, in the notes, on the way there, and in what is raised."""
    for to in ("ada@example.com", ("bela", 2)):
        with pytest.raises(Killed), open_run("run") as run:
            run.once("send mail", killed, key=to)
        forget_everything()
    latest = Path(".caravanserai/run/latest.md")
    assert '- `send mail("ada@example.com")` began' in latest.read_text()
    with open_run("run") as run:
        for to in ("ada@example.com", ("bela", 2)):
            with pytest.raises(WaitingForPerson) as raised:
                run.once("send mail", killed, key=to)
        with pytest.raises(EffectUncertain, match=r"'send mail\(\"ada@example\.com\"\)' began"):
            run.once("send mail", killed, key="ada@example.com", on_uncertain="stop")
    assert '`send mail("ada@example.com") began ' in str(raised.value)
    decide = latest.read_text().split("## To decide (q1)")[1].split("##")[0]
    assert 'send mail("ada@example.com") began ' in decide
    assert "UTC and never reported back. Did it happen?" in decide
    assert "bela" in latest.read_text().split("## To decide (q2)")[1]
    forget_everything()
    answer("run", "rerun", question="q1")
    assert "ada@example.com" not in latest.read_text().split("## To decide")[1]


def test_an_uncertain_step_asks_and_waits() -> None:
    """It began and never reported back: nobody runs it again unasked."""
    leave_uncertain()
    world = World()
    for _ in range(2):
        with pytest.raises(WaitingForPerson) as raised, open_run("run") as run:
            run.once("send", world.act, key=1)
        assert raised.value.questions == ("q1",)
        forget_everything()
    assert list_runs()[0].status == "waiting"
    assert not world.acts
    assert "## Not certain" in latest()
    assert "## To decide (q1)" in latest()


def test_rerun_runs_it_again_with_the_same_idempotency_key() -> None:
    """And the next note says that it may have happened twice."""
    leave_uncertain()
    records = survey.records(open_run("run").store, "run", bodies=False)
    first = next(record for record in records if record.kind == "effect")
    world = World()
    with pytest.raises(WaitingForPerson), open_run("run") as run:
        run.once("send", world.act, key=1)
    answer("run", "rerun")
    with open_run("run") as run:
        run.once("send", world.act, key=1)
        run.checkpoint({}, "sent")
    assert world.tokens == [first.head["token"]]
    assert "`send(1)` was run again: attempt 1 began 2" in latest()
    assert events() == ["started 1", "started 2", "result 2"]


def test_happened_gives_the_result_that_a_person_knows() -> None:
    """The step is not run; its result is the given one, for good."""
    leave_uncertain()
    world = World()
    with pytest.raises(WaitingForPerson), open_run("run") as run:
        run.once("send", world.act, key=1)
    answer("run", "happened", result={"id": (1, 2)})
    for _ in range(2):
        with open_run("run") as run:
            assert run.once("send", world.act, key=1) == {"id": (1, 2)}
            run.checkpoint({}, "sent")
        forget_everything()
    assert not world.acts


def test_stop_ends_the_run_and_stays_an_answer() -> None:
    """Each later start ends there too."""
    leave_uncertain()
    with pytest.raises(WaitingForPerson), open_run("run") as run:
        run.once("send", World().act, key=1)
    answer("run", "stop")
    for _ in range(2):
        with pytest.raises(EffectStopped), open_run("run") as run:
            run.once("send", World().act, key=1)
        forget_everything()
    assert list_runs()[0].status == "failed"


def test_a_second_crash_asks_a_second_time() -> None:
    """The answer about the first attempt says nothing about the second."""
    leave_uncertain()
    with pytest.raises(WaitingForPerson), open_run("run") as run:
        run.once("send", killed, key=1)
    answer("run", "rerun")
    with pytest.raises(Killed), open_run("run") as run:
        run.once("send", killed, key=1)
    forget_everything()
    with pytest.raises(WaitingForPerson) as raised, open_run("run") as run:
        run.once("send", killed, key=1)
    assert raised.value.questions == ("q2",)


def test_the_policies_rerun_and_stop() -> None:
    """Run again and say so, or raise and say so."""
    leave_uncertain()
    world = World()
    with pytest.raises(EffectUncertain), open_run("run") as run:
        run.once("send", world.act, key=1, on_uncertain="stop")
    assert "## Not certain" in latest()
    with open_run("run") as run:
        run.once("send", world.act, key=1, on_uncertain="rerun")
    assert world.acts["it"] == 1
    assert events() == ["started 1", "uncertain 1", "started 2", "result 2"]
    with pytest.raises(UsageError), open_run("run") as run:
        run.once("send", world.act, key=1, on_uncertain="maybe")  # type: ignore[arg-type]


def test_a_result_that_cannot_be_kept_is_not_run_again_in_silence() -> None:
    """The step did happen: at the next start a person is asked."""
    count = []

    def make() -> object:
        count.append(1)
        return {"a": object()}

    with pytest.raises(UnserialisableState, match=r"\$\.a"), open_run("run") as run:
        run.once("make", make)
    forget_everything()
    with pytest.raises(WaitingForPerson), open_run("run") as run:
        run.once("make", make)
    assert len(count) == 1
    assert "could not be kept" in latest()


def test_a_step_may_write_of_its_run() -> None:
    """Remarks, waypoints and other steps inside of it."""

    def outer() -> str:
        remark("the why")
        checkpoint("run", {"in": 1}, "inside")
        return once("inner", str, 5)

    with open_run("run") as run:
        assert run.once("outer", outer) == "5"
        assert "`outer` began" in Path(".caravanserai/run/waypoint-1.md").read_text()
        with pytest.raises(UsageError, match="itself"):
            run.once("loop", lambda: run.once("loop", str, key=1), key=1)
        run.checkpoint({}, "done")
    assert "Not certain" not in latest()


def test_a_question_inside_of_a_step_pauses_it() -> None:
    """Once it is answered the step is run again, and nothing is uncertain."""

    def step(run: Any) -> str:
        return f"said {run.ask('Go?')}"

    with pytest.raises(WaitingForPerson) as raised, open_run("run") as run:
        run.once("step", step, run, key=1)
    assert raised.value.questions == ("q1",)
    answer("run", "yes")
    forget_everything()
    with open_run("run") as run:
        assert run.once("step", step, run, key=1) == "said yes"


def test_threads_wait_for_the_one_that_runs_it() -> None:
    """All get its result; it happened once."""
    world, gate = World(), threading.Event()

    def slow() -> Any:
        gate.wait(20)
        return world.act()

    with open_run("run") as run:
        results: list[Any] = []
        threads = [
            threading.Thread(
                target=copy_context().run, args=(lambda: results.append(run.once("slow", slow)),)
            )
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        gate.set()
        for thread in threads:
            thread.join(20)
    assert results == [("did", "it")] * 6
    assert world.acts["it"] == 1


def test_long_waiting_for_a_step_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be a step that starts a thread, which asks for the same step, and waits for that."""
    monkeypatch.setattr(effects, "_PATIENCE", 0.05)
    with ThreadPoolExecutor(1) as pool, open_run("run") as run:
        inner: list[Any] = []

        def step() -> None:
            inner.append(pool.submit(copy_context().run, run.once, "send", step))
            with pytest.raises(TimeoutError):
                inner[0].result(0.5)
            raise TimeoutError("its own")

        with pytest.raises(TimeoutError, match="its own"):
            run.once("send", step)
        assert str(inner[0].exception(5)) == "its own"
    assert "run run: once('send') has waited for 0.05 s for another thread" in caplog.text


def test_an_owner_that_lost_its_run_in_a_step_learns_that_the_step_ran() -> None:
    """What is raised says that nothing was recorded of it."""

    def step() -> None:
        take = (
            "from caravanserai import open_run\n"
            "with open_run('run', takeover=True) as run: run.checkpoint({})"
        )
        subprocess.run([sys.executable, "-c", take], check=True)

    with open_run("run") as run, pytest.raises(StaleWriter) as raised:
        run.once("send", step, key=1)
    assert "the step 'send(1)' ran to its end" in "".join(raised.value.__notes__)
    with open_run("run") as run, pytest.raises(WaitingForPerson):
        run.once("send", step, key=1)


def test_tasks_wait_without_blocking_the_loop() -> None:
    """All get its result or its error; the loop goes on meanwhile."""
    world = World()

    async def main() -> None:
        async with open_run("run") as run:
            gate = asyncio.Event()

            async def slow() -> Any:
                await gate.wait()
                return world.act()

            tasks = [asyncio.create_task(run.aonce("slow", slow)) for _ in range(6)]
            await asyncio.sleep(0.02)
            gate.set()  # a blocked loop would never get here
            assert await asyncio.gather(*tasks) == [("did", "it")] * 6
            assert await aonce("quick", str, 5) == "5"

            async def bad() -> None:
                await asyncio.sleep(0.02)
                raise OSError("no")

            done = await asyncio.gather(
                *(run.aonce("bad", bad) for _ in range(3)), return_exceptions=True
            )
            assert [type(error) for error in done] == [OSError] * 3

    asyncio.run(main())
    assert world.acts["it"] == 1
    assert events().count("started 1") == 3


def test_many_at_once_in_whatever_order_they_end() -> None:
    """Results are matched by key, not by position."""

    async def main() -> list[int]:
        async with open_run("run") as run:

            async def work(n: int) -> int:
                await asyncio.sleep((7 * n % 10) / 1000)
                return n

            return await asyncio.gather(*(run.aonce("n", work, n, key=n) for n in range(30)))

    assert asyncio.run(main()) == list(range(30))
    forget_everything()
    assert asyncio.run(main()) == list(range(30))
    assert len(events()) == 60


def test_a_cancelled_step_is_uncertain_and_a_cancelled_wait_is_not() -> None:
    """Cancelling inside of a step leaves open whether it happened."""

    async def main() -> None:
        async with open_run("run") as run:
            began = asyncio.Event()

            async def forever() -> None:
                began.set()
                await asyncio.sleep(60)

            task = asyncio.create_task(run.aonce("long", forever))
            await began.wait()
            waiter = asyncio.create_task(run.aonce("long", forever))
            await asyncio.sleep(0.02)
            waiter.cancel()
            task.cancel()
            await asyncio.gather(task, waiter, return_exceptions=True)
            with pytest.raises(WaitingForPerson):
                await run.aonce("long", forever)

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["ask", "rerun", "stop"])
def test_a_step_that_ended_as_its_task_was_cancelled_is_not_run_again(policy: Any) -> None:
    """Whoever asks for it next, in whatever way, gets what it returned."""
    ran: list[int] = []

    def pay(n: int) -> int:
        ran.append(n)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()  # a time limit, in that very moment
        return n

    async def main() -> None:
        async with open_run("run") as run:
            for n in range(20):
                paying = asyncio.create_task(run.aonce("pay", pay, n, key=n, on_uncertain=policy))
                with pytest.raises(asyncio.CancelledError):
                    await paying
                if n % 2:
                    assert run.once("pay", pay, n, key=n, on_uncertain=policy) == n
                else:
                    assert await run.aonce("pay", pay, n, key=n, on_uncertain=policy) == n

    asyncio.run(main())
    assert ran == list(range(20))


def test_a_fresh_pass_runs_all_steps_again() -> None:
    """With other idempotency keys; it holds after a crash in the fresh pass."""
    world = World()

    @resumable
    def work(run_id: str, state: Any, crash: bool = False) -> int:
        for n in range(3):
            once("act", world.act, n, key=n)
            if crash and n == 1:
                raise Killed
        return checkpoint(run_id, {}, "done")

    work("run", {})
    assert work("run", {}) == 1
    assert sum(world.acts.values()) == 3
    with pytest.raises(Killed):
        again(work)("run", {}, crash=True)
    forget_everything()
    work("run", {}, crash=False)
    assert work("run", {}) == 1, "the recorded result of the first pass"
    assert world.acts == {0: 2, 1: 2, 2: 1}
    with open_run("run") as run:
        run.once("act", world.act, 2, key=2)
    assert world.acts == {0: 2, 1: 2, 2: 2}
    assert len(set(world.tokens)) == 6


def test_results_are_carried_into_new_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long run rolls over; no result is lost, and what is carried does not pile up."""
    monkeypatch.setattr("caravanserai_core.stores._file.SEGMENT_SIZE", 20_000)
    world = World()
    text = "x" * 300
    with open_run("run") as run:
        for n in range(400):
            run.once("act", world.act, f"{n} {text}", key=n)
            run.checkpoint({"n": n, "fill": f"{n:03}" * 1000}, f"{n}")
    segments = list(Path(".caravanserai/run").glob("journal-*.jsonl"))
    assert len(segments) > 2
    size = sum(path.stat().st_size for path in segments)
    assert size < 400 * 6_000, "what is carried must not make the journal grow with its square"
    forget_everything()
    with open_run("run") as run:
        for n in range(400):
            assert run.once("act", world.act, f"{n} {text}", key=n) == ("did", f"{n} {text}")
    assert max(world.acts.values()) == 1


def test_open_steps_and_questions_are_carried_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """After many new segments the uncertain step is still asked about."""
    monkeypatch.setattr("caravanserai_core.stores._file.SEGMENT_SIZE", 4_000)
    leave_uncertain()
    with pytest.raises(WaitingForPerson), open_run("run") as run:
        run.ask("Before?")
    answer("run", "long ago")
    with open_run("run") as run:
        assert run.ask("Before?") == "long ago"
        for n in range(60):
            run.checkpoint({"n": n, "fill": str(n) * 400}, lane="side")
    forget_everything()
    assert open_run("run").ask("Before?") == "long ago"
    with pytest.raises(WaitingForPerson) as raised, open_run("run") as run:
        run.once("send", World().act, key=1)
    assert raised.value.questions == ("q2",)
    assert len(list(Path(".caravanserai/run").glob("journal-*.jsonl"))) > 2


def test_a_fork_and_a_pruned_run_keep_their_steps() -> None:
    """What happened before the waypoint does not happen again in the fork, nor after a pruning."""
    world = World()
    with open_run("run") as run:
        run.once("act", world.act, 1, key=1)
        run.checkpoint({"n": 1}, "one")
        run.once("act", world.act, 2, key=2)
        for n in range(2, 6):
            run.checkpoint({"n": n}, str(n))
    fork("run", at=1, new_run_id="other")
    prune("run", keep=1)
    forget_everything()
    for name in ("run", "other"):
        with open_run(name) as run:
            run.once("act", world.act, 1, key=1)
    assert world.acts == {1: 1, 2: 1}
    with open_run("run") as run:
        run.once("act", world.act, 2, key=2)
    assert world.acts == {1: 1, 2: 1}
    with open_run("other") as run:
        run.once("act", world.act, 2, key=2)
    assert world.acts == {1: 1, 2: 2}


def test_a_deleted_run_remembers_nothing() -> None:
    """A new run of that name runs its steps."""
    world = World()
    for _ in range(2):
        with open_run("run") as run:
            run.once("send", world.act)
        clean("run")
    assert world.acts["it"] == 2


def test_a_counter_of_rounds_goes_up_once_per_round() -> None:
    """A loop that asks three times: each round's step happened once, whatever was replayed."""
    world = World()

    @resumable
    def work(run_id: str, state: Any) -> list[str]:
        for number in range(len(state["said"]), 3):
            once("count", world.act, number, key=number)
            said = ask("Go on?", payload={"round": number})
            state = {"said": [*state["said"], said]}
            checkpoint(run_id, state, f"round {number + 1}")
        return state["said"]  # type: ignore[no-any-return]

    for number in range(3):
        with pytest.raises(WaitingForPerson) as raised:
            work("run", {"said": []})
        assert raised.value.questions == (f"q{number + 1}",)
        answer("run", f"yes {number}")
        forget_everything()
    assert work("run", {"said": []}) == ["yes 0", "yes 1", "yes 2"]
    assert world.acts == {0: 1, 1: 1, 2: 1}


def test_which_of_many_is_told_by_its_arguments() -> None:
    """Without a key too: while it runs, in the question, in notes, the log and what is raised."""

    def send(to: str, mail: dict[str, Any], copies: int) -> None:
        raise Killed

    with pytest.raises(Killed), open_run("run") as run:
        run.once("send mail", send, "chen", {"text": ["Dear Chen"], "to": "chen"}, 2)
    call = 'send mail("chen", {"text": […], "to": "chen"}, 2)'
    day = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d")
    begun = re.escape(f"`{call}` began {day} ") + r"\d\d:\d\d:\d\d UTC \(process \d+ on \S+\)"
    assert re.search(begun + ", no result yet", latest())
    forget_everything()
    with pytest.raises(WaitingForPerson) as raised, open_run("run") as run:
        run.once("send mail", send, "chen", {"text": ["Dear Chen"], "to": "chen"}, 2)
    assert f"{call} began {day} " in str(raised.value)
    assert re.search(begun + " and never reported back", latest().partition("## To decide")[0])
    assert f"{call} began {day} " in latest().partition("## To decide")[2]
    assert latest().count("caravanserai answer run q1 happened --result '…'\n") == 1
    for told in (CliRunner().invoke(app, ["log", "run"]), CliRunner().invoke(app, ["show", "run"])):
        assert call in told.output
    assert verify(open_run("run").store, "run").findings == []


def test_a_call_is_told_in_short_and_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """No value of the program's own types has a say in it."""
    secret = "a-token-of-the-program"
    monkeypatch.setenv("PLANTED_API_KEY", secret)

    class Loud:
        def __repr__(self) -> str:
            raise AssertionError

    assert briefly([secret * 9, "x" * 30 + secret], 80).count(secret[:5]) == 0
    assert briefly([Loud(), b"12", dt.date(2026, 1, 2), None, True, 1.5], 80) == (
        "Loud(…), bytes(…), 2026-01-02, None, True, 1.5"
    )
    assert briefly([[1, 2, 3, 4], (), {}, [[1]], 10**100], 80) == ("[1, 2, 3, …], (), {}, [[…]], …")
    assert briefly(["a" * 100], 80) == f'"{"a" * 39}…"'
    assert briefly(["abc", "def"], 10) == '"abc", …'
    assert briefly(['a"b\n', 1], 80) == r'"a\"b\n", 1'


def test_happened_needs_a_result() -> None:
    """What it returned goes on into the program: None is said, not assumed."""
    leave_uncertain()
    with pytest.raises(WaitingForPerson), open_run("run") as run:
        run.once("send", World().act, key=1)
    with pytest.raises(UsageError, match=r"result= \(None for nothing\)"):
        answer("run", "happened")
    told = CliRunner().invoke(app, ["answer", "run", "happened"])
    assert told.exit_code == 2
    assert "--result" in told.output
    told = CliRunner().invoke(app, ["answer", "run", "q1", "happened", "--result", "…"])
    assert told.exit_code == 2, "what a note shows in the place of a result is none"
    told = CliRunner().invoke(app, ["answer", "run", "q1", "happened", "--result", "null"])
    assert told.exit_code == 0
    with open_run("run") as run:
        assert run.once("send", World().act, key=1) is None


def test_a_call_in_the_place_of_a_function_is_refused() -> None:
    """At once, and nothing is recorded."""
    world = World()
    with open_run("run") as run:
        for wrong in (world.aact, partial(world.aact, "x")):
            with pytest.raises(UsageError, match=r"await aonce"):
                run.once("send", wrong)
        with pytest.raises(UsageError, match="what a call of it returned"):
            run.once("send", str(5))  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="not the coroutine"):
            asyncio.run(run.aonce("send", world.aact()))  # type: ignore[call-overload]
        with pytest.raises(UsageError, match="not the coroutine"):
            run.once("send", world.aact())  # type: ignore[arg-type]
    assert not world.acts
    assert not Path(".caravanserai/run/journal-1.jsonl").exists()


def test_after_stop_is_said_what_can_be_done() -> None:
    """In the note and in what is raised: a further start ends there again."""
    leave_uncertain()
    with pytest.raises(WaitingForPerson), open_run("run") as run:
        run.once("send", World().act, key=1)
    answer("run", "stop")
    with pytest.raises(EffectStopped) as raised, open_run("run") as run:
        run.once("send", World().act, key=1)
    for told in (str(raised.value), latest()):
        for way in ("again(…)", "`caravanserai fork run NEW`", "`caravanserai clean run`"):
            assert way in told
    assert "Start it again" not in latest()
    assert "\tended by an answer\t" in CliRunner().invoke(app, ["list"]).output
    assert list_runs()[0].status == "failed"
