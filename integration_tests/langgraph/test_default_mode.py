"""LangGraph's default mode stores what `durability="sync"` and LangGraph's own saver would store.

In that mode LangGraph's own savers store checkpoints that never were: `put` sees channels that the
next step has changed meanwhile.
"""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypedDict

import pytest

from integration_tests.support import require

require("langgraph")

from langgraph.channels import DeltaChannel, LastValue, Topic
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.func import entrypoint, task
from langgraph.graph import START
from langgraph.pregel import NodeBuilder, Pregel
from langgraph.types import Command, Send, interrupt

from caravanserai.langgraph import WaypointSaver
from caravanserai_core.stores import Store
from integration_tests.langgraph.graphs import (
    builder_of,
    config,
    graph_of,
    join_of,
    says,
    stored,
)

pytestmark = pytest.mark.usefixtures("watchdog")

Drive = Callable[[Any, dict[str, Any]], Any]
"""Drives graphs on a saver, with these further arguments of `invoke`, and returns what came out."""


def agree(store: Store, drive: Drive, *threads: Any) -> None:
    """Drive in the default mode here, in sync mode on LangGraph's own saver, and compare."""
    mine, reference = WaypointSaver(store), InMemorySaver()

    found = drive(mine, {})
    expected = drive(reference, {"durability": "sync"})

    assert found == expected
    for thread_id in threads or ("t",):
        assert stored(mine, thread_id) == stored(reference, thread_id)


def times(thorough: bool, few: int = 25, many: int = 200) -> int:
    return many if thorough else few


# ---------------------------------------------------------------------- joins, changes in place


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_join_is_stored_right_and_the_thread_resumes_through_it(
    is_async: bool, store: Store, thorough: bool
) -> None:
    saver = WaypointSaver(store)
    graph = join_of(saver)
    for number in range(times(thorough)):
        if is_async:
            asyncio.run(graph.ainvoke({"log": []}, config(f"t{number}")))
        else:
            graph.invoke({"log": []}, config(f"t{number}"))

    for number in range(times(thorough)):
        found = list(saver.list(config(f"t{number}")))
        [after] = [one for one in found if one.metadata["step"] == 1]
        assert after.checkpoint["channel_values"]["join:p+r:z"] == {"p"}
        assert graph.invoke(None, after.config)["log"] == ["p", "q", "r", "z"]


def test_the_saver_of_langgraph_stores_the_join_wrong() -> None:
    # So that the test above could fail: were it right, the rules here would not be needed.
    wrong = 0
    for _ in range(25):
        saver = InMemorySaver()
        join_of(saver).invoke({"log": []}, config())
        [after] = [one for one in saver.list(config()) if one.metadata["step"] == 1]
        wrong += after.checkpoint["channel_values"]["join:p+r:z"] != {"p"}
    assert wrong, "the default mode is right by itself now"


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_list_that_a_node_changes_in_place_does_not_change_the_checkpoint_before(
    is_async: bool, store: Store, thorough: bool
) -> None:
    saver = WaypointSaver(store)

    def make(state: Any) -> Any:
        return {"box": [1]}

    def change(state: Any) -> Any:
        state["box"].append(2)
        return {"n": 1}

    async def achange(state: Any) -> Any:
        return change(state)

    graph = graph_of(saver, {"make": make, "change": achange if is_async else change})
    for number in range(times(thorough)):
        if is_async:
            asyncio.run(graph.ainvoke({"log": []}, config(f"t{number}")))
        else:
            graph.invoke({"log": []}, config(f"t{number}"))

    kept = [
        one.checkpoint["channel_values"]["box"]
        for number in range(times(thorough))
        for one in saver.list(config(f"t{number}"))
        if one.metadata["step"] == 1
    ]
    assert kept == [[1]] * times(thorough)


