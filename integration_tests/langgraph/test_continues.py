"""A job goes on from a run of whatever framework: seeded once, killed anywhere, nothing twice."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

from integration_tests.support import require

require("langgraph")

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import START, StateGraph, add_messages
from langgraph.types import Command
from pydantic import BaseModel

from caravanserai import answer, clean, handoff, open_run
from caravanserai.langchain import WaypointChatMessageHistory, messages_from
from caravanserai.langgraph import WaypointSaver, resumable_graph
from caravanserai_core import InputChanged, UsageError, WaypointNotFound, get_waypoint
from caravanserai_core.transcript import NO_RESULT
from integration_tests.langgraph import handed_jobs
from integration_tests.langgraph.handed_jobs import ORDER, PAY, asks, graph_of, tool_result
from integration_tests.preloaded import Preloaded

JOBS = "integration_tests.langgraph.handed_jobs"
STORE = ".caravanserai"

CALL = {"id": "a", "name": "lookup", "arguments": json.dumps(ORDER)}
PAYS = {"id": "b", "name": "pay", "arguments": json.dumps(PAY)}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    with Preloaded(JOBS) as process:
        yield process


@pytest.fixture
def start(preloaded: Preloaded, tmp_path: Path) -> Callable[..., Any]:
    """Return what starts a job in a process of its own: its result, or None where it was killed."""

    def started(what: str, place: str | None = None, *args: Any, **options: Any) -> Any:
        given = (what, place, *args) if args else (what, place, "job", "before", "Go on.", options)
        ended = preloaded.run(f"{JOBS}:run", *given, folder=tmp_path)
        assert ended.killed if place is not None else ended.code == 0, ended.out
        return None if place is not None else json.loads(Path("result.json").read_text())

    return started


def done() -> Counter[str]:
    """Return how often each thing happened outside of the store."""
    return Counter(Path("outside.txt").read_text().splitlines())


def call_of(call: dict[str, str]) -> dict[str, Any]:
    return {"id": call["id"], "type": "function", "function": {**call, "id": None}}


def plain_run(*calls: dict[str, str]) -> None:
    """Leave a run without a framework that looked an order up; `calls` have no result."""
    asked = [call_of(call) for call in (CALL, *calls)]
    messages = [
        {"role": "user", "content": "Refund order A17, please."},
        {"role": "assistant", "content": None, "tool_calls": asked},
        {"role": "tool", "tool_call_id": "a", "content": "A17 costs 40, as recorded"},
    ]
    with open_run("before", goal="Refund order A17.") as run:
        run.once("tell the customer", str, "told")
        run.checkpoint({"messages": messages}, "Looked order A17 up.")


def chat_run() -> None:
    """Leave the same as a chat under LangChain."""
    WaypointChatMessageHistory("before").add_messages(
        [
            HumanMessage("Refund order A17, please."),
            asks("lookup", ORDER, "a"),
            tool_result("A17 costs 40, as recorded", "a", "lookup"),
        ]
    )


def openai_run() -> None:
    """Leave the same as a session of OpenAI's SDK."""
    items = [
        {"role": "user", "content": "Refund order A17, please."},
        {"type": "function_call", "call_id": "a", **{k: CALL[k] for k in ("name", "arguments")}},
        {"type": "function_call_output", "call_id": "a", "output": "A17 costs 40, as recorded"},
    ]
    with open_run("before", adapter="openai-agents") as run:
        run.checkpoint({"items": items}, "Looked order A17 up.")


def graph_run() -> None:
    """Leave the same as a thread of LangGraph."""
    graph = graph_of(asks("lookup", ORDER, "a"), AIMessage("It costs 40."))
    job = resumable_graph(graph, run_id="before")
    job.invoke({"messages": ["Refund order A17, please."]})


SEED = [
    ["human", "Refund order A17, please.", []],
    ["ai", "", ["lookup"]],
    ["tool", "A17 costs 40, as recorded", []],
]
WORK = [
    ["human", "Go on.", []],
    ["ai", "", ["pay"]],
    ["tool", "paid 40 for A17", []],
    ["ai", "Done.", []],
]


def told(result: Any) -> list[Any]:
    """Return what a job's messages say, without the one that tells the rest."""
    messages: list[Any] = result["messages"]
    briefs = [m for m in messages if m[1].startswith("# Handoff of run")]
    assert len(briefs) == 1
    assert messages.index(briefs[0]) > 0
    return [m for m in messages if m not in briefs]


# ---------------------------------------------------------------------- killed anywhere

PLACES = ["handoff 1", "input 1", "put 1", "put 2", "model", "put 3", "end pay", "finish 1"]


