"""Values, types and a strict comparison that all tests of the codec share."""

# ruff: noqa: DTZ001, DTZ901, PIE796
# Times without a zone and an Enum with an alias are among what has to come back exactly.

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import ipaddress
import math
import pathlib
import random
import re
import struct
import uuid
import zoneinfo
from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import numpy
import pydantic

T = TypeVar("T")


@dataclasses.dataclass
class Point:
    x: object
    y: object = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    name: str
    parts: tuple[object, ...] = ()


@dataclasses.dataclass(slots=True)
class Slotted:
    a: object = None
    b: object = 0


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Key:
    a: int
    b: str = ""


@dataclasses.dataclass
class Derived(Point):
    z: object = 0


@dataclasses.dataclass
class NoInit:
    a: int
    seen: int = dataclasses.field(default=0, init=False)
    kind: object = dataclasses.field(default="k", kw_only=True)


class Colour(enum.Enum):
    RED = 1
    GREEN = "green"
    CRIMSON = 1
    CALL = (print,)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Role(enum.StrEnum):
    USER = "user"
    TOOL = "tool"


class Access(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


class Bits(enum.IntFlag):
    A = 1
    B = 2


class Outer:
    class Phase(enum.Enum):
        START = "start"

    @dataclasses.dataclass
    class Inner:
        v: object


class Pair(NamedTuple):
    left: object
    right: object = None


Triple = collections.namedtuple("Triple", "a b c", defaults=[3])


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)

    value: Any = None
    name: str = "n"
    phase: Outer.Phase = Outer.Phase.START
    _hidden: Any = pydantic.PrivateAttr(default=None)


class Loose(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")

    a: int = 1


class FrozenModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)

    a: Any = 1


class Box(pydantic.BaseModel, Generic[T]):
    item: T


IntBox = Box[int]


class Root(pydantic.RootModel[list[int]]):
    pass


class Lazy(pydantic.BaseModel):
    a: int = 1

    @cached_property
    def double(self) -> object:
        return (self.a * 2,)


@pydantic.dataclasses.dataclass
class Checked:
    a: int
    b: object = None


def same(a: Any, b: Any) -> bool:
    """Whether two values are the same in every respect that a program can see, and types."""
    if type(a) is not type(b):
        return False
    kind = type(a)
    if kind is float:
        return struct.pack("d", a) == struct.pack("d", b)
    if kind is complex:
        return same(a.real, b.real) and same(a.imag, b.imag)
    if kind in (list, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if kind is collections.deque:
        return a.maxlen == b.maxlen and same(list(a), list(b))
    if isinstance(a, dict):
        if kind is collections.defaultdict and a.default_factory is not b.default_factory:
            return False
        return same([list(item) for item in a.items()], [list(item) for item in b.items()])
    if kind in (set, frozenset):
        rest = list(b)
        for item in a:
            for index, other in enumerate(rest):
                if same(item, other):
                    del rest[index]
                    break
            else:
                return False
        return not rest
    if kind in (dt.datetime, dt.time):
        bare = {"tzinfo": None, "fold": 0}
        return (
            a.replace(**bare) == b.replace(**bare) and a.fold == b.fold and same(a.tzinfo, b.tzinfo)
        )
    if kind is dt.timezone:
        return a.__getinitargs__() == b.__getinitargs__()  # type: ignore[attr-defined]
    if kind is zoneinfo.ZoneInfo:
        return a is b
    if kind is decimal.Decimal:
        return str(a) == str(b)
    if kind is uuid.UUID:
        return a == b and a.is_safe is b.is_safe
    if kind is range:
        return (a.start, a.stop, a.step) == (b.start, b.stop, b.step)
    if isinstance(a, enum.Enum):
        return a is b
    if kind is numpy.ndarray:
        return (
            a.dtype == b.dtype
            and a.dtype.str == b.dtype.str
            and a.shape == b.shape
            and a.flags.f_contiguous == b.flags.f_contiguous
            and a.tobytes() == b.tobytes()
        )
    if isinstance(a, numpy.generic):
        if isinstance(a, (str, bytes)):
            return a[:] == b[:] and len(a) == len(b)
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, tuple):
        return same(tuple(a), tuple(b))
    if isinstance(a, pydantic.BaseModel):
        return all(
            same(getattr(a, name), getattr(b, name))
            for name in (
                "__dict__",
                "__pydantic_fields_set__",
                "__pydantic_extra__",
                "__pydantic_private__",
            )
        )
    if dataclasses.is_dataclass(a):
        names = [field.name for field in dataclasses.fields(a)]
        return all(same(getattr(a, name), getattr(b, name)) for name in names)
    return bool(a == b)


