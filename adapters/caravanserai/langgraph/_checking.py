"""An answer goes only to what was asked: what a node asks is compared with what was answered.

LangGraph (1.2.24) hands answers over by position, and shows a saver nothing of the `interrupt` that
gets one. So a job whose node asked in another process holds the answer back, and runs the node
without it. Where it asks the same, nothing is written, and the next round of the graph delivers.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from contextlib import contextmanager
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from caravanserai.langgraph._asked import (
    ASKED,
    answers_in,
    listed,
    meta_of,
    place_of,
    task_of,
)
from caravanserai.langgraph._wording import worded
from caravanserai_core.opening import writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from langgraph.pregel import Pregel

    from caravanserai.langgraph._notes import Write
    from caravanserai_core.ledger import Question

    Parts = Mapping[str, Callable[[], object]]

_MOST_THREADS: Final = 1024
"""Threads of which it is known what their nodes asked; the others are asked once more."""


class _Heard(NamedTuple):
    """What this process has heard the nodes of a thread ask.

    Attributes:
        writer: the process.
        parts: what the nodes are made of.
        nodes: the node of the graph that each question is asked in, "" where it is not known, by
            what tells the question from others.
    """

    writer: str
    parts: Parts
    nodes: dict[tuple[str, str], str]


class _Held(NamedTuple):
    """A question whose answer is held back.

    Attributes:
        question: the question.
        passed: a task passes it on from inside, where it has another id in each round.
    """

    question: Question
    passed: bool


class Checks:
    """What this process has heard the nodes of a thread ask, and the answers it holds back.

    Args:
        store_key: what tells the thread's store from others.
        run_id: the thread's run.

    Attributes:
        confirmed: a node has asked again what was answered, so that a further round brings more.
        ended: a task has come to its end in this round.
        on: a job is at work: an answer goes only to what was asked.
    """

    def __init__(self, store_key: object, run_id: str) -> None:
        self.confirmed = False
        self.ended = False
        self.on = False
        self._key = (store_key, run_id)
        self._heard: dict[tuple[str, str], str] = {}
        self._held: dict[str, _Held] = {}
        self._expected: dict[str, Question] = {}
        self._moved = False

    @contextmanager
    def during(self, parts: Parts) -> Iterator[Checks]:
        """Hold answers back during a job's call.

        Args:
            parts: what the nodes of its graph are made of; see `parts_of`. What another process
                heard, or was asked in a node that is another one now, counts no more.
        """
        self._heard = _heard_by(self._key, parts)
        before, self.on = self.on, True
        self._expected = {}
        self.again()
        try:
            yield self
        finally:
            self.on = before
            self._held.clear()

    def again(self) -> None:
        """Begin a round of the graph: what was confirmed is delivered in it."""
        self.confirmed = self.ended = self._moved = False
        self._held.clear()

    # ------------------------------------------------------------------ what is asked

    def hear(self, question: Question, node: str) -> None:
        """Note that a node of this process asked a question."""
        if self.on:
            self._heard[_name(question)] = outermost(question.record.lane, node)

    def trusts(self, question: Question) -> bool:
        """Say whether the answer to a question may be delivered."""
        return not self.on or _name(question) in self._heard

    def hold(self, question: Question, *, passed: bool = False) -> None:
        """Hold an answer back until its node has asked again."""
        self._held[question.id] = _Held(question, passed)

    def repeats(
        self, ns: str, node: str, told: Sequence[Write], name_of: Callable[[Any], str]
    ) -> bool:
        """Say whether all that a task asks was answered already; from now on that may be delivered.

        Args:
            ns: the namespace of the task.
            node: its node, or "".
            told: what it wrote.
            name_of: returns the id that an interrupt was first asked under.

        Raises:
            UnserialisableState: what it asks cannot be kept exactly.
        """
        asks = [i for write in told if write.channel == ASKED for i in listed(write.value)]
        if not asks:
            self.ended = True
        if not asks or not self._held:
            return False
        place = len(answers_in(told))
        again = [self._asked((ns, told[0].task), place, i.value, name_of(i)) for i in asks]
        for question in again:
            if question is not None and _name(question) not in self._heard:
                self.confirmed = True  # first: what is streamed meanwhile belongs to this round
                self.hear(question, node)
        return None not in again

    def _asked(self, task: tuple[str, str], place: int, value: Any, name: str) -> Question | None:
        """Return the question whose answer is held back and that is asked now, or None."""
        digest = worded(value, task[0], [name], {}).digest
        for held in list(self._held.values()):
            lane, _, by = task_of(held.question)
            mine = (lane, by) == task
            if meta_of(held.question)["interrupt"] != name:
                if not (mine and held.passed):
                    continue
            elif mine and place_of(held.question) != place:
                continue  # a task's questions may all have one id: those of older versions had
            if held.question.record.head.get("digest") == digest:
                return held.question
        return None

    # ------------------------------------------------------------------ what is no longer asked

    def left(self, ns: str) -> list[Question]:
        """Return, once, what was answered and not asked again in a namespace, or inside of it."""
        left = {
            question.id: question
            for question in self._waiting()
            if _name(question) not in self._heard and is_inside(question.record.lane, ns)
        }
        for name in left:
            self._held.pop(name, None)
            self._expected.pop(name, None)
        return list(left.values())

    def replaced(self, ns: str, task: str) -> list[Question]:
        """Return what a task passed on, was answered, and is not what it passes on now."""
        return [
            question
            for question, passed in list(self._held.values())
            if passed
            and _name(question) not in self._heard
            and (question.record.lane, meta_of(question).get("task")) == (ns, task)
        ]

    # ------------------------------------------------------------------ what is shown

    def expect(self, questions: Iterable[Question]) -> None:
        """Note what is to be asked again before the graph goes on."""
        self._expected = {question.id: question for question in questions}

    def moved(self) -> None:
        """Note that the graph has come to its next checkpoint: what it did is not done again."""
        self._moved = True

    @property
    def undecided(self) -> bool:
        """Whether what the graph does may be done once more, in a further round."""
        if self._moved or self.confirmed:
            return self.confirmed
        return any(_name(question) not in self._heard for question in self._waiting())

    def _waiting(self) -> list[Question]:
        held = [held.question for held in list(self._held.values())]
        return [*held, *list(self._expected.values())]


def is_inside(lane: str, ns: str) -> bool:
    """Say whether a namespace is another one, or inside of it."""
    return not ns or lane == ns or lane.startswith(f"{ns}|")


def outermost(ns: str, node: str) -> str:
    """Return the node of the outermost graph in which something of a namespace happens."""
    return ns.partition(":")[0] if ns else node


def parts_of(graph: Pregel[Any, Any, Any, Any]) -> Parts:
    """Return what tells the nodes of a graph from those of another one, without a look inside."""
    found = {}
    for name, node in graph.nodes.items():
        bound: object = node.bound
        # Of a plain function LangGraph (1.2.24) makes its async form itself, anew each time.
        function = getattr(bound, "func", None) or getattr(bound, "afunc", None)
        found[name] = _reference(bound if function is None else function)
    return found


_by_thread: OrderedDict[tuple[object, str], _Heard] = OrderedDict()
_lock = threading.Lock()


def _heard_by(key: tuple[object, str], parts: Parts) -> dict[tuple[str, str], str]:
    """Return what this very process heard these very nodes ask, each with its node.

    A program may let go of its graph and make it anew for each start.
    """
    with _lock:
        found = _by_thread.pop(key, None)
        nodes: dict[tuple[str, str], str] = {}
        if found is not None and found.writer == writer():
            same = {node for node in parts if _same(node, found.parts, parts)}
            if len(same) == len(parts):
                same.add("")
            nodes = {name: node for name, node in found.nodes.items() if node in same}
        _by_thread[key] = _Heard(writer(), parts, nodes)
        if len(_by_thread) > _MOST_THREADS:
            _by_thread.popitem(last=False)
        return nodes


def _reference(part: object) -> Callable[[], object]:
    """Refer to a part of a node that lives no longer for it, where that can be."""
    try:
        return weakref.WeakMethod(part) if isinstance(part, MethodType) else weakref.ref(part)
    except TypeError:
        return lambda: part


def _same(node: str, parts: Parts, others: Parts) -> bool:
    """Say whether a node of two graphs is made of the same."""
    if node not in parts or node not in others:
        return False
    one, other = parts[node](), others[node]()
    # Each look at a method makes another object.
    return one is other or (isinstance(one, MethodType) and one == other)


def _name(question: Question) -> tuple[str, str]:
    """Return what tells a question from one of the same id in another run of this name."""
    return question.id, str(question.record.head.get("time"))
