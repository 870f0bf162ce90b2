"""A chat takes less than three times the room of its newest state, and stays what it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from caravanserai.langgraph import WaypointSaver
from caravanserai_core import reading
from caravanserai_core.journal import forget
from caravanserai_core.stores import FileStore
from integration_tests.langgraph.graphs import config

MESSAGES = 500


def text(number: int) -> str:
    """2 kB that stand nowhere else."""
    return "".join(f"sentence {number}.{k} of a long answer, " for k in range(60))[:2000]


def chat(saver: WaypointSaver) -> Any:
    """A node that adds a message each time, with an id or without, until there are enough."""

    def say(state: MessagesState) -> Any:
        number = len(state["messages"])
        given = f"answer-{number}" if number % 2 else None
        return {"messages": [AIMessage(text(number), id=given)]}

    builder = StateGraph(MessagesState)
    builder.add_node("say", say)
    builder.add_edge(START, "say")
    builder.add_conditional_edges(
        "say", lambda state: END if len(state["messages"]) >= MESSAGES else "say", ["say", END]
    )
    return builder.compile(saver)


def test_a_chat_of_500_messages_takes_less_than_three_times_its_state(store_dir: Path) -> None:
    """All bytes of the journal; each message is read back from its checkpoint and its write."""
    where = {**config(), "recursion_limit": MESSAGES + 10}
    graph = chat(WaypointSaver(store_dir))
    done = graph.invoke({"messages": [HumanMessage(text(0))]}, where, durability="sync")
    assert [message.content for message in done["messages"]] == [text(n) for n in range(MESSAGES)]
    store = FileStore(store_dir)
    forget(store, "t")

    size = sum(path.stat().st_size for path in (store_dir / "t").glob("journal-*.jsonl"))
    chain = reading.newest(store, "t") or []
    final = len(orjson.dumps(reading.rebuild(chain, chain[-1].waypoint)))
    assert size < 3 * final

    stops = list(graph.get_state_history(where))
    assert stops[0].values == done
    for before, after in zip(stops[1:], stops, strict=False):
        result = before.tasks[0].result
        if before.tasks[0].name == "say":
            # LangGraph gives a message an id in place, before it is written.
            assert result == {"messages": after.values["messages"][-1:]}
