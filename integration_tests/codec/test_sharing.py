"""A list that begins like another one is written as a reference, and comes back whole."""

from __future__ import annotations

import copy
import functools
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from caravanserai import checkpoint, load, open_run
from caravanserai_core import codec, delta, patching
from caravanserai_core.codec import (
    Decoder,
    Shared,
    decode,
    decode_tree,
    encode,
    parse,
    pieces,
    unshare,
)
from caravanserai_core.errors import SchemaMismatch, UnknownType, UnserialisableState
from integration_tests.codec.values import Point, random_state, same


def roundtrip(value: object) -> Any:
    data, tagged, shared = written(value)
    return decode(data, tagged, shared)


def written(value: object) -> tuple[bytes, bool, tuple[str, ...]]:
    return pieces(value, lambda tree, dumps: dumps(tree))


def in_full(value: object, state: Any) -> Any:
    """The same value with lists in the place of references."""
    if type(value) is Shared:
        rest = [in_full(item, state) for item in value.rest]
        target = state
        for key in value.path:
            target = target[key]
        return [*target[: value.first], *rest]
    if type(value) is list:
        return [in_full(item, state) for item in value]
    if type(value) is dict:
        return {key: in_full(item, state) for key, item in value.items()}
    if type(value) is Point:
        return Point(in_full(value.x, state), in_full(value.y, state))
    return value


def test_a_reference_is_written_with_its_path_and_the_rest() -> None:
    state = {"values": {"messages": [1, 2, 3]}, "task": Shared(("values", "messages"), 2, [(4,)])}
    data, tagged, shared = written(state)
    assert orjson.loads(data)["task"] == {
        "$same": {"path": "/values/messages", "first": 2, "then": [{"$tuple": [4]}]}
    }
    assert (tagged, shared) == (True, ("/values/messages",))


def test_nothing_that_follows_is_left_out() -> None:
    data, _, _ = written({"a": [1], "b": Shared(("a",), 1, [])})
    assert orjson.loads(data)["b"] == {"$same": {"path": "/a", "first": 1}}


def test_a_reference_comes_back_as_a_list_of_the_same_objects() -> None:
    """As they were in the program; the lists are two."""
    value = roundtrip({"task": Point({"m": Shared(("a", "m"), 2, [4])}), "a": {"m": [{}, {}, 3]}})
    assert value == {"task": Point({"m": [{}, {}, 4]}), "a": {"m": [{}, {}, 3]}}
    assert value["task"].x["m"][0] is value["a"]["m"][0]
    assert list(value) == ["task", "a"]


def test_keys_that_a_pointer_has_to_escape() -> None:
    state = {"a/b": {"c~1": {"": [1]}}, "s": Shared(("a/b", "c~1", ""), 1, [])}
    assert written(state)[2] == ("/a~1b/c~01/",)
    assert roundtrip(state)["s"] == [1]


def test_a_state_without_references_names_no_lists() -> None:
    assert encode({"a": [1]}).shared == ()
    assert encode({"a": (1,)}).shared == ()


@pytest.mark.parametrize("user", [{"$same": {"path": "/a", "first": 1}}, {"$same": []}])
def test_a_dict_of_that_shape_stays_a_dict(user: Any) -> None:
    state = {"a": [1, 2], "u": user, "s": Shared(("a",), 1, [user])}
    assert roundtrip(state) == {"a": [1, 2], "u": user, "s": [1, user]}


@pytest.mark.parametrize(
    "state",
    [
        {"a": [1], "s": Shared(("b",), 1, [])},
        {"a": [1], "s": Shared(("a",), 2, [])},
        {"a": (1,), "s": Shared(("a",), 1, [])},
        {"a": {1: [1]}, "s": Shared(("a", "1"), 1, [])},
        {"a": {"$x": [1]}, "s": Shared(("a", "$x"), 1, [])},
        {"a": [1], "s": Shared((), 1, [])},
        {"a": [1], "s": Shared(("a",), -1, [])},
        {"a": [1], "s": Shared(("a",), True, [])},
        {"a": [1], "s": Shared(["a"], 1, [])},  # type: ignore[arg-type]
        {"a": [1], "s": Shared(("a",), 1, (2,))},  # type: ignore[arg-type]
    ],
)
def test_a_reference_that_could_not_be_resolved_is_refused(state: Any) -> None:
    with pytest.raises(UnserialisableState):
        written(state)


