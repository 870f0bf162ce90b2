"""Jobs that are killed at one place, named; each function is one start of a program.

A place is a node that begins, or a call of the adapter that is about to be made: the n-th
checkpoint ("put 1"), or the record of the end ("finish").
"""

from __future__ import annotations

import itertools
import json
import operator
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from caravanserai.langgraph import resumable_graph
from caravanserai.langgraph._thread import Thread
from caravanserai_core.pipeline import Pipeline

_place: str | None = None
_puts = itertools.count(1)


class State(TypedDict, total=False):
    """A list that nodes append to."""

    log: Annotated[list[str], operator.add]


def reach(place: str) -> None:
    """Note that a place is reached; die there if that was asked for."""
    with Path("outside.txt").open("a") as outside:
        outside.write(f"{place}\n")
    if place == _place:
        os.kill(os.getpid(), signal.SIGKILL)


def _before(kind: type, method: str, place: str) -> None:
    real: Callable[..., Any] = getattr(kind, method)

    def reached(*args: Any, **options: Any) -> Any:
        name = f"put {next(_puts)}" if place == "put" else place
        if name == _place:
            time.sleep(0.1)  # what nodes wrote before is on disk by then
        reach(name)
        return real(*args, **options)

    setattr(kind, method, reached)


def _node(name: str) -> Callable[[State], State]:
    def node(state: State) -> State:
        reach(name)
        return {"log": [name]}

    return node


def _asking(*names: str) -> Callable[[State], State]:
    def node(state: State) -> State:
        reach(names[0])
        answers = []
        for name in names:
            reach(f"ask {name}")
            answers.append(f"{name}: {interrupt(name)}")
        return {"log": answers}

    return node


def _chain(**nodes: Any) -> Any:
    builder = StateGraph(State)
    names = list(nodes)
    for name, node in nodes.items():
        builder.add_node(name, node)
    for before, after in zip([START, *names[:-1]], names, strict=True):
        builder.add_edge(before, after)
    return builder.compile()


def plain() -> Any:
    """Two nodes."""
    return _chain(a=_node("a"), b=_node("b"))


def asking() -> Any:
    """A node, one that asks, a node."""
    return _chain(a=_node("a"), asks=_asking("first"), b=_node("b"))


def twice() -> Any:
    """A node that asks two things, one after the other."""
    return _chain(a=_node("a"), asks=_asking("first", "second"), b=_node("b"))


def inside() -> Any:
    """A subgraph with two nodes that each ask something."""
    sub = _chain(one=_asking("first"), between=_node("between"), two=_asking("second"))
    return _chain(a=_node("a"), sub=sub, b=_node("b"))


def run(graph: str, given: Any, place: str | None, again: bool = False) -> int:
    """Invoke a job once; `given` is its input, or ["answer", …].

    What it returns goes to result.json, questions as a list under "asked".
    """
    global _place
    _place = place
    _before(Thread, "put", "put")
    _before(Pipeline, "finish", "finish")
    job = resumable_graph(globals()[graph](), run_id="job")
    value = Command(resume=given[1]) if isinstance(given, list) else given
    result = job.invoke(value, again=again)
    asked = [item.value for item in result.pop("__interrupt__", ())]
    Path("result.json").write_text(json.dumps({**result, "asked": asked}))
    return 0
