"""An answer that is refused reaches nothing, under a saver alone: no node, no later question."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest

from integration_tests.support import require

require("langgraph")

from langgraph.func import entrypoint
from langgraph.types import Command, interrupt

from caravanserai import AlreadyAnswered, answer, list_runs
from caravanserai.langgraph import WaypointSaver
from caravanserai.langgraph import _saver as saver_module
from caravanserai_core.ledger import Ledger
from caravanserai_core.stores import Store
from integration_tests.langgraph.graphs import builder_of, config
from integration_tests.langgraph.shop import asked, new_process

GIVEN: Any = {"log": ["given"]}


class Program:
    """A graph that asks two things, one after the other; each start may be its own process.

    Args:
        store: where its thread is.
        shape: what the graph is.
        is_async: whether it is invoked so.
    """

    def __init__(self, store: Store, shape: str, *, is_async: bool = False) -> None:
        self.store = store
        self.got: list[str] = []
        self._shape = shape
        self._is_async = is_async

    def first(self, state: Any) -> Any:
        said = interrupt("first?")
        self.got.append(f"first: {said}")
        return {"log": [f"first: {said}"]}

    def second(self, state: Any) -> Any:
        said = interrupt("PAY 4000?")
        self.got.append(f"second: {said}")
        return {"log": [f"second: {said}"]}

    def both(self, state: Any) -> Any:
        return {"log": [*self.first(state)["log"], *self.second(state)["log"]]}

    def graph(self) -> Any:
        saver = WaypointSaver(self.store)
        if self._shape == "function":

            @entrypoint(checkpointer=saver)
            def flow(value: Any) -> Any:
                return {"log": [*value["log"], *self.both({})["log"]]}

            return flow
        two = {"first": self.first, "second": self.second}
        shapes: dict[str, Any] = {
            "node": {"n": self.both},
            "subgraph": {"n": builder_of({"m": self.both}).compile()},
            "nodes of a subgraph": {"n": builder_of(two).compile()},
            "nodes": two,
        }
        return builder_of(shapes[self._shape], state=Log).compile(checkpointer=saver)

    def start(self, value: Any, **options: Any) -> Any:
        """Start it in a process of its own."""
        new_process()
        options = {"durability": "sync", **options}
        if self._is_async:
            return asyncio.run(self.graph().ainvoke(value, config(), **options))
        return self.graph().invoke(value, config(), **options)

    def states(self) -> dict[str, str]:
        return {q.id: q.state for q in Ledger.read(self.store, "t", None).questions.values()}


def _longer(old: list[Any], new: list[Any]) -> list[Any]:
    """Take what a subgraph gives back: all that it was given, too."""
    return new if new[: len(old)] == old else operator.add(old, new)


class Log(TypedDict, total=False):
    """What all graphs here hold."""

    log: Annotated[list, _longer]


SHAPES = ["node", "subgraph", "nodes of a subgraph", "nodes", "function"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("mode", ["sync", "async", "exit"])
def test_a_refused_answer_reaches_no_later_question(
    store: Store, shape: str, is_async: bool, mode: Any
) -> None:
    """The first one counts; the other one is nowhere: nobody was asked the second question."""
    program = Program(store, shape, is_async=is_async)
    program.start(GIVEN, durability=mode)
    answer("t", "no", store=store)

    for _ in range(2):
        with pytest.raises(AlreadyAnswered, match="this one was not recorded"):
            program.start(Command(resume="yes"), durability=mode)
        assert program.got == []
    assert asked(program.start(None, durability=mode)) == ["PAY 4000?"]
    assert set(program.got) == {"first: no"}
    assert asked(program.start(None, durability=mode)) == ["PAY 4000?"]
    answer("t", "never", store=store)
    assert program.start(None, durability=mode)["log"] == ["given", "first: no", "second: never"]
    assert set(program.got) == {"first: no", "second: never"}
    assert list_runs(store=store)[0].waypoints


@pytest.mark.parametrize("shape", SHAPES)
def test_another_answer_by_command_than_the_one_before(store: Store, shape: str) -> None:
    """Two programs answer, and the first of them was killed in its node."""
    program = Program(store, shape)
    program.start(GIVEN)
    second = program.second

    def killed(state: Any) -> Any:
        raise KeyboardInterrupt

    program.second = killed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        program.start(Command(resume="from A"))
    program.second = second  # type: ignore[method-assign]
    if shape.startswith("nodes"):
        return  # it was used: LangGraph takes the next for an answer to what is asked next

    with pytest.raises(AlreadyAnswered):
        program.start(Command(resume="from B"))
    assert "first: from B" not in program.got
    assert asked(program.start(None)) == ["PAY 4000?"]
    assert set(program.got) == {"first: from A"}


def test_a_refused_command_changes_nothing_else(store: Store) -> None:
    """What came with the answer is refused with it."""
    program = Program(store, "node")
    program.start(GIVEN)
    answer("t", "no", store=store)

    with pytest.raises(AlreadyAnswered):
        program.start(Command(resume="yes", update={"log": ["given", "updated"]}))
    program.start(None)
    answer("t", "never", store=store)
    assert program.start(None)["log"] == ["given", "first: no", "second: never"]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_what_follows_a_refused_command_in_its_context_is_not_refused(
    store: Store, is_async: bool
) -> None:
    """The state can be changed by hand, and the same graph goes on."""
    program = Program(store, "node")
    program.start(GIVEN)
    answer("t", "no", store=store)
    graph = program.graph()

    async def aflow() -> Any:
        with pytest.raises(AlreadyAnswered):
            await graph.ainvoke(Command(resume="yes"), config(), durability="sync")
        assert (await graph.aget_state(config())).next == ("n",)
        await graph.aupdate_state(config(), {"log": ["given", "by hand"]}, as_node="__start__")
        return await graph.ainvoke(None, config(), durability="sync")

    def flow() -> Any:
        with pytest.raises(AlreadyAnswered):
            graph.invoke(Command(resume="yes"), config(), durability="sync")
        assert graph.get_state(config()).next == ("n",)
        graph.update_state(config(), {"log": ["given", "by hand"]}, as_node="__start__")
        return graph.invoke(None, config(), durability="sync")

    assert asked(asyncio.run(aflow()) if is_async else flow()) == ["first?"]
    assert program.got == []


def test_a_refused_answer_by_id_reaches_no_later_question(store: Store) -> None:
    """LangGraph 1.2.24 would give it to any further question of the node."""
    program = Program(store, "node")
    name = program.start(GIVEN)["__interrupt__"][0].id
    answer("t", "no", store=store)

    with pytest.raises(AlreadyAnswered):
        program.start(Command(resume={name: "yes"}))
    assert program.got == []
    assert asked(program.start(None)) == ["PAY 4000?"]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_somebody_answers_while_a_command_is_on_its_way(
    store: Store, monkeypatch: pytest.MonkeyPatch, shape: str, is_async: bool, mode: Any
) -> None:
    """The answer from elsewhere comes when the graph is loaded already, and it is the first.

    The node has begun with the other one by then; nothing that it did so is kept.
    """
    program = Program(store, shape, is_async=is_async)
    program.start(GIVEN)
    load: Callable[..., Any] = saver_module.WaypointSaver._load

    def late(self: Any, target: Any) -> Any:
        found = load(self, target)
        if not target.ns:
            answer("t", "no", store=store)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(saver_module.WaypointSaver, "_load", late)
        with pytest.raises(AlreadyAnswered):
            program.start(Command(resume="yes"), durability=mode)
    program.got.clear()
    assert asked(program.start(None, durability=mode)) == ["PAY 4000?"]
    answer("t", "never", store=store)
    assert program.start(None, durability=mode)["log"] == ["given", "first: no", "second: never"]
    assert set(program.got) == {"first: no", "second: never"}


def test_of_two_commands_at_once_the_first_counts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one was on its way; the node that was killed gets the first one again."""
    program, other = Program(store, "node"), Program(store, "node")
    program.start(GIVEN)
    load: Callable[..., Any] = saver_module.WaypointSaver._load

    def killed(state: Any) -> Any:
        raise KeyboardInterrupt

    other.first = killed  # type: ignore[method-assign]

    def late(self: Any, target: Any) -> Any:
        found = load(self, target)
        with monkeypatch.context() as inner:
            inner.setattr(saver_module.WaypointSaver, "_load", load)
            with pytest.raises(KeyboardInterrupt):
                other.start(Command(resume="from A"))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(saver_module.WaypointSaver, "_load", late)
        with pytest.raises(AlreadyAnswered):
            program.start(Command(resume="from B"))
    program.got.clear()
    assert asked(program.start(None)) == ["PAY 4000?"]
    assert asked(program.start(None)) == ["PAY 4000?"]
    assert set(program.got) == {"first: from A"}
