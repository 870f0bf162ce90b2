"""show: states in Python's notation, without the types of the program that saved them."""

from __future__ import annotations

import datetime as dt
import enum
import json
import math
import shlex
import subprocess
import sys
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pydantic
import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from caravanserai_core import checkpoint, codec
from caravanserai_core.cli._value import SHORT, text

Cli = Callable[..., Result]

PROGRAM = """
import datetime as dt, enum, pydantic
from dataclasses import dataclass
from caravanserai_core import checkpoint

class Role(enum.Enum):
    ASSISTANT = "assistant"

class Message(pydantic.BaseModel):
    role: Role
    text: str

@dataclass
class State:
    step: int
    messages: list
    tried: set
    when: dt.date

messages = [Message(role=Role.ASSISTANT, text="hello")]
checkpoint("demo", State(1, messages, {1, 2}, dt.date(2026, 8, 20)), "x")
"""


def test_a_state_of_types_that_only_the_program_has(process: Callable[..., Any]) -> None:
    """Dataclass, model, enum, set and date are written as Python writes them, on one line."""
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
    assert process("show", "demo").stdout.endswith(
        "state: State(step=1, messages=[Message(role=Role.ASSISTANT, text='hello')], "
        "tried={1, 2}, when=datetime.date(2026, 8, 20))\n"
    )


def test_a_long_state_is_folded(process: Callable[..., Any]) -> None:
    """Above 200 characters an item per line, where it does not fit between the margins."""
    program = PROGRAM.replace('text="hello")]', 'text="hello")] * 4')
    subprocess.run([sys.executable, "-c", program], check=True)
    message = "        Message(role=Role.ASSISTANT, text='hello'),\n"
    assert process("show", "demo").stdout.endswith(
        f"state: State(\n    step=1,\n    messages=[\n{message * 4}    ],\n"
        "    tried={1, 2},\n    when=datetime.date(2026, 8, 20),\n)\n"
    )


def written(value: object, width: int = 100) -> str:
    """Return what is printed of a value after a way through the file."""
    data, tagged, _ = codec.encode(value)
    return text(json.loads(data), width, tagged=tagged)


UTC_TIME = dt.datetime(2026, 8, 20, 22, 41, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    "value",
    [
        (),
        (1,),
        (1, ("a", [2])),
        set(),
        frozenset(),
        {(1, 2)},
        frozenset({"a"}),
        {1: "a", None: 2, (1, "b"): {"c": ()}},
        {"$tuple": [1]},
        Counter("aab"),
        Counter(),
        defaultdict(list, {"a": [(1,)]}),
        defaultdict(None),
        deque([1, (2,)]),
        deque([1], 3),
        b"\x00ab",
        bytearray(b"x"),
        [math.nan, math.inf, -math.inf, -0.0, 1e300],
        2**80,
        1 + 2j,
        range(1, 9, 2),
        "a\ud800b",
        Decimal("1.20"),
        uuid.UUID(int=5),
        UTC_TIME,
        UTC_TIME.replace(tzinfo=ZoneInfo("Europe/Berlin")),
        UTC_TIME.date(),
        UTC_TIME.time(),
        dt.timedelta(1, 2, 3),
        dt.timezone(dt.timedelta(hours=2), "x"),
        PurePosixPath("/a/b"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_of_python_are_written_as_by_repr(value: object) -> None:
    """Each kind that the codec tags, alone and in a list."""
    assert written(value) == repr(value)
    assert written([{"k": value}]) == repr([{"k": value}])


class Colour(enum.Enum):
    RED = 1


class Bits(enum.Flag):
    A = 1
    B = 2


class Point(NamedTuple):
    x: int
    y: tuple[int, ...]


@dataclass
class Node:
    value: Any
    below: list[Any]


class Model(pydantic.BaseModel):
    model_config = {"extra": "allow"}
    name: str
    colour: Colour
    _seen: int = pydantic.PrivateAttr(7)


class Own:
    """A type with a codec."""


codec.register_codec(Own, name="a:b:own", encode=lambda _: {"k": (1,)}, decode=lambda _: Own())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Colour.RED, "Colour.RED"),
        (Bits.A | Bits.B, "Bits(3)"),
        (Point(1, (2,)), "Point(x=1, y=(2,))"),
        (Node({1}, [Node(None, [])]), "Node(value={1}, below=[Node(value=None, below=[])])"),
        (Model(name="n", colour=Colour.RED), "Model(name='n', colour=Colour.RED, _seen=7)"),
        (
            Model.model_validate({"name": "n", "colour": 1, "$x": 2}),
            "Model(name='n', colour=Colour.RED, '$x'=2, _seen=7)",
        ),
        ({Colour.RED: [Own()]}, "{Colour.RED: [own({'k': (1,)})]}"),
    ],
)
def test_objects_of_the_program(value: object, expected: str) -> None:
    """Name and fields; an enum by its member, a flag by its bits, another type by its codec."""
    assert written(value) == expected


