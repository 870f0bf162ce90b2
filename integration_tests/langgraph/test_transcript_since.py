"""What was written since a checkpoint belongs to the conversation, as `add_messages` adds it."""

# ruff: noqa: E402

from __future__ import annotations

import itertools
import operator
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

from integration_tests.support import require

require("langgraph")

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, Overwrite, Send, interrupt

from caravanserai import handoff
from caravanserai.langgraph import WaypointSaver
from caravanserai.langgraph.transcript import transcript
from caravanserai_core.conversation import read
from caravanserai_core.transcript import Since
from integration_tests.langgraph.handed_jobs import asks

CONFIG: Any = {"configurable": {"thread_id": "t"}}
BEFORE = [HumanMessage("one", id="1"), AIMessage("two", id="2"), HumanMessage("three", id="3")]


def writes(state: Any) -> Callable[[Any], Any]:
    """Return a node that writes to `messages`."""
    return lambda _: {"messages": state}


class Counting(WaypointSaver):
    """A saver that says when the other tasks of a step are over: LangGraph runs them at once."""

    def __init__(self, store: Path) -> None:
        super().__init__(store)
        self._stored = threading.Semaphore(0)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        super().put_writes(config, writes, task_id, task_path)
        if not task_path.endswith(START):  # the input is a task too
            self._stored.release()

    def wait_for(self, tasks: int) -> None:
        for _ in range(tasks):
            assert self._stored.acquire(timeout=20)


def stopped(
    store: Path, *values: Any, state: Any = MessagesState, given: Any = None, last: Any = None
) -> Any:
    """Leave a step in which nodes wrote values, and one more failed; return LangGraph's state."""
    saver = Counting(store)

    def fails(_: Any) -> None:
        saver.wait_for(len(values))
        raise ZeroDivisionError

    builder = StateGraph(state)
    for number, value in enumerate(values):
        builder.add_node(f"n{number}", writes(value))
        builder.add_edge(START, f"n{number}")
    builder.add_node("z", last or fails)
    builder.add_edge(START, "z")
    graph = builder.compile(checkpointer=saver)
    try:
        graph.invoke({"messages": BEFORE if given is None else given}, CONFIG, durability="sync")
    except ZeroDivisionError:
        pass
    return graph


def texts(store: Path, **at: int) -> list[str]:
    return [message.text for message in read("t", store=store, **at).messages]


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(AIMessage("four"), id="a message"),
        pytest.param([AIMessage("four", id="4"), HumanMessage("five")], id="several"),
        pytest.param([HumanMessage("ONE", id="1")], id="in the place of another"),
        pytest.param([RemoveMessage("2"), AIMessage("four")], id="one removed"),
        pytest.param([RemoveMessage("2"), AIMessage("TWO", id="2")], id="removed and back"),
        pytest.param(
            [AIMessage("lost"), RemoveMessage(REMOVE_ALL_MESSAGES), AIMessage("new")], id="all gone"
        ),
        pytest.param(Overwrite([AIMessage("new")]), id="overwritten"),
        pytest.param(("assistant", "four"), id="a pair"),
        pytest.param({"role": "assistant", "content": "four"}, id="in OpenAI's form"),
        pytest.param("four", id="a text"),
    ],
)
def test_pending_writes_are_applied_as_langgraph_does(tmp_path: Path, value: Any) -> None:
    """What the graph has when the failed node does not fail any more is what is read before."""
    graph = stopped(tmp_path, value)
    found = texts(tmp_path)

    graph.nodes["z"].bound.func = lambda _: {}
    later = graph.invoke(None, CONFIG)["messages"]

    assert found == [message.text for message in later]
    assert found != ["one", "two", "three"]


def test_tasks_are_applied_in_the_order_of_langgraph(tmp_path: Path) -> None:
    stopped(tmp_path, AIMessage("four"), AIMessage("five"), AIMessage("six"))
    assert texts(tmp_path) == ["one", "two", "three", "four", "five", "six"]


def test_an_earlier_waypoint_is_told_as_it_was(tmp_path: Path) -> None:
    """The failed step has a waypoint of its own, with what the other nodes of it wrote."""
    stopped(tmp_path, AIMessage("four"))
    assert texts(tmp_path, at=2) == ["one", "two", "three"]
    assert texts(tmp_path, at=3) == ["one", "two", "three", "four"]


def test_the_input_belongs_to_it_before_the_graph_has_taken_it(tmp_path: Path) -> None:
    stopped(tmp_path, AIMessage("four"))
    assert texts(tmp_path, at=1) == ["one", "two", "three"]


def test_a_further_turn_that_has_only_begun_is_told_too(tmp_path: Path) -> None:
    graph = stopped(tmp_path, last=lambda _: {})
    graph.invoke({"messages": [("user", "again")]}, CONFIG)
    numbers = range(1, 6)
    assert [texts(tmp_path, at=number)[-1] for number in numbers] == [
        *("three", "three", "three"),
        *("again", "again"),
    ]


