"""A graph that is faster than the disk is held back, so that its checkpoints do not fill memory."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph

from caravanserai.langgraph import WaypointSaver
from caravanserai_core.stores import FileStore
from caravanserai_core.stores._seam import Files

STEPS = 60


class Slow(Files):
    """A disk whose every sync takes a while."""

    def sync_data(self, fd: int) -> None:
        time.sleep(0.01)
        super().sync_data(fd)


class State(TypedDict):
    """A counter."""

    n: int


def test_an_asynchronous_graph_waits_for_a_slow_disk(tmp_path: Path) -> None:
    """LangGraph never waits by default; here only a few checkpoints are on their way at once."""
    saver = WaypointSaver(FileStore(tmp_path, files=Slow()))
    behind: list[int] = []

    async def count(state: State) -> State:
        found = saver.store.recent("run")
        behind.append(state["n"] - (found.last.waypoint if found is not None else 0))
        return {"n": state["n"] + 1}

    builder: Any = StateGraph(State)
    builder.add_node("count", count)
    builder.add_edge(START, "count")
    builder.add_conditional_edges("count", lambda state: END if state["n"] >= STEPS else "count")
    graph = builder.compile(checkpointer=saver)

    config: Any = {"configurable": {"thread_id": "run"}, "recursion_limit": 200}
    result = asyncio.run(graph.ainvoke({"n": 0}, config))

    assert result == {"n": STEPS}
    assert max(behind) < 15
