"""What a person reads of a graph. The golden folders beside this are part of the review.

To write them anew after a change of wording: pytest integration_tests/langgraph/test_notes.py
with WRITE_GOLDEN_NOTES=1; then read them.
"""

from __future__ import annotations

import operator
import os
import re
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt

from caravanserai.langgraph import WaypointSaver, resumable_graph
from caravanserai_core import verify
from caravanserai_core.stores import FileStore
from integration_tests.api.helpers import forget_everything, set_clock
from integration_tests.notes.linter import lint

GOLDEN = Path(__file__).parent / "golden"
CONFIG: Any = {"configurable": {"thread_id": "run"}}


class Report(TypedDict, total=False):
    """The state of most graphs here."""

    topic: str
    parts: Annotated[list[str], operator.add]
    text: str


def _chain(**nodes: Callable[[Any], Any]) -> StateGraph[Any, Any, Any, Any]:
    builder: Any = StateGraph(Report)
    before = START
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(before, name)
        before = name
    builder.add_edge(before, END)
    return builder  # type: ignore[no-any-return]


def _pending(saver: WaypointSaver) -> list[Any]:
    found = saver.get_tuple(CONFIG)
    return (found.pending_writes if found is not None else None) or []


def _research(state: Report) -> Report:
    return {"parts": [f"notes on {state['topic']}"]}


def _write(state: Report) -> Report:
    return {"text": "All about " + ", ".join(state["parts"]) + "."}


def plain(saver: WaypointSaver) -> None:
    """Two nodes, one after the other."""
    graph = _chain(research=_research, write=_write).compile(checkpointer=saver)
    graph.invoke({"topic": "caravans", "parts": []}, CONFIG, durability="sync")


def react(saver: WaypointSaver) -> None:
    """A model that calls two tools, one of which fails, and answers."""
    calls = [
        {"name": "find_customer", "args": {"offer": 118}, "id": "a"},
        {"name": "get_offer", "args": {"customer": 118, "note": "x" * 80}, "id": "b"},
    ]
    answers = iter([AIMessage("", tool_calls=calls), AIMessage("The offer is *5,200 EUR*.\nBye.")])

    def agent(state: MessagesState) -> Any:
        return {"messages": [next(answers)]}

    def tools(call: Any) -> Any:
        failed = call["name"] == "get_offer"
        text = "no such # offer" if failed else "Northside Cafe"
        status = "error" if failed else "success"
        found = ToolMessage(text, tool_call_id=call["id"], name=call["name"], status=status)
        return {"messages": [found]}

    def route(state: MessagesState) -> Any:
        last: Any = state["messages"][-1]
        return [Send("tools", call) for call in last.tool_calls] or END

    builder: Any = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_node("tools", tools)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", route, ["tools", END])
    builder.add_edge("tools", "agent")
    graph = builder.compile(checkpointer=saver)
    told = [HumanMessage('Send "Northside Cafe" the offer.')]
    graph.invoke({"messages": told}, CONFIG, durability="sync")


def asks(saver: WaypointSaver) -> None:
    """A node that asks, waits, and gets its answer."""

    def approve(state: Report) -> Report:
        answer = interrupt({"question": "Send this mail?", "to": "office@example.com", "n": 3})
        return {"text": f"approved: {answer}"}

    graph = _chain(research=_research, approve=approve).compile(checkpointer=saver)
    graph.invoke({"topic": "offers", "parts": []}, CONFIG, durability="sync")
    graph.invoke(Command(resume="yes"), CONFIG, durability="sync")


def fan_out(saver: WaypointSaver) -> None:
    """Three pushed tasks in one step."""

    def work(part: Any) -> Report:
        return {"parts": [f"part {part['n']} done at length, so that the lines do not fit in one"]}

    builder: Any = StateGraph(Report)
    builder.add_node("plan", lambda state: {"text": "three parts"})
    builder.add_node("work", work)
    builder.add_edge(START, "plan")
    sends: Any = lambda state: [Send("work", {"n": n}) for n in (1, 2, 3)]  # noqa: E731
    builder.add_conditional_edges("plan", sends, ["work"])
    builder.add_edge("work", END)
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"topic": "parts", "parts": []}, CONFIG, durability="sync")


def subgraph(saver: WaypointSaver) -> None:
    """A graph in a node, which asks inside."""

    def confirm(state: Report) -> Report:
        return {"text": "confirmed: " + interrupt("Go on?")}

    inner: Any = _chain(look=_research, confirm=confirm).compile()
    graph = _chain(inner=inner, write=_write).compile(checkpointer=saver)
    graph.invoke({"topic": "inner things", "parts": []}, CONFIG, durability="sync")


def fails(saver: WaypointSaver) -> None:
    """A node that raises, while another one of the same step ends well."""

    def bad(state: Report) -> Report:
        end = time.monotonic() + 20
        while not any(write[1] == "parts" for write in _pending(saver)):
            assert time.monotonic() < end
            time.sleep(0.01)
        raise ValueError("the service said: 503")

    builder: Any = StateGraph(Report)
    builder.add_node("good", _research)
    builder.add_node("bad", bad)
    builder.add_edge(START, "good")
    builder.add_edge(START, "bad")
    graph = builder.compile(checkpointer=saver)
    with pytest.raises(ValueError, match="503"):
        graph.invoke({"topic": "services", "parts": []}, CONFIG, durability="sync")


def goes_on(saver: WaypointSaver) -> None:
    """A process that died in a node, and one that went on."""
    died = iter([True, False])

    def write(state: Report) -> Report:
        if next(died):
            raise KeyboardInterrupt
        return _write(state)

    graph = _chain(research=_research, write=write).compile()
    job = resumable_graph(graph, run_id="run", store=saver.store)
    with pytest.raises(KeyboardInterrupt):
        job.invoke({"topic": "crashes", "parts": []})
    forget_everything()
    job = resumable_graph(graph, run_id="run", store=saver.store)
    job.invoke({"topic": "crashes", "parts": []})


def functional(saver: WaypointSaver) -> None:
    """A flow of tasks, as a function."""

    @task
    def double(n: int) -> int:
        return 2 * n

    @entrypoint(checkpointer=saver)
    def flow(numbers: list[int]) -> int:
        return sum(double(n).result() for n in numbers)

    flow.invoke([1, 2], CONFIG, durability="sync")


CASES = (plain, react, asks, fan_out, subgraph, fails, goes_on, functional)


def _notes(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        text = text.replace(f"LangGraph {version('langgraph')}", "LangGraph VERSION")
        found[path.name] = re.sub(r"\d\d:\d\d:\d\d\+00:00", "22:41:03+00:00", text)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_graph_tells_its_story(
    case: Callable[[WaypointSaver], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waypoint says what ran and what is next, in the words of the golden file."""
    set_clock(monkeypatch, "2026-08-20T22:41:03")
    store = FileStore(tmp_path)

    case(WaypointSaver(store))
    verify.renew_notes(store, "run")

    written = _notes(tmp_path / "run")
    folder = GOLDEN / case.__name__
    if os.environ.get("WRITE_GOLDEN_NOTES"):
        folder.mkdir(exist_ok=True)
        for name, text in written.items():
            (folder / name).write_text(text, encoding="utf-8")
    expected = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    assert written == expected
    for text in written.values():
        assert lint(text) == []
