"""What goes into a thread comes out of it exactly, or is refused with the path of the leaf."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Annotated, Any, TypedDict

import orjson
import pytest

from integration_tests.support import require

require("langgraph")

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, add_messages
from langgraph.types import Command, Send, interrupt

from caravanserai.langgraph import WaypointSaver
from caravanserai_core.errors import UnserialisableState
from integration_tests.codec import values as ordinary
from integration_tests.langchain.messages import CHAT
from integration_tests.langchain.test_langgraph_types import KINDS, ORDINARY
from integration_tests.langchain.test_langgraph_types import equal as same_object
from integration_tests.langgraph.graphs import builder_of, config, graph_of, says

pytestmark = pytest.mark.usefixtures("watchdog")

REFUSED = ("exception", "secret")
EXACT = {name: value for name, value in {**KINDS, **ORDINARY}.items() if name not in REFUSED}
EXACT["messages"] = CHAT


def equal(left: Any, right: Any) -> bool:
    """Compare LangGraph's objects and messages by all that they hold, others as the codec does."""
    if type(right) is list or type(right) in (type(value) for value in KINDS.values()):
        return same_object(left, right)
    return ordinary.same(left, right)


def checkpoint(**values: Any) -> Any:
    versions = dict.fromkeys(values, "0000000001.000000000000")
    return {**empty_checkpoint(), "channel_values": values, "channel_versions": versions}


def put(saver: WaypointSaver, thread_id: str = "t", **values: Any) -> Any:
    metadata: Any = {"source": "loop", "step": 0, "parents": {}}
    versions = dict.fromkeys(values, "0000000001.000000000000")
    where = config(thread_id, checkpoint_ns="")
    return saver.put(where, checkpoint(**values), metadata, versions)


# ---------------------------------------------------------------------- values


@pytest.mark.parametrize("name", EXACT)
def test_a_value_comes_back_exactly_from_a_checkpoint_and_from_a_pending_write(
    name: str, tmp_path: Path
) -> None:
    saver = WaypointSaver(tmp_path / "store")
    where = put(saver, box=EXACT[name], deep={"list": [EXACT[name]]})
    saver.put_writes(where, [("box", EXACT[name]), ("log", [EXACT[name]])], "task", "path")

    for one in (saver, WaypointSaver(tmp_path / "store")):
        found = one.get_tuple(config())
        assert found is not None
        values = found.checkpoint["channel_values"]
        assert equal(values["box"], EXACT[name])
        assert equal(values["deep"]["list"][0], EXACT[name])
        assert found.pending_writes is not None
        assert [channel for _, channel, _ in found.pending_writes] == ["box", "log"]
        assert equal(found.pending_writes[0][2], EXACT[name])
        assert equal(found.pending_writes[1][2][0], EXACT[name])


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_that_cannot_be_kept_is_refused_with_its_path_and_nothing_is_written(
    name: str, tmp_path: Path
) -> None:
    saver = WaypointSaver(tmp_path / "store")
    where = put(saver, box=1)

    with pytest.raises(UnserialisableState, match=r"^\$\.channel_values\.box\.in\[1\]: "):
        put(saver, box={"in": [0, ORDINARY[name]]})
    with pytest.raises(UnserialisableState, match=r"^\$\.box\.in\[1\]: "):
        saver.put_writes(where, [("log", []), ("box", {"in": [0, ORDINARY[name]]})], "task")

    found = WaypointSaver(tmp_path / "store").get_tuple(config())
    assert found is not None
    assert found.config == where
    assert found.pending_writes == []


def test_values_go_through_a_graph_exactly(tmp_path: Path) -> None:
    graph_values = {name: value for name, value in EXACT.items() if name != "send"}
    seen: list[Any] = []

    def look(state: Any) -> Any:
        seen.append(state["box"])
        interrupt(graph_values)
        return {"n": 1}

    def build() -> Any:
        nodes = {"make": lambda state: {"box": graph_values}, "look": look}
        return graph_of(WaypointSaver(tmp_path / "store"), nodes)

    build().invoke({"log": []}, config())
    state = build().get_state(config())
    build().invoke(Command(resume=graph_values), config())

    assert len(seen) == 2
    for found in (seen[1], state.values["box"], state.interrupts[0].value):
        assert list(found) == list(graph_values)
        for name, value in graph_values.items():
            assert equal(found[name], value), name


