"""What the codec takes for granted about orjson and about its own cost."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import os
import subprocess
import sys
import uuid
from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import numpy
import orjson
import pytest

from integration_tests.codec.values import Access, Colour, Level, Model, Pair, Point, Role
from integration_tests.support import ROOT

OPTIONS = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)


class Word(str):
    __slots__ = ()


class Counted(NamedTuple):
    a: int


class Id(uuid.UUID):
    pass


class Row(dict):  # type: ignore[type-arg]
    pass


@dataclasses.dataclass(slots=True)
class Slim:
    a: int = 1


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ((1,), b"[1]"),
        (math.nan, b"null"),
        (-math.inf, b"null"),
        (Colour.GREEN, b'"green"'),
        (Level.HIGH, b"2"),
        (Role.USER, b'"user"'),
        (Access.READ, b"1"),
        (uuid.UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
        (orjson.Fragment(b"{"), b"{"),
    ],
)
def test_orjson_changes_these_silently(value: object, written: bytes) -> None:
    """These are why the scan exists: orjson writes each as something else without a word."""
    assert orjson.dumps(value, lambda item: pytest.fail("asked"), OPTIONS) == written


@pytest.mark.parametrize(
    "value",
    [
        Pair(1), Counted(1), Point(1), Slim(), Model(), Word("x"), Row(), OrderedDict(),
        defaultdict(list), b"x", bytearray(b"x"), memoryview(b"x"), {1}, frozenset(), 1j, range(2),
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.date(2026, 1, 1), dt.time(1), dt.timedelta(1),
        dt.UTC, Id(int=1), numpy.float64(1), numpy.str_("x"), numpy.zeros(1), numpy.int64(1),
        numpy.bool_(True), int, len, ..., object(), iter([]),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_orjson_asks_about_these(value: object) -> None:
    """orjson writes none of these by itself: one that slips past the scan ends in an error."""
    asked: list[object] = []

    def default(item: object) -> object:
        asked.append(item)
        return 1

    assert orjson.dumps([value], default, OPTIONS) == b"[1]"
    assert asked[0] is value


@pytest.mark.parametrize(
    "value",
    [
        2**64, -(2**63) - 1, "\ud800", {"\ud800": 1}, {1: 1}, {None: 1}, {True: 1}, {1.5: 1},
        {(1,): 1}, {Word("x"): 1}, {Role.USER: 1}, {uuid.UUID(int=1): 1},
        {dt.date(2026, 1, 1): 1},
    ],
    ids=repr,
)  # fmt: skip
def test_orjson_raises_for_these(value: object) -> None:
    """These need no scan either: orjson raises TypeError, and the explicit encoder takes over."""
    with pytest.raises(TypeError):
        orjson.dumps(value, None, OPTIONS)


def test_orjson_keeps_these() -> None:
    """Texts, keys, 64-bit ints and finite floats survive orjson bit by bit."""
    value: Any = [
        2**64 - 1, -(2**63), 2**53 + 1, -0.0, 5e-324, 1.7976931348623157e308, 1e16, 0.1, 1e22,
        "\x00\x7f\u2028\U0010ffff", {"": 1, "b": 1, "a": 1}, True, None, [], {},
    ]  # fmt: skip
    again = orjson.loads(orjson.dumps(value, None, OPTIONS))
    assert repr(again) == repr(value)


def test_orjson_reads_large_numbers_and_double_keys_leniently() -> None:
    """These are why `parse` compares: orjson reads both without a word."""
    assert orjson.loads(b"18446744073709551616") == 1.8446744073709552e19
    assert orjson.loads(b'{"a":1,"a":2}') == {"a": 2}


def test_enum_of_any_metaclass_is_seen() -> None:
    """An Enum with a metaclass of its own is a trap for orjson or a question, never a surprise."""

    class Meta(enum.EnumMeta):
        pass

    class Odd(enum.Enum, metaclass=Meta):
        A = (1, 2)

    from caravanserai_core.codec import decode, encode, register_type

    register_type(Odd, name="test-odd-enum")
    assert decode(*encode([Odd.A, {Odd.A: 1}])) == [Odd.A, {Odd.A: 1}]


def test_import_loads_nothing_heavy() -> None:
    """The codec imports no library that only some states need."""
    code = (
        "import sys, orjson; before = set(sys.modules); import caravanserai_core.codec as c;"
        "c.decode(*c.encode({'a': [(1, {2}, b'x')]}));"
        "print(*sorted(set(sys.modules) - before))"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    heavy = {
        "pydantic",
        "numpy",
        "decimal",
        "zoneinfo",
        "typing_extensions",
        "asyncio",
        "fractions",
    }
    assert not heavy & set(loaded)
