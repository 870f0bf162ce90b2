"""What the saver rests on and LangGraph documents nowhere: a LangGraph that differs is named here.

Seen in langgraph 1.2.24 and langgraph-checkpoint 4.3.2. Where one of these fails, read the module
docstring of `caravanserai.langgraph._invocations` before anything is changed.
"""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
import copy
import operator
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

from integration_tests.support import require

require("langgraph")

from langgraph.channels import DeltaChannel
from langgraph.checkpoint import base as checkpoint_base
from langgraph.func import entrypoint, task
from langgraph.graph import START
from langgraph.types import Command, Send, interrupt

from caravanserai.langgraph import WaypointSaver, _ids, _invocations, _notes
from integration_tests.langgraph.graphs import builder_of, config, graph_of, says
from integration_tests.langgraph.recording import Recorder, carried

pytestmark = pytest.mark.usefixtures("watchdog")

NULL = "00000000-0000-0000-0000-000000000000"


def chain(saver: Recorder, *names: str, reducer: Any = operator.add) -> Any:
    """Build nodes one after the other, each of which notes that it runs."""

    def node(name: str) -> Any:
        def run(state: Any) -> Any:
            saver.note("node", name)
            return {"log": [name]}

        return run

    state = TypedDict("state", {"log": Annotated[list, reducer]})  # noqa: UP013
    return graph_of(saver, {name: node(name) for name in names}, state=state)


# ---------------------------------------------------------------------- versions


@pytest.mark.parametrize("durability", ["async", "sync"])
def test_a_version_is_asked_for_once_a_step_on_the_loops_thread_before_the_channels_change(
    durability: Any,
) -> None:
    saver = Recorder()

    def reducer(old: list, new: list) -> list:
        if new:
            saver.note("change", new)
        return [*old, *new]

    chain(saver, "a", "b", reducer=reducer).invoke({"log": ["in"]}, config(), durability=durability)

    loop = threading.get_ident()
    versions = saver.all("version")
    assert {event.thread for event in versions} == {loop}, "another thread asked for a version"
    assert loop not in {event.thread for event in saver.all("put")}, "put runs on the loop's thread"
    puts = [carried(event.detail[1]) for event in saver.all("put")]
    assert puts == [event.detail[1] for event in versions], "not one version for each put"
    order = [event.what for event in saver.all("version", "node", "change")]
    assert order == [
        *("version",),  # the input
        *("version", "change"),  # … as the state's channels
        *("node", "version", "change"),
        *("node", "version", "change"),
    ], "a version is asked for at another moment of the step"


def test_the_current_version_that_is_passed_is_the_highest_of_the_checkpoint_before() -> None:
    saver = Recorder()

    chain(saver, "a", "b", "c").invoke({"log": []}, config())

    asked = [event.detail for event in saver.all("version")]
    assert asked[0][0] is None
    assert [current for current, _ in asked[1:]] == [version for _, version in asked[:-1]]


def test_versions_without_a_put_come_before_the_steps_of_an_answer_with_an_update() -> None:
    saver = Recorder()

    graph = graph_of(saver, {"ask": lambda state: {"log": [interrupt("?")]}})
    graph.invoke({"log": []}, config())
    saver.events.clear()

    graph.invoke(Command(resume="yes", update={"log": ["up"]}), config())

    minted = [event.detail[1] for event in saver.all("version")]
    put = [carried(event.detail[1]) for event in saver.all("put")]
    assert set(put) <= set(minted)
    without = [version for version in minted if version not in put]
    assert without == minted[:1], "versions of null writes are followed by a put now, or by more"
    first_writes = saver.all("writes", "version")[0]
    assert first_writes.what == "writes", "null writes are stored after the version is asked for"
    assert first_writes.detail[0] == NULL == _invocations.NULL_TASK


# ---------------------------------------------------------------------- order of calls


