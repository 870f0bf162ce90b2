"""Threads and tasks of one process share a run; a job is done by one of them at a time."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import caravanserai
from caravanserai import NoRun, UsageError, open_run, resumable, resumable_iterate
from caravanserai_core import jobs, threads
from caravanserai_core.opening import writer
from caravanserai_core.stores import FileStore
from caravanserai_core.stores.owners import Holder
from caravanserai_core.threads import in_thread, wait_for
from integration_tests.lease.programs import child, hold, tell, wait


def held() -> bool:
    """Say whether anybody holds the run."""
    return FileStore().holder("run") is not None


def test_a_run_is_held_from_entering_to_leaving() -> None:
    """Opening alone holds nothing; blocks inside of each other share it."""
    run = open_run("run")
    assert not held()
    with run:
        assert held()
        with open_run("run"):
            pass
        with run:
            pass
        assert held()
    assert not held()


def test_it_is_given_back_by_every_way_out() -> None:
    """An error, ^C, a return, a cancelled task, a generator that is closed."""
    for problem in (ValueError("wrong"), KeyboardInterrupt()):
        with pytest.raises(type(problem)), open_run("run"):
            raise problem
        assert not held()

    loop = resumable_iterate([1, 2, 3], "items")
    assert next(loop) == 1
    assert FileStore().holder("items") is not None
    loop.close()
    assert FileStore().holder("items") is None
    loop = resumable_iterate([1, 2, 3], "items")
    next(loop)
    del loop
    gc.collect()
    assert FileStore().holder("items") is None
    assert list(resumable_iterate([1, 2, 3], "items")) == [1, 2, 3]
    assert FileStore().holder("items") is None

    async def cancelled() -> None:
        began = asyncio.Event()

        async def work() -> None:
            async with open_run("run"):
                began.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(work())
        await began.wait()
        assert held()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert not held()


def test_a_block_may_be_left_elsewhere_than_it_was_entered() -> None:
    """In another task or thread, as dependencies of web frameworks do, and in any order."""

    async def dependency() -> Any:
        async with open_run("run") as run:
            yield run

    async def request() -> None:
        given = dependency()
        run = await asyncio.create_task(given.__anext__())
        run.checkpoint({"n": 1})
        with pytest.raises(StopAsyncIteration):
            await asyncio.create_task(given.__anext__())

    asyncio.run(request())
    assert not held()

    run = open_run("run")
    contextvars.copy_context().run(run.__enter__)
    contextvars.copy_context().run(run.__exit__, ValueError, ValueError("wrong"), None)
    assert not held()
    assert caravanserai.list_runs()[0].status == "failed"

    one, two = open_run("run"), open_run("other")
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    assert caravanserai.current_run() is two
    two.__exit__(None, None, None)
    with pytest.raises(NoRun):
        caravanserai.current_run()


def test_a_task_that_is_cancelled_while_it_enters_holds_nothing(
    thorough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker thread may take the lease after the task that asked for it is gone."""
    workers = ThreadPoolExecutor(32)
    monkeypatch.setattr(threads, "_executors", {32: workers})

    async def enter() -> None:
        async with open_run("run"):
            await asyncio.sleep(60)

    async def main() -> None:
        for turn in range(200 if thorough else 30):
            task = asyncio.create_task(enter())
            for _ in range(turn % 4):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    workers.shutdown()  # waits for those that are still on their way in, and out again
    assert not held()