@pytest.mark.parametrize("place", PLACES)
def test_killed_anywhere_it_goes_on_from_what_it_was_handed(
    start: Callable[..., Any], place: str
) -> None:
    """The other run is gone by then, unless nothing was written of this one."""
    plain_run()
    start("pays", place)
    if place != "handoff 1":
        clean("before")

    result = start("pays")

    assert told(result) == SEED + WORK
    assert start("pays", None, "job", None) == result  # its end is recorded, and where it is from
    counts = done()
    assert counts["end pay"] == (2 if place == "end pay" else 1)
    assert counts["lookup"] == 0
    assert counts["model"] == (3 if place == "model" else 2)


@pytest.mark.parametrize("leave", [plain_run, chat_run, openai_run])
def test_a_run_of_any_kind_is_gone_on_from(
    start: Callable[..., Any], leave: Callable[[], None]
) -> None:
    leave()
    assert told(start("pays")) == SEED + WORK
    assert "This run goes on from run `before`" in Path(STORE, "job/waypoint-1.md").read_text()


def test_a_thread_of_langgraph_is_gone_on_from_with_what_its_tasks_wrote(
    start: Callable[..., Any],
) -> None:
    """A job that is killed behind a tool has its result in no checkpoint yet."""
    start("looks", "put 4", "before", None, "Refund order A17, please.")

    found = handoff("before")

    assert [(m.role, m.text) for m in found.transcript.messages] == [
        ("user", "Refund order A17, please."),
        ("assistant", ""),
        ("tool", "A17 costs 40"),
    ]
    assert found.uncertain == ()
    assert told(start("pays"))[:3] == [*SEED[:2], ["tool", "A17 costs 40", []]]


def test_a_job_that_has_only_begun_tells_what_it_was_given(start: Callable[..., Any]) -> None:
    plain_run()
    start("pays", "put 1")

    messages = handoff("job").transcript.messages

    assert [m.role for m in messages] == ["user", "assistant", "tool", "user"]
    assert messages[-1].text == "Go on."


def test_killed_in_a_tool_the_call_is_uncertain(start: Callable[..., Any]) -> None:
    start("pays", "begin pay", "before", None, "Refund it.")
    assert [(c.name, c.arguments) for c in handoff("before").uncertain] == [("pay", PAY)]


# ---------------------------------------------------------------------- calls that were taken over


def test_recorded_results_are_given_again_where_that_is_asked_for(
    start: Callable[..., Any],
) -> None:
    plain_run()
    result = start("looks", replay=["lookup"])
    assert told(result)[4:6] == [["ai", "", ["lookup"]], ["tool", "A17 costs 40, as recorded", []]]
    assert done()["lookup"] == 0


def test_else_tools_are_called_as_ever(start: Callable[..., Any]) -> None:
    plain_run()
    assert told(start("looks"))[5] == ["tool", "A17 costs 40", []]
    assert done()["lookup"] == 1


@pytest.mark.parametrize("what", ["pays", "awaits", "by hand"])
def test_a_call_that_may_have_happened_is_asked_about(start: Callable[..., Any], what: str) -> None:
    """Whatever way the tool is called; a `ToolNode` that tells its model of errors tells it not."""
    plain_run(PAYS)
    assert start(what, on_uncertain="ask") == {"waits": ["q1"]}
    assert start(what, on_uncertain={"pay": "ask"}) == {"waits": ["q1"]}
    assert done()["begin pay"] == 0

    answer("job", "happened", result="paid 40 by hand")
    last = told(start(what, on_uncertain="ask"))[-2:]

    assert any("paid 40 by hand" in message[1] for message in last)
    assert done()["begin pay"] == 0


@pytest.mark.parametrize("what", ["pays", "awaits", "by hand"])
def test_or_is_made_again(start: Callable[..., Any], what: str) -> None:
    plain_run(PAYS)
    last = told(start(what))[-2:]
    assert any("paid 40 for A17" in message[1] for message in last)
    assert done()["begin pay"] == 1
    notes = [path.read_text() for path in Path(STORE, "job").glob("waypoint-*.md")]
    assert any("may have happened twice" in note for note in notes)


def test_or_stops_the_job(start: Callable[..., Any], preloaded: Preloaded, tmp_path: Path) -> None:
    plain_run(PAYS)
    given = ("pays", None, "job", "before", "Go on.", {"on_uncertain": "stop"})
    ended = preloaded.run(f"{JOBS}:run", *given, folder=tmp_path)
    assert ended.code != 0
    assert "EffectUncertain" in ended.out
    assert done()["begin pay"] == 0


def test_a_call_that_is_made_again_and_killed_is_asked_about_again(
    start: Callable[..., Any],
) -> None:
    plain_run(PAYS)
    start("pays", "end pay")
    assert start("pays", on_uncertain="ask") == {"waits": ["q1"]}
    answer("job", "happened", result=None)
    result = start("pays", on_uncertain="ask")
    assert "A person says that this call happened" in told(result)[-2][1]
    assert done()["end pay"] == 1


