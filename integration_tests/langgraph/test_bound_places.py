"""An answer goes only to what was asked: of several tasks, deep inside, in functions and tools."""

# ruff: noqa: E402

from __future__ import annotations

import warnings
from typing import Any

import pytest

from integration_tests.support import require

require("langgraph")

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent
from langgraph.types import Send, interrupt

from caravanserai import answer
from caravanserai.langgraph import resumable_graph
from caravanserai_core.stores import Store
from integration_tests.langgraph.graphs import State, builder_of, says
from integration_tests.langgraph.shop import GIVEN, Shop, asked, new_process


@pytest.fixture
def shop(store: Store) -> Shop:
    return Shop(store)


def test_tasks_of_one_node(shop: Shop) -> None:
    """Each `Send` has its own question and its own answer."""
    done: list[str] = []

    def pay(item: Any) -> State:
        said = f"{interrupt(f'{item} for {shop.price}?')} {item} {shop.price}"
        done.append(said)
        return {"log": [said]}

    def start() -> Any:
        made: Any = StateGraph(State)
        made.add_node("pay", pay)
        made.add_conditional_edges(START, lambda state: [Send("pay", "tea"), Send("pay", "salt")])
        new_process()
        return resumable_graph(made.compile(), run_id="t", store=shop.store).invoke(GIVEN)

    start()
    answer("t", "yes", question=shop.open("tea for 40?"), store=shop.store)
    assert asked(start()) == ["salt for 40?"]
    answer("t", "no", question=shop.open("salt for 40?"), store=shop.store)
    shop.price = 4000
    assert asked(start()) == ["salt for 4000?"]
    answer("t", "yes", store=shop.store)
    assert sorted(start()["log"]) == ["given", "yes salt 4000", "yes tea 40"]
    assert sorted(done) == ["yes salt 4000", "yes tea 40"]


# ---------------------------------------------------------------------- deep inside


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("deep", [1, 2])
def test_a_question_in_a_subgraph(shop: Shop, kept: bool, deep: int) -> None:
    """What is done inside is not done again, where the subgraph stores it."""

    def nodes() -> Any:
        found: Any = {"x": lambda state: shop.ran.append("x") or {"log": ["x"]}, "pay": shop.pay}
        for number in range(deep):
            last = number == 0 and not kept
            found = {"sub": builder_of(found).compile(checkpointer=False if last else None)}
        return found

    # With "sync" langgraph 1.2.24 fails in a subgraph that stores nothing.
    options: Any = {} if kept else {"durability": "async"}
    shop.start(GIVEN, nodes(), **options)
    answer("t", "yes", store=shop.store)
    shop.price = 4000
    assert asked(shop.start(GIVEN, nodes(), **options)) == ["Pay 4000?"]
    assert sorted(shop.states().values()) == ["open", "spent"]
    answer("t", "no", store=shop.store)
    assert shop.start(GIVEN, nodes(), **options)["log"][-1] == "no 4000"
    assert "got yes" not in shop.ran
    if kept:
        assert shop.ran.count("x") == 1


@pytest.mark.parametrize("kept", [True, False])
def test_the_same_question_in_a_subgraph(shop: Shop, kept: bool) -> None:
    inner = builder_of({"pay": shop.pay}).compile(checkpointer=None if kept else False)
    options: Any = {} if kept else {"durability": "async"}
    shop.start(GIVEN, {"sub": inner}, **options)
    answer("t", "yes", store=shop.store)
    assert shop.start(GIVEN, {"sub": inner}, **options)["log"][-1] == "yes 40"
    assert shop.ran.count("got yes") == 1
    assert shop.states() == {"q1": "spent"}


