"""A file that somebody else has written ends in a typed error: no code runs, nothing explodes."""

from __future__ import annotations

import copy
import json
import pickle
import random
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import orjson
import pytest

from caravanserai_core.codec import decode, decode_tree, encode, parse
from caravanserai_core.errors import (
    CaravanseraiError,
    JournalDamaged,
    SchemaMismatch,
    UnknownType,
)
from integration_tests.codec.values import VALUES, Point, random_state

HERE = "integration_tests.codec.values"


def _object(name: str, kind: str, value: object, **more: object) -> dict[str, object]:
    return {"$object": {"type": name, "kind": kind, "value": value, **more}}


MALFORMED: dict[str, tuple[object, str]] = {
    # tree, path of the error
    "tuple of a number": ({"$tuple": 1}, "$"),
    "tuple of a dict": ([{"$tuple": {}}], "$[0]"),
    "set of a number": ({"$set": 1}, "$"),
    "set of lists": ({"a": {"$set": [[1]]}}, "$.a"),
    "set with an element twice": ({"$set": [1, 1]}, "$"),
    "set with equal elements": ({"$set": [1, True]}, "$"),
    "frozenset of a set": ({"$frozenset": [{"$set": []}]}, "$"),
    "bytes of a number": ({"$bytes": 5}, "$"),
    "bytes of no base64": ({"$bytes": "###"}, "$"),
    "bytes without padding": ({"$bytes": "eA"}, "$"),
    "bytes with stray bits": ({"$bytes": "eB=="}, "$"),
    "bytes with a line break": ({"$bytes": "eA==\n"}, "$"),
    "bytearray of a list": ({"$bytearray": [1]}, "$"),
    "float of a number": ({"$float": 1.0}, "$"),
    "float of a word": ({"$float": "infinity"}, "$"),
    "float nan of a number's bits": ({"$float": "nan:3ff0000000000000"}, "$"),
    "float nan of short bits": ({"$float": "nan:7ff8"}, "$"),
    "int of a number": ({"$int": 5}, "$"),
    "int that is small": ({"$int": "5"}, "$"),
    "int with spaces": ({"$int": " 99999999999999999999"}, "$"),
    "int with underscores": ({"$int": "99_999_999_999_999_999_999"}, "$"),
    "int with a leading zero": ({"$int": "0199999999999999999999"}, "$"),
    "int of other digits": ({"$int": "\u0661" * 30}, "$"),
    "int of a million digits": ({"$int": "9" * 1_000_000}, "$"),
    "int of too much hex": ({"$int": "0x" + "f" * 1_000_002}, "$"),
    "str of a number": ({"$str": 1}, "$"),
    "str without a surrogate": ({"$str": "plain"}, "$"),
    "str with a stray backslash": ({"$str": "a\\ud800\\"}, "$"),
    "str with a stray escape": ({"$str": "\\ud800\\n"}, "$"),
    "str with an escaped letter": ({"$str": "\\ud800\\u0041"}, "$"),
    "dict of a dict": ({"$dict": {}}, "$"),
    "dict of single keys": ({"$dict": [[1]]}, "$"),
    "dict of triples": ({"$dict": [[1, 2, 3]]}, "$"),
    "dict of texts": ({"$dict": ["ab"]}, "$"),
    "dict with a list as key": ({"x": {"$dict": [[[1], 2]]}}, "$.x"),
    "dict with a key twice": ({"$dict": [[1, 2], [1, 3]]}, "$"),
    "dict with equal keys": ({"$dict": [[1, 2], [True, 3]]}, "$"),
    "ordereddict of null": ({"$ordereddict": None}, "$"),
    "counter of a tuple": ({"$counter": {"$tuple": []}}, "$"),
    "defaultdict of a call": ({"$defaultdict": {"factory": "eval", "items": []}}, "$"),
    "defaultdict without items": ({"$defaultdict": {"factory": "list"}}, "$"),
    "defaultdict of a list": ({"$defaultdict": []}, "$"),
    "deque too short": ({"$deque": {"items": [1, 2], "maxlen": 1}}, "$"),
    "deque of negative length": ({"$deque": {"items": [], "maxlen": -1}}, "$"),
    "deque of huge length": ({"$deque": {"items": [], "maxlen": 2**64 - 1}}, "$"),
    "deque of length true": ({"$deque": {"items": [], "maxlen": True}}, "$"),
    "pattern that prints itself": ({"$pattern": ["a", 128 + 32]}, "$"),
    "pattern with a flag of nobody": ({"$pattern": ["a", 1]}, "$"),
    "pattern with flags of its own": ({"$pattern": ["(?i)a", 32]}, "$"),
    "pattern that is none": ({"$pattern": ["(", 32]}, "$"),
    "pattern without flags": ({"$pattern": ["a"]}, "$"),
    "pattern of a number": ({"$pattern": [1, 32]}, "$"),
    "address of another class": ({"$ip": ["_BaseV4", "10.0.0.1"]}, "$"),
    "address of another spelling": ({"$ip": ["IPv6Address", "::0"]}, "$"),
    "address of a number": ({"$ip": ["IPv4Address", 1]}, "$"),
    "datetime of a number": ({"$datetime": 5}, "$"),
    "datetime of a word": ({"$datetime": "now"}, "$"),
    "datetime of another spelling": ({"$datetime": "20260101T000000"}, "$"),
    "datetime out of range": ({"$datetime": "0000-01-01T00:00:00"}, "$"),
    "datetime with a wrong zone": ({"$datetime": {"at": "2026-01-01T00:00:00", "tz": 1}}, "$"),
    "datetime with fold 2": (
        {"$datetime": {"at": "2026-01-01T00:00:00", "tz": None, "fold": 2}},
        "$",
    ),
    "datetime without a zone": ({"$datetime": {"at": "2026-01-01T00:00:00"}}, "$"),
    "date with a time": ({"$date": "2026-01-01T00:00:00"}, "$"),
    "time of a date": ({"$time": "2026-01-01"}, "$"),
    "timedelta too large": ({"$timedelta": [10**10, 0, 0]}, "$"),
    "timedelta of floats": ({"$timedelta": [0.5, 0, 0]}, "$"),
    "timedelta not normal": ({"$timedelta": [0, 86_400, 0]}, "$"),
    "timezone too far": ({"$timezone": [{"$timedelta": [2, 0, 0]}]}, "$"),
    "timezone of a number": ({"$timezone": [3600]}, "$"),
    "timezone without a name": ({"$timezone": [{"$timedelta": [0, 0, 0]}, 5]}, "$"),
    "zoneinfo out of its folder": ({"$zoneinfo": "../../etc/passwd"}, "$"),
    "zoneinfo of a path": ({"$zoneinfo": "/etc/passwd"}, "$"),
    "zoneinfo of a dict": ({"$zoneinfo": {}}, "$"),
    "decimal of a word": ({"$decimal": "eleven"}, "$"),
    "decimal of another spelling": ({"$decimal": " 1.0"}, "$"),
    "decimal of a huge exponent": ({"$decimal": "1E+99999999999999999999"}, "$"),
    "uuid of a word": ({"$uuid": "x"}, "$"),
    "uuid in braces": ({"$uuid": "{00000000-0000-0000-0000-000000000005}"}, "$"),
    "uuid safe in a strange way": (
        {"$uuid": ["00000000-0000-0000-0000-000000000005", "__class__"]},
        "$",
    ),
    "complex of one part": ({"$complex": [1.0]}, "$"),
    "complex of ints": ({"$complex": [1, 2]}, "$"),
    "range of step 0": ({"$range": [0, 1, 0]}, "$"),
    "range of floats": ({"$range": [0.0, 1.0, 1.0]}, "$"),
    "path of a strange class": ({"$path": ["__loader__", "/x"]}, "$"),
    "path of no text": ({"$path": ["PurePosixPath", 1]}, "$"),
    "path of a list class": ({"$path": [["PurePosixPath"], "/x"]}, "$"),
    "ndarray of a list": ({"$ndarray": []}, "$"),
    "ndarray of objects": (
        {"$ndarray": {"dtype": "|O", "shape": [1], "order": "C", "data": "AAAAAAAAAAA="}},
        "$",
    ),
    "ndarray of a huge shape": (
        {"$ndarray": {"dtype": "<f8", "shape": [2**40, 2**40], "order": "C", "data": ""}},
        "$",
    ),
    "ndarray of a large shape": (
        {"$ndarray": {"dtype": "<f8", "shape": [2**28], "order": "C", "data": ""}},
        "$",
    ),
    "ndarray of a negative shape": (
        {"$ndarray": {"dtype": "<f8", "shape": [-1], "order": "C", "data": ""}},
        "$",
    ),
    "ndarray of huge empty texts": (
        {"$ndarray": {"dtype": "<U0", "shape": [2**40], "order": "C", "data": ""}},
        "$",
    ),
    "ndarray of huge nothing": (
        {"$ndarray": {"dtype": "<f8", "shape": [0, 2**61], "order": "C", "data": ""}},
        "$",
    ),
    "ndarray of 1,000 dimensions": (
        {"$ndarray": {"dtype": "<f8", "shape": [1] * 1000, "order": "C", "data": ""}},
        "$",
    ),
    "ndarray of a strange order": (
        {"$ndarray": {"dtype": "<f8", "shape": [0], "order": "K", "data": ""}},
        "$",
    ),
    "ndarray of a huge item": (
        {"$ndarray": {"dtype": "<U999999999", "shape": [0], "order": "C", "data": ""}},
        "$",
    ),
    "ndarray of fields": (
        {"$ndarray": {"dtype": "i4,f8", "shape": [0], "order": "C", "data": ""}},
        "$",
    ),
    "npscalar of short data": ({"$npscalar": {"dtype": "<f8", "data": "AAAA"}}, "$"),
    "npscalar of foreign order": ({"$npscalar": {"dtype": ">f8", "data": "AAAAAAAAAAA="}}, "$"),
    "npscalar of a broken text": ({"$npscalar": {"dtype": "<U1", "data": "////fw=="}}, "$"),
    "object of a list": ({"$object": []}, "$"),
    "object without a kind": ({"$object": {"type": f"{HERE}:Point", "value": {}}}, "$"),
    "object with more": (_object(f"{HERE}:Point", "dataclass", {"x": 1, "y": 2}, z=1), "$"),
    "object of a list as type": (_object(["x"], "dataclass", {}), "$"),  # type: ignore[arg-type]
    "dataclass of a list": (_object(f"{HERE}:Point", "dataclass", []), "$"),
    "dataclass with a stranger field": (
        {"a": _object(f"{HERE}:Point", "dataclass", {"x": 1, "y": 2, "__class__": 3})},
        "$.a",
    ),
    "dataclass with an int as field": (
        _object(f"{HERE}:Point", "dataclass", {"$dict": [["x", 1], [2, 3]]}),
        "$",
    ),
    "dataclass without a field": (_object(f"{HERE}:Point", "dataclass", {}), "$"),
    "namedtuple of too few": (_object(f"{HERE}:Pair", "namedtuple", {}), "$"),
    "namedtuple of a list": (_object(f"{HERE}:Pair", "namedtuple", [1, 2]), "$"),
    "enum member that is none": (_object(f"{HERE}:Colour", "enum", "__class__"), "$"),
    "enum of a list": (_object(f"{HERE}:Colour", "enum", ["RED"]), "$"),
    "flag of unknown bits": (_object(f"{HERE}:Access", "flag", 1024), "$"),
    "flag of a text": (_object(f"{HERE}:Access", "flag", "READ"), "$"),
    "model of a list": (_object(f"{HERE}:Model", "pydantic", []), "$"),
    "model without a set": (_object(f"{HERE}:Model", "pydantic", {"fields": {}}), "$"),
    "model with more": (
        _object(f"{HERE}:Model", "pydantic", {"fields": {}, "set": [], "state": {}}),
        "$",
    ),
    "model with a set of numbers": (
        _object(f"{HERE}:Model", "pydantic", {"fields": {}, "set": [1]}),
        "$",
    ),
    "model with a stranger field": (
        _object(f"{HERE}:Model", "pydantic", {"fields": {"__dict__": 1}, "set": []}),
        "$",
    ),
    "model with extra where none is kept": (
        _object(f"{HERE}:Model", "pydantic", {"fields": {}, "set": [], "extra": {"a": 1}}),
        "$",
    ),
    "model with a stranger private attribute": (
        _object(f"{HERE}:Model", "pydantic", {"fields": {}, "set": [], "private": {"_x": 1}}),
        "$",
    ),
    "model with a stranger cached property": (
        _object(f"{HERE}:Model", "pydantic", {"fields": {}, "set": [], "cached": {"name": 1}}),
        "$",
    ),
    "root model without its root": (
        _object(f"{HERE}:Root", "pydantic", {"fields": {}, "set": []}),
        "$",
    ),
    "deep inside": (
        {"a": [{"$dict": [[1, {"b": {"$deque": {"items": [0, {"$tuple": 5}], "maxlen": None}}}]]}]},
        "$.a[0][1].b[1]",
    ),
    "inside an object": (
        _object(f"{HERE}:Point", "dataclass", {"x": {"$tuple": 5}, "y": 1}),
        "$.x",
    ),
    "inside a model": (
        _object(f"{HERE}:Model", "pydantic", {"fields": {"value": [{"$tuple": 5}]}, "set": []}),
        "$.value[0]",
    ),
    "beside a strange kind": (
        _object(
            "x:y",
            {"$ndarray": {"dtype": "<i4", "shape": [2], "order": "C", "data": "AAAAAAAAAAA="}},
            {"$tuple": 5},
        ),  # type: ignore[arg-type]
        "$",
    ),
    "inside a key": ({"m": {"$dict": [[{"$tuple": 5}, 1]]}}, "$.m"),
    "inside pairs that are none": ({"m": {"$dict": [{"a": {"$tuple": 5}}]}}, "$.m"),
}

