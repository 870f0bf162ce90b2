"""Large JSON is read as strictly as small JSON, though it is checked in pieces."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest

from caravanserai_core.codec import encode, parse
from caravanserai_core.codec._written import is_written
from caravanserai_core.errors import JournalDamaged
from integration_tests.codec.values import random_state

_TEXT = 'a "word" \\ é \U0001f40e \n\x01 and more ' * 3_000
_LARGE: dict[str, Any] = {
    "one text": _TEXT,
    "a text in an object": {"state": {"document": _TEXT, "step": 1}},
    "a list": {"step": 1, "messages": [{"n": n, "text": "x" * 300} for n in range(500)]},
    "a list at the root": [{"n": n, "text": "x" * 300} for n in range(500)],
    "many members": {f"é {n}": {"n": n, "text": _TEXT[:100]} for n in range(700)},
    "many members of a member": {"pages": {f"page {n}": _TEXT[:200] for n in range(700)}},
    "objects in objects": {"a": {"b": {"c": {"d": {"text": _TEXT}}}}},
    "empty parts": {"": [], "o": {}, "n": None, "l": [[]] * 40, "text": _TEXT, "f": 1e300},
}


def _at(tree: Any, rng: random.Random) -> tuple[Any, Any]:
    """Return a container somewhere in a tree, and a key or an index of it."""
    while True:
        key = rng.choice(list(tree)) if type(tree) is dict else rng.randrange(len(tree))
        if type(tree[key]) not in (dict, list) or not tree[key] or rng.random() < 0.2:
            return tree, key
        tree = tree[key]


@pytest.mark.parametrize("name", _LARGE)
def test_what_orjson_writes_is_taken_as_it_is(name: str) -> None:
    """No second parser is asked, and nothing is lost."""
    data = orjson.dumps(_LARGE[name])
    assert len(data) > 1 << 16
    assert is_written(orjson.loads(data), data)
    assert is_written(orjson.loads(data), memoryview(b"x%bx" % data)[1:-1])
    assert parse(data) == _LARGE[name]


@pytest.mark.parametrize("name", _LARGE)
def test_any_other_byte_is_seen(name: str, thorough: bool) -> None:
    """A text that differs anywhere, or is longer or shorter, is not what orjson writes."""
    data = orjson.dumps(_LARGE[name])
    tree = orjson.loads(data)
    rng = random.Random(name)
    for _ in range(400 if thorough else 40):
        at = rng.randrange(len(data))
        assert not is_written(tree, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert not is_written(tree, data[:at] + b" " + data[at:])
    assert not is_written(tree, data + b" ")
    assert not is_written(tree, data[:-1])


@pytest.mark.parametrize("name", [name for name in _LARGE if name != "one text"])
@pytest.mark.parametrize(
    ("value", "problem"),
    [(b'{"k":1,"k":2}', "twice"), (b"18446744073709551616", "64 bit"), (b"-1e999", "JSON")],
)
def test_leniency_is_found_wherever_it_is(
    name: str, value: bytes, problem: str, thorough: bool
) -> None:
    """A key that is there twice, a number beyond 64 bit: in any part of a large text."""
    rng = random.Random(name)
    for _ in range(20 if thorough else 3):
        tree = orjson.loads(orjson.dumps(_LARGE[name]))
        parent, key = _at(tree, rng)
        parent[key] = "HERE"
        data = orjson.dumps(tree).replace(b'"HERE"', value)
        with pytest.raises(JournalDamaged, match=problem):
            parse(data)


@pytest.mark.parametrize("large", [[], ["x" * 100_000], [[n] for n in range(30_000)]])
@pytest.mark.parametrize("wrap", ["list", "dict"])
def test_depth_is_counted_from_the_root(large: list[Any], wrap: str) -> None:
    """254 levels are read and 255 are not, however large the text around them is."""
    for depth, fits in ((254, True), (255, False)):
        inner = b"[" * (depth - 2) + b"]" * (depth - 2)
        more = orjson.dumps([large, "x" * 40_000])[1:-1]
        data = (
            b"[[%b,%b]]" % (more, inner)
            if wrap == "list"
            else b'{"a":{"b":"%b","c":%b}}'
            % (
                b"x" * 40_000,
                inner,
            )
        )
        if fits:
            parse(data)
        else:
            with pytest.raises(JournalDamaged, match="254"):
                parse(data)


def test_random_states(thorough: bool) -> None:
    """Whatever is put together, its pieces are together what orjson writes."""
    for seed in range(300 if thorough else 40):
        rng = random.Random(seed)
        parts = [orjson.loads(encode(random_state(rng)).data) for _ in range(60)]
        tree = rng.choice(
            [parts, dict(zip(map(str, range(60)), parts, strict=True)), {"a": parts, "b": _TEXT}]
        )
        data = orjson.dumps([tree, _TEXT] if rng.random() < 0.5 else {"t": tree, "x": _TEXT})
        assert is_written(orjson.loads(data), data)
