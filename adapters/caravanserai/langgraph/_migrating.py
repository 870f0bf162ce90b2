"""Checkpoints of an older schema, led to that of the program while they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai.langgraph._renaming import Around, with_ids
from caravanserai.langgraph.migrations import ThreadState
from caravanserai_core import schema as schemas
from caravanserai_core.errors import SchemaMismatch
from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from caravanserai.langgraph._index import Index, Stored
    from caravanserai.langgraph._notes import Write
    from caravanserai_core.schema import Schema

_STATE = ("channel_values", "channel_versions", "versions_seen", "updated_channels")
_COUNTERS = "counters_since_delta_snapshot"


class Led(NamedTuple):
    """A checkpoint in the schema of the program.

    Attributes:
        stored: its head, with what the steps changed of its metadata.
        state: its state.
        writes: its pending writes, in LangGraph's order.
        questions: new ids of its questions by those they were asked under.
    """

    stored: Stored
    state: dict[str, Any]
    writes: list[Write]
    questions: Mapping[str, str]


def place(run_id: str, ns: str, checkpoint_id: str) -> str:
    """Name a checkpoint in a message."""
    inside = f", namespace {one_line(ns)}" if ns else ""
    return f"thread {one_line(run_id)}{inside}, checkpoint {one_line(checkpoint_id)}"


def lead(
    stored: Stored,
    state: dict[str, Any],
    writes: Iterable[Write],
    ns: str,
    around: Around,
    wanted: Schema,
    where: str,
) -> Led:
    """Lead a checkpoint and its writes to the schema of the program, each from its own.

    Args:
        stored: its head.
        state: its state as it is stored; the steps may change it in place.
        writes: its pending writes as they are stored, in the order of their records.
        ns: its namespace.
        around: what surrounds it.
        wanted: what the program declares.
        where: names it in messages.

    Raises:
        SchemaMismatch: a step failed, or what came of the steps cannot be kept.
    """
    writes = list(writes)
    first = schemas.schema_of(stored.record.head)
    counters = stored.metadata.get(_COUNTERS)
    thread = ThreadState(
        ns,
        state["channel_values"],
        state["channel_versions"],
        state["versions_seen"],
        state.get("updated_channels"),
        since_snapshot=dict(counters or {}),
        _around=around,
    )
    thread.writes = ordered(with_questions(w, around) for w in writes if w.schema <= first)
    for number in range(first, wanted.number):
        thread = _stepped(thread, number, wanted, where)
        # What a process of a later version wrote behind it is in that one's schema.
        news = [write for write in writes if write.schema == number + 1]
        thread.writes = ordered([*thread.writes, *news])
    state = {**state, **{name: getattr(thread, name) for name in _STATE if name in state}}
    if first < wanted.number:
        told = [[write.channel, write.value] for write in thread.writes]
        schemas.check_kept([state, told], first, wanted, where)
    metadata = dict(stored.metadata)
    if counters is not None:
        metadata[_COUNTERS] = thread.since_snapshot
    return Led(stored._replace(metadata=metadata), state, thread.writes, around.questions)


def lead_input(value: Any, first: int, wanted: Schema, where: str) -> Any:
    """Lead what a job was given to the schema of the program; see `lead`."""
    state = ThreadState("", {"__start__": value})
    for number in range(first, wanted.number):
        state = _stepped(state, number, wanted, where)
    led = state.channel_values["__start__"]
    schemas.check_kept(led, first, wanted, where)
    return led


def _stepped(thread: ThreadState, number: int, wanted: Schema, where: str) -> ThreadState:
    step = wanted.steps[number - wanted.oldest]
    led = schemas.stepped(step, thread, number, where)
    if not isinstance(led, ThreadState):
        raise SchemaMismatch(
            f"{where}: the migration from schema {number} to {number + 1} returned a "
            f"{type(led).__name__}: a step returns the ThreadState that it was given"
        )
    return led


def ordered(writes: Iterable[Write]) -> list[Write]:
    """Return writes in LangGraph's order: the first of a place counts, of its own the last."""
    found: dict[tuple[str, int], Write] = {}
    for write in writes:
        if write.place < 0 or (write.task, write.place) not in found:
            found[(write.task, write.place)] = write
    # langgraph.checkpoint.base.writes_sort_key
    return sorted(found.values(), key=lambda w: (w.path, w.task, w.place))


def with_questions(write: Write, around: Around) -> Write:
    """Return a write whose questions, asked in a subgraph, have the ids they have there now."""
    if write.channel != "__interrupt__" or not around.questions:
        return write
    return write._replace(value=with_ids(write.value, around.questions))


class Inner(NamedTuple):
    """Subgraphs of the step behind a checkpoint.

    Attributes:
        lanes: their namespaces, with the node and the task that hold each.
        lasting: nodes whose subgraph keeps its state from one call to the next.
    """

    lanes: dict[str, tuple[str, str]]
    lasting: frozenset[str]


def inner_of(index: Index, ns: str, checkpoint_id: str) -> Inner:
    """Find the subgraphs that are at work behind a checkpoint; the index is current."""
    lanes: dict[str, tuple[str, str]] = {}
    lasting: set[str] = set()
    before = f"{ns}|" if ns else ""
    for lane, found in index.checkpoints.items():
        if not lane or not lane.startswith(before) or lane == ns:
            continue
        node, _, task = lane[len(before) :].partition("|")[0].partition(":")
        if not task:
            lasting.add(node)
            continue
        parents = (one.metadata.get("parents") or {} for one in found.values())
        if any(own.get(ns) == checkpoint_id for own in parents):
            lanes[lane] = (node, task)
    return Inner(lanes, frozenset(lasting))