UNKNOWN: dict[str, object] = {
    "tag": {"$nosuch": 1},
    "empty tag": {"$": 1},
    "long tag": {"$" + "x" * 100_000: 1},
    "function": _object("os:system", "dataclass", {"x": "id"}),
    "builtin function": _object("builtins:eval", "codec", "1"),
    "class of no kind": _object("subprocess:Popen", "dataclass", {"args": "id"}),
    "module": _object("os:path", "dataclass", {}),
    "attribute of a function": _object("os:system.__globals__", "dataclass", {}),
    "module not imported": _object("antigravity:fly", "dataclass", {}),
    "submodule not imported": _object("xml.dom.pulldom:PullDOM", "dataclass", {}),
    "nothing": _object("", "", {}),
    "no colon": _object("Point", "dataclass", {}),
    "wrong kind": _object(f"{HERE}:Point", "pydantic", {"fields": {}, "set": []}),
    "a codec that is none": _object(f"{HERE}:Point", "codec", {}),
    "base class": _object("pydantic.main:BaseModel", "codec", {}),
    "secret": _object("pydantic.types:SecretStr", "pydantic", {"fields": {}, "set": []}),
    "main of another script": _object("__main__:State", "dataclass", {}, script="other.py"),
    "script of no text": _object("__main__:State", "dataclass", {}, script=[1]),
    "long name": _object("m:" + "x" * 100_000, "dataclass", {}),
    "name with control characters": _object("m:\x1b[31m\n", "dataclass", {}),
    "zone nobody knows": {"$zoneinfo": "Nowhere/Land"},
    "zone that is a folder": {"$zoneinfo": "Europe"},
}

