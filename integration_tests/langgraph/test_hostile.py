"""What others do in between, values that resist being told, and graphs that are not the same."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Interrupt, interrupt
from pydantic import BaseModel

from caravanserai import answer
from caravanserai.langgraph import WaypointSaver, _history, resumable_graph
from caravanserai.langgraph._tasks import question_ids
from caravanserai_core.errors import Conflict, InputChanged, SchemaMismatch, UsageError
from caravanserai_core.journal import Journal
from caravanserai_core.stores import FileStore
from caravanserai_core.verify import verify


class State(TypedDict, total=False):
    """A log of what ran, and anything."""

    x: Any
    log: Annotated[list[Any], operator.add]


class Talk(BaseModel):
    """No message of LangChain, though it has their fields."""

    type: str
    content: str
    tool_calls: list[Any]


class Mute(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def _chain(**nodes: Callable[[Any], Any]) -> Any:
    builder: Any = StateGraph(State)
    before = START
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(before, name)
        before = name
    builder.add_edge(before, END)
    return builder


def _config(**metadata: Any) -> Any:
    return {"configurable": {"thread_id": "run"}, "metadata": metadata}


def _log(name: str) -> Callable[[State], State]:
    return lambda state: {"log": [name]}


@pytest.mark.parametrize("what", ["prune", "delete_for_runs"])
def test_what_is_stored_while_others_are_removed_stays(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn between the choice of checkpoints and their removal is not among them."""
    saver = WaypointSaver(tmp_path)
    graph = _chain(n=_log("n")).compile(checkpointer=saver)
    graph.invoke({"x": 1}, _config(run_id="old"), durability="sync")
    remove = _history._remove

    def late(*args: Any) -> None:
        graph.invoke({"x": 2}, _config(run_id="new"), durability="sync")
        remove(*args)

    monkeypatch.setattr(_history, "_remove", late)

    if what == "prune":
        saver.prune(["run"])
    else:
        saver.delete_for_runs(["old"])

    assert graph.get_state(_config()).values == {"x": 2, "log": ["n", "n"]}
    assert not verify(saver.store, "run").damaged


def test_checkpoints_without_a_run_are_of_no_run(tmp_path: Path) -> None:
    """`None` in the metadata is not the run named "None"."""
    saver = WaypointSaver(tmp_path)
    graph = _chain(n=_log("n")).compile(checkpointer=saver)
    graph.invoke({"x": 1}, _config(), durability="sync")

    saver.delete_for_runs(["None"])

    assert graph.get_state(_config()).values["log"] == ["n"]


