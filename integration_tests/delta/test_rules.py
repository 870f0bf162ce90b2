"""What a patch is: RFC 6902, judged by an implementation that shares nothing with ours."""

from __future__ import annotations

import copy
import random
from typing import Any

import hypothesis
import orjson
import pytest
from hypothesis import strategies as st

from caravanserai_core import delta, patching
from caravanserai_core.records import Malformed
from integration_tests.codec.values import same
from integration_tests.delta.edits import KEYS, Editor
from integration_tests.delta.judge import Refused, patched

_trees = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=25,
)


def differences(old: Any, new: Any) -> list[dict[str, Any]]:
    """Return the patch between two JSON trees as another program would read it."""
    ops, kept = delta.diff(delta.of_tree(old), delta.of_tree(new))
    assert delta.joined(kept) == orjson.dumps(new)
    patch: list[dict[str, Any]] = orjson.loads(patching.encode_ops(ops))
    return patch


def check(old: Any, new: Any) -> list[dict[str, Any]]:
    """Make sure that the patch leads from old to new, by the judge and by `apply`."""
    patch = differences(old, new)
    assert same(patched(old, patch), new)
    assert same(patching.apply(copy.deepcopy(old), patch), new)
    return patch


@hypothesis.given(_trees, _trees)
def test_patch_leads_from_any_tree_to_any_other(old: Any, new: Any) -> None:
    """Whatever the two are, the patch gives the second one, key order included."""
    check({"a": old, "pad": "x" * 300}, {"a": new, "pad": "x" * 300})
    check(old, new)


@pytest.mark.parametrize("seed", range(5))
def test_patch_follows_edits(seed: int, thorough: bool) -> None:
    """Patches between the states of an edited document are right and shorter than the document."""
    rows = [{"n": [i], "text": "x" * 50} for i in range(40)]
    editor = Editor(seed, tagged=0.0, state={"a": {"b": {}}, "pad": "y" * 20_000, "rows": rows})
    whole = patch_bytes = 0
    shadow = delta.of_tree(copy.deepcopy(editor.state))
    old = copy.deepcopy(editor.state)
    for _ in range(1000 if thorough else 100):
        new = editor.step()
        ops, shadow = delta.diff(shadow, delta.of_tree(new))
        data = patching.encode_ops(ops)
        assert same(patched(old, orjson.loads(data)), new)
        assert delta.joined(shadow) == orjson.dumps(new)
        whole += len(orjson.dumps(new))
        patch_bytes += len(data)
        old = new
    assert patch_bytes < whole / 2


def test_shapes_of_patches() -> None:
    """What agents do all day gives the small patch that one would write by hand."""
    pad = "x" * 400
    rows = [{"n": i, "text": "t" * 60} for i in range(20)]
    assert check({"n": 1, "pad": pad}, {"n": 2, "pad": pad}) == [
        {"op": "replace", "path": "/n", "value": 2}
    ]
    assert check({"log": [1, 2], "pad": pad}, {"log": [1, 2, 3], "pad": pad}) == [
        {"op": "add", "path": "/log/-", "value": 3}
    ]
    assert check({"log": rows}, {"log": [*rows[1:], rows[0]]}) == [
        {"op": "remove", "path": "/log/0"},
        {"op": "add", "path": "/log/-", "value": rows[0]},
    ]
    edited = [*rows[:7], {**rows[7], "n": "seven"}, *rows[8:]]
    patch = check({"log": rows}, {"log": edited})
    assert [(op["op"], op["path"]) for op in patch] == [("replace", "/log/7")]
    assert check({"a": 1, "b": pad}, {"b": pad}) == [{"op": "remove", "path": "/a"}]
    assert check({"b": pad}, {"b": pad, "a~/": 1}) == [{"op": "add", "path": "/a~0~1", "value": 1}]
    assert check({"a": 1}, {"a": 1}) == []
    assert check([1, 2], [1, 2, 3]) == [{"op": "add", "path": "/-", "value": 3}]
    assert check({"a": 1}, [1]) == [{"op": "replace", "path": "", "value": [1]}]


def test_another_key_order_is_a_change() -> None:
    """JSON Patch has no order of members, a dict has one: such an object is written whole."""
    pad = {f"k{i}": "x" * 50 for i in range(10)}
    for old, new in (
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 1}, {"new": 0, "a": 1}),
        ({"a": 1, "b": 2, "c": 3}, {"a": 1, "c": 3, "b": 2}),
    ):
        patch = check({"x": {**pad, **old}, "pad": pad}, {"x": {**new, **pad}, "pad": pad})
        assert [op["path"] for op in patch] == ["/x"]


def test_key_order_in_containers_that_are_compared_by_members() -> None:
    """Also where the shadow has been split down to the object whose keys moved."""
    deep = {"one": {"two": {"a": {"pad": "x" * 300, "n": 0}, "b": 1, "pad": "y" * 300}}}
    shadow = delta.of_tree(deep)
    for step in range(3):  # splits every level on the way
        deep["one"]["two"]["a"]["n"] = step + 1  # type: ignore[index]
        _, shadow = delta.diff(shadow, delta.of_tree(deep))
    split = shadow["one"]["two"]  # type: ignore[index,call-overload]
    assert isinstance(split, dict), "the test needs a shadow that is split"
    moved = {"b": split["b"], "a": split["a"], "pad": split["pad"]}
    ops, kept = delta.diff(shadow, {"one": {"two": moved}})
    new = patching.apply(copy.deepcopy(deep), orjson.loads(patching.encode_ops(ops)))
    assert list(new["one"]["two"]) == ["b", "a", "pad"]
    assert delta.joined(kept) == orjson.dumps(new)


