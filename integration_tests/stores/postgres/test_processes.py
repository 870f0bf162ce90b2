"""Several processes on one run: killed, stopped, cut off, the server killed; nothing is lost."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from pathlib import Path

import pytest

from caravanserai_core import checkpoint, load, open_run
from caravanserai_core.errors import RunBusy, StaleWriter
from caravanserai_core.stores import PostgresStore
from integration_tests.cutting import CuttingProxy
from integration_tests.postgres_server import PostgresServer, postgres
from integration_tests.stores.counting import Crowd
from integration_tests.stores.workers import join, start, wait_until


@pytest.fixture
def acks(tmp_path: Path) -> Path:
    folder = tmp_path / "acks"
    folder.mkdir()
    return folder


def test_writers_that_are_killed_and_stopped_lose_nothing(
    url: str, acks: Path, thorough: bool
) -> None:
    """8 processes count up: nothing acknowledged is lost, nothing doubled, the sum is exact."""
    share, kills, stops = (200, 40, 20) if thorough else (20, 8, 4)
    crowd = Crowd(url, acks, share)

    crowd.run(8, kills=kills, stops=stops)

    assert crowd.check() >= 8 * share
    assert crowd.deaths >= kills // 3


def test_a_lost_answer_is_found_out(server: PostgresServer, acks: Path, thorough: bool) -> None:
    """Connections that break before or after a commit: each save arrives once, or not at all."""
    name = uuid.uuid4().hex
    share = 200 if thorough else 25
    with CuttingProxy(server.port, answers=0.02, questions=0.02) as proxy:
        crowd = Crowd(f"{server.url(port=proxy.port)}?namespace={name}", acks, share)
        crowd.run(4)
        assert proxy.cuts > share // 5
    direct = Crowd(f"{server.url()}?namespace={name}", acks, share)
    assert direct.check() == 4 * share


def test_a_server_that_crashes_under_load(acks: Path, thorough: bool) -> None:
    """Killed and started again while processes write: they wait, and go on."""
    share, crashes = (200, 6) if thorough else (40, 2)
    with postgres() as server:
        crowd = Crowd(server.url() + "?namespace=a", acks, share)
        done = threading.Event()

        def crash() -> None:
            for _ in range(crashes):
                if not done.wait(0.4):
                    server.stop(signal.SIGQUIT)
                    server.start()

        crashing = threading.Thread(target=crash)
        crashing.start()
        crowd.run(4)
        done.set()
        crashing.join()
        assert crowd.check() == 4 * share


def test_a_forked_child_uses_connections_of_its_own(url: str, store: PostgresStore) -> None:
    """What it does, and its end, leave the parent's connections alone."""
    checkpoint("run", {"by": "parent"}, "one", store=store)

    def child() -> None:
        assert load("run", store=store) == {"by": "parent"}
        checkpoint("other", {"by": "child"}, "two", store=store)

    assert join(start(child)) == 0
    assert load("other", store=store) == {"by": "child"}
    checkpoint("run", {"by": "parent still"}, "three", store=store)


def test_the_death_of_an_owner_on_this_machine_is_seen_at_once(
    url: str, store: PostgresStore, tmp_path: Path
) -> None:
    """Whoever starts then takes the run over, and what the dead one sent last cannot come later."""
    ready = tmp_path / "ready"
    owner = start(lambda: _work(url, ready))
    wait_until(ready.exists)
    with pytest.raises(RunBusy) as busy, open_run("run", store=store):
        pass
    assert busy.value.pid == owner

    os.kill(owner, signal.SIGKILL)
    join(owner)

    assert store.holder("run") is None
    with open_run("run", store=store) as run:
        assert run.state == {"n": 1}
        run.checkpoint({"n": 2}, "two")
    recent = store.recent("run")
    assert recent is not None
    assert recent.tail.epoch == 2
    assert store.holder("run") is None


def test_an_owner_without_a_sign_of_life_is_fenced(
    url: str, store: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine its death cannot be seen: its lease lapses, and its writes are refused."""
    monkeypatch.setattr("caravanserai_core.stores._alive.mark", lambda: "another machine")
    ready, told = tmp_path / "ready", tmp_path / "told"
    owner = start(lambda: _work(url + "&lease=1", ready, told))
    wait_until(ready.exists)
    time.sleep(1.5)
    assert store.holder("run") is not None, "it gives signs of life"

    os.kill(owner, signal.SIGSTOP)
    wait_until(lambda: store.holder("run") is None, 10)
    with open_run("run", store=store) as run:
        assert run.state == {"n": 1}
        run.checkpoint({"n": 2}, "two")
        os.kill(owner, signal.SIGCONT)
        wait_until(told.exists)
        join(owner)
        assert told.read_text() == "StaleWriter"
        run.checkpoint({"n": 3}, "three")
    assert load("run", store=store) == {"n": 3}


def test_of_many_that_find_a_dead_owner_one_takes_the_run(url: str, tmp_path: Path) -> None:
    """Nobody else begins to work: a step that is not to happen twice does not."""
    ready = tmp_path / "ready"
    owner = start(lambda: _work(url, ready))
    wait_until(ready.exists)
    os.kill(owner, signal.SIGKILL)
    join(owner)
    go = tmp_path / "go"

    def compete() -> None:
        store = PostgresStore(url)
        store.recent("run")
        wait_until(go.exists)
        try:
            with open_run("run", store=store):
                (tmp_path / f"works-{os.getpid()}").touch()
                time.sleep(1.0)
        except RunBusy:
            pass

    pids = [start(compete) for _ in range(6)]
    time.sleep(0.3)
    go.touch()
    assert [join(pid) for pid in pids] == [0] * 6
    assert len(list(tmp_path.glob("works-*"))) == 1


def _work(url: str, ready: Path, told: Path | None = None) -> None:
    """Hold a run, and try to write to it until that is refused."""
    with open_run("run", store=PostgresStore(url)) as run:
        run.checkpoint({"n": 1}, "one")
        ready.touch()
        while told is None:
            time.sleep(1)
        time.sleep(0.2)
        while True:
            time.sleep(0.3)
            if run._journal.store.holder("run") is None or _taken(run):
                break
        try:
            run.checkpoint({"n": "stale"}, "late")
        except StaleWriter as error:
            told.write_text(type(error).__name__)


def _taken(run: object) -> bool:
    holder = run._journal.store.holder("run")  # type: ignore[attr-defined]
    return holder is not None and holder.pid != os.getpid()
