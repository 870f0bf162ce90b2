"""How LangGraph names tasks and questions: renamed nodes rest on it (seen in langgraph 1.2.24).

Where one of these fails, `caravanserai.langgraph._tasks` no longer finds what a task wrote, and
a renamed node would run again.
"""

# ruff: noqa: E402

from __future__ import annotations

from typing import Any

import pytest

from integration_tests.support import require

require("langgraph")

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START
from langgraph.types import Command, Send, interrupt

from caravanserai.langgraph import _tasks
from caravanserai.langgraph._tasks import PULL, Place, Task, path_of
from integration_tests.langgraph.graphs import builder_of, config, graph_of, says


def fails(state: Any) -> Any:
    raise RuntimeError("no")


def asks(*questions: str) -> Any:
    return lambda state: {"log": [interrupt(question) for question in questions]}


def ran(graph: Any) -> Any:
    """Run a graph that asks in the midst of a step; return its checkpoint there."""
    graph.invoke({"log": []}, config(), durability="sync")
    found = graph.checkpointer.get_tuple(config())
    assert found.pending_writes, "nothing is pending"
    return found


def place_of(found: Any) -> Place:
    configurable = found.config["configurable"]
    step = found.metadata["step"] + 1
    return Place(found.checkpoint["id"], configurable["checkpoint_ns"], step)


def written(found: Any) -> dict[str, set[str]]:
    """Return the channels that each task wrote to."""
    tasks: dict[str, set[str]] = {}
    for task_id, channel, _ in found.pending_writes:
        tasks.setdefault(task_id, set()).add(channel)
    return tasks


class Paths(InMemorySaver):
    """Keeps the path of each task."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: dict[str, str] = {}

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.paths[task_id] = task_path
        super().put_writes(config, writes, task_id, task_path)


def test_a_node_is_named_by_its_checkpoint_namespace_step_name_and_triggers() -> None:
    saver = Paths()
    found = ran(graph_of(saver, {"a": says("a"), "b": asks("?")}, (START, "a"), (START, "b")))

    id_a = Task("a", PULL, ("branch:to:a",)).id(place_of(found))

    assert written(found)[id_a] >= {"log"}
    assert saver.paths[id_a] == _tasks.path_text("a")
    assert path_of(saver.paths[id_a]).node == "a"


def test_joins_in_front_of_a_node_are_among_its_triggers_in_order() -> None:
    saver = Paths()
    nodes = {"a": says("a"), "b": says("b"), "z": says("z"), "y": asks("?")}
    edges = ((START, "a"), (START, "b"), (["b", "a"], "z"), (["a", "b"], "y"))
    found = ran(graph_of(saver, nodes, *edges))

    joined = "join:b+a:z"
    id_z = Task("z", PULL, tuple(sorted(("branch:to:z", joined)))).id(place_of(found))
    known = set(found.checkpoint["channel_versions"])

    assert id_z in written(found)
    assert joined in known
    assert _tasks.pulled("z", id_z, place_of(found), known, ()) is not None


def test_a_send_is_named_by_its_number() -> None:
    saver = Paths()
    builder = builder_of({"a": says("a"), "w": says("w"), "x": asks("?")}, (START, "a"))
    builder.add_conditional_edges("a", lambda state: [Send("w", {}), Send("x", {}), Send("w", {})])
    found = ran(builder.compile(checkpointer=saver))

    ids = [_tasks.pushed("w", number).id(place_of(found)) for number in (0, 2)]

    assert set(ids) <= written(found).keys()
    assert [path_of(saver.paths[one]).send for one in ids] == [0, 2]


def test_a_handler_of_errors_is_named_by_the_task_that_failed() -> None:
    saver = Paths()
    builder = builder_of({"b": says("b"), "x": asks("?")}, (START, "b"), (START, "x"))
    builder.add_node("a", fails, error_handler=lambda state: {"log": ["handled"]})
    builder.add_edge(START, "a")
    found = ran(builder.compile(checkpointer=saver))

    task_a = Task("a", PULL, ("branch:to:a",))
    failed = task_a.id(place_of(found))
    inside = place_of(found)._replace(ns=task_a.ns(place_of(found)))
    handler = _tasks.handler(_tasks.handlers("a")[0], failed).id(inside)

    assert "__error_source_node__" in written(found)[failed]
    assert "log" in written(found)[handler]
    assert path_of(saver.paths[handler]).handled == _tasks.path_text("a")


def test_the_path_of_a_call_names_the_node_that_called() -> None:
    saver = Paths()

    @task
    def fetch() -> str:
        return "fetched"

    @entrypoint(checkpointer=saver)
    def flow(given: Any) -> Any:
        fetch().result()
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        flow.invoke({}, config(), durability="sync")

    (call,) = (path for path in saver.paths.values() if path_of(path).call)
    assert _tasks.calls_of("flow") in call


@pytest.mark.parametrize("inside", [False, True])
def test_questions_are_named_by_the_namespace_of_their_task_and_how_many_are_answered(
    inside: bool,
) -> None:
    saver = Paths()
    asking = {"ask": asks("first", "second")}
    node = graph_of(None, asking) if inside else asking["ask"]
    graph = graph_of(saver, {"ask": node})
    found = ran(graph)
    questions = [graph.get_state(config()).interrupts[0].id]
    graph.invoke(Command(resume="yes"), config())
    questions.append(graph.get_state(config()).interrupts[0].id)

    outer = Task("ask", PULL, ("branch:to:ask",)).ns(place_of(found))
    ns = outer
    if inside:
        sub = saver.get_tuple(config(checkpoint_ns=outer))
        ns = Task("ask", PULL, ("branch:to:ask",)).ns(place_of(sub))
        assert sub.metadata["parents"] == {"": found.checkpoint["id"]}
    names = _tasks.question_ids(ns)

    assert questions == [next(names), next(names)]


def test_the_tasks_of_an_update_by_hand_are_told_from_those_of_a_step() -> None:
    saver = Paths()
    graph = graph_of(saver, {"a": says("a")})
    graph.invoke({"log": []}, config(), durability="sync")
    before = saver.get_tuple(config()).checkpoint["id"]
    known = set(saver.paths)

    graph.update_state(config(), {"log": ["by hand"]}, as_node="a")

    (made,) = set(saver.paths) - known
    assert _tasks.is_update(made, saver.paths[made], before)