def test_a_value_that_cannot_be_kept_behind_a_reference_is_named_by_its_place() -> None:
    with pytest.raises(UnserialisableState) as caught:
        written({"a": [1, 2], "s": Shared(("a",), 2, [3, {"k": object()}])})
    assert caught.value.path == "$.s[3].k"


@pytest.mark.parametrize(
    ("tree", "shared"),
    [
        ({"a": [1], "s": {"$same": {"path": "/a", "first": 1}}}, ()),
        ({"a": [1], "s": {"$same": {"path": "/b", "first": 1}}}, ("/a",)),
        ({"a": [1], "s": {"$same": {"path": "/a", "first": 2}}}, ("/a",)),
        ({"a": [1], "s": {"$same": {"path": "/a", "first": -1}}}, ("/a",)),
        ({"a": [1], "s": {"$same": {"path": "/a", "first": True}}}, ("/a",)),
        ({"a": [1], "s": {"$same": {"path": "/a", "first": 1, "then": []}}}, ("/a",)),
        ({"a": [1], "s": {"$same": {"path": "/a", "first": 1, "x": 1}}}, ("/a",)),
        ({"a": [1], "s": {"$same": {"first": 1}}}, ("/a",)),
        ({"a": [1], "s": {"$same": 1}}, ("/a",)),
        ({"a": {"b": 1}, "s": {"$same": {"path": "/a", "first": 1}}}, ("/a",)),
        ({"a": [1], "s": 1}, ("a",)),
        ({"a": [1], "s": 1}, ("",)),
        ({"a": [1], "s": 1}, ("/a/0",)),
        ({"a": [1], "s": 1}, ("/x",)),
        ({"a": {"$tuple": [1]}, "s": 1}, ("/a/$tuple",)),
        ({"a": [{"$same": {"path": "/b", "first": 1}}], "b": [1]}, ("/a", "/b")),
        ({"a": [{"$same": {"path": "/a", "first": 0}}]}, ("/a",)),
        ([], ("/a",)),
    ],
)
def test_a_malformed_reference_is_refused(tree: Any, shared: tuple[str, ...]) -> None:
    for attempt in (decode_tree, Decoder().decode):
        with pytest.raises(SchemaMismatch, match=r"malformed \$same"):
            attempt(copy.deepcopy(tree), shared)


@pytest.mark.parametrize(
    "reference", [{"path": "/b", "first": 1}, {"path": "/a", "first": 2}, {"path": "/a"}, [], None]
)
def test_a_malformed_reference_in_a_raw_tree_is_refused(reference: Any) -> None:
    with pytest.raises(SchemaMismatch, match=r"malformed \$same"):
        unshare({"a": [1], "s": {"$same": reference}}, ("/a",))


def test_what_a_fault_in_a_target_is_called() -> None:
    tree = {"a": {"b": [1, {"$unknown": 1}]}, "s": {"$same": {"path": "/a/b", "first": 1}}}
    for attempt in (decode_tree, Decoder().decode):
        with pytest.raises(UnknownType) as caught:
            attempt(copy.deepcopy(tree), ("/a/b",))
        assert caught.value.path == "$.a.b[1]"


def test_a_reference_into_another_state_is_resolved_with_that() -> None:
    """What an entry holds begins like a list of the waypoint before it."""
    state = {"m": [{"x": 1}, {"x": 2}]}
    entry = encode({"task": Shared(("m",), 2, [3])})
    assert entry.shared == ("/m",)
    targets = {path: codec.at(state, path) for path in entry.shared}
    value: Any = decode(*entry, targets)
    assert value == {"task": [{"x": 1}, {"x": 2}, 3]}
    assert value["task"][0] is state["m"][0]
    assert Decoder().decode(parse(entry.data), entry.shared, targets) == value
    with pytest.raises(SchemaMismatch):
        codec.at(state, "/m/0")


def test_a_raw_tree_gets_lists_in_the_place_of_references() -> None:
    data, _, shared = written({"m": [(1,), 2], "s": [Shared(("m",), 1, [{3}])]})
    raw = unshare(parse(data), shared)
    assert raw == {
        "m": [{"$tuple": [1]}, 2],
        "s": [[{"$tuple": [1]}, {"$set": [3]}]],
    }


