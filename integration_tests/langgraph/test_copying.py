"""Threads of LangGraph's SQLite file go on in a store of ours: paused, half run, finished."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import MessagesState
from langgraph.types import Command, Send, interrupt

from caravanserai import answer
from caravanserai.langgraph import WaypointSaver, copy_thread
from caravanserai_core import history, list_runs
from caravanserai_core.copying import Copied, copy_runs
from caravanserai_core.errors import RunNotFound, UnserialisableState, UsageError
from caravanserai_core.stores import FileStore
from caravanserai_core.verify import verify
from integration_tests.langgraph.graphs import builder_of, config, graph_of, says

calls: list[str] = []
failing = False


def first(state: Any) -> Any:
    """Do something that must not be done twice."""
    calls.append("first")
    return {"log": ["first"], "box": {"when": datetime(2026, 1, 2, tzinfo=UTC), "set": {1, 2, 3}}}


def asks(state: Any) -> Any:
    """Ask a person."""
    return {"log": [f"answer {interrupt({'question': 'go on?'})}"]}


def fails(state: Any) -> Any:
    """Fail until it is mended."""
    calls.append("fails")
    if failing:
        raise RuntimeError("not yet")
    return {"log": ["mended"]}


PAUSING = {"first": first, "asks": asks, "last": says("last")}
HALF = {"first": first, "fails": fails, "last": says("last")}
PLAIN = {"first": first, "last": says("last")}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Leave a paused, a half run and a finished thread in LangGraph's own file."""
    global failing
    path = tmp_path / "threads.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graph_of(saver, PLAIN).invoke({"log": ["begin"]}, config("finished"))
        graph_of(saver, PLAIN).invoke({"log": ["again"]}, config("finished"))
        graph_of(saver, PAUSING).invoke({"log": ["begin"]}, config("paused"))
        failing = True
        with pytest.raises(RuntimeError, match="not yet"):
            graph_of(saver, HALF).invoke({"log": ["begin"]}, config("half"))
        failing = False
    calls.clear()
    return path


def url(path: Path) -> str:
    """Return the address of a file as `--from` takes it."""
    return f"sqlite:///{path}"


def told(graph: Any, thread: str) -> list[Any]:
    """Return a thread's history as a program sees it."""
    return [
        (
            s.values,
            s.next,
            s.metadata,
            s.config["configurable"]["checkpoint_id"],
            s.parent_config and s.parent_config["configurable"]["checkpoint_id"],
            [(task.id, task.name, task.error, task.interrupts) for task in s.tasks],
        )
        for s in graph.get_state_history(config(thread))
    ]


def test_threads_in_flight_go_on_where_they_stopped(database: Path, tmp_path: Path) -> None:
    """Nothing that was done is done again, and the history is what it was."""
    store = FileStore(tmp_path / "store")
    with SqliteSaver.from_conn_string(str(database)) as saver:
        graphs = {"finished": PLAIN, "paused": PAUSING, "half": HALF}
        before = {name: told(graph_of(saver, nodes), name) for name, nodes in graphs.items()}

    done = list(copy_runs(url(database), store))

    assert [(item.run_id, item.error) for item in done] == [
        ("finished", None),
        ("half", None),
        ("paused", None),
    ]
    ours = WaypointSaver(store)
    for name, nodes in graphs.items():
        assert told(graph_of(ours, nodes), name) == before[name]
        assert not verify(store, name).damaged
    assert graph_of(ours, HALF).invoke(None, config("half"))["log"] == [
        "begin",
        "first",
        "mended",
        "last",
    ]
    assert calls == ["fails"]
    answered = graph_of(ours, PAUSING).invoke(Command(resume="yes"), config("paused"))
    assert answered["log"] == ["begin", "first", "answer yes", "last"]
    assert calls == ["fails"]
    more = graph_of(ours, PLAIN).invoke({"log": ["third"]}, config("finished"))
    assert more["log"][-3:] == ["third", "first", "last"]
    assert len(more["log"]) == 9