def test_a_note_that_waits_does_not_come_back_after_a_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a note lies beside a journal that never had its waypoint, which is damage."""
    monkeypatch.setattr(Journal, "write_notes", lambda self: None)
    saver = WaypointSaver(tmp_path)
    graph = _chain(a=_log("a"), b=_log("b"), c=_log("c")).compile(checkpointer=saver)
    graph.invoke({"x": 1}, _config(), durability="sync")
    FileStore(tmp_path).delete("run")  # as another process does
    monkeypatch.undo()

    short = _chain(a=_log("a")).compile(checkpointer=saver)
    with suppress(Conflict):  # the first turn may be the one that notices the deletion
        short.invoke({"x": 2}, _config(), durability="sync")
    short.invoke({"x": 3}, _config(), durability="sync")
    saver.thread("run").run.write_notes()

    assert not verify(FileStore(tmp_path), "run").damaged
    newest = len(list(graph.get_state_history(_config())))
    names = {path.name for path in (tmp_path / "run").glob("waypoint-*.md")}
    assert names == {f"waypoint-{number}.md" for number in range(1, newest + 1)}


def test_the_next_question_of_a_subgraph_is_asked(tmp_path: Path) -> None:
    """An answer that a subgraph used before a crash is not given to what it asks next."""

    def ask(state: State) -> State:
        return {"log": [interrupt("Delete the draft?"), interrupt("Delete the account?")]}

    inner = _chain(ask=ask).compile()
    saver = WaypointSaver(tmp_path)
    graph = _chain(sub=inner).compile(checkpointer=saver)
    job = resumable_graph(graph, run_id="run")
    job.invoke({"x": 1})
    answer("run", "yes", store=tmp_path)
    # As if the process had died when the subgraph's next question was stored, and not yet the
    # same question of the graph around it.
    (lane,) = [ns for ns in saver.thread("run").index.checkpoints if ns]
    inside: Any = {"configurable": {"thread_id": "run", "checkpoint_ns": lane}}
    asked = saver.get_tuple(inside)
    assert asked is not None
    ((task, _, _), *_) = [w for w in asked.pending_writes or () if w[1] == "__interrupt__"]
    _, name = islice(question_ids(f"{lane}|ask:{task}"), 2)
    second = Interrupt("Delete the account?", id=name)
    saver.put_writes(asked.config, [("__interrupt__", (second,)), ("__resume__", ["yes"])], task)

    result = resumable_graph(graph, run_id="run").invoke({"x": 1})

    assert [item.value for item in result["__interrupt__"]] == ["Delete the account?"]


def test_a_graph_without_the_node_that_is_next_is_refused(tmp_path: Path) -> None:
    """It would count as finished, and half a result be returned."""

    def fail(state: State) -> State:
        raise ValueError("once")

    first = _chain(a=_log("a"), b=fail).compile()
    with pytest.raises(ValueError, match="once"):
        resumable_graph(first, run_id="run", store=tmp_path).invoke({"x": 1})
    renamed = _chain(a=_log("a"), b2=_log("b2")).compile()
    job = resumable_graph(renamed, run_id="run", store=tmp_path)

    with pytest.raises(SchemaMismatch, match="node b,"):
        job.invoke({"x": 1})

    whole = _chain(a=_log("a"), b=_log("b")).compile()
    job = resumable_graph(whole, run_id="run", store=tmp_path)
    assert job.invoke({"x": 1}) == {"x": 1, "log": ["a", "b"]}


def test_a_job_begins_again_in_the_process_that_began_it(tmp_path: Path) -> None:
    """`again=True` starts without what the thread holds; the same line then is that job."""
    job = resumable_graph(_chain(n=_log("n")).compile(), run_id="run", store=tmp_path)
    job.invoke({"x": 1})

    assert job.invoke({"x": 2}, again=True) == {"x": 2, "log": ["n"]}
    assert job.invoke({"x": 2}) == {"x": 2, "log": ["n"]}


def test_the_order_of_an_inputs_fields_does_not_matter(tmp_path: Path) -> None:
    """It is the same input."""
    job = resumable_graph(_chain(n=_log("n")).compile(), run_id="run", store=tmp_path)
    job.invoke({"x": 1, "log": []})

    assert job.invoke({"log": [], "x": 1}) == {"x": 1, "log": ["n"]}


def test_a_value_that_cannot_be_told_stops_no_graph(tmp_path: Path) -> None:
    """A note says what it can."""
    saver = WaypointSaver(tmp_path)
    graph = _chain(n=lambda state: {"x": state["x"]}).compile(checkpointer=saver)
    talk = Talk(type="ai", content="c", tool_calls=[3])

    assert graph.invoke({"x": talk}, _config(), durability="sync")["x"] == talk
    assert graph.get_state(_config()).values["x"] == talk


def test_an_error_without_words_is_the_one_that_is_raised(tmp_path: Path) -> None:
    """Telling it fails, and does not take its place."""

    def fail(state: State) -> State:
        raise Mute

    job = resumable_graph(_chain(n=fail).compile(), run_id="run", store=tmp_path)

    with pytest.raises(Mute):
        job.invoke({"x": 1})


def test_a_graph_that_is_not_compiled_and_a_name_that_is_none_are_refused(tmp_path: Path) -> None:
    """With a sentence."""
    graph: Any = _chain(n=_log("n"))
    number: Any = 7

    with pytest.raises(UsageError, match="compile"):
        resumable_graph(graph, run_id="run", store=tmp_path)
    with pytest.raises(UsageError, match="string"):
        resumable_graph(graph.compile(), run_id=number, store=tmp_path)


def test_the_first_answer_stands(tmp_path: Path) -> None:
    """Another answer to a question that was answered before a crash is refused, both shown."""
    asks = _chain(ask=lambda state: {"log": [interrupt("Send it?")]})
    saver = WaypointSaver(tmp_path)
    job = resumable_graph(asks.compile(checkpointer=saver), run_id="run")
    job.invoke({"x": 1})
    answer("run", "yes", store=tmp_path)

    with pytest.raises(InputChanged, match=r'"yes".*"no"'):
        job.invoke(Command(resume="no"))

    assert job.invoke(Command(resume="yes")) == {"x": 1, "log": ["yes"]}


def test_a_branch_says_where_it_comes_from_and_tells_its_own_story(tmp_path: Path) -> None:
    """What was done after the place where it branches off is no part of "so far"."""
    saver = WaypointSaver(tmp_path)
    graph = _chain(a=_log("a"), b=_log("b")).compile(checkpointer=saver)
    graph.invoke({"x": 1}, _config(), durability="sync")
    old = next(item for item in graph.get_state_history(_config()) if item.next == ("b",))

    graph.invoke({"x": 5}, old.config, durability="sync")

    branch = (tmp_path / "run" / "waypoint-5.md").read_text(encoding="utf-8")
    assert "**Branched off from waypoint 3.** The run was given its input: `x` = 5." in branch
    assert "Node `a` wrote" in branch
    assert "Node `b` wrote" not in branch


def test_writes_that_failed_do_not_turn_up_in_the_next_run_of_that_name(tmp_path: Path) -> None:
    """A task ends after its thread was deleted: what it wrote is no part of the next one."""
    saver = WaypointSaver(tmp_path)
    graph = _chain(n=_log("n")).compile(checkpointer=saver)
    graph.invoke({"x": 1}, _config(), durability="sync")
    head = saver.get_tuple(_config())
    assert head is not None
    FileStore(tmp_path).delete("run")  # as another process does
    with pytest.raises(Conflict):
        saver.put_writes(head.config, [("x", "of the deleted thread")], "task")

    graph.invoke({"x": 2}, _config(), durability="sync")

    journal = (tmp_path / "run" / "journal-1.jsonl").read_text(encoding="utf-8")
    assert "of the deleted thread" not in journal