def growing(rng: random.Random) -> Any:
    """States whose lists grow, shrink and are repeated, as an agent's do."""
    lists: dict[str, list[Any]] = {"messages": [], "b/c": []}
    while True:
        for items in lists.values():
            if rng.random() < 0.1:
                del items[: rng.randrange(3)]
            items.extend(random_state(rng, 2) for _ in range(rng.randrange(3)))
        sends = [
            Point({"state": Shared(("v", name), rng.randint(0, len(items)), rest)}, number)
            for number, (name, items) in enumerate(lists.items())
            for rest in [[random_state(rng, 1)] * rng.randrange(2)]
        ]
        state = {"tasks": sends, "v": {name: list(items) for name, items in lists.items()}}
        yield state


@pytest.mark.parametrize("seed", range(5))
def test_random_states_with_references_come_back_through_patches(seed: int, thorough: bool) -> None:
    """References are resolved after patches were applied, also where the target has grown."""
    rng = random.Random(seed)
    before: delta.Shadow | None = None
    tree: Any = None
    decoder = Decoder()
    for state, _ in zip(growing(rng), range(200 if thorough else 20), strict=False):
        build = functools.partial(delta.shadow, expand=codec.expand, like=before)
        node, tagged, shared = pieces(state, build)
        if before is None:
            tree = parse(delta.joined(node))
        else:
            ops, node = delta.diff(before, node)
            tree = patching.apply(copy.deepcopy(tree), parse(patching.encode_ops(ops)))
        before = node
        expected = in_full(state, state)
        assert same(decode_tree(copy.deepcopy(tree), shared), expected)
        kept = copy.deepcopy(tree)
        assert same(decoder.decode(tree, shared), expected)
        assert tree == kept
        raw = unshare(copy.deepcopy(tree), shared)
        assert same(decode_tree(parse(orjson.dumps(raw))), expected)
        assert tagged


def chat(count: int) -> list[Any]:
    return [
        {"role": "user", "content": f"message {number} " + "x" * 100} for number in range(count)
    ]


def test_saved_states_and_entries_with_references_come_back() -> None:
    """Through the journal: full records, patches, a repeated state, entries, raw trees."""
    with open_run("run") as run:
        for count in range(1, 80):
            messages = chat(count)
            send = {"arg": Shared(("v", "m"), count - 1, [("last", count)])}
            run.checkpoint({"v": {"m": messages}, "tasks": [send]}, f"step {count}")
        run.entry("write", {"m": Shared(("v", "m"), 79, [(1,)])})
        (entry,) = run.entries()
    assert entry.data == {"m": [*chat(79), (1,)]}
    for at in (1, 2, 40, 79):
        state = load("run", at=at)
        assert state["tasks"] == [{"arg": [*chat(at)[:-1], ("last", at)]}]
        assert state["v"]["m"] == chat(at)
    raw: Any = load("run", raw=True)
    assert raw["tasks"][0]["arg"][:-1] == chat(78)


def test_a_repeated_list_takes_the_room_of_one() -> None:
    with open_run("twice") as run:
        messages = chat(500)
        run.checkpoint({"m": messages, "again": Shared(("m",), 500, []), "t": (1,)}, "n")
    with open_run("once") as run:
        run.checkpoint({"m": messages, "t": (1,)}, "n")
    sizes = [
        (Path(".caravanserai") / name / "journal-1.jsonl").stat().st_size
        for name in ("once", "twice")
    ]
    assert sizes[1] - sizes[0] < 200
    assert load("twice")["again"] == messages


def test_a_repeated_waypoint_keeps_its_references() -> None:
    with open_run("run") as run:
        run.checkpoint({"m": chat(60), "again": Shared(("m",), 60, [])}, "before")
        run.repeat("it waits")
    assert load("run")["again"] == chat(60)


def test_a_process_that_repeats_what_another_has_saved_keeps_its_references() -> None:
    with open_run("run") as run:
        run.checkpoint({"m": chat(60), "again": Shared(("m",), 60, [])}, "before")
    code = "from caravanserai import open_run\nwith open_run('run') as run: run.repeat('it waits')"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert load("run", at=2)["again"] == chat(60)


def test_show_prints_lists_and_not_references() -> None:
    checkpoint("run", {"m": [1, 2], "again": Shared(("m",), 2, [(3,)])}, "note")
    command = [sys.executable, "-m", "caravanserai_core.cli", "show", "run", "--state"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert orjson.loads(shown) == {"m": [1, 2], "again": [1, 2, {"$tuple": [3]}]}
