"""The whole program on an object store: resume, prune, verify, repair, fork."""

from __future__ import annotations

from collections.abc import Callable

import obstore
import pytest

from caravanserai_core import load, open_run
from caravanserai_core.api import history
from caravanserai_core.errors import JournalDamaged
from caravanserai_core.repair import repair
from caravanserai_core.stores._objects_address import connect, parse_address
from caravanserai_core.stores.base import Bad
from caravanserai_core.stores.objects import ObjectStore
from caravanserai_core.upkeep import fork
from caravanserai_core.verify import verify
from integration_tests.object_servers import Server
from integration_tests.stores.objects.raw import objects

Open = Callable[..., ObjectStore]


@pytest.fixture
def store(seaweedfs: Server, prefix: str, opened: Open) -> ObjectStore:
    return opened(seaweedfs.url(prefix))


def test_a_run_goes_on_where_it_was(store: ObjectStore) -> None:
    """State, steps and notes are there; what was done once is not done again."""
    done: list[int] = []

    def send() -> str:
        done.append(1)
        return "sent"

    for times in (1, 2):
        with open_run("run", store=store) as run:
            assert run.once("send", send) == "sent"
            run.checkpoint({"times": times}, f"round {times}")

    assert done == [1]
    assert load("run", store=store) == {"times": 2}
    assert [point.number for point in history("run", store=store)] == [1, 2]
    assert "round 2" in (store.get_note("run", "waypoint-2.md") or "")
    assert "round 2" in (store.get_note("run", "latest.md") or "")
    assert not verify(store, "run").damaged


def test_a_run_that_prunes_itself_stays_small(seaweedfs: Server, prefix: str, opened: Open) -> None:
    """Old waypoints go from the bucket, the newest stay, and every lease still holds."""
    store = opened(seaweedfs.url(prefix, keep=5))
    with open_run("run", store=store) as run:
        for number in range(40):
            run.checkpoint({"n": number, "pad": f"pad-{number}-" * 50}, f"step {number}")

    points = history("run", store=store)
    assert [load("run", at=p.number, store=store)["n"] for p in points] == [
        p.number - 1 for p in points
    ]
    assert 5 <= len(points) < 40
    assert points[-1].number == 40
    assert not any(b"pad-3-" in data for data in objects(store.url).values())
    assert not verify(store, "run").damaged


@pytest.mark.parametrize("lost", [3, 6])
def test_a_damaged_run_is_repaired(
    store: ObjectStore, prefix: str, opened: Open, lost: int
) -> None:
    """What is whole stays, what is damaged is kept beside it, and the run goes on."""
    with open_run("run", store=store) as run:
        for number in range(6):
            run.checkpoint({"n": number}, f"step {number}")
    client = connect(parse_address(store.url), 5)
    bad = next(
        record.place // 65536
        for record in store.scan("run", bodies=False)
        if not isinstance(record, Bad) and record.kind == "waypoint" and record.waypoint == lost
    )
    key = f"{prefix}/run/1/{bad:010d}.jsonl"
    data = bytes(obstore.get(client, key).bytes())
    obstore.put(client, key, data[:-20] + b"x" * 20)
    fresh = opened(store.url)
    assert verify(fresh, "run").damaged
    with pytest.raises(JournalDamaged):
        opened(store.url).chain("run", lost)
    with pytest.raises(JournalDamaged):
        load("run", at=lost, store=opened(store.url))

    found = repair(opened(store.url), "run")

    assert found is not None
    after = opened(store.url)
    assert not verify(after, "run").damaged
    kept = [key for key in objects(store.url) if "/damaged-" in key]
    assert len(kept) == 1
    assert load("run", at=2, store=after) == {"n": 1}
    with open_run("run", store=after) as run:
        run.checkpoint({"n": 99}, "goes on")
    assert load("run", store=after) == {"n": 99}


def test_a_fork_is_a_run_of_its_own(store: ObjectStore) -> None:
    """It appears at once, with the state of its beginning."""
    with open_run("run", store=store) as run:
        for number in range(3):
            run.checkpoint({"n": number}, f"step {number}")

    first = fork("run", at=2, new_run_id="other", store=store)

    assert load("other", first, store=store) == {"n": 1}
    assert load("run", store=store) == {"n": 2}