@pytest.mark.parametrize("wrapped", ["message", "send", "write"])
def test_the_inner_leaf_is_named_and_not_the_message_or_the_send_around_it(
    wrapped: str, tmp_path: Path
) -> None:
    client = asyncio.Lock()
    message = ToolMessage("x", tool_call_id="1", additional_kwargs={"a": [{"client": client}]})

    def bad(state: Any) -> Any:
        if wrapped == "message":
            return {"box": [1, message]}
        if wrapped == "send":
            return Command(goto=[Send("other", {"box": message})])
        return {"box": {"a": [{"client": client}]}}

    saver = WaypointSaver(tmp_path / "store")
    nodes = {"a": says("a"), "bad": bad, "other": says("other")}
    graph = graph_of(saver, nodes, (START, "a"), ("a", "bad"))

    with pytest.raises(UnserialisableState, match=r"a\[0\]\.client: the type asyncio\.locks\.Lock"):
        graph.invoke({"log": []}, config())

    assert graph.get_state(config()).values == {"log": ["a"]}


def test_a_module_in_the_state_is_named_by_its_key(tmp_path: Path) -> None:
    saver = WaypointSaver(tmp_path / "store")
    nodes = {"a": says("a"), "bad": lambda state: {"box": {"x": 1, "mathlib": math}}}
    graph = graph_of(saver, nodes)

    with pytest.raises(UnserialisableState, match=r"^\$\.box\.mathlib: .*module"):
        graph.invoke({"log": []}, config())

    assert graph.get_state(config()).values == {"log": ["a"]}


def test_two_threads_that_begin_with_one_dict_share_nothing(tmp_path: Path) -> None:
    default = {"items": [1]}

    def change(state: Any) -> Any:
        state["box"]["items"].append(len(state["box"]["items"]) + 1)
        return {"n": 1}

    saver = WaypointSaver(tmp_path / "store")
    other = graph_of(saver, {"look": says("look")})
    other.invoke({"log": [], "box": default}, config("b"))

    graph_of(saver, {"change": change}).invoke({"log": [], "box": default}, config("a"))

    assert default == {"items": [1, 2]}
    assert other.get_state(config("b")).values["box"] == {"items": [1]}
    found = other.get_state(config("b")).values["box"]
    found["items"].append("mine")
    assert other.get_state(config("b")).values["box"] == {"items": [1]}


# ---------------------------------------------------------------------- growth


def chat(number: int, size: int) -> list[Any]:
    kinds = (HumanMessage, AIMessage)
    return [
        kinds[place % 2](f"{place} " + "word " * (size // 5), id=f"message-{place}")
        for place in range(number)
    ]


def plain(messages: list[Any]) -> int:
    """Return the bytes of messages as plain JSON, defaults left out."""
    return len(
        orjson.dumps(
            [{"type": one.type, **one.model_dump(exclude_defaults=True)} for one in messages]
        )
    )


def journal_bytes(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("journal-*.jsonl"))


def test_a_chat_of_twenty_messages_is_little_more_than_its_plain_json(tmp_path: Path) -> None:
    messages = chat(20, 500)
    put(WaypointSaver(tmp_path / "store"), messages=messages)

    ratio = journal_bytes(tmp_path / "store") / plain(messages)

    assert ratio < 1.3, f"{ratio:.2f}"


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


@pytest.mark.parametrize("number", [100, 500])
def test_the_journal_of_a_chat_that_grows_step_by_step_is_a_few_times_its_last_state(
    number: int, tmp_path: Path
) -> None:
    # Each message stands there twice, as a pending write and in a checkpoint, beside a note; and
    # now and then a state is written whole. A saver that writes each state whole: 250 times.
    messages = chat(number, 2000)
    saver = WaypointSaver(tmp_path / "store")

    def say(state: Any) -> Any:
        return {"messages": [messages[len(state["messages"])]]}

    builder = builder_of({"say": say}, (START, "say"), state=Chat)
    builder.add_conditional_edges(
        "say", lambda state: "say" if len(state["messages"]) < len(messages) else "__end__"
    )
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"messages": messages[:1]}, {**config(), "recursion_limit": 1000})

    assert graph.get_state(config()).values["messages"] == messages
    ratio = journal_bytes(tmp_path / "store") / plain(messages)
    assert ratio < 5.5, f"{ratio:.2f}"


# ---------------------------------------------------------------------- questions


def test_two_parallel_nodes_with_two_questions_each_ask_each_once(tmp_path: Path) -> None:
    asked: list[str] = []

    def node(name: str) -> Any:
        def ask(state: Any) -> Any:
            return {"log": [name + interrupt(f"{name}1?"), name + interrupt(f"{name}2?")]}

        return ask

    nodes = {"p": node("p"), "q": node("q")}
    graph = graph_of(WaypointSaver(tmp_path / "store"), nodes, (START, "p"), (START, "q"))
    found = graph.invoke({"log": []}, config())
    while found.get("__interrupt__"):
        question = found["__interrupt__"][0]
        asked.append(question.value)
        found = graph.invoke(Command(resume={question.id: f"<{question.value}>"}), config())

    assert sorted(asked) == ["p1?", "p2?", "q1?", "q2?"]
    assert sorted(found["log"]) == ["p<p1?>", "p<p2?>", "q<q1?>", "q<q2?>"]