def test_an_older_checkpoint_of_a_copy_is_gone_on_from(database: Path, tmp_path: Path) -> None:
    """Time travel works in the copy, and the copy has its own head afterwards."""
    store = FileStore(tmp_path / "store")
    list(copy_runs(url(database), store, ["finished"]))
    graph = graph_of(WaypointSaver(store), PLAIN)
    old = next(s for s in graph.get_state_history(config("finished")) if s.next == ("last",))

    assert graph.invoke(None, old.config)["log"][-1] == "last"
    assert graph.get_state(config("finished")).next == ()


def test_forks_fans_messages_and_subgraphs_are_copied_whole(tmp_path: Path) -> None:
    """From any checkpointer, by the function."""
    source = InMemorySaver()
    inner = graph_of(True, {"ask": asks, "end": says("end")})

    def fan(state: Any) -> Any:
        return [Send("one", {"n": number}) for number in range(3)]

    nodes = {"first": first, "one": lambda s: {"log": [f"n{s['n']}"]}, "inner": inner}
    made = graph_of(source, nodes, ("__start__", "first"), ("one", "inner"))
    made.builder.add_conditional_edges("first", fan, ["one"])
    graph = made.builder.compile(checkpointer=source)
    graph.invoke({"log": ["begin"]}, config("fan"))
    graph.update_state(config("fan"), {"log": ["by hand"]}, as_node="one")
    before = told(graph, "fan")
    chat = graph_of(
        source, {"reply": lambda s: {"messages": [AIMessage("hi")]}}, state=MessagesState
    )
    chat.invoke({"messages": [HumanMessage("hello")]}, config("chat"))

    for thread in ("fan", "chat"):
        assert copy_thread(source, thread, tmp_path / "store") >= 3

    ours = WaypointSaver(tmp_path / "store")
    assert told(made.builder.compile(checkpointer=ours), "fan") == before
    assert told(chat.builder.compile(checkpointer=ours), "chat") == told(chat, "chat")
    done = made.builder.compile(checkpointer=ours).invoke(None, config("fan"))
    assert "__interrupt__" in done


def test_what_is_there_already_is_not_touched(database: Path, tmp_path: Path) -> None:
    """One that went on is refused, one that did not is known again; the others arrive."""
    store = FileStore(tmp_path / "store")
    for name in ("paused", "finished"):
        (first,) = copy_runs(url(database), store, [name])
        assert not first.before
    saver = WaypointSaver(store)
    graph_of(saver, PLAIN).update_state(config("finished"), {"log": ["more"]})
    journals = {path: path.read_bytes() for path in (tmp_path / "store").glob("*/journal-1.jsonl")}
    assert len(journals) == 2

    done = {item.run_id: item for item in copy_runs(url(database), store)}

    assert isinstance(done.pop("finished").error, UsageError)
    assert done["paused"].before
    assert done["paused"].waypoints == len(history("paused", store=store))
    assert {item.error for item in done.values()} == {None}
    assert not any(item.before for name, item in done.items() if name != "paused")
    assert {path: path.read_bytes() for path in journals} == journals


@dataclass
class Mine:
    """A type of the program."""

    name: str


def test_types_of_the_program_are_loaded_only_where_they_are_trusted(tmp_path: Path) -> None:
    """What is not trusted is neither imported nor turned into something else."""
    path = tmp_path / "threads.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graph_of(saver, {"n": lambda s: {"box": Mine("x")}}).invoke({"log": []}, config("t"))

    (refused,) = copy_runs(url(path), tmp_path / "store")
    assert isinstance(refused.error, UnserialisableState)
    assert "test_copying.Mine" in str(refused.error)
    assert list_runs(store=tmp_path / "store") == []

    name = f"{Mine.__module__}:{Mine.__qualname__}"
    assert [item.error for item in copy_runs(url(path), tmp_path / "store", trust=[name])] == [None]
    ours = graph_of(WaypointSaver(tmp_path / "store"), {"n": says("n")})
    assert ours.get_state(config("t")).values["box"] == Mine("x")


@dataclass
class Strict:
    """A type whose constructor may refuse what was stored."""

    name: str

    def __post_init__(self) -> None:
        if closed:
            raise ValueError("closed")


closed = False


