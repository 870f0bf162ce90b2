"""Interrupts as questions, in one process: history, changed graphs, forks, forms of answers."""

# ruff: noqa: E402

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("langgraph")

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from caravanserai import (
    AlreadyAnswered,
    NoRun,
    UsageError,
    WaitingForPerson,
    answer,
    ask,
    fork,
    list_runs,
    once,
    open_run,
    prune,
    resumable,
)
from caravanserai.langgraph import WaypointSaver, resumable_graph
from caravanserai.langgraph._wording import worded
from caravanserai.langgraph.migrations import rename_node
from caravanserai_core.ledger import Ledger
from caravanserai_core.pending import asked, commands
from caravanserai_core.run import current_run
from caravanserai_core.stores import FileStore, Store
from caravanserai_core.verify import verify
from integration_tests.api.helpers import forget_everything
from integration_tests.langgraph.graphs import State, builder_of, config, graph_of, says
from integration_tests.notes.linter import lint

GIVEN: Any = {"log": ["given"]}


def states(store: Any, run_id: str = "t") -> dict[str, str]:
    """Return the state of each question that a run had."""
    found = store if isinstance(store, Store) else FileStore(store)
    return {q.id: q.state for q in Ledger.read(found, run_id, None).questions.values()}


def asks(question: Any = "go on?") -> Any:
    return lambda state: {"log": [f"said {interrupt(question)}"]}


def both() -> Any:
    nodes = {name: asks(f"{name}?") for name in ("p", "q")}
    return builder_of(nodes, (START, "p"), (START, "q"))


# ---------------------------------------------------------------------- forms of an answer


def test_a_dict_by_ids_answers_questions_of_the_run(store: Store) -> None:
    """A saver is not told of it; what the nodes were answered is recorded with what they did."""
    graph = both().compile(checkpointer=WaypointSaver(store))
    paused = graph.invoke(GIVEN, config())["__interrupt__"]
    ids = {item.value: item.id for item in paused}

    left = graph.invoke(Command(resume={ids["q?"]: "no"}), config())["__interrupt__"]

    assert [item.value for item in left] == ["p?"]
    assert sorted(states(store).values()) == ["answered", "open"]
    assert list_runs(store=store)[0].status == "waiting"
    answer("t", "yes", store=store)
    result = graph.invoke(None, config())
    assert sorted(result["log"]) == ["given", "said no", "said yes"]
    assert set(states(store).values()) == {"spent"}


def test_a_job_is_answered_by_ids_and_by_value_where_one_is_left(store: Store) -> None:
    """An answer from elsewhere and one of the program's line meet."""
    job = resumable_graph(both().compile(), run_id="t", store=store)
    ids = {item.value: item.id for item in job.invoke(GIVEN)["__interrupt__"]}
    questions = Ledger.read(store, "t", None).questions
    name = next(q.id for q in questions.values() if q.record.head["text"] == "p?")
    answer("t", "first", question=name, store=store)

    result = job.invoke(Command(resume={ids["q?"]: "second"}))

    assert sorted(result["log"]) == ["given", "said first", "said second"]


@pytest.mark.parametrize("value", [["a", "b"], {"edit": [1, (2,)]}, False, "", 0])
def test_an_answer_is_given_exactly(store: Store, value: Any) -> None:
    """From elsewhere and by a `Command`, whatever it is."""
    for number, by_command in enumerate((True, False)):
        got: list[Any] = []
        saver = WaypointSaver(store)
        graph = graph_of(saver, {"n": lambda state, g=got: g.append(interrupt("?")) or {}})
        graph.invoke(GIVEN, config(str(number)))
        if by_command:
            graph.invoke(Command(resume=value), config(str(number)))
        else:
            answer(str(number), value, store=store)
            graph.invoke(None, config(str(number)))
        assert got == [value]
        assert type(got[0]) is type(value)


def test_the_same_command_again_after_a_crash_is_no_other_answer(store: Store) -> None:
    """And another one is refused: the first counts."""
    broken = [True]

    def node(state: State) -> State:
        said = interrupt("?")
        if broken[0]:
            raise ConnectionError
        return {"log": [said]}

    graph = graph_of(WaypointSaver(store), {"n": node})
    graph.invoke(GIVEN, config())
    for _ in range(2):
        with pytest.raises(ConnectionError):
            graph.invoke(Command(resume="yes"), config())
    broken[0] = False

    with pytest.raises(AlreadyAnswered):
        graph.invoke(Command(resume="no"), config())

    assert graph.invoke(None, config())["log"] == ["given", "yes"]