def test_a_large_state_that_other_tasks_change_meanwhile_is_stored_as_it_was_at_one_moment(
    store: Store,
) -> None:
    saver = WaypointSaver(store)
    box = [{"n": 0, "text": "x" * 1000} for _ in range(2000)]

    async def make(state: Any) -> Any:
        return {"box": box}

    async def change(state: Any) -> Any:
        for number in range(1, 6):
            for item in state["box"]:
                item["n"] = number
            await asyncio.sleep(0)
        return {"n": 1}

    async def other(state: Any) -> Any:
        for _ in range(5):
            await asyncio.sleep(0)
            state["box"][0]["n"] += 100
        return {}

    nodes = {"make": make, "change": change, "other": other}
    graph = graph_of(saver, nodes, (START, "make"), ("make", "change"), ("make", "other"))
    asyncio.run(graph.ainvoke({"log": []}, config()))

    kept = [
        {item["n"] for item in one.checkpoint["channel_values"]["box"]}
        for one in saver.list(config())
        if "box" in one.checkpoint["channel_values"] and one.metadata["step"] == 1
    ]
    assert kept == [{0}]


# ---------------------------------------------------------------------- scenarios


def test_many_threads_over_two_graphs_on_one_saver(store: Store) -> None:
    names = [f"t{number}" for number in range(8)]

    def drive(saver: Any, options: dict[str, Any]) -> Any:
        graphs = [join_of(saver), graph_of(saver, {"a": says("a"), "b": says("b")})]

        def work(number: int) -> Any:
            graph = graphs[number % 2]
            return [
                graph.invoke({"log": [f"in{turn}"]}, config(names[number]), **options)
                for turn in range(5)
            ]

        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(work, range(8)))

    agree(store, drive, *names)


def test_streams_that_take_turns_in_three_modes_with_looks_in_between(store: Store) -> None:
    def drive(saver: Any, options: dict[str, Any]) -> Any:
        graph = join_of(saver)
        modes: list[dict[str, Any]] = [
            {"durability": "exit"},
            options,
            {"durability": "sync"},
            options,
        ]
        streams = [
            graph.stream({"log": ["in"]}, config(f"t{number}"), stream_mode="values", **mode)
            for number, mode in enumerate(modes)
        ]
        seen: list[Any] = []
        left = list(enumerate(streams))
        while left:
            for number, stream in list(left):
                found = next(stream, None)
                seen.append((number, found))
                graph.get_state(config(f"t{(number + 1) % 4}"))
                graph.get_state(config(f"t{number}"))
                if found is None:
                    left.remove((number, stream))
        return seen

    agree(store, drive, "t0", "t1", "t2", "t3")


def test_fifty_tasks_at_once(store: Store) -> None:
    def drive(saver: Any, options: dict[str, Any]) -> Any:
        nodes = {
            "fan": lambda state: Command(goto=[Send("work", {"n": n}) for n in range(50)]),
            "work": lambda state: {"log": [state["n"]]},
        }
        return graph_of(saver, nodes, (START, "fan")).invoke({"log": []}, config(), **options)

    agree(store, drive)


def nested(saver: Any) -> Any:
    """Build a graph with a subgraph that asks two questions, and a node behind it."""

    def ask(state: Any) -> Any:
        return {"log": [interrupt("first?"), interrupt("second?")]}

    inner = builder_of({"x": says("x"), "ask": ask}).compile()
    return graph_of(saver, {"a": says("a"), "inner": inner, "z": says("z")})


def test_questions_in_a_subgraph_answers_with_updates_gotos_and_new_turns(store: Store) -> None:
    def drive(saver: Any, options: dict[str, Any]) -> Any:
        graph = nested(saver)
        seen = []

        def go(value: Any) -> None:
            found = graph.invoke(value, config(), **options)
            seen.append((found["log"], [one.value for one in found.get("__interrupt__", ())]))

        for turn in range(3):
            go({"log": [f"in{turn}"]})
            go(Command(resume="one", update={"n": turn}))
            graph.update_state(config(), {"log": ["person"]}, as_node="a")
            go(None)
            go(Command(resume="uno"))
            go(Command(goto="z"))
            go({"log": ["another"]})
            go(Command(resume="one"))
            go(Command(resume="two"))
        return seen

    agree(store, drive)


@pytest.mark.parametrize("way", ["argument", "config"])
def test_exit_mode_stores_one_checkpoint_a_turn(way: str, store: Store) -> None:
    def drive(saver: Any, options: dict[str, Any]) -> Any:
        graph = join_of(saver)
        for turn in range(3):
            if way == "argument":
                graph.invoke({"log": [f"in{turn}"]}, config(), durability="exit")
            else:
                graph.invoke({"log": [f"in{turn}"]}, config(__pregel_durability="exit"))
        return len(list(saver.list(config())))

    agree(store, drive)
    assert len(list(WaypointSaver(store).list(config()))) == 3


