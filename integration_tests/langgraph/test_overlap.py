"""Two turns at once on one thread: none is lost silently; one after the other always works."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
import itertools
import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("langgraph")

import langgraph.checkpoint.base.id as ids
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from caravanserai.langgraph import WaypointSaver
from caravanserai.langgraph._stored import StoredThread
from caravanserai_core.errors import Conflict
from caravanserai_core.stores import MemoryStore
from integration_tests.langgraph.graphs import config, graph_of, says
from integration_tests.stores.workers import join, start

pytestmark = pytest.mark.usefixtures("watchdog")

TURNS = 150


def slow(saver: Any) -> Any:
    """Build a graph of two nodes that take a moment."""

    def node(name: str) -> Callable[..., Any]:
        def run(state: Any) -> Any:
            time.sleep(0.001)
            return {"log": [name]} if name == "b" else {"n": 1}

        return run

    return graph_of(saver, {"a": node("a"), "b": node("b")})


def turns(saver: Any, name: str, count: int, is_async: bool = False) -> dict[str, list[str]]:
    """Take turns on one thread; return those that came through and those that were refused."""
    graph = slow(saver)
    through: list[str] = []
    refused: list[str] = []
    for number in range(count):
        said = f"{name}{number}"
        try:
            if is_async:
                asyncio.run(graph.ainvoke({"log": [said]}, config()))
            else:
                graph.invoke({"log": [said]}, config())
            through.append(said)
        except Conflict:
            refused.append(said)
    return {"through": through, "refused": refused}


def judge(saver: Any, outcomes: list[dict[str, list[str]]], count: int) -> None:
    log = [said for said in slow(saver).get_state(config()).values["log"] if said != "b"]
    through = [said for outcome in outcomes for said in outcome["through"]]
    refused = [said for outcome in outcomes for said in outcome["refused"]]
    assert len(through) + len(refused) == count
    assert refused, "no two turns overlapped: this shows nothing"
    assert through
    assert len(log) == len(set(log)), "a turn is there twice"
    assert set(through) <= set(log), f"lost silently: {sorted(set(through) - set(log))}"


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_of_overlapping_turns_of_two_processes_none_is_lost_silently(
    is_async: bool, tmp_path: Path, thorough: bool
) -> None:
    count = TURNS * (10 if thorough else 1)

    def child(name: str) -> None:
        found = turns(WaypointSaver(tmp_path / "store"), name, count // 2, is_async)
        (tmp_path / name).write_text(json.dumps(found))

    children = [start(lambda name=name: child(name)) for name in ("x", "y")]

    assert [join(pid) for pid in children] == [0, 0]
    outcomes = [json.loads((tmp_path / name).read_text()) for name in ("x", "y")]
    judge(WaypointSaver(tmp_path / "store"), outcomes, count)


@pytest.mark.parametrize("shared", [True, False], ids=["one saver", "two savers"])
def test_of_overlapping_turns_of_two_threads_none_is_lost_silently(
    shared: bool, tmp_path: Path
) -> None:
    store = MemoryStore()
    first = WaypointSaver(store)
    savers = [first, first if shared else WaypointSaver(store)]

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda saver, name: turns(saver, name, 75), savers, "xy"))

    judge(WaypointSaver(store), outcomes, TURNS)


@pytest.mark.parametrize("where", ["thread", "process"])
def test_a_turn_that_found_an_empty_thread_is_refused_when_another_has_begun_it(
    where: str, tmp_path: Path
) -> None:
    def other() -> None:
        slow(WaypointSaver(tmp_path / "store")).invoke({"log": ["other"]}, config())

    class Late(WaypointSaver):
        """Is overtaken right after it has looked."""

        def get_tuple(self, config: Any) -> Any:
            found = super().get_tuple(config)
            if found is None and where == "thread":
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(other).result()
            elif found is None:
                assert join(start(other)) == 0
            return found

    with pytest.raises(Conflict, match="another turn went on from the same checkpoint"):
        slow(Late(tmp_path / "store")).invoke({"log": ["late"]}, config())

    graph = slow(WaypointSaver(tmp_path / "store"))
    assert graph.get_state(config()).values["log"] == ["other", "b"]
    assert graph.invoke({"log": ["again"]}, config())["log"] == ["other", "b", "again", "b"]


def test_a_turn_that_still_reads_while_another_one_ends_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What it read is the past by then, and what this process knows is not set back to it."""
    graph = graph_of(WaypointSaver(tmp_path), {"a": says("a")})
    graph.invoke({"log": ["first"]}, config(), durability="sync")
    reads, over = threading.Event(), threading.Event()
    real = StoredThread.loaded

    def loaded(self: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is slow_one and not over.is_set():
            reads.set()
            assert over.wait(20)
        return real(self, *args, **kwargs)

    outcome: list[Any] = []

    def take_turn() -> None:
        try:
            outcome.append(graph.invoke({"log": ["slow"]}, config(), durability="sync"))
        except Conflict as error:
            outcome.append(error)

    slow_one = threading.Thread(target=take_turn)
    monkeypatch.setattr(StoredThread, "loaded", loaded)
    slow_one.start()
    assert reads.wait(20)
    graph.invoke({"log": ["quick"]}, config(), durability="sync")
    over.set()
    slow_one.join(20)

    assert isinstance(outcome[0], Conflict)
    assert graph.get_state(config()).values["log"] == ["first", "a", "quick", "a"]
    again = graph.invoke({"log": ["slow"]}, config(), durability="sync")
    assert again["log"][-3:] == ["a", "slow", "a"]


def looks_at_it(graph: Any) -> None:
    graph.get_state(graph.get_state(config()).config)


def lists_it(graph: Any) -> None:
    newest = graph.get_state(config()).config["configurable"]["checkpoint_id"]
    after = newest[:-1] + chr(ord(newest[-1]) + 1)
    list(graph.checkpointer.list(config(), before=config(checkpoint_id=after), limit=1))


@pytest.mark.parametrize("look", [None, looks_at_it, lists_it])
def test_a_look_at_a_checkpoint_lets_no_turn_overtake_another(look: Any, tmp_path: Path) -> None:
    """Only who asks for it by its id, to go on from there, makes a branch of it."""
    inside, go_on = threading.Event(), threading.Event()

    def asks(_: Any) -> Any:
        said = interrupt("Well?")
        inside.set()
        assert go_on.wait(20)
        return {"log": [said]}

    graph = graph_of(WaypointSaver(tmp_path), {"asks": asks})
    graph.invoke({"log": ["first"]}, config(), durability="sync")
    asked = graph.get_state(config()).config
    if look is not None:
        look(graph)

    with ThreadPoolExecutor(1) as pool:
        answering = pool.submit(graph.invoke, Command(resume="yes"), config(), durability="sync")
        assert inside.wait(20)
        graph.update_state(config(), {"log": ["second"]}, as_node="asks")
        go_on.set()
        with pytest.raises(Conflict):
            answering.result()
    assert graph.get_state(config()).values["log"] == ["first", "second"]

    graph.update_state(asked, {"log": ["branch"]}, as_node="asks")
    assert graph.get_state(config()).values["log"] == ["first", "branch"]


@pytest.mark.parametrize("by_id", [False, True])
def test_an_update_of_what_is_no_longer_the_newest_is_refused(by_id: bool, tmp_path: Path) -> None:
    """But for one that names the checkpoint it is made from: that is a branch on purpose."""

    class Late(WaypointSaver):
        """A saver in front of whose first update a whole turn takes place."""

        turn: Callable[[], Any] | None = None

        def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
            turn, self.turn = self.turn, None
            if turn is not None and metadata["source"] == "update":
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(turn).result()
            return super().put(config, checkpoint, metadata, new_versions)

    saver = Late(tmp_path)
    graph = graph_of(saver, {"a": says("a")})
    graph.invoke({"log": ["first"]}, config(), durability="sync")
    place = graph.get_state(config()).config if by_id else config()
    saver.turn = lambda: graph.invoke({"log": ["turn"]}, config(), durability="sync")
    if by_id:
        graph.update_state(place, {"log": ["update"]}, as_node="a")
        assert graph.get_state(config()).values["log"] == ["first", "a", "update"]
        return
    with pytest.raises(Conflict):
        graph.update_state(place, {"log": ["update"]}, as_node="a")
    assert graph.get_state(config()).values["log"] == ["first", "a", "turn", "a"]
    graph.update_state(place, {"log": ["update"]}, as_node="a")
    assert graph.get_state(config()).values["log"][-2:] == ["a", "update"]


def test_the_saver_of_langgraph_loses_turns_silently() -> None:
    # So that the tests above could fail.
    saver = InMemorySaver()
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda name: turns(saver, name, 20), "xy"))
    log = slow(saver).get_state(config()).values["log"]
    through = {said for outcome in outcomes for said in outcome["through"]}
    assert through - set(log), "LangGraph refuses overlapping turns itself now"


