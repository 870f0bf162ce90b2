"""What cannot be kept exactly is refused before anything is written, with its path."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime as dt
import enum
import inspect
import io
import itertools
import pathlib
import re
import sys
import threading
import traceback
import types
import zoneinfo
from typing import Any, NamedTuple

import numpy
import orjson
import pydantic
import pytest

from caravanserai_core.codec import decode, encode, register_codec, register_type
from caravanserai_core.errors import CaravanseraiError, UnserialisableState, UsageError
from integration_tests.codec.values import BERLIN, Colour, Model, Pair, Point, Slotted, model, same

with contextlib.redirect_stdout(io.StringIO()):
    DEBUGGING = re.compile("a", re.DEBUG)


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Real(float):
    pass


class Items(list[object]):
    pass


class Mapping(dict[str, object]):
    pass


class Moment(dt.datetime):
    pass


class Unhashable(type):
    __hash__ = None  # type: ignore[assignment]

    def __eq__(cls, other: object) -> bool:
        return True


class Strange(metaclass=Unhashable):
    pass


@dataclasses.dataclass
class IsDict(dict):  # type: ignore[type-arg]
    x: int = 1


@dataclasses.dataclass
class IsError(Exception):
    x: int = 1


class Pair2(NamedTuple):
    a: int


class Wider(Pair2):
    pass


class Tz(dt.tzinfo):
    def utcoffset(self, when: object) -> dt.timedelta:
        return dt.timedelta(0)


class WithSecret(pydantic.BaseModel):
    token: pydantic.SecretStr


class Finalised(Point):
    def __del__(self) -> None:
        pass


class Hidden:
    __slots__ = ("secret",)


@dataclasses.dataclass(slots=True)
class Covers(Hidden):
    a: int = 1


@dataclasses.dataclass
class Computed:
    a: int

    @property  # type: ignore[no-redef]
    def a(self) -> int:
        return 5

    @a.setter
    def a(self, value: int) -> None:
        pass


class Tool:
    def __init__(self) -> None:
        self.lock = threading.RLock()


def _local() -> object:
    @dataclasses.dataclass
    class Local:
        a: int = 1

    return Local()


def _local_member() -> object:
    return enum.Enum("Nowhere", "A").A  # type: ignore[attr-defined]


def _renamed() -> object:
    @dataclasses.dataclass
    class Point:
        x: int = 1

    Point.__qualname__ = "Point"  # another class has this name in this module
    return Point()


def _with(value: Any, **attributes: object) -> Any:
    for name, item in attributes.items():
        object.__setattr__(value, name, item)
    return value


def _empty(cls: type) -> Any:
    return object.__new__(cls)


def _deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def _structured() -> object:
    return numpy.zeros(2, dtype=[("a", "i4"), ("b", "f8")])


REFUSED: dict[str, tuple[object, str, str]] = {
    "object": ({"a": [{"b": object()}]}, "$.a[0].b", "object"),
    "function": ([1, len], "$[1]", "builtin_function_or_method"),
    "lambda": ({"two words": [lambda: 1]}, '$["two words"][0]', "function"),
    "class": ({"a": int}, "$.a", "type"),
    "module": ((1, types), "$[1]", "module"),
    "generator": ({"g": (i for i in ())}, "$.g", "generator"),
    "iterator": ({1: iter([])}, "$[1]", "list_iterator"),
    "lock": (Point(threading.Lock()), "$.x", "lock"),
    "tool with a lock": ({"tool": Tool()}, "$.tool", "Tool"),
    "file": ({"f": io.StringIO()}, "$.f", "StringIO"),
    "pattern that prints itself": ([DEBUGGING], "$[0]", "DEBUG"),
    "exception": ([ValueError("x")], "$[0]", "ValueError"),
    "ellipsis": ([...], "$[0]", "ellipsis"),
    "memoryview": ([memoryview(b"a")], "$[0]", "memoryview"),
    "fragment of orjson": ([orjson.Fragment(b"1")], "$[0]", "Fragment"),
    "str subclass": ({"a": Text("x")}, "$.a", "Text"),
    "int subclass": ({"a": Number(1)}, "$.a", "Number"),
    "float subclass": ({"a": Real(1)}, "$.a", "Real"),
    "list subclass": ({"a": Items()}, "$.a", "Items"),
    "dict subclass": ({"a": Mapping()}, "$.a", "Mapping"),
    "datetime subclass": ({"a": Moment(2026, 1, 1)}, "$.a", "Moment"),
    "unhashable class": ({"a": Strange()}, "$.a", "Strange"),
    "unhashable class beside a tuple": ([(1,), Strange()], "$[1]", "Strange"),
    "class as a key": ({"m": {int: 1}}, "$.m", "type"),
    "object as a key": ([{(1, object()): 2}], "$[0]", "object"),
    "str subclass as a key": ({"m": {Text("x"): 1}}, "$.m", "Text"),
    "object in a set": ({"s": {1, object()}}, "$.s[*]", "object"),
    "object in a deque": ({"d": collections.deque([1, object()])}, "$.d[1]", "object"),
    "object in an OrderedDict": ([collections.OrderedDict(a=object())], "$[0].a", "object"),
    "object in a defaultdict": (
        [collections.defaultdict(list, {"a": object()})],
        "$[0].a",
        "object",
    ),
    "object in a dict with int keys": ({1: {"x": object()}}, "$[1].x", "object"),
    "object under a strange key": ({(1,): object()}, "$[<tuple>]", "object"),
    "object in a dict like a tag": ({"$tuple": object()}, '$["$tuple"]', "object"),
    "object in slots": ([Slotted(1, object())], "$[0].b", "object"),
    "object in a named tuple": ([Pair(1, object())], "$[0].right", "object"),
    "object in a model": ([Model(value=[object()])], "$[0].value[0]", "object"),
    "object in a private attribute": ([model(1, object())], "$[0]._hidden", "object"),
    "object in a long list": ([{"a": 1}] * 300 + [{"a": object()}], "$[300].a", "object"),
    "factory of a defaultdict": ([collections.defaultdict(lambda: 0)], "$[0]", "defaultdict"),
    "attribute of an OrderedDict": (
        [_with(collections.OrderedDict(), x=1)],
        "$[0]",
        "OrderedDict",
    ),
    "attribute of a Counter": ([_with(collections.Counter(), x=1)], "$[0]", "Counter"),
    "attribute of a dataclass": ({"p": _with(Point(1), more=2)}, "$.p", "more"),
    "slot of a base class": ({"p": _with(Covers(), secret=2)}, "$.p", "secret"),
    "computed field of a dataclass": ({"p": Computed(1)}, "$.p", "computes"),
    "missing field of a dataclass": ({"p": _empty(Slotted)}, "$.p", "a"),
    "attribute of a model": ([_with(Model(), more=2)], "$[0]", "more"),
    "model never initialised": ([_empty(Model)], "$[0]", "Model"),
    "model without a field": ([Model.model_construct()], "", ""),
    "attribute of a named tuple": ([_with(Wider(1), x=2)], "$[0]", "Wider"),
    "dataclass that is a dict": ([IsDict()], "$[0]", "IsDict"),
    "dataclass that is an exception": ([IsError()], "$[0]", "IsError"),
    "dataclass with __del__": ([Finalised(1)], "$[0]", "Finalised"),
    "local dataclass": ([_local()], "$[0]", "register_type(cls, name="),
    "enum that is not found": ([_local_member()], "$[0]", "register_type(cls, name="),
    "dataclass under a name of another": ([_renamed()], "$[0]", "register_type(cls, name="),
    "unknown tzinfo": ({"d": dt.datetime(2026, 1, 1, tzinfo=Tz())}, "$.d.tz", "Tz"),
    "zone from no cache": ([zoneinfo.ZoneInfo.no_cache("Europe/Berlin")], "$[0]", "ZoneInfo"),
    "int of too many digits": ({"n": 1 << 4_000_001}, "$.n", "1,000,000"),
    "object array": ({"x": numpy.array([object()])}, "$.x", "numpy"),
    "structured array": ({"x": _structured()}, "$.x", "numpy"),
    "masked array": ({"x": numpy.ma.array([1])}, "$.x", "MaskedArray"),
    "record array": ({"x": numpy.zeros(2).view(numpy.recarray)}, "$.x", "recarray"),
    "void scalar": ({"x": numpy.void(b"ab")}, "$.x", "numpy"),
    "too deep": (_deep(201), "$" + "[0]" * 200, "limit 200"),
    "much too deep": (_deep(100_000), "$" + "[0]" * 200, "limit 200"),
    "itertools": ({"c": itertools.count()}, "$.c", "itertools.count"),
}
del REFUSED["model without a field"]


@pytest.mark.parametrize("name", REFUSED)
def test_value_is_refused_with_its_path(name: str) -> None:
    """Each of these is refused with its exact path and with its type or attribute in the text."""
    value, path, told = REFUSED[name]
    with pytest.raises(UnserialisableState) as caught:
        encode(value)
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ")
    assert told in str(caught.value)


def test_model_without_a_value_for_a_field_is_refused() -> None:
    """A model made without a required field is refused, with the field's name."""

    with pytest.raises(UnserialisableState, match=r"^\$\.m: .*WithSecret.* field token"):
        encode({"m": WithSecret.model_construct()})