def test_a_result_beside_a_tool_that_asks_is_there(tmp_path: Path) -> None:
    """The thread waits for a person; what the other tool gave is in no checkpoint yet."""
    call = {"args": {}, "type": "tool_call"}
    both = AIMessage("", tool_calls=[{**call, "name": n, "id": n} for n in ("find", "send")])
    saver = Counting(tmp_path)
    earlier = itertools.chain([2], itertools.repeat(0))  # the model's task and the other tool's

    def tool(name: Any) -> Any:
        if name == "send":
            saver.wait_for(next(earlier))
            interrupt("Send it?")
        return {"messages": [ToolMessage(f"{name} done", tool_call_id=name, name=name)]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", writes([both]))
    builder.add_node("tool", tool)
    builder.add_edge(START, "model")
    builder.add_conditional_edges(
        "model", lambda _: [Send("tool", name) for name in ("find", "send")], ["tool"]
    )
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"messages": ["hello"]}, CONFIG)

    found = handoff("t", store=tmp_path)

    assert [m.text for m in found.transcript.messages] == ["hello", "", "find done"]
    assert [c.name for c in found.uncertain] == ["send"]
    assert [question.id for question in found.open_questions] == ["q1"]
    assert [r.text for r in found.results] == ["find done"]
    assert handoff("t", -1, store=tmp_path).results == found.results
    graph.invoke(Command(resume="yes"), CONFIG)
    assert handoff("t", store=tmp_path).uncertain == ()


class Whole(TypedDict):
    """Messages without a reducer: each node writes all of them."""

    messages: list[AnyMessage]


class Log(TypedDict):
    """A conversation under another name."""

    talk: Annotated[list[BaseMessage], add_messages]
    messages_seen: Annotated[list[str], operator.add]


class Payments(TypedDict):
    """Texts that are no conversation."""

    paid: Annotated[list[str], operator.add]


@pytest.mark.parametrize("kind", ["fails", "asks"])
def test_of_tasks_of_one_node_it_is_told_which_are_over(kind: str, tmp_path: Path) -> None:
    """Who goes on from the note must not pay again; and what a task wrote is nobody's words."""
    saver = Counting(tmp_path)

    def pay(number: Any) -> Any:
        if number == 2:
            saver.wait_for(3)
            if kind == "fails":
                raise ZeroDivisionError
            interrupt("Pay number 2?")
        return {"paid": [f"paid {number}"]}

    builder = StateGraph(Payments)
    builder.add_node("pay", pay)
    builder.add_conditional_edges(START, lambda _: [Send("pay", n) for n in range(4)])
    graph = builder.compile(checkpointer=saver)
    try:
        graph.invoke({"paid": []}, CONFIG, durability="sync")
    except ZeroDivisionError:
        pass

    note = (tmp_path / "t" / "latest.md").read_text()
    happened = note.partition("## Happened")[2].partition("## Next")[0]
    assert [f"paid {n}" in happened for n in range(4)] == [True, True, False, True]
    assert ("for that task alone" in note) is (kind == "fails")
    found = handoff("t", store=tmp_path)
    assert found.goal is None
    assert found.messages == []


def test_a_channel_that_is_written_whole_is_not_doubled(tmp_path: Path) -> None:
    stopped(tmp_path, [*BEFORE, AIMessage("four")], state=Whole)
    assert texts(tmp_path) == ["one", "two", "three", "four"]


def test_a_conversation_under_another_name_is_found(tmp_path: Path) -> None:
    builder = StateGraph(Log)
    builder.add_node("a", lambda _: {"talk": [AIMessage("four")], "messages_seen": ["x"]})
    builder.add_node("z", lambda _: 1 / 0)
    builder.add_edge(START, "a")
    builder.add_edge(START, "z")
    graph = builder.compile(checkpointer=WaypointSaver(tmp_path))
    with pytest.raises(ZeroDivisionError):
        graph.invoke({"talk": BEFORE}, CONFIG)
    assert texts(tmp_path) == ["one", "two", "three", "four"]


def _entry(data: Any, checkpoint: str = "c") -> Since:
    meta = {"checkpoint": checkpoint, "task": "t-1", "path": "~__pregel_pull, a"}
    return Since("entry", "writes", {"meta": meta}, data)


def test_writes_of_another_checkpoint_do_not_count() -> None:
    """Another turn on the thread was overtaken: what it wrote leads nowhere."""
    tree = {"channel_values": {"messages": []}}
    head = {"meta": {"checkpoint": "c"}}
    since = [_entry([["messages", ["mine"]]]), _entry([["messages", ["lost"]]], "other")]
    assert [m.text for m in transcript(tree, since=since, head=head).messages] == ["mine"]


def test_a_list_that_is_written_as_a_reference_is_written_out() -> None:
    tree = {"channel_values": {"messages": [{"role": "user", "content": "one"}]}}
    then = [{"role": "assistant", "content": "two"}]
    same = {"$same": {"path": "/channel_values/messages", "first": 1, "then": then}}
    found = transcript(tree, since=[_entry([["messages", same]])])
    assert [m.text for m in found.messages] == ["one", "two"]


def test_a_call_without_a_result_is_uncertain_wherever_it_is_written(tmp_path: Path) -> None:
    stopped(tmp_path, [asks("pay", {"amount": 4}, "p")])
    assert [call.id for call in read("t", store=tmp_path).uncertain] == ["p"]


def test_a_thread_without_a_conversation_has_none(tmp_path: Path) -> None:
    assert transcript(None).messages == ()
    assert transcript({"channel_values": {"n": 1, "__start__": 3}}).messages == ()
    assert transcript("nothing of LangGraph").messages == ()
