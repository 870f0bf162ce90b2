"""Many states of one run at once: what they have in common is read, and held, once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from caravanserai_core import codec, patching, survey
from caravanserai_core.errors import JournalDamaged
from caravanserai_core.quoting import one_line
from caravanserai_core.records import Malformed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from caravanserai_core.records import Record
    from caravanserai_core.stores.base import Store


def rebuild_all(
    store: Store, run_id: str, heads: Mapping[int, Record], wanted: Collection[int]
) -> dict[int, Any]:
    """Rebuild the JSON trees of several waypoints in one pass over the journal.

    Args:
        store: where the run lives.
        run_id: its name.
        heads: the records of all waypoints by number; their bodies need not have been read.
        wanted: numbers of the waypoints wanted, all among `heads`.

    Returns:
        The tree of each. They share what did not change between them: change none of them.

    Raises:
        JournalDamaged: one cannot be rebuilt, or the journal was rewritten in between.
    """
    needed = _needed(heads, wanted)
    bodies = _bodies(store, run_id, needed)
    trees: dict[int, Any] = {}
    for number in sorted(needed):
        record = bodies.get(needed[number].seq)
        try:
            if record is None:
                raise Malformed("its record has gone")
            if record.full:
                trees[number] = codec.parse(record.member("state"))
            else:
                patch: Any = codec.parse(record.member("patch"))
                trees[number] = patching.applied(trees[record.head["base"]], patch)
        except (Malformed, ValueError, KeyError, TypeError) as error:
            raise JournalDamaged(
                f"waypoint {number} of run {one_line(run_id)} in {store.where(run_id)} cannot be "
                f"rebuilt: {error}. `caravanserai verify` tells which are whole.",
                path=store.where(run_id),
            ) from None
    return {number: trees[number] for number in wanted}


def _needed(heads: Mapping[int, Record], wanted: Collection[int]) -> dict[int, Record]:
    """Return the records that the wanted waypoints are rebuilt from, by number."""
    needed: dict[int, Record] = {}
    for number in wanted:
        at: int | None = number
        while at is not None and at not in needed:
            record = heads.get(at)
            if record is None:
                break  # said when its patch is applied
            needed[at] = record
            at = record.head.get("base")
    return needed


def _bodies(store: Store, run_id: str, needed: Mapping[int, Record]) -> dict[int, Record]:
    """Read the records with their bodies, by seq."""
    missing = [record for record in needed.values() if record.body is None]
    found = {record.seq: record for record in needed.values() if record.body is not None}
    if not missing:
        return found
    wanted = {record.seq: record.sum for record in missing}
    first = min(missing, key=lambda record: record.seq)
    for record in survey.records(store, run_id, bodies=True, start=first.place):
        if wanted.get(record.seq) == record.sum:
            found[record.seq] = record
            if len(found) == len(needed):
                break
    return found