@pytest.mark.parametrize("durability", ["async", "sync"])
def test_puts_follow_one_another(durability: Any) -> None:
    saver = Recorder(put_takes=0.02)

    chain(saver, "a", "b", "c").invoke({"log": []}, config(), durability=durability)

    order = [event.what for event in saver.all("put", "put done")]
    assert order == ["put", "put done"] * 5, "puts of one graph overlap"
    steps = [event.detail[2]["step"] for event in saver.all("put")]
    assert steps == [-1, 0, 1, 2, 3]


def test_only_in_sync_mode_the_next_step_waits_for_the_put() -> None:
    def order(durability: Any) -> list[str]:
        saver = Recorder(put_takes=0.1)
        chain(saver, "a", "b").invoke({"log": []}, config(), durability=durability)
        return [event.what for event in saver.all("put done", "node")]

    assert order("sync") == ["put done", "put done", "node", "put done", "node", "put done"]
    assert order("async")[0] == "node", (
        "the default mode waits for the put now: what _invocations does may no longer be needed"
    )


def test_the_truth_of_the_saver_is_asked_for_after_the_put_and_before_the_tasks_start() -> None:
    entered: dict[Any, threading.Event] = {}

    class Asked(Recorder):
        def get_next_version(self, current: Any, channel: Any) -> Any:
            version = super().get_next_version(current, channel)
            entered[version] = threading.Event()
            self.last = version
            return version

        def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
            entered[carried(checkpoint)].set()
            return super().put(config, checkpoint, metadata, new_versions)

        def __bool__(self) -> bool:
            caller = sys._getframe(1).f_code.co_name
            if caller.startswith("prepare_"):
                # Waits on the loop's thread: it comes only if the put was handed over before.
                self.note("prepare", (self.last, entered[self.last].wait(5)))
            return True

    saver = Asked()

    def fan(state: Any) -> Any:
        saver.note("node", "fan")
        return Command(goto=[Send("work", {"n": n}) for n in range(2)])

    def work(state: Any) -> Any:
        saver.note("node", "work")
        return {"log": [state["n"]]}

    graph_of(saver, {"fan": fan, "work": work}, (START, "fan")).invoke({"log": []}, config())

    prepared = [event.detail for event in saver.all("prepare")]
    told = "LangGraph no longer asks for the truth of its saver where tasks are prepared"
    assert prepared, told
    assert all(came for _, came in prepared), "it asks before the put is handed over"
    order = [event.what for event in saver.all("prepare", "node")]
    start = ["prepare"]  # the task that writes the input into the channels
    assert order == [*start, "prepare", "node", "prepare", "prepare", "node", "node"], told
    assert len({version for version, _ in prepared}) == 3
    assert {event.thread for event in saver.all("prepare")} == {threading.get_ident()}


def test_an_async_put_is_begun_before_the_tasks_of_its_step() -> None:
    saver = Recorder()

    async def a(state: Any) -> Any:
        saver.note("node", "a")
        return {"log": ["a"]}

    async def b(state: Any) -> Any:
        saver.note("node", "b")
        return {"log": ["b"]}

    graph = graph_of(saver, {"a": a, "b": b})

    asyncio.run(graph.ainvoke({"log": []}, config()))

    order = [event.what for event in saver.all("put", "node")]
    assert order == ["put", "put", "node", "put", "node", "put"], (
        "aput is begun after the tasks that change its channels"
    )


def test_a_put_that_fails_is_swallowed_where_a_subgraph_then_pauses() -> None:
    # Why `get_next_version` raises it. Puts: two of the parent, then those of the subgraph.
    saver = Recorder(fail_at=4)

    inner = builder_of({"ask": lambda state: {"log": [interrupt("?")]}}).compile()

    found = graph_of(saver, {"inner": inner}).invoke({"log": []}, config())

    assert "__interrupt__" in found, "LangGraph raises it itself now"
    assert saver.puts == 4


# ---------------------------------------------------------------------- what is passed


def test_an_invocation_is_told_from_a_look_by_the_runtime_in_its_config() -> None:
    saver = Recorder()
    graph = chain(saver, "a")

    graph.invoke({"log": []}, config())
    graph.get_state(config())
    graph.update_state(config(), {"log": ["up"]})

    invoked, *looked = [event.detail for event in saver.all("get")]
    assert "__pregel_runtime" in invoked
    assert looked
    for configurable in looked:
        assert "__pregel_runtime" not in configurable