def test_turns_one_after_the_other_on_different_processes_always_work(
    tmp_path: Path, thorough: bool
) -> None:
    count = 200 if thorough else 20
    pipes = [os.pipe() for _ in range(3)]

    def child(me: int) -> None:
        graph = slow(WaypointSaver(tmp_path / "store"))
        for number in range(count):
            assert os.read(pipes[me][0], 1) == b"."
            graph.invoke({"log": [f"{me}-{number}"]}, config())
            os.write(pipes[me + 1][1], b".")

    # Also with a saver that has seen the thread before the fork.
    graph = slow(WaypointSaver(tmp_path / "store"))
    graph.invoke({"log": ["first"]}, config())
    children = [start(lambda me=me: child(me)) for me in range(2)]
    for number in range(count):
        os.write(pipes[0][1], b".")
        assert os.read(pipes[2][0], 1) == b"."
        graph.invoke({"log": [f"2-{number}"]}, config())

    assert [join(pid) for pid in children] == [0, 0]
    log = [said for said in graph.get_state(config()).values["log"] if said != "b"]
    expected = [f"{me}-{number}" for number, me in itertools.product(range(count), range(3))]
    assert log == ["first", *expected]
    for end in itertools.chain(*pipes):
        os.close(end)


def test_a_question_asked_in_one_process_is_answered_in_another(tmp_path: Path) -> None:
    def build() -> Any:
        nodes = {"ask": lambda state: {"log": [interrupt("?")]}, "z": says("z")}
        return graph_of(WaypointSaver(tmp_path / "store"), nodes)

    graph = build()
    for number in range(3):
        graph.invoke({"log": [f"in{number}"]}, config())
        pid = start(lambda n=number: build().invoke(Command(resume=f"answer {n}"), config()))
        assert join(pid) == 0

    expected = [[f"in{number}", f"answer {number}", "z"] for number in range(3)]
    assert graph.get_state(config()).values["log"] == list(itertools.chain(*expected))


def test_a_clock_that_goes_back_in_a_new_process_never_makes_an_old_checkpoint_the_newest(
    tmp_path: Path,
) -> None:
    saver = WaypointSaver(tmp_path / "store")
    graph = slow(saver)
    graph.invoke({"log": ["now"]}, config())
    before = [one.checkpoint["id"] for one in saver.list(config())]

    def child() -> None:
        real = time.time_ns
        ids._last_v6_timestamp = None  # what a new process begins with
        ids.time.time_ns = lambda: real() - 3600 * 10**9  # type: ignore[attr-defined]
        slow(WaypointSaver(tmp_path / "store")).invoke({"log": ["an hour ago"]}, config())

    assert join(start(child)) == 0

    for one in (saver, WaypointSaver(tmp_path / "store")):
        newest = one.get_tuple(config())
        assert newest is not None
        assert newest.checkpoint["id"] not in before
        assert newest.checkpoint["id"] < min(before), "the clock of the child did not go back"
        listed = [found.checkpoint["id"] for found in one.list(config())]
        assert listed == sorted(listed, reverse=True)
        assert set(before) < set(listed)
    assert graph.invoke({"log": ["later"]}, config())["log"] == [
        *("now", "b", "an hour ago", "b", "later", "b")
    ]
