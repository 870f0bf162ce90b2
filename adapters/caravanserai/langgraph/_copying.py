"""Bringing threads of another checkpointer along, exactly: finished, half run, paused.

Each checkpoint and each pending write goes through `WaypointSaver` into a store in memory, is read
back and compared, and only then the thread appears in the target, whole.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import ormsgpack
from langgraph.checkpoint.serde.event_hooks import register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from caravanserai.langgraph._asked import ANSWERED, ASKED
from caravanserai.langgraph._checking import is_inside
from caravanserai.langgraph._ids import run_of
from caravanserai.langgraph._notes import PLACES
from caravanserai.langgraph._saver import WaypointSaver
from caravanserai.langgraph._thread import part
from caravanserai_core import codec
from caravanserai_core.compaction import copy_run
from caravanserai_core.copying import CopiedBefore, waypoints_of
from caravanserai_core.errors import RunNotFound, UnserialisableState, UsageError
from caravanserai_core.journal import forget
from caravanserai_core.quoting import one_line
from caravanserai_core.stores import MemoryStore, Store, open_store

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
    from langgraph.checkpoint.serde.event_hooks import SerdeEvent

    Paths = Callable[[str, str, str], Mapping[str, str]]
    """Gives the task_path of each task that wrote to (thread, namespace, checkpoint)."""


class Threads:
    """Threads of a checkpointer, as runs to be copied; see `caravanserai_core.copying`.

    Args:
        saver: the checkpointer.
        thread_ids: its threads.
        paths: what it keeps of each task's place in the graph, or None.
    """

    def __init__(
        self,
        saver: BaseCheckpointSaver[Any],
        thread_ids: Iterable[str],
        paths: Paths | None = None,
    ) -> None:
        self._saver = saver
        self._ids = {run_of(thread_id): thread_id for thread_id in thread_ids}
        self._paths = paths

    def runs(self) -> list[str]:
        """Return the runs that the threads will be."""
        return list(self._ids)

    def copy(self, run_id: str, target: Store) -> int:
        """Copy one thread; see `copy_thread`.

        A thread may be named as LangGraph knows it, too.
        """
        known = run_id if run_id in self._ids else run_of(run_id)
        if known not in self._ids:
            raise RunNotFound(f"there is no thread {one_line(run_id)} to copy")
        return copy_thread(self._saver, self._ids[known], target, paths=self._paths)


def copy_thread(
    saver: BaseCheckpointSaver[Any],
    thread_id: str,
    store: str | os.PathLike[str] | Store | None = None,
    *,
    paths: Paths | None = None,
) -> int:
    """Copy a thread of any checkpointer into a store, with all its history, and compare the copy.

    Ids, parents, versions, metadata, pending writes and open interrupts stay as they are, so the
    same graph goes on with `WaypointSaver` where it stopped.

    Args:
        saver: the checkpointer that holds it, for example a `SqliteSaver` or `PostgresSaver`.
        thread_id: the thread.
        store: a store, a folder or URL; by default CARAVANSERAI_STORE, else `.caravanserai` here.
        paths: what the checkpointer keeps of each task's place in the graph.

    Returns:
        How many waypoints the run has.

    Raises:
        RunNotFound: the checkpointer has no such thread.
        UsageError: the store has a run of this name; `CopiedBefore` if that is this thread.
        UnserialisableState: a value cannot be kept exactly; nothing was written.
    """
    run_id = run_of(thread_id)
    target = open_store(store)
    found = _read(saver, thread_id)
    if not found:
        raise RunNotFound(f"there is no thread {one_line(str(thread_id))} to copy")
    found.sort(key=lambda item: item.checkpoint["id"])
    staging = MemoryStore()
    # What a saver that migrates reads is in the schema of its program.
    number = saver.schema.number if isinstance(saver, WaypointSaver) else None
    copied = WaypointSaver(staging, schema=number)
    config: Any = {"configurable": {"thread_id": thread_id}}
    try:
        _put_all(copied, found, paths)
        _compare(found, list(copied.list(config)))
        try:
            return copy_run(staging, run_id, target, run_id)
        except UsageError as error:
            if not _are_same(found, list(WaypointSaver(target, schema=number).list(config))):
                raise
            raise CopiedBefore(str(error), len(waypoints_of(target, run_id))) from None
    finally:
        part(staging, run_id)
        forget(staging, run_id)


def _read(saver: BaseCheckpointSaver[Any], thread_id: str) -> list[CheckpointTuple]:
    """Read all checkpoints of a thread; what is not given back whole is an error."""
    found: list[CheckpointTuple] = []
    fault: UnserialisableState | None = None
    with _watched() as lost:
        try:
            found = list(saver.list({"configurable": {"thread_id": thread_id}}))
        except UnserialisableState as error:
            fault = error
    if lost:
        raise UnserialisableState(
            f"thread {one_line(str(thread_id))} holds {lost[0]}, which is loaded only as a type "
            "that you trust. Nothing was copied. Name it with --trust module:Class, or copy from a "
            "program that has the type, with caravanserai.langgraph.copy_thread."
        )
    if fault is not None:
        named = one_line(str(thread_id))
        raise UnserialisableState(f"thread {named}: {fault}. Nothing was copied.")
    return found


@contextmanager
def _watched() -> Iterator[list[str]]:
    """Note what LangGraph's serializer does not load; it hands its content out in its place."""
    lost: list[str] = []

    def note(event: SerdeEvent) -> None:
        if event["kind"].endswith("blocked"):
            lost.append(f"a {one_line(event['module'])}.{one_line(event['name'])}")

    unregister = register_serde_event_listener(note)
    try:
        yield lost
    finally:
        unregister()


