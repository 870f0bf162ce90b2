"""A state that another thread changes while it is saved: never a crash, never another value."""

from __future__ import annotations

import dataclasses
import datetime as dt
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from caravanserai_core import codec, delta
from caravanserai_core.codec import decode, encode, expand, pieces, register_codec
from caravanserai_core.errors import UnserialisableState
from integration_tests.codec.values import VALUES, Point
from integration_tests.support import ROOT

RACE = """
import dataclasses, datetime, sys, threading, time
from caravanserai_core import delta
from caravanserai_core.codec import encode, expand, pieces
from caravanserai_core.errors import UnserialisableState
sys.setswitchinterval(1e-5)
@dataclasses.dataclass
class Msg:
    text: str
    at: object
log, table = [], {}
def agent():
    i = 0
    while True:
        i += 1
        at = datetime.datetime(2020, 1, 1 + i % 28)
        log.append(MAKE)
        table[i] = table[str(i)] = at
        if len(log) > 2000:
            log.clear()
            table.clear()
threading.Thread(target=agent, daemon=True).start()
end = time.monotonic() + 3
while time.monotonic() < end:
    for state in ({"log": log}, {"log": log, "table": table, "t": (1,)}):
        try:
            encode(state)
            pieces(state, lambda tree, dumps: delta.shadow(tree, dumps, expand))
        except UnserialisableState as error:
            assert "was changed by another thread while it was saved" in str(error), error
sys.stdout.write("done")
sys.stdout.flush()
import os
os._exit(0)
"""


@pytest.mark.parametrize("make", ["at", "Msg('x' * 50, at)", "{'at': at, 't': (1,)}"])
def test_thread_that_changes_the_state_crashes_nothing(make: str) -> None:
    """Lists and dicts that grow and are cleared meanwhile: saved or refused."""
    ran = subprocess.run(
        [sys.executable, "-c", RACE.replace("MAKE", make)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, "done"), ran.stderr[-2000:]


def test_orjson_never_calls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What orjson has borrowed could be freed while Python code runs."""
    real = orjson.dumps

    def dumps(part: object, default: object = None, option: int = 0) -> bytes:
        assert default is None
        return real(part, None, option)

    class Guarded:
        def __getattr__(self, name: str) -> Any:
            return dumps if name == "dumps" else getattr(orjson, name)

    monkeypatch.setattr(codec, "orjson", Guarded())
    for value in VALUES.values():
        encode([value, Point(value), {"a": value}])


class Meddler:
    """Stands for another thread: what its codec does happens in the middle of a walk."""

    act: Callable[[], object] = staticmethod(lambda: None)


def _meddle(_: Meddler) -> int:
    Meddler.act()
    return 1


register_codec(Meddler, name="test-meddler", encode=_meddle, decode=lambda _: Meddler())


def _grow(holder: Any) -> None:
    if type(holder) is list:
        holder.append(0)
    else:
        holder[f"new{len(holder)}"] = 0


def _shrink(holder: Any) -> None:
    if type(holder) is list:
        holder.pop()
    else:
        holder.popitem()


@pytest.mark.parametrize("change", [_grow, _shrink])
@pytest.mark.parametrize("long", [6, 500])
@pytest.mark.parametrize("kind", ["list", "dict", "int keys"])
def test_change_of_size_during_the_walk_is_refused(
    kind: str, long: int, change: Callable[[Any], None]
) -> None:
    """A list or dict that shrinks or grows at each try: one typed error, with its path."""
    holder: Any = [1] * long
    if kind != "list":
        holder = {(str(i) if kind == "dict" else i): i for i in range(long)}
    holder["0" if kind == "dict" else 0] = Meddler()
    Meddler.act = staticmethod(lambda: change(holder))
    try:
        with pytest.raises(
            UnserialisableState, match=r"^\$\.h: was changed by another thread while it was saved"
        ):
            encode({"h": holder})
    finally:
        Meddler.act = staticmethod(lambda: None)


def test_dict_that_changes_under_build_is_encoded_from_a_copy() -> None:
    """A writer that goes member by member does not stumble over a dict that grows."""
    state: dict[str, Any] = {"a": {"x": 1}, "b": {"y": 2}}

    def build(tree: Any, dumps: Callable[[object], bytes]) -> delta.Shadow:
        def grow(part: object, _like: bytes = b"", /) -> bytes:
            state[f"new{len(state)}"] = 1
            return dumps(part)

        return delta.shadow(tree, grow, expand)

    node, tagged, _ = pieces(state, build)
    assert not tagged
    assert list(orjson.loads(delta.joined(node)))[:2] == ["a", "b"]


def test_object_that_appears_under_build_is_tagged() -> None:
    """An object put in after the scan: the value counts as tagged, as what it is."""
    state: dict[str, Any] = {"a": 1, "b": {"y": 2}}

    def build(tree: Any, dumps: Callable[[object], bytes]) -> delta.Shadow:
        def put(part: object, _like: bytes = b"", /) -> bytes:
            state["b"] = Point(1)
            return dumps(part)

        return delta.shadow(tree, put, expand, {"a": b"1", "b": {"y": b"2"}})

    node, tagged, _ = pieces(state, build)
    assert decode(delta.joined(node), tagged) == {"a": 1, "b": Point(1)}


@dataclasses.dataclass
class Stamp:
    at: Any


class Temporary:
    """Its codec makes objects that live no longer than one try."""

    def __init__(self, number: int) -> None:
        self.number = number


register_codec(
    Temporary,
    name="test-temporary",
    encode=lambda value: {
        "at": dt.datetime.fromtimestamp(value.number, dt.UTC),
        "stamp": Stamp(value.number),
        "pos": (value.number, 0),
    },
    decode=lambda content: Temporary(int(content["at"].timestamp())),  # type: ignore[index]
)


@pytest.mark.parametrize("count", [10, 65, 1000])
def test_objects_that_a_codec_makes_for_the_moment_are_not_mixed_up(count: int) -> None:
    """Python gives the address of a freed object to the next one: no form may be found by it."""
    data, tagged, _ = encode([Temporary(number) for number in range(count)])
    back: Any = decode(data, tagged)
    assert [item.number for item in back] == list(range(count))
    stored = [item["$object"]["value"]["stamp"] for item in orjson.loads(data)]
    assert [item["$object"]["value"]["at"] for item in stored] == list(range(count))
