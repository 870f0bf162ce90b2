"""`resumable_graph`: the same line starts a job, goes on with it, and returns its result."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("langgraph")

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, GraphOutput, interrupt

from caravanserai import InputChanged, InvalidRunId, UsageError, list_runs
from caravanserai.langgraph import ResumableGraph, WaypointSaver, resumable_graph
from caravanserai_core import survey
from caravanserai_core.journal import _table
from caravanserai_core.stores import FileStore, MemoryStore
from integration_tests.langgraph.graphs import State, builder_of, says
from integration_tests.preloaded import Preloaded

JOBS = "integration_tests.langgraph.killing_jobs"

Invoke = Callable[..., Any]


@pytest.fixture(params=["invoke", "ainvoke", "stream", "astream"])
def call(request: pytest.FixtureRequest) -> Invoke:
    """Return a function that runs a job in one of the four ways and returns its last values."""

    def call(job: ResumableGraph, value: Any, config: Any = None, **options: Any) -> Any:
        if request.param == "invoke":
            return job.invoke(value, config, **options)
        if request.param == "ainvoke":
            return asyncio.run(job.ainvoke(value, config, **options))
        options["stream_mode"] = "values"
        if request.param == "stream":
            return list(job.stream(value, config, **options))[-1]
        return asyncio.run(_all(job.astream(value, config, **options)))[-1]

    return call


async def _all(parts: Any) -> list[Any]:
    return [part async for part in parts]


class Work:
    """Nodes that count how often they ran, and one of which may fail or ask."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.broken: Exception | None = None

    def node(self, name: str) -> Callable[[State], State]:
        def node(state: State) -> State:
            self.ran.append(name)
            if name == "b" and self.broken is not None:
                raise self.broken
            return {"log": [name]}

        return node

    def ask(self, state: State) -> State:
        self.ran.append("ask")
        return {"log": [f"answer {interrupt({'question': 'go on?'})}"]}

    def job(self, *names: str, run_id: str = "job", **options: Any) -> ResumableGraph:
        """Return the job as a new process would see it."""
        forget()
        nodes = {name: self.ask if name == "ask" else self.node(name) for name in names}
        return resumable_graph(builder_of(nodes).compile(**options), run_id=run_id)


@pytest.fixture
def work() -> Work:
    return Work()


def forget() -> None:
    """Forget what this process knows of runs, as a new one would not know it."""
    _table.clear()


def status(run_id: str = "job") -> str:
    return {run.run_id: run.status for run in list_runs()}[run_id]


GIVEN = {"log": ["given"]}


# ---------------------------------------------------------------------- the same line


def test_a_new_job_starts_and_a_finished_one_returns_its_result(work: Work, call: Invoke) -> None:
    """The result is that of the graph; asked for again it is the same, and no node runs."""
    first = call(work.job("a", "b"), GIVEN)
    assert first == {"log": ["given", "a", "b"]}
    assert status() == "finished"
    journal = Path(".caravanserai/job/journal-1.jsonl").read_bytes()
    assert call(work.job("a", "b"), GIVEN) == first
    assert work.ran == ["a", "b"]
    assert Path(".caravanserai/job/journal-1.jsonl").read_bytes() == journal


def test_a_failed_job_goes_on_at_the_node_that_failed(work: Work, call: Invoke) -> None:
    """The error reaches the caller and the list of runs; the next start runs that node again."""
    work.broken = ConnectionError("the line is down")
    with pytest.raises(ConnectionError, match="the line is down"):
        call(work.job("a", "b"), GIVEN)
    assert status() == "failed"
    note = Path(".caravanserai/job/latest.md").read_text(encoding="utf-8")
    assert "the line is down" in note
    work.broken = None
    assert call(work.job("a", "b"), GIVEN) == {"log": ["given", "a", "b"]}
    assert work.ran == ["a", "b", "b"]
    assert status() == "finished"


def test_a_job_that_waits_asks_again_without_running_the_node(work: Work, call: Invoke) -> None:
    """The same line at a pause returns the question; an answer goes on; then it is finished."""
    first = call(work.job("a", "ask", "b"), GIVEN)
    again = call(work.job("a", "ask", "b"), GIVEN)
    for told in (first, again):
        assert told["log"] == ["given", "a"]
        assert [item.value for item in told["__interrupt__"]] == [{"question": "go on?"}]
    assert first["__interrupt__"][0].id == again["__interrupt__"][0].id
    assert work.ran == ["a", "ask"]
    assert status() != "finished"
    result = call(work.job("a", "ask", "b"), Command(resume="yes"))
    assert result == {"log": ["given", "a", "answer yes", "b"]}
    assert call(work.job("a", "ask", "b"), GIVEN) == result
    assert work.ran == ["a", "ask", "ask", "b"]
    assert status() == "finished"