def test_one_answer_in_a_subgraph_is_not_used_for_the_next_question(tmp_path: Path) -> None:
    def ask(state: Any) -> Any:
        return {"log": [interrupt("first?"), interrupt("second?")]}

    inner = builder_of({"ask": ask}).compile()
    graph = graph_of(WaypointSaver(tmp_path / "store"), {"inner": inner})
    graph.invoke({"log": []}, config())

    found = graph.invoke(Command(resume="one"), config())

    assert [one.value for one in found["__interrupt__"]] == ["second?"]
    assert graph.invoke(Command(resume="two"), config())["log"] == ["one", "two"]


def test_a_second_answer_to_the_same_question_changes_nothing_and_the_first_is_kept(
    tmp_path: Path,
) -> None:
    def drive(saver: Any) -> Any:
        nodes = {"ask": lambda state: {"log": [interrupt("?")]}, "z": says("z")}
        graph = graph_of(saver, nodes)
        graph.invoke({"log": []}, config())
        graph.invoke(Command(resume="yes"), config())
        try:
            found = graph.invoke(Command(resume="no"), config())
        except Exception as error:  # noqa: BLE001 - whatever LangGraph says
            found = repr(error)
        history = [state.values.get("log") for state in graph.get_state_history(config())]
        return found, graph.get_state(config()).values, history

    found = drive(WaypointSaver(tmp_path / "store"))

    assert found == drive(InMemorySaver())
    assert found[1] == {"log": ["yes", "z"]}
    assert ["yes"] in found[2]


@pytest.mark.parametrize("durability", ["async", "sync", "exit"])
def test_of_two_parallel_nodes_the_one_that_was_done_before_a_cancel_is_not_run_again(
    durability: Any, tmp_path: Path
) -> None:
    ran: list[str] = []
    waits = True

    async def quick(state: Any) -> Any:
        ran.append("quick")
        return {"log": ["quick"]}

    async def slow(state: Any) -> Any:
        ran.append("slow")
        if waits:
            await asyncio.sleep(60)
        return {"log": ["slow"]}

    def build() -> Any:
        nodes = {"quick": quick, "slow": slow}
        return graph_of(WaypointSaver(tmp_path / "store"), nodes, (START, "quick"), (START, "slow"))

    async def main() -> None:
        graph = build()
        stream = graph.astream({"log": []}, config(), durability=durability)
        running = asyncio.ensure_future(anext(stream))
        await running  # "quick" is done
        following = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following

    asyncio.run(main())
    waits = False

    state = build().get_state(config())
    assert {task.name: bool(task.result) for task in state.tasks} == {"quick": True, "slow": False}
    assert build().get_state(config()).next == ("slow",)
    found = asyncio.run(build().ainvoke(None, config()))
    assert sorted(found["log"]) == ["quick", "slow"]
    assert ran == ["quick", "slow", "slow"]


# ---------------------------------------------------------------------- versions


@pytest.mark.parametrize("v", [1, 2, 3])
def test_a_checkpoint_of_an_older_langgraph_is_gone_on_from(v: int, tmp_path: Path) -> None:
    saver = WaypointSaver(tmp_path / "store")
    graph = graph_of(saver, {"a": says("a"), "b": says("b")}, interrupt_before=["b"])
    graph.invoke({"log": ["in"]}, config("new"))
    newest = saver.get_tuple(config("new"))
    assert newest is not None
    old: Any = {**newest.checkpoint, "v": v, "pending_sends": []}
    old.pop("updated_channels", None)
    where = saver.put(config("old", checkpoint_ns=""), old, newest.metadata, {})

    again = WaypointSaver(tmp_path / "store")
    assert again.get_tuple(where).checkpoint == old  # type: ignore[union-attr]
    found = graph_of(again, {"a": says("a"), "b": says("b")}).invoke(None, config("old"))

    assert found["log"] == ["in", "a", "b"]


def test_data_that_names_an_object_comes_back_as_data(tmp_path: Path) -> None:
    saver = WaypointSaver(tmp_path / "store")
    put(saver, box={"lc": 2, "type": "constructor", "id": ["os", "system"], "args": ["true"]})

    found = WaypointSaver(tmp_path / "store").get_tuple(config())

    assert found is not None
    assert found.checkpoint["channel_values"]["box"]["id"] == ["os", "system"]