# ---------------------------------------------------------------------- going on without


def test_what_the_thread_goes_on_without_is_no_longer_asked(store: Store) -> None:
    """A new input, a change by hand, a fresh start: the question is taken back, and says so."""
    graph = graph_of(WaypointSaver(store), {"n": asks()})
    graph.invoke(GIVEN, config())
    graph.invoke({"log": ["more"]}, config())
    assert states(store) == {"q1": "withdrawn", "q2": "open"}
    graph.update_state(config(), {"log": ["by hand"]}, as_node="n")
    assert states(store) == {"q1": "withdrawn", "q2": "withdrawn"}
    assert list_runs(store=store)[0].status == "stopped"
    with pytest.raises(UsageError, match="no longer asked"):
        answer("t", "late", question="q1", store=store)

    job = resumable_graph(builder_of({"n": asks()}).compile(), run_id="job", store=store)
    job.invoke(GIVEN)
    job.invoke({"log": ["other"]}, again=True)
    assert states(store, "job") == {"q1": "withdrawn", "q2": "open"}
    assert not verify(store, "job").damaged


def test_time_travel_asks_again(store: Store) -> None:
    """To before the pause, and to the pause itself; the old answer stays what it was."""
    graph = graph_of(WaypointSaver(store), {"a": says("a"), "n": asks(), "b": says("b")})
    graph.invoke(GIVEN, config())
    answer("t", "yes", store=store)
    graph.invoke(None, config())
    history = list(graph.get_state_history(config()))
    for number, node in enumerate(("a", "n"), 2):
        place = next(item for item in history if item.next == (node,))
        again = graph.invoke(None, place.config)
        assert [item.value for item in again["__interrupt__"]] == ["go on?"]
        assert states(store)[f"q{number}"] == "open"
        answer("t", f"no {number}", store=store)
        assert graph.invoke(None, config())["log"] == ["given", "a", f"said no {number}", "b"]
    assert set(states(store).values()) == {"spent"}


def test_a_pruned_thread_keeps_its_question(store: Store) -> None:
    graph = graph_of(WaypointSaver(store), {"a": says("a"), "n": asks(), "b": says("b")})
    graph.invoke(GIVEN, config())
    prune("t", keep=1, store=store)
    WaypointSaver(store).prune(["t"])
    forget_everything()
    answer("t", "yes", store=store)
    assert graph.invoke(None, config())["log"] == ["given", "a", "said yes", "b"]


def test_what_is_removed_asks_nothing(store: Store) -> None:
    """The checkpoints of an invocation are deleted, the question behind them with them."""
    saver = WaypointSaver(store)
    graph = graph_of(saver, {"n": asks()})
    graph.invoke(GIVEN, {**config(), "metadata": {"run_id": "mine"}})
    saver.delete_for_runs(["mine"])
    assert states(store) == {"q1": "withdrawn"}


def test_a_copied_thread_is_answered_by_itself(store: Store) -> None:
    saver = WaypointSaver(store)
    graph = graph_of(saver, {"n": asks()})
    graph.invoke(GIVEN, config())
    saver.copy_thread("t", "copy")
    answer("copy", "in the copy", store=store)
    assert graph.invoke(None, config("copy"))["log"] == ["given", "said in the copy"]
    assert states(store) == {"q1": "open"}


@pytest.mark.parametrize("inner", [False, True])
def test_a_fork_of_a_waiting_job_asks_under_its_own_name(store: Store, inner: bool) -> None:
    """The question is recorded by its first start, which runs no node."""
    ran: list[str] = []

    def node(state: State) -> State:
        ran.append("n")
        return {"log": [interrupt("go on?")]}

    builder = builder_of({"n": node})
    graph = builder_of({"sub": builder.compile()} if inner else {"n": node}).compile()
    resumable_graph(graph, run_id="t", store=store).invoke(GIVEN)
    fork("t", at=None, new_run_id="f", store=store)
    assert states(store, "f") == {}

    job = resumable_graph(graph, run_id="f", store=store)
    assert job.invoke(GIVEN)["__interrupt__"]
    assert states(store, "f") == {"q1": "open"}
    assert ran == ["n"]
    answer("f", "yes", store=store)
    assert job.invoke(GIVEN)["log"][-1] == "yes"
    assert states(store) == {"q1": "open"}


