"""What goes in comes out: the same value, the same types, the same order."""

from __future__ import annotations

import gc
import json
import math
import os
import random
import subprocess
import sys

import hypothesis
import orjson
import pytest
from hypothesis import strategies as st

from caravanserai_core.codec import decode, decode_tree, encode, parse
from caravanserai_core.errors import JournalDamaged
from integration_tests.codec.values import (
    VALUES,
    Box,
    Frozen,
    Model,
    Outer,
    Point,
    hashable,
    model,
    random_state,
    same,
)
from integration_tests.support import ROOT


def roundtrip(value: object) -> object:
    data, tagged, _ = encode(value)
    _strict_json(data)
    return decode(data, tagged)


def _strict_json(data: bytes) -> object:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(data.decode("utf-8"), parse_constant=refuse)


@pytest.mark.parametrize("name", VALUES)
def test_value_comes_back_exactly(name: str) -> None:
    """A value comes back the same alone, in containers, as a key, and in the program's objects."""
    value = VALUES[name]
    places = [
        value,
        [value],
        {"k": value},
        {"$k": value},
        (value, value),
        {"rows": [value] * 30, "tagged": b""},
        [{"a": 1, "b": value}] * 30,
        Point(value),
        Frozen("f", (value,)),
        Model(value=value),
        model(1, value),
    ]
    if hashable(value):
        places += [{value: 1}, {value}, {"a": {value: value, "other": 2}}]
    for place in places:
        assert same(roundtrip(place), place)


@pytest.mark.parametrize("seed", range(10))
def test_random_states_come_back_exactly(seed: int, thorough: bool) -> None:
    """No nested state of random shape changes, and each is JSON that Python's parser reads."""
    rng = random.Random(seed)
    for number in range(2000 if thorough else 200):
        state = random_state(rng)
        data, tagged, _ = encode(state)
        _strict_json(data)
        assert same(decode(data, tagged), state), f"seed {seed}, state {number}"


def test_comparison_sees_differences() -> None:
    """The comparison that all these tests rest on tells near misses apart."""
    pairs: list[tuple[object, object]] = [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ((1,), [1]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (Point(1), Point(True)),
        (model(1, 1), model(1, 2)),
        (Model(), Model(name="n")),
        (range(0, 3, 2), range(0, 4, 2)),
        ({1}, {True}),
    ]
    for a, b in pairs:
        assert not same(a, b)


_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.text(st.characters(categories=["Cs", "L"]))
    | st.binary()
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.timedeltas()
    | st.decimals()
    | st.uuids()
    | st.complex_numbers()
)
_states = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.just("$tuple"), inner)
        | st.sets(st.integers() | st.text() | st.binary() | st.uuids() | st.timedeltas())
    ),
    max_leaves=30,
)


@hypothesis.given(_states)
def test_any_state_comes_back_exactly(state: object) -> None:
    """Whatever Hypothesis thinks of comes back exactly."""
    assert same(roundtrip(state), state)


@hypothesis.given(_states)
def test_tagged_says_whether_tags_are_there(state: object) -> None:
    """Data that is called untagged is, read as plain JSON, the value itself."""
    data, tagged, _ = encode(state)
    if not tagged:
        assert same(orjson.loads(data), state)
    assert same(decode(data, True), state)


@hypothesis.given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.text()
        | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner) | st.dictionaries(st.text("ab$"), inner),
    )
)
def test_plain_json_is_written_as_it_is(tree: object) -> None:
    """A JSON tree without tag-shaped dicts is written without tags, as orjson writes it."""
    data, tagged, _ = encode(tree)
    if not tagged:
        assert data == orjson.dumps(tree)
        assert same(parse(data), tree)
    else:
        assert b'"$' in data


def test_large_list_with_one_trap_changes_only_that_element() -> None:
    """One tuple in a long chat is tagged; its neighbours are written as they were."""
    chat: list[object] = [{"role": "user", "content": str(i)} for i in range(500)]
    chat[333] = {"role": "tool", "content": ("x", 2**70, "\ud800")}
    data, tagged, _ = encode({"messages": chat})
    tree = orjson.loads(data)["messages"]
    assert tagged
    assert tree[:333] + tree[334:] == chat[:333] + chat[334:]
    assert same(decode(data, tagged), {"messages": chat})