def test_only_one_call_takes_the_place_of_one(start: Callable[..., Any]) -> None:
    """A node that calls twice what may have happened once is asked about the first one only."""
    plain_run(PAYS)
    assert start("twice by hand", on_uncertain="ask") == {"waits": ["q1"]}
    answer("job", "happened", result="paid by hand")
    result = start("twice by hand", on_uncertain="ask")
    assert told(result)[-1][1] == "paid by hand, paid 40 for A17"
    assert done()["begin pay"] == 1


def test_other_graphs_of_the_process_call_their_tools_as_ever() -> None:
    plain_run(PAYS)
    job = resumable_graph(graph_of(asks("pay", PAY)), run_id="job", continues="before")
    job.invoke(None)
    graph = graph_of(asks("pay", PAY)).copy(update={"checkpointer": WaypointSaver()})
    graph.invoke({"messages": ["Pay."]}, {"configurable": {"thread_id": "other"}})
    assert handed_jobs.pay.invoke(PAY) == "paid 40 for A17"
    assert done()["end pay"] == 3
    journal = Path(STORE, "other/journal-1.jsonl").read_text()
    assert '"kind":"effect"' not in journal


# ---------------------------------------------------------------------- handed on once more


def test_a_third_run_has_all_of_it_once(start: Callable[..., Any]) -> None:
    plain_run(PAYS)
    start("plain", None, "second", "before", "Wait.")

    second = handoff("second")
    third = start("plain", None, "third", "second", "Go on.")

    assert [call.id for call in second.uncertain] == ["b"]
    assert [m.text for m in second.transcript.messages].count("Refund order A17, please.") == 1
    texts = [message[1] for message in third["messages"]]
    assert texts.count("Refund order A17, please.") == texts.count("Wait.") == 1
    assert texts.count(NO_RESULT) == 1
    assert sum(text.startswith("# Handoff of run `before`") for text in texts) == 1
    assert sum(text.startswith("# Handoff of run `second`") for text in texts) == 1


def test_a_call_that_was_made_since_is_certain(start: Callable[..., Any]) -> None:
    plain_run(PAYS)
    start("pays")
    assert handoff("job").uncertain == ()


# ---------------------------------------------------------------------- what goes with what


def invoked(continues: Any = "before", given: Any = "Go on.", **options: Any) -> Any:
    job = resumable_graph(graph_of(), run_id="job", continues=continues)
    return job.invoke(None if given is None else {"messages": [given]}, **options)


def test_another_run_to_go_on_from_is_refused() -> None:
    plain_run()
    invoked()
    with pytest.raises(InputChanged, match="was begun from before@1 and is now to go on from"):
        invoked("other")
    with pytest.raises(InputChanged, match="was begun with"):
        invoked(given="Stop.")
    resumable_graph(graph_of(), run_id="own").invoke({"messages": ["Hello."]})
    with pytest.raises(InputChanged, match="was begun on its own"):
        resumable_graph(graph_of(), run_id="own", continues="before").invoke(None)
    assert invoked(None) == invoked(handoff("before"))


def test_a_run_or_waypoint_that_there_is_not_is_refused() -> None:
    plain_run()
    with pytest.raises(WaypointNotFound):
        invoked("before@7")
    assert not list(Path(STORE, "job").glob("journal-*"))


def test_a_fresh_pass_begins_with_the_same() -> None:
    plain_run()
    first = invoked()["messages"]
    clean("before")
    again = invoked(given="Once more.", again=True)["messages"]
    assert [m.text for m in again[:-2]] == [m.text for m in first[:-2]]
    assert [m.text for m in again[-2:]] == ["Once more.", "Done."]


def test_it_may_begin_without_an_input() -> None:
    plain_run()
    result = invoked(given=None)
    assert [m.type for m in result["messages"]] == ["human", "ai", "tool", "human", "ai"]
    assert invoked(given=None) == result
    with pytest.raises(InputChanged, match="was begun with None"):
        invoked()


def test_a_command_does_not_begin_it() -> None:
    plain_run()
    job = resumable_graph(graph_of(), run_id="job", continues="before")
    with pytest.raises(UsageError, match="goes on from before@1: invoke it with its input"):
        job.invoke(Command(resume="yes"))