def test_an_answer_to_a_finished_job_returns_its_result(work: Work, call: Invoke) -> None:
    """The line that answered, started again after the end, gives the answer to nobody."""
    call(work.job("ask", "b"), GIVEN)
    result = call(work.job("ask", "b"), Command(resume=1))
    ran = list(work.ran)
    assert call(work.job("ask", "b"), Command(resume=1)) == result
    assert work.ran == ran


def test_none_goes_on(work: Work, call: Invoke) -> None:
    """LangGraph's way to go on is understood as well; at a pause it is told the question."""
    work.broken = ConnectionError()
    with pytest.raises(ConnectionError):
        call(work.job("a", "b", "ask"), GIVEN)
    work.broken = None
    assert "__interrupt__" in call(work.job("a", "b", "ask"), None)
    assert "__interrupt__" in call(work.job("a", "b", "ask"), None)
    assert work.ran == ["a", "b", "b", "ask"]


@pytest.mark.parametrize("answer", [False, 0, "", {}, [], {"go": True}, (1, 2)])
def test_an_answer_may_be_any_value_but_none(work: Work, answer: Any) -> None:
    """`None` is no answer, in LangGraph neither: the question stays open."""
    work.job("ask").invoke(GIVEN)
    assert "__interrupt__" in work.job("ask").invoke(Command(resume=None))
    if answer == {}:  # to LangGraph that names no question
        assert "__interrupt__" in work.job("ask").invoke(Command(resume={}))
        return
    result = work.job("ask").invoke(Command(resume=answer))
    assert result == {"log": ["given", f"answer {answer}"]}


def test_two_questions_are_answered_by_their_ids() -> None:
    """One answer for two is LangGraph's error; a dict answers all or some of them."""

    def job() -> ResumableGraph:
        forget()
        nodes = {n: lambda state, n=n: {"log": [f"{n} {interrupt(n)}"]} for n in ("p", "q")}
        graph = builder_of(nodes, (START, "p"), (START, "q")).compile()
        return resumable_graph(graph, run_id="job")

    asked = {item.value: item.id for item in job().invoke(GIVEN)["__interrupt__"]}
    assert set(asked) == {"p", "q"}
    with pytest.raises(RuntimeError, match="multiple pending interrupts"):
        job().invoke(Command(resume="yes"))
    assert len(job().invoke(GIVEN)["__interrupt__"]) == 2
    left = job().invoke(Command(resume={asked["p"]: "yes"}))
    assert [item.value for item in left["__interrupt__"]] == ["q"]
    result = job().invoke(Command(resume={asked["q"]: "no"}))
    assert result["log"] == ["given", "p yes", "q no"]
    assert job().invoke(GIVEN) == result


def test_a_command_may_change_the_state_and_go_elsewhere(work: Work, call: Invoke) -> None:
    """`Command(update=…, goto=…)` is LangGraph's business."""
    call(work.job("a", "ask", "b"), GIVEN)
    command = Command(resume="yes", update={"log": ["by hand"]})
    result = call(work.job("a", "ask", "b"), command)
    assert sorted(result["log"]) == ["a", "answer yes", "b", "by hand", "given"]
    assert call(work.job("a", "ask", "b"), GIVEN) == result


def test_a_static_breakpoint_stops_once(work: Work, call: Invoke) -> None:
    """The same line goes past it; a job that stands there is not finished."""
    options: dict[str, Any] = {"interrupt_before": ["b"]}
    assert call(work.job("a", "b", **options), GIVEN)["log"] == ["given", "a"]
    assert status() == "stopped"
    assert call(work.job("a", "b", **options), GIVEN)["log"] == ["given", "a", "b"]
    assert status() == "finished"
    assert work.ran == ["a", "b"]


def test_a_step_too_many_is_a_failure_that_more_steps_mend(work: Work, call: Invoke) -> None:
    """`recursion_limit` stops the job where it is, and it goes on from there."""
    from langgraph.errors import GraphRecursionError

    with pytest.raises(GraphRecursionError):
        call(work.job("a", "b"), GIVEN, {"recursion_limit": 1})
    assert status() == "failed"
    assert call(work.job("a", "b"), GIVEN)["log"] == ["given", "a", "b"]
    assert work.ran == ["a", "b"]