def _put_all(saver: WaypointSaver, found: list[CheckpointTuple], paths: Paths | None) -> None:
    """Put checkpoints, and what their tasks wrote, in the order in which it was written.

    A task that holds a subgraph writes when that has: so what is asked inside is asked there.
    """
    behind: dict[str, CheckpointTuple] = {}

    def write(ns: str) -> None:
        inner = [lane for lane in behind if is_inside(lane, ns)]
        for lane in sorted(inner, key=lambda lane: -lane.count("|") - bool(lane)):
            _put_writes(saver, behind.pop(lane), paths)

    for item in found:
        ns = _place(item)["checkpoint_ns"]
        write(ns)
        _put(saver, item)
        behind[ns] = item
    write("")


def _put(saver: WaypointSaver, item: CheckpointTuple) -> None:
    place = _place(item)
    thread = saver.thread(run_of(place["thread_id"]))
    parent = _parent(item)
    if parent is not None:
        thread.branch(place["checkpoint_ns"], parent)  # whichever it goes on from is meant
    at: Any = {"configurable": {**place, "checkpoint_id": parent}}
    saver.put(at, item.checkpoint, item.metadata, item.checkpoint["channel_versions"])


def _put_writes(saver: WaypointSaver, item: CheckpointTuple, paths: Paths | None) -> None:
    place = _place(item)
    config: Any = {"configurable": place}
    path_of = paths(*place.values()) if paths is not None and item.pending_writes else {}
    # Those of LangGraph's own have places of their own and come one by one; the rest are counted.
    # What a task asks comes with what it was answered before, which is how LangGraph stores it.
    asking = {ASKED: ASKED, ANSWERED: ASKED}

    def together(write: tuple[str, str, Any]) -> tuple[str, int | None]:
        task, channel, _ = write
        return task, PLACES.get(asking.get(channel, channel))

    for (task, _), group in groupby(item.pending_writes or (), together):
        writes = [(channel, value) for _, channel, value in group]
        saver.put_writes(config, writes, task, path_of.get(task, ""))


def _place(item: CheckpointTuple) -> dict[str, str]:
    """Return thread, namespace and id of a checkpoint, in this order."""
    configurable = item.config.get("configurable") or {}
    return {
        "thread_id": configurable["thread_id"],
        "checkpoint_ns": configurable.get("checkpoint_ns", ""),
        "checkpoint_id": item.checkpoint["id"],
    }