def test_circular_reference_names_where_it_closes() -> None:
    """A state that contains itself is refused with the path at which the circle closes."""
    simple: dict[str, object] = {}
    simple["self"] = simple
    through: dict[str, object] = {"a": [1, {"b": Point(None)}]}
    through["a"][1]["b"].x = (through,)  # type: ignore[index]
    own: list[object] = []
    own.append(own)
    node = Point(1)
    node.y = [node]
    for value, path in (
        (simple, "$.self"),
        (through, "$.a[1].b.x[0]"),
        (own, "$[0]"),
        ({"n": node}, "$.n.y[0]"),
    ):
        with pytest.raises(UnserialisableState, match="circular") as caught:
            encode(value)
        assert caught.value.path == path


def test_wide_circular_reference_is_refused_at_once() -> None:
    """Two ways round at each level do not make the search double at each level."""
    value: dict[str, object] = {}
    value["a"] = value
    value["b"] = [value, value]
    with pytest.raises(UnserialisableState, match="circular"):
        encode(value)


def test_two_hundred_levels_are_kept() -> None:
    """The limit is exact: 200 levels of JSON are kept, tags and objects included."""
    tuples: object = 1
    for _ in range(100):
        tuples = (tuples,)
    points: object = [1]
    for _ in range(66):
        points = Point(points)
    for value in (_deep(200), tuples, [points]):
        assert same(decode(*encode(value)), value)
    for value in (_deep(201), [tuples], [[points]], Point(points)):
        with pytest.raises(UnserialisableState, match="limit 200"):
            encode(value)