MODES = ("values", "updates", "custom", "messages", "checkpoints", "tasks", "debug")


def test_every_mode_of_streaming_with_subgraphs(store: Store) -> None:
    def drive(saver: Any, options: dict[str, Any]) -> Any:
        inner = builder_of({"x": says("x"), "y": says("y")}).compile()
        graph = graph_of(saver, {"a": says("a"), "inner": inner, "z": says("z")})
        counts = []
        for mode in (*MODES, list(MODES)):
            name = mode if isinstance(mode, str) else "all"
            found = graph.stream(
                {"log": []}, config(name), stream_mode=mode, subgraphs=True, **options
            )
            counts.append(len(list(found)))
        return counts

    agree(store, drive, *MODES, "all")


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_few_workers(most: int, is_async: bool, store: Store) -> None:
    def drive(saver: Any, options: dict[str, Any]) -> Any:
        graph = join_of(saver)
        limited = {**config(), "max_concurrency": most}
        found = []
        for turn in range(3):
            given = {"log": [f"in{turn}"]}
            if is_async:
                found.append(asyncio.run(graph.ainvoke(given, limited, **options)))
            else:
                found.append(graph.invoke(given, limited, **options))
        return found

    agree(store, drive)


def test_streams_that_are_given_up_do_not_disturb_the_next_turn(store: Store) -> None:
    saver = WaypointSaver(store)
    graph = join_of(saver)
    for turn in range(6):
        stream = graph.stream({"log": [f"in{turn}"]}, config(), stream_mode="values")
        for _ in range(turn):
            next(stream, None)
        stream.close()

    found = graph.invoke({"log": ["last"]}, config())

    assert found["log"][-5:] == ["last", "p", "q", "r", "z"]
    assert graph.get_state(config()).next == ()


def test_a_graph_that_is_invoked_in_nodes_of_another(store: Store) -> None:
    def drive(saver: Any, options: dict[str, Any]) -> Any:
        other = join_of(saver)

        def call(name: str) -> Any:
            return lambda state: {
                "log": other.invoke({"log": [name]}, config(f"by {name}"), **options)["log"]
            }

        graph = graph_of(saver, {name: call(name) for name in ("a", "b", "c")})
        return [graph.invoke({"log": ["in"]}, config(), **options)["log"] for _ in range(2)]

    agree(store, drive, "t", "by a", "by b", "by c")


def test_the_functional_interface(store: Store) -> None:
    def drive(saver: Any, options: dict[str, Any]) -> Any:
        ran = []

        @task
        def twice(n: int) -> int:
            ran.append(n)
            return 2 * n

        @entrypoint(checkpointer=saver)
        def flow(n: int, *, previous: Any = None) -> Any:
            doubled = [found.result() for found in [twice(k) for k in range(n)]]
            return {"sum": sum(doubled), "said": interrupt("well?"), "before": previous}

        found = [
            flow.invoke(3, config(), **options).get("__interrupt__")[0].value,
            flow.invoke(Command(resume="yes"), config(), **options),
            flow.invoke(2, config(), **options).get("__interrupt__")[0].value,
            flow.invoke(Command(resume="no"), config(), **options),
        ]
        return found, sorted(ran)

    agree(store, drive)


def test_event_loops_in_several_threads_with_many_turns_each(store: Store) -> None:
    names = [f"t{loop}-{turn}" for loop in range(4) for turn in range(6)]

    def drive(saver: Any, options: dict[str, Any]) -> Any:
        graph = join_of(saver)

        async def turns(loop: int) -> Any:
            return await asyncio.gather(
                *(
                    graph.ainvoke({"log": [str(turn)]}, config(f"t{loop}-{turn}"), **options)
                    for turn in range(6)
                )
            )

        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda loop: asyncio.run(turns(loop)), range(4)))

    agree(store, drive, *names)


def test_a_synchronous_graph_inside_of_a_coroutine(store: Store) -> None:
    def drive(saver: Any, options: dict[str, Any]) -> Any:
        graph = join_of(saver)

        async def main() -> Any:
            return [graph.invoke({"log": [str(n)]}, config(), **options) for n in range(4)]

        return asyncio.run(main())

    agree(store, drive)


