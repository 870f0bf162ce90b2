"""Going over a whole journal: which records count, and what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from caravanserai_core import referring
from caravanserai_core.stores.base import Bad, damage_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from caravanserai_core.errors import JournalDamaged
    from caravanserai_core.records import Record
    from caravanserai_core.stores.base import Store


def survey(store: Store, run_id: str, *, bodies: bool, start: Any = None) -> Iterator[Record | Bad]:
    """Yield the records that count, those of whole appends, in order, and what does not.

    With `start`, the place of a record, from there on. Entries are written out, see `referring`,
    where the bodies that this takes were read.

    A `Bad` that is `complete` is damage. One that is not is the unfinished end of the journal: it
    was never acknowledged, and is not there yet.
    """
    pending: list[Record] = []
    torn: Bad | None = None
    before: Record | None = None
    inside = start is not None  # the first record may stand in the middle of its append
    skipped = 0
    for item in store.scan(run_id, bodies=bodies, start=start):
        if isinstance(item, Bad):
            pending = []
            if item.complete:
                before = None  # what comes behind damage begins a chain of its own
                yield item
            else:
                torn = torn or item
            continue
        if torn is None and not pending and "app" not in item.head:
            # Nearly all records stand alone in their append: the rest of the loop is for others.
            if before is not None and not _follows(item, before):
                yield _gap(store, run_id, item)
            before = item
            yield item
            continue
        begin, count = item.app
        if inside:
            begin, skipped = item.seq, item.seq - begin
        inside = False
        out_of_place = before is not None and not _follows(item, before)
        if item.seq == begin:
            if torn is not None:
                # Another append follows: what could not be read was acknowledged.
                yield torn._replace(complete=True)
                torn = None
            elif pending or out_of_place:
                yield _gap(store, run_id, item)
            pending = []
            skipped = skipped if item.seq != item.app[0] else 0
        elif not pending or out_of_place:
            if torn is None:
                yield _gap(store, run_id, item)
            pending, before = [], item
            continue
        before = item
        pending.append(item)
        if skipped + len(pending) == count:
            yield from referring.written_out(pending)
            pending = []
    if torn is None and pending:
        torn = _gap(store, run_id, pending[0])._replace(why="its append is not whole")
    if torn is not None:
        yield torn._replace(complete=False)


def _follows(record: Record, before: Record) -> bool:
    head = record.head
    return bool(head["prev"] == before.sum and head["seq"] == before.head["seq"] + 1)


def _gap(store: Store, run_id: str, record: Record) -> Bad:
    where, offset = store.place_of(run_id, record)
    why = f"record {record.seq} does not follow what stands before it"
    return Bad(where, offset, 0, complete=True, why=why)


def records(store: Store, run_id: str, *, bodies: bool, start: Any = None) -> Iterator[Record]:
    """Yield the records of a journal that count; see `survey`.

    Raises:
        JournalDamaged: something in between is no record.
    """
    last = 0
    for item in survey(store, run_id, bodies=bodies, start=start):
        if isinstance(item, Bad):
            if item.complete:
                raise damaged(item, last)
            return
        last = item.waypoint if item.kind == "waypoint" else last
        yield item


def after(store: Store, run_id: str, record: Record, *, bodies: bool) -> list[Record] | None:
    """Return the records after one that was read before; None where it no longer stands there.

    Raises:
        JournalDamaged: something in between is no record.
    """
    found = records(store, run_id, bodies=bodies, start=record.place)
    first = next(found, None)
    if first is None or first.sum != record.sum:
        return None
    return list(found)


def damaged(bad: Bad, last: int) -> JournalDamaged:
    """Build the error for a stretch that holds no record, `last` being the waypoint before it."""
    return damage_error(bad.path, bad.offset, bad.why, last)
