"""One thread of LangGraph, as one process knows it: its heads, and what its tasks wrote."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict, deque
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakValueDictionary

from caravanserai.langgraph import _migrating, _notes
from caravanserai.langgraph._asked import ANSWERED, ASKED, asked_in
from caravanserai.langgraph._index import INPUT, WRITES, Index, head_of, is_pause, stored
from caravanserai.langgraph._invocations import kept_by
from caravanserai.langgraph._notes import PLACES, Step, Write
from caravanserai.langgraph._people import People
from caravanserai.langgraph._sharing import Lists, kept_value, share_sends
from caravanserai.langgraph._stored import Loaded, StoredThread
from caravanserai_core import reading
from caravanserai_core.continuing import afresh
from caravanserai_core.errors import Conflict, SecretFound, UnserialisableState
from caravanserai_core.notes import Note
from caravanserai_core.pending import from_json
from caravanserai_core.pipeline import Pipeline
from caravanserai_core.quoting import one_line
from caravanserai_core.schema import FIRST, Schema, check, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from caravanserai.langgraph._invocations import Answer, Invocation
    from caravanserai_core.piece import Piece
    from caravanserai_core.pipeline import Queued, Waiting
    from caravanserai_core.records import Record
    from caravanserai_core.stores.base import Store

_SO_FAR: Final = 6

_MOST_TOLD: Final = 64
"""Checkpoints whose writes are kept in memory, for the note of the next one."""

_MOST_BRANCHES: Final = 10_000
"""Checkpoints that were read on purpose, and may be gone on from, though they are no head."""

_IN_HEAD: Final = ("v", "ts", "id")
"""Fields of a checkpoint that stand in its record's head, and not in the state."""


class _Known(NamedTuple):
    """The newest checkpoint of a namespace, as this process wrote or read it.

    Attributes:
        id: of the checkpoint.
        state: its channel values, versions, and so on.
        meta: what stands in its record's head.
        lists: its lists, as they were encoded; None where it was read.
        read: another process, or this one in another life, wrote it.
        schema: the schema that all this is in.
    """

    id: str
    state: Mapping[str, Any]
    meta: dict[str, Any]
    lists: Lists | None
    read: bool = False
    schema: int = 1


class _Told(NamedTuple):
    """What the tasks of a checkpoint did, for the note of the next one.

    Attributes:
        writes: their writes.
        lines: the path of each task and what it did in words, by its id.
    """

    writes: list[Write]
    lines: dict[str, tuple[str, str]]


