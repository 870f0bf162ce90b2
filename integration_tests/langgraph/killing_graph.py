"""A graph that is killed: a fan-out, two branches that join, a subgraph, a question.

    plan ─┬─ work ─┬─ left ──┬─ join ─ sub (check ─ ask ─ book) ─ finish
          ├─ work ─┤         │
          └─ work ─┴─ right ─┘

Each node leaves a line outside of the store when it begins and when it ends, and the saver
leaves one when it has acknowledged the node's writes. The functions below are jobs of a
preloaded process; each is one start of a program.
"""

from __future__ import annotations

import asyncio
import json
import operator
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from caravanserai.langgraph import WaypointSaver, resumable_graph
from caravanserai_core.cli import main as command_line

RUN = "job-1"
INPUT = {"number": 7}
ORDER = ("plan", "work", "left", "join", "check", "ask", "book", "finish")
"""The nodes, one of each step."""

_STEPS = {name: step for step, name in enumerate(ORDER)} | {"right": ORDER.index("left")}


class State(TypedDict, total=False):
    """What the graph works on."""

    number: int
    done: Annotated[list[str], operator.add]
    total: Annotated[int, operator.add]
    answer: str


class Outside:
    """The world outside of the store: one line for each thing that happens."""

    def __init__(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open("outside.txt", flags, 0o600)

    def write(self, *words: str) -> None:
        os.write(self._file, (" ".join(words) + "\n").encode())


class Acknowledging(WaypointSaver):
    """A saver that tells the outside whose writes it has acknowledged.

    It takes its time before a checkpoint: kills then also come between a node's writes and the
    checkpoint that they lead to.
    """

    def __init__(self, outside: Outside) -> None:
        super().__init__()
        self._outside = outside

    def put(self, *args: Any) -> Any:
        _pause()
        return super().put(*args)

    async def aput(self, config: Any, *args: Any) -> Any:
        if config["configurable"].get("__pregel_durability") == "sync":
            await asyncio.sleep(random.random() * 0.004)
        return await super().aput(config, *args)

    def _tell(self, writes: Sequence[tuple[str, Any]]) -> None:
        for channel, value in writes:
            if channel == "done" and len(value) == 1:  # the subgraph repeats what its nodes did
                self._outside.write(value[0], "acknowledged")

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        super().put_writes(config, writes, task_id, task_path)
        self._tell(writes)

    async def aput_writes(
        self, config: Any, writes: Any, task_id: str, task_path: str = ""
    ) -> None:
        await super().aput_writes(config, writes, task_id, task_path)
        self._tell(writes)


def _pause() -> None:
    time.sleep(random.random() * 0.004)


def build(outside: Outside, saver: Any, *, asynchronous: bool) -> Any:
    """Build and compile the graph."""

    def begin(name: str) -> None:
        outside.write(name, "begins")
        _pause()

    def end(name: str, total: int = 1) -> dict[str, Any]:
        outside.write(name, "ends")
        _pause()
        return {"done": [name], "total": total}

    def node(name: str) -> Any:
        def plain(state: State) -> dict[str, Any]:
            begin(name)
            return end(name)

        async def awaited(state: State) -> dict[str, Any]:
            outside.write(name, "begins")
            await asyncio.sleep(random.random() * 0.004)
            return end(name)

        return awaited if asynchronous else plain

    def work(task: dict[str, int]) -> dict[str, Any]:
        name = f"work-{task['item']}"
        begin(name)
        return end(name, task["item"])

    def fan_out(state: State) -> list[Send]:
        return [Send("work", {"item": item}) for item in (10, 20, 30)]

    def ask(state: State) -> dict[str, Any]:
        begin("ask")
        answer = interrupt({"question": "Book it?", "total": state["total"]})
        return {**end("ask"), "answer": answer}

    inner = StateGraph(State)
    inner.add_node("check", node("check"))
    inner.add_node("ask", ask)
    inner.add_node("book", node("book"))
    inner.add_edge(START, "check")
    inner.add_edge("check", "ask")
    inner.add_edge("ask", "book")
    inner.add_edge("book", END)
    sub = inner.compile()

    def call_sub(state: State) -> dict[str, Any]:
        # The total so far is handed in; only what is new comes back.
        result = sub.invoke({"total": state["total"], "done": []})
        return {
            "done": result["done"],
            "total": result["total"] - state["total"],
            "answer": result["answer"],
        }

    async def acall_sub(state: State) -> dict[str, Any]:
        result = await sub.ainvoke({"total": state["total"], "done": []})
        return {
            "done": result["done"],
            "total": result["total"] - state["total"],
            "answer": result["answer"],
        }

    builder = StateGraph(State)
    for name in ("plan", "left", "right", "join", "finish"):
        builder.add_node(name, node(name))
    builder.add_node("work", work)
    builder.add_node("sub", acall_sub if asynchronous else call_sub)
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", fan_out, ["work"])
    builder.add_edge("work", "left")
    builder.add_edge("work", "right")
    builder.add_edge(["left", "right"], "join")
    builder.add_edge("join", "sub")
    builder.add_edge("sub", "finish")
    return builder.compile(checkpointer=saver)


# ---------------------------------------------------------------------- programs


def as_a_job(*, asynchronous: bool, mode: str | None = None) -> int:
    """Do all of it with `resumable_graph`: the same lines start it, go on, and end it."""
    outside = Outside()
    saver = Acknowledging(outside)
    graph = build(outside, saver, asynchronous=asynchronous)
    job = resumable_graph(graph, run_id=RUN)
    options = {} if mode is None else {"durability": mode}
    if asynchronous:

        async def work() -> Any:
            result = await job.ainvoke(dict(INPUT), **options)
            if "__interrupt__" in result:
                result = await job.ainvoke(Command(resume="yes"), **options)
            return result

        result = asyncio.run(work())
    else:
        result = job.invoke(dict(INPUT), **options)
        if "__interrupt__" in result:
            result = job.invoke(Command(resume="yes"), **options)
    return _end(result)


def with_the_saver(*, asynchronous: bool, mode: str | None) -> int:
    """Do all of it with the saver alone, as LangGraph wants a run to be resumed."""
    outside = Outside()
    saver = Acknowledging(outside)
    graph = build(outside, saver, asynchronous=asynchronous)
    config: Any = {"configurable": {"thread_id": RUN}}
    options: Any = {} if mode is None else {"durability": mode}

    def given(state: Any) -> Any:
        """Return what goes on from a state: the input only where nothing is stored yet."""
        if state.interrupts:
            return Command(resume="yes")
        return None if state.metadata is not None else dict(INPUT)

    if asynchronous:

        async def work() -> Any:
            result = await graph.ainvoke(given(await graph.aget_state(config)), config, **options)
            if "__interrupt__" in result:
                result = await graph.ainvoke(Command(resume="yes"), config, **options)
            return result

        result = asyncio.run(work())
    else:
        result = graph.invoke(given(graph.get_state(config)), config, **options)
        if "__interrupt__" in result:
            result = graph.invoke(Command(resume="yes"), config, **options)
    return _end(result)


def _end(result: Any) -> int:
    Path("result.json").write_text(json.dumps(result))
    return 0


def program(name: str, asynchronous: bool, mode: str | None) -> int:
    """Run one of the two programs above."""
    random.seed(os.getpid())
    programs = {"job": as_a_job, "saver": with_the_saver}
    return programs[name](asynchronous=asynchronous, mode=mode)


def verb(*argv: str) -> int:
    """Run the command line."""
    sys.argv = ["caravanserai", *argv]
    command_line()
    return 0


def step_of(name: str) -> int:
    """Return which step of the graph a node belongs to."""
    return _STEPS[name.partition("-")[0]]


if __name__ == "__main__":
    words = sys.argv[1:]
    raise SystemExit(program(words[0], words[1] == "async", words[2] if words[2:] else None))
