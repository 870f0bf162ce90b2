"""Mending a damaged journal: what still loads is kept, what does not is named and set aside.

A writer never writes over damage. This does, because somebody asked for it: the records that are
whole become a journal of their own, and the damaged segments stay beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai_core import codec, compaction, journal, patching, reading, referring, survey
from caravanserai_core.opening import open_body
from caravanserai_core.records import Malformed, Record
from caravanserai_core.stores.base import Bad, Sealed, Tail
from caravanserai_core.verify import verify

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from caravanserai_core.stores.base import Store

_FAR = 100
"""Notes that may be missing in a row before no later one is looked for."""


_SMALLEST = 100
"""Bytes; no record is smaller."""


class Repaired(NamedTuple):
    """What `repair` did.

    Attributes:
        run_id: the run.
        damaged: whether there was anything to repair; if not, nothing was changed.
        kept: numbers of the waypoints that load.
        lost: numbers of those that are known to have been there and do not.
        aside: where the damaged segments are now.
        others: how many further records are missing, as far as that can be told: entries, results
            of steps, questions, answers, pins, or what only the journal needs.
    """

    run_id: str
    damaged: bool
    kept: list[int]
    lost: list[int]
    aside: list[str]
    others: int = 0


def repair(store: Store, run_id: str) -> Repaired:
    """Make a damaged run whole again without what is damaged.

    Every waypoint that still loads is kept, and every entry that is whole, what it shares with a
    waypoint included. Numbers are not given
    again, also not those of lost waypoints. Notes of lost waypoints stay where they are.

    Raises:
        RunNotFound: there is no such run.
        JournalDamaged: the folder holds another run; nothing was changed.
        NewerFormat: it was written by a newer version; nothing was changed.
        StoreFailed, StoreBusy, StoreRefused: nothing was changed.
    """
    report = verify(store, run_id)
    damage = [finding for finding in report.findings if finding.level == "damage"]
    if not damage:
        return Repaired(run_id, damaged=False, kept=[], lost=[], aside=[])
    found: _Found | None = None

    def seal(items: Iterator[Record | Bad]) -> Sealed:
        nonlocal found
        found = _Found(store, run_id, items)
        return found.sealed()

    aside = store.mend(run_id, seal, {finding.where for finding in damage})
    journal.forget(store, run_id)
    assert found is not None, "the store mended a journal and did not ask for the new one"
    lost = found.lost()
    return Repaired(run_id, True, sorted(found.kept), lost, aside, found.others(lost))


class _Found:
    """What is whole of a damaged run.

    Attributes:
        kept: numbers of the waypoints that load.
    """

    def __init__(self, store: Store, run_id: str, items: Iterator[Record | Bad]) -> None:
        self._store = store
        self._run_id = run_id
        # What stands behind the last whole record.
        self._behind: list[Bad] = []
        found = _in_order(_whole(store, run_id, self._watched(items)))
        records = referring.written_out(found)
        self._records = [record for record in records if not referring.refers(record)]
        for record in self._records:
            if record.kind == "open":
                reading.opening(record, run_id)  # of this run, and of a version known here
        self._points = {r.waypoint: r for r in self._records if r.kind == "waypoint"}
        self.kept = _loading(self._records, self._points)
        self._newest = self._highest()

    def _watched(self, items: Iterator[Record | Bad]) -> Iterator[Record | Bad]:
        for item in items:
            if not isinstance(item, Bad):
                self._behind = []
            elif item.complete:
                self._behind.append(item)
            yield item

    def _highest(self) -> int:
        """Return the highest number of a waypoint that anything here tells of."""
        newest = max((record.waypoint for record in self._records), default=0)
        number = newest
        while number < newest + _FAR:
            number += 1
            if self._store.get_note(self._run_id, f"waypoint-{number}.md") is not None:
                newest = number
        return newest

    def lost(self) -> list[int]:
        """Return the numbers of waypoints that were there and do not load."""
        old = self._store.legacy(self._run_id)
        first = 1 if old is None else old.number + 1
        return [
            number
            for number in range(first, self._newest + 1)
            if number not in self.kept
            and (
                number in self._points
                or self._store.get_note(self._run_id, f"waypoint-{number}.md") is not None
            )
        ]

    def others(self, lost: list[int]) -> int:
        """Return how many records are missing beside those of lost waypoints, at least."""
        missing = len(self._behind)
        if self._records:
            first, last = self._records[0], self._records[-1]
            missing += last.seq - first.seq + 1 - len(self._records) + (first.kind != "open")
        return max(0, missing - sum(number not in self._points for number in lost))

    def sealed(self) -> Sealed:
        """Seal what is whole as a journal behind the last record that is."""
        openings = [record for record in self._records if record.kind == "open"]
        generation = max((compaction.generation(record) for record in openings), default=1)
        run = compaction.identity(openings[0]) if openings else None
        body = openings[0].body if openings else open_body(self._run_id, "python", None, None)
        last = max(self._records, key=lambda record: record.seq, default=None)
        tail = None
        if last is not None:
            epoch = max(record.head.get("epoch", 1) for record in self._records)
            # Takeovers may have stood behind it: whoever was taken over stays so.
            epoch += sum(1 + bad.size // _SMALLEST for bad in self._behind)
            tail = Tail(last.seq, last.sum, epoch, rolled=False, token=None)
        opened = compaction.Opened(generation + 1, run, body)
        return compaction.rewrite(
            self._store,
            self._run_id,
            lambda record: record.waypoint in self.kept if record.kind == "waypoint" else True,
            tail,
            opened,
            items=self._records,
            newest=self._newest,
            chain=lambda number: _chain(self._points, number),
        ).sealed


def _whole(store: Store, run_id: str, items: Iterator[Record | Bad]) -> Iterator[Record]:
    """Yield the records that are whole, but for those of an append that never was."""
    torn: Bad | None = None
    for item in survey.survey(store, run_id, bodies=False):
        torn = item if isinstance(item, Bad) and not item.complete else None
    for item in items:
        if isinstance(item, Bad):
            continue
        if torn is not None:
            where, offset = store.place_of(run_id, item)
            if where == torn.path and offset >= torn.offset:
                return
        yield item


def _in_order(found: Iterable[Record]) -> list[Record]:
    """Return records in the order of their numbers, each number once, each waypoint once."""
    by_seq: dict[int, Record] = {}
    for record in found:
        by_seq.setdefault(record.seq, record)
    points: set[int] = set()
    records: list[Record] = []
    for _, record in sorted(by_seq.items()):
        if record.kind == "waypoint":
            if record.waypoint in points:
                continue
            points.add(record.waypoint)
        records.append(record)
    return records


def _loading(records: list[Record], points: dict[int, Record]) -> set[int]:
    """Return the numbers of the waypoints that can be rebuilt."""
    kept: set[int] = set()
    # By lane: the newest state, and whose it is.
    trees: dict[str, tuple[int, Any]] = {}
    for record in records:
        if record.kind != "waypoint":
            continue
        number, base = record.waypoint, record.head.get("base")
        if not record.full and base not in kept:
            continue
        try:
            if record.full:
                tree = codec.parse(record.member("state"))
            elif trees.get(record.lane, (0, None))[0] == base:
                patch: Any = codec.parse(record.member("patch"))
                tree = patching.apply(trees[record.lane][1], patch)
            else:
                tree = reading.rebuild(_chain(points, number), number)
        except (Malformed, ValueError, KeyError, TypeError):
            trees.pop(record.lane, None)
            continue
        kept.add(number)
        trees[record.lane] = (number, tree)
    return kept


def _chain(points: dict[int, Record], number: int) -> list[Record]:
    """Return the records that a waypoint is rebuilt from, as `Store.chain` does."""
    chain: list[Record] = []
    at: int | None = number
    while at in points and len(chain) <= len(points):
        chain.append(points[at])
        at = points[at].head.get("base")
    return chain[::-1]
