"""Graphs that several tests use, and how their threads are compared with LangGraph's own saver."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import Interrupt


class State(TypedDict, total=False):
    """A list that nodes append to, and two values that they replace."""

    log: Annotated[list, operator.add]
    n: int
    box: Any


def config(thread_id: Any = "t", **more: Any) -> Any:
    """Name a thread."""
    return {"configurable": {"thread_id": thread_id, **more}}


def builder_of(
    nodes: Mapping[str, Callable[..., Any]],
    *edges: tuple[str | list[str], str],
    state: Any = State,
) -> Any:
    """Build a graph; without edges the nodes run one after the other."""
    builder = StateGraph(state)
    for name, node in nodes.items():
        builder.add_node(name, node)
    names = list(nodes)
    for before, after in edges or zip([START, *names[:-1]], names, strict=True):
        builder.add_edge(before, after)
    return builder


def graph_of(
    saver: Any,
    nodes: Mapping[str, Callable[..., Any]],
    *edges: tuple[str | list[str], str],
    state: Any = State,
    **options: Any,
) -> Any:
    """Build and compile a graph; see `builder_of`."""
    return builder_of(nodes, *edges, state=state).compile(checkpointer=saver, **options)


def says(name: str) -> Callable[..., Any]:
    """Return a node that appends its name."""
    return lambda state: {"log": [name]}


def join_of(saver: Any, p: Any = None, r: Any = None, z: Any = None) -> Any:
    """Build two nodes of which one runs a step later, and one that waits for both."""
    nodes = {"p": p or says("p"), "q": says("q"), "r": r or says("r"), "z": z or says("z")}
    return graph_of(saver, nodes, (START, "p"), (START, "q"), ("q", "r"), (["p", "r"], "z"))


# ---------------------------------------------------------------------- comparing


def stored(saver: Any, thread_id: Any = "t") -> list[Any]:
    """Return what a saver holds of a thread, without what differs from one run to the next.

    Ids and the random part of versions go; a namespace loses the id of its task. What is left is
    the same for every saver that is right.
    """
    found = list(saver.list(config(thread_id)))
    ids = {one.checkpoint["id"] for one in found}
    rows = []
    for one in sorted(found, key=lambda one: one.checkpoint["id"]):
        checkpoint, parent = one.checkpoint, one.parent_config
        if parent is not None:
            assert parent["configurable"]["checkpoint_id"] in ids
        rows.append(
            (
                _ns(one.config["configurable"]["checkpoint_ns"]),
                one.metadata["step"],
                one.metadata["source"],
                parent is not None,
                _values(checkpoint["channel_values"]),
                _numbers(checkpoint["channel_versions"]),
                {node: _numbers(seen) for node, seen in checkpoint["versions_seen"].items()},
                checkpoint.get("updated_channels"),
                sorted(
                    (channel, repr(_value(value))) for _, channel, value in one.pending_writes or ()
                ),
            )
        )
    # Ids of parallel subgraphs have no order among each other.
    return sorted(rows, key=lambda row: (row[0], row[1], row[2], repr(row[4])))


def _ns(ns: str) -> str:
    return "|".join(part.partition(":")[0] for part in ns.split("|"))


def _numbers(versions: Mapping[str, Any]) -> dict[str, int]:
    return {_ns(channel): int(str(at).partition(".")[0]) for channel, at in versions.items()}


def _values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {channel: _value(value) for channel, value in values.items()}


def _value(value: Any) -> Any:
    if isinstance(value, Interrupt):
        return ("interrupt", value.value)
    if isinstance(value, tuple) and any(isinstance(item, Interrupt) for item in value):
        return [_value(item) for item in value]
    if isinstance(value, list):
        return [_value(item) for item in value]
    if type(value).__name__ == "KeptError":  # a saver of LangGraph's keeps the error's repr
        return str(value)
    return value
