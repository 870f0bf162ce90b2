"""An answer goes only to what was asked, also where the program is another one by then."""

# ruff: noqa: E402

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("langgraph")

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START
from langgraph.types import Command, interrupt

from caravanserai import AlreadyAnswered, UsageError, WaitingForPerson, answer, ask, fork, list_runs
from caravanserai.langgraph import WaypointSaver, copy_thread, resumable_graph
from caravanserai_core import survey
from caravanserai_core.stores import FileStore, Store
from caravanserai_core.verify import verify
from integration_tests.langgraph.graphs import State, builder_of, config, says
from integration_tests.langgraph.shop import GIVEN, Shop, asked, new_process


@pytest.fixture
def shop(store: Store) -> Shop:
    return Shop(store)


def test_an_answer_is_not_given_to_another_question(shop: Shop) -> None:
    """A yes to 40 is none to 4,000: that is asked, and has an answer of its own."""
    shop.start()
    answer("t", "yes", store=shop.store)
    shop.price = 4000

    assert asked(shop.start()) == ["Pay 4000?"]
    assert "got yes" not in shop.ran
    assert list_runs(store=shop.store)[0].status == "waiting"
    answer("t", "no", store=shop.store)
    assert shop.start()["log"] == ["given", "no 4000"]
    assert "got yes" not in shop.ran


def test_the_same_question_gets_its_answer(shop: Shop) -> None:
    """The node begins once more, without the answer; that leaves no trace, and nothing is lost."""
    shop.start()
    answer("t", "yes", store=shop.store)

    assert shop.start()["log"] == ["given", "yes 40"]
    assert shop.ran == ["pay 40", "pay 40", "pay 40", "got yes"]
    assert shop.states() == {"q1": "spent"}
    assert len([r for r in survey.records(shop.store, "t", bodies=False) if _pauses(r)]) == 1


def _pauses(record: Any) -> bool:
    return record.kind == "waypoint" and "pause" in record.head["meta"]


def test_a_node_that_asks_no_more_goes_on(shop: Shop) -> None:
    """The answer is nobody's; the run does not wait for what nobody asks."""
    shop.start()
    answer("t", "yes", store=shop.store)

    nodes = {
        "pay": says("free"),
        "b": says("b"),
        "n": lambda state: {"log": [interrupt("More?")]},
    }
    assert asked(shop.start(GIVEN, nodes)) == ["More?"]
    assert shop.states() == {"q1": "spent", "q2": "open"}
    kinds = [record.kind for record in survey.records(shop.store, "t", bodies=False)]
    assert kinds.count("withdrawn") == 1
    answer("t", "no", store=shop.store)
    assert shop.start(GIVEN, nodes) == {"log": ["given", "free", "b", "no"]}
    assert list_runs(store=shop.store)[0].status == "finished"


def test_none_goes_on_likewise(shop: Shop) -> None:
    shop.start()
    answer("t", "yes", store=shop.store)
    shop.price = 4000
    assert asked(shop.start(None)) == ["Pay 4000?"]
    shop.price = 40
    assert asked(shop.start(None)) == ["Pay 4000?"], "it is open: nothing runs"
    answer("t", "yes", store=shop.store)
    assert asked(shop.start(None)) == ["Pay 40?"], "a price that goes back is asked for again"
    assert "got yes" not in shop.ran


def test_notes_tell_what_is_asked_now(tmp_path: Path) -> None:
    """And not that the old answer decided anything."""
    shop = Shop(FileStore(tmp_path))
    shop.start()
    answer("t", "yes", store=shop.store)
    shop.price = 4000
    shop.start()

    note = (tmp_path / "t" / "latest.md").read_text()
    assert note.splitlines()[2].startswith('**Waiting for a person:** "Pay 4000?" (q2).')
    assert "caravanserai answer t q2" in note
    assert "answered q1" not in note
    assert "The answer before was not taken" in note
    with pytest.raises(AlreadyAnswered):
        answer("t", "no", question="q1", store=shop.store)
    answer("t", "no", store=shop.store)
    shop.start()
    notes = "".join(path.read_text() for path in (tmp_path / "t").glob("waypoint-*.md"))
    assert 'answered q2: "no"' in notes
    assert not verify(shop.store, "t").damaged


# ---------------------------------------------------------------------- several questions