def _parent(item: CheckpointTuple) -> str | None:
    configurable = (item.parent_config or {}).get("configurable") or {}
    return configurable.get("checkpoint_id")


def _compare(found: list[CheckpointTuple], copied: list[CheckpointTuple]) -> None:
    """Compare a thread with its copy.

    Raises:
        UsageError: they differ; the copy is thrown away.
    """
    copies = {(_place(item)["checkpoint_ns"], item.checkpoint["id"]): item for item in copied}
    for item in found:
        copy = copies.pop((_place(item)["checkpoint_ns"], item.checkpoint["id"]), None)
        if copy is None or _facts(item) != _facts(copy):
            raise UsageError(
                f"checkpoint {one_line(item.checkpoint['id'])} could not be copied exactly. "
                "Nothing was written; the thread is still where it was."
            )
    assert not copies, "the copy of a thread has more checkpoints than the thread"


def _are_same(found: list[CheckpointTuple], there: list[CheckpointTuple]) -> bool:
    """Say whether two threads have the same checkpoints, with the same pending writes."""
    one, two = (
        {(_place(item)["checkpoint_ns"], item.checkpoint["id"]): _facts(item) for item in items}
        for items in (found, there)
    )
    return one == two


def _facts(item: CheckpointTuple) -> tuple[Any, ...]:
    metadata = {key: value for key, value in item.metadata.items() if key != "writes"}
    writes = Counter((t, c, codec.encode(value)) for t, c, value in item.pending_writes or ())
    # The parts of a checkpoint have names and no order: Postgres sorts them in its own way.
    parts = dict(sorted(item.checkpoint.items()))
    return (codec.encode(parts), codec.encode(metadata), _parent(item), writes)


# ---------------------------------------------------------------------- what another saver wrote


class Exact(JsonPlusSerializer):
    """LangGraph's serializer, but what it cannot give back whole is an error.

    The original hands out the fields of an object whose type it does not find, or leaves them out.

    Args:
        trust: types that stored values may be loaded as, `module:Class`.
    """

    def __init__(self, trust: Sequence[str] = ()) -> None:
        names = [tuple(name.replace(":", ".").rsplit(".", 1)) for name in trust]
        if any(len(name) != 2 for name in names):
            raise UsageError("a type to trust is named module:Class")
        super().__init__(allowed_msgpack_modules=names or None)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Load a value and see that nothing of it was left out."""
        if data[0] == "json" and b'"lc"' in data[1]:
            raise UnserialisableState(
                "it was written by a release of LangGraph that kept objects as JSON. Let the "
                "present release go through the thread once, with a turn or update_state, and copy "
                "again"
            )
        value = super().loads_typed(data)
        if data[0] == "msgpack":
            before, after = _tree(data[1]), _tree(self.dumps_typed(value)[1])
            if before != after and not _holds(after, before):
                raise UnserialisableState(
                    "a stored value cannot be loaded whole with the types installed here; copy it "
                    "with the versions it was written with"
                )
        return value


def _tree(data: bytes) -> Any:
    """Return the stored form of a value, its objects as what is recorded of them."""

    def hook(code: int, content: bytes) -> Any:
        return (code, ormsgpack.unpackb(content, ext_hook=hook, option=_KEYS))

    return ormsgpack.unpackb(data, ext_hook=hook, option=_KEYS)


def _holds(new: Any, old: Any) -> bool:
    """Say whether `new` holds all that `old` does; a later version of a type may add fields."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(key in new and _holds(new[key], value) for key, value in old.items())
    if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        if len(old) != len(new):
            return False
        if list(old[:2]) == ["builtins", "set"] or list(old[:2]) == ["builtins", "frozenset"]:
            return Counter(map(repr, old[2])) == Counter(map(repr, new[2]))
        return all(map(_holds, new, old))
    return type(new) is type(old) and (new == old or new != new)


_KEYS: Final = ormsgpack.OPT_NON_STR_KEYS