def test_a_subgraph_that_is_gone_asks_no_more(shop: Shop) -> None:
    """Its node is another one by then, and goes on."""
    shop.start(GIVEN, {"sub": builder_of({"pay": shop.pay}).compile()})
    answer("t", "yes", store=shop.store)
    nodes = {"sub": says("free"), "n": lambda state: {"log": [interrupt("More?")]}}
    assert asked(shop.start(GIVEN, nodes)) == ["More?"]
    assert shop.states() == {"q1": "spent", "q2": "open"}


@pytest.mark.parametrize("changed", ["inner", "outer", ""])
def test_functions_and_their_tasks(shop: Shop, changed: str) -> None:
    """Tasks that are done are not run again, those that asked are held to what they asked."""

    def start(inner: str, outer: str) -> Any:
        @task
        def work() -> str:
            shop.ran.append("work")
            return "work"

        @task
        def approve() -> str:
            return f"{inner} {interrupt(inner)}"

        @entrypoint()
        def flow(given: dict[str, Any]) -> dict[str, Any]:
            told = [work().result(), approve().result(), f"{outer} {interrupt(outer)}"]
            shop.ran.append(told[-1])
            return {"log": told}

        new_process()
        return resumable_graph(flow, run_id="t", store=shop.store).invoke(GIVEN)

    assert asked(start("in?", "out?")) == ["in?"]
    answer("t", "I", store=shop.store)
    new = "other?" if changed == "inner" else "in?"
    if changed == "inner":
        assert asked(start(new, "out?")) == ["other?"]
        assert asked(start(new, "out?")) == ["other?"]
        answer("t", "J", store=shop.store)
    assert asked(start(new, "out?")) == ["out?"]
    answer("t", "O", store=shop.store)
    last = "beyond?" if changed == "outer" else "out?"
    if changed == "outer":
        assert asked(start(new, last)) == ["beyond?"]
        answer("t", "P", store=shop.store)
    said = "P" if changed == "outer" else "O"
    inner = "other? J" if changed == "inner" else "in? I"
    assert start(new, last)["log"] == ["work", inner, f"{last} {said}"]
    assert shop.ran == ["work", f"{last} {said}"]


CALL: Any = {"name": "order", "args": {"what": "tea"}, "id": "c", "type": "tool_call"}


class Scripted(BaseChatModel):
    """A model that calls a tool once, and is content."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *args: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: Any, *args: Any, **options: Any) -> ChatResult:
        done = any(message.type == "tool" for message in messages)
        said = AIMessage("Done.") if done else AIMessage("", tool_calls=[CALL])
        return ChatResult(generations=[ChatGeneration(message=said)])


def plain(order: Any) -> Any:
    """Return an agent of two nodes."""
    made: Any = StateGraph(MessagesState)
    made.add_node("agent", lambda state: {"messages": [AIMessage("", tool_calls=[CALL])]})
    made.add_node("tools", ToolNode([order]))
    made.add_edge(START, "agent")
    made.add_edge("agent", "tools")
    return made.compile()


def react(order: Any) -> Any:
    """Return LangGraph's own agent, which sends each call to a task of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return create_react_agent(Scripted(), [order], version="v2")


@pytest.mark.parametrize("agent", [plain, react])
def test_a_tool_of_an_agent(shop: Shop, agent: Any) -> None:
    """The tool was given another price in its code: what a person approved is not done with it."""
    sent: list[str] = []

    def start() -> Any:
        @tool
        def order(what: str) -> str:
            """Order something."""
            if interrupt({"order": what, "price": shop.price}) is not True:
                return "refused"
            sent.append(f"{what} {shop.price}")
            return "ordered"

        new_process()
        job = resumable_graph(agent(order), run_id="t", store=shop.store)
        return job.invoke({"messages": [("user", "Order tea.")]})

    start()
    answer("t", True, store=shop.store)
    shop.price = 4000
    assert asked(start()) == [{"order": "tea", "price": 4000}]
    assert sent == []
    answer("t", True, store=shop.store)
    assert "ordered" in [message.content for message in start()["messages"]]
    assert sent == ["tea 4000"]