def test_every_pointer_is_escaped() -> None:
    """Keys with ~ and / are told apart, and an object's key that looks like an index is a key."""
    for key in KEYS:
        old = {"pad": "x" * 300, "in": {"pad": "y" * 300, key: 1}}
        new = {"pad": "x" * 300, "in": {"pad": "y" * 300, key: 2}}
        patch = check(old, new)
        assert len(patch) == 1
        assert patch[0]["path"] == "/in/" + key.replace("~", "~0").replace("/", "~1")


REFUSED: list[tuple[Any, dict[str, Any]]] = [
    ({"a": 1}, {"op": "remove", "path": "/b"}),
    ({"a": 1}, {"op": "replace", "path": "/b", "value": 1}),
    ({"a": 1}, {"op": "add", "path": "/b/c", "value": 1}),
    ([1], {"op": "add", "path": "/2", "value": 1}),
    ([1], {"op": "add", "path": "/01", "value": 1}),
    ([1], {"op": "add", "path": "/-1", "value": 1}),
    ([1], {"op": "add", "path": "/1e0", "value": 1}),
    ([1], {"op": "add", "path": "/\u0661", "value": 1}),
    ([1], {"op": "replace", "path": "/1", "value": 1}),
    ([1], {"op": "replace", "path": "/-", "value": 1}),
    ([1], {"op": "remove", "path": "/-", "value": 1}),
    ([1], {"op": "remove", "path": "/1"}),
    ({"a": "text"}, {"op": "add", "path": "/a/0", "value": 1}),
    ({"a": None}, {"op": "replace", "path": "/a/b", "value": 1}),
    ({"a": 1}, {"op": "move", "path": "/a", "from": "/b"}),
    ({"a": 1}, {"op": "add", "path": "a", "value": 1}),
]


@pytest.mark.parametrize(("tree", "operation"), REFUSED)
def test_patch_that_does_not_fit_is_refused(tree: Any, operation: dict[str, Any]) -> None:
    """A patch that is an error by the RFC never gives a state."""
    with pytest.raises(Refused):
        patched(tree, [operation])
    with pytest.raises(Malformed):
        patching.apply(copy.deepcopy(tree), [operation])


@pytest.mark.parametrize(
    ("tree", "operation", "after"),
    [
        ({"a": [1]}, {"op": "add", "path": "/a/1", "value": 2}, {"a": [1, 2]}),
        ({"a": [1]}, {"op": "add", "path": "/a/0", "value": 2}, {"a": [2, 1]}),
        ({"a": 1}, {"op": "add", "path": "/a", "value": 2}, {"a": 2}),
        ({"": {"": 1}}, {"op": "replace", "path": "//", "value": 2}, {"": {"": 2}}),
        ({"~1": 1}, {"op": "replace", "path": "/~01", "value": 2}, {"~1": 2}),
        ({"-": 1, "0": 1}, {"op": "remove", "path": "/-"}, {"0": 1}),
        (1, {"op": "replace", "path": "", "value": {"a": 1}}, {"a": 1}),
    ],
)
def test_patch_is_read_as_the_rfc_says(tree: Any, operation: dict[str, Any], after: Any) -> None:
    """Operations at the edges of the RFC do what it says."""
    assert same(patched(tree, [operation]), after)
    assert same(patching.apply(copy.deepcopy(tree), [operation]), after)


def test_joined_patches_are_one_patch_on_the_full_state() -> None:
    """Patches that only replace become one, with the same result as one after the other."""
    rng = random.Random(3)
    full = {f"k{i}": {"n": 0, "pad": "x" * 300} for i in range(10)} | {"pad": "y" * 300}
    joined: dict[str, bytes] = {}
    state = copy.deepcopy(full)
    for _ in range(300):
        before = copy.deepcopy(state)
        key = f"k{rng.randrange(10)}"
        choice = rng.random()
        if choice < 0.6:
            state[key]["n"] = rng.randrange(99)  # type: ignore[index]
        elif choice < 0.8:
            state[key] = {"n": rng.randrange(9), "pad": "x" * 300}
        else:
            state[key] = {"pad": "x" * 300, "n": rng.randrange(9)}
        ops, _ = delta.diff(delta.of_tree(before), delta.of_tree(state))
        found = patching.join(joined, ops)
        if found is None:
            full, joined = copy.deepcopy(before), patching.join({}, ops) or {}
        else:
            joined = found
        patch = orjson.loads(
            patching.encode_ops([patching.Op("replace", p, v) for p, v in joined.items()])
        )
        assert same(patched(full, patch), state)


def test_patches_that_cannot_be_joined() -> None:
    """Added and removed members, and a change inside of what was replaced, need a chain."""
    replace = patching.Op("replace", "/a/b", b"1")
    assert patching.join({}, [patching.Op("add", "/a", b"1")]) is None
    assert patching.join({}, [patching.Op("remove", "/a", b"")]) is None
    assert patching.join({"/a": b'{"b":0}'}, [replace]) is None
    assert patching.join({"/a/b/c": b"0"}, [replace]) == {"/a/b": b"1"}
    assert patching.join({"/a/bc": b"0"}, [replace]) == {"/a/bc": b"0", "/a/b": b"1"}
    assert patching.join({"": b"{}"}, [replace]) is None
