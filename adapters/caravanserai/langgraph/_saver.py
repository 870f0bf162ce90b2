"""The checkpointer: LangGraph's interface on one side, runs with waypoints on the other."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import OrderedDict
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from caravanserai.langgraph import _history, _types
from caravanserai.langgraph._ids import (
    Target,
    checkpoint_id_of,
    metadata_of,
    run_of,
    target_of,
    thread_of,
)
from caravanserai.langgraph._invocations import (
    NULL_TASK,
    Answer,
    Invocation,
    Invocations,
    called_before_tasks,
    goes_on,
    kept_by,
)
from caravanserai.langgraph._refusing import null_answers
from caravanserai.langgraph._stored import Loaded
from caravanserai.langgraph._thread import Thread, part, thread_for
from caravanserai_core.errors import AlreadyAnswered, UsageError
from caravanserai_core.origins import handed_origin
from caravanserai_core.pipeline import Started
from caravanserai_core.run import find_step_with
from caravanserai_core.schema import FIRST, declared
from caravanserai_core.stores import open_store

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        DeltaChannelHistory,
    )

    from caravanserai.langgraph._refusing import Late
    from caravanserai.langgraph.migrations import Step
    from caravanserai_core.doing import Doing
    from caravanserai_core.pipeline import Queued, Waiting
    from caravanserai_core.stores import Store

_MOST_THREADS: Final = 256
"""Threads whose index is kept; those not used for longest are read again when they are needed."""

_FOLLOWER: Final = 0.005
"""Seconds that writes wait for the checkpoint they lead to, which takes them along."""

_LINGER: Final = 2.0
"""Seconds that an async task stays pending for it, so that `ainvoke` ends with all stored."""

_DURABLE: Final = frozenset({"__interrupt__", "__error__", "__resume__"})


class WaypointSaver(BaseCheckpointSaver[str]):
    """A LangGraph checkpointer whose threads are runs: exact, readable, in a plain folder.

        graph = builder.compile(checkpointer=WaypointSaver())

    Sync and async on one object; many threads, graphs, processes may use one store.

    Args:
        store: a store, a folder or URL; by default CARAVANSERAI_STORE, else `.caravanserai` here.
        metadata_keys: further keys of `config["configurable"]` to keep with each checkpoint.
        schema: the schema of the states that this program writes, from 1; by default one more
            than there are migrations.
        migrations: one function for each step from schema to schema, the last one leads to
            `schema`; see `caravanserai.langgraph.migrations`.

    Raises:
        UsageError: `schema` and `migrations` do not fit together.

    Raises (by `put`, through the graph):
        UnserialisableState: a channel holds what cannot be kept exactly; the message names it.
        Conflict: two turns at once on one thread; the second to store a step is refused.
        StoreFailed, StoreBusy, StoreRefused, JournalDamaged: see the store.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | Store | None = None,
        *,
        metadata_keys: Collection[str] = (),
        schema: int | None = None,
        migrations: Sequence[Step] = (),
    ) -> None:
        super().__init__()
        _types.register()
        find_step_with(_step)
        self.store = open_store(store)
        self.schema = declared(schema, migrations) or FIRST
        self._metadata_keys = frozenset(metadata_keys)
        self._invocations = Invocations()
        self._threads: OrderedDict[str, Thread] = OrderedDict()
        self._lock = threading.Lock()

    @classmethod
    @contextmanager
    def from_conn_string(cls, conn_string: str) -> Iterator[WaypointSaver]:
        """Open a store by its folder or URL, as the savers that ship with LangGraph are opened."""
        yield cls(conn_string)

    def __repr__(self) -> str:
        return f"WaypointSaver({self.store.name!r})"

    def __bool__(self) -> bool:
        # See `called_before_tasks`: here the checkpoint is written before its tasks change it.
        if called_before_tasks():
            invocation = self._invocations.opened()
            if invocation is not None and invocation.late is not None:
                with kept_by(invocation):
                    if invocation.late.check_prepared():
                        invocation.expect_answer()
            self._invocations.settle_last()
        return True

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> WaypointSaver:
        """Return this saver: nothing that a file names is ever imported or called."""
        return self

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return the version after `current`; waits for the `put` that carries it, see docs."""
        return self._invocations.next_version(current)

    def thread(self, run_id: str) -> Thread:
        """Return what this saver knows of a thread, by the name of its run."""
        with self._lock:
            found = self._threads.get(run_id)
            if found is None:
                found = self._threads[run_id] = thread_for(self.store, run_id)
            self._threads.move_to_end(run_id)
            if len(self._threads) > _MOST_THREADS:
                self._threads.popitem(last=False)
        return found

    # ------------------------------------------------------------------ reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        target = target_of(config)
        loaded = self._load(target)
        found = self._tuple(target, loaded)
        late = None if loaded is None else loaded.late
        self._begin(config, target, found, is_async=False, late=late)
        return found

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        target = target_of(config)
        loaded = await asyncio.to_thread(self._load, target)
        found = self._tuple(target, loaded)
        late = None if loaded is None else loaded.late
        self._begin(config, target, found, is_async=True, late=late)
        return found

    def _load(self, target: Target) -> Loaded | None:
        thread = self.thread(target.run_id)
        if target.checkpoint_id is None:
            loaded = thread.newest(target.ns, self.schema)
        else:
            loaded = thread.at(target.ns, target.checkpoint_id, self.schema)
            if loaded is not None:
                thread.branch(target.ns, target.checkpoint_id)
        return None if loaded is None else thread.answered(target.ns, loaded, self.schema)

    def _begin(
        self,
        config: RunnableConfig,
        target: Target,
        found: CheckpointTuple | None,
        *,
        is_async: bool,
        replays: bool = False,
        late: Late | None = None,
    ) -> None:
        configurable, outer = config.get("configurable") or {}, self._invocations.opened()
        invocation = Invocation(
            configurable,
            is_async=is_async,
            limited=bool(config.get("max_concurrency")),
        )
        invocation.replays = replays
        invocation.late = late
        if outer is not None and configurable.get("checkpoint_ns"):
            invocation.answer = outer.answer
        versions: Mapping[str, Any] = {}
        if found is not None:
            if replays or target.checkpoint_id is not None:
                invocation.start = (target.ns, found.checkpoint["id"])
            versions = found.checkpoint["channel_versions"]
            invocation.null_writes = any(
                task == NULL_TASK for task, _, _ in found.pending_writes or ()
            )
        self._invocations.begin(invocation, versions)

    @staticmethod
    def _tuple(target: Target, loaded: Loaded | None) -> CheckpointTuple | None:
        if loaded is None:
            return None
        found = loaded.stored
        return CheckpointTuple(
            target.config(found.id),  # type: ignore[arg-type]
            {**found.fields, "id": found.id, **loaded.state},  # type: ignore[typeddict-item]
            found.metadata,  # type: ignore[arg-type]
            target.config(found.parent) if found.parent else None,  # type: ignore[arg-type]
            [(write.task, write.channel, write.value) for write in loaded.writes],
        )

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        self._invocations.look()
        found = self._list(config, filter or {}, before, limit)
        if config is not None and _is_replay(config, before, limit):
            item = next(found, None)
            self._begin(config, target_of(config), item, is_async=False, replays=True)
            found = iter([item] if item is not None else [])
        yield from found

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        self._invocations.look()
        found = self._list(config, filter or {}, before, limit)
        if config is not None and _is_replay(config, before, limit):
            item = await asyncio.to_thread(next, found, None)
            self._begin(config, target_of(config), item, is_async=True, replays=True)
            found = iter([item] if item is not None else [])
        while (item := await asyncio.to_thread(next, found, None)) is not None:
            yield item

    def _list(
        self,
        config: RunnableConfig | None,
        wanted_metadata: Mapping[str, Any],
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Iterator[CheckpointTuple]:
        target = target_of(config) if config is not None else None
        named = config is not None and "checkpoint_ns" in (config.get("configurable") or {})
        wanted = _history.Wanted(
            target.ns if target is not None and named else None,
            target.checkpoint_id if target is not None else None,
            wanted_metadata,
            checkpoint_id_of(before),
        )
        runs = [target.run_id] if target is not None else _history.runs(self.store)
        for run_id in runs:
            if limit is not None and limit <= 0:
                return
            thread = self.thread(run_id)
            for ns, loaded in _history.listed(thread, wanted, limit, self.schema):
                if before is not None and limit == 1:
                    thread.branch(ns, loaded.stored.id)
                if limit is not None:
                    limit -= 1
                place = Target(thread_of(run_id), run_id, ns, None)
                found = self._tuple(place, loaded)
                assert found is not None
                yield found

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        target = target_of(config)
        return _history.deltas(self.thread(target.run_id), target, channels, self.schema)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        target = target_of(config)
        thread = self.thread(target.run_id)
        return await asyncio.to_thread(_history.deltas, thread, target, channels, self.schema)

    # ------------------------------------------------------------------ checkpoints

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        target = target_of(config)
        thread = self.thread(target.run_id)
        thread.wait_for_writes(target.ns, target.checkpoint_id)
        answer = _answer_of(config, self._invocations.opened())
        if answer is not None:
            answer.settle()
        invocation = self._invocations.of(checkpoint, metadata)
        queued = self._queue(target, thread, config, checkpoint, metadata, invocation)
        try:
            queued.result()
        except BaseException as error:
            self._lost(target, thread, checkpoint, invocation, error)
            raise
        self._invocations.written(checkpoint["channel_versions"])
        if _is_read(thread, checkpoint, metadata):
            thread.run.write_notes()
        return target.config(checkpoint["id"])  # type: ignore[return-value]

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        # Nothing is awaited before the checkpoint is encoded and has its place: in LangGraph's
        # default mode the tasks that change it start with the next turn of the event loop.
        target = target_of(config)
        thread = self.thread(target.run_id)
        invocation = self._invocations.of(checkpoint, metadata)
        queued = self._queue(target, thread, config, checkpoint, metadata, invocation)
        ends, is_read = not goes_on(checkpoint), _is_read(thread, checkpoint, metadata)

        def finish() -> None:
            try:
                queued.result()
            except BaseException as error:
                self._lost(target, thread, checkpoint, invocation, error)
                raise
            finally:
                if invocation is not None:
                    invocation.arrived()
            self._invocations.written(checkpoint["channel_versions"])
            if is_read:
                thread.run.write_notes()

        if invocation is not None:
            invocation.handed_over()
        work = queued.start(finish)
        if (
            invocation is None
            or invocation.passive
            or invocation.mode != "async"
            or ends
            or metadata.get("source") == "update"
        ):
            await work
        # Else an error is kept by `_lost`, and raised by the next call of this invocation.
        return target.config(checkpoint["id"])  # type: ignore[return-value]

    def _queue(
        self,
        target: Target,
        thread: Thread,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        invocation: Invocation | None,
    ) -> Queued:
        try:
            if invocation is not None:
                invocation.check()
            kept = metadata_of(config, metadata, self._metadata_keys)
            # The versions behind an answer do not tell what they belong to (langgraph 1.2.24).
            call = (invocation, _answer_of(config, self._invocations.opened()))
            chosen = self._is_chosen(target, thread, metadata, invocation)
            parent = target.checkpoint_id
            return thread.put(target.ns, parent, checkpoint, kept, call, self.schema, chosen=chosen)
        except BaseException as error:
            self._invocations.failed(checkpoint["channel_versions"], invocation, error)
            raise

    def _is_chosen(
        self,
        target: Target,
        thread: Thread,
        metadata: CheckpointMetadata,
        invocation: Invocation | None,
    ) -> bool:
        """Say whether a checkpoint goes on from one that was asked for by its id, to do so.

        Somebody may only have looked at that: a graph's steps count what their own call asked for.
        """
        place = (target.ns, target.checkpoint_id)
        calls = [call for call in (invocation, self._invocations.opened()) if call is not None]
        if any(call.start == place for call in calls):
            return True
        # Without a graph the saver's methods are called in any order.
        if metadata.get("source") == "update":
            return not calls
        return all(call.passive for call in calls) and thread.was_read(*place)

    def _lost(
        self,
        target: Target,
        thread: Thread,
        checkpoint: Checkpoint,
        invocation: Invocation | None,
        error: BaseException,
    ) -> None:
        """Keep the error of a queued `put`: LangGraph swallows it where a subgraph then pauses."""
        thread.lost(target.ns)
        self._invocations.failed(checkpoint["channel_versions"], invocation, error)

    # ------------------------------------------------------------------ pending writes

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        target, thread = self._for_writes(config, task_id, writes)
        assert target.checkpoint_id is not None
        invocation = self._invocations.opened()
        answer = _answer_of(config, invocation, task_id)
        own = answer if task_id == NULL_TASK else None
        with kept_by(invocation), own.recording() if own is not None else nullcontext():
            queued = thread.put_writes(
                target.ns, target.checkpoint_id, writes, task_id, task_path, self.schema, answer
            )
            if queued is None:
                return
            patience = self._patience(config, thread, target, writes, task_id)
            self._land(target, thread, writes, queued, patience, answer, sync=True)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        invocation = self._invocations.opened()
        answer = _answer_of(config, invocation, task_id)
        own = answer if task_id == NULL_TASK else None
        with kept_by(invocation), own.recording() if own is not None else nullcontext():
            await self._aput_writes(config, writes, task_id, task_path, invocation)

    async def _aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
        invocation: Invocation | None,
    ) -> None:
        target, thread = self._for_writes(config, task_id, writes)
        assert target.checkpoint_id is not None
        ns, checkpoint_id = target.ns, target.checkpoint_id
        with kept_by(invocation):
            answer = _answer_of(config, invocation)
            # Nothing is awaited before that: the next `put` takes it along.
            queued = thread.put_writes(
                ns, checkpoint_id, writes, task_id, task_path, self.schema, answer
            )
        if invocation is not None:
            invocation.check()
        if queued is None:
            return
        must = task_id == NULL_TASK or any(channel in _DURABLE for channel, _ in writes)
        lazy = invocation is not None and invocation.mode == "async" and not must
        lingers = invocation is not None and invocation.linger and not thread.has_deltas(ns)
        patience = self._patience(config, thread, target, writes, task_id)

        def finish() -> int:
            with kept_by(invocation):
                return self._land(target, thread, writes, queued, patience, answer, sync=not lazy)

        waiting, asking = queued
        if lazy and not lingers:
            Started(finish)
            return  # the next `put` cannot begin before: see `Invocation.linger`
        if patience and asking is None and answer is None:
            seq = await waiting.aresult(patience, sync=not lazy)
        else:
            seq = await Started(finish)
        if lazy and not await thread.run.until_durable(seq, _LINGER):
            await asyncio.to_thread(thread.run.sync, seq)
        if invocation is not None:
            invocation.check()

    def _for_writes(
        self, config: RunnableConfig, task_id: str, writes: Sequence[tuple[str, Any]]
    ) -> tuple[Target, Thread]:
        target = target_of(config)
        if target.checkpoint_id is None:
            raise UsageError("put_writes needs the checkpoint_id of the checkpoint they belong to")
        if task_id == NULL_TASK:
            invocation = self._invocations.opened()
            if invocation is not None and invocation.late is not None:
                with kept_by(invocation):
                    invocation.late.check(null_answers((task_id, *write) for write in writes))
            self._invocations.null_written()
        return target, self.thread(target.run_id)

    def _land(
        self,
        target: Target,
        thread: Thread,
        writes: Sequence[tuple[str, Any]],
        queued: tuple[Waiting, Queued | None],
        patience: float,
        answer: Answer | None,
        *,
        sync: bool,
    ) -> int:
        """See to it that writes stand in the journal; returns the seq of their record.

        Args:
            target: where they belong.
            thread: the thread.
            writes: the writes.
            queued: what `put_writes` of the thread returned.
            patience: seconds that they wait for what takes them along.
            answer: the answer that they are, or may come of; or None.
            sync: whether they have to be durable.
        """
        waiting, asking = queued
        own = waiting.piece.fields["meta"]["task"] == NULL_TASK
        try:
            if asking is not None:
                asking.result()
            if answer is not None and not own:
                answer.settle()
            if self._pause(target, thread, writes):
                return waiting.piece.seq
        except BaseException as error:
            if own and isinstance(error, AlreadyAnswered) and waiting.written.is_set():
                # Somebody answered while it was written, and LangGraph would give it to another.
                thread.take_back_answer(waiting.piece)
            waiting.withdraw()
            raise
        return waiting.result(patience, sync=sync)

    def _pause(self, target: Target, thread: Thread, writes: Sequence[tuple[str, Any]]) -> bool:
        """Leave a waypoint where a task asks or fails; say whether one was written."""
        for kind in ("interrupt", "error"):
            if any(channel == f"__{kind}__" for channel, _ in writes):
                assert target.checkpoint_id is not None
                # It tells what other tasks of the step did: those that are over belong before it.
                thread.wait_for_writes(target.ns, target.checkpoint_id)
                queued = thread.pause(target.ns, target.checkpoint_id, kind)
                if queued is not None:
                    queued.result()
                    thread.run.write_notes()  # a person waits for it
                    return True
        return False

    @staticmethod
    def _patience(
        config: RunnableConfig,
        thread: Thread,
        target: Target,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
    ) -> float:
        """Say how long writes wait for the checkpoint that they lead to."""
        if task_id == NULL_TASK or any(channel in _DURABLE for channel, _ in writes):
            return 0.0
        # With one worker the checkpoint waits behind these very writes; with delta channels
        # LangGraph itself makes it wait for them.
        if config.get("max_concurrency") or thread.has_deltas(target.ns):
            return 0.0
        return _FOLLOWER

    # ------------------------------------------------------------------ threads

    def delete_thread(self, thread_id: str) -> None:
        run_id = run_of(thread_id)
        with self._lock:
            self._threads.pop(run_id, None)
        _history.delete(self.store, run_id)
        part(self.store, run_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        for run_id in list(_history.runs(self.store)):
            _history.remove_runs(self.thread(run_id), frozenset(map(str, run_ids)))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        _history.copy(self.store, run_of(source_thread_id), run_of(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if strategy not in ("keep_latest", "delete"):
            raise UsageError(f'prune: the strategy is "keep_latest" or "delete", not {strategy!r}')
        for thread_id in thread_ids:
            if strategy == "delete":
                self.delete_thread(thread_id)
            else:
                _history.keep_latest(self.thread(run_of(thread_id)))

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await asyncio.to_thread(lambda: self.prune(thread_ids, strategy=strategy))

    def __copy__(self) -> WaypointSaver:
        """Return another saver of the same store that shares what this one knows."""
        clone = object.__new__(type(self))
        clone.__dict__.update(self.__dict__)
        return clone

    def __deepcopy__(self, memo: dict[int, Any]) -> WaypointSaver:
        return copy.copy(self)


def _step() -> tuple[object, Doing] | None:
    """Return the node that the calling code is in, and the run of its thread; see `current_run`."""
    # Both keys stand in the config of every task, and of what it calls (langgraph 1.2.24).
    configurable = (var_child_runnable_config.get() or {}).get("configurable") or {}
    saver = configurable.get("__pregel_checkpointer")
    node = configurable.get("__pregel_scratchpad")
    if node is None or not isinstance(saver, WaypointSaver):
        return None
    return node, saver.thread(run_of(configurable["thread_id"])).run.inside


def _answer_of(
    config: RunnableConfig, invocation: Invocation | None, task: str = ""
) -> Answer | None:
    """Return the answer that an invocation came with, if it did; see `Answer`."""
    if invocation is None or "__pregel_runtime" not in (config.get("configurable") or {}):
        return None  # `update_state` may follow a call in its context
    if task == NULL_TASK:
        invocation.expect_answer()
    return invocation.answer


def _is_read(thread: Thread, checkpoint: Checkpoint, metadata: CheckpointMetadata) -> bool:
    """Say whether somebody may read the notes now: at the graph's end, and where it took over."""
    if not goes_on(checkpoint):
        return True
    return (
        metadata.get("source") == "input" and handed_origin(thread.run.journal.origin) is not None
    )


def _is_replay(config: RunnableConfig, before: RunnableConfig | None, limit: int | None) -> bool:
    """Say whether a subgraph that is replayed asks where to begin: it does not use `get_tuple`."""
    return (
        before is not None
        and limit == 1
        and "__pregel_runtime" in (config.get("configurable") or {})
    )
