"""Threads in flight that another version of the graph goes on with."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
import json
import operator
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

from integration_tests.support import require

require("langgraph")

from langgraph.channels import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START
from langgraph.types import Command, Send, interrupt

from caravanserai import InputChanged, SchemaMismatch, UsageError, load
from caravanserai.langgraph import WaypointSaver, copy_thread, resumable_graph
from caravanserai.langgraph.migrations import (
    ThreadState,
    add_channel,
    change_channel,
    remove_channel,
    rename_channel,
    rename_node,
    step,
)
from caravanserai_core import survey
from caravanserai_core.stores import MemoryStore, Store
from integration_tests.langgraph.graphs import builder_of, config, graph_of, says, stored
from integration_tests.preloaded import Preloaded

pytestmark = pytest.mark.usefixtures("watchdog")


class Ran(Counter[str]):
    """Counts how often each node ran, seen from outside of every graph."""

    def node(self, name: str, value: Any = None) -> Any:
        """Return a node that counts itself and appends its name, or returns a value."""

        def run(state: Any) -> Any:
            self[name] += 1
            return {"log": [name]} if value is None else value

        return run


def asks(state: Any) -> Any:
    return {"log": [f"answered {interrupt('which?')}"]}


def saver(store: Store, *steps: Any) -> WaypointSaver:
    """Return a saver of a program that has these steps behind it."""
    return WaypointSaver(store, migrations=steps)


def schemas(store: Store, run_id: str = "t") -> list[int]:
    """Return the schema of each checkpoint as it is recorded."""
    records = survey.records(store, run_id, bodies=False)
    return [r.head.get("schema", 1) for r in records if r.kind == "waypoint"]


def raw(store: Store, run_id: str = "t") -> list[Any]:
    """Return all records as they lie in the store."""
    return [(r.kind, r.head, r.body) for r in survey.records(store, run_id, bodies=True)]


# ---------------------------------------------------------------------- channels


class Topic(TypedDict, total=False):
    topic: str
    old: int
    log: Annotated[list, operator.add]


class Subject(TypedDict, total=False):
    subject: str
    tone: str
    log: Annotated[list, operator.add]


CHANNELS = step(
    rename_channel("topic", "subject"), remove_channel("old"), add_channel("tone", "plain")
)


def topical(store: Store) -> Any:
    """Run the first version to its question."""
    nodes = {"a": lambda state: {"log": ["a"], "old": 1}, "ask": asks}
    graph = graph_of(WaypointSaver(store), nodes, state=Topic)
    graph.invoke({"topic": "tea", "log": []}, config())
    return graph


def subjective(store: Store, *steps: Any) -> Any:
    return graph_of(
        saver(store, *(steps or (CHANNELS,))), {"a": says("a"), "ask": asks}, state=Subject
    )


def test_a_waiting_thread_goes_on_with_channels_renamed_removed_and_added(store: Store) -> None:
    topical(store)
    before = raw(store)
    graph = subjective(store)

    assert graph.get_state(config()).values == {"subject": "tea", "tone": "plain", "log": ["a"]}
    assert raw(store) == before, "reading changed what is stored"
    done = graph.invoke(Command(resume="green"), config())

    assert done == {"subject": "tea", "tone": "plain", "log": ["a", "answered green"]}
    assert raw(store)[: len(before)] == before
    assert schemas(store) == [1, 1, 1, 1, 2]
    assert graph.get_state(config()).values == done


def test_what_is_written_behind_an_old_checkpoint_is_not_migrated_again(store: Store) -> None:
    """A node failed in the old program and is done in the new one, beside one that asks."""

    def fails(state: Any) -> Any:
        raise RuntimeError("no")

    ran = Ran()
    edges = ((START, "b"), (START, "ask"))
    old = graph_of(WaypointSaver(store), {"b": fails, "ask": asks}, *edges, state=Topic)
    with pytest.raises(RuntimeError, match="no"):
        old.invoke({"topic": "tea", "log": []}, config())
    shout = step(CHANNELS, change_channel("subject", str.upper))
    nodes = {"b": ran.node("b", {"subject": "coffee"}), "ask": asks}

    first = graph_of(saver(store, shout), nodes, *edges, state=Subject)
    assert "__interrupt__" in first.invoke(None, config())
    second = graph_of(saver(store, shout), nodes, *edges, state=Subject)
    done = second.invoke(Command(resume="x"), config())

    assert done["subject"] == "coffee"
    assert ran["b"] == 1


def test_history_update_and_time_travel_of_a_migrated_thread(store: Store) -> None:
    old = topical(store)
    expected = [one.values.get("topic") for one in old.get_state_history(config())]
    graph = subjective(store)

    found = list(graph.get_state_history(config()))
    assert [one.values.get("subject") for one in found] == expected
    assert all("old" not in one.values and "topic" not in one.values for one in found)
    assert (
        "__start__" in graph.checkpointer.get_tuple(found[-1].config).checkpoint["channel_values"]
    )

    first = next(one for one in found if one.next == ("a",))
    again = graph.invoke(None, first.config)
    assert again["__interrupt__"][0].value == "which?"
    assert graph.get_state(config()).values["log"] == ["a"]

    graph.update_state(config(), {"tone": "dry"}, as_node="a")
    assert graph.get_state(config()).values["tone"] == "dry"
    assert graph.invoke(Command(resume="black"), config())["log"] == ["a", "answered black"]
    assert len(list(graph.get_state_history(config()))) > len(found)


def test_the_first_checkpoint_which_is_the_input_goes_through_the_steps(store: Store) -> None:
    """Killed before the first node: what the graph was given is all there is."""
    old = graph_of(WaypointSaver(store), {"a": says("a")}, state=Topic)
    old.invoke({"topic": "tea", "old": 3, "log": []}, config())
    first = list(old.get_state_history(config()))[-1]
    graph = subjective(store)

    graph.invoke(None, first.config)

    expected = {"subject": "tea", "tone": "plain", "log": ["a"]}
    assert graph.get_state(config()).values == expected


@dataclass
class Box:
    x: int
    y: int


# A later version of it.
Total = make_dataclass("Box", ["total"])
Total.__module__ = __name__


def test_a_class_that_has_another_form_now_comes_as_its_recorded_fields(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Box(1, 2)
    graph = graph_of(WaypointSaver(store), {"a": lambda state: {"box": box}, "ask": asks})
    graph.invoke({"log": []}, config())
    monkeypatch.setitem(globals(), "Box", Total)
    nodes = {"a": says("a"), "ask": asks}

    with pytest.raises(SchemaMismatch, match="Box"):
        graph_of(WaypointSaver(store), nodes).get_state(config())
    now = graph_of(saver(store, change_channel("box", lambda b: Total(b["x"] + b["y"]))), nodes)
    assert now.get_state(config()).values["box"] == Total(3)
    assert now.invoke(Command(resume="it"), config())["box"] == Total(3)
    assert now.get_state(config()).values["box"] == Total(3)


def test_a_delta_channel_is_made_from_ancestors_of_the_old_schema(store: Store) -> None:
    def extend(values: list, writes: Any) -> list:
        return [*values, *(item for write in writes for item in write)]

    def graph(saver: WaypointSaver, name: str) -> Any:
        state = TypedDict("state", {name: Annotated[list, DeltaChannel(extend)], "n": int})
        nodes = {k: lambda s, k=k: {name: [k]} for k in ("a", "b")}
        return graph_of(saver, {**nodes, "ask": lambda s: {name: [interrupt("?")]}}, state=state)

    graph(WaypointSaver(store), "words").invoke({"words": ["in"]}, config(), durability="sync")
    now = graph(saver(store, rename_channel("words", "terms")), "terms")

    assert now.get_state(config()).values["terms"] == ["in", "a", "b"]
    done = now.invoke(Command(resume="yes"), config(), durability="sync")
    assert done["terms"] == ["in", "a", "b", "yes"]
    assert now.get_state(config()).values["terms"] == done["terms"]


# ---------------------------------------------------------------------- nodes


@pytest.mark.parametrize("by_id", [False, True])
def test_a_thread_that_waits_in_a_renamed_node_is_answered(store: Store, by_id: bool) -> None:
    ran = Ran()
    graph_of(WaypointSaver(store), {"a": ran.node("a"), "ask": asks}).invoke({"log": []}, config())
    graph = graph_of(saver(store, rename_node("ask", "inquire")), {"a": says("a"), "inquire": asks})

    state = graph.get_state(config())
    assert state.next == ("inquire",)
    assert [item.value for item in state.interrupts] == ["which?"]
    answer: Any = {state.interrupts[0].id: "this"} if by_id else "this"

    assert graph.invoke(Command(resume=answer), config())["log"] == ["a", "answered this"]
    assert ran["a"] == 1


def test_a_thread_that_stopped_in_front_of_a_renamed_node_goes_on(store: Store) -> None:
    old = graph_of(WaypointSaver(store), {"a": says("a"), "b": says("b")}, interrupt_before=["b"])
    old.invoke({"log": []}, config())
    nodes = {"a": says("a"), "beta": says("b")}
    graph = graph_of(saver(store, rename_node("b", "beta")), nodes, interrupt_before=["beta"])

    assert graph.get_state(config()).next == ("beta",)
    assert graph.invoke(None, config())["log"] == ["a", "b"]


def test_finished_siblings_of_a_question_do_not_run_again_under_new_names(store: Store) -> None:
    """A node, a `Send`, a join whose nodes are renamed too, all beside a node that asks."""
    ran = Ran()

    def build(saver: Any, a: str, b: str, w: str, z: str) -> Any:
        nodes = {"p": ran.node("p"), a: ran.node("a"), b: ran.node("b"), z: ran.node("z")}
        nodes |= {w: ran.node("w"), "ask": asks}
        builder = builder_of(nodes, (START, a), (START, b), ([a, b], z), (b, "ask"))
        builder.add_conditional_edges(a, lambda state: [Send(w, {}), "p", Send(w, {})])
        return builder.compile(checkpointer=saver)

    build(WaypointSaver(store), "a", "b", "w", "z").invoke({"log": []}, config())
    assert ran == {"p": 1, "a": 1, "b": 1, "w": 2, "z": 1}
    both = step(*(rename_node(n, n * 2) for n in ("a", "b", "w", "z")))
    graph = build(saver(store, both), "aa", "bb", "ww", "zz")
    result = graph.invoke(Command(resume="now"), config())

    assert ran == {"p": 1, "a": 1, "b": 1, "w": 2, "z": 1}
    assert Counter(result["log"]) == Counter(["a", "b", "p", "w", "w", "z", "answered now"])


def test_a_join_that_has_seen_a_renamed_node_still_waits_for_the_other(store: Store) -> None:
    def build(saver: Any, p: str) -> Any:
        nodes = {p: says("p"), "q": says("q"), "ask": asks, "z": says("z")}
        return graph_of(saver, nodes, (START, p), (START, "q"), ("q", "ask"), ([p, "ask"], "z"))

    build(WaypointSaver(store), "p").invoke({"log": []}, config())
    graph = build(saver(store, rename_node("p", "pp")), "pp")

    assert graph.invoke(Command(resume="go"), config())["log"][-2:] == ["answered go", "z"]


def test_a_renamed_node_whose_error_was_handled_does_not_run_again(store: Store) -> None:
    ran = Ran()

    def fails(state: Any) -> Any:
        ran["fails"] += 1
        raise RuntimeError("no")

    def build(saver: Any, name: str) -> Any:
        builder = builder_of({"ask": asks}, (START, "ask"))
        builder.add_node(name, fails, error_handler=ran.node("handler"))
        builder.add_edge(START, name)
        return builder.compile(checkpointer=saver)

    build(WaypointSaver(store), "a").invoke({"log": []}, config())
    assert ran == {"fails": 1, "handler": 1}
    build(saver(store, rename_node("a", "b")), "b").invoke(Command(resume="x"), config())

    # The handler of a failed task LangGraph itself starts again (1.2.24), not the task.
    assert ran["fails"] == 1


def test_killed_in_the_midst_of_a_step_no_finished_node_runs_again(tmp_path: Path) -> None:
    """The siblings of the node that is killed are renamed, and so is it."""
    jobs = "integration_tests.langgraph.migrating_jobs"
    with Preloaded(jobs) as preloaded:
        ended = preloaded.run(f"{jobs}:first", folder=tmp_path)
        assert ended.killed, ended.out
        before = Counter((tmp_path / "outside.txt").read_text().split())
        for answer, expected in ((None, ["go on?"]), ("yes", [])):
            ended = preloaded.run(f"{jobs}:second", answer, folder=tmp_path)
            assert ended.code == 0, ended.out
            result = json.loads((tmp_path / "result.json").read_text())
            assert result["asked"] == expected

    assert before == {"begin": 1, "left": 1, "work": 2}
    lines = Counter((tmp_path / "outside.txt").read_text().split())
    assert lines == {"begin": 1, "left": 1, "work": 2, "slow": 1, "join": 1}
    assert result["log"][-1] == "asked: yes"
    note = (tmp_path / ".caravanserai" / "job" / "latest.md").read_text()
    assert "`inquires`" in note
    log = Path(tmp_path / ".caravanserai" / "job").rglob("waypoint-*.md")
    texts = "".join(path.read_text() for path in log)
    assert "Node `west`" in texts, "what the siblings did is told under the names of today"


def test_a_subgraph_at_work_in_a_renamed_node_is_refused(store: Store) -> None:
    inner = graph_of(None, {"ask": asks})
    graph_of(WaypointSaver(store), {"sub": inner}).invoke({"log": []}, config())
    graph = graph_of(saver(store, rename_node("sub", "inner")), {"inner": inner})

    with pytest.raises(SchemaMismatch, match="node sub holds a subgraph that is at work"):
        graph.get_state(config())

    # Under its name it goes on, and the subgraph's own nodes may have new ones.
    deep = saver(store, rename_node("ask", "inquire", inside="sub"))
    graph = graph_of(deep, {"sub": graph_of(None, {"inquire": asks})})
    asked = graph.get_state(config()).interrupts
    assert [item.value for item in asked] == ["which?"]
    done = graph.invoke(Command(resume={asked[0].id: "this"}), config())
    assert done["log"] == ["answered this"]


def test_a_subgraph_that_is_done_does_not_stand_in_the_way(store: Store) -> None:
    ran = Ran()

    def build(saver: Any, name: str) -> Any:
        return graph_of(saver, {name: graph_of(None, {"x": ran.node("x")}), "ask": asks})

    build(WaypointSaver(store), "sub").invoke({"log": []}, config())
    graph = build(saver(store, rename_node("sub", "inner")), "inner")

    assert graph.invoke(Command(resume="y"), config())["log"][-1] == "answered y"
    assert len(list(graph.get_state_history(config()))) == 4
    assert ran["x"] == 1


def test_a_node_whose_calls_are_stored_keeps_its_name(store: Store) -> None:
    ran = Ran()

    @task
    def fetch() -> str:
        ran["fetch"] += 1
        return "fetched"

    def flow(given: Any) -> Any:
        return [fetch().result(), interrupt("?")]

    def other(given: Any) -> Any:
        return flow(given)

    entrypoint(checkpointer=WaypointSaver(store))(flow).invoke({}, config())
    now = entrypoint(checkpointer=saver(store, rename_node("flow", "other")))(other)

    with pytest.raises(SchemaMismatch, match="flow has called tasks"):
        now.invoke(Command(resume="x"), config())
    assert ran["fetch"] == 1


def test_a_task_that_is_not_to_be_found_again_is_refused(store: Store) -> None:
    """Stored by a saver that keeps no paths, under an id that LangGraph would not give."""
    graph = graph_of(WaypointSaver(store), {"a": says("a"), "ask": asks})
    graph.invoke({"log": []}, config())
    at = graph.get_state(config()).config
    foreign = "11111111-2222-3333-4444-555555555555"
    WaypointSaver(store).put_writes(at, [("log", ["x"])], foreign, "")

    with pytest.raises(SchemaMismatch, match="is not to be found"):
        saver(store, rename_node("a", "b")).get_tuple(config())
    assert saver(store, add_channel("n", 1)).get_tuple(config()) is not None


# ---------------------------------------------------------------------- jobs


def job(store: Store, *steps: Any, a: str = "topic", ask: str = "ask") -> Any:
    state = TypedDict("state", {a: str, "log": Annotated[list, operator.add]}, total=False)
    builder = builder_of({"a": says("a"), ask: asks}, state=state)
    return resumable_graph(builder.compile(), run_id="job", store=store, migrations=steps)


def test_a_job_takes_its_input_in_todays_form_and_refuses_another(store: Store) -> None:
    job(store).invoke({"topic": "tea", "log": []})
    now = job(
        store, rename_channel("topic", "subject"), rename_node("ask", "b"), a="subject", ask="b"
    )

    with pytest.raises(InputChanged, match="coffee"):
        now.invoke({"subject": "coffee", "log": []})
    assert now.invoke({"subject": "tea", "log": []})["__interrupt__"][0].value == "which?"
    done = now.invoke(Command(resume="this"))

    assert done == {"subject": "tea", "log": ["a", "answered this"]}
    assert now.invoke({"subject": "tea", "log": []}) == done


def test_an_answer_to_the_id_of_a_question_asked_before_counts(store: Store) -> None:
    """A person saw the question before the new version was installed."""
    old = job(store).invoke({"topic": "tea", "log": []})
    now = job(store, rename_node("ask", "b"), ask="b")

    done = now.invoke(Command(resume={old["__interrupt__"][0].id: "this"}))

    assert done["log"] == ["a", "answered this"]


def test_a_finished_job_returns_its_result_in_todays_form(store: Store) -> None:
    job(store).invoke({"topic": "tea", "log": []})
    job(store).invoke(Command(resume="x"))
    before = raw(store, "job")
    now = job(store, rename_channel("topic", "subject"), a="subject")

    assert now.invoke(None) == {"subject": "tea", "log": ["a", "answered x"]}
    assert raw(store, "job") == before


def test_the_steps_are_given_to_the_saver_where_there_is_one(store: Store) -> None:
    graph = graph_of(WaypointSaver(store), {"a": says("a")})

    with pytest.raises(UsageError, match="give that schema="):
        resumable_graph(graph, run_id="job", migrations=[rename_node("a", "b")])
    with pytest.raises(UsageError, match="do not fit together"):
        WaypointSaver(store, schema=1, migrations=[rename_node("a", "b")])


# ---------------------------------------------------------------------- refusals


def test_an_older_program_refuses_a_newer_thread_and_writes_nothing(store: Store) -> None:
    topical(store)
    subjective(store, CHANNELS, add_channel("more", 1)).invoke(Command(resume="x"), config())
    before = raw(store)
    old = graph_of(WaypointSaver(store), {"a": says("a"), "ask": asks}, state=Topic)
    place = r"thread t, checkpoint [0-9a-f-]{36}: \$: the state"
    undeclared = f"{place} was saved with schema 3; this program declares none, which means 1: give"

    for call in (
        old.get_state,
        lambda at: old.invoke(None, at),
        lambda at: list(old.get_state_history(at)),
    ):
        with pytest.raises(SchemaMismatch, match=undeclared):
            call(config())
    with pytest.raises(
        SchemaMismatch, match=f"{place} has schema 3, the program has schema 2, which is older"
    ):
        subjective(store).get_state(config())
    with pytest.raises(SchemaMismatch, match="the step from schema 1 to 2 is missing"):
        WaypointSaver(store, schema=3, migrations=[CHANNELS]).get_tuple(
            list(WaypointSaver(store, schema=3, migrations=[CHANNELS] * 2).list(config()))[
                -1
            ].config
        )
    assert raw(store) == before


def test_an_older_program_refuses_answers_that_a_newer_one_wrote(store: Store) -> None:
    """Rolled back after the new version has asked, and before it stored a checkpoint."""
    topical(store)
    subjective(store).invoke(Command(resume={"0" * 32: "x"}), config())
    assert set(schemas(store)) == {1}

    with pytest.raises(SchemaMismatch, match="was saved with schema 2; this program declares none"):
        graph_of(WaypointSaver(store), {"a": says("a"), "ask": asks}, state=Topic).get_state(
            config()
        )


def test_steps_can_be_made_where_langgraph_is_not_installed() -> None:
    code = (
        "import sys; from caravanserai.langgraph import migrations as m;"
        "m.step(m.rename_channel('a', 'b'), m.rename_node('x', 'y'));"
        "print([name for name in sys.modules if name.split('.')[0] in ('langgraph', 'xxhash')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(
    ("move", "told"),
    [
        (lambda state: state.channel_values["none"], "KeyError: 'none'"),
        (lambda state: None, "returned nothing"),
        (step(rename_node("a", "b"), change_channel("topic", lambda t: t + 1)), "TypeError"),
        (change_channel("topic", lambda topic: object()), "cannot be kept|object"),
    ],
)
def test_a_step_that_fails_names_the_place_and_changes_nothing(
    move: Any, told: str, store: Store
) -> None:
    topical(store)
    before = raw(store)

    with pytest.raises(SchemaMismatch, match=told) as raised:
        subjective(store, move).get_state(config())

    assert re.match(r"thread t, checkpoint [0-9a-f-]{36}: ", str(raised.value))
    assert raw(store) == before


def test_a_step_of_ones_own_sees_each_graph_by_its_name(store: Store) -> None:
    graph_of(WaypointSaver(store), {"sub": graph_of(None, {"ask": asks})}).invoke(
        {"log": []}, config()
    )
    seen: set[str] = set()

    def look(state: ThreadState) -> ThreadState:
        seen.add(state.graph)
        return state

    graph = graph_of(saver(store, look), {"sub": graph_of(None, {"ask": asks})})
    graph.get_state(config(), subgraphs=True)

    assert seen == {"", "sub"}


# ---------------------------------------------------------------------- copies


def test_copies_and_what_is_left_after_pruning_keep_their_schema(store: Store) -> None:
    topical(store)
    graph = subjective(store)
    graph.invoke(Command(resume="x"), config())
    own = graph.checkpointer

    own.copy_thread("t", "copy")
    assert schemas(store, "copy") == schemas(store)
    assert subjective(store).get_state(config("copy")).values["subject"] == "tea"
    own.prune(["copy"])
    assert schemas(store, "copy") == [2]
    assert subjective(store).get_state(config("copy")).values["subject"] == "tea"

    other = MemoryStore()
    copy_thread(own, "t", other)
    assert set(schemas(other)) == {2}, "what a saver that migrates reads is in today's schema"
    assert stored(WaypointSaver(other, schema=2)) == stored(own)


def test_a_thread_of_another_saver_counts_as_the_first_schema(store: Store) -> None:
    """Copied over without the paths of its tasks, and then migrated in the midst of a step."""
    ran = Ran()

    def build(saver: Any, a: str, ask: str) -> Any:
        nodes = {a: ran.node("a"), ask: asks}
        return graph_of(saver, nodes, (START, a), (START, ask))

    memory = InMemorySaver()
    build(memory, "a", "ask").invoke({"log": []}, config())
    copy_thread(memory, "t", store)
    both = step(rename_node("a", "b"), rename_node("ask", "inquire"))

    graph = build(saver(store, both), "b", "inquire")
    assert graph.invoke(Command(resume="x"), config())["log"] == ["a", "answered x"]
    assert ran["a"] == 1


def test_async_graphs_read_through_the_steps_too(store: Store) -> None:
    topical(store)

    async def go() -> Any:
        graph = subjective(store)
        found = [one.values.get("subject") async for one in graph.aget_state_history(config())]
        assert found == ["tea", "tea", None]
        return await graph.ainvoke(Command(resume="x"), config())

    assert asyncio.run(go())["log"] == ["a", "answered x"]


def test_the_core_shows_a_thread_as_it_is_recorded(store: Store) -> None:
    topical(store)

    assert load("t", store=store, raw=True)["channel_values"]["topic"] == "tea"
