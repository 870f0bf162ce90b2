"""The states that are saved: made of the same text on every machine, and of plain JSON types."""

from __future__ import annotations

import functools
import random
from typing import Any, Protocol

_SENTENCE = "the agent reads a page and writes down what it found there before it asks the model"
_WORDS = _SENTENCE.split()


@functools.cache
def _vocabulary() -> tuple[list[str], list[float]]:
    """Return made-up words, and how often each comes: as in a language, few of them often."""
    chance = random.Random(1)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(4000)]
    return words, [1 / (10 + rank) for rank in range(len(words))]


def prose(seed: int, size: int) -> str:
    """Return words that do not repeat: what a database compresses as it does a real text."""
    words, weights = _vocabulary()
    return f"{seed:06d} {' '.join(random.Random(seed).choices(words, weights, k=size // 3))}"[:size]


def text(seed: int, size: int) -> str:
    """Return `size` characters that differ for each seed."""
    start = seed * 7
    words = [_WORDS[(start + k * (1 + seed % 5)) % len(_WORDS)] for k in range(size // 3)]
    return f"{seed:06d} {' '.join(words)}"[:size]


def message(number: int, size: int) -> dict[str, Any]:
    """Return a chat message whose text has `size` characters."""
    call = {"id": f"call-{number:06d}", "name": "search", "args": {"q": "x"}}
    return {
        "role": ("user", "assistant")[number % 2],
        "content": text(number, size),
        "id": f"msg-{number:06d}",
        "tokens": number,
        "cached": False,
        "tool_calls": [call] if number % 4 == 1 else None,
    }


def chat(size: int) -> dict[str, Any]:
    """Return a chat of about `size` bytes, in short messages: the hard case for an encoder."""
    count = size // 280
    return {"step": count, "messages": [message(number, 160) for number in range(count)]}


def kilobyte(number: int) -> dict[str, Any]:
    """Return a state of about 1 kB of JSON, another one for each number."""
    return {
        "step": number,
        "task": "read the reports and list what has changed since the last one",
        "messages": [message(number + k, 190) for k in range(3)],
    }


def note(number: int) -> str:
    """Return the note of a step."""
    return f"finished step {number}, next is step {number + 1}"


class Workload(Protocol):
    """A run whose state changes from waypoint to waypoint.

    Attributes:
        state: what is saved next.
    """

    state: Any

    def advance(self, number: int) -> None:
        """Make `state` that of waypoint `number`."""


class Small:
    """160 bytes, all of them new each time."""

    def __init__(self) -> None:
        self.state: Any = None

    def advance(self, number: int) -> None:
        self.state = {"step": number, "task": text(number, 90), "tokens": 3 * number, "left": []}


class Document:
    """A document of 1 MB that stays, and a counter."""

    def __init__(self) -> None:
        self.state: Any = {"document": text(1, 1_000_000), "step": 0}

    def advance(self, number: int) -> None:
        self.state["step"] = number


class Dict:
    """A dict of 1,000 texts of 1 kB, one of which is replaced each time."""

    def __init__(self) -> None:
        self.state: Any = {f"page-{k:04d}": text(k, 1000) for k in range(1000)}

    def advance(self, number: int) -> None:
        self.state[f"page-{number * 389 % 1000:04d}"] = text(number + 1000, 1000)


class List:
    """A chat that grows by 1 kB each time: 10 MB after 10,000 waypoints."""

    def __init__(self) -> None:
        self.state: Any = {"step": 0, "messages": []}

    def advance(self, number: int) -> None:
        self.state["step"] = number
        self.state["messages"].append(message(number, 900))


WORKLOADS: dict[str, type[Workload]] = {
    "small": Small,
    "document": Document,
    "dict": Dict,
    "list": List,
}
