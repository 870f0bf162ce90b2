"""One thread of LangGraph as it stands in its journal."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from caravanserai.langgraph._index import WRITES, Index, Stored
from caravanserai.langgraph._notes import Write
from caravanserai_core import reading
from caravanserai_core.errors import JournalDamaged
from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from caravanserai_core.pipeline import Pipeline
    from caravanserai_core.records import Record

# langgraph.checkpoint.base.WRITES_IDX_MAP (4.3): these have places of their own.
PLACES: Final = {"__error__": -1, "__scheduled__": -2, "__interrupt__": -3, "__resume__": -4}


class Loaded(NamedTuple):
    """A checkpoint with its state and pending writes.

    Attributes:
        stored: what its record's head tells.
        state: channel values, versions, and so on.
        writes: its pending writes, in LangGraph's order.
    """

    stored: Stored
    state: dict[str, Any]
    writes: list[Write]


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

    def at(self, ns: str, checkpoint_id: str) -> Loaded | None:
        """Read a checkpoint by its id; from there the thread may branch."""
        with self.lock:
            self.index.catch_up()
            head = self.index.checkpoints.get(ns, {}).get(checkpoint_id)
            if head is None:
                return None
            chain = self.run.store.chain(self.run.run_id, head.number)
            records = self._records_of(ns, checkpoint_id)
        if not chain:
            return None
        state = self._decode(chain, chain[-1])
        return Loaded(head, state, self._writes(records, checkpoint_id, ns, state))

    def writes_of(self, ns: str, checkpoint_id: str, state: dict[str, Any]) -> list[Write]:
        """Read the pending writes of a checkpoint whose state is at hand; the index is current."""
        return self._writes(self._indexed(ns, checkpoint_id), checkpoint_id, ns, state)

    def _decode(self, chain: list[Record], record: Record) -> dict[str, Any]:
        run = self.run
        state = reading.decode(chain, record.waypoint, run.store, run.run_id)
        if type(state) is not dict:
            raise JournalDamaged(f"waypoint {record.waypoint} holds no checkpoint of LangGraph")
        return state

    def _records_of(self, ns: str, checkpoint_id: str) -> list[Record]:
        """Return the entries of a checkpoint with their bodies."""
        with self.lock:
            self.index.catch_up()
            return self._indexed(ns, checkpoint_id)

    def _indexed(self, ns: str, checkpoint_id: str) -> list[Record]:
        found = list(self.index.writes.get((ns, checkpoint_id), ()))
        return [record if record.body is not None else self._whole(record) for record in found]

    def _whole(self, record: Record) -> Record:
        read = self.run.store.scan(self.run.run_id, bodies=True, start=record.place)
        whole = next(iter(read), None)
        if whole is None or getattr(whole, "sum", "") != record.sum:
            raise JournalDamaged(f"record {record.seq} of {one_line(self.run.run_id)} has gone")
        return whole  # type: ignore[return-value]

    def _writes(
        self, records: Iterable[Record], checkpoint_id: str, ns: str, state: dict[str, Any]
    ) -> list[Write]:
        """Decode pending writes: the first of a place counts, of LangGraph's own the last."""
        found: dict[tuple[str, int], Write] = {}
        for record in records:
            meta = record.head.get("meta") or {}
            if (
                record.kind != "entry"
                or record.head.get("name") != WRITES
                or record.lane != ns
                or meta.get("checkpoint") != checkpoint_id
            ):
                continue
            task, path = meta["task"], meta.get("path", "")
            data: Any = reading.data_of(record, state)
            for place, (channel, value) in enumerate(data):
                index = PLACES.get(channel, place)
                if index < 0 or (task, index) not in found:
                    found[(task, index)] = Write(task, path, index, channel, value)
        # langgraph.checkpoint.base.writes_sort_key
        return sorted(found.values(), key=lambda w: (w.path, w.task, w.place))