def model(value: object, hidden: object = None) -> Model:
    made = Model(value=value)
    made._hidden = hidden
    return made


def _moved() -> collections.OrderedDict[str, int]:
    made = collections.OrderedDict(a=1, b=2, c=3)
    made.move_to_end("a")
    return made


def _lazy() -> Lazy:
    made = Lazy()
    assert made.double == (2,)
    return made


def _float(bits: str) -> float:
    value: float = struct.unpack(">d", bytes.fromhex(bits))[0]
    return value


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
NAMED = dt.timezone(dt.timedelta(hours=2), "summer")
ODD = dt.timezone(-dt.timedelta(hours=3, minutes=30, seconds=7, microseconds=5))

VALUES: dict[str, object] = {
    "none": None,
    "true": True,
    "int": -7,
    "int 2**53+1": 2**53 + 1,
    "int -2**63": -(2**63),
    "int -2**63-1": -(2**63) - 1,
    "int 2**64-1": 2**64 - 1,
    "int 2**64": 2**64,
    "int of 31 digits": 10**30,
    "int of 5,000 digits": -(10**5000) + 7,
    "float": 0.1 + 0.2,
    "float -0.0": -0.0,
    "float smallest": 5e-324,
    "float largest": 1.7976931348623157e308,
    "float whole": 1e16,
    "nan": math.nan,
    "nan negative": _float("fff8000000000000"),
    "nan with a payload": _float("7ff8dead0000beef"),
    "inf": math.inf,
    "-inf": -math.inf,
    "text empty": "",
    "text": "Grüße, 世界 \U0001f378 \x00 \x7f \u2028",
    "text lone surrogate": "a\ud83d\\b \\ud83d",
    "text surrogate pair as two": "\ud83c\udf78",
    "text like a tag": "$tuple",
    "list empty": [],
    "list mixed": [1, 1.0, True, None, "1", [1], {"1": 1}],
    "list long": list(range(100)),
    "list of floats with nan": [0.5] * 50 + [math.nan],
    "list of huge floats": [1.7e308] * 40,
    "list of rows": [{"a": i, "b": str(i), "c": None, "d": [i]} for i in range(100)],
    "list of rows, one with a tuple": [{"a": i} for i in range(100)] + [{"a": (1,)}],
    "list of rows, one with 2**70": [{"a": i, "b": 0} for i in range(100)] + [{"a": 2**70}],
    "dict empty": {},
    "dict order": {"b": 1, "a": 2},
    "dict int keys": {25: 1, "25": 2},
    "dict None key": {None: 1},
    "dict bool key": {True: 1, "true": 2},
    "dict float key": {1.5: 1, -0.0: 2},
    "dict tuple key": {(1, (2,)): [1]},
    "dict key lone surrogate": {"\udc80": 1, "a": 2},
    "dict like a tag": {"$tuple": [1]},
    "dict like an unknown tag": {"$x": 1},
    "dict like an object": {"$object": {"type": "os:system", "kind": "dataclass", "value": {}}},
    "dict with a tag and more": {"$tuple": [1], "b": 2},
    "dict with $ alone": {"$": {"$": {"$$": 1}}},
    "dict with an empty key": {"": 1},
    "tuple empty": (),
    "tuple nested": (1, (2, [3, (4,)]), "a"),
    "set empty": set(),
    "set mixed": {1, "1", (1,), None, 2.5, b"x"},
    "frozenset": frozenset({frozenset({1}), frozenset()}),
    "bytes": b"%PDF\xff\xfe\x00",
    "bytes empty": b"",
    "bytearray": bytearray(b"\x00\xff"),
    "datetime": dt.datetime(2026, 11, 29, 16, 36, 48, 617746),
    "datetime min": dt.datetime.min,
    "datetime utc": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    "datetime odd offset": dt.datetime(2026, 1, 1, 1, tzinfo=ODD),
    "datetime fold": dt.datetime(2026, 10, 25, 2, 30, fold=1),
    "datetime zone": dt.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN),
    "datetime zone fold": dt.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
    "datetime named zone": dt.datetime(2026, 1, 1, tzinfo=NAMED),
    "date": dt.date(1, 1, 1),
    "time": dt.time(23, 59, 59, 999999),
    "time fold": dt.time(1, 2, tzinfo=BERLIN, fold=1),
    "time utc": dt.time(1, 2, tzinfo=dt.UTC),
    "timedelta": dt.timedelta(days=-1, microseconds=1),
    "timedelta max": dt.timedelta.max,
    "timezone": ODD,
    "timezone named": NAMED,
    "timezone utc named": dt.timezone(dt.timedelta(0), "UTC"),
    "zoneinfo": BERLIN,
    "decimal": decimal.Decimal("1.10"),
    "decimal -0": decimal.Decimal("-0E-7"),
    "decimal exponent": decimal.Decimal("1E+999999"),
    "decimal nan": decimal.Decimal("-NaN123"),
    "decimal inf": decimal.Decimal("-Infinity"),
    "uuid": uuid.UUID(int=5),
    "uuid safe": uuid.UUID(int=5, is_safe=uuid.SafeUUID.safe),
    "complex": complex(-0.0, math.nan),
    "range": range(0, 10**30, 7),
    "range equal to another": range(0, 4, 2),
    "path": pathlib.Path("a/b c"),
    "path empty": pathlib.Path(),
    "path pure": pathlib.PurePosixPath("/x"),
    "path windows": pathlib.PureWindowsPath("c:\\x"),
    "path not utf-8": pathlib.Path("/\udcff"),
    "pattern": re.compile("a(?i:b)", re.MULTILINE),
    "pattern of bytes": re.compile(rb"\xff", re.LOCALE),
    "ip address": ipaddress.IPv4Address("10.0.0.1"),
    "ip network": ipaddress.IPv6Network("fe80::/64"),
    "ip interface with a scope": ipaddress.IPv6Interface("fe80::1%eth0/64"),
    "deque": collections.deque([1, (2,)], 3),
    "deque unbounded": collections.deque(),
    "ordereddict": _moved(),
    "defaultdict": collections.defaultdict(list, {"a": [1]}),
    "defaultdict without factory": collections.defaultdict(None, {1: 2}),
    "counter": collections.Counter("hello"),
    "counter odd": collections.Counter({(1,): -1, "a": 0.5}),
    "enum": Colour.GREEN,
    "enum alias": Colour.CRIMSON,
    "enum with a function": Colour.CALL,
    "enum in a class": Outer.Phase.START,
    "intenum": Level.HIGH,
    "strenum": Role.TOOL,
    "flag": Access.READ,
    "flag composite": Access.READ | Access.RUN,
    "flag none": Access(0),
    "intflag": Bits.A | Bits.B,
    "intflag unnamed bits": Bits(9),
    "namedtuple": Pair((1,), None),
    "collections.namedtuple": Triple(1, [2]),
    "dataclass": Point(1, {"a": (1,)}),
    "dataclass frozen": Frozen("n", (1, Frozen("m"))),
    "dataclass slots": Slotted([1], 2**70),
    "dataclass frozen slots": Key(1, "b"),
    "dataclass derived": Derived(1, 2, 3),
    "dataclass no init": NoInit(1),
    "dataclass in a class": Outer.Inner(1),
    "dataclass of pydantic": Checked(1, [2]),
    "model": Model(value=[1]),
    "model private": model(1, (2,)),
    "model all defaults": Model(),
    "model extra": Loose.model_validate({"a": 2, "$b": (3,), "c d": 4}),
    "model constructed": Model.model_construct(name=5),  # type: ignore[arg-type]
    "model frozen": FrozenModel(a=(1,)),
    "model generic": IntBox(item=1),
    "model root": Root([1, 2]),
    "model cached property": _lazy(),
    "ndarray": numpy.arange(6, dtype="<f8").reshape(2, 3),
    "ndarray F": numpy.asfortranarray(numpy.arange(6).reshape(2, 3)),
    "ndarray big endian": numpy.arange(3, dtype=">i4"),
    "ndarray 0-d": numpy.array(5),
    "ndarray empty": numpy.zeros((0, 3)),
    "ndarray nan": numpy.array([math.nan, -0.0]),
    "ndarray text": numpy.array(["a", "bc"]),
    "ndarray bytes": numpy.array([b"a", b"bc"]),
    "ndarray times": numpy.array(["2026-01-01", "NaT"], dtype="M8[ns]"),
    "ndarray bool": numpy.array([True, False]),
    "numpy float64": numpy.float64(0.1),
    "numpy float32": numpy.float32(0.1),
    "numpy int64": numpy.int64(-1),
    "numpy bool": numpy.bool_(True),
    "numpy str": numpy.str_("a\x00"),
    "numpy bytes": numpy.bytes_(b"a\x00"),
    "numpy datetime64": numpy.datetime64("2026-01-01T00:00", "m"),
    "numpy complex": numpy.complex64(1 + 2j),
}


def hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


# --- random states ----------------------------------------------------------------------------

_LEAVES = list(VALUES.values())
_KEYS = [value for value in _LEAVES if hashable(value)]
_NAMES = ["a", "b", "$tuple", "$dict", "$x", "$", "two words", "role", "content", "\u00e9", ""]


def _row(rng: random.Random, depth: int) -> object:
    row: dict[str, object] = {"role": "user", "content": rng.choice("abc"), "n": rng.random()}
    if rng.random() < 0.1:
        row["extra"] = random_state(rng, depth - 1)
    return row


_SHAPES: list[Callable[[random.Random, int, list[Any]], object]] = [
    lambda rng, depth, parts: parts,
    lambda rng, depth, parts: parts,
    lambda rng, depth, parts: {rng.choice(_NAMES): part for part in parts},
    lambda rng, depth, parts: {rng.choice(_NAMES): part for part in parts},
    lambda rng, depth, parts: {rng.choice(_NAMES): part for part in parts[:1]},
    lambda rng, depth, parts: {rng.choice(_KEYS): part for part in parts},
    lambda rng, depth, parts: tuple(parts),
    lambda rng, depth, parts: {part for part in parts if hashable(part)},
    lambda rng, depth, parts: frozenset(part for part in parts if hashable(part)),
    lambda rng, depth, parts: collections.deque(parts, rng.choice([None, 5, 100])),
    lambda rng, depth, parts: collections.OrderedDict((i, part) for i, part in enumerate(parts)),
    lambda rng, depth, parts: collections.defaultdict(dict, {str(part): part for part in "ab"}),
    lambda rng, depth, parts: Point(parts, parts[0] if parts else None),
    lambda rng, depth, parts: Slotted(parts),
    lambda rng, depth, parts: Pair(parts, tuple(parts)),
    lambda rng, depth, parts: model(parts, parts[:1]),
    lambda rng, depth, parts: Loose.model_validate({"$x": parts}),
    lambda rng, depth, parts: [_row(rng, depth) for _ in range(rng.choice([2, 20, 90]))],
]


def random_state(rng: random.Random, depth: int = 4) -> object:
    """A value of random shape, with tag-shaped dicts and every kind of leaf."""
    if depth <= 0 or (depth < 4 and rng.random() < 0.25):
        return rng.choice(_LEAVES)
    parts = [random_state(rng, depth - 1) for _ in range(rng.randrange(4))]
    return rng.choice(_SHAPES)(rng, depth, parts)