_watched: list[str] | None = None
_EVENTS = (
    "import",
    "exec",
    "compile",
    "open",
    "os.",
    "subprocess.",
    "socket.",
    "shutil.",
    "ctypes.",
)


def _audit(event: str, args: tuple[object, ...]) -> None:
    if _watched is not None and event.startswith(_EVENTS) and _thread == threading.get_ident():
        _watched.append(f"{event} {args!r:.200}")


_thread = threading.get_ident()
sys.addaudithook(_audit)


@contextmanager
def nothing_happens() -> Iterator[None]:
    """Within this, whatever Python itself reports of imports, code and files is an error."""
    global _watched, _thread
    _thread = threading.get_ident()
    _watched = []
    try:
        yield
        seen = _watched
    finally:
        _watched = None
    assert not seen


def warm() -> None:
    """Import what the decoder itself imports when it is first needed."""
    for value in VALUES.values():
        decode(*encode(value))


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_content_gives_a_typed_error(name: str) -> None:
    """Each malformed tag is a SchemaMismatch with its path; no import, file or code is touched."""
    tree, path = MALFORMED[name]
    warm()
    tree = copy.deepcopy(tree)
    watch = nullcontext() if "zone" in name else nothing_happens()
    with watch, pytest.raises(SchemaMismatch) as caught:
        decode_tree(tree)
    assert caught.value.path == path
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_type_gives_a_typed_error(name: str) -> None:
    """Each unknown type is named in an UnknownType or SchemaMismatch; nothing is imported."""
    tree = {"a": [copy.deepcopy(UNKNOWN[name])]}
    warm()
    watch = nullcontext() if "zone" in name else nothing_happens()
    with watch, pytest.raises((UnknownType, SchemaMismatch)) as caught:
        decode_tree(tree)
    if isinstance(caught.value, UnknownType) and "$object" in UNKNOWN[name]:  # type: ignore[operator]
        assert caught.value.type_name == UNKNOWN[name]["$object"]["type"]  # type: ignore[index]
    assert caught.value.path == "$.a[0]"
    assert len(str(caught.value)) < 600
    assert str(caught.value).isprintable()


