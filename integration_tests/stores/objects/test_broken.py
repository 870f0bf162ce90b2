"""What may go wrong in a bucket that others use too, and at the end of a program."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError

from caravanserai_core import checkpoint, list_runs, load, prune
from caravanserai_core.errors import JournalDamaged
from caravanserai_core.journal import Journal
from caravanserai_core.repair import repair
from caravanserai_core.stores._objects_bucket import Bucket
from caravanserai_core.stores.objects import ObjectStore
from caravanserai_core.verify import verify
from integration_tests.object_servers import Server

Opened = Callable[..., ObjectStore]


def put(store: ObjectStore, key: str, data: bytes) -> None:
    obstore.put(store._bucket.client, store._bucket._key(key), data)


def drop(store: ObjectStore, key: str) -> None:
    obstore.delete(store._bucket.client, store._bucket._key(key))


def test_a_store_whose_prefix_is_another_ones_run(
    seaweedfs: Server, prefix: str, opened: Opened
) -> None:
    """What one of them removes is its own, whatever the other's runs are called."""
    outer, inner = opened(seaweedfs.url(prefix)), opened(seaweedfs.url(f"{prefix}/team"))
    for name in ("2-weekly", "2-0123abcd", "1"):
        checkpoint(name, {"of": "inner"}, "saved", store=inner)
    for number in range(6):
        checkpoint("team", {"n": number}, "saved", store=outer)
    size = outer.size("team")
    prune("team", keep=2, store=outer)
    checkpoint("1", {"of": "inner", "more": "x" * 50_000}, "saved", store=inner)
    assert (outer.size("team") or 0) < (size or 0) + 5_000
    outer.delete("team")

    again = opened(inner.url)
    assert {info.run_id for info in list_runs(store=again)} == {"2-weekly", "2-0123abcd", "1"}
    assert load("2-weekly", store=again) == {"of": "inner"}


@pytest.mark.parametrize("missing", [3, 6])
def test_an_object_that_is_missing_in_the_middle(
    seaweedfs: Server, prefix: str, opened: Opened, missing: int
) -> None:
    """Nothing is saved into the hole, and no older state is taken for the newest."""
    store = opened(seaweedfs.url(prefix))
    for number in range(1, 8):
        checkpoint("run", {"n": number}, "saved", store=store)
    drop(store, f"run/1/{missing:010d}.jsonl")
    again = opened(store.url)
    if missing == 6:
        with pytest.raises(JournalDamaged, match="number 7 stands behind it"):
            again.recent("run")
    report = verify(opened(store.url), "run")
    assert report.damaged
    assert report.waypoints == 6

    repair(opened(store.url), "run")

    last = opened(store.url)
    assert not verify(last, "run").damaged
    assert load("run", store=last) == {"n": 7}
    assert load("run", store=last, at=2) == {"n": 2}


@pytest.mark.parametrize(
    "hint",
    [
        b'{"generation":"..","append":3}',
        b'{"generation":"1\\u0000","append":3}',
        b'{"generation":"9-00000000","append":99}',
        b'{"generation":"1","append":99}',
        b'{"generation":1,"append":"x"}',
        b"[]",
        b"\xff",
        b"",
    ],
)
def test_a_hint_is_only_a_hint(seaweedfs: Server, prefix: str, opened: Opened, hint: bytes) -> None:
    store = opened(seaweedfs.url(prefix))
    for number in range(1, 4):
        checkpoint("run", {"n": number}, "saved", store=store)
    put(store, "run/head.json", hint)
    assert load("run", store=opened(store.url)) == {"n": 3}


def test_notes_are_written_by_a_program_that_ends_at_once(
    seaweedfs: Server, prefix: str, opened: Opened
) -> None:
    """Also those that wait for another thread, and what a handler saves at the very end."""
    url = seaweedfs.url(prefix)
    code = (
        "import atexit, sys\n"
        "from caravanserai_core import checkpoint, open_run\n"
        "from caravanserai_core.stores import open_store\n"
        "store = open_store(sys.argv[1])\n"
        "atexit.register(lambda: checkpoint('late', {'n': 1}, 'at the end', store=store))\n"
        "run = open_run('run', store=store)\n"
        "run._journal.defer_notes()\n"
        "for n in range(4): run.checkpoint({'n': n}, f'step {n}')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, url], capture_output=True, text=True, env=dict(os.environ)
    )
    assert (done.returncode, done.stderr) == (0, "")
    store = opened(url)
    assert "step 3" in (store.get_note("run", "latest.md") or "")
    assert "step 0" in (store.get_note("run", "waypoint-1.md") or "")
    assert load("late", store=store) == {"n": 1}
    assert "at the end" in (store.get_note("late", "latest.md") or "")


def test_a_save_whose_answer_is_lost_and_that_was_pruned_since_is_there_once(
    seaweedfs: Server, prefix: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(seaweedfs.url(prefix))
    for number in range(1, 4):
        checkpoint("run", {"n": number}, "saved", store=store)
    real = Bucket.put
    pending = [True]

    def put_and_lose(self: Bucket, key: str, data: bytes, *args: Any, **more: Any) -> Any:
        done = real(self, key, data, *args, **more)
        if pending and key.endswith("0004.jsonl"):
            pending.clear()
            other = opened(store.url)
            Journal(other, "run").compact(lambda record: record.waypoint > 2)
            raise GenericError("the answer was lost")
        return done

    monkeypatch.setattr(Bucket, "put", put_and_lose)
    assert checkpoint("run", {"n": 4}, "saved", store=store) == 4
    monkeypatch.undo()
    assert checkpoint("run", {"n": 5}, "saved", store=store) == 5
    report = verify(opened(store.url), "run")
    assert (report.waypoints, report.damaged) == (3, False)