def test_trap_is_found_at_each_place_of_a_long_container() -> None:
    """No place in a long list or dict escapes, wherever its shortcuts begin and end."""
    for index in range(200):
        items: list[object] = [{"a": i} for i in range(200)]
        items[index] = {"a": (1,)}
        table = {str(i): item for i, item in enumerate(items)}
        floats = [0.5] * 200
        floats[index] = math.inf
        for state in (items, table, floats):
            assert same(roundtrip(state), state)


def test_bytes_are_written_alike_everywhere() -> None:
    """Bytes look the same in the file whatever stands around them."""
    raw = b"%PDF\xff\xfe"
    text = b'{"$bytes":"JVBERv/+"}'
    for place in (raw, [raw], Model(value=raw), Point(raw), (raw,)):
        data, _, _ = encode(place)
        assert text in data
        data.decode("utf-8")


def test_special_floats_leave_strict_json() -> None:
    """nan and infinity are tagged, and readable by the documented tag in any language."""
    data, tagged, _ = encode([math.nan, math.inf, -math.inf, -0.0])
    assert tagged
    assert _strict_json(data) == [{"$float": "nan"}, {"$float": "inf"}, {"$float": "-inf"}, -0.0]


def test_escaped_surrogate_pair_in_hand_written_json_is_one_character() -> None:
    """A file that somebody wrote with \\ud83c\\udf78 gives the one character U+1F378."""
    assert parse(b'{"m": "\\ud83c\\udf78"}') == {"m": "\U0001f378"}


def test_texts_that_look_like_secrets_are_not_touched() -> None:
    """Keys and texts that only look like secrets come back byte for byte."""
    state = {
        "page_token": "***",
        "doc_token": "sk-abcdefghijklmnopqrstuvwxyz0123456789",
        "code": 'key = os.getenv("X_API_KEY")\nAWS = "AKIAIOSFODNN7EXAMPLE"',
        "password": {"password": ["[redacted]", "hunter2"]},
    }
    data, tagged, _ = encode(state)
    assert not tagged
    assert data == orjson.dumps(state)
    assert same(decode(data, tagged), state)


def test_shared_parts_come_back_as_equal_copies() -> None:
    """The same list in two places is no cycle."""
    part = [1, (2,)]
    assert same(roundtrip({"a": part, "b": [part, part]}), {"a": part, "b": [part, part]})


def test_value_is_not_changed_by_encoding() -> None:
    """Encoding leaves the state as it was, also where it puts tags in the file."""
    rng = random.Random(7)
    for _ in range(200):
        seed = rng.random()
        state = random_state(random.Random(seed))
        before = random_state(random.Random(seed))
        encode(state)
        assert same(state, before)


def test_sets_are_written_in_one_order() -> None:
    """Equal sets give equal bytes in processes with different hash seeds."""
    code = (
        "import sys; from caravanserai_core.codec import encode;"
        "sys.stdout.buffer.write(encode({'s': {'a', 'b', 'c', 1, (2, 'x')},"
        " 'f': frozenset('hello')}).data)"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1


def test_generic_model_keeps_its_parameter() -> None:
    """A model made as Model[int] comes back as that very class."""
    again = roundtrip(VALUES["model generic"])
    assert type(again) is Box[int]


def test_enum_in_a_class_is_found_by_its_qualified_name() -> None:
    """An Enum defined inside a class, as a field of a model, comes back as the same member."""
    again = roundtrip(Model(phase=Outer.Phase.START))
    assert isinstance(again, Model)
    assert again.phase is Outer.Phase.START


def test_decode_tree_takes_a_tree() -> None:
    """A tree that was parsed elsewhere is decoded the same way."""
    assert same(decode_tree({"a": [{"$tuple": [{"$bytes": "eA=="}]}]}), {"a": [(b"x",)]})


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_as_it_was_after_a_large_state(enabled: bool) -> None:
    data = encode({"rows": [{"n": number} for number in range(50_000)]}).data
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        parse(data)
        assert gc.isenabled() is enabled
        with pytest.raises(JournalDamaged):
            parse(data[:-1])
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
