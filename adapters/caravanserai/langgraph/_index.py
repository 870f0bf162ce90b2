"""Where the checkpoints of a thread and their pending writes stand in its journal.

Made from the heads of the records alone, and read on from where it ended. No state is decoded.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from caravanserai_core import codec, survey
from caravanserai_core.errors import JournalDamaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from caravanserai_core.records import Record
    from caravanserai_core.stores.base import Store

WRITES = "writes"
"""Name of the entries that hold pending writes."""

_SOURCES: Final = ("input", "loop", "update", "fork")
"""Where a checkpoint comes from: langgraph.checkpoint.base.CheckpointMetadata (4.3)."""

_LARGE: Final = 1 << 53

INPUT = "input"
"""Name of the entry that holds what a job was given."""


class Stored(NamedTuple):
    """A checkpoint as its record's head tells it.

    Attributes:
        number: of its waypoint.
        id: LangGraph's id of it.
        parent: id of the checkpoint before it, or None.
        metadata: LangGraph's metadata.
        fields: what else belongs to the checkpoint: `v`, `ts`.
        record: the record; its body may not have been read.
    """

    number: int
    id: str
    parent: str | None
    metadata: dict[str, Any]
    fields: dict[str, Any]
    record: Record


def head_of(
    checkpoint: Mapping[str, Any], parent: str | None, metadata: dict[str, Any]
) -> dict[str, Any]:
    """Return what stands in the head of a checkpoint's record: it is found without its state."""
    tagged, kept = False, _plain(metadata)
    if kept is None:
        encoded = codec.encode(metadata)
        tagged, kept = encoded.tagged, codec.parse(encoded.data)  # type: ignore[assignment]
    head = {
        "checkpoint": checkpoint["id"],
        "v": checkpoint["v"],
        "ts": checkpoint["ts"],
        "metadata": kept,
    }
    if parent is not None:
        head["parent"] = parent
    if tagged:
        head["tagged"] = True
    return head


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """Copy metadata that holds only what LangGraph itself puts there at most steps; else None."""
    copied: dict[str, Any] = {}
    for key, value in metadata.items():
        kind = type(value)
        plain = (
            (key == "source" and kind is str and value in _SOURCES)
            or (key == "step" and kind is int and abs(value) < _LARGE)
            or (key == "parents" and kind is dict and not value)
        )
        if not plain:
            return None
        copied[key] = {} if kind is dict else value
    return copied


def stored(record: Record) -> Stored | None:
    """Read the head of a waypoint; None where it is no checkpoint of LangGraph."""
    meta = record.head.get("meta")
    if record.kind != "waypoint" or not isinstance(meta, dict) or "checkpoint" not in meta:
        return None
    metadata: Any = meta.get("metadata") or {}
    if meta.get("tagged"):
        metadata = codec.decode_tree(copy.deepcopy(metadata))
    return Stored(
        record.waypoint,
        meta["checkpoint"],
        meta.get("parent"),
        dict(metadata),
        {key: meta[key] for key in ("v", "ts") if key in meta},
        record,
    )


def is_pause(record: Record) -> bool:
    """Say whether a waypoint repeats a checkpoint, for a pause or an error."""
    meta = record.head.get("meta")
    return isinstance(meta, dict) and "pause" in meta


class Index:
    """The checkpoints and writes of one thread."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store = store
        self._run_id = run_id
        self._clear()

    def _clear(self) -> None:
        self._last: Record | None = None
        # By namespace, then by id.
        self.checkpoints: dict[str, dict[str, Stored]] = {}
        # Namespace and id of each checkpoint that another one goes on from.
        self.parents: set[tuple[str, str]] = set()
        self.writes: dict[tuple[str, str], list[Record]] = {}
        self.waypoints: dict[int, Record] = {}
        self.input: Record | None = None

    def newest_id(self, ns: str) -> str | None:
        """Return the id of the checkpoint that was stored last in a namespace."""
        ids = self.checkpoints.get(ns)
        return max(ids.values(), key=lambda found: found.number).id if ids else None

    def catch_up(self) -> None:
        """Read what was appended since the last time.

        Raises:
            JournalDamaged: a part of the journal is damaged.
        """
        news: Iterable[Record] | None = None
        if self._last is not None:
            try:
                news = survey.after(self._store, self._run_id, self._last, bodies=False)
            except JournalDamaged:
                news = None  # a compaction moved what stood there; else it is found below
        if news is None:
            self._clear()
            news = survey.records(self._store, self._run_id, bodies=False)
        for record in news:
            self._take_in(record)

    def _take_in(self, record: Record) -> None:
        self._last = record
        if record.kind == "waypoint":
            self.waypoints[record.waypoint] = record
            found = stored(record)
            if found is not None and not is_pause(record):
                self.checkpoints.setdefault(record.lane, {})[found.id] = found
                if found.parent is not None:
                    self.parents.add((record.lane, found.parent))
        elif record.kind == "entry" and record.head.get("name") == WRITES:
            meta = record.head.get("meta") or {}
            self.writes.setdefault((record.lane, meta.get("checkpoint", "")), []).append(record)
        elif record.kind == "entry" and record.head.get("name") == INPUT:
            self.input = record