def test_all_branches_have_run_and_one_asks(call: Invoke) -> None:
    """A pause tells what the other branches brought, the first time and again."""
    nodes = {"ask": lambda state: {"log": [interrupt("?")]}, "other": says("other")}
    graph = builder_of(nodes, (START, "ask"), (START, "other")).compile()
    first = resumable_graph(graph, run_id="job").invoke(GIVEN)
    assert first["log"] == ["given", "other"]
    forget()
    assert call(resumable_graph(graph, run_id="job"), GIVEN)["log"] == ["given", "other"]


# ---------------------------------------------------------------------- input


def test_another_input_is_refused_and_both_are_shown(work: Work, call: Invoke) -> None:
    """Whether the job is finished or not."""
    work.broken = ConnectionError()
    with pytest.raises(ConnectionError):
        call(work.job("a", "b"), {"log": ["tea"], "n": 1})
    work.broken = None
    for _ in range(2):
        with pytest.raises(InputChanged) as caught:
            call(work.job("a", "b"), {"log": ["coffee"], "n": 1})
        told = str(caught.value)
        assert "tea" in told
        assert "coffee" in told
        assert "`n`" not in told, "what is equal is not worth a word"
        assert "again=True" in told
        call(work.job("a", "b"), {"log": ["tea"], "n": 1})
    assert work.ran == ["a", "b", "b"]


def test_messages_of_another_input_are_told_by_their_text() -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("a", lambda state: {"messages": [("ai", "yes")]})
    builder.add_edge(START, "a")
    job = resumable_graph(builder.compile(), run_id="job")
    job.invoke({"messages": [HumanMessage("one lump")]})
    with pytest.raises(InputChanged, match=r'"one lump".*"two lumps"'):
        job.invoke({"messages": [HumanMessage("two lumps")]})


def test_the_input_may_be_the_same_object_again() -> None:
    """LangGraph gives messages their ids in place; here they do not change under the program."""
    builder = StateGraph(MessagesState)
    builder.add_node("a", lambda state: {"messages": [("ai", "yes")]})
    builder.add_edge(START, "a")
    job = resumable_graph(builder.compile(), run_id="job")
    given = {"messages": [HumanMessage("sugar?")]}
    first = job.invoke(given)
    assert given["messages"][0].id is None
    assert job.invoke(given) == first


def test_again_begins_anew(work: Work, call: Invoke) -> None:
    """With the same input or another; what was recorded stays; the new one is now the job's."""
    call(work.job("a", "b"), GIVEN)
    assert call(work.job("a", "b"), GIVEN, again=True)["log"] == ["given", "a", "b"]
    other = {"log": ["other"]}
    assert call(work.job("a", "b"), other, again=True)["log"] == ["other", "a", "b"]
    assert work.ran == ["a", "b"] * 3
    assert call(work.job("a", "b"), other)["log"] == ["other", "a", "b"]
    with pytest.raises(InputChanged):
        call(work.job("a", "b"), GIVEN)
    assert work.ran == ["a", "b"] * 3
    saver = WaypointSaver()
    stored = list(saver.list({"configurable": {"thread_id": "job"}}))
    assert sum(one.metadata["source"] == "input" for one in stored) == 3


@pytest.mark.parametrize("value", [None, Command(resume=1)])
def test_again_needs_an_input(work: Work, value: Any) -> None:
    work.job("a").invoke(GIVEN)
    with pytest.raises(UsageError, match="needs an input"):
        work.job("a").invoke(value, again=True)


def test_a_thread_that_a_saver_began_has_no_input_to_compare(work: Work, call: Invoke) -> None:
    """None goes on with it; an input is refused, since it might be another one."""
    config: Any = {"configurable": {"thread_id": "job"}}
    nodes = {"a": work.node("a"), "b": work.node("b")}
    graph = builder_of(nodes).compile(checkpointer=WaypointSaver(), interrupt_before=["b"])
    graph.invoke(GIVEN, config)
    with pytest.raises(UsageError, match="without resumable_graph"):
        call(work.job("a", "b"), GIVEN)
    assert call(work.job("a", "b"), None)["log"] == ["given", "a", "b"]
    assert work.ran == ["a", "b"]