class Thread(StoredThread):
    """A thread that this process works on: its heads, and who may go on from where."""

    def __init__(self, run: Pipeline) -> None:
        super().__init__(run)
        self._known: dict[str, _Known] = {}
        # How often it was forgotten; by namespace, how often what is done here moved `_known`.
        self._forgotten = 0
        self._moves: dict[str, int] = {}
        self._told: OrderedDict[tuple[str, str], _Told] = OrderedDict()
        self._so_far: dict[str, deque[str]] = {}
        self._branches: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._fresh_after = 0
        self._flight = threading.Condition()
        self._flying: dict[tuple[str, str], int] = {}
        self.people = People(self)

    @property
    def fresh_after(self) -> int:
        """Number of the last waypoint before the pass of a job that is under way."""
        return self._fresh_after

    # ------------------------------------------------------------------ reading

    def newest(self, ns: str, wanted: Schema = FIRST) -> Loaded | None:
        """Read the newest checkpoint of a namespace, whoever wrote it.

        Args:
            ns: the namespace.
            wanted: what the program declares of its states.

        Raises:
            SchemaMismatch: see `loaded`.
        """
        for _ in range(8):
            # Another turn here may get ahead while this one reads: what it knows then counts.
            place = self._place(ns)
            found = self.run.newest(ns)
            record = found.chain[-1] if found is not None and found.chain else None
            head = stored(record) if record is not None else None
            if head is None or record is None or record.waypoint <= self._fresh_after:
                with self.lock:
                    if place == self._place(ns):
                        self._known.pop(ns, None)
                return None
            assert found is not None
            since: list[Record] | None = found.since
            if is_pause(record) or record.head["meta"].get("early"):
                since = self.records_of(ns, head.id)
            if since is not None:
                loaded = self.loaded(ns, head, self._decoder(found.chain), since, wanted)
                self._learn(ns, loaded, wanted.number, place)
                return loaded
        raise Conflict(f"thread {one_line(self.run.run_id)} is rewritten all the time")

    def _place(self, ns: str) -> tuple[int, int]:
        with self.lock:
            return self._forgotten, self._moves.get(ns, 0)

    def _move(self, ns: str, known: _Known | None) -> None:
        """Set what is known of a namespace by what was done here; the caller holds the lock."""
        self._moves[ns] = self._moves.get(ns, 0) + 1
        if known is None:
            self._known.pop(ns, None)
        else:
            self._known[ns] = known

    def answered(self, ns: str, loaded: Loaded, wanted: Schema = FIRST) -> Loaded:
        """Return a checkpoint with what people answered since; see `People.delivered`."""
        writes, lines, late = self.people.delivered(ns, loaded, wanted)
        if lines:
            with self.lock:
                told = self._told.setdefault((ns, loaded.stored.id), _Told([], {}))
                told.lines.update({name: ("", line) for name, (_, line) in lines.items()})
                going_on = {task for task, _ in lines.values()}
                waits = [w for w in told.writes if w.channel != ASKED or w.task not in going_on]
                told.writes[:] = waits
        return loaded._replace(writes=writes, late=late)

    def was_read(self, ns: str, checkpoint_id: str | None) -> bool:
        """Say whether a checkpoint was read by its id, by whomever."""
        return (ns, checkpoint_id) in self._branches

    def branch(self, ns: str, checkpoint_id: str) -> None:
        """Note that a checkpoint was read on purpose."""
        with self.lock:
            self._branches[(ns, checkpoint_id)] = None
            self._branches.move_to_end((ns, checkpoint_id))
            if len(self._branches) > _MOST_BRANCHES:
                self._branches.popitem(last=False)

    def given(self, wanted: Schema = FIRST) -> tuple[str, Any] | None:
        """Return the digest of the input that a job was begun with, and that input; or None.

        The digest is "" where migrations led to the input.
        """
        with self.lock:
            self.index.catch_up()
            record = self.index.input
            if record is None:
                return None
            self._fresh_after = record.head["meta"].get("after", 0)
        whole = record if record.body is not None else self._whole(record)
        number = schema_of(record.head)
        if number == wanted.number:
            return record.head["meta"]["digest"], reading.data_of(whole)
        where = f"run {one_line(self.run.run_id)}, its input"
        check(number, wanted, where)
        value = reading.data_of(whole, lenient=True)
        return "", _migrating.lead_input(value, number, wanted, where)

    def begin_job(
        self, digest: str, value: Any, schema: Schema = FIRST, *, keeps_steps: bool = False
    ) -> None:
        """Write down what a job is given, before anything is done.

        What the thread holds already is history from then on, after a crash too.

        Args:
            digest: identifies what it is given.
            value: that.
            schema: what the program declares of its states.
            keeps_steps: steps under `once` that are recorded count, as those of another run do.
        """
        if not self.run.exists:
            self.run.begin(_notes.untold(lambda: _notes.goal_of(value), None))
        if not keeps_steps:
            self.run.turn(afresh)
        with self.lock:
            self.index.catch_up()
            after = max(self.index.waypoints, default=0)
        meta: dict[str, Any] = {"digest": digest, "after": after}
        entry = self.run.entry(INPUT, value, lane="", meta=meta, schema=schema)
        entry.result(0, sync=True)
        self._fresh_after = after
        self._so_far.clear()

    def forget(self) -> None:
        """Forget what is known of the thread: it was rewritten or deleted."""
        with self.lock:
            self.index = Index(self.run.store, self.run.run_id)
            self._known.clear()
            self._forgotten += 1
            self._told.clear()
            self._so_far.clear()
            self._branches.clear()

    def has_deltas(self, ns: str) -> bool:
        """Say whether the newest checkpoint of a namespace has delta channels, or is not known.

        There LangGraph itself waits for pending writes before it stores a checkpoint (1.2.24).
        """
        known = self._known.get(ns)
        return known is not None and "counters_since_delta_snapshot" in known.meta["metadata"]

    def _learn(self, ns: str, loaded: Loaded, schema: int, place: tuple[int, int]) -> None:
        self.people.learn(loaded)
        with self.lock:
            if place != self._place(ns):
                return
            known = self._known.get(ns)
            if known is not None and known.id == loaded.stored.id and known.schema == schema:
                return
            record = loaded.stored.record
            meta = {key: item for key, item in record.head["meta"].items() if key != "pause"}
            learnt = _Known(loaded.stored.id, loaded.state, meta, None, read=True, schema=schema)
            self._known[ns] = learnt
            tasks = loaded.state["channel_values"].get("__pregel_tasks")
            lines_of = _told_lines(loaded.writes, tasks)
            self._told[(ns, loaded.stored.id)] = _Told(list(loaded.writes), lines_of)
            self._so_far[ns] = deque(_lines_of(record), _SO_FAR)

    # ------------------------------------------------------------------ checkpoints

    def put(
        self,
        ns: str,
        parent: str | None,
        checkpoint: Mapping[str, Any],
        metadata: dict[str, Any],
        call: tuple[Invocation | None, Answer | None] = (None, None),
        schema: Schema = FIRST,
        *,
        chosen: bool = False,
    ) -> Queued:
        """Encode a checkpoint and give it its place; the result says when it is on the disk.

        Args:
            ns: its namespace.
            parent: the id of its parent.
            checkpoint: as LangGraph hands it over.
            metadata: what is kept of its metadata.
            call: what it is a step of, and the answer that came with it; it is not written if one
                before it was not, or if that was refused.
            schema: what the program declares of its states.
            chosen: its parent was asked for by its id, to go on from there.

        Raises:
            Conflict: another turn went on from the same checkpoint; nothing is written.
            UnserialisableState: a channel holds what cannot be kept exactly.
        """
        state = {key: item for key, item in checkpoint.items() if key not in _IN_HEAD}
        kept = dict(state)
        kept["channel_values"] = share_sends(state["channel_values"])
        prepared = self.run.prepare(kept, ns)
        checkpoint_id, invocation = checkpoint["id"], call[0]
        with self.lock:
            begins = invocation is None or invocation.passive or invocation.replays
            free = chosen or self._may_branch(ns, parent, metadata.get("source"), begins=begins)
            meta = head_of(checkpoint, parent, metadata)
            if (ns, checkpoint_id) in self._told:
                meta["early"] = True  # some of its writes stand before it
            self._begin(state)
            note = self._note(ns, parent, state, metadata.get("source", "loop"))
            if not ns:
                self.people.checks.moved()
            queued = self.run.checkpoint(
                prepared,
                note,
                lane=ns,
                meta=meta,
                overtake=free,
                guard=lambda write: self._in_order(ns, call, write),
                schema=schema,
            )
            lists = Lists(state, prepared)
            self._move(ns, _Known(checkpoint_id, state, meta, lists, schema=schema.number))
            if parent is not None:
                self._told.pop((ns, parent), None)
        return queued

    def _in_order(
        self,
        ns: str,
        call: tuple[Invocation | None, Answer | None],
        write: Callable[[], int],
    ) -> int:
        """Write a checkpoint, unless one before it was not: a child does not stand alone."""
        invocation, answer = call
        with kept_by(invocation):
            if invocation is not None:
                invocation.check()
            if answer is not None:
                answer.check()
            try:
                self.people.withdraw(self.run.journal, ns)
                return write()
            except Conflict as error:
                if self.run.store.recent(self.run.run_id) is None:
                    raise  # it was deleted, which it says itself
                raise self.overlap(ns) from error

    def _may_branch(self, ns: str, parent: str | None, source: object, *, begins: bool) -> bool:
        """Say whether a checkpoint may follow whatever is newest, though nobody chose its parent.

        Args:
            ns: its namespace.
            parent: its parent.
            source: where it comes from.
            begins: it may have no parent although there are others; no turn that found an empty
                thread may.

        Raises:
            Conflict: it may only follow its parent, and that is no longer the newest.
        """
        if source == "fork":
            return True
        if parent is None and begins:
            return True
        known = self._known.get(ns)
        newest = known.id if known is not None else None
        if newest != parent:
            found = self.run.newest(ns)
            head = stored(found.chain[-1]) if found is not None and found.chain else None
            fresh = head is not None and head.number <= self._fresh_after
            newest = head.id if head is not None and not fresh else None
        if newest != parent:
            raise self.overlap(ns)
        return False

    def overlap(self, ns: str) -> Conflict:
        """Build the error for two turns at once on one thread."""
        where = f", namespace {one_line(ns)}" if ns else ""
        return Conflict(
            f"thread {one_line(self.run.run_id)}{where}: another turn went on from the same "
            "checkpoint while this one ran. This step was not stored and what the other turn wrote "
            "stands. Invoke the graph again; on a server, let the turns of one thread queue."
        )

    def lost(self, ns: str) -> None:
        """Forget what a save that failed would have made the newest."""
        with self.lock:
            self._move(ns, None)

    def _branch(self, ns: str, parent: str | None) -> int:
        """Return the waypoint that a checkpoint branches off from; 0 where it follows the newest.

        What is told "so far" is then what was told there.
        """
        known = self._known.get(ns)
        if parent is None or (known is not None and known.id == parent):
            return 0
        found = self.index.checkpoints.get(ns, {}).get(parent)
        if found is None:
            return 0
        self._so_far[ns] = deque(_lines_of(found.record), _SO_FAR)
        return found.number

    def _begin(self, state: Mapping[str, Any]) -> None:
        if not self.run.exists:
            given = state["channel_values"].get("__start__")
            self.run.begin(_notes.untold(lambda: _notes.goal_of(given), None))

    def _note(self, ns: str, parent: str | None, state: Mapping[str, Any], source: str) -> Note:
        before = self._known.get(ns)
        known = before.state if before is not None and before.id == parent else {}
        told = self._told.get((ns, parent or ""))
        step = Step(
            source,
            state["channel_values"],
            state["channel_versions"],
            state["versions_seen"],
            known.get("versions_seen", {}),
            _notes.in_order(told.lines.values()) if told is not None else [],
            ns,
            source == "loop" and before is not None and before.id == parent and before.read,
            self._branch(ns, parent),
            _notes.tasks_in(told.lines) if told is not None else 0,
        )
        lines = self._so_far.setdefault(ns, deque(maxlen=_SO_FAR))
        silent: tuple[Note, list[str]] = (Note("A step of the graph."), [])
        note, news = _notes.untold(lambda: _notes.note_of(step, lines, self.run.goal), silent)
        lines.extend(news)
        return note

    # ------------------------------------------------------------------ pending writes

    def put_writes(
        self,
        ns: str,
        checkpoint_id: str,
        writes: Sequence[tuple[str, Any]],
        task: str,
        path: str,
        schema: Schema = FIRST,
        answer: Answer | None = None,
    ) -> tuple[Waiting, Queued | None] | None:
        """Encode the writes of a task; the next record of the thread takes them along.

        Returns:
            What waits for that; and where they ask a person, or bring an answer, what records it.
            None where all that they ask was asked before, and its answer is held back: it stays
            as it is stored.
        """
        key = (ns, checkpoint_id)
        with self._flight:
            self._flying[key] = self._flying.get(key, 0) + 1
        try:
            with self.lock:
                if not self.run.exists:
                    self.run.begin(None)  # before the checkpoint that they belong to
                known = self._known.get(ns)
                lists = known.lists if known is not None and known.id == checkpoint_id else None
                told = [
                    Write(task, path, PLACES.get(channel, place), channel, value)
                    for place, (channel, value) in enumerate(writes)
                ]
                tasks = known.state["channel_values"].get("__pregel_tasks") if known else None
                if told and self.people.repeats(ns, told, tasks):
                    return None
                data = [[channel, kept_value(channel, value, lists)] for channel, value in writes]
                meta = {"checkpoint": checkpoint_id, "task": task, "path": path}
                lines = _told_lines(told, tasks)
                say = lines.get(task, ("", ""))[1]
                waiting = self.run.entry(WRITES, data, say=say, lane=ns, meta=meta, schema=schema)
                before = self._told.setdefault(key, _Told([], {}))
                before.writes.extend(told)
                before.lines.update(lines)
                self._told.move_to_end(key)
                if len(self._told) > _MOST_TOLD:
                    self._told.popitem(last=False)
                asking = self.people.heed(ns, checkpoint_id, told, tasks, answer)
        except UnserialisableState as error:
            raise _by_channel(error, writes) from None
        finally:
            with self._flight:
                left = self._flying.pop(key, 1) - 1
                if left:
                    self._flying[key] = left
                self._flight.notify_all()
        return waiting, asking

    def take_back_answer(self, written: Piece) -> None:
        """Take back the answer of a `Command` that is written already, and was refused then.

        Args:
            written: the entry that holds it.
        """
        meta, data = written.fields["meta"], [[ANSWERED, None]]
        number = Schema(schema_of(written.fields))
        self.run.entry(WRITES, data, lane=written.lane, meta=meta, schema=number).result(
            0, sync=True
        )

    def wait_for_writes(self, ns: str, checkpoint_id: str | None) -> None:
        """Wait until the writes of a checkpoint's tasks have their place in front of its child.

        Else a crash right after the child would find tasks that seem not to have run (langgraph
        1.2.24 orders one `put` after the other, but not `put_writes`).
        """
        key = (ns, checkpoint_id or "")
        with self._flight:
            self._flight.wait_for(lambda: key not in self._flying, timeout=5)

    def pause(self, ns: str, checkpoint_id: str, kind: str) -> Queued | None:
        """Write a waypoint for a pause or an error, for which LangGraph stores no checkpoint."""
        with self.lock:
            known = self._known.get(ns)
            if known is None or known.id != checkpoint_id:
                return None
            told = self._told.get((ns, checkpoint_id))
            writes = told.writes if told is not None else []
            tasks = known.state["channel_values"].get("__pregel_tasks")
            lines = self._so_far.get(ns, ())
            # Of the tasks of one node, one may have stopped and the others be over.
            stopped = {write.task for write in writes if write.channel in (ASKED, "__error__")}
            over = told.lines.items() if told is not None else ()
            done = _notes.in_order(line for task, line in over if task not in stopped)
            stop = _notes.Stop(writes, done, tasks, lines, ns, self.run.goal)
            tell = _notes.pause_note if kind == "interrupt" else _notes.error_note
            note = _notes.untold(lambda: tell(stop), Note(f"**The graph stopped:** {kind}."))
            meta = {**known.meta, "pause": kind}
            lines = self._so_far.setdefault(ns, deque(maxlen=_SO_FAR))
            lines.append(_notes.stopped_line(note.to_json(), asked_in(writes)))
            return self.run.repeat(note, lane=ns, meta=meta)