class TestInARow:
    """A node that asks two things, one after the other."""

    @staticmethod
    def node(shop: Shop, first: str, second: str) -> Any:
        def node(state: State) -> State:
            said = [f"{first} {interrupt(first)}"]
            shop.ran.append(said[0])
            said.append(f"{second} {interrupt(second)}")
            shop.ran.append(said[1])
            return {"log": said}

        return {"n": node}

    def asked_both(self, shop: Shop) -> None:
        """Answer both, in a process of its own each."""
        assert asked(shop.start(GIVEN, self.node(shop, "a?", "b?"))) == ["a?"]
        answer("t", "A", store=shop.store)
        assert asked(shop.start(GIVEN, self.node(shop, "a?", "b?"))) == ["b?"]
        answer("t", "B", store=shop.store)
        shop.ran.clear()

    def test_both_are_asked_again_in_order(self, shop: Shop) -> None:
        self.asked_both(shop)
        result = shop.start(GIVEN, self.node(shop, "a?", "b?"))
        assert result["log"] == ["given", "a? A", "b? B"]
        assert shop.ran == ["a? A", "a? A", "b? B"]
        assert shop.states() == {"q1": "spent", "q2": "spent"}

    def test_the_first_is_another_one(self, shop: Shop) -> None:
        """Its answer counts no more, and none of those behind it."""
        self.asked_both(shop)
        new = self.node(shop, "other?", "b?")
        assert asked(shop.start(GIVEN, new)) == ["other?"]
        assert asked(shop.start(GIVEN, new)) == ["other?"]
        assert shop.ran == []
        answer("t", "O", store=shop.store)
        assert asked(shop.start(GIVEN, new)) == ["b?"]
        answer("t", "B2", store=shop.store)
        assert shop.start(GIVEN, new)["log"] == ["given", "other? O", "b? B2"]
        assert set(shop.ran) == {"other? O", "b? B2"}

    def test_the_second_is_another_one(self, shop: Shop) -> None:
        self.asked_both(shop)
        new = self.node(shop, "a?", "other?")
        assert asked(shop.start(GIVEN, new)) == ["other?"]
        answer("t", "O", store=shop.store)
        assert shop.start(GIVEN, new)["log"] == ["given", "a? A", "other? O"]
        assert set(shop.ran) == {"a? A", "other? O"}

    def test_neither_is_asked_any_more(self, shop: Shop) -> None:
        self.asked_both(shop)
        nodes = {"n": says("free"), "m": lambda state: {"log": [interrupt("m?")]}}
        assert asked(shop.start(GIVEN, nodes)) == ["m?"]
        assert shop.states() == {"q1": "spent", "q2": "spent", "q3": "open"}

    def test_of_three_the_first_is_another_one(self, shop: Shop) -> None:
        """What LangGraph keeps of the old answers is not taken for the new ones."""

        def nodes(*questions: str) -> Any:
            return {"n": lambda state: {"log": [f"{q} {interrupt(q)}" for q in questions]}}

        for said in "ABC":
            shop.start(GIVEN, nodes("a?", "b?", "c?"))
            answer("t", said, store=shop.store)
        for text, said in (("other?", "O"), ("b?", "P"), ("c?", "Q")):
            assert asked(shop.start(GIVEN, nodes("other?", "b?", "c?"))) == [text]
            answer("t", said, store=shop.store)
        result = shop.start(GIVEN, nodes("other?", "b?", "c?"))
        assert result["log"] == ["given", "other? O", "b? P", "c? Q"]

    def test_they_change_places(self, shop: Shop) -> None:
        """Neither gets what the other one was answered."""
        self.asked_both(shop)
        assert asked(shop.start(GIVEN, self.node(shop, "b?", "a?"))) == ["b?"]
        assert shop.ran == []

    def test_the_first_changes_while_the_second_is_open(self, shop: Shop) -> None:
        """Another node's answer starts the graph: the open one behind it is taken back."""
        nodes = {**self.node(shop, "a?", "b?"), "m": lambda state: {"log": [interrupt("m?")]}}
        edges = [(START, "n"), (START, "m")]
        shop.start(GIVEN, nodes, *edges)
        answer("t", "A", question=shop.open("a?"), store=shop.store)
        assert sorted(asked(shop.start(GIVEN, nodes, *edges))) == ["b?", "m?"]
        answer("t", "M", question=shop.open("m?"), store=shop.store)
        nodes |= self.node(shop, "other?", "b?")

        assert asked(shop.start(GIVEN, nodes, *edges)) == ["other?"]
        with pytest.raises(UsageError, match="no longer asked"):
            answer("t", "B", question="q3", store=shop.store)
        answer("t", "O", store=shop.store)
        assert asked(shop.start(GIVEN, nodes, *edges)) == ["b?"]
        answer("t", "B", store=shop.store)
        assert sorted(shop.start(GIVEN, nodes, *edges)["log"]) == ["M", "b? B", "given", "other? O"]


