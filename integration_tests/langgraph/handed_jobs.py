"""Jobs that go on from another run, in processes that are killed; each function is one start.

What really happens is counted in outside.txt, outside of the store.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from caravanserai.langgraph import resumable_graph
from caravanserai.langgraph._thread import Thread
from caravanserai_core import WaitingForPerson, continuing
from caravanserai_core.pipeline import Pipeline

ORDER = {"order_id": "A17"}
PAY = {"order_id": "A17", "amount": 40}

_place: str | None = None


def reach(place: str) -> None:
    """Note that a place is reached; die there if that was asked for."""
    with Path("outside.txt").open("a") as outside:
        outside.write(f"{place}\n")
    if place == _place:
        os.kill(os.getpid(), signal.SIGKILL)


@tool
def lookup(order_id: str) -> str:
    """Look an order up."""
    reach("lookup")
    return f"{order_id} costs 40"


@tool
def pay(order_id: str, amount: int) -> str:
    """Pay an order back."""
    reach("begin pay")
    reach("end pay")
    return f"paid {amount} for {order_id}"


@tool
async def apay(order_id: str, amount: int) -> str:
    """Pay an order back, awaited."""
    reach("begin pay")
    return f"paid {amount} for {order_id}"


apay.name = "pay"


def asks(name: str, arguments: dict[str, Any], id_: str = "call_1") -> AIMessage:
    """Return the answer of a model that calls a tool."""
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": id_}])


def graph_of(*answers: AIMessage, awaited: bool = False) -> Any:
    """Build an agent with tools whose model gives these answers, by how many it has given."""

    def model(state: MessagesState) -> dict[str, list[AnyMessage]]:
        reach("model")
        said = [m for m in state["messages"] if isinstance(m, AIMessage)]
        new = len([m for m in said if (m.id or "").startswith("new-")])
        answer = answers[new] if new < len(answers) else AIMessage("Done.")
        return {"messages": [answer.model_copy(update={"id": f"new-{new}"})]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    tools = [lookup, apay if awaited else pay]
    builder.add_node("tools", ToolNode(tools, handle_tool_errors=True))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile()


def by_hand(name: str, arguments: dict[str, Any], *, times: int = 1) -> Any:
    """Build a graph whose node calls a tool itself, with no id of the call."""

    def work(state: MessagesState) -> dict[str, list[AnyMessage]]:
        found = {"lookup": lookup, "pay": pay}[name]
        said = [str(found.invoke(arguments)) for _ in range(times)]
        return {"messages": [AIMessage(", ".join(said))]}

    builder = StateGraph(MessagesState)
    builder.add_node("work", work)
    builder.add_edge(START, "work")
    return builder.compile()


def _before(kind: Any, method: str, place: str) -> None:
    real: Callable[..., Any] = getattr(kind, method)
    numbers = itertools.count(1)

    def reached(*args: Any, **options: Any) -> Any:
        name = f"{place} {next(numbers)}"
        if name == _place:
            time.sleep(0.1)  # what nodes wrote before is on disk by then
        reach(name)
        return real(*args, **options)

    setattr(kind, method, reached)


def run(
    what: str,
    place: str | None,
    run_id: str = "job",
    continues: str | None = None,
    said: str | None = "Go on.",
    options: dict[str, Any] | None = None,
) -> int:
    """Start a job once; what it returns goes to result.json.

    Args:
        what: which graph: "plain" answers at once, "pays" and "looks" call a tool first, "awaits"
            pays in async code, "by hand" has no model.
        place: where the process kills itself, or None.
        run_id: the job.
        continues: what it goes on from.
        said: the text of the user; None: there is no input.
        options: others of `resumable_graph`.
    """
    global _place
    _place = place
    _before(continuing, "_write", "handoff")
    _before(Thread, "begin_job", "input")
    _before(Thread, "put", "put")
    _before(Pipeline, "finish", "finish")
    graphs: dict[str, Callable[[], Any]] = {
        "plain": graph_of,
        "pays": lambda: graph_of(asks("pay", PAY, "call_new")),
        "looks": lambda: graph_of(asks("lookup", ORDER, "call_new")),
        "awaits": lambda: graph_of(asks("pay", PAY, "call_new"), awaited=True),
        "by hand": lambda: by_hand("pay", PAY),
        "twice by hand": lambda: by_hand("pay", PAY, times=2),
    }
    job = resumable_graph(graphs[what](), run_id=run_id, continues=continues, **(options or {}))
    given = None if said is None else {"messages": [("user", said)]}
    try:
        result = asyncio.run(job.ainvoke(given)) if what == "awaits" else job.invoke(given)
    except WaitingForPerson as error:
        Path("result.json").write_text(json.dumps({"waits": list(error.questions)}))
        return 0
    told = [
        [m.type, m.text, [c["name"] for c in getattr(m, "tool_calls", ())]]
        for m in result["messages"]
    ]
    Path("result.json").write_text(json.dumps({"messages": told}))
    return 0


def tool_result(text: str, id_: str, name: str) -> ToolMessage:
    """Return the result of a call."""
    return ToolMessage(text, tool_call_id=id_, name=name)
