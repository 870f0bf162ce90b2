"""Random edits of large states, as agents make them: the material of the delta tests."""

from __future__ import annotations

import collections
import copy
import datetime as dt
import math
import random
from collections.abc import Callable
from typing import Any

from integration_tests.codec.values import VALUES, Colour, Model, Pair, Point

KEYS = [
    "a",
    "b",
    "c~d",
    "c/d",
    "~1",
    "~0",
    "/",
    "",
    "-",
    "0",
    "1",
    "é",
    "世界",
    "🍸",
    '"',
    "\\",
    "two words",
    "$x",
    "$tuple",
]
"""Keys on which a JSON Pointer, an array index or a tag could stumble."""

PLAIN: list[Callable[[random.Random], object]] = [
    lambda rng: rng.randrange(10**6),
    lambda rng: rng.random(),
    lambda rng: None,
    lambda rng: rng.random() < 0.5,
    lambda rng: "text " * rng.randrange(20),
    lambda rng: 'ü"\\\n世' * rng.randrange(40),
    lambda rng: [],
    lambda rng: {},
    lambda rng: [rng.randrange(9) for _ in range(rng.randrange(30))],
    lambda rng: {rng.choice(KEYS[:17]): rng.randrange(9) for _ in range(rng.randrange(5))},
    lambda rng: {"role": "user", "content": "hello " * rng.randrange(60), "parts": [1, {"n": 2}]},
]
TAGGED: list[Callable[[random.Random], object]] = [
    lambda rng: (rng.randrange(9), "x"),
    lambda rng: dt.datetime(2026, 1, 1 + rng.randrange(20), tzinfo=dt.UTC),
    lambda rng: Point(rng.randrange(9), {"k": ["long " * 70, rng.randrange(9)]}),
    lambda rng: Model(value={"n": rng.randrange(9), "more": ["long " * 70]}),
    lambda rng: {rng.randrange(9), "a"},
    lambda rng: math.nan,
    lambda rng: {rng.randrange(9): "int key", "9": 1},
    lambda rng: {"$tuple": [rng.randrange(9)]},
    lambda rng: Pair([rng.randrange(9)], Colour.RED),
    lambda rng: collections.OrderedDict(b=1, a=rng.randrange(9)),
    lambda rng: 2**70 + rng.randrange(9),
    lambda rng: "\ud800" + str(rng.randrange(9)),
    lambda rng: rng.choice(list(VALUES.values())),
]


def first_state(rng: random.Random) -> Any:
    """A state of more than 4 KiB, so that patches are written, with something for every edit."""
    nested: Any = {"leaf": 0, "pad": "p" * 300}
    for level in range(5):
        nested = {f"level{level}": nested, "list": list(range(5)), "pad": "q" * 100}
    state: dict[Any, Any] = {
        "counter": 0,
        "document": "words " * 800,
        "nested": nested,
        "messages": [{"role": "user", "content": f"message {i}", "n": [i]} for i in range(20)],
        "window": list(range(60)),
        "by_name": {key: {"seen": 0, "note": "n" * 80} for key in KEYS[:17]},
        "a/b~c": {"~": [1, 2, 3], "/": {"": 1}},
    }
    shapes: list[Callable[[], Any]] = [
        lambda: state,
        lambda: state,
        lambda: state,
        lambda: Point(state, [1]),
        lambda: Model(value=state),
        lambda: [state, "second"],
        lambda: collections.OrderedDict(state),
        lambda: {**state, 7: "a key that is no string"},
    ]
    return rng.choice(shapes)()