@pytest.mark.parametrize("durability", ["sync", "exit"])
@pytest.mark.parametrize("way", ["argument", "config"])
def test_a_durability_other_than_the_default_stands_in_the_config(
    durability: Any, way: str
) -> None:
    saver = Recorder()
    graph = chain(saver, "a")

    if way == "argument":
        graph.invoke({"log": []}, config(), durability=durability)
    else:
        graph.invoke({"log": []}, config(__pregel_durability=durability))

    assert [event.detail.get("__pregel_durability") for event in saver.all("get")] == [durability]
    assert len(saver.all("put")) == (1 if durability == "exit" else 3)


def test_a_subgraph_is_told_the_durability_of_its_parent() -> None:
    saver = Recorder()

    inner = builder_of({"x": says("x")}).compile()

    graph_of(saver, {"inner": inner}).invoke({"log": []}, config(), durability="exit")

    gets = [event.detail for event in saver.all("get")]
    assert len(gets) == 2
    assert {found.get("__pregel_durability") for found in gets} == {"exit"}
    assert all("__pregel_runtime" in found for found in gets)


def test_in_the_default_mode_the_config_names_no_durability() -> None:
    saver = Recorder()

    chain(saver, "a").invoke({"log": []}, config())

    assert saver.all("get")[0].detail.get("__pregel_durability") in (None, "async")


def test_the_path_of_a_task_names_its_node_and_how_it_was_started() -> None:
    saver = Recorder()

    class State(TypedDict):
        log: Annotated[list, operator.add]

    def fan(state: Any) -> Any:
        return Command(goto=[Send("work", n) for n in range(2)])

    def work(n: Any) -> Any:
        return {"log": [n]}

    graph_of(saver, {"fan": fan, "work": work}, (START, "fan")).invoke({"log": []}, config())

    paths = [event.detail[1] for event in saver.all("writes")]
    assert paths[:2] == ["~__pregel_pull, __start__", "~__pregel_pull, fan"]
    # The Send's place in the checkpoint's list of them, and that of the call in its task.
    assert sorted(paths[2:]) == [f"~__pregel_push, {n:010}, {0:010}" for n in range(2)]


def test_the_path_of_a_functional_task_names_its_flow_and_the_result_is_a_write() -> None:
    saver = Recorder()

    @task
    def twice(n: int) -> int:
        return 2 * n

    @entrypoint(checkpointer=saver)
    def flow(n: int) -> int:
        return int(twice(n).result())

    assert flow.invoke(4, config()) == 8

    writes = [event.detail for event in saver.all("writes")]
    [(_, path, [(channel, value)])] = [
        found for found in writes if found[2][0] == ("__return__", 8)
    ]
    assert (channel, value) == ("__return__", 8)
    assert path.startswith("~__pregel_push, ~__pregel_pull, flow, ")


def test_a_question_an_answer_and_an_error_are_writes_without_a_put() -> None:
    saver = Recorder()

    def ask(state: Any) -> Any:
        raise ValueError(interrupt("?"))

    graph = graph_of(saver, {"ask": ask})
    graph.invoke({"log": []}, config())
    puts = len(saver.all("put"))

    with pytest.raises(ValueError, match="no good"):
        graph.invoke(Command(resume="no good"), config())

    assert len(saver.all("put")) == puts
    found = [(task, writes) for task, _, writes in (event.detail for event in saver.all("writes"))]
    channels = [[channel for channel, _ in writes] for _, writes in found[1:]]
    assert channels[0] == ["__interrupt__"]
    assert found[2][0] == NULL
    assert channels[1] == ["__resume__"]
    assert "__error__" in channels[-1]
    assert isinstance(dict(found[-1][1])["__error__"], ValueError)