# ---------------------------------------------------------------------- forms of the result


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stream_mode": "values"},
        {"stream_mode": "updates"},
        {"stream_mode": ["values", "updates"]},
        {"stream_mode": "values", "subgraphs": True},
        {"stream_mode": ["updates", "values"], "subgraphs": True},
        {"version": "v2"},
        {"stream_mode": ["values", "updates"], "version": "v2"},
        {"stream_mode": "custom"},
    ],
    ids=str,
)
def test_a_pause_is_told_again_in_the_form_that_was_asked_for(
    work: Work, options: dict[str, Any]
) -> None:
    """The end of what LangGraph streams at a pause, in every form, and nothing else of it."""
    fresh = list(work.job("a", "ask", run_id="other").stream(GIVEN, **options))
    work.job("a", "ask").invoke(GIVEN)
    job = work.job("a", "ask")
    ran = list(work.ran)
    told = list(job.stream(GIVEN, **options))
    awaited = asyncio.run(_all(job.astream(GIVEN, **options)))
    whole = job.invoke(GIVEN, **options)

    def same(part: Any) -> str:
        """The ids of questions hold the thread's name."""
        return repr(part).replace(_id(told), "").replace(_id(fresh), "")

    assert [same(part) for part in told] == [same(part) for part in _asking(fresh)]
    assert awaited == told
    assert work.ran == ran
    if options.get("stream_mode", "values") != "values":
        assert whole == told
    elif options.get("version") == "v2":
        assert isinstance(whole, GraphOutput)
        assert whole.value == {"log": ["given", "a"]}
        assert whole.interrupts[0].value == {"question": "go on?"}
    else:
        assert whole["log"] == ["given", "a"]
        assert whole["__interrupt__"][0].value == {"question": "go on?"}


def _asking(parts: list[Any]) -> list[Any]:
    """Return the parts that tell a question, "values" after "updates" where both do."""
    return [part for part in parts if "Interrupt(" in repr(part)]


def _id(parts: list[Any]) -> str:
    """Return the id of the question in some parts."""
    _, found, rest = repr(parts).partition("id='")
    return rest.partition("'")[0] if found else "no question"


def test_a_finished_job_streams_its_result_as_values(work: Work) -> None:
    """Nothing happens any more that other modes could tell."""
    result = work.job("a", "b").invoke(GIVEN)
    job = work.job("a", "b")
    assert list(job.stream(GIVEN)) == []
    assert list(job.stream(GIVEN, stream_mode="values")) == [result]
    assert list(job.stream(GIVEN, stream_mode=["updates", "values"])) == [("values", result)]
    assert asyncio.run(_all(job.astream(GIVEN, stream_mode="values"))) == [result]
    assert job.invoke(GIVEN, version="v2") == GraphOutput(value=result)
    assert job.invoke(GIVEN, output_keys="log") == result["log"]


def test_a_stream_that_is_abandoned_goes_on_later(work: Work) -> None:
    """Whoever stops listening has stopped the job; the same line goes on where it was."""
    for part in work.job("a", "b").stream(GIVEN, stream_mode="updates"):
        assert part == {"a": {"log": ["a"]}}
        break
    assert status() == "stopped"
    assert list(work.job("a", "b").stream(GIVEN, stream_mode="updates")) == [{"b": {"log": ["b"]}}]
    assert work.ran == ["a", "b"]


# ---------------------------------------------------------------------- functional API


def test_a_function_is_a_job_too(call: Invoke) -> None:
    """`@entrypoint`: tasks that are done are not done again, its return value is the result."""
    ran: list[str] = []

    @task
    def double(number: int) -> int:
        ran.append("double")
        return number * 2

    @entrypoint()
    def flow(number: int) -> dict[str, Any]:
        doubled = double(number).result()
        return {"doubled": doubled, "answer": interrupt("sure?")}

    def job() -> ResumableGraph:
        forget()
        return resumable_graph(flow, run_id="job")

    for _ in range(2):
        asked = call(job(), 21)["__interrupt__"]
        assert [item.value for item in asked] == ["sure?"]
    result = {"doubled": 42, "answer": "yes"}
    assert call(job(), Command(resume="yes")) == result
    assert call(job(), 21) == result
    assert ran == ["double"]
    assert status() == "finished"
    with pytest.raises(InputChanged, match=r"21.*22"):
        call(job(), 22)


@pytest.mark.parametrize("result", [None, 0, [], "", {"a": (1, 2)}])
def test_whatever_a_function_returns_is_returned_again(result: Any) -> None:
    @entrypoint()
    def flow(given: str) -> Any:
        return result

    for _ in range(2):
        forget()
        assert resumable_graph(flow, run_id="job").invoke("x") == result