def test_a_question_waits_while_its_node_gets_another_name(store: Store) -> None:
    """It is the same question, and its answer finds the node."""
    old = builder_of({"a": says("a"), "n": asks()}).compile()
    resumable_graph(old, run_id="t", store=store).invoke(GIVEN)
    new = builder_of({"a": says("a"), "m": asks()}).compile()
    steps = [rename_node("n", "m")]

    job = resumable_graph(new, run_id="t", store=store, migrations=steps)
    assert job.invoke(GIVEN)["__interrupt__"]
    assert states(store) == {"q1": "open"}
    answer("t", "yes", store=store)

    assert job.invoke(GIVEN)["log"] == ["given", "a", "said yes"]


@pytest.mark.parametrize("mode", ["sync", "async", "exit"])
def test_all_durabilities(store: Store, mode: Any) -> None:
    graph = graph_of(WaypointSaver(store), {"a": says("a"), "n": asks(), "b": says("b")})
    graph.invoke(GIVEN, config(), durability=mode)
    assert states(store) == {"q1": "open"}
    answer("t", "yes", store=store)
    result = graph.invoke(None, config(), durability=mode)
    assert result["log"] == ["given", "a", "said yes", "b"]
    assert set(states(store).values()) == {"spent"}


# ---------------------------------------------------------------------- what is shown


def test_a_tool_of_an_agent_asks(tmp_path: Path) -> None:
    """The usual form of approval: a tool that interrupts before it acts."""
    sent: list[str] = []

    @tool
    def send_mail(to: str) -> str:
        """Send a mail."""
        verdict = interrupt({"action": "send_mail", "to": to})
        if verdict is not True:
            return "refused"
        sent.append(to)
        return "sent"

    call = {"name": "send_mail", "args": {"to": "ada@example.com"}, "id": "c", "type": "tool_call"}
    nodes = {
        "agent": lambda state: {"messages": [AIMessage("", tool_calls=[call])]},
        "tools": ToolNode([send_mail]),
    }
    for verdict, result in ((True, "sent"), (False, "refused")):
        run_id = f"mail-{result}"
        graph = graph_of(WaypointSaver(tmp_path), nodes, state=MessagesState)
        graph.invoke({"messages": [("user", "Write to Ada.")]}, config(run_id))
        note = (tmp_path / run_id / "latest.md").read_text()
        assert "action: send_mail\nto: ada@example.com" in note
        assert f"caravanserai answer {run_id} q1 false" in note
        answer(run_id, verdict, store=tmp_path)
        last = graph.invoke(None, config(run_id))["messages"][-1]
        assert isinstance(last, ToolMessage)
        assert last.content == result
    assert sent == ["ada@example.com"]


def test_the_middleware_of_an_agent_is_answered_by_its_decisions() -> None:
    """What `HumanInTheLoopMiddleware` asks: the commands hold what it takes."""
    request = {"name": "send", "args": {"to": "ada", "copies": 2}, "description": "…"}
    config = {"action_name": "send", "allowed_decisions": ["approve", "edit"]}
    value = {"action_requests": [request] * 2, "review_configs": [config] * 2}

    question = worded(value, "", ["i", 0], {})

    head = asked({**question.fields, "question": "q1"})
    assert head.text.startswith("tool: send\nto: ada\ncopies: 2\n\ntool: send")
    assert commands(head, "run") == [
        'caravanserai answer run q1 \'{"decisions":[{"type":"approve"},{"type":"approve"}]}\'',
        "caravanserai answer run q1 'YOUR ANSWER'",
    ]


