"""How LangGraph names the tasks of a step, so that what they wrote stays theirs under a new name.

A task is found again by its id alone: a hash of its checkpoint, namespace, step, node and of what
triggered it (langgraph 1.2.24, `pregel/_algo.py`). Whoever gives a node another name changes the
ids of its tasks; pending writes under the old ids would be nobody's, and finished nodes would run
again. `integration_tests/langgraph/test_task_ids.py` fails when a LangGraph names them otherwise.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID, uuid5

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PULL: Final = "__pregel_pull"
PUSH: Final = "__pregel_push"
_HANDLER: Final = "node_error_handler"

_HANDLED: Final = f", {_HANDLER}, 0000000000"
_PULLED: Final = re.compile(rf"~{PULL}, (.+)", re.DOTALL)
_PUSHED: Final = re.compile(rf"~{PUSH}, (\d{{10}}), 0000000000")
_HANDLERS: Final = "__error_handler__"
_DEFAULT_HANDLER: Final = "__default_error_handler__"

_MOST_JOINS: Final = 8
"""Joins in front of one node of which every combination is tried."""

_MOST_UPDATES: Final = 64
"""Updates of one `bulk_update_state` step."""

_MOST_QUESTIONS: Final = 64
"""Questions of one task."""


class Place(NamedTuple):
    """Where the tasks of a step are.

    Attributes:
        checkpoint_id: of the checkpoint that they start from.
        ns: its namespace.
        step: number of the step, one more than that of the checkpoint.
    """

    checkpoint_id: str
    ns: str
    step: int


class Task(NamedTuple):
    """What a task's id is made of, beside its place.

    Attributes:
        node: the node; the name of a handler for its task.
        kind: PULL: its triggers start it; PUSH: a `Send`, or the failure of another task.
        parts: the triggers in their order; the number of the `Send`; the id of the failed task.
    """

    node: str
    kind: str
    parts: tuple[str, ...]

    def id(self, place: Place) -> str:
        """Return the task's id."""
        from xxhash import xxh3_128_hexdigest

        ns = f"{place.ns}|{self.node}" if place.ns else self.node
        parts = (ns, str(place.step), self.node, self.kind, *self.parts)
        checkpoint = bytes.fromhex(place.checkpoint_id.replace("-", ""))
        digest = xxh3_128_hexdigest(checkpoint + "".join(parts).encode())
        return "-".join(map(digest.__getitem__, _GROUPS))

    def ns(self, place: Place) -> str:
        """Return the namespace of what runs inside it."""
        inner = f"{self.node}:{self.id(place)}"
        return f"{place.ns}|{inner}" if place.ns else inner


_GROUPS: Final = (slice(8), slice(8, 12), slice(12, 16), slice(16, 20), slice(20, None))


class Path(NamedTuple):
    """What the path of a task tells of it.

    Attributes:
        node: the node that its triggers started; "" for a `Send`.
        send: number of the `Send`; -1 for the others.
        handled: it is the handler of the task whose path the rest of it is; "" for the others.
        call: it is a function that a task called.
    """

    node: str = ""
    send: int = -1
    handled: str = ""
    call: bool = False


def path_of(text: str) -> Path:
    """Read a task's path as LangGraph writes it."""
    handled = text.removesuffix(_HANDLED)
    if handled != text:
        return Path(handled=handled)
    if pulled := _PULLED.fullmatch(text):
        return Path(node=pulled[1])
    if pushed := _PUSHED.fullmatch(text):
        return Path(send=int(pushed[1]))
    return Path(call=bool(text))


def is_update(task_id: str, text: str, checkpoint_id: str) -> bool:
    """Say whether writes are of no task: an `update_state`, or a step that was never stored.

    The second is what `durability="exit"` leaves of the steps before the last, for the history.
    """
    if text.startswith("~__interrupt__, ") or task_id.startswith("ffffffff-"):
        return True
    names = ("__input__", "__interrupt__", *(f"__interrupt__:{n}" for n in range(1, _MOST_UPDATES)))
    checkpoint = UUID(checkpoint_id)
    if not text and any(str(uuid5(checkpoint, name)) == task_id for name in names):
        return True
    return task_id.startswith("000") and task_id[:8].isdecimal()  # the number of the step


def calls_of(node: str) -> str:
    """Return what stands in the path of each function that a node called."""
    return f"~{PULL}, {node}, "


def path_text(node: str) -> str:
    """Return the path of a node that its triggers started."""
    return f"~{PULL}, {node}"


def pulled(
    node: str, task_id: str, place: Place, known: Iterable[str], seen: Iterable[str]
) -> Task | None:
    """Return the task of a node whose id is known: its triggers are found by trying.

    Args:
        node: the node.
        task_id: its id.
        place: where it is.
        known: channels of the thread, among them joins that may lead to the node.
        seen: channels that have triggered the node.

    Returns:
        None where none of them gives that id.
    """
    for triggers in _triggers(node, known, seen):
        task = Task(node, PULL, tuple(sorted(triggers)))
        if task.id(place) == task_id:
            return task
    return None


def _triggers(node: str, known: Iterable[str], seen: Iterable[str]) -> Iterator[Sequence[str]]:
    own = f"branch:to:{node}"
    joins = sorted(c for c in known if c.startswith("join:") and c.rpartition(":")[2] == node)
    if len(joins) > _MOST_JOINS:
        yield (own,)
        yield (own, *joins)
    else:
        for count in range(len(joins) + 1):
            for some in itertools.combinations(joins, count):
                yield (own, *some)
    yield ("__start__",)
    yield tuple(seen)  # a graph that is no StateGraph


def pushed(node: str, number: int) -> Task:
    """Return the task of a `Send`, by its number among those of the step."""
    return Task(node, PUSH, (str(number),))


def handler(name: str, failed: str) -> Task:
    """Return the task that handles the failure of another one; its place is inside of that.

    Args:
        name: the handler's.
        failed: id of the task that failed.
    """
    return Task(name, PUSH, (_HANDLER, failed))


def handlers(node: str) -> tuple[str, str]:
    """Return the names that the handler of a node's errors may have."""
    return f"{_HANDLERS}{node}", _DEFAULT_HANDLER


def question_ids(ns: str) -> Iterator[str]:
    """Yield the ids of the questions that one task asks, the first one first."""
    from xxhash import xxh3_128_hexdigest

    for answered in range(_MOST_QUESTIONS):
        yield xxh3_128_hexdigest((f"{ns}|{answered}" if answered else ns).encode())