# ---------------------------------------------------------------------- names and stores


def test_a_config_may_name_the_run_and_no_other(work: Work, call: Invoke) -> None:
    """Other settings of a config reach the graph."""
    same = {"configurable": {"thread_id": "job"}, "tags": ["mine"]}
    assert call(work.job("a"), GIVEN, same)["log"] == ["given", "a"]
    with pytest.raises(UsageError, match=r"names thread other.*run job"):
        call(work.job("a"), GIVEN, {"configurable": {"thread_id": "other"}})
    assert same == {"configurable": {"thread_id": "job"}, "tags": ["mine"]}


def test_a_graph_with_another_checkpointer_is_refused() -> None:
    graph = builder_of({"a": says("a")}).compile(checkpointer=InMemorySaver())
    with pytest.raises(UsageError, match="InMemorySaver"):
        resumable_graph(graph, run_id="job")


def test_a_graph_with_a_saver_keeps_its_store(tmp_path: Path) -> None:
    """store= may repeat it, and may not name another."""
    saver = WaypointSaver(tmp_path / "mine")
    graph = builder_of({"a": says("a")}).compile(checkpointer=saver)
    with pytest.raises(UsageError, match="another store"):
        resumable_graph(graph, run_id="job", store=tmp_path / "other")
    for store in (None, tmp_path / "mine"):
        resumable_graph(graph, run_id="job", store=store).invoke(GIVEN)
    assert [run.run_id for run in list_runs(store=tmp_path / "mine")] == ["job"]
    assert not (tmp_path / "other").exists()


def test_the_graph_that_is_handed_over_stays_as_it_is() -> None:
    """A graph without a checkpointer is given one in a copy."""
    graph = builder_of({"a": says("a")}).compile()
    resumable_graph(graph, run_id="job").invoke(GIVEN)
    assert graph.checkpointer is None


def test_two_graphs_in_one_store_are_two_jobs(work: Work, call: Invoke) -> None:
    store = MemoryStore()
    jobs = [
        resumable_graph(builder_of({n: work.node(n)}).compile(), run_id=f"job {n}", store=store)
        for n in "ab"
    ]
    for job, name in zip(jobs, "ab", strict=True):
        assert call(job, {"log": [f"for {name}"]})["log"] == [f"for {name}", name]
    for job, name in zip(jobs, "ab", strict=True):
        assert call(job, {"log": [f"for {name}"]})["log"] == [f"for {name}", name]
    assert work.ran == ["a", "b"]


@pytest.mark.parametrize(
    "run_id", ["../../up", "a/b", "/etc/passwd", "int:7", "CON", "ü\u202e\x1b[31m", "x" * 5000, " "]
)
def test_any_text_names_a_run(run_id: str, work: Work, tmp_path: Path) -> None:
    """It never reaches a path, and its job is found again."""
    for _ in range(2):
        result = work.job("a", run_id=run_id).invoke(GIVEN)
        assert result == {"log": ["given", "a"]}
    assert work.ran == ["a"]
    assert list(tmp_path.iterdir()) == [tmp_path / ".caravanserai"]
    assert len(list_runs()) == 1


def test_the_empty_name_is_refused() -> None:
    with pytest.raises(InvalidRunId):
        resumable_graph(builder_of({"a": says("a")}).compile(), run_id="")


def test_async_nodes_are_a_job() -> None:
    """A graph that can only be awaited."""
    ran: list[str] = []

    async def node(state: State) -> State:
        await asyncio.sleep(0)
        ran.append("a")
        return {"log": ["a"]}

    def start() -> Awaitable[Any]:
        forget()
        return resumable_graph(builder_of({"a": node}).compile(), run_id="job").ainvoke(GIVEN)

    for _ in range(2):
        assert asyncio.run(start()) == {"log": ["given", "a"]}  # type: ignore[arg-type]
    assert ran == ["a"]


# ---------------------------------------------------------------------- killed at a place


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    with Preloaded(JOBS) as process:
        yield process


class Place:
    """A folder where one of the jobs of `killing_jobs` is started."""

    def __init__(self, preloaded: Preloaded, graph: str, folder: Path) -> None:
        self.preloaded = preloaded
        self.graph = graph
        self.folder = folder

    def killed(self, given: Any, place: str, *, again: bool = False) -> None:
        ended = self._start(given, place, again)
        assert ended.killed, ended.out

    def run(self, given: Any, *, again: bool = False) -> dict[str, Any]:
        ended = self._start(given, None, again)
        assert ended.code == 0, ended.out
        result: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return result

    def _start(self, given: Any, place: str | None, again: bool) -> Any:
        return self.preloaded.run(
            f"{JOBS}:run", self.graph, given, place, again, folder=self.folder
        )

    def nodes(self) -> list[str]:
        """Return the nodes that ran, in order."""
        seen = (self.folder / "outside.txt").read_text().splitlines()
        return [place for place in seen if not place.startswith(("put ", "finish"))]


