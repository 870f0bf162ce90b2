"""Processes that write at once, are killed and stopped: what was acknowledged is there, once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from caravanserai_core.errors import RunBusy
from caravanserai_core.records import Record
from caravanserai_core.run import open_run
from caravanserai_core.stores.objects import ObjectStore
from caravanserai_core.testing import HandWriter
from caravanserai_core.testing._base import check_chain, records
from integration_tests.object_servers import Server, crashing_seaweedfs
from integration_tests.stores.objects.workers import Processes, appends, owns, wait_until

Open = Callable[..., ObjectStore]


@pytest.fixture
def start() -> Iterator[Processes]:
    """Return what starts processes."""
    with Processes() as processes:
        yield processes


def said(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def test_eight_processes_that_are_killed_and_stopped_lose_nothing(
    seaweedfs: Server, prefix: str, opened: Open, start: Processes, tmp_path: Path, thorough: bool
) -> None:
    """Numbers are dense, and each acknowledged record is there once, under its number."""
    count = 200 if thorough else 8
    url = seaweedfs.url(prefix)
    store = opened(url)
    writer = HandWriter(store)
    writer.append(writer.state())
    logs = [tmp_path / f"{name}.log" for name in range(8)]
    counts = [100_000] + [count] * 7
    workers = [start(appends, url, str(log), f"w{n}", counts[n]) for n, log in enumerate(logs)]
    chance = random.Random(1)

    wait_until(lambda: all(said(log) for log in logs))
    killed = workers[0]
    killed.kill()
    while any(worker.is_alive() for worker in workers[1:]):
        stopped = chance.choice(workers[1:])
        if stopped.pid is not None and stopped.is_alive():
            with contextlib.suppress(ProcessLookupError):  # it has come to its end just now
                os.kill(stopped.pid, signal.SIGSTOP)
                time.sleep(0.05)
                os.kill(stopped.pid, signal.SIGCONT)
        time.sleep(0.02)
    for worker in workers:
        worker.join(60)

    assert [worker.exitcode for worker in workers] == [-signal.SIGKILL] + [0] * 7
    found = records(opened(url))
    assert [record.seq for record in found] == list(range(1, len(found) + 1))
    check_chain(found)
    marks = {record.seq: record.head.get("mark") for record in found}
    assert max(Counter(mark for mark in marks.values() if mark).values()) == 1
    for log in logs:
        for line in said(log):
            mark, seq = line.split()
            assert marks[int(seq)] == mark
    assert sum(len(said(log)) for log in logs[1:]) == 7 * count


def test_a_server_that_crashes_under_load(
    opened: Open, start: Processes, tmp_path: Path, thorough: bool
) -> None:
    """Killed and started again while processes write: they wait, find out, and go on."""
    count, crashes = (200, 6) if thorough else (12, 1)
    with crashing_seaweedfs(tmp_path / "server") as (server, crash):
        url = server.url("crashed", timeout=120)
        writer = HandWriter(opened(url))
        writer.append(writer.state())
        logs = [tmp_path / f"{name}.log" for name in range(4)]
        workers = [start(appends, url, str(log), f"w{n}", count) for n, log in enumerate(logs)]
        for _ in range(crashes):
            before = sum(len(said(log)) for log in logs)
            wait_until(lambda more=before + 4: sum(len(said(log)) for log in logs) >= more)
            crash()
        for worker in workers:
            worker.join(300)

        assert [worker.exitcode for worker in workers] == [0] * 4
        found = records(opened(url))
        check_chain(found)
        marks = [mark for record in found if (mark := record.head.get("mark"))]
        assert sorted(marks) == sorted(f"w{n}-{k}" for n in range(4) for k in range(count))
        for log in logs:
            for line in said(log):
                mark, seq = line.split()
                assert found[int(seq) - 1].head["mark"] == mark


def test_an_owner_that_is_killed_is_recognised_at_once(
    seaweedfs: Server, prefix: str, opened: Open, start: Processes, tmp_path: Path
) -> None:
    """On the same machine: whatever the length of the lease, and a living one is not touched."""
    url, log = seaweedfs.url(prefix, lease=600), tmp_path / "log"
    owner = start(owns, url, str(log), 10_000)
    wait_until(lambda: said(log).count("saved") > 2)
    store = opened(url)

    with pytest.raises(RunBusy) as busy, open_run("run", store=store):
        pass
    assert busy.value.pid == owner.pid
    assert store.holder("run") is not None
    with pytest.raises(RunBusy):
        store.delete("run")
    owner.kill()
    owner.join()

    assert store.holder("run") is None
    with open_run("run", store=store) as run:
        run.checkpoint({"by": "second"}, "goes on")
    kinds = [record.kind for record in records(store)]
    assert kinds.count("lease") == 1
    assert kinds.count("waypoint") >= said(log).count("saved") + 1


def test_a_stopped_owner_is_taken_over_after_its_lease_and_refused_when_it_wakes(
    seaweedfs: Server, prefix: str, opened: Open, start: Processes, tmp_path: Path
) -> None:
    """It lives, and gives no sign of it: the epoch keeps the two apart."""
    url, log = seaweedfs.url(prefix, lease=1), tmp_path / "log"
    owner = start(owns, url, str(log), 10_000)
    wait_until(lambda: said(log).count("saved") > 2)
    time.sleep(1.5)  # longer than its lease: the signs of life keep it
    store = opened(url)
    with pytest.raises(RunBusy), open_run("run", store=store):
        pass
    assert owner.pid is not None
    os.kill(owner.pid, signal.SIGSTOP)

    def taken() -> bool:
        try:
            with open_run("run", store=store) as run:
                run.checkpoint({"by": "second"}, "took it over")
        except RunBusy:
            time.sleep(0.2)
            return False
        return True

    began = time.monotonic()
    wait_until(taken, 20)
    assert time.monotonic() - began > 0.5
    os.kill(owner.pid, signal.SIGCONT)
    owner.join(20)

    assert said(log)[-1] == "StaleWriter"
    found = records(store)
    lease = next(record for record in found if record.kind == "lease")
    assert all(record.by == lease.by for record in found if record.seq >= lease.seq)
    assert sum(record.kind == "waypoint" for record in found[: lease.seq - 1]) in (
        said(log).count("saved"),
        said(log).count("saved") + 1,
    )
    assert isinstance(found[-1], Record)


def test_two_that_take_over_a_lapsed_lease_do_not_both_get_it(
    seaweedfs: Server, prefix: str, opened: Open, start: Processes, tmp_path: Path
) -> None:
    """The lease is changed from the version that lapsed: the second is told who was faster."""
    from caravanserai_core.stores.owners import Lapsed
    from caravanserai_core.testing._leases import me

    url, log = seaweedfs.url(prefix, lease=600), tmp_path / "log"
    owner = start(owns, url, str(log), 10_000)
    wait_until(lambda: said(log).count("saved") > 2)
    owner.kill()
    owner.join()
    stores = [opened(url), opened(url)]
    lapses: list[Lapsed] = []
    writers = [HandWriter(store, name=f"w{n}", epoch=2) for n, store in enumerate(stores)]
    for store, writer in zip(stores, writers, strict=True):
        recent = store.recent("run")
        assert recent is not None
        writer.known, writer.newest = recent.tail, recent.last.waypoint
        with pytest.raises(Lapsed) as lapsed:
            store.hold("run", writer.known, me("x"))
        lapses.append(lapsed.value)

    def lease(writer: HandWriter):  # type: ignore[no-untyped-def]
        return lambda tail, news: writer._sealed(tail, [writer.draft("lease")], None)

    first, hold = stores[0].take_over(
        "run", writers[0].known, me("a"), lease(writers[0]), lapsed=lapses[0]
    )
    with pytest.raises(RunBusy):
        stores[1].take_over("run", writers[1].known, me("b"), lease(writers[1]), lapsed=lapses[1])

    assert first.tail.epoch == 2
    assert stores[1].holder("run") == me("a")._replace(epoch=2)
    assert [record.kind for record in records(stores[1])].count("lease") == 1
    hold.release()
