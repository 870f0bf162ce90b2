"""What LangGraph puts into checkpoints, and what its own serialiser changes, comes back exactly."""

# ruff: noqa: E402

from __future__ import annotations

import collections
import datetime as dt
import ipaddress
import re
import zoneinfo
from typing import Any

import pydantic
import pytest

from integration_tests.support import require

require("langgraph")

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde import _msgpack
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import GetOp, Item, SearchItem
from langgraph.types import (
    Command,
    Interrupt,
    Overwrite,
    PregelTask,
    Send,
    StateSnapshot,
    TimeoutPolicy,
)

from caravanserai.langgraph import _types
from caravanserai_core import codec
from caravanserai_core.errors import SchemaMismatch, UnserialisableState
from integration_tests.codec import values
from integration_tests.langchain.messages import CHAT, same

_types.register()

AT = dt.datetime(2026, 10, 25, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"), fold=1)

KINDS: dict[str, Any] = {
    "send": Send("tools", {"messages": CHAT, "n": (1,)}),
    "send with a timeout": Send("tools", None, timeout=3.5),
    "command": Command(
        graph=Command.PARENT, update={"a": (1,)}, resume={"id": 1}, goto=[Send("a", 1), "b"]
    ),
    "interrupt": Interrupt(value={"q": ("yes", "no")}, id="0123"),
    "interrupt with a schema": Interrupt("q", "0123", response_schema={"type": "string"}),
    "overwrite": Overwrite(["b", (1,)]),
    "delta snapshot": _DeltaSnapshot([HumanMessage("x")]),
    "timeout policy": TimeoutPolicy(idle_timeout=1.0, refresh_on="heartbeat"),
    "item": Item(value={"a": (1,)}, key="k", namespace=("n",), created_at=AT, updated_at=AT),
    "search item": SearchItem(("n",), "k", {"a": 1}, AT, AT, 0.5),
    "get": GetOp(("n", "m"), "k"),
    "task": PregelTask("id", "name", ("__pregel_pull", "name")),
    "snapshot": StateSnapshot({"a": 1}, ("n",), {}, None, None, None, (), ()),
    "pattern": re.compile("a(?i:b)", re.MULTILINE),
    "pattern of bytes": re.compile(rb"\xff", re.LOCALE),
    "kept error": _types.kept_error(KeyError("x")),
    **{
        type(address).__name__: address
        for address in (
            ipaddress.IPv4Address("10.0.0.1"),
            ipaddress.IPv4Interface("10.0.0.1/8"),
            ipaddress.IPv4Network("10.0.0.0/8"),
            ipaddress.IPv6Address("fe80::1%eth0"),
            ipaddress.IPv6Interface("fe80::1/64"),
            ipaddress.IPv6Network("fe80::/64"),
        )
    },
}

ORDINARY: dict[str, Any] = {
    **values.VALUES,
    "tuple": (1, 2),
    "exception": ValueError("x"),
    "surrogate": "\ud800",
    "secret": pydantic.SecretStr("hunter2"),
    "set of tuples": {(1, 2)},
    "deque with a bound": collections.deque([1], 3),
}

CHANGED = {
    *("tuple", "set of tuples", "surrogate", "exception", "deque with a bound", "ordereddict"),
    *("counter", "defaultdict", "enum in a class", "dataclass in a class", "datetime zone fold"),
    *("namedtuple", "dataclass frozen", "model private", "model frozen", "model root"),
}
"""Ordinary values that langgraph-checkpoint 4.3.2 changes without a word."""


def roundtrip(value: object) -> Any:
    return codec.decode(*codec.encode(value))


def equal(left: Any, right: Any) -> bool:
    """Compare also objects whose class has no comparison of its own."""
    if type(left) is not type(right):
        return False
    if isinstance(left, Send | Item):
        names = [name for cls in type(left).__mro__ for name in getattr(cls, "__slots__", ())]
        return all(equal(getattr(left, name), getattr(right, name)) for name in names)
    if isinstance(left, Command):
        return same(
            [left.graph, left.update, left.resume], [right.graph, right.update, right.resume]
        )
    return same(left, right)


@pytest.mark.parametrize("name", KINDS)
def test_what_langgraph_stores_comes_back_exactly(name: str) -> None:
    assert equal(roundtrip([KINDS[name]])[0], KINDS[name])
    assert repr(roundtrip({"a": KINDS[name]})["a"]) == repr(KINDS[name])


def test_every_type_that_langgraph_calls_safe_is_tried() -> None:
    """A type that a new LangGraph adds to its list has to be looked at here."""
    tried = {type(value) for value in (*KINDS.values(), *CHAT, *values.VALUES.values())}
    known = {(cls.__module__, cls.__name__) for cls in tried} | {
        *(("builtins", "frozenset"), ("re", "compile"), ("pathlib", "Path")),
        *(("pathlib", "WindowsPath"),),  # there are none on other systems
    }
    strange = {
        entry
        for entry in _msgpack.SAFE_MSGPACK_TYPES
        if entry not in known and not entry[0].startswith(("langchain_core.", "pathlib._local"))
    }
    assert strange == set()


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_value_comes_back_exactly_or_is_refused(name: str) -> None:
    state = {"value": ORDINARY[name]}
    if name in ("exception", "secret"):
        with pytest.raises(UnserialisableState, match=r"^\$\.value: "):
            codec.encode(state)
    else:
        assert values.same(roundtrip(state), state)


@pytest.mark.parametrize("name", sorted(CHANGED))
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_langgraphs_own_serialiser_changes_it(name: str) -> None:
    """Guards what the documentation says about langgraph-checkpoint."""
    serde = JsonPlusSerializer()
    assert not values.same(serde.loads_typed(serde.dumps_typed(ORDINARY[name])), ORDINARY[name])


def test_a_leaf_in_a_send_is_named_by_its_own_path() -> None:
    state = {"tasks": [Send("tools", {"messages": [HumanMessage("x", client=object())]})]}
    with pytest.raises(UnserialisableState) as caught:
        codec.encode(state)
    assert caught.value.path == "$.tasks[0].arg.messages[0].client"


def test_a_send_without_its_fields_is_refused() -> None:
    stored = {"$object": {"type": "langgraph.Send", "kind": "codec", "value": {"node": "n"}}}
    with pytest.raises(SchemaMismatch):
        codec.decode_tree(stored)


def test_an_exception_is_kept_as_what_it_said() -> None:
    kept = roundtrip(_types.kept_error(LookupError("no such town", 7)))
    assert kept.type == "LookupError"
    assert kept.text == "('no such town', 7)"
    assert str(kept) == "LookupError('no such town', 7)"


def test_an_exception_that_cannot_be_shown_is_kept_by_its_class() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

        __repr__ = __str__

    kept = _types.kept_error(Mute())
    assert kept.type.endswith("Mute")
    assert kept.text == "<RuntimeError while this was shown>"
