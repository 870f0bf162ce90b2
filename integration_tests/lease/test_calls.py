"""The other calls that have an end: a graph as a job, a loop over items."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import caravanserai
from caravanserai import FileStore, RunBusy, StaleWriter
from integration_tests.lease.programs import child, effect, effects, tell, wait
from integration_tests.support import require


def graph(name: str) -> Any:
    """Return a graph of two steps, which waits between them."""
    require("langgraph")
    from langgraph.graph import END, START, StateGraph

    def first(state: dict[str, Any]) -> dict[str, Any]:
        effect(f"{name}-first")
        return {"n": 1}

    def second(state: dict[str, Any]) -> dict[str, Any]:
        tell(name)
        wait(f"{name}-go")
        return {"n": 2}

    builder: Any = StateGraph(dict)
    builder.add_node("first", first)
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    builder.add_edge("second", END)
    return builder.compile()


def invoke(name: str, takeover: bool = False) -> None:
    """Do the job of the graph."""
    from caravanserai.langgraph import resumable_graph

    job = resumable_graph(graph(name), run_id="run", takeover=takeover)
    tell(f"{name}-result", str(job.invoke({"n": 0})["n"]))


def test_a_graph_as_a_job_is_held_for_the_length_of_each_call() -> None:
    """All four calls are refused while another process is in one; after it, its result is there."""
    require("langgraph")
    from caravanserai.langgraph import resumable_graph

    with child(invoke, "owner") as owner:
        wait("owner")
        job = resumable_graph(graph("other"), run_id="run")

        async def streamed() -> list[Any]:
            return [part async for part in job.astream({"n": 0})]

        with pytest.raises(RunBusy) as busy:
            job.invoke({"n": 0})
        assert busy.value.pid == owner.pid
        with pytest.raises(RunBusy):
            list(job.stream({"n": 0}))
        with pytest.raises(RunBusy):
            asyncio.run(job.ainvoke({"n": 0}))
        with pytest.raises(RunBusy):
            asyncio.run(streamed())
        tell("owner-go")
        assert owner.end() == 0, owner.error
    assert job.invoke({"n": 0}) == {"n": 2}
    assert effects() == ["owner-first"]
    assert FileStore().holder("run") is None


def test_a_graph_that_is_taken_over_goes_on_elsewhere() -> None:
    """The first step is not done again, and the old owner writes nothing."""
    require("langgraph")
    with child(invoke, "old") as old:
        wait("old")
        with child(invoke, "new", True) as new:
            wait("new")
            tell("old-go")
            assert old.end() == 1
            assert old.error.startswith(StaleWriter.__name__)
            tell("new-go")
            assert new.end() == 0, new.error
    assert wait("new-result") == "2"
    assert effects() == ["old-first"]


def test_a_loop_over_items_is_held_from_its_first_item_to_its_end() -> None:
    """Another process does not work on the same items meanwhile."""

    def loop(name: str) -> None:
        for item in caravanserai.resumable_iterate(["a", "b", "c"], "run"):
            effect(item)
            if item == "b":
                tell(name)
                wait("go")

    with child(loop, "first") as first:
        wait("first")
        with child(loop, "second") as second:
            assert second.end() == 5
        assert second.busy["pid"] == first.pid
        tell("go")
        assert first.end() == 0, first.error
    assert effects() == ["a", "b", "c"]
    with child(loop, "third") as third:
        assert third.end() == 0, third.error
    assert effects() == ["a", "b", "c"]
