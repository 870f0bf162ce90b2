"""An answer that comes to a job a second time, too late, or under a wrong name."""

# ruff: noqa: E402

from __future__ import annotations

from typing import Any

import pytest

from integration_tests.support import require

require("langgraph")

from langgraph.graph import START
from langgraph.types import Command, interrupt

from caravanserai import InputChanged, UsageError, answer, list_runs
from caravanserai.langgraph import WaypointSaver, resumable_graph
from caravanserai_core import history
from caravanserai_core.ledger import Ledger
from caravanserai_core.stores import Store
from integration_tests.langgraph.graphs import builder_of, config, graph_of
from integration_tests.langgraph.shop import GIVEN, asked, new_process

NOBODY = "0" * 32


class Job:
    """A job that asks one thing or two; each start is a process of its own."""

    def __init__(self, store: Store, *nodes: str) -> None:
        self.store = store
        self.killed = False
        self.got: list[str] = []
        self._nodes = nodes

    def node(self, name: str) -> Any:
        def asks(state: Any) -> Any:
            said = interrupt(f"{name}?")
            self.got.append(f"{name}: {said}")
            return {"log": [f"{name}: {said}"]}

        def works(state: Any) -> Any:
            if self.killed:
                raise KeyboardInterrupt
            return {"log": [name]}

        return works if name == "works" else asks

    def start(self, value: Any = GIVEN, *edges: Any, **options: Any) -> Any:
        new_process()
        graph = builder_of({name: self.node(name) for name in self._nodes}, *edges).compile()
        return resumable_graph(graph, run_id="t", store=self.store).invoke(value, **options)

    def stop(self, value: Any) -> None:
        """Start it, and kill it in the node that works."""
        self.killed = True
        with pytest.raises(KeyboardInterrupt):
            self.start(value)
        self.killed = False

    def status(self) -> str:
        return list_runs(store=self.store)[0].status

    def states(self) -> dict[str, str]:
        return {q.id: q.state for q in Ledger.read(self.store, "t", None).questions.values()}


def test_a_finished_job_has_the_answer_that_it_had(store: Store) -> None:
    """The same line again is a retry; another answer is not taken for one."""
    job = Job(store, "pay", "works")
    name = job.start()["__interrupt__"][0].id
    result = job.start(Command(resume="no"))

    for same in ("no", {name: "no"}):
        assert job.start(Command(resume=same)) == result
    for other in ("yes", {name: "yes"}):
        with pytest.raises(InputChanged, match='already, with "no", and is now answered "yes"'):
            job.start(Command(resume=other))
    with pytest.raises(UsageError, match=f"does not ask {NOBODY}; open: none"):
        job.start(Command(resume={NOBODY: "yes"}))
    assert job.start() == result
    assert (job.got, job.status()) == (["pay: no"], "finished")


@pytest.mark.parametrize("by", ["program", "person"])
def test_a_job_that_was_killed_behind_its_question(store: Store, by: str) -> None:
    """It goes on with the answer that was used, and with no other one."""
    job = Job(store, "pay", "works")
    name = job.start()["__interrupt__"][0].id
    if by == "person":
        answer("t", "no", store=store)
    job.stop(Command(resume="no") if by == "program" else GIVEN)

    for other in ("yes", {name: "yes"}):
        with pytest.raises(InputChanged):
            job.start(Command(resume=other))
    with pytest.raises(UsageError):
        job.start(Command(resume={NOBODY: "yes"}))
    assert job.start(Command(resume={name: "no"}))["log"] == ["given", "pay: no", "works"]
    assert job.got == ["pay: no"]


def test_an_answer_to_the_question_before(store: Store) -> None:
    """By its id it is told from one to the question that waits now, which keeps waiting."""
    job = Job(store, "small", "PAY")
    name = job.start()["__interrupt__"][0].id
    assert asked(job.start(Command(resume="no"))) == ["PAY?"]

    with pytest.raises(InputChanged):
        job.start(Command(resume={name: "yes"}))
    assert asked(job.start(Command(resume={name: "no"}))) == ["PAY?"]
    assert job.states() == {"q1": "spent", "q2": "open"}


