"""Checkpoints in numbers: lists, the ancestors of one, and what is taken away from a thread."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from caravanserai_core import codec, compaction, reading, trees
from caravanserai_core.errors import JournalDamaged, UsageError
from caravanserai_core.journal import forget
from caravanserai_core.quoting import one_line
from caravanserai_core.schema import schema_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from caravanserai.langgraph._ids import Target
    from caravanserai.langgraph._index import Stored
    from caravanserai.langgraph._stored import Loaded
    from caravanserai.langgraph._thread import Thread
    from caravanserai_core.records import Record
    from caravanserai_core.schema import Schema
    from caravanserai_core.stores.base import Store

_AT_ONCE: Final = 256
"""Checkpoints whose states are rebuilt together."""

_MISSING: Final = object()


class Wanted(NamedTuple):
    """Which checkpoints a list is to hold.

    Attributes:
        ns: of this namespace; None: of all.
        checkpoint_id: only this one, or None.
        filter: metadata that they have.
        before: ids below this one, or None.
    """

    ns: str | None
    checkpoint_id: str | None
    filter: Mapping[str, Any]
    before: str | None

    def takes(self, found: Stored) -> bool:
        """Say whether a checkpoint is among them; nothing but its head is looked at."""
        if self.checkpoint_id is not None and found.id != self.checkpoint_id:
            return False
        if self.before is not None and found.id >= self.before:
            return False
        return all(found.metadata.get(key) == value for key, value in self.filter.items())


def runs(store: Store) -> Iterator[str]:
    """Yield the runs of a store that this adapter wrote."""
    for listed in store.listing():
        if listed.opening is not None:
            opening = reading.opening(listed.opening)
            if opening.adapter == "langgraph":
                yield opening.run_id


def listed(
    thread: Thread, wanted: Wanted, limit: int | None, schema: Schema
) -> Iterator[tuple[str, Loaded]]:
    """Yield checkpoints of a thread, namespace by namespace, the greatest id first."""
    with thread.lock:
        thread.index.catch_up()
        chosen = [
            (ns, found)
            for ns, ids in thread.index.checkpoints.items()
            if wanted.ns is None or ns == wanted.ns
            for found in sorted(ids.values(), key=lambda stored: stored.id, reverse=True)
            if wanted.takes(found)
        ]
    if limit is not None:
        chosen = chosen[:limit]
    decoder = codec.Decoder()
    for start in range(0, len(chosen), _AT_ONCE):
        part = chosen[start : start + _AT_ONCE]
        states = _trees(thread, [found for _, found in part])
        for ns, found in part:
            yield ns, _loaded(thread, ns, found, states[found.number], decoder, schema)


def _loaded(
    thread: Thread, ns: str, found: Stored, tree: Any, decoder: codec.Decoder, schema: Schema
) -> Loaded:
    shared = found.record.head.get("shared", ())

    def decode(lenient: bool) -> dict[str, Any]:
        if lenient:
            # To be changed by migrations: nothing of it may belong to another checkpoint.
            return cast("dict[str, Any]", codec.decode_tree(deepcopy(tree), shared, lenient=True))
        return cast("dict[str, Any]", decoder.decode(tree, shared))

    return thread.loaded(ns, found, decode, thread.indexed(ns, found.id), schema)


def _trees(thread: Thread, chosen: Collection[Stored]) -> dict[int, Any]:
    run = thread.run
    numbers = [found.number for found in chosen]
    try:
        return trees.rebuild_all(run.store, run.run_id, thread.index.waypoints, numbers)
    except JournalDamaged:
        # A compaction may have moved them just now; damage is found again.
        with thread.lock:
            thread.index.catch_up()
        return trees.rebuild_all(run.store, run.run_id, thread.index.waypoints, numbers)


# ---------------------------------------------------------------------- ancestors


def deltas(
    thread: Thread, target: Target, channels: Sequence[str], schema: Schema
) -> dict[str, Any]:
    """Return what the ancestors of a checkpoint wrote to some channels.

    See `BaseCheckpointSaver.get_delta_channel_history` of langgraph-checkpoint 4.3: the writes
    from the nearest ancestor that holds a value of the channel on, oldest first, and that value.
    """
    if not channels:
        return {}
    with thread.lock:
        thread.index.catch_up()
        ancestors = list(_ancestors(thread, target))
    writes: dict[str, list[tuple[str, str, Any]]] = {channel: [] for channel in channels}
    seeds: dict[str, Any] = {}
    for start in range(0, len(ancestors), _AT_ONCE):
        part = ancestors[start : start + _AT_ONCE]
        states = _trees(thread, part)
        for found in part:
            open_ = [channel for channel in channels if channel not in seeds]
            if not open_:
                break
            one = _One(thread, target.ns, found, states[found.number], schema)
            one.take(open_, writes, seeds)
    return {
        channel: {
            "writes": writes[channel][::-1],
            **({"seed": seeds[channel]} if channel in seeds else {}),
        }
        for channel in channels
    }


class _One:
    """An ancestor, decoded only where that is needed.

    Args:
        thread: its thread.
        ns: its namespace.
        found: its head.
        tree: the JSON tree of its state.
        schema: what the program declares.
    """

    def __init__(self, thread: Thread, ns: str, found: Stored, tree: Any, schema: Schema) -> None:
        self._all = (thread, ns, found, tree, codec.Decoder(), schema)
        self._has_writes = (ns, found.id) in thread.index.writes
        self._older = schema_of(found.record.head) != schema.number
        self._loaded: Loaded | None = None

    def _whole(self) -> Loaded:
        if self._loaded is None:
            self._loaded = _loaded(*self._all)
        return self._loaded

    def take(
        self,
        channels: Sequence[str],
        writes: dict[str, list[tuple[str, str, Any]]],
        seeds: dict[str, Any],
    ) -> None:
        """Add what it holds of some channels to writes and seeds."""
        if self._has_writes:
            for write in reversed(self._whole().writes):
                if write.channel in channels:
                    writes[write.channel].append((write.task, write.channel, write.value))
        held = self._whole().state if self._older else self._all[3]
        for channel in channels:
            if channel in held["channel_values"]:
                seeds[channel] = self._whole().state["channel_values"][channel]


def _ancestors(thread: Thread, target: Target) -> Iterator[Stored]:
    """Yield the ancestors of a checkpoint, the nearest first."""
    ids = thread.index.checkpoints.get(target.ns, {})
    at = target.checkpoint_id or thread.index.newest_id(target.ns)
    seen: set[str] = set()
    found = ids.get(at) if at else None
    while found is not None and found.parent is not None and found.parent not in seen:
        seen.add(found.parent)
        found = ids.get(found.parent)
        if found is not None:
            yield found


# ---------------------------------------------------------------------- taking away


def delete(store: Store, run_id: str) -> None:
    """Remove a thread."""
    store.delete(run_id)
    forget(store, run_id)


def remove_runs(thread: Thread, run_ids: frozenset[str]) -> None:
    """Remove the checkpoints of some invocations, and their writes, for good."""
    with thread.lock:
        thread.index.catch_up()
        going = {
            (ns, found.id)
            for ns, ids in thread.index.checkpoints.items()
            for found in ids.values()
            if found.metadata.get("run_id") is not None and str(found.metadata["run_id"]) in run_ids
        }
    _remove(thread, going)


def keep_latest(thread: Thread) -> None:
    """Keep the newest checkpoint of each namespace, and what it is rebuilt from."""
    with thread.lock:
        thread.index.catch_up()
        known = {(ns, cid) for ns, ids in thread.index.checkpoints.items() for cid in ids}
        kept: set[tuple[str, str]] = set()
        for ns in thread.index.checkpoints:
            newest = thread.index.newest_id(ns)
            if newest is not None:
                kept |= {(ns, found) for found in _with_seeds(thread, ns, newest)}
    _remove(thread, known - kept)


def _with_seeds(thread: Thread, ns: str, newest: str) -> list[str]:
    """Return a checkpoint and the ancestors that its delta channels are made from.

    A delta channel (langgraph 1.2) has no value in most checkpoints: it is made from the writes
    since the last one that holds it. The metadata counts the steps since, by channel.
    """
    from caravanserai.langgraph._ids import Target

    ids = thread.index.checkpoints[ns]
    kept = [newest]
    missing = set(ids[newest].metadata.get("counters_since_delta_snapshot") or ())
    if not missing:
        return kept
    target = Target("", thread.run.run_id, ns, newest)
    for found in _ancestors(thread, target):
        if not missing:
            break
        kept.append(found.id)
        tree = _trees(thread, [found])[found.number]
        missing -= set(tree["channel_values"])
    return kept


def _remove(thread: Thread, going: set[tuple[str, str]]) -> None:
    """Remove checkpoints; what somebody stored since they were chosen is not among them."""
    if not going:
        return

    def keep(record: Record) -> bool:
        meta = record.head.get("meta") or {}
        return (record.lane, meta.get("checkpoint")) not in going

    with thread.lock:
        thread.run.compact(keep)
        thread.forget()
        thread.people.forget(going)


def copy(store: Store, source: str, target: str) -> None:
    """Copy a thread with all its checkpoints; nothing happens where there is no such thread.

    Raises:
        UsageError: the target exists already.
    """
    if source == target:
        raise UsageError(f"thread {one_line(source)} cannot be copied onto itself")
    if store.recent(source) is not None:
        compaction.copy_run(store, source, store, target)
