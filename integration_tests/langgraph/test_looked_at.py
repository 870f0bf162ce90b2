"""A module that invokes its graph when it is imported, and is imported only to be looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import StateGraph

from caravanserai import UsageError
from caravanserai.langgraph import WaypointSaver, resumable_graph
from caravanserai_core.importing import only_looking


class Topic(TypedDict, total=False):
    n: int


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("as_job", [True, False])
def test_no_node_runs_and_nothing_is_written(
    as_job: bool, durability: Any, store_dir: Path
) -> None:
    """Refused before the first node, in each mode; afterwards the same graph works."""
    ran: list[str] = []

    def node(state: Topic) -> Topic:
        ran.append("mail sent")
        return {"n": 1}

    builder: Any = StateGraph(Topic)
    builder.add_node("node", node)
    builder.set_entry_point("node")

    def call() -> Any:
        if as_job:
            job = resumable_graph(builder.compile(), run_id="t")
            return job.invoke({"n": 0}, durability=durability)
        graph = builder.compile(checkpointer=WaypointSaver())
        config = {"configurable": {"thread_id": "t"}}
        return graph.invoke({"n": 0}, config, durability=durability)

    with pytest.raises(UsageError, match="__main__"), only_looking("agent"):
        call()

    assert ran == []
    assert not list(store_dir.rglob("*.jsonl"))
    assert call()["n"] == 1