def test_limit_is_the_same_with_and_without_a_trap() -> None:
    """A state is not deeper for the fast encoder than for the explicit one."""
    for levels in range(195, 206):
        plain = _fits([_deep(levels - 1)])
        trapped = _fits([_deep(levels - 1), (1,)])
        assert plain == trapped == (levels <= 200)


def test_limit_holds_in_long_lists_and_for_shared_objects() -> None:
    """Neither the shortcut for lists of dicts nor an object met before hides the depth."""
    for levels in range(190, 204):
        assert _fits([{"a": _deep(levels - 2)}] * 20) == (levels <= 200)
        assert _fits([{"a": _deep(levels - 2), "b": 1}] * 20 + [{"b": (1,)}]) == (levels <= 200)
    shared = Point(_deep(100))
    wrapped: object = shared
    for _ in range(96):
        wrapped = [wrapped]
    assert _fits([shared, wrapped, shared])
    assert not _fits([shared, [wrapped], shared])
    assert not _fits([[wrapped], shared])


def _fits(value: object) -> bool:
    try:
        data, tagged, _ = encode(value)
    except UnserialisableState:
        return False
    assert same(decode(data, tagged), value)
    return True


@pytest.mark.parametrize(
    "make",
    [
        lambda secret: {"key": pydantic.SecretStr(secret)},
        lambda secret: {"key": pydantic.SecretBytes(secret.encode())},
        lambda secret: {"key": pydantic.Secret[str](secret)},
        lambda secret: [WithSecret(token=secret)],
        lambda secret: {pydantic.SecretStr(secret): 1},
        lambda secret: Point((1, [WithSecret(token=secret)])),
    ],
)
def test_secret_is_refused_and_told_nowhere(make: Any) -> None:
    """A secret is refused; its value is not in the error, its causes or its traceback's text."""
    secret = "hunter2"[::-1]  # the traceback shows this line
    with pytest.raises(UnserialisableState, match="not declared") as caught:
        encode(make(secret))
    text = "".join(traceback.format_exception(caught.value)) + repr(caught.value.args)
    assert secret not in text
    assert caught.value.__cause__ is None


