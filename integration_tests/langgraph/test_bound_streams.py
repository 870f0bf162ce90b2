"""What a stream shows while a node is asked again: everything, and nothing twice."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from integration_tests.support import require

require("langgraph")

from langgraph.config import get_stream_writer
from langgraph.graph import START
from langgraph.types import interrupt

from caravanserai import answer
from caravanserai.langgraph import resumable_graph
from caravanserai_core.stores import Store
from integration_tests.langgraph.graphs import State, builder_of, says
from integration_tests.langgraph.shop import GIVEN, Shop, new_process


@pytest.fixture
def shop(store: Store) -> Shop:
    return Shop(store)


def streamed(shop: Shop, nodes: Any, edges: Any = (), *, is_async: bool, **options: Any) -> Any:
    new_process()
    job = resumable_graph(builder_of(nodes, *edges).compile(), run_id="t", store=shop.store)
    if not is_async:
        return list(job.stream(GIVEN, **options))

    async def every() -> list[Any]:
        return [part async for part in job.astream(GIVEN, **options)]

    return asyncio.run(every())


FORMS: Any = [
    {"stream_mode": "updates"},
    {"stream_mode": "values"},
    {"stream_mode": "custom"},
    {"stream_mode": ["updates", "values", "custom"]},
    {"stream_mode": ["custom", "updates"], "subgraphs": True},
    {"stream_mode": ["custom", "values"], "version": "v2"},
]


@pytest.mark.parametrize("options", FORMS, ids=str)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_stream_shows_the_beginning_once(shop: Shop, options: Any, is_async: bool) -> None:
    """As if the answer had been given at once, which it is where the process is the same."""

    def pay(state: State) -> State:
        get_stream_writer()("begins")
        said = interrupt("Pay 40?")
        get_stream_writer()("goes on")
        return {"log": [said]}

    nodes = {"pay": pay, "b": says("b")}
    new_process()
    job = resumable_graph(builder_of(nodes).compile(), run_id="same", store=shop.store)
    job.invoke(GIVEN)
    answer("same", "yes", store=shop.store)
    wanted = list(job.stream(GIVEN, **options))
    shop.start(GIVEN, nodes)
    answer("t", "yes", store=shop.store)

    assert streamed(shop, nodes, is_async=is_async, **options) == wanted
    assert any("yes" in str(part) for part in wanted) or options["stream_mode"] == "custom"


@pytest.mark.parametrize("options", FORMS, ids=str)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_stream_of_what_asks_no_more_lacks_nothing(
    shop: Shop, options: Any, is_async: bool
) -> None:
    """Where nothing is asked, the graph runs on as it would have run on."""

    def pay(state: State) -> State:
        get_stream_writer()("begins")
        if shop.price:
            interrupt("Pay 40?")
        get_stream_writer()("goes on")
        return {"log": ["paid"]}

    nodes = {"pay": pay, "b": says("b")}
    shop.start(GIVEN, nodes)
    answer("t", "yes", store=shop.store)
    shop.price = 0
    new_process()
    wanted: list[Any] = []
    other = resumable_graph(builder_of(nodes).compile(), run_id="other", store=shop.store)
    wanted = list(other.stream(GIVEN, **options))

    assert streamed(shop, nodes, is_async=is_async, **options) == wanted


@pytest.mark.parametrize("mode", ["values", "tasks", "updates"])
def test_a_stream_shows_the_beginning_of_a_graph_around_it_once(shop: Shop, mode: Any) -> None:
    """What is asked deep inside is known before anything is shown."""
    inner = builder_of({"x": says("x"), "pay": shop.pay}).compile()
    nodes = {"sub": inner, "b": says("b")}
    shop.start(GIVEN, nodes)
    answer("t", "yes", store=shop.store)

    found = streamed(shop, nodes, is_async=False, stream_mode=mode)

    assert len(found) == {"values": 3, "tasks": 4, "updates": 2}[mode]


def test_a_stream_of_what_asks_no_more_is_not_kept_back(shop: Shop) -> None:
    """Not longer than to the step behind the next one."""
    seen: list[Any] = []
    nodes = {"pay": shop.pay, "b": says("b"), "late": lambda state: seen.append([*parts]) or {}}
    parts: list[Any] = []
    shop.start(GIVEN, nodes)
    answer("t", "yes", store=shop.store)
    new_process()
    graph = builder_of({**nodes, "pay": says("free")}).compile()
    for part in resumable_graph(graph, run_id="t", store=shop.store).stream(GIVEN):
        parts.append(part)  # noqa: PERF402 - it is looked at while it grows
    assert {"pay": {"log": ["free"]}} in seen[0]


def test_a_stream_is_live_once_the_question_is_behind_it(shop: Shop) -> None:
    """What comes after it is not kept back until the end."""
    seen: list[Any] = []

    def late(state: State) -> State:
        seen.append(list(parts))
        return {"log": ["late"]}

    nodes = {"pay": shop.pay, "b": says("b"), "late": late}
    parts: list[Any] = []
    shop.start(GIVEN, nodes)
    answer("t", "yes", store=shop.store)
    new_process()
    job = resumable_graph(builder_of(nodes).compile(), run_id="t", store=shop.store)
    for part in job.stream(GIVEN, stream_mode="updates"):
        parts.append(part)  # noqa: PERF402 - it is looked at while it grows
    assert {"pay": {"log": ["yes 40"]}} in seen[0]


def test_a_stream_shows_what_ended_while_another_one_asked(shop: Shop) -> None:
    """One asks no more and ends, the other one asks the same and goes on: all of it is shown."""

    def free(state: State) -> State:
        get_stream_writer()("free")
        if shop.price:
            interrupt("Pay?")
        return {"log": ["free"]}

    def other(state: State) -> State:
        said = interrupt("Go?")
        get_stream_writer()("other")
        return {"log": [said]}

    nodes, edges = {"free": free, "other": other}, [(START, "free"), (START, "other")]
    shop.start(GIVEN, nodes, *edges)
    for question in ("Pay?", "Go?"):
        answer("t", "yes", question=shop.open(question), store=shop.store)
    shop.price = 0

    modes = ["custom", "updates", "values"]
    found = streamed(shop, nodes, edges, is_async=False, stream_mode=modes)

    assert [data for mode, data in found if mode == "custom"] == ["free", "other"]
    names = [next(iter(data)) for mode, data in found if mode == "updates"]
    assert sorted(names) == ["free", "other"]
    assert sorted(found[-1][1]["log"]) == ["free", "given", "yes"]
    assert "__interrupt__" not in str(found)


def test_a_stream_tells_the_changed_question_once(shop: Shop) -> None:
    shop.start()
    answer("t", "yes", store=shop.store)
    shop.price = 4000
    found = streamed(shop, {"pay": shop.pay}, is_async=False)
    assert [part["__interrupt__"][0].value for part in found] == ["Pay 4000?"]


def test_an_error_in_front_of_the_question_is_told_with_what_came_before(shop: Shop) -> None:
    """The answer is kept for the start after it."""

    def pay(state: State) -> State:
        get_stream_writer()("begins")
        if not shop.price:
            raise ConnectionError
        return {"log": [interrupt("Pay?")]}

    shop.start(GIVEN, {"pay": pay})
    answer("t", "yes", store=shop.store)
    shop.price, parts = 0, []
    new_process()
    job = resumable_graph(builder_of({"pay": pay}).compile(), run_id="t", store=shop.store)
    with pytest.raises(ConnectionError):
        parts.extend(job.stream(GIVEN, stream_mode="custom"))
    assert parts == ["begins"]
    shop.price = 40
    assert shop.start(GIVEN, {"pay": pay})["log"] == ["given", "yes"]


@pytest.mark.parametrize("mode", ["sync", "async", "exit"])
def test_all_durabilities(shop: Shop, mode: Any) -> None:
    nodes = {"a": says("a"), "pay": shop.pay, "b": says("b")}
    for price in (4000, 40, 40):
        shop.start(GIVEN, nodes, durability=mode)
        answer("t", f"to {shop.price}", store=shop.store)
        shop.price = price
    assert shop.start(GIVEN, nodes, durability=mode)["log"] == ["given", "a", "to 40 40", "b"]
    assert [said for said in shop.ran if said.startswith("got")] == ["got to 40"]
