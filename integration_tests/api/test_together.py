"""Several at once on one run: threads, tasks, processes."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from caravanserai import (
    Conflict,
    FileStore,
    RunNotFound,
    acheckpoint,
    checkpoint,
    clean,
    history,
    load,
    open_run,
)
from caravanserai_core.stores.base import Recent
from caravanserai_core.verify import verify
from integration_tests.api.helpers import process

SAVE = """
import sys, caravanserai
caravanserai.checkpoint("run", {"by": sys.argv[1]}, f"by {sys.argv[1]}")
"""


def test_threads_share_a_run(store_dir: Path, thorough: bool) -> None:
    """Threads of one process never conflict; each save has a number of its own."""
    each = 200 if thorough else 40
    numbers: list[int] = []
    errors: list[BaseException] = []
    start = threading.Barrier(8)

    def work(name: int) -> None:
        try:
            start.wait()
            for n in range(each):
                numbers.append(checkpoint("run", {"thread": name, "n": n, "pad": "x" * 5000}))
                if n % 10 == 0:
                    load("run")
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(numbers) == list(range(1, 8 * each + 1))
    seen: dict[int, list[int]] = {}
    for waypoint in history("run"):
        state = waypoint.state
        seen.setdefault(state["thread"], []).append(state["n"])
    assert seen == {name: list(range(each)) for name in range(8)}


def test_tasks_share_a_run(thorough: bool) -> None:
    """The same for tasks of one event loop, and for tasks of loops in several threads."""
    each = 100 if thorough else 20

    async def work(name: int) -> None:
        for n in range(each):
            await acheckpoint("run", {"task": name, "n": n})

    async def main(first: int) -> None:
        await asyncio.gather(*(work(first + name) for name in range(4)))

    threads = [threading.Thread(target=lambda n=n: asyncio.run(main(n * 4))) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen: dict[int, list[int]] = {}
    for waypoint in history("run"):
        seen.setdefault(waypoint.state["task"], []).append(waypoint.state["n"])
    assert seen == {name: list(range(each)) for name in range(8)}


def test_second_process_is_refused(store_dir: Path) -> None:
    """A waypoint of another process since the last look is a conflict; nothing is overwritten."""
    checkpoint("run", {"by": "me"})
    process(SAVE, "other")
    for _ in range(2):  # it stays refused until the run is loaded
        with pytest.raises(Conflict, match="waypoint 2") as caught:
            checkpoint("run", {"by": "me again"})
    assert "load()" in str(caught.value)
    assert str(store_dir) in str(caught.value)
    assert [w.state["by"] for w in history("run")] == ["me", "other"]
    assert load("run") == {"by": "other"}
    assert checkpoint("run", {"by": "me again"}) == 3
    assert verify_clean()


def verify_clean() -> bool:
    from caravanserai import open_store

    return verify(open_store(), "run").findings == []


def test_a_run_that_is_begun_while_it_is_loaded_is_loaded(store_dir: Path) -> None:
    """It was not there at the first look, and is at the second."""

    class Late(FileStore):
        begun = False

        def recent(self, run_id: str) -> Recent | None:
            found = super().recent(run_id)
            if not self.begun:
                self.begun = True
                process(SAVE, "other")
            return found

    store = Late(store_dir)

    assert load("run", store=store) == {"by": "other"}
    assert checkpoint("run", {"by": "me"}, store=store) == 2


def test_conflict_reaches_async_callers(store_dir: Path) -> None:
    """The awaited save raises it, and the next one is refused too."""
    checkpoint("run", {"by": "me"})
    process(SAVE, "other")

    async def main() -> None:
        for _ in range(2):
            with pytest.raises(Conflict):
                await acheckpoint("run", {"by": "me again"})

    asyncio.run(main())


def test_both_directions_between_two_processes(store_dir: Path) -> None:
    """Of two processes that know the same waypoint the first one to save wins."""
    checkpoint("run", {"n": 0})
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            load("run")
            os.write(ready[1], b".")
            os.read(go[0], 1)
            try:
                checkpoint("run", {"n": "child"})
            except Conflict:
                code = 7
        finally:
            os._exit(code)
    assert os.read(ready[0], 1) == b"."
    load("run")
    assert checkpoint("run", {"n": "parent"}) == 2
    os.write(go[1], b".")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    for fd in (*ready, *go):
        os.close(fd)
    assert load("run") == {"n": "parent"}


def test_forked_child_is_another_writer(store_dir: Path) -> None:
    """After a fork the two do not write over each other, nor under one name."""
    checkpoint("run", {"n": 0})
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if checkpoint("run", {"n": "child"}) == 2 else 1
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(Conflict):
        checkpoint("run", {"n": "parent"})
    assert load("run") == {"n": "child"}
    assert len({w.by for w in history("run")}) == 2


def test_fresh_process_goes_on_from_the_end(store_dir: Path) -> None:
    """A save in a process that has not looked at the run continues it: a web server's workers."""
    for name in ("one", "two", "three"):
        process(SAVE, name)
    assert [(w.number, w.parent) for w in history("run")] == [(1, None), (2, 1), (3, 2)]


def test_entries_of_others_are_no_conflict(store_dir: Path) -> None:
    """Progress that another process notes in between does not stop this one."""
    run = open_run("run")
    run.checkpoint({"n": 1})
    process(
        """
import caravanserai
with caravanserai.open_run("run") as run:
    run.entry("tool", 1)
    run.remark("the other one said so")
"""
    )
    assert run.checkpoint({"n": 2}, "two") == 2
    run.entry("tool", 2)
    assert [w.number for w in history("run")] == [1, 2]


def test_other_lanes_are_no_conflict(store_dir: Path) -> None:
    """A waypoint of another process on another lane does not stop this one."""
    run = open_run("run")
    run.checkpoint({"n": 1})
    process(
        """
import caravanserai
caravanserai.open_run("run").checkpoint({"side": 1}, lane="side")
"""
    )
    assert run.checkpoint({"n": 2}) == 3
    assert [(w.lane, w.parent) for w in history("run")] == [("", None), ("side", None), ("", 1)]


def test_run_deleted_elsewhere_is_a_conflict(store_dir: Path) -> None:
    """A run that somebody deleted does not come back as a fragment."""
    checkpoint("run", {"n": 1})
    process('import caravanserai; assert caravanserai.clean("run")')
    for _ in range(2):  # it stays refused until the program looks
        with pytest.raises(Conflict, match="deleted"):
            checkpoint("run", {"n": 2})
    assert not (store_dir / "run").exists()
    with pytest.raises(RunNotFound):
        load("run")
    assert checkpoint("run", {"n": 1}) == 1


def test_run_begun_again_elsewhere_is_a_conflict(store_dir: Path) -> None:
    """Nor does a writer of the deleted run land in the new one."""
    checkpoint("run", {"n": 1})
    process('import caravanserai; assert caravanserai.clean("run")')
    process(SAVE, "other")
    for _ in range(2):
        with pytest.raises(Conflict):
            checkpoint("run", {"n": 2})
    assert load("run") == {"by": "other"}
    assert checkpoint("run", {"n": 2}) == 2


def test_run_deleted_here_begins_again(store_dir: Path) -> None:
    """`clean` in the same process is no conflict: the next save is waypoint 1."""
    checkpoint("run", {"n": 1})
    checkpoint("run", {"n": 2})
    assert clean("run") is True
    assert clean("run") is False
    assert checkpoint("run", {"n": 1}) == 1
    assert os.listdir(store_dir / "run")