def test_a_synchronous_turn_after_an_asynchronous_one_and_the_other_way_round(
    store: Store,
) -> None:
    def drive(saver: Any, options: dict[str, Any]) -> Any:
        graph = join_of(saver)
        found = []
        for turn in range(5):
            found.append(asyncio.run(graph.ainvoke({"log": [turn]}, config(), **options)))
            found.append(graph.invoke({"log": [-turn]}, config(), **options))
        return found

    agree(store, drive)


@pytest.mark.parametrize("durability", ["async", "sync", "exit"])
def test_questions_of_asynchronous_graphs(durability: str, store: Store) -> None:
    def drive(saver: Any, options: dict[str, Any]) -> Any:
        graph = nested(saver)
        if durability != "async":
            options = {"durability": durability}

        async def main() -> Any:
            seen = []
            for value in ({"log": ["in"]}, Command(resume=1), Command(resume=2), {"log": ["2"]}):
                found = await graph.ainvoke(value, config(), **options)
                state = await graph.aget_state(config(), subgraphs=True)
                seen.append((found["log"], state.next))
            return seen

        return asyncio.run(main())

    agree(store, drive)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("build", [join_of, nested])
def test_time_travel_from_every_checkpoint(build: Any, is_async: bool, store: Store) -> None:
    def drive(saver: Any, options: dict[str, Any]) -> Any:
        graph = build(saver)

        def go(value: Any, where: Any) -> Any:
            if is_async:
                return asyncio.run(graph.ainvoke(value, where, **options))["log"]
            return graph.invoke(value, where, **options)["log"]

        # The first turn is synchronous in any case: the second kind inherits nothing from it.
        graph.invoke({"log": ["in"]}, config(), **options)
        seen = [go({"log": ["again"]}, config())]
        for old in list(graph.get_state_history(config()))[::-1]:
            seen.append(go(None, old.config) if old.next else None)
            seen.append(go({"log": ["branch"]}, old.config))
            graph.update_state(old.config, {"log": ["up"]}, as_node="z")
            seen.append(graph.get_state(config()).values)
        seen.append(go({"log": ["last"]}, config()))
        return seen

    agree(store, drive)


def test_a_graph_without_the_channels_of_a_state_graph(store: Store) -> None:
    def drive(saver: Any, options: dict[str, Any]) -> Any:
        def work(found: list) -> list:
            return [len(found)]

        one = NodeBuilder().subscribe_only("all").do(work).write_to("all")
        graph = Pregel(
            nodes={"one": one},
            channels={"in": LastValue(int), "all": Topic(int, accumulate=True)},
            input_channels="all",
            output_channels="all",
            checkpointer=saver,
        )
        limited = {**config(), "recursion_limit": 6}

        async def main() -> None:
            with pytest.raises(GraphRecursionError):
                await graph.ainvoke([1, 2], limited, **options)

        asyncio.run(main())
        return graph.get_state(config()).values

    agree(store, drive)


def test_many_turns_of_one_thread(store: Store) -> None:
    def drive(saver: Any, options: dict[str, Any]) -> Any:
        graph = join_of(saver)
        return [graph.invoke({"log": [turn]}, config(), **options)["log"] for turn in range(10)]

    agree(store, drive)


class Delta(TypedDict):
    log: Annotated[
        list, DeltaChannel(lambda old, many: [*old, *(item for one in many for item in one)])
    ]
    n: int


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_channels_that_are_kept_as_their_changes(is_async: bool, store: Store) -> None:
    def drive(saver: Any, options: dict[str, Any]) -> Any:
        nodes = {"p": says("p"), "q": says("q"), "r": says("r"), "z": says("z")}
        edges = ((START, "p"), (START, "q"), ("q", "r"), (["p", "r"], "z"))
        graph = graph_of(saver, nodes, *edges, state=Delta)
        seen: list[Any] = []
        for turn in range(4):
            given = {"log": [f"in{turn}"]}
            if is_async:
                seen.append(asyncio.run(graph.ainvoke(given, config(), **options)))
            else:
                seen.append(graph.invoke(given, config(), **options))
        seen += [found.values for found in graph.get_state_history(config())]
        return seen

    agree(store, drive)