class Editor:
    """Edits one state at random, in place, as a program does between two saves."""

    def __init__(self, seed: int, *, tagged: float = 0.2, state: Any = None) -> None:
        self.rng = random.Random(seed)
        self.tagged = tagged
        self.fresh = 0.02 if state is None else 0.0
        self.state = first_state(self.rng) if state is None else state

    def step(self) -> Any:
        """Edit the state a few times and return a copy of what it is now."""
        if self.rng.random() < self.fresh:
            self.state = first_state(self.rng)  # everything at once
        for _ in range(self.rng.choice([0, 1, 1, 1, 2, 3, 8])):
            self._edit()
        return copy.deepcopy(self.state)

    def _value(self) -> object:
        return self.rng.choice(TAGGED if self.rng.random() < self.tagged else PLAIN)(self.rng)

    def _container(self) -> Any:
        """Walk down from the root and stop anywhere."""
        node = self.state
        for _ in range(12):
            if isinstance(node, Point):
                inner = [node.x, node.y]
            elif isinstance(node, Model):
                inner = [node.value]
            elif isinstance(node, dict):
                inner = list(node.values())
            else:
                inner = list(node)
            inner = [child for child in inner if isinstance(child, (dict, list, Point, Model))]
            if not inner or (node is not self.state and self.rng.random() < 0.3):
                break
            node = self.rng.choice(inner)
        return node

    def _edit(self) -> None:
        node = self._container()
        if isinstance(node, Point):
            node.y = self._value()
        elif isinstance(node, Model):
            node.name = str(self.rng.randrange(99))
        elif isinstance(node, list):
            self.rng.choice(_LIST_EDITS)(self, node)
        elif isinstance(node, collections.Counter):
            node["seen"] += 1
        else:
            self.rng.choice(_DICT_EDITS)(self, node)


def _append(editor: Editor, items: list[Any]) -> None:
    items.extend(editor._value() for _ in range(editor.rng.choice([1, 1, 2, 5])))


def _slide(editor: Editor, items: list[Any]) -> None:
    del items[: editor.rng.choice([1, 1, 3])]
    items.append(editor._value())


def _insert(editor: Editor, items: list[Any]) -> None:
    items.insert(editor.rng.randrange(len(items) + 1), editor._value())


def _remove(editor: Editor, items: list[Any]) -> None:
    if items:
        begin = editor.rng.randrange(len(items))
        del items[begin : begin + editor.rng.choice([1, 1, 4])]


def _replace(editor: Editor, items: list[Any]) -> None:
    if items:
        items[editor.rng.randrange(len(items))] = editor._value()


def _shuffle(editor: Editor, items: list[Any]) -> None:
    editor.rng.shuffle(items)


def _repeat(editor: Editor, items: list[Any]) -> None:
    items.extend(copy.deepcopy(items[:3]))


def _set(editor: Editor, node: dict[Any, Any]) -> None:
    node[editor.rng.choice(KEYS)] = editor._value()


def _change(editor: Editor, node: dict[Any, Any]) -> None:
    if node:
        node[editor.rng.choice(list(node))] = editor._value()


def _count(editor: Editor, node: dict[Any, Any]) -> None:
    for key, value in node.items():
        if type(value) is int:
            node[key] = value + 1
            return


def _delete(editor: Editor, node: dict[Any, Any]) -> None:
    if node and not (node is editor.state and len(node) < 5):
        del node[editor.rng.choice(list(node))]


def _reorder(editor: Editor, node: dict[Any, Any]) -> None:
    if node:
        key = editor.rng.choice(list(node))
        value = node.pop(key)
        if editor.rng.random() < 0.5:
            node[key] = value
        else:  # to the front
            rest = list(node.items())
            node.clear()
            node[key] = value
            node.update(rest)


def _rename(editor: Editor, node: dict[Any, Any]) -> None:
    if node:
        key = editor.rng.choice(list(node))
        node[editor.rng.choice(KEYS)] = node.pop(key)


_LIST_EDITS = [_append, _append, _slide, _slide, _insert, _remove, _replace, _replace, _shuffle]
_LIST_EDITS += [_repeat]
_DICT_EDITS = [_set, _set, _change, _change, _count, _delete, _reorder, _rename]