def test_decoding_good_data_imports_nothing_either() -> None:
    """Values of all kinds, time zones aside, are rebuilt without any import or file."""
    warm()
    for name, value in VALUES.items():
        if "zone" in name or "fold" in name:
            continue
        data, tagged, _ = encode(value)
        with nothing_happens():
            decode(data, tagged)


def test_pickle_in_place_of_json_is_refused() -> None:
    """A file that was replaced by a pickle is damaged JSON, and never run."""

    class Bomb:
        def __reduce__(self) -> Any:
            return (exec, ("raise SystemExit('ran')",))

    data = pickle.dumps(Bomb())
    with nothing_happens(), pytest.raises(JournalDamaged):
        decode(data, True)


def _mutate(rng: random.Random, node: Any, donors: list[Any]) -> Any:
    """Change one thing somewhere in a JSON tree."""
    if isinstance(node, (dict, list)) and node and rng.random() < 0.8:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = rng.choice(keys)
        node[key] = _mutate(rng, node[key], donors)
        if rng.random() < 0.1:
            del node[key]
        elif isinstance(node, dict) and rng.random() < 0.15:
            node[rng.choice(["$tuple", "$dict", "$object", "type", "kind", "value", "x"])] = (
                node.pop(key)
            )
        elif isinstance(node, list) and rng.random() < 0.1:
            node.append(copy.deepcopy(node[key]))
        return node
    if isinstance(node, str) and node and rng.random() < 0.5:
        where = rng.randrange(len(node))
        return (
            node[:where] + rng.choice(["", "x", "0", "=", "\\", ":", "9" * 30]) + node[where + 1 :]
        )
    return copy.deepcopy(rng.choice(donors))