def test_messages_hold_no_values() -> None:
    """An error tells types and paths, never what a value looks like."""

    class Loud:
        def __repr__(self) -> str:
            raise AssertionError("asked for its repr")

        __str__ = __repr__

    with pytest.raises(UnserialisableState, match="Loud"):
        encode({"a": [(1, Loud())], "b": Point(Loud())})


def test_long_and_strange_keys_are_shortened_in_paths() -> None:
    """A key of 10,000 characters or with control characters does not flood the message."""
    for key in ("k" * 10_000, "a b" * 5_000, "line\nbreak \x1b[31m", '"quoted" key'):
        with pytest.raises(UnserialisableState) as caught:
            encode({key: object()})
        assert len(str(caught.value)) < 400
        assert str(caught.value).isprintable()


def test_state_that_changes_while_it_is_saved_gives_a_typed_error() -> None:
    """A codec that changes the dict around its object does not end in a bare RuntimeError."""

    class Sly:
        pass

    state: dict[str, object] = {}

    def grow(value: object) -> object:
        state[f"k{len(state)}"] = 1
        return "x"

    register_codec(Sly, name="test-sly", encode=grow, decode=lambda content: Sly())
    state["a"] = Sly()
    for other in (None, (1,), "\ud800"):
        state["b"] = other
        with pytest.raises(CaravanseraiError):
            encode(state)


def test_codec_that_fails_is_named() -> None:
    """An error in an adapter's codec comes out as a typed error with path, type and cause."""

    class Broken:
        pass

    def fail(value: object) -> object:
        raise LookupError("inner")

    register_codec(Broken, name="test-broken", encode=fail, decode=lambda content: Broken())
    with pytest.raises(UnserialisableState, match=r"Broken.*LookupError") as caught:
        encode({"a": [Broken()]})
    assert caught.value.path == "$.a[0]"
    assert isinstance(caught.value.__cause__, LookupError)


def test_codec_without_an_end_is_refused() -> None:
    """A codec that answers with another object of its class for ever is stopped by the limit."""

    class Endless:
        pass

    register_codec(
        Endless, name="test-endless", encode=lambda v: [Endless()], decode=lambda c: Endless()
    )
    with pytest.raises(UnserialisableState, match="limit 200"):
        encode(Endless())


def test_little_room_on_the_stack_gives_a_typed_error() -> None:
    """A caller that is itself deep in calls gets a typed error, not a RecursionError."""

    def call(levels: int) -> object:
        return call(levels - 1) if levels else encode(_deep(150))

    room = sys.getrecursionlimit() - len(inspect.stack(0))
    refused = 0
    for levels in range(room - 170, room - 40, 10):
        try:
            call(levels)
        except UnserialisableState:
            refused += 1
    assert refused > 5


@pytest.mark.parametrize(
    "call",
    [
        lambda: register_type("Point"),
        lambda: register_type(Point, name=""),
        lambda: register_type(Point, aliases=[3]),
        lambda: register_type(type(_local())),
        lambda: register_codec(dict, name="d", encode=list, decode=dict),
        lambda: register_codec(tuple, name="t", encode=list, decode=tuple),
        lambda: register_codec(pathlib.PosixPath, name="p", encode=str, decode=pathlib.PosixPath),
        lambda: register_codec(pydantic.SecretStr, name="s", encode=str, decode=pydantic.SecretStr),
        lambda: register_codec(numpy.ndarray, name="n", encode=list, decode=numpy.array),
        lambda: (
            register_type(Point, aliases=["test-taken"]),
            register_type(Pair, aliases=["test-taken"]),
        ),
    ],
)
def test_wrong_registration_is_refused(call: Any) -> None:
    """A name that is none, belongs to another class, or is not needed, is refused."""
    with pytest.raises(UsageError):
        call()


def test_members_that_are_no_members_are_refused() -> None:
    """An Enum object that its class does not list is refused."""
    ghost = object.__new__(Colour)
    ghost._name_, ghost._value_ = "GHOST", 9
    with pytest.raises(UnserialisableState, match="Colour"):
        encode([ghost])


def test_zone_inside_a_datetime_must_be_findable() -> None:
    """A datetime whose zone would not be found again is refused; one whose zone is, is kept."""
    private = zoneinfo.ZoneInfo.no_cache("Europe/Berlin")
    with pytest.raises(UnserialisableState):
        encode(dt.datetime(2026, 1, 1, tzinfo=private))
    encode(dt.datetime(2026, 1, 1, tzinfo=BERLIN))
