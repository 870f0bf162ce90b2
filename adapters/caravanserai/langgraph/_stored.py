"""One thread of LangGraph as it stands in its journal."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai.langgraph import _migrating
from caravanserai.langgraph._index import WRITES, Index, Stored
from caravanserai.langgraph._notes import PLACES, Write
from caravanserai.langgraph._renaming import Around
from caravanserai_core import reading, referring, schema, survey
from caravanserai_core.errors import JournalDamaged
from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from caravanserai.langgraph._refusing import Late
    from caravanserai_core.pipeline import Pipeline
    from caravanserai_core.records import Record
    from caravanserai_core.schema import Schema


class Loaded(NamedTuple):
    """A checkpoint with its state and pending writes, in the schema of the program.

    Attributes:
        stored: what its record's head tells.
        state: channel values, versions, and so on.
        writes: its pending writes, in LangGraph's order.
        recorded: the state as it is stored.
        questions: ids of questions by those they were asked under, where tasks have new names.
        late: what a `Command` at it is refused for; None: for nothing that is known yet.
    """

    stored: Stored
    state: dict[str, Any]
    writes: list[Write]
    recorded: dict[str, Any]
    questions: Mapping[str, str]
    late: Late | None = None


class StoredThread:
    """A thread: a run whose lanes are the checkpoint namespaces.

    Attributes:
        run: the run.
        lock: held while what is known of the thread changes.
        index: where its checkpoints and writes stand.
    """

    def __init__(self, run: Pipeline) -> None:
        self.run = run
        self.lock = threading.RLock()
        self.index = Index(run.store, run.run_id)

    def at(self, ns: str, checkpoint_id: str, wanted: Schema = schema.FIRST) -> Loaded | None:
        """Read a checkpoint by its id; from there the thread may branch.

        Args:
            ns: its namespace.
            checkpoint_id: its id.
            wanted: what the program declares of its states.

        Raises:
            SchemaMismatch: see `loaded`.
        """
        with self.lock:
            self.index.catch_up()
            head = self.index.checkpoints.get(ns, {}).get(checkpoint_id)
            if head is None:
                return None
            chain = self.run.store.chain(self.run.run_id, head.number)
            records = self.records_of(ns, checkpoint_id)
        if not chain:
            return None
        return self.loaded(ns, head, self._decoder(chain), records, wanted)

    def loaded(
        self,
        ns: str,
        head: Stored,
        decode: Callable[[bool], dict[str, Any]],
        records: Iterable[Record],
        wanted: Schema,
    ) -> Loaded:
        """Return a checkpoint in the schema of the program.

        Args:
            ns: its namespace.
            head: its head.
            decode: decodes its state, anew each time; leniently if it is given True.
            records: its pending writes, perhaps among other records.
            wanted: what the program declares of its states.

        Raises:
            SchemaMismatch: no way leads there from the schema of the checkpoint or of a write.
        """
        mine = [record for record in records if _belongs(record, ns, head.id)]
        found = {schema.schema_of(record.head) for record in (head.record, *mine)}
        where = _migrating.place(self.run.run_id, ns, head.id)
        for number in sorted(found):
            if number != wanted.number:
                schema.check(number, wanted, where)
        older = min(found) < wanted.number
        recorded = decode(older)
        writes = _writes(mine, recorded, lenient=older)
        if not older:
            return Loaded(head, recorded, _migrating.ordered(writes), recorded, {})
        # Decoded once more: the steps may change it, and the writes refer to what is stored.
        state = decode(True)
        around = self._around(ns, head, wanted)
        led = _migrating.lead(head, state, writes, ns, around, wanted, where)
        return Loaded(led.stored, led.state, led.writes, recorded, led.questions)

    def _around(self, ns: str, head: Stored, wanted: Schema) -> Around:
        with self.lock:
            self.index.catch_up()
            inner = _migrating.inner_of(self.index, ns, head.id)
            superseded = (ns, head.id) in self.index.parents
            newest = {lane: self.index.newest_id(lane) for lane in inner.lanes}
        questions: dict[str, str] = {}
        if not superseded:
            for lane, checkpoint_id in newest.items():
                found = self.at(lane, checkpoint_id or "", wanted)
                questions.update(found.questions if found is not None else {})
        return Around(
            head.id,
            head.metadata.get("step", -1) + 1,
            list(inner.lanes.values()),
            inner.lasting,
            questions,
            superseded=superseded,
        )

    def _decoder(self, chain: list[Record]) -> Callable[[bool], dict[str, Any]]:
        def decode(lenient: bool) -> dict[str, Any]:
            run, number = self.run, chain[-1].waypoint
            state = reading.decode(chain, number, run.store, run.run_id, lenient=lenient)
            if type(state) is not dict:
                raise JournalDamaged(f"waypoint {number} holds no checkpoint of LangGraph")
            return state

        return decode

    def records_of(self, ns: str, checkpoint_id: str) -> list[Record]:
        """Return the entries of a checkpoint with their bodies."""
        with self.lock:
            self.index.catch_up()
            return self.indexed(ns, checkpoint_id)

    def indexed(self, ns: str, checkpoint_id: str) -> list[Record]:
        """Return the same, where the index is current."""
        found = list(self.index.writes.get((ns, checkpoint_id), ()))
        return [
            self._whole(record) if record.body is None or referring.refers(record) else record
            for record in found
        ]

    def _whole(self, record: Record) -> Record:
        run = self.run
        whole = next(survey.records(run.store, run.run_id, bodies=True, start=record.place), None)
        if whole is None or whole.sum != record.sum:
            raise JournalDamaged(f"record {record.seq} of {one_line(run.run_id)} has gone")
        return whole


def _belongs(record: Record, ns: str, checkpoint_id: str) -> bool:
    """Say whether a record holds pending writes of a checkpoint."""
    meta = record.head.get("meta") or {}
    return (
        record.kind == "entry"
        and record.head.get("name") == WRITES
        and record.lane == ns
        and meta.get("checkpoint") == checkpoint_id
    )


def _writes(records: list[Record], state: dict[str, Any], *, lenient: bool) -> list[Write]:
    """Decode pending writes; what they share stands in the state."""
    found: list[Write] = []
    for record in records:
        meta = record.head["meta"]
        task, path, number = meta["task"], meta.get("path", ""), schema.schema_of(record.head)
        data: Any = reading.data_of(record, state, lenient=lenient)
        for place, (channel, value) in enumerate(data):
            index = PLACES.get(channel, place)
            found.append(Write(task, path, index, channel, value, number))
    return found