def test_threads_that_start_one_job_do_it_once(thorough: bool) -> None:
    """Eight threads: one does it, the others wait for its result."""
    done: list[str] = []
    results: list[int] = []

    @resumable
    def work(run_id: str, state: dict[str, Any]) -> int:
        done.append(run_id)
        time.sleep(0.05)
        caravanserai.checkpoint(run_id, {"n": 1})
        return 42

    def start(run_id: str, together: threading.Barrier) -> None:
        together.wait()
        results.append(work(run_id, {}))

    names = [f"job-{turn}" for turn in range(30 if thorough else 3)]
    for name in names:
        together = threading.Barrier(8)
        threads = [threading.Thread(target=start, args=(name, together)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert done == names
    assert results == [42] * 8 * len(names)


def test_where_a_job_fails_the_next_thread_goes_on() -> None:
    """From the last waypoint, as another start would."""
    seen: list[Any] = []

    @resumable
    def work(run_id: str, state: dict[str, int]) -> int:
        seen.append(dict(state))
        time.sleep(0.02)
        if state["n"] < 2:
            caravanserai.checkpoint(run_id, {"n": state["n"] + 1})
            raise ValueError("not yet")
        return 7

    results: list[Any] = []
    gather = threading.Barrier(6)

    def start() -> None:
        gather.wait()
        try:
            results.append(work("run", {"n": 0}))
        except ValueError as error:
            results.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert sorted(map(str, results)) == ["7"] * 4 + ["not yet"] * 2


def test_fifty_tasks_wait_without_a_thread_each() -> None:
    """The loop goes on meanwhile, and its own worker threads stay free."""
    done: list[int] = []

    @resumable
    async def work(run_id: str, state: dict[str, Any]) -> int:
        done.append(1)
        await asyncio.sleep(2)
        return 42

    async def main() -> None:
        tasks = [asyncio.create_task(work("run", {})) for _ in range(50)]
        await asyncio.sleep(0.1)
        begin = time.monotonic()
        assert await asyncio.to_thread(lambda: 1) == 1
        assert await wait_for(in_thread(lambda: 2)) == 2
        assert time.monotonic() - begin < 1.5, "the worker threads are taken"
        tasks[7].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [r for r in results if r != 42] == [results[7]]
        assert isinstance(results[7], asyncio.CancelledError)

    asyncio.run(main())
    assert done == [1]
    assert not held()


def test_a_job_that_calls_itself_does_not_wait_for_itself() -> None:
    """Directly, from a thread with its context, and from a task."""

    @resumable
    def work(run_id: str, state: dict[str, Any], depth: int = 0) -> int:
        if depth == 0:
            context = contextvars.copy_context()
            thread = threading.Thread(target=context.run, args=(work, run_id, {}, 1))
            thread.start()
            thread.join(10)
            assert not thread.is_alive()
            contextvars.Context().run(work, run_id, {}, 2)  # below it on the same stack
        return depth

    assert work("run", {}) == 0

    @resumable
    async def awork(run_id: str, state: dict[str, Any], depth: int = 0) -> int:
        if depth == 0:
            await asyncio.wait_for(asyncio.create_task(awork(run_id, {}, 1)), 10)
        return depth

    assert asyncio.run(awork("arun", {})) == 0


def test_a_call_that_would_stop_its_own_loop_is_refused() -> None:
    """A plain function waits in the loop's thread for a task of that loop: for ever."""

    began = asyncio.Event()

    @resumable
    async def awork(run_id: str, state: dict[str, Any]) -> int:
        began.set()
        await asyncio.sleep(0.05)
        return 1

    @resumable
    def work(run_id: str, state: dict[str, Any]) -> int:
        return 2

    async def main() -> None:
        task = asyncio.create_task(awork("run", {}))
        await began.wait()
        with pytest.raises(UsageError, match=r"asyncio\.to_thread"):
            work("run", {})
        assert await task == 1

    asyncio.run(main())


def test_long_waiting_says_for_whom(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A job that waits for its own plain thread hangs; the log says which those are."""
    monkeypatch.setattr(jobs, "_PATIENCE", 0.05)
    go = threading.Event()
    inner: list[threading.Thread] = []

    @resumable
    def work(run_id: str, state: dict[str, Any]) -> int:
        inner.append(threading.Thread(target=work, args=(run_id, {}), name="inner"))
        inner[-1].start()
        assert go.wait(10)
        return 1

    with caplog.at_level(logging.WARNING, "caravanserai"):
        outer = threading.Thread(target=work, args=("run", {}), name="outer")
        outer.start()
        end = time.monotonic() + 10
        while not caplog.records and time.monotonic() < end:
            time.sleep(0.005)
    go.set()
    outer.join(10)
    inner[0].join(10)
    assert len(inner) == 1
    text = caplog.records[0].getMessage()
    assert "inner has waited" in text
    assert "for thread outer" in text


def test_what_was_written_between_opening_and_entering_is_seen() -> None:
    """The state is read again, unless the program has it already: then it is told."""
    run = open_run("run")
    with child(hold) as other:
        tell("held-go")
        assert other.end() == 0
    with run:
        assert run.state == {"by": "held", "n": 2}
        run.checkpoint({"n": 3})
    run = open_run("run")
    assert run.state == {"n": 3}
    with child(hold, "second") as other:
        tell("second-go")
        assert other.end() == 0
    with pytest.raises(caravanserai.Conflict, match="Open it again"), run:
        pass
    assert not held()


def test_a_lease_that_another_thread_takes_just_now_refuses_no_opening() -> None:
    """Between two looks of `open_run` it may become this process's own."""
    hold = FileStore().hold("run", None, Holder("here", 1, "", 1, writer()))
    assert hold is not None
    run = open_run("run")
    with pytest.raises(caravanserai.RunBusy), run:
        pass  # held behind the back of all that shares it, as nobody does
    hold.release()
    with run:
        assert held()


def test_ending_a_fork_ends_nothing(thorough: bool) -> None:
    """A forked child holds nothing: it may leave the block, exit, or close all it has."""

    def leaves(run: Any) -> None:
        run.__exit__(None, None, None)
        gc.collect()

    def opens() -> None:
        with open_run("run"):
            pass

    for _ in range(20 if thorough else 3):
        with open_run("run") as run:
            run.checkpoint({"n": 1})
            with child(leaves, run) as one:
                assert one.end() == 0, one.error
            assert held()
            with child(opens) as one:
                assert one.end() == 5
            run.checkpoint({"n": 2})
        assert not held()


def test_a_fork_that_goes_on_inside_the_block_is_a_new_writer() -> None:
    """The check of each lane's head keeps the two apart."""

    def goes_on(run: Any) -> None:
        run.checkpoint({"n": "child"}, "child")
        tell("child")

    with open_run("run") as run:
        run.checkpoint({"n": 1}, "one")
        with child(goes_on, run) as one:
            assert one.end() == 0, one.error
            wait("child")
        with pytest.raises(caravanserai.Conflict):
            run.checkpoint({"n": 2}, "two")