@pytest.fixture
def place(preloaded: Preloaded, tmp_path: Path) -> Callable[[str], Place]:
    return lambda graph: Place(preloaded, graph, tmp_path)


def test_killed_before_the_end_is_recorded(place: Callable[[str], Place]) -> None:
    """The result is there although its record is not; the next start writes it."""
    job = place("plain")
    job.killed(GIVEN, "finish")
    assert status() == "stopped"
    assert job.run(GIVEN)["log"] == ["given", "a", "b"]
    assert job.nodes() == ["a", "b"]
    assert status() == "finished"


def test_killed_before_the_first_checkpoint(place: Callable[[str], Place]) -> None:
    """What the job was given is on disk before anything is done, and another is refused."""
    job = place("plain")
    job.killed(GIVEN, "put 1")
    forget()
    with pytest.raises(InputChanged):
        Work().job("a", "b").invoke({"log": ["other"]})
    assert job.run(None)["log"] == ["given", "a", "b"]


@pytest.mark.parametrize("put", [3, 4], ids=["first", "last"])
def test_killed_between_a_node_and_its_checkpoint(place: Callable[[str], Place], put: int) -> None:
    """All tasks of the step have run, and the graph is not at its end: no node runs twice."""
    job = place("plain")
    job.killed(GIVEN, f"put {put}")
    assert job.run(GIVEN)["log"] == ["given", "a", "b"]
    assert job.nodes() == ["a", "b"]
    assert status() == "finished"


def test_killed_in_a_node(place: Callable[[str], Place]) -> None:
    job = place("plain")
    job.killed(GIVEN, "b")
    assert job.run(GIVEN)["log"] == ["given", "a", "b"]
    assert job.nodes() == ["a", "b", "b"]


def test_killed_right_after_it_began_anew(place: Callable[[str], Place]) -> None:
    """The new input counts, and the old result is not taken for its own."""
    job = place("plain")
    job.run({"log": ["old"]})
    job.killed({"log": ["new"]}, "put 1", again=True)
    assert job.run({"log": ["new"]})["log"] == ["new", "a", "b"]
    assert job.nodes() == ["a", "b", "a", "b"]


def test_killed_behind_an_answer_the_line_that_started_it_goes_on(
    place: Callable[[str], Place],
) -> None:
    """An answer that is on disk counts, whichever line is started next."""
    for line in (GIVEN, None, ["answer", "yes"]):
        job = place("asking")
        assert job.run(GIVEN, again=True)["asked"] == ["first"]
        job.killed(["answer", "yes"], "b")
        assert job.run(line)["log"] == ["given", "a", "first: yes", "b"]


@pytest.mark.parametrize("line", [GIVEN, None, ["answer", "one"]], ids=["input", "None", "answer"])
@pytest.mark.parametrize("graph", ["twice", "inside"])
def test_an_answer_is_given_to_its_own_question_only(
    place: Callable[[str], Place], graph: str, line: Any
) -> None:
    """Killed between two questions, twice: the second is asked, not answered with the first's."""
    job = place(graph)
    assert job.run(GIVEN)["asked"] == ["first"]
    job.killed(["answer", "one"], "ask second")
    job.killed(line, "ask second")
    assert job.run(line)["asked"] == ["second"]
    assert job.run(GIVEN)["asked"] == ["second"]
    log = job.run(["answer", "two"])["log"]
    assert [text for text in log if ":" in text] == ["first: one", "second: two"]
    assert job.run(GIVEN)["log"] == log


def test_an_answer_that_was_taken_back_is_no_news(place: Callable[[str], Place]) -> None:
    """The notes and the log tell the answers that a person gave, and none that nobody gave."""
    job = place("inside")
    job.run(GIVEN)
    job.killed(["answer", "one"], "ask second")
    job.run(GIVEN)
    records = survey.records(FileStore(".caravanserai"), "job", bodies=False)
    told = [str(record.head.get("say") or record.head.get("note", "")) for record in records]
    assert any("one" in text for text in told)
    assert not any("None" in text for text in told)