def test_a_wrong_id_is_refused_and_nothing_else_recorded(store: Store) -> None:
    """The error names what can be answered."""
    job = Job(store, "pay")
    name = job.start()["__interrupt__"][0].id

    with pytest.raises(UsageError, match=rf'{NOBODY}; open: {name} \(q1 "pay\?"\)'):
        job.start(Command(resume={name: "yes", NOBODY: "yes"}))
    assert (job.states(), job.status()) == ({"q1": "open"}, "waiting")
    assert job.start(Command(resume={name: "yes"}))["log"] == ["given", "pay: yes"]


def test_a_fresh_pass_has_answers_of_its_own(store: Store) -> None:
    """What was answered in the pass before is no answer that counts now."""
    job = Job(store, "pay")
    job.start()
    job.start(Command(resume="no"))

    job.start(again=True)
    assert job.start(Command(resume="yes"))["log"] == ["given", "pay: yes"]
    assert job.start(Command(resume="yes"))["log"] == ["given", "pay: yes"]
    with pytest.raises(InputChanged):
        job.start(Command(resume="no"))


def test_a_thread_that_was_begun_under_a_saver(store: Store) -> None:
    """A job that goes on with it knows what was answered there, too."""
    job = Job(store, "pay", "works", "PAY")
    graph = graph_of(WaypointSaver(store), {n: job.node(n) for n in ("pay", "works", "PAY")})
    graph.invoke(GIVEN, config(), durability="sync")
    answer("t", "no", store=store)
    job.killed = True
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(None, config(), durability="sync")
    job.killed = False

    with pytest.raises(InputChanged):
        job.start(Command(resume="yes"))
    assert asked(job.start(Command(resume="no"))) == ["PAY?"]
    assert asked(job.start(None)) == ["PAY?"]


def test_a_call_that_is_refused_leaves_a_job_waiting(store: Store) -> None:
    """LangGraph refuses one answer for two questions, and other calls, before a node begins."""
    job = Job(store, "p", "q")
    edges = (START, "p"), (START, "q")
    job.start(GIVEN, *edges)

    with pytest.raises(RuntimeError, match="multiple pending interrupts"):
        job.start(Command(resume="yes"), *edges)
    assert job.status() == "waiting"
    answer("t", "yes", question="q1", store=store)
    with pytest.raises(ValueError, match="recursion_limit"):
        job.start(GIVEN, *edges, config={"recursion_limit": 0})
    assert job.status() == "waiting"


def test_a_node_that_fails_is_a_failure_of_a_job_that_waits(store: Store) -> None:
    """One question is open, and what was answered beside it went wrong: that is told."""

    def fails(state: Any) -> Any:
        raise ValueError(interrupt("q?"))

    nodes = {"p": lambda state: {"log": [interrupt("p?")]}, "q": fails}
    graph = builder_of(nodes, (START, "p"), (START, "q")).compile()
    job = resumable_graph(graph, run_id="t", store=store)
    ids = {one.value: one.id for one in job.invoke(GIVEN)["__interrupt__"]}
    with pytest.raises(ValueError, match="broken"):
        job.invoke(Command(resume={ids["q?"]: "broken"}))
    assert list_runs(store=store)[0].status == "failed"


def test_notes_count_tasks_and_no_answers(store: Store) -> None:
    """What people answered is told beside it."""
    nodes = {name: lambda state, name=name: {"log": [interrupt(f"{name}?")]} for name in "pqr"}
    graph = builder_of(nodes, *((START, name) for name in nodes)).compile()
    job = resumable_graph(graph, run_id="t", store=store)
    ids = {one.value: one.id for one in job.invoke(GIVEN)["__interrupt__"]}
    job.invoke(Command(resume={name: f"{text} yes" for text, name in ids.items()}))
    note = history("t", store=store)[-1].note
    assert (note.summary, len(note.happened)) == ("3 tasks ran in one step.", 6)

    def both(state: Any) -> Any:
        return {"log": [interrupt("one?"), interrupt("two?")]}

    graph = builder_of({"both": both}).compile(checkpointer=WaypointSaver(store))
    graph.invoke(GIVEN, config("u"), durability="sync")
    graph.invoke(Command(resume="x" * 300), config("u"), durability="sync")
    answer("u", "y" * 300, store=store)
    new_process()
    graph = builder_of({"both": both}).compile(checkpointer=WaypointSaver(store))
    graph.invoke(None, config("u"), durability="sync")
    note = history("u", store=store)[-1].note
    assert "Node `both` wrote" in note.summary
