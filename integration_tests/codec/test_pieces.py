"""A writer that encodes container by container gets the same bytes as one that does it at once."""

from __future__ import annotations

import random
from collections.abc import Callable

import orjson
import pytest

from caravanserai_core.codec import encode, expand, pieces
from caravanserai_core.errors import UnserialisableState
from integration_tests.codec.values import VALUES, Key, Pair, Point, model, random_state


def joined(part: object, dumps: Callable[[object], bytes]) -> bytes:
    """Write a tree by its smallest pieces, opening all that can be opened."""
    part = expand(part)
    if type(part) is list:
        return b"[" + b",".join(joined(item, dumps) for item in part) + b"]"
    if type(part) is dict and all(type(key) is str for key in part):
        items = (dumps(key) + b":" + joined(item, dumps) for key, item in part.items())
        return b"{" + b",".join(items) + b"}"
    return dumps(part)


@pytest.mark.parametrize("name", VALUES)
def test_pieces_of_a_value_join_to_the_whole(name: str) -> None:
    """For each kind of value, the joined bytes of its parts are those of the whole."""
    for value in (VALUES[name], [VALUES[name]], Point(VALUES[name]), model(VALUES[name], 1)):
        assert pieces(value, joined) == encode(value)


@pytest.mark.parametrize("seed", range(5))
def test_pieces_of_random_states_join_to_the_whole(seed: int, thorough: bool) -> None:
    """For random states, the joined bytes of all parts are those of the whole."""
    rng = random.Random(1000 + seed)
    for _ in range(1000 if thorough else 60):
        state = random_state(rng)
        assert pieces(state, joined) == encode(state)


def test_clean_state_is_handed_over_itself() -> None:
    """A state that is plain JSON is not copied."""
    state = {"a": [1, 2], "p": {"x": None}}
    seen: list[object] = []
    pieces(state, lambda tree, dumps: seen.append(tree))
    assert seen[0] is state


def test_trap_leaves_the_clean_parts_as_they_are() -> None:
    """Where one part needs a tag, the other parts are still the state's own objects."""
    messages = [{"a": i} for i in range(100)]
    state = {"messages": messages, "t": (1,)}
    seen: list[dict[str, object]] = []
    pieces(state, lambda tree, dumps: seen.append(tree))  # type: ignore[arg-type]
    assert seen[-1]["messages"] is messages
    assert seen[-1]["t"] == {"$tuple": [1]}


def test_trap_found_while_writing_builds_again() -> None:
    """What only orjson notices, such as a lone surrogate, makes `build` run once more."""
    state = {"a": 1, "b": "\ud800"}
    calls: list[object] = []

    def build(tree: object, dumps: Callable[[object], bytes]) -> bytes:
        calls.append(tree)
        return joined(tree, dumps)

    result = pieces(state, build)
    assert result == encode(state)
    assert len(calls) >= 2
    assert calls[0] is state


def test_expand_opens_objects_of_the_program_only() -> None:
    """Objects open by one level, with their fields as they are; other values stay closed."""
    inner = Key(1)
    opened = expand(Point(inner, [1]))
    assert isinstance(opened, dict)
    assert opened["$object"]["kind"] == "dataclass"
    assert opened["$object"]["value"]["x"] is inner
    assert expand(Pair(1))["$object"]["value"] == {"left": 1, "right": None}  # type: ignore[index]
    for value in ([1], {"a": 1}, "a", b"x", (1,), {1}, None):
        assert expand(value) is value


def test_expand_refuses_what_cannot_be_found_again() -> None:
    """An object whose class has no name to be found by is refused with a typed error."""

    class Local(Point):
        pass

    with pytest.raises(UnserialisableState):
        expand(Local(1))


def test_state_with_objects_counts_as_tagged() -> None:
    """Whoever opens an object writes a tag, and the result says so."""
    data, tagged, _ = pieces({"p": Point(1)}, joined)
    assert tagged
    assert orjson.loads(data)["p"]["$object"]["value"] == {"x": 1, "y": None}


def test_error_of_build_comes_out() -> None:
    """An exception of `build` itself reaches the caller."""

    def build(tree: object, dumps: Callable[[object], bytes]) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        pieces([1], build)
