"""The graphs that LangGraph's savers are measured with; needs langgraph and langchain-core."""

from __future__ import annotations

import warnings
from typing import Any, Protocol, TypedDict

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph

from benchmarks._states import prose, text


class Work(Protocol):
    """A graph, what it is given, and what must come out.

    Attributes:
        supersteps: how many the graph makes.
        first: what it is given.
    """

    supersteps: int
    first: Any

    def __init__(self, count: int) -> None: ...

    def build(self) -> Any:
        """Return what compiles the graph when it is called with a checkpointer."""

    def check(self, values: Any) -> bool:
        """Say whether these are the values at the end."""
        ...


class _Small(TypedDict):
    step: int
    note: str
    total: int


def _count(state: _Small) -> Any:
    step = state["step"] + 1
    return {"step": step, "note": text(step, 60), "total": state["total"] + step}


class Nodes:
    """Three nodes in a loop, with a state of 100 bytes."""

    def __init__(self, count: int) -> None:
        rounds = max(1, round(count / 3))
        self.supersteps = 3 * rounds
        self.first = {"step": 0, "note": "", "total": 0}

    def build(self) -> Any:
        builder = StateGraph(_Small)
        for name in "abc":
            builder.add_node(name, _count)
        builder.add_edge(START, "a")
        builder.add_edge("a", "b")
        builder.add_edge("b", "c")
        builder.add_conditional_edges(
            "c", lambda state: END if state["step"] >= self.supersteps else "a", ["a", END]
        )
        return builder.compile

    def check(self, values: Any) -> bool:
        return bool(values["step"] == self.supersteps)


class Single:
    """One node in a loop, with a state of 100 bytes."""

    def __init__(self, count: int) -> None:
        self.supersteps = count
        self.first = {"step": 0, "note": "", "total": 0}

    def build(self) -> Any:
        return _loop(_Small, _count, lambda state: state["step"] >= self.supersteps)

    def check(self, values: Any) -> bool:
        return bool(values["step"] == self.supersteps)


class Chat:
    """A chat that grows by one message of 1 kB with each step."""

    words = staticmethod(text)

    def __init__(self, count: int) -> None:
        self.supersteps = count
        self.first = {"messages": [HumanMessage(self.words(0, 1000), id="message-0")]}

    def build(self) -> Any:
        def say(state: MessagesState) -> Any:
            number = len(state["messages"])
            kind = (HumanMessage, AIMessage)[number % 2]
            return {"messages": [kind(self.words(number, 1000), id=f"message-{number}")]}

        return _loop(MessagesState, say, lambda state: len(state["messages"]) > self.supersteps)

    def check(self, values: Any) -> bool:
        return [message.id for message in values["messages"]] == [
            f"message-{number}" for number in range(self.supersteps + 1)
        ]


class Prose(Chat):
    """The same, in words that do not repeat: a database that compresses gains less."""

    words = staticmethod(prose)


class _Pages(TypedDict):
    document: str
    step: int


class Document:
    """A document of 1 MB that stays, and a counter."""

    def __init__(self, count: int) -> None:
        self.supersteps = count
        self.first = {"document": text(1, 1_000_000), "step": 0}

    def build(self) -> Any:
        return _loop(
            _Pages,
            lambda state: {"step": state["step"] + 1},
            lambda state: state["step"] >= self.supersteps,
        )

    def check(self, values: Any) -> bool:
        return bool(
            values["step"] == self.supersteps and values["document"] == self.first["document"]
        )


class React:
    """LangGraph's ReAct agent: a model that asks for a tool again and again, 1 kB a turn.

    Its graph gives each call of a tool the whole state.
    """

    def __init__(self, count: int) -> None:
        self.turns = count
        self.supersteps = 2 * count + 1
        self.first = {"messages": [HumanMessage("find what has changed", id="question")]}

    def build(self) -> Any:
        from langgraph.prebuilt import create_react_agent

        turns = self.turns

        class Scripted(BaseChatModel):
            @property
            def _llm_type(self) -> str:
                return "scripted"

            def bind_tools(self, tools: Any, **_: Any) -> Any:
                return self

            def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
                number = len(messages) // 2
                call = {"name": "search", "args": {"number": number}, "id": f"call-{number}"}
                answer = AIMessage(
                    "" if number < turns else "nothing has changed",
                    id=f"answer-{number}",
                    tool_calls=[call] if number < turns else [],
                )
                return ChatResult(generations=[ChatGeneration(message=answer)])

        @tool
        def search(number: int) -> str:
            """Search."""
            return text(number, 1000)

        def compile(checkpointer: Any) -> Any:  # noqa: A001 - as that of a builder
            with warnings.catch_warnings():
                # Deprecated in favour of langchain's agents, and what most programs still use.
                warnings.simplefilter("ignore")
                return create_react_agent(Scripted(), [search], checkpointer=checkpointer)

        return compile

    def check(self, values: Any) -> bool:
        return len(values["messages"]) == 2 * self.turns + 2


def _loop(state: Any, node: Any, done: Any) -> Any:
    builder = StateGraph(state)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_conditional_edges("node", lambda s: END if done(s) else "node", ["node", END])
    return builder.compile


WORKS: dict[str, type[Work]] = {
    "nodes": Nodes,
    "single": Single,
    "chat": Chat,
    "prose": Prose,
    "document": Document,
    "react": React,
}