@pytest.mark.parametrize("seed", range(6))
def test_mutations_of_valid_data_give_typed_errors(seed: int, thorough: bool) -> None:
    """Valid encodings with random damage decode to something or end in a typed error."""
    rng = random.Random(5000 + seed)
    donors: list[Any] = [None, 0, -1, 2**63, 1.5, "", "a", "$", [], {}, [[]], {"$tuple": []}, True]
    donors += [orjson.loads(encode(value).data) for value in VALUES.values()]
    decoded = refused = 0
    for number in range(20_000 if thorough else 700):
        data = encode(random_state(rng, 2)).data
        tree = orjson.loads(data)
        for _ in range(rng.randrange(1, 4)):
            tree = _mutate(rng, tree, donors)
        try:
            decode_tree(tree)
            decoded += 1
        except CaravanseraiError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}, {number}: {data!r}") from error
    assert decoded > 50
    assert refused > 50


@pytest.mark.parametrize("seed", range(3))
def test_damaged_bytes_give_typed_errors(seed: int, thorough: bool) -> None:
    """Flipped, cut and doubled bytes decode to something or end in a typed error."""
    rng = random.Random(6000 + seed)
    for _ in range(20_000 if thorough else 1_000):
        data = bytearray(encode(random_state(rng, 2)).data)
        for _ in range(rng.randrange(1, 4)):
            where = rng.randrange(len(data)) if data else 0
            choice = rng.randrange(3)
            if choice == 0 and data:
                data[where] = rng.randrange(256)
            elif choice == 1:
                del data[where : where + rng.randrange(9)]
            else:
                data[where:where] = data[where : where + rng.randrange(9)]
        try:
            decode(bytes(data), True)
        except CaravanseraiError:
            pass


