"""Graphs made at random whose nodes get new names at every pause, against the same without."""

# ruff: noqa: E402

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from integration_tests.support import require

require("langgraph")

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START
from langgraph.types import Command, Send, interrupt

from caravanserai.langgraph import WaypointSaver
from caravanserai.langgraph.migrations import Step, rename_node, step
from caravanserai_core.stores import MemoryStore
from integration_tests.langgraph.graphs import builder_of, config
from integration_tests.langgraph.watchdog import watched


class Plan:
    """A graph without names: which nodes there are, what leads where, who asks.

    Args:
        seed: for the same plan again.
    """

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.count = chance.randint(4, 8)
        self.questions = {n: chance.choice((0, 0, 1, 2)) for n in range(self.count)}
        self.edges: list[tuple[list[int], int]] = []
        self.sends: dict[int, list[int]] = {}
        for node in range(1, self.count):
            before = chance.sample(range(node), min(node, chance.choice((1, 1, 2, 3))))
            if chance.random() < 0.25:
                self.sends.setdefault(before[0], []).extend([node] * chance.randint(1, 2))
            elif chance.random() < 0.5:
                self.edges.append((before, node))
            else:
                self.edges.extend(([start], node) for start in before)

    def build(self, names: list[str], saver: Any, ran: Counter[int]) -> Any:
        """Build the graph with these names of its nodes."""

        def node(number: int) -> Any:
            def run(state: Any) -> Any:
                answers = [interrupt(f"{number}?{n}") for n in range(self.questions[number])]
                ran[number] += 1
                return {"log": [(number, *answers)]}

            return run

        edges = [(START, names[0])]
        for before, after in self.edges:
            starts: Any = [names[start] for start in before]
            edges.append((starts if len(starts) > 1 else starts[0], names[after]))
        builder = builder_of({name: node(n) for n, name in enumerate(names)}, *edges)
        for start, ends in self.sends.items():
            sent = [Send(names[end], {"log": []}) for end in ends]
            builder.add_conditional_edges(names[start], lambda state, sent=sent: sent)
        return builder.compile(checkpointer=saver)


def played(plan: Plan, chance: random.Random, *, renames: bool) -> tuple[Counter[int], Any, int]:
    """Run a plan to its end; return how often each node ran, the log, and the pauses.

    At each pause one or all of the open questions are answered, by their ids or by value; then
    the program is replaced, if there are to be new names.
    """
    ran: Counter[int] = Counter()
    names = [f"n{number}" for number in range(plan.count)]
    store, memory = MemoryStore(), InMemorySaver()
    steps: list[Step] = []
    given: Any = {"log": []}
    for pauses in range(100):
        saver = WaypointSaver(store, migrations=steps) if renames else memory
        graph = plan.build(names, saver, ran)
        graph.invoke(given, config(), durability="sync")
        asked = sorted(graph.get_state(config()).interrupts, key=lambda one: one.value)
        if not asked:
            return ran, Counter(map(tuple, graph.get_state(config()).values["log"])), pauses
        if renames:
            fresh = [
                f"{chr(97 + chance.randrange(26))}{number}-{pauses}" for number in range(plan.count)
            ]
            news = [
                new if chance.random() < 0.7 else old for old, new in zip(names, fresh, strict=True)
            ]
            steps.append(
                step(*(rename_node(a, b) for a, b in zip(names, news, strict=True) if a != b))
            )
            names = news
            graph = plan.build(names, WaypointSaver(store, migrations=steps), ran)
            again = sorted(graph.get_state(config()).interrupts, key=lambda one: one.value)
            assert [one.value for one in again] == [one.value for one in asked]
            asked = again
        answered = asked[: 1 + pauses % len(asked)]
        given = Command(resume={one.id: f"to {one.value}" for one in answered})
    raise AssertionError("it does not come to an end")


@pytest.mark.parametrize("part", range(4))
def test_a_graph_whose_nodes_get_new_names_at_every_pause_runs_as_without(
    part: int, thorough: bool
) -> None:
    paused = 0
    for seed in range(part * 1000, part * 1000 + (80 if thorough else 4)):
        with watched(60):
            plan = Plan(seed)
            ran, log, pauses = played(plan, random.Random(seed), renames=True)
            assert (ran, log, pauses) == played(plan, random.Random(seed), renames=False), seed
            paused += pauses

    assert paused > 4
