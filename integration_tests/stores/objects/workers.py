"""Processes that work on runs in an object store, and log what was acknowledged."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

from caravanserai_core.errors import RunBusy, StaleWriter
from caravanserai_core.run import open_run
from caravanserai_core.stores.objects import ObjectStore
from caravanserai_core.testing import HandWriter


class Processes:
    """Starts processes, and ends them when the block ends."""

    def __init__(self) -> None:
        self._started: list[BaseProcess] = []

    def __call__(self, work: Callable[..., None], *args: Any) -> BaseProcess:
        """Run `work` in a process that is forked from one that has sent no request."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        process = context.Process(target=work, args=args)
        process.start()
        self._started.append(process)
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.kill()
            process.join()


def wait_until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait until `condition` is true and return what it gives."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.01)
    return found


def appends(url: str, log: str, name: str, count: int) -> None:
    """Append, and log the mark of each record when it was acknowledged."""
    store = ObjectStore(url)
    writer = HandWriter(store, name=name)
    recent = store.recent("run")
    writer.known = recent.tail if recent is not None else None
    with Path(log).open("a", encoding="utf-8") as file:
        for number in range(count):
            mark = f"{name}-{number}"
            appended = writer.append(writer.draft("entry", {"mark": mark}))
            file.write(f"{mark} {appended.tail.seq}\n")
            file.flush()
            time.sleep(random.uniform(0, 0.01))


def owns(url: str, log: str, steps: int) -> None:
    """Hold the run and save again and again; log what is begun, saved, and refused."""

    def say(word: str) -> None:
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(word + "\n")

    try:
        with open_run("run", store=ObjectStore(url)) as run:
            say(f"owner {os.getpid()}")
            for number in range(steps):
                run.checkpoint({"by": os.getpid(), "n": number}, "a step")
                say("saved")
                time.sleep(0.02)
    except (RunBusy, StaleWriter) as error:
        say(type(error).__name__)
