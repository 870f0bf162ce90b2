"""What a note says that was derived from what changed."""

from __future__ import annotations

import datetime
import enum
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from caravanserai import MemoryStore, get_waypoint, register_type, save


@register_type(name="derived.Phase")
class Phase(enum.Enum):
    PLAN = 1
    WORK = 2


@register_type(name="derived.Task")
@dataclass
class Task:
    step: int = 0
    tried: set[int] = field(default_factory=set)


@register_type(name="derived.Model")
class Model(BaseModel):
    step: int = 0
    tried: set[int] = set()


def derived(*states: Any) -> str:
    """Save states one after the other and return the last note."""
    store = MemoryStore()
    for state in states:
        save("run", state, store=store)
    return str(get_waypoint("run", store=store).note)


@pytest.mark.parametrize(
    ("states", "note"),
    [
        ([{"step": "plan", "n": 1}], "step: plan, n: 1"),
        ([{"n": 1}, {"n": 2}], "n: 1 → 2"),
        ([{"n": None}, {"n": True}], "n: none → true"),
        ([{"m": [1]}, {"m": [1, 2, 3]}], "m: 3 items (2 new)"),
        ([{"m": [1, 2]}, {"m": [2]}], "m: 1 item (1 fewer)"),
        ([{"m": [1]}, {"m": [2]}], "m: 1 item (changed)"),
        ([{"s": {1}}, {"s": {1, 2}}], "s: 2 items (1 new)"),
        ([{"t": (1, 2)}, {"t": (1, 3)}], "t: 2 items (changed)"),
        ([{"c": Counter("a")}, {"c": Counter("ab")}], "c: 2 items (1 new)"),
        ([{"d": deque([1])}], "d: 1 item"),
        ([{"d": {"a": 1}}, {"d": {"a": 2}}], "d: 1 member (changed)"),
        ([{"p": Phase.PLAN}, {"p": Phase.WORK}], "p: WORK"),
        ([{"o": Task()}, {"o": Task(1)}], "o: derived.Task (changed)".replace("derived.", "")),
        ([{"f": Path("a/b")}], "f: a/b"),
        ([{"w": datetime.date(2026, 1, 2)}], "w: 2026-01-02"),
        ([Task(), Task(1, {7})], "step: 0 → 1, tried: 1 item (1 new)"),
        ([Model(), Model(step=1, tried={7})], "step: 0 → 1, tried: 1 item (1 new)"),
        ([{"a": 1}, {"a": 1}], "nothing changed"),
        ([{"a": 1, "b": 2}, {"a": 1}], "b: removed"),
        ([{}], "empty state"),
        ([[1, 2]], "state: 2 items"),
        ([5], "state: 5"),
        (["text"], "state: text"),
        ([Phase.WORK], "state: WORK"),
        ([{str(n): n for n in range(9)}], "0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, and 3 more"),
        ([{"x": "*a* <b>"}], "x: `*a* <b>`"),
    ],
)
def test_a_derived_note_names_what_changed(states: list[Any], note: str) -> None:
    """In the program's own words, never in those of the format."""
    assert derived(*states) == note


def test_a_derived_note_does_not_decode_what_is_very_large() -> None:
    """A member of several megabytes is named and not looked into."""
    assert derived({"n": 1, "big": ["x" * 100] * 20_000}) == "n: 1, big: changed"