def test_of_two_at_once_one_changes(shop: Shop) -> None:
    """The other one goes on with its answer, and is done once."""
    done: list[str] = []

    def nodes(second: str) -> Any:
        def asks(question: str) -> Any:
            def node(state: State) -> State:
                said = f"{question} {interrupt(question)}"
                done.append(said)
                return {"log": [said]}

            return node

        return {"p": asks("p?"), "q": asks(second)}

    edges = [(START, "p"), (START, "q")]
    shop.start(GIVEN, nodes("q?"), *edges)
    for text in ("p?", "q?"):
        answer("t", f"to {text}", question=shop.open(text), store=shop.store)

    assert asked(shop.start(GIVEN, nodes("other?"), *edges)) == ["other?"]
    assert done == ["p? to p?"]
    answer("t", "O", store=shop.store)
    result = shop.start(GIVEN, nodes("other?"), *edges)
    assert sorted(result["log"]) == ["given", "other? O", "p? to p?"]
    assert done == ["p? to p?", "other? O"]


# ---------------------------------------------------------------------- commands


def test_a_command_in_a_new_process_answers_what_is_recorded(shop: Shop) -> None:
    """The person saw that; what the node asks by now is asked anew."""
    shop.start()
    shop.price = 4000
    assert asked(shop.start(Command(resume="yes"))) == ["Pay 4000?"]
    assert shop.states() == {"q1": "spent", "q2": "open"}
    assert shop.start(Command(resume="no"))["log"] == ["given", "no 4000"]
    assert "got yes" not in shop.ran


def test_a_command_by_ids(shop: Shop) -> None:
    name = shop.start()["__interrupt__"][0].id
    shop.price = 4000
    name = shop.start(Command(resume={name: "yes"}))["__interrupt__"][0].id
    assert "got yes" not in shop.ran
    assert shop.start(Command(resume={name: "no"}))["log"] == ["given", "no 4000"]


def test_a_command_that_also_changes_the_state(shop: Shop) -> None:
    """What it changes is kept, whatever becomes of the answer; and is there once."""
    shop.start()
    shop.price = 4000
    command = Command(resume="yes", update={"log": ["by hand"]})
    assert asked(shop.start(command)) == ["Pay 4000?"]
    answer("t", "no", store=shop.store)
    assert shop.start()["log"] == ["given", "by hand", "no 4000"]
    assert "got yes" not in shop.ran


def test_what_a_saver_alone_was_answered_is_held_to_its_question(shop: Shop) -> None:
    """LangGraph keeps that answer for whatever is asked next; a job gives it to nothing else."""

    def dies(state: State) -> State:
        raise ConnectionError(interrupt("Pay 40?"))

    saver = WaypointSaver(shop.store)
    graph = builder_of({"pay": dies}).compile(checkpointer=saver)
    graph.invoke(GIVEN, config())
    with pytest.raises(ConnectionError):
        graph.invoke(Command(resume="yes"), config())

    shop.price = 4000
    assert asked(shop.start(None)) == ["Pay 4000?"]
    answer("t", "no", store=shop.store)
    assert shop.start(None)["log"] == ["given", "no 4000"]
    assert "got yes" not in shop.ran


def test_what_a_saver_alone_was_answered_is_given_to_its_question(shop: Shop) -> None:
    def dies(state: State) -> State:
        raise ConnectionError(interrupt("Pay 40?"))

    graph = builder_of({"pay": dies}).compile(checkpointer=WaypointSaver(shop.store))
    graph.invoke(GIVEN, config())
    with pytest.raises(ConnectionError):
        graph.invoke(Command(resume="yes"), config())

    assert shop.start(None)["log"] == ["given", "yes 40"]
    assert shop.states() == {"q1": "spent"}


def test_a_command_to_a_job_on_a_thread_of_a_saver(shop: Shop) -> None:
    """What it answers was asked when nobody spoke of a job."""
    graph = builder_of({"pay": shop.pay}).compile(checkpointer=WaypointSaver(shop.store))
    graph.invoke(GIVEN, config())
    shop.price = 4000
    assert asked(shop.start(Command(resume="yes"))) == ["Pay 4000?"]
    assert shop.start(Command(resume="no"))["log"] == ["given", "no 4000"]
    assert "got yes" not in shop.ran


