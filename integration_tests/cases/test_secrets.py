"""What somebody with the right to write has put into a store: data, never code."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caravanserai import (
    CaravanseraiError,
    FileStore,
    JournalDamaged,
    MemoryStore,
    SchemaMismatch,
    UnknownType,
    get_waypoint,
    history,
    list_runs,
    load,
    open_run,
)
from caravanserai_core.stores.base import Store
from caravanserai_core.testing import HandWriter
from integration_tests.support import require

STORES: dict[str, Callable[[], Store]] = {
    "file": lambda: FileStore(Path("store")),
    "memory": MemoryStore,
}

PAYLOADS: dict[str, tuple[Any, type[CaravanseraiError]]] = {
    "function": (
        {"$object": {"type": "os:system", "kind": "dataclass", "value": {"command": "touch ran"}}},
        UnknownType,
    ),
    "module that is not imported": (
        {"$object": {"type": "antigravity:X", "kind": "model", "value": {}}},
        UnknownType,
    ),
    "class that opens": (
        {"$object": {"type": "subprocess:Popen", "kind": "codec", "value": ["touch", "ran"]}},
        UnknownType,
    ),
    "exception": (
        {"$object": {"type": "builtins:eval", "kind": "enum", "value": {"name": "x"}}},
        UnknownType,
    ),
    "factory": ({"$defaultdict": {"factory": "os:getcwd", "items": []}}, SchemaMismatch),
    "unknown tag": ({"$python/object/apply": "os.system"}, UnknownType),
}


class Touch:
    """What a pickle does when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("ran",)


@pytest.fixture(autouse=True)
def _nothing_ran() -> Any:
    yield
    assert not Path("ran").exists()


def planted(store: Store, payload: Any, run_id: str = "run") -> None:
    """Seal a record by hand: a state that names what it wants to be called."""
    writer = HandWriter(store, run_id)
    body = json.dumps({"box": [payload]}).encode()
    fields = {"note": "", "tagged": True}
    writer.append(writer.draft("waypoint", fields, body=b'"state":' + body))


@pytest.mark.parametrize("name", PAYLOADS)
@pytest.mark.parametrize("kind", STORES)
def test_a_state_that_names_code_is_refused_alike_in_every_store(kind: str, name: str) -> None:
    """By each way of reading, with the place in the state; the plain tree can be looked at."""
    payload, error = PAYLOADS[name]
    store = STORES[kind]()
    planted(store, payload)

    for read in (
        lambda: load("run", store=store),
        lambda: load("run", at=1, store=store),
        lambda: get_waypoint("run", store=store).state,
        lambda: history("run", store=store)[0].state,
        lambda: open_run("run", store=store).state,
    ):
        with pytest.raises((UnknownType, SchemaMismatch, JournalDamaged)) as caught:
            read()
        assert type(caught.value) is error, caught.value
        assert "$.box[0]" in str(caught.value)
    assert load("run", store=store, raw=True) == {"box": [payload]}
    assert [info.run_id for info in list_runs(store=store)] == ["run"]


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_checkpoint_of_langgraph_that_names_code_is_refused_alike(name: str) -> None:
    """The saver reads through the same list of types as everything else."""
    require("langgraph")
    from langgraph.checkpoint.base import empty_checkpoint

    from caravanserai.langgraph import WaypointSaver

    payload, error = PAYLOADS[name]
    mark = "the place of the payload"
    saver = WaypointSaver(Path("store"))
    checkpoint: Any = {**empty_checkpoint(), "channel_values": {"box": [mark]}}
    where: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    saver.put(where, checkpoint, {"source": "loop", "step": 0}, {"box": "1"})  # type: ignore[typeddict-item]
    tree = load("t", store=Path("store"), raw=True)
    text = json.dumps(tree).replace(json.dumps(mark), json.dumps(payload))
    assert "$" in text
    record = FileStore(Path("store")).recent("t")
    assert record is not None
    head = record.chain[-1].head
    other = FileStore(Path("other"))
    writer = HandWriter(other, "t")
    known = (
        "seq",
        "app",
        "kind",
        "time",
        "by",
        "prev",
        "body_sha256",
        "waypoint",
        "lane",
        "parent",
    )
    fields = {key: item for key, item in head.items() if key not in known}
    writer.append(
        writer.draft("waypoint", {**fields, "tagged": True}, body=b'"state":' + text.encode())
    )

    with pytest.raises((UnknownType, SchemaMismatch)) as caught:
        WaypointSaver(Path("other")).get_tuple(where)
    assert type(caught.value) is error
    assert "box[0]" in str(caught.value)


def test_a_pickle_in_the_place_of_any_file_is_not_read_as_one(store_dir: Path) -> None:
    """Of the journal: damage, at its byte. Of a note, the lock, the lease: no reader cares."""
    bomb = pickle.dumps(Touch())
    with open_run("run") as run:
        run.checkpoint({"n": 1}, "one")
    folder = store_dir / "run"
    names = {path.name for path in folder.iterdir()}
    assert {"journal-1.jsonl", "lock", "waypoint-1.md", "latest.md"} <= names
    for name in sorted(names - {"journal-1.jsonl"}):
        before = (folder / name).read_bytes()
        (folder / name).unlink()
        (folder / name).write_bytes(bomb)
        assert load("run") == {"n": 1}, name
        (folder / name).write_bytes(before)
    (folder / "journal-1.jsonl").write_bytes(bomb + b"\n")

    for read in (load, history, open_run):
        with pytest.raises(JournalDamaged, match=r"journal-1\.jsonl"):
            read("run")

    assert (folder / "journal-1.jsonl").read_bytes() == bomb + b"\n"
    pickle.loads(bomb)  # it does what it is made for where somebody reads it as a pickle
    os.rmdir("ran")


@pytest.mark.parametrize("whole", [True, False], ids=["the file", "its last line"])
@pytest.mark.parametrize(
    "plain",
    [
        {"step": 9, "approved": True},
        {"state": {"step": 9}},
        {"seq": 3, "kind": "waypoint", "waypoint": 2, "state": {"step": 9}},
    ],
)
def test_plain_json_in_the_place_of_records_is_refused(plain: dict[str, Any], whole: bool) -> None:
    """A state that somebody writes by hand is none: not even where it looks like a record."""
    with open_run("run", store="store") as run:
        run.checkpoint({"step": 1}, "one")
        run.checkpoint({"step": 2}, "two")
    path = Path("store/run/journal-1.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    forged = json.dumps(plain).encode() + b"\n"
    path.write_bytes(forged if whole else b"".join([*lines[:-1], forged]))

    with pytest.raises(JournalDamaged):
        load("run", store=FileStore(Path("store").absolute()))
    with pytest.raises(JournalDamaged):
        open_run("run", store=FileStore(Path("store").absolute()))
    if not whole:
        assert load("run", at=1, store=FileStore(Path("store").absolute())) == {"step": 1}
