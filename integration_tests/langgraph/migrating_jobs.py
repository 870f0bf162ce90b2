"""A graph in two versions: killed in the midst of a step in the first, resumed in the second."""

from __future__ import annotations

import json
import operator
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt

from caravanserai.langgraph import resumable_graph
from caravanserai.langgraph.migrations import rename_node, step
from caravanserai_core.stores import FileStore


class State(TypedDict, total=False):
    """A list that nodes append to."""

    log: Annotated[list[str], operator.add]


STEP = step(
    rename_node("left", "west"),
    rename_node("work", "labour"),
    rename_node("slow", "patient"),
    rename_node("asks", "inquires"),
)


def _node(name: str) -> Callable[[Any], State]:
    """Return a node that tells outside that it ran."""

    def node(state: Any) -> State:
        with Path("outside.txt").open("a") as outside:
            outside.write(f"{name}\n")
        return {"log": [name]}

    return node


def _dies(name: str) -> Callable[[Any], State]:
    """Return a node that is killed when all its siblings stand on the disk."""

    def node(state: Any) -> State:
        while _written() < 3:
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGKILL)
        return {}

    return node


def _written() -> int:
    records = FileStore(".caravanserai").scan("job", bodies=False)
    heads = [getattr(record, "head", {}) for record in records]
    tasks = [head["meta"]["task"] for head in heads if head.get("name") == "writes"]
    return len(set(tasks)) - 2  # the tasks of the first two steps


def _asks(name: str) -> Callable[[Any], State]:
    def node(state: Any) -> State:
        return {"log": [f"{name}: {interrupt('go on?')}"]}

    return node


def _graph(names: dict[str, str], slow: Any) -> Any:
    """Fan out into a node, two `Send`s of one, and a slow one; then join, ask, and end."""
    left, work, late, asks = (names[key] for key in ("left", "work", "slow", "asks"))
    builder = StateGraph(State)
    builder.add_node("begin", _node("begin"))
    builder.add_node(left, _node("left"))
    builder.add_node(work, _node("work"))
    builder.add_node(late, slow)
    builder.add_node("join", _node("join"))
    builder.add_node(asks, _asks("asked"))
    builder.add_edge(START, "begin")
    builder.add_conditional_edges(
        "begin", lambda state: [left, Send(work, {"n": 1}), Send(work, {"n": 2}), late]
    )
    builder.add_edge([left, late], "join")
    builder.add_edge("join", asks)
    return builder.compile()


def first() -> int:
    """Start the first version, which is killed in the slow node."""
    names = {"left": "left", "work": "work", "slow": "slow", "asks": "asks"}
    resumable_graph(_graph(names, _dies("slow")), run_id="job").invoke({"log": []})
    return 1


def second(answer: str | None = None) -> int:
    """Start the second version, in which every node that was running has another name."""
    names = {"left": "west", "work": "labour", "slow": "patient", "asks": "inquires"}
    graph = _graph(names, _node("slow"))
    job = resumable_graph(graph, run_id="job", schema=2, migrations=[STEP])
    result = job.invoke({"log": []} if answer is None else Command(resume=answer))
    asked = [item.value for item in result.pop("__interrupt__", ())]
    Path("result.json").write_text(json.dumps({**result, "asked": asked}))
    return 0
