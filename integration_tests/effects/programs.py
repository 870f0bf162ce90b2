"""Programs that are killed: each step under `once` leaves a line outside the store.

Run as a module it is a fork server, as `integration_tests.resume.programs`: it imports everything
once and forks a child for each line on its standard input.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import caravanserai

KEYS = 12


class Outside:
    """What the world saw: a line when a step began its work, with its idempotency key."""

    def __init__(self, folder: str) -> None:
        self._fd = os.open(f"{folder}/effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def act(self, key: int) -> str:
        """Do the step's work; a kill may come before, in between, and after."""
        time.sleep(0.0005)
        os.write(self._fd, f"{key} {caravanserai.idempotency_key()}\n".encode())
        time.sleep(0.0005)
        return f"done {key}"

    async def aact(self, key: int) -> str:
        """Do the same from async code."""
        await asyncio.sleep(0.0005)
        os.write(self._fd, f"{key} {caravanserai.idempotency_key()}\n".encode())
        await asyncio.sleep(0.0005)
        return f"done {key}"


def loop(run_id: str, policy: Any, outside: Outside) -> list[str]:
    """One step after the other, with a waypoint after every third."""

    @caravanserai.resumable
    def work(run_id: str, state: Any) -> list[str]:
        done: list[str] = []
        for key in range(KEYS):
            done.append(caravanserai.once("act", outside.act, key, key=key, on_uncertain=policy))
            if key % 3 == 2:
                caravanserai.checkpoint(run_id, {"done": list(done)}, f"{key + 1} done")
        return done

    return work(run_id, {"done": []})  # type: ignore[no-any-return]


def threads(run_id: str, policy: Any, outside: Outside) -> list[str]:
    """Four threads at once."""
    with caravanserai.open_run(run_id) as run:
        finished, result = run.finished()
        if finished:
            return result  # type: ignore[no-any-return]

        def one(key: int) -> str:
            return run.once("act", outside.act, key, key=key, on_uncertain=policy)

        with ThreadPoolExecutor(4) as pool:
            jobs = [pool.submit(copy_context().run, one, key) for key in range(KEYS)]
            done = _results(jobs)
        run.checkpoint({"done": done}, "all done")
        run.finish(done)
        return done


def _results(jobs: list[Any]) -> list[str]:
    errors = [error for job in jobs if (error := job.exception()) is not None]
    if errors:
        raise errors[0]
    return [job.result() for job in jobs]


def gather(run_id: str, policy: Any, outside: Outside) -> list[str]:
    """All at once in one event loop."""

    @caravanserai.resumable
    async def work(run_id: str, state: Any) -> list[str]:
        steps = [
            caravanserai.aonce("act", outside.aact, key, key=key, on_uncertain=policy)
            for key in range(KEYS)
        ]
        done = await asyncio.gather(*steps, return_exceptions=True)
        errors = [item for item in done if isinstance(item, BaseException)]
        if errors:
            raise errors[0]
        await caravanserai.acheckpoint(run_id, {"done": done}, "all done")
        return [str(item) for item in done]

    return asyncio.run(work(run_id, {}))


PROGRAMS = {f.__name__: f for f in (loop, threads, gather)}


def _child(order: dict[str, Any]) -> int:
    os.chdir(order["folder"])
    # Any thread of the child may be in the middle of anything when this comes.
    if order["delay"] is not None:
        threading.Thread(target=_kill_after, args=(order["delay"],), daemon=True).start()
    program = PROGRAMS[order["program"]]
    try:
        done = program(order["run_id"], order["policy"], Outside(order["folder"]))
    except caravanserai.WaitingForPerson as waits:
        return waits.exit_code
    assert done == [f"done {key}" for key in range(KEYS)], done
    return 0


def _kill_after(delay: float) -> None:
    time.sleep(delay)
    os.kill(os.getpid(), 9)


def _serve() -> None:
    # Threads do not survive a fork: nothing here may start one before.
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            code = 1
            try:
                code = _child(order)
            except BaseException:  # noqa: BLE001 - the end of a child
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        os.write(1, b"%d %d\n" % (child, os.waitstatus_to_exitcode(status)))


if __name__ == "__main__":
    _serve()
