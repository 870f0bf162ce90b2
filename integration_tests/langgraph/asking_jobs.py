"""Graphs that ask people; each function is one start of a program, which may be killed at a place.

A place is a line that is about to be logged outside: a node that begins or goes on, or a call of
the adapter that is about to be made ("record the question", "store the pause", "put 3").
"""

from __future__ import annotations

import asyncio
import itertools
import json
import operator
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from caravanserai import once
from caravanserai.langgraph import WaypointSaver, resumable_graph
from caravanserai.langgraph._rounds import Rounds
from caravanserai.langgraph._thread import Thread
from caravanserai_core import questions
from caravanserai_core.cli import app

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


def _before(owner: Any, name: str, place: str) -> None:
    real: Callable[..., Any] = getattr(owner, name)

    def reached(*args: Any, **options: Any) -> Any:
        reach(f"put {next(_puts)}" if place == "put" else place)
        return real(*args, **options)

    setattr(owner, name, reached)


def _node(name: str) -> Callable[[State], State]:
    def node(state: State) -> State:
        reach(name)
        return {"log": [name]}

    return node


def _asks(name: str, *more: str) -> Callable[[State], State]:
    """Return a node that asks, and does something outside under `once` after each answer."""

    def node(state: State) -> State:
        reach(name)
        told = []
        for question in (name, *more):
            said = interrupt({"question": f"{question}?"})
            reach(f"{question} got {said}")
            once(f"do {question}", reach, f"{question} does {said}")
            reach(f"{question} did")
            told.append(f"{question}: {said}")
        return {"log": told}

    return node


def _graph(*edges: tuple[str, str], **nodes: Any) -> Any:
    builder: Any = StateGraph(State)
    names = list(nodes)
    for name, node in nodes.items():
        builder.add_node(name, node)
    for before, after in edges or zip([START, *names[:-1]], names, strict=True):
        builder.add_edge(before, after)
    return builder


def one() -> Any:
    """A node, one that asks, a node."""
    return _graph(a=_node("a"), asks=_asks("send"), b=_node("b"))


def two() -> Any:
    """Two nodes of one step that ask."""
    nodes = {"p": _asks("p"), "q": _asks("q"), "b": _node("b")}
    return _graph((START, "p"), (START, "q"), ("p", "b"), ("q", "b"), **nodes)


def deep() -> Any:
    """A question two levels down, and another one after it."""
    inner = _graph(x=_node("x"), asks=_asks("send", "more")).compile()
    return _graph(a=_node("a"), sub=_graph(inner=inner).compile(), b=_node("b"))


def unkept() -> Any:
    """A question in a subgraph that stores nothing itself."""
    inner = _graph(asks=_asks("send")).compile(checkpointer=False)
    return _graph(a=_node("a"), sub=inner, b=_node("b"))


def twice() -> Any:
    """A node that asks two things, one after the other."""
    return _graph(asks=_asks("first", "second"), b=_node("b"))


def branch() -> Any:
    """A question whose answer says where the graph goes on."""

    def ask(state: State) -> Any:
        asked = {"question": "Send it?", "options": ["yes", "no"]}
        return Command(goto="send" if interrupt(asked) == "yes" else "keep")

    builder: Any = StateGraph(State)
    builder.add_node("ask", ask, destinations=("send", "keep"))
    builder.add_node("send", _node("send"))
    builder.add_node("keep", _node("keep"))
    builder.add_edge(START, "ask")
    return builder


def function() -> Any:
    """A function whose tasks ask, and which asks itself."""

    @task
    def inner(name: str) -> str:
        reach(name)
        return f"{name}: {interrupt(f'{name}?')}"

    @task
    def outer(name: str) -> str:
        return inner(name).result()

    class Flow:
        def compile(self, checkpointer: Any = None) -> Any:
            @entrypoint(checkpointer=checkpointer)
            def flow(given: dict[str, Any]) -> dict[str, Any]:
                told = [outer("deep").result(), f"self: {interrupt('self?')}"]
                return {"log": [*given["log"], *told]}

            return flow

    return Flow()


def priced() -> Any:
    """A node that asks about each thing that `price.txt` names."""
    begun = itertools.count(1)

    def pay(state: State) -> State:
        reach(f"begins {next(begun)}")
        told = []
        for thing in Path("price.txt").read_text().split():
            said = interrupt({"question": f"pay {thing}?"})
            reach(f"{thing} got {said}")
            once(f"do {thing}", reach, f"{thing} does {said}")
            reach(f"{thing} did")
            told.append(f"{thing}: {said}")
        reach("paid")
        return {"log": told or ["free"]}

    return _graph(a=_node("a"), pay=pay, b=_node("b"))


def start(name: str, form: str, given: Any, place: str | None = None) -> int:
    """Start a program once.

    Args:
        name: the graph.
        form: "job" or "saver", with an "a" in front for `ainvoke`; "-default" behind it for
            LangGraph's own durability.
        given: the input, None, or ["answer", …] for a `Command`.
        place: where it is killed.
    """
    global _place
    _place = place
    _before(questions, "put", "record the question")
    _before(Thread, "pause", "store the pause")
    _before(Thread, "put", "put")
    _before(Rounds, "next", "next round")
    value = Command(resume=given[1]) if isinstance(given, list) else given
    program, _, mode = form.partition("-")
    options: dict[str, Any] = {} if mode == "default" else {"durability": "sync"}
    if program.endswith("job"):
        graph: Any = resumable_graph(globals()[name]().compile(), run_id="run")
        if mode == "default":
            options = {"durability": "async"}
        arguments = (value, None)
    else:
        graph = globals()[name]().compile(checkpointer=WaypointSaver())
        arguments = (value, {"configurable": {"thread_id": "run"}})
    if program.startswith("a"):
        result = asyncio.run(graph.ainvoke(*arguments, **options))
    else:
        result = graph.invoke(*arguments, **options)
    asked = [getattr(item, "value", item) for item in result.pop("__interrupt__", ())]
    Path("result.json").write_text(json.dumps({**result, "asked": asked}))
    return 0


def cli(*words: str) -> int:
    """Run a command of the command line."""
    app(list(words), standalone_mode=True)
    return 0