def test_an_int_of_more_digits_than_python_prints() -> None:
    """It is written in hex, as the file has it."""
    assert written(10**5000) == hex(10**5000)


def test_arrays_are_written_on_one_line() -> None:
    """By numpy, where it is installed."""
    numpy = pytest.importorskip("numpy")
    assert written({"a": numpy.array([[1], [2]])}) == "{'a': array([[1], [2]])}"


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=60,
)


@given(TREES)
def test_a_plain_state_is_written_as_by_repr(tree: Any) -> None:
    """Exactly, if it is short; a long one differs in white space and last commas only."""
    shown = text(tree, 20, tagged=False)
    if len(repr(tree)) <= SHORT:
        assert shown == repr(tree)
    else:
        assert repr(eval(shown, {"nan": math.nan, "inf": math.inf})) == repr(tree)


def test_a_state_that_only_looks_tagged_is_plain(cli: Cli) -> None:
    """Without tags in the run, a key that begins with a dollar is a key."""
    assert text({"$tuple": [1]}, 100, tagged=False) == "{'$tuple': [1]}"
    checkpoint("demo", {"$tuple": [1]}, "x")
    assert "state: {'$tuple': [1]}\n" in cli("show", "demo").output


@pytest.mark.parametrize(
    "tree",
    [
        {"$new": 1},
        {"$tuple": 1},
        {"$dict": [[1]]},
        {"$set": {"a": 1}},
        {"$deque": {"items": 1, "maxlen": None}},
        {"$defaultdict": {"items": []}},
        {"$datetime": "soon"},
        {"$datetime": {"at": "x", "tz": {"$timezone": [{"$timedelta": [0, 0, 0]}]}}},
        {"$decimal": []},
        {"$path": ["()", "x"]},
        {"$object": {"type": "a:B", "kind": "dataclass", "value": 1}},
        {"$object": {"type": "a:B", "kind": "pydantic", "value": {"fields": 1}}},
        {"$object": []},
        {"$ndarray": {"dtype": "<f8", "shape": [1 << 60], "order": "C", "data": ""}},
    ],
    ids=str,
)
def test_a_tag_that_cannot_be_read_is_shown_as_it_is(tree: Any) -> None:
    """A newer tag, or a journal that somebody edited, is no reason to show nothing."""
    shown = text(tree, 100, tagged=True)
    (tag,) = tree
    assert shown.startswith(f"{{'{tag}': ")


def test_names_of_types_cannot_forge_a_line() -> None:
    """They are foreign text like any other."""
    for kind, value in (("enum", "M\n\x1b[2J"), ("dataclass", {"f\n\x1b": 1})):
        tree = {"$object": {"type": "m:C\n\x1b[2J\u202e", "kind": kind, "value": value}}
        shown = text(tree, 100, tagged=True)
        assert shown.isprintable()
        assert shown.startswith("C\\n\\x1b[2J\\u202e")


def test_a_state_as_deep_as_may_be_is_shown(cli: Cli) -> None:
    """Two hundred levels of lists, and as many as fit of tuples."""
    deep: Any = 1
    for _ in range(198):
        deep = [deep]
    checkpoint("demo", deep, "x")
    tuples: Any = 1
    for _ in range(98):
        tuples = (tuples, 2)
    checkpoint("tuples", tuples, "x")
    assert cli("show", "demo").output.count("[") == 198
    assert "$tuple" not in cli("show", "tuples").output


def test_what_is_left_out_of_a_long_state_is_said(cli: Cli, terminal: Callable[..., Any]) -> None:
    """2,000 characters on a terminal, 20,000 in a pipe, and the command that prints all."""
    checkpoint("my run", {"text": "x" * 30_000}, "x")
    checkpoint("my run", {"text": "short"}, "x")
    piped = cli("show", "my run@1", "--store", ".caravanserai").output
    assert 19_900 < piped.count("x") < 20_010
    command = "caravanserai --store .caravanserai show 'my run@1' --state"
    assert piped.endswith(f"…\n(30,019 characters; all of it: {command})\n")
    assert "x" * 30_000 in cli(*shlex.split(command)[1:]).output
    assert 1_900 < terminal("show", "my run@1").text.count("x") < 2_010
    assert "all of it" not in cli("show", "my run").output
