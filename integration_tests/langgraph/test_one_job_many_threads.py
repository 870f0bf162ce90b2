"""Threads and tasks of one process that start the same job: one does it, all get its result."""
# ruff: noqa: E402

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from integration_tests.support import require

require("langgraph")

from caravanserai.langgraph import resumable_graph
from caravanserai_core import FileStore
from caravanserai_core.errors import UsageError
from caravanserai_core.verify import verify
from integration_tests.langgraph.graphs import builder_of, says

ran: list[str] = []


def slow(state: Any) -> Any:
    """Take a moment."""
    ran.append("slow")
    time.sleep(0.1)
    return {"log": ["slow"]}


def job() -> Any:
    """Return the job, as each caller makes it for itself."""
    return resumable_graph(builder_of({"slow": slow, "last": says("last")}).compile(), run_id="job")


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


def test_eight_threads_do_a_job_once() -> None:
    """The others wait, and return what it returned."""
    together = threading.Barrier(8)

    def start() -> Any:
        together.wait()
        return job().invoke({"log": ["in"]})["log"]

    with ThreadPoolExecutor(8) as pool:
        results = [one.result() for one in [pool.submit(start) for _ in range(8)]]

    assert results == [["in", "slow", "last"]] * 8
    assert ran == ["slow"]
    assert not verify(FileStore(".caravanserai"), "job").damaged


def test_twenty_tasks_do_a_job_once_and_leave_the_loop_free() -> None:
    """Waiting takes neither the loop nor a thread."""

    async def main() -> list[Any]:
        tasks = [asyncio.create_task(job().ainvoke({"log": ["in"]})) for _ in range(20)]
        await asyncio.sleep(0.02)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: 1), 5) == 1
        tasks[3].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(main())

    assert isinstance(results.pop(3), asyncio.CancelledError)
    assert [result["log"] for result in results] == [["in", "slow", "last"]] * 19
    assert ran == ["slow"]


def test_a_stream_that_is_left_lets_the_next_one_in() -> None:
    """A consumer that breaks off, also in async code, does not keep the job."""
    for _ in job().stream({"log": ["in"]}, stream_mode="updates"):
        break

    async def left() -> None:
        async for _ in job().astream({"log": ["in"]}, stream_mode="updates"):
            break

    asyncio.run(left())

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(lambda: job().invoke({"log": ["in"]})).result(10)
    assert result["log"] == ["in", "slow", "last"]


def test_a_call_that_would_stop_its_own_loop_is_refused() -> None:
    """A plain call beside a task of the same loop that does the job could never return."""

    async def main() -> Any:
        task = asyncio.create_task(job().ainvoke({"log": ["in"]}))
        while not ran:  # noqa: ASYNC110 - it is set by a worker thread
            await asyncio.sleep(0.005)
        with pytest.raises(UsageError, match="event loop"):
            job().invoke({"log": ["in"]})
        return await task

    assert asyncio.run(main())["log"] == ["in", "slow", "last"]
