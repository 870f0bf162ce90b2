"""The same state, and the same hostile one, in every store there is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caravanserai_core import checkpoint, load, open_run
from caravanserai_core.errors import CaravanseraiError, UnknownType
from caravanserai_core.records import Draft
from caravanserai_core.stores import FileStore, MemoryStore, Store, open_store
from caravanserai_core.testing import HandWriter

KINDS = ("file", "memory", "postgres", "s3", "azure")


@pytest.fixture(params=KINDS)
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Return an empty store of each kind."""
    if request.param == "file":
        return FileStore(tmp_path / "store")
    if request.param == "memory":
        return MemoryStore()
    address: Callable[[str], str] = request.getfixturevalue(request.param)
    return open_store(address(tmp_path.name + str(abs(hash(tmp_path)))))


STATES: list[Any] = [
    {"m": "a\x00b"},
    {"m": "\ud800 and \udfff"},
    {"z": 1, "a": {"y": 2, "b": 3}},
    {"large": 2**64, "larger": -(10**30), "float": 1e308, "nan": float("nan")},
    {"bytes": bytes(range(256)), "tuple": ((), (1,)), "keys": {1: "one", None: "none"}},
    {"\x00": {"\u2028": "\u2029"}, "text": "é e\u0301 🐪"},
]


@pytest.mark.parametrize("number", range(len(STATES)))
def test_what_databases_change_comes_back_as_it_was(anywhere: Store, number: int) -> None:
    """SER-28: from each store the identical value, in its own waypoint and in a patch."""
    state = STATES[number]
    checkpoint("run", state, "one \x00 two", store=anywhere)
    checkpoint("run", {"padding": "x" * 9000, "then": state}, "all", store=anywhere)
    checkpoint("run", {"padding": "x" * 9000, "then": state, "more": 1}, "patch", store=anywhere)
    again = open_store(anywhere.url) if anywhere.url != "memory:" else anywhere
    assert repr(load("run", at=1, store=again)) == repr(state)
    assert repr(load("run", store=again)["then"]) == repr(state)
    with open_run("run", store=again) as run:
        run.entry("kept", state)
        assert [repr(entry.data) for entry in run.entries()] == [repr(state)]


HOSTILE = {
    "a function": b'{"$object":{"type":"os:system","kind":"codec","value":"true"}}',
    "a class": b'{"$object":{"type":"subprocess:Popen","kind":"dataclass","value":{"args":""}}}',
    "a module": b'{"$object":{"type":"antigravity:fly","kind":"enum","value":"x"}}',
    "another adapter's": b'{"$nobody.Thing":{"lc":1,"type":"constructor","id":["os","system"]}}',
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_names_a_type_is_refused_alike(anywhere: Store, what: str) -> None:
    """SEC-18: no store has a way of its own to load what a journal names."""
    writer = HandWriter(anywhere)
    body = b'"state":' + HOSTILE[what]
    draft = Draft("waypoint", {"note": "", "tagged": True, "parent": None}, by="w", body=body)
    writer.append(draft)
    before = set(sys.modules)
    with pytest.raises(CaravanseraiError) as refused:
        load("run", store=anywhere)
    assert type(refused.value) is UnknownType
    assert not {"antigravity"} & (set(sys.modules) - before)
