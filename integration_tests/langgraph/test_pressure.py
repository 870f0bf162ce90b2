"""A graph that is faster than the disk is held back, so that its checkpoints do not fill memory."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

from caravanserai.langgraph import WaypointSaver, _saver
from caravanserai_core import history, pipeline, threads
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


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_the_writes_of_a_node_need_no_thread_where_its_checkpoint_follows(
    durability: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Worker threads take the interpreter from the event loop: a step needs one, for the disk."""
    monkeypatch.setattr(_saver, "_FOLLOWER", 20.0)
    jobs: list[bool] = []

    def in_thread(work: Any, *, few: bool = False) -> Any:
        jobs.append(few)
        return threads.in_thread(work, few=few)

    monkeypatch.setattr(pipeline, "in_thread", in_thread)

    async def count(state: State) -> State:
        return {"n": state["n"] + 1}

    builder: Any = StateGraph(State)
    builder.add_node("count", count)
    builder.add_edge(START, "count")
    builder.add_conditional_edges("count", lambda state: END if state["n"] >= 10 else "count")
    graph = builder.compile(checkpointer=WaypointSaver(tmp_path))

    config: Any = {"configurable": {"thread_id": "run"}, "recursion_limit": 200}
    assert asyncio.run(graph.ainvoke({"n": 0}, config, durability=durability)) == {"n": 10}
    assert jobs == [True] * len(history("run", store=tmp_path))


def test_writes_without_a_checkpoint_behind_them_are_stored_in_a_moment(tmp_path: Path) -> None:
    """A node of the same step goes on for long: what the others did does not wait for it."""
    seen: list[list[str]] = []

    async def quick(_: State) -> State:
        return {"n": 1}

    async def slow(_: State) -> dict[str, Any]:
        until = time.monotonic() + 20
        while time.monotonic() < until and not seen:
            await asyncio.sleep(0.02)
            found = [entry for entry in log("run") if "quick" in entry]
            if found:
                seen.append(found)
        return {}

    def log(run_id: str) -> list[str]:
        lines = (tmp_path / run_id / "journal-1.jsonl").read_text().splitlines()
        return [line for line in lines if '"kind":"entry"' in line]

    builder: Any = StateGraph(State)
    for node in (quick, slow):
        builder.add_node(node.__name__, node)
        builder.add_edge(START, node.__name__)
    graph = builder.compile(checkpointer=WaypointSaver(tmp_path))
    config: Any = {"configurable": {"thread_id": "run"}}
    asyncio.run(graph.ainvoke({"n": 0}, config, durability="sync"))
    assert seen