@pytest.mark.parametrize("job", [True, False])
def test_a_thread_of_another_saver_keeps_what_was_answered_there(shop: Shop, job: bool) -> None:
    """What was asked there is not known; what is asked from then on is."""

    def pay(state: State) -> State:
        return {"log": [interrupt("First?"), interrupt(f"Pay {shop.price}?")]}

    def start() -> Any:
        if job:
            return shop.start(None, {"pay": pay})
        saver = WaypointSaver(shop.store)
        return builder_of({"pay": pay}).compile(checkpointer=saver).invoke(None, config())

    memory = InMemorySaver()
    graph = builder_of({"pay": pay}).compile(checkpointer=memory)
    graph.invoke(GIVEN, config())
    graph.invoke(Command(resume="one"), config())
    copy_thread(memory, "t", store=shop.store)
    assert asked(start()) == ["Pay 40?"]
    answer("t", "yes", store=shop.store)
    if job:
        shop.price = 4000
        assert asked(start()) == ["Pay 4000?"]
        answer("t", "no", store=shop.store)
    assert start()["log"] == ["given", "one", "no" if job else "yes"]


def test_somebody_who_looked_at_the_graph_used_nothing_up(shop: Shop) -> None:
    """`get_state` is given the answer too."""
    shop.start()
    answer("t", "yes", store=shop.store)
    new_process()
    graph = builder_of({"pay": shop.pay}).compile(checkpointer=WaypointSaver(shop.store))
    graph.get_state(config())
    job = resumable_graph(graph, run_id="t")
    assert job.invoke(GIVEN)["log"] == ["given", "yes 40"]
    assert shop.states() == {"q1": "spent"}


# ---------------------------------------------------------------------- one process


def test_one_process_begins_a_node_no_additional_time(shop: Shop) -> None:
    """Its own question it has heard; and each start there may make its graph anew."""
    new_process()
    for _ in range(2):
        graph = builder_of({"pay": shop.pay}).compile()
        result = resumable_graph(graph, run_id="t", store=shop.store).invoke(GIVEN)
        if "__interrupt__" in result:
            answer("t", "yes", store=shop.store)
    assert result["log"] == ["given", "yes 40"]
    assert shop.ran == ["pay 40", "pay 40", "got yes"]


def test_a_node_that_was_rewritten_in_one_process_is_asked(shop: Shop) -> None:
    """As in a notebook."""
    new_process()
    for price in (40, 4000):

        def pay(state: State, price: int = price) -> State:
            shop.ran.append(f"{interrupt(f'Pay {price}?')} {price}")
            return {"log": []}

        graph = builder_of({"pay": pay}).compile()
        result = resumable_graph(graph, run_id="t", store=shop.store).invoke(GIVEN)
        answer("t", "yes", store=shop.store)
        assert asked(result) == [f"Pay {price}?"]
    assert shop.ran == []


def test_a_fork_asks_in_its_first_start_what_nobody_heard(shop: Shop) -> None:
    """Its question is recorded from what is stored, and no node ran."""
    shop.start()
    fork("t", at=None, new_run_id="f", store=shop.store)
    new_process()
    graph = builder_of({"pay": shop.pay}).compile()
    job = resumable_graph(graph, run_id="f", store=shop.store)
    assert asked(job.invoke(GIVEN)) == ["Pay 40?"]
    answer("f", "yes", store=shop.store)
    shop.price = 4000
    assert asked(job.invoke(GIVEN)) == ["Pay 4000?"]
    assert "got yes" not in shop.ran


# ---------------------------------------------------------------------- not a job


def test_a_saver_alone_gives_an_answer_to_what_is_in_its_place(shop: Shop) -> None:
    """LangGraph shows it nothing of what is asked by then. This is the limit that the docs name."""
    saver = WaypointSaver(shop.store)
    builder_of({"pay": shop.pay}).compile(checkpointer=saver).invoke(GIVEN, config())
    answer("t", "yes", store=shop.store)
    shop.price = 4000
    new_process()
    graph = builder_of({"pay": shop.pay}).compile(checkpointer=WaypointSaver(shop.store))
    assert graph.invoke(None, config())["log"] == ["given", "yes 4000"]


def test_ask_in_a_node_is_bound_under_a_saver_alone(shop: Shop) -> None:
    def start(value: Any) -> Any:
        def pay(state: State) -> State:
            return {"log": [ask(f"Pay {shop.price}?")]}

        new_process()
        graph = builder_of({"pay": pay}).compile(checkpointer=WaypointSaver(shop.store))
        return graph.invoke(value, config())

    with pytest.raises(WaitingForPerson):
        start(GIVEN)
    answer("t", "yes", store=shop.store)
    shop.price = 4000
    with pytest.raises(WaitingForPerson, match="Pay 4000"):
        start(None)