def test_what_cannot_be_loaded_whole_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    """LangGraph's serializer would hand out the bare fields."""
    path = tmp_path / "threads.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graph_of(saver, {"n": lambda s: {"box": Strict("x")}}).invoke({"log": []}, config("t"))
    monkeypatch.setattr(sys.modules[__name__], "closed", True)

    name = f"{Strict.__module__}:{Strict.__qualname__}"
    (refused,) = copy_runs(url(path), tmp_path / "store", trust=[name])

    assert isinstance(refused.error, UnserialisableState)
    assert "whole" in str(refused.error)


def test_a_file_that_is_none_is_said_to_be_none(tmp_path: Path) -> None:
    """Nothing is created by looking."""
    with pytest.raises(FileNotFoundError, match=r"no\.db"):
        list(copy_runs(url(tmp_path / "no.db"), tmp_path / "store"))
    assert not (tmp_path / "no.db").exists()
    (tmp_path / "text.db").write_text("not a database, but a text that is long enough to be one")
    with pytest.raises(UsageError, match=r"text\.db"):
        list(copy_runs(url(tmp_path / "text.db"), tmp_path / "store"))
    sqlite3.connect(tmp_path / "other.db").close()
    with pytest.raises(UsageError, match="no database of LangGraph"):
        list(copy_runs(url(tmp_path / "other.db"), tmp_path / "store"))
    with pytest.raises(UsageError, match="no store for mysql"):
        list(copy_runs("mysql://here", tmp_path / "store"))


def test_an_unknown_thread_is_not_found(database: Path, tmp_path: Path) -> None:
    """The others of the call arrive."""
    done = list(copy_runs(url(database), tmp_path / "store", ["nobody", "paused"]))

    assert isinstance(done[0].error, RunNotFound)
    assert done[1].error is None


def test_a_store_is_copied_whole(database: Path, tmp_path: Path) -> None:
    """From store to store, by the command line."""
    list(copy_runs(url(database), tmp_path / "one"))
    command = [
        sys.executable,
        "-m",
        "caravanserai_core.cli",
        "copy",
        "--from",
        str(tmp_path / "one"),
    ]

    done = subprocess.run(
        [*command, "--to", str(tmp_path / "two")], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "copied paused: " in done.stdout
    for name in ("paused", "half", "finished"):
        one, two = (history(name, store=tmp_path / s) for s in ("one", "two"))
        assert [(w.number, w.state) for w in one] == [(w.number, w.state) for w in two]
    same = subprocess.run(
        [*command, "--to", str(tmp_path / "one")], capture_output=True, text=True, check=False
    )
    assert same.returncode == 2
    assert "the same one" in same.stderr


def test_the_command_line_reads_the_file_and_leaves_it(database: Path, tmp_path: Path) -> None:
    """It is opened for reading only."""
    before = database.read_bytes()
    command = [sys.executable, "-m", "caravanserai_core.cli", "copy", "--from", url(database)]

    done = subprocess.run(
        [*command, "--to", str(tmp_path / "store"), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert '"paused"' in done.stdout
    assert database.read_bytes() == before
    assert Copied("x", 1).error is None
    latest = (tmp_path / "store/paused/latest.md").read_text()
    assert "Waiting for a person" in latest


@pytest.mark.parametrize("mode", ["sync", "async", "exit"])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("by_file", [True, False], ids=["file", "python"])
def test_what_a_subgraph_asks_is_one_question(
    tmp_path: Path, mode: Any, depth: int, by_file: bool
) -> None:
    """The tasks around the one that asks hold its question too, and ask nothing themselves."""
    builder = builder_of({"asks": asks})
    for _ in range(depth):
        builder = builder_of({"inner": builder.compile()})
    path, store = tmp_path / "threads.db", tmp_path / "store"
    with SqliteSaver.from_conn_string(str(path)) as theirs:
        graph = builder.compile(checkpointer=theirs)
        graph.invoke({"log": ["given"]}, config("t"), durability=mode)
        if not by_file:
            copy_thread(theirs, "t", store)
    if by_file:
        assert [one.error for one in copy_runs(url(path), store)] == [None]

    assert answer("t", "yes", store=store) == "q1"
    graph = builder.compile(checkpointer=WaypointSaver(store))
    result = graph.invoke(None, config("t"), durability="sync")
    assert "__interrupt__" not in result
    assert result["log"][-1] == "answer yes"