@pytest.mark.parametrize("deferred", [False, True])
def test_a_checkpoint_that_a_task_follows_has_a_branch_a_join_a_send_or_an_input(
    deferred: bool,
) -> None:
    saver = Recorder()

    def fan(state: Any) -> Any:
        return Command(goto=[Send("work", n) for n in range(2)])

    builder = builder_of(
        {"fan": fan, "work": lambda n: {"log": [n]}, "y": says("y")}, (START, "fan"), (START, "y")
    )
    builder.add_node("z", says("z"), defer=deferred).add_edge(["work", "y"], "z")
    graph = builder.compile(checkpointer=saver)

    graph.invoke({"log": []}, config(), durability="sync")

    goes_on = [_invocations.goes_on(event.detail[1]) for event in saver.all("put")]
    following = [bool(found.next) for found in graph.get_state_history(config())][::-1]
    assert following == [True] * 4 + [False]
    assert goes_on == following


def test_a_thread_with_delta_channels_counts_the_steps_in_its_metadata() -> None:
    saver = Recorder()

    def fold(old: list, many: list) -> list:
        return [*(old or []), *(item for one in many for item in one)]

    state = TypedDict("state", {"log": Annotated[list, DeltaChannel(fold)]})  # noqa: UP013
    graph_of(saver, {"a": says("a")}, state=state).invoke({"log": ["in"]}, config())

    last = saver.all("put")[-1].detail
    assert "counters_since_delta_snapshot" in last[2]
    assert "log" not in last[1]["channel_values"]


# ---------------------------------------------------------------------- constants and copies


def test_the_places_of_special_writes_are_langgraphs() -> None:
    assert checkpoint_base.WRITES_IDX_MAP == _notes.PLACES


def test_the_keys_left_out_of_the_metadata_are_langgraphs() -> None:
    assert set(checkpoint_base.EXCLUDED_METADATA_KEYS) == _ids._EXCLUDED


def test_every_method_of_a_saver_is_known() -> None:
    known = {name for name in vars(WaypointSaver) if not name.startswith("__")}
    base = {
        name
        for name, found in vars(checkpoint_base.BaseCheckpointSaver).items()
        if callable(found) and not name.startswith("_")
    }
    inherited = {"get", "aget"}  # made of get_tuple
    assert base - inherited <= known, "LangGraph's savers have a method more"


def test_a_copy_of_a_saver_shares_what_it_knows() -> None:
    saver = WaypointSaver("store")
    graph = graph_of(saver, {"a": says("a")})
    other = graph_of(copy.copy(saver), {"a": says("a")})

    graph.invoke({"log": ["1"]}, config())
    assert other.invoke({"log": ["2"]}, config())["log"] == ["1", "a", "2", "a"]
    assert graph.invoke({"log": ["3"]}, config())["log"] == ["1", "a", "2", "a", "3", "a"]

    assert copy.deepcopy(saver).thread("t") is saver.thread("t")


def test_a_graph_runs_where_only_known_types_may_be_read(tmp_path: Path) -> None:
    # LANGGRAPH_STRICT_MSGPACK makes LangGraph ask the saver for a copy with a list of types.
    program = textwrap.dedent("""
        import operator
        from dataclasses import dataclass
        from typing import Annotated, TypedDict
        from langgraph.graph import START, StateGraph
        from caravanserai.langgraph import WaypointSaver

        @dataclass
        class Mine:
            n: int

        class State(TypedDict):
            log: Annotated[list, operator.add]
            mine: Mine

        builder = StateGraph(State).add_node("a", lambda state: {"log": ["a"], "mine": Mine(7)})
        graph = builder.add_edge(START, "a").compile(checkpointer=WaypointSaver("store"))
        config = {"configurable": {"thread_id": "t"}}
        graph.invoke({"log": []}, config)
        assert graph.get_state(config).values == {"log": ["a"], "mine": Mine(7)}
        assert len(list(graph.get_state_history(config))) == 3
        print("well")
    """)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        env={**os.environ, "LANGGRAPH_STRICT_MSGPACK": "true"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.returncode) == ("well\n", 0), done.stderr
