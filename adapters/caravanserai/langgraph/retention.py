"""What the checkpoints of a thread cannot be without, from its records; needs no LangGraph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from caravanserai_core.records import Record

__all__ = ["needs"]

_Key = tuple[str, str]
"""A namespace and the id of a checkpoint in it."""


def needs(
    records: Sequence[Record], heads: set[int], kept: set[int], tree: Callable[[int], Any]
) -> tuple[set[int], Callable[[Record], bool | None]]:
    """Say which checkpoints of a thread stay; see `retention.Needs` of the core.

    A pause repeats a checkpoint, which has to stay with it. A delta channel (langgraph 1.2) has
    no value in most checkpoints: it is made from the writes since the last ancestor that holds
    it. Pending writes stay with their checkpoint, and so does what a job was given. A subgraph
    has a namespace of its own for each task that runs it, and is done with that when the
    checkpoint of the task is history.

    Args:
        records: all records of the thread.
        heads: numbers of the newest waypoint of each namespace.
        kept: numbers of the waypoints that stay in any case.
        tree: gives the JSON tree of a waypoint's state.
    """
    known: dict[_Key, Record] = {}
    staying: set[_Key] = set()
    of_tasks: dict[_Key, Record] = {}
    numbers = set(kept)
    for record in records:
        if record.kind != "waypoint":
            continue
        key = _key(record)
        if key is None:  # no checkpoint of LangGraph
            numbers |= {record.waypoint} & heads
            continue
        if "pause" not in record.head["meta"]:
            known[key] = record
        if record.waypoint in kept or (record.waypoint in heads and ":" not in record.lane):
            staying.add(key)
            numbers.add(record.waypoint)
        elif record.waypoint in heads:
            of_tasks[key] = record
    for key, record in of_tasks.items():
        parent = _parent(record)
        if parent is None or parent in staying:
            staying.add(key)
            numbers.add(record.waypoint)
    for key in list(staying):
        staying |= _seeds(known, key, tree)
    numbers |= {known[key].waypoint for key in staying if key in known}

    def entry(record: Record) -> bool:
        key = _key(record)
        # What was written since this was decided belongs to what is newest.
        return key is None or key in staying or key not in known

    return numbers, entry


def _key(record: Record) -> _Key | None:
    meta = record.head.get("meta")
    found = meta.get("checkpoint") if isinstance(meta, dict) else None
    return (record.lane, found) if isinstance(found, str) else None


def _parent(record: Record) -> _Key | None:
    """Return the checkpoint of the thread's own graph whose task runs a subgraph, or None."""
    parents = (record.head["meta"].get("metadata") or {}).get("parents")
    found = parents.get("") if isinstance(parents, dict) else None
    return ("", found) if isinstance(found, str) else None


def _seeds(known: dict[_Key, Record], key: _Key, tree: Callable[[int], Any]) -> set[_Key]:
    """Return the ancestors that the delta channels of a checkpoint are made from."""
    found: set[_Key] = set()
    record = known.get(key)
    if record is None:
        return found
    metadata = record.head["meta"].get("metadata") or {}
    # It counts, by channel, the steps since a checkpoint held the channel's value.
    missing = set(metadata.get("counters_since_delta_snapshot") or ())
    while missing:
        parent = record.head["meta"].get("parent")
        key = (key[0], parent if isinstance(parent, str) else "")
        record = known.get(key)
        if record is None or key in found:
            break
        found.add(key)
        missing -= set(tree(record.waypoint).get("channel_values") or ())
    return found
