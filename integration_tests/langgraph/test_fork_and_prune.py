"""Threads are forked and pruned by the core alone, and LangGraph goes on with what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels import DeltaChannel
from langgraph.types import Command, interrupt

from caravanserai import Waypoint, fork, get_waypoint, history, list_runs, load, pin, prune
from caravanserai.langgraph import WaypointSaver, resumable_graph
from caravanserai_core.journal import forget
from caravanserai_core.stores import FileStore
from integration_tests.langgraph.graphs import config, graph_of, says


def another_process(store_dir: Path, *threads: str) -> None:
    """Forget what this process knows."""
    for thread in threads:
        forget(FileStore(store_dir), thread)


def chain(saver: Any, ran: list[str] | None = None) -> Any:
    """A graph of four nodes; `ran` takes their names."""
    names = ran if ran is not None else []

    def node(name: str) -> Any:
        def run(state: Any) -> Any:
            names.append(name)
            return {"log": [name]}

        return run

    return graph_of(saver, {name: node(name) for name in "abcd"})


def test_a_thread_is_forked_at_each_waypoint_and_goes_on(store_dir: Path) -> None:
    """LangGraph runs what was left to do at that moment, and the parent does not change."""
    saver = WaypointSaver(store_dir)
    done = chain(saver).invoke({"log": []}, config(), durability="sync")
    stops = history("t", store=store_dir)
    before = (store_dir / "t/journal-1.jsonl").read_bytes()
    assert len(stops) == 6

    left = []
    for stop in stops:
        new = f"fork-{stop.number}"
        fork("t", at=stop.number, new_run_id=new, store=store_dir)
        ran: list[str] = []
        graph = chain(WaypointSaver(store_dir), ran)
        assert get_waypoint(new, store=store_dir).state == stop.state
        graph.invoke(None, config(new), durability="sync")
        assert graph.get_state(config(new)).values == done
        left.append("".join(ran))

    assert left == ["abcd", "abcd", "bcd", "cd", "d", ""]
    assert (store_dir / "t/journal-1.jsonl").read_bytes() == before


def asking(saver: Any) -> Any:
    """A graph that asks a person between two steps."""

    def ask(state: Any) -> Any:
        return {"log": [f"answered {interrupt('go on?')}"]}

    return graph_of(saver, {"a": says("a"), "ask": ask, "b": says("b")})


def test_a_thread_that_waits_is_forked_with_its_question(store_dir: Path) -> None:
    """Each branch gets its own answer, also where the parent was answered since."""
    asking(WaypointSaver(store_dir)).invoke({"log": []}, config(), durability="sync")
    [paused] = [w for w in history("t", store=store_dir) if w.meta.get("pause")]
    fork("t", new_run_id="now", store=store_dir)
    asking(WaypointSaver(store_dir)).invoke(Command(resume="yes"), config(), durability="sync")

    fork("t", at=paused.number, new_run_id="then", store=store_dir)

    for name in ("now", "then"):
        graph = asking(WaypointSaver(store_dir))
        [task] = graph.get_state(config(name)).tasks
        assert [i.value for i in task.interrupts] == ["go on?"]
        done = graph.invoke(Command(resume=name), config(name), durability="sync")
        assert done["log"] == ["a", f"answered {name}", "b"]
    assert load("t", store=store_dir)["channel_values"]["log"] == ["a", "answered yes", "b"]


def test_a_subgraph_is_forked_with_its_own_lane(store_dir: Path) -> None:
    def inner_ask(state: Any) -> Any:
        return {"log": [f"inner {interrupt('inner?')}"]}

    def outer(saver: Any) -> Any:
        inner = graph_of(None, {"i": says("i"), "ask": inner_ask, "j": says("j")})
        return graph_of(saver, {"a": says("a"), "sub": inner, "z": says("z")})

    outer(WaypointSaver(store_dir)).invoke({"log": []}, config(), durability="sync")
    assert {w.lane.partition(":")[0] for w in history("t", store=store_dir)} == {"", "sub"}

    fork("t", new_run_id="branch", store=store_dir)

    done = outer(WaypointSaver(store_dir)).invoke(
        Command(resume="yes"), config("branch"), durability="sync"
    )
    assert "inner yes" in done["log"]
    assert done["log"][-1] == "z"


def test_a_long_thread_is_pruned_and_goes_on(store_dir: Path) -> None:
    saver = WaypointSaver(store_dir)
    graph = chain(saver)
    for turn in range(10):
        graph.invoke({"n": turn}, config(), durability="sync")
    pin("t", 9, store=store_dir)
    pinned = get_waypoint("t", 9, store=store_dir).state

    prune("t", keep=5, store=store_dir)

    stops = history("t", store=store_dir)
    assert [w.number for w in stops] == [9, *range(56, 61)]
    assert stops[0].state == pinned
    again = chain(WaypointSaver(store_dir))
    assert len(list(again.get_state_history(config()))) == 6
    for one in (graph, again):
        log = one.invoke({"n": 11}, config(), durability="sync")["log"]
        assert "".join(log)[-4:] == "abcd"
    assert "".join(log) == "abcd" * 12


def test_a_thread_that_waits_is_pruned_with_its_question(store_dir: Path) -> None:
    asking(WaypointSaver(store_dir)).invoke({"log": []}, config(), durability="sync")

    prune("t", keep=1, store=store_dir)
    another_process(store_dir, "t")

    graph = asking(WaypointSaver(store_dir))
    [task] = graph.get_state(config()).tasks
    assert [i.value for i in task.interrupts] == ["go on?"]
    done = graph.invoke(Command(resume="yes"), config(), durability="sync")
    assert done["log"] == ["a", "answered yes", "b"]


def test_namespaces_of_finished_tasks_go(store_dir: Path) -> None:
    """Each task has one of its own; that of a subgraph with a memory stays, and its memory too."""
    store = FileStore(store_dir)

    def outer(saver: Any) -> Any:
        inner = graph_of(None, {"i": says("i")})
        nested = graph_of(None, {"deep": inner})
        memory = graph_of(True, {"k": lambda state: {"n": (state.get("n") or 0) + 1}})
        return graph_of(saver, {"sub": inner, "nest": nested, "mem": memory, "z": says("z")})

    for _ in range(4):
        outer(WaypointSaver(store)).invoke({"log": []}, config(), durability="sync")
    assert len({w.lane for w in history("t", store=store)}) == 1 + 4 * 3 + 1

    prune("t", keep=6, store=store)

    lanes = {w.lane.partition(":")[0] for w in history("t", store=store)}
    assert lanes == {"", "mem", "sub", "nest"}
    assert len({w.lane for w in history("t", store=store)}) == 1 + 3 + 1
    prune("t", keep=1, store=store)
    assert {w.lane for w in history("t", store=store)} == {"", "mem"}
    before = load("t", store=store)["channel_values"]["n"]
    outer(WaypointSaver(store)).invoke({"log": []}, config(), durability="sync")
    assert load("t", store=store)["channel_values"]["n"] == before + 1


def folded(old: list[str], many: list[list[str]]) -> list[str]:
    """Join what several steps added."""
    return [*old, *(item for one in many for item in one)]


def test_channels_made_from_writes_keep_what_they_are_made_from(store_dir: Path) -> None:
    state = TypedDict("state", {"log": Annotated[list, DeltaChannel(folded)]})  # noqa: UP013
    saver = WaypointSaver(store_dir)
    graph = graph_of(saver, {name: says(name) for name in "ab"}, state=state)
    for _ in range(6):
        graph.invoke({"log": ["-"]}, config(), durability="sync")
    whole = graph.get_state(config()).values["log"]

    prune("t", keep=2, store=store_dir)
    fork("t", new_run_id="branch", store=store_dir)

    for name in ("t", "branch"):
        graph = graph_of(WaypointSaver(store_dir), {n: says(n) for n in "ab"}, state=state)
        assert graph.get_state(config(name)).values["log"] == whole


def test_a_job_is_forked_with_its_input(store_dir: Path) -> None:
    """The same line goes on with the fork, where its parent stood."""
    ran: list[str] = []
    job = resumable_graph(chain(None), run_id="job", store=store_dir)
    job.invoke({"log": ["in"]}, durability="sync")
    stops: list[Waypoint] = history("job", store=store_dir)
    middle = stops[len(stops) // 2]

    fork("job", at=middle.number, new_run_id="other", store=store_dir)
    done = resumable_graph(chain(None, ran), run_id="other", store=store_dir).invoke(
        {"log": ["in"]}, durability="sync"
    )

    assert "".join(done["log"]) == "inabcd"
    assert 0 < len(ran) < 4
    prune("job", keep=1, store=store_dir)
    again = resumable_graph(chain(None, ran), run_id="job", store=store_dir)
    assert "".join(again.invoke({"log": ["in"]}, durability="sync")["log"]) == "inabcd"
    assert {i.run_id: i.status for i in list_runs(store=store_dir)}["job"] == "finished"


@pytest.mark.parametrize("keep", [4, 10])
def test_a_store_that_prunes_itself_serves_threads(store_dir: Path, keep: int) -> None:
    """Pruned in the middle of its invocations, a thread misses nothing."""
    store = FileStore(store_dir, keep=keep)
    graph = chain(WaypointSaver(store))
    for turn in range(12):
        graph.invoke({"n": turn}, config(), durability="sync")
        waiting = asking(WaypointSaver(store))
        waiting.invoke({"log": []}, config("w"), durability="sync")
        waiting.invoke(Command(resume=str(turn)), config("w"), durability="sync")

    assert len(history("t", store=store)) <= 2 * keep
    another_process(store_dir, "t", "w")
    assert "".join(chain(WaypointSaver(store)).get_state(config()).values["log"]) == "abcd" * 12
    log = asking(WaypointSaver(store)).get_state(config("w")).values["log"]
    assert [text for text in log if text.startswith("answered")] == [
        f"answered {turn}" for turn in range(12)
    ]