def test_hostile_data_costs_neither_time_nor_memory() -> None:
    """Small files do not become large objects: no shape, length or digit count is believed."""
    warm()
    trees = [copy.deepcopy(tree) for tree, _ in MALFORMED.values()]
    tracemalloc.start()
    begin = time.monotonic()
    for tree in trees:
        with pytest.raises(CaravanseraiError):
            decode_tree(tree)
    took = time.monotonic() - begin
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 30e6
    assert took < 10


def test_objects_are_rebuilt_without_their_constructor() -> None:
    """No `__init__`, `__post_init__` or validator of a class runs, whatever a file holds."""
    tree = _object(f"{HERE}:Checked", "dataclass", {"a": "no int", "b": None})
    again: Any = decode_tree(tree)
    assert again.a == "no int"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[1,]",
        b"nan",
        b"NaN",
        b"[Infinity]",
        b'"\xff"',
        b'"\\ud800"',
        b"\xef\xbb\xbf1",
        b"1 2",
        b'{"a":1,"a":2}',
        b'[{"x": {"b": 1, "b": 1}}]',
        b'{"a":1,"\\u0061":2}',
        b"18446744073709551616",
        b"[-9223372036854775809]",
        b"1" * 400,
        b"1" * 5000,
        b"1e400",
        b"[-1e309]",
    ],
)
def test_json_that_would_lose_something_is_refused(text: bytes) -> None:
    """Bad JSON, a key that is there twice, and a number beyond 64 bit are a typed ValueError."""
    assert issubclass(JournalDamaged, ValueError)
    with pytest.raises(JournalDamaged):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        b' { "a" : [ 1 , 2.50, -0, 1E2 ] } ',
        b'"\\u00e9"',
        b"18446744073709551615",
        b"-9223372036854775808",
        b"1.7976931348623157e308",
        b'[{"a":1},{"a":1}]',
        b"0.1000000000000000055511151231257827",
    ],
)
def test_json_of_another_spelling_is_read(text: bytes) -> None:
    """JSON that is spelled in another way, by hand or by another program, means the same."""
    assert parse(text) == json.loads(text)


@pytest.mark.parametrize("levels", [255, 1023, 1025, 100_000])
def test_deep_json_is_refused(levels: int) -> None:
    """JSON that is nested too deep is a typed error, and the process lives."""
    for text in (b"[" * levels + b"]" * levels, b'{"$tuple":[' * levels + b"]}" * levels):
        with pytest.raises(JournalDamaged):
            parse(text)
    with pytest.raises(JournalDamaged):
        parse(b" " + b'{"a":' * levels + b"1" + b"}" * levels)


def test_deep_tree_is_refused() -> None:
    """A tree that is nested too deep is a typed error too, whoever has parsed it."""
    for tag in (None, "$tuple"):
        tree: object = []
        for _ in range(100_000):
            tree = [tree] if tag is None else {tag: [tree]}
        with pytest.raises(SchemaMismatch):
            decode_tree(tree)


def test_hash_of_a_stored_object_may_fail() -> None:
    """An object whose own hash fails on what a file put into it ends in a typed error."""
    tree = {"m": {"$dict": [[_object(f"{HERE}:Frozen", "dataclass", {"name": [], "parts": 1}), 1]]}}
    with pytest.raises(SchemaMismatch) as caught:
        decode_tree(tree)
    assert caught.value.path == "$.m"


def test_same_data_twice_gives_two_values() -> None:
    """Two loads of one text share nothing that can be changed."""
    data, tagged, _ = encode([Point([1])])
    one: Any = decode(data, tagged)
    two: Any = decode(data, tagged)
    one[0].x.append(2)
    assert two[0].x == [1]