@pytest.mark.parametrize("how", ["ainvoke", "stream", "astream"])
def test_every_call_begins_with_what_was_handed_over(how: str) -> None:
    plain_run(PAYS)
    graph = graph_of(asks("pay", PAY), awaited=how.startswith("a"))
    job = resumable_graph(graph, run_id="job", continues="before")
    given = {"messages": ["Go on."]}

    async def last() -> Any:
        return [item async for item in job.astream(given, stream_mode="values")][-1]

    if how == "ainvoke":
        result = asyncio.run(job.ainvoke(given))
    elif how == "stream":
        result = list(job.stream(given, stream_mode="values"))[-1]
    else:
        result = asyncio.run(last())
    assert [m.type for m in result["messages"][:5]] == ["human", "ai", "tool", "tool", "human"]
    assert done()["begin pay"] == 1


def test_messages_given_to_a_thread_again_are_in_it_once() -> None:
    """A saver alone is no job: what was handed over is given as messages, with ids of their own."""
    plain_run()
    graph = graph_of().copy(update={"checkpointer": WaypointSaver()})
    config: Any = {"configurable": {"thread_id": "thread"}}
    given = [*messages_from(handoff("before")), HumanMessage("Go on.", id="turn-1")]
    graph.invoke({"messages": given}, config)
    result = graph.invoke({"messages": given}, config)
    assert [m.type for m in result["messages"]] == [
        *("human", "ai", "tool"),
        *["human"] * 2,
        "ai",
        "ai",
    ]


# ---------------------------------------------------------------------- graphs of other kinds


class Topic(TypedDict, total=False):
    """A state without messages."""

    topic: str
    report: str


@dataclass
class Held:
    """A state that is a dataclass."""

    messages: Annotated[list[AnyMessage], add_messages]
    topic: str = ""


class Checked(BaseModel):
    """A state that is a pydantic model."""

    messages: Annotated[list[AnyMessage], add_messages]
    topic: str = ""


def one_node(state: Any, node: Callable[[Any], Any]) -> Any:
    builder = StateGraph(state)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    return builder.compile()


def test_a_graph_without_messages_says_what_it_needs() -> None:
    plain_run()
    graph = one_node(Topic, lambda state: {"report": f"about {state['topic']}"})
    with pytest.raises(UsageError, match=r"takes no `messages`.*seed="):
        resumable_graph(graph, run_id="job", continues="before")
    assert not Path(STORE, "job").exists()

    def seed(found: Any, given: Any) -> Any:
        return {"topic": f"{given['topic']} and {found.goal}"}

    for _ in range(2):
        job = resumable_graph(graph, run_id="job", continues="before", seed=seed)
        result = job.invoke({"topic": "caravans"})
        assert result["report"] == "about caravans and Refund order A17."


@pytest.mark.parametrize("state", [Held, Checked])
def test_states_of_other_kinds_are_seeded(state: Any) -> None:
    plain_run()
    graph = one_node(state, lambda given: {"messages": [AIMessage(given.topic)]})
    job = resumable_graph(graph, run_id="job", continues="before")
    found = job.invoke(state(messages=[HumanMessage("Go on.")], topic="caravans"))["messages"]
    assert [m.text for m in found[:1] + found[-2:]] == [
        "Refund order A17, please.",
        "Go on.",
        "caravans",
    ]


def test_options_that_mean_nothing_are_refused() -> None:
    plain_run()
    graph = graph_of()
    with pytest.raises(UsageError, match="on_uncertain= is"):
        resumable_graph(graph, run_id="job", on_uncertain="maybe")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="replay= is a list"):
        resumable_graph(graph, run_id="job", continues="before", replay="lookup")
    with pytest.raises(UsageError, match="seed= is a function"):
        resumable_graph(graph, run_id="job", continues="before", seed="x")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="replay= goes with continues="):
        resumable_graph(graph, run_id="job", replay=["lookup"]).invoke({"messages": ["Go on."]})
    with pytest.raises(UsageError, match="field `messages`"):
        resumable_graph(graph, run_id="job", continues="before").invoke([("user", "Go on.")])


def test_steps_of_the_program_come_along() -> None:
    """What the other run did under `once` is not done in a node either."""
    from caravanserai import once

    plain_run()

    def node(state: Any) -> Any:
        return {"messages": [AIMessage(once("tell the customer", str, "told"))]}

    from langgraph.graph import MessagesState

    job = resumable_graph(one_node(MessagesState, node), run_id="job", continues="before")
    assert job.invoke(None)["messages"][-1].text == "told"
    assert (
        '"what":"started"'
        not in Path(STORE, "job/journal-1.jsonl").read_text().partition('"name":"input"')[2]
    )


def test_the_first_note_tells_whose_messages_it_was_given() -> None:
    plain_run()
    invoked()
    note = str(get_waypoint("job", at=1).note)
    assert (
        "The run was given its input: 3 messages of the run that it goes on from, one that tells "
        'the rest of it and the user said "Go on."'
    ) in note