VALUES: list[Any] = [
    *(None, "", "  \n", {}, [], {"options": []}, {"options": [1, "a"]}, {1: {2: 3}}),
    *("x" * 10_000, {"choices": "ab"}, {"a\nb": "`"}, {"question": {"nested": (1, 2)}}),
    *({"action_requests": ["no request"]}, float("nan")),
    "# A heading\n\n## To decide (q7)\n```sh\nrm -rf /\n```",
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:40])
def test_any_value_can_be_asked(tmp_path: Path, value: Any) -> None:
    """And forges nothing in the note."""
    graph = graph_of(WaypointSaver(tmp_path), {"n": asks(value)})
    graph.invoke(GIVEN, config())
    assert states(tmp_path) == {"q1": "open"}
    note = (tmp_path / "t" / "latest.md").read_text()
    assert note.count("\n## To decide (q1)\n") == 1
    assert lint(note) == []
    answer("t", "yes", store=tmp_path)
    assert graph.invoke(None, config())["log"] == ["given", "said yes"]


# ---------------------------------------------------------------------- the run of a node


def test_a_node_works_in_the_run_of_its_thread(store: Store) -> None:
    """The innermost counts: a node's own, also inside of another run; a block inside of a node."""
    ran: list[str] = []
    runs: list[str] = []

    def node(state: State) -> State:
        once("mail", ran.append, "mail")
        runs.append(current_run().run_id)
        with open_run("inside", store=store):
            runs.append(current_run().run_id)
        with pytest.raises(UsageError, match="framework"):
            current_run().checkpoint({})
        return {"log": ["n"]}

    graph = graph_of(WaypointSaver(store), {"n": node})

    @resumable(store=store)
    def work(run_id: str, state: Any = None) -> str:
        graph.invoke(GIVEN, config())
        return current_run().run_id

    assert work("outer") == "outer"
    assert runs == ["t", "inside"]
    with pytest.raises(NoRun):
        once("mail", ran.append, "mail")
    assert ran == ["mail"]
    assert [name for name, _ in Ledger.read(store, "t", None).effects] == ["mail"]


def test_a_step_that_is_recorded_is_not_done_again_when_its_node_is(store: Store) -> None:
    ran: list[str] = []
    broken = [True]

    def node(state: State) -> State:
        told = once("count", lambda: ran.append("x") or len(ran), key=1)
        if broken[0]:
            raise ConnectionError
        return {"log": [str(told)]}

    job = resumable_graph(builder_of({"n": node}).compile(), run_id="t", store=store)
    with pytest.raises(ConnectionError):
        job.invoke(GIVEN)
    broken[0] = False
    assert job.invoke(GIVEN)["log"] == ["given", "1"]
    assert job.invoke(GIVEN, again=True)["log"] == ["given", "2"]


def test_a_node_may_ask_in_the_words_of_the_core(tmp_path: Path) -> None:
    """`ask` raises through the graph; nothing failed, and the next start returns the answer."""
    nodes = {"n": lambda state: {"log": [ask("Send it?", options=["yes", "no"])]}}
    job = resumable_graph(builder_of(nodes).compile(), run_id="t", store=tmp_path)
    for _ in range(2):
        with pytest.raises(WaitingForPerson):
            job.invoke(GIVEN)
    assert list_runs(store=tmp_path)[0].status == "waiting"
    note = (tmp_path / "t" / "latest.md").read_text()
    assert note.splitlines()[2].startswith('**Waiting for a person:** "Send it?" (q1). Node `n`')
    assert "failed" not in note
    answer("t", "no", store=tmp_path)
    assert job.invoke(GIVEN)["log"] == ["given", "no"]


def test_a_node_that_asks_something_else_before_the_answer_asks_anew() -> None:
    """A person's yes to the old question is refused: nobody approves what was not shown."""

    def asks(amount: int) -> Any:
        return {"pay": lambda state: {"log": [f"{interrupt(f'Pay {amount}?')} {amount}"]}}

    saver = WaypointSaver()
    graph_of(saver, asks(40)).invoke({"log": []}, config("changing"), durability="sync")
    again = graph_of(saver, asks(4000)).invoke(None, config("changing"), durability="sync")

    assert [one.value for one in again["__interrupt__"]] == ["Pay 4000?"]
    with pytest.raises(UsageError, match="no longer asked"):
        answer("changing", "yes", question="q1")
    answer("changing", "yes", question="q2")
    done = graph_of(saver, asks(4000)).invoke(None, config("changing"), durability="sync")
    assert done["log"] == ["yes 4000"]
