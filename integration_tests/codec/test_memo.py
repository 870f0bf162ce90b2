"""Many states at once: each element that they share is decoded once, and no tree is changed."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from caravanserai_core import codec
from caravanserai_core.codec import Decoder, Shared, parse
from caravanserai_core.errors import SchemaMismatch, UnknownType
from integration_tests.codec.values import VALUES, Point, model, random_state, same


def tree_of(value: object) -> Any:
    return parse(codec.encode(value).data)


@pytest.mark.parametrize("name", VALUES)
def test_each_kind_of_value_comes_back_from_a_tree_that_stays(name: str) -> None:
    value = VALUES[name]
    for place in (
        value,
        [value],
        {"k": value},
        {"$k": [value]},
        (value,),
        Point(value),
        model(value, 1),
    ):
        tree = tree_of(place)
        before = copy.deepcopy(tree)
        decoder = Decoder()
        for _ in range(2):
            assert same(decoder.decode(tree), place)
        assert tree == before


@pytest.mark.parametrize("seed", range(5))
def test_random_states_come_back_from_a_tree_that_stays(seed: int, thorough: bool) -> None:
    rng = random.Random(seed)
    decoder = Decoder()
    for _ in range(1000 if thorough else 60):
        state = random_state(rng)
        tree = tree_of(state)
        before = copy.deepcopy(tree)
        assert same(decoder.decode(tree), state)
        assert tree == before


class Counted:
    """Counts how often one of it was decoded."""

    made = 0

    def __init__(self, number: int) -> None:
        self.number = number


def _decoded(content: Any) -> Counted:
    Counted.made += 1
    return Counted(content)


codec.register_codec(
    Counted, name="test.memo.Counted", encode=lambda value: value.number, decode=_decoded
)


def test_an_element_is_decoded_once_for_all_states() -> None:
    """Work is what is new, whatever the number of states."""
    raw = tree_of([Counted(number) for number in range(100)])
    decoder = Decoder()
    Counted.made = 0
    states = [decoder.decode({"messages": raw[:count], "n": count}) for count in range(1, 101)]
    assert Counted.made == 100
    assert [len(state["messages"]) for state in states] == list(range(1, 101))
    assert states[0]["messages"][0] is states[99]["messages"][0]
    assert states[0]["messages"] is not states[1]["messages"]


def test_an_element_with_a_reference_is_decoded_for_each_state() -> None:
    """The same raw element means another list where its target is another one."""
    task = tree_of({"task": Point(Shared(("m",), 1, [2]))})
    decoder = Decoder()
    for first in ("a", "b"):
        tree = {"m": [first], "tasks": [task, [task]]}
        state = decoder.decode(tree, ("/m",))
        assert state["tasks"] == [{"task": Point([first, 2])}, [{"task": Point([first, 2])}]]


def test_an_empty_target_is_one_too() -> None:
    tree = {"m": [], "s": {"$same": {"path": "/m", "first": 0}}}
    assert Decoder().decode(tree, ("/m",)) == {"m": [], "s": []}


def test_a_fault_leaves_the_decoder_in_order() -> None:
    decoder = Decoder()
    with pytest.raises(UnknownType) as caught:
        decoder.decode({"m": [1, {"x": {"$unknown": 1}}]}, ("/m",))
    assert caught.value.path == "$.m[1].x"
    with pytest.raises(SchemaMismatch, match=r"malformed \$same"):
        decoder.decode({"s": {"$same": {"path": "/m", "first": 0}}})
    assert decoder.decode({"m": [1]}) == {"m": [1]}


def test_a_tree_that_is_nested_too_deep_is_refused() -> None:
    tree: Any = 1
    for _ in range(5_000):
        tree = {"a": [tree]}
    with pytest.raises(SchemaMismatch, match="too deep"):
        Decoder().decode(tree)