_shared: WeakValueDictionary[tuple[object, str], Thread] = WeakValueDictionary()
_shared_lock = threading.Lock()


@cache
def _framework() -> str:
    """Return what runs are made with, as their notes say it."""
    return f"LangGraph {version('langgraph')}"


def thread_for(store: Store, run_id: str) -> Thread:
    """Return this process's one object for a thread: two savers on it see each other's steps."""
    with _shared_lock:
        found = _shared.get((store.key, run_id))
        if found is None:
            found = Thread(Pipeline(store, run_id, "langgraph", _framework()))
            _shared[(store.key, run_id)] = found
    return found


def part(store: Store, run_id: str) -> None:
    """Let the next `thread_for` begin anew: the thread was deleted."""
    with _shared_lock:
        _shared.pop((store.key, run_id), None)


def _lines_of(record: Record) -> list[str]:
    note = record.head.get("note", "")
    if is_pause(record) and isinstance(note, dict):
        asked = from_json(record.head.get("pending")).questions
        line = _notes.stopped_line(note, [question.text for question in asked])
        return [*note.get("so_far", ()), line]
    return _notes.lines_of(note)


def _told_lines(writes: list[Write], tasks: Any) -> dict[str, tuple[str, str]]:
    silent: dict[str, tuple[str, str]] = {}
    return _notes.untold(lambda: _notes.task_lines(writes, tasks), silent)


def _by_channel(
    error: UnserialisableState, writes: Sequence[tuple[str, Any]]
) -> UnserialisableState:
    """Return an error of pending writes whose path begins with the channel, not with a number."""
    found = re.match(r"\$\[(\d+)\]\[1\]", error.path)
    if found is None:
        return error
    path = f"$.{one_line(writes[int(found[1])][0])}{error.path[found.end() :]}"
    told = str(error).replace(error.path, path, 1)
    if isinstance(error, SecretFound):
        return SecretFound(told, path=path, name=error.name)
    return UnserialisableState(told, path=path)
