"""Which waypoints of a run stay when it is pruned.

What is newest stays, and so does what somebody or something still needs: the head of each lane,
pinned waypoints, those at which a question is open, and what an adapter's framework makes its
newest states from. The adapter says so by a function under the entry point `caravanserai.retention`
that reads records alone, so that it is right where the framework is not installed.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from caravanserai_core import points, reading
from caravanserai_core.errors import UsageError
from caravanserai_core.origins import HANDED
from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from caravanserai_core.records import Record
    from caravanserai_core.stores.base import Store

GROUP = "caravanserai.retention"
"""The entry points, named after the adapter."""


class Needs(Protocol):
    """What an adapter says of a run that is to be pruned or forked."""

    def __call__(
        self,
        records: Sequence[Record],
        heads: set[int],
        kept: set[int],
        tree: Callable[[int], Any],
        /,
    ) -> tuple[set[int], Callable[[Record], bool | None]]:
        """Say what stays: the kept waypoints, the heads of lanes, and what these need.

        Args:
            records: all records of the run, large bodies left out.
            heads: numbers of the newest waypoint of each lane. That of a lane which nothing will
                ever go on with may go.
            kept: numbers of the waypoints that stay in any case.
            tree: gives the JSON tree of a waypoint's state.

        Returns:
            The numbers of all waypoints that have to stay, and what says of an entry whether it
            stays: True, False, or None for "as the waypoint before it on its lane does".
        """
        ...


class Rules(NamedTuple):
    """What may go: only what all of these give up.

    Attributes:
        keep: how many of the newest waypoints of the main lane stay, or None.
        older_than: what is younger than this stays, or None.
    """

    keep: int | None = None
    older_than: timedelta | None = None


def rules(keep: int | None, older_than: timedelta | None) -> Rules:
    """Check what a caller wants kept.

    Raises:
        UsageError: nothing was given, or it is no such value.
    """
    if keep is None and older_than is None:
        raise UsageError("prune takes keep=, older_than= or both: what is to stay?")
    if keep is not None and (type(keep) is not int or keep < 1):
        raise UsageError(f"keep= takes a number from 1, not {one_line(repr(keep), 40)}")
    age: object = older_than
    if age is not None and not (isinstance(age, timedelta) and age >= timedelta(0)):
        raise UsageError("older_than= takes a timedelta that is not negative")
    return Rules(keep, older_than)


class Plan(NamedTuple):
    """What a pruning takes away.

    Attributes:
        going: numbers of the waypoints that go, in order.
        staying: how many stay.
        entry: says of an entry whether it stays.
    """

    going: list[int]
    staying: int
    entry: Callable[[Record], bool | None]


def plan(store: Store, run_id: str, wanted: Rules) -> Plan:
    """Decide which waypoints of a run go.

    Raises:
        RunNotFound: there is no such run.
        JournalDamaged: the journal is damaged somewhere.
    """
    found = points.records(store, run_id)
    stops = [record for record in found if record.kind == "waypoint"]
    heads = {record.lane: record.waypoint for record in stops}
    aside = points.asides(store, run_id, found)
    kept = points.pinned(aside) | points.asked(aside)
    main = [record.waypoint for record in stops if not record.lane]
    newest = set() if wanted.keep is None else set(main[-wanted.keep :])
    limit = None if wanted.older_than is None else datetime.now(UTC) - wanted.older_than
    for record in stops:
        young = limit is not None and datetime.fromisoformat(record.head["time"]) >= limit
        if young or record.waypoint in newest:
            kept.add(record.waypoint)
    kept, entry = with_needs(store, run_id, found, set(heads.values()), kept)
    numbers = [record.waypoint for record in stops]
    going = [number for number in numbers if number not in kept]
    return Plan(going, len(numbers) - len(going), entry)


def with_needs(
    store: Store, run_id: str, found: Sequence[Record], heads: set[int], kept: set[int]
) -> tuple[set[int], Callable[[Record], bool | None]]:
    """Ask the adapter of a run which waypoints and entries stay; see `Needs`."""
    needs = _needs(reading.written_by(store, run_id)) if found else None

    def tree(number: int) -> Any:
        return reading.tree_of(store.chain(run_id, number), number, store, run_id)

    if needs is None:
        return kept | heads, _unless_handed(_as_its_waypoint)
    numbers, entry = needs(found, heads, kept, tree)
    return numbers, _unless_handed(entry)


def _unless_handed(entry: Callable[[Record], bool | None]) -> Callable[[Record], bool | None]:
    """Let what a run was handed stay: each of its starts goes on from it."""

    def stays(record: Record) -> bool | None:
        handed = record.head.get("name") == HANDED and not record.waypoint
        return True if handed else entry(record)

    return stays


def _as_its_waypoint(_entry: Record) -> bool | None:
    return None


@cache
def _needs(adapter: str) -> Needs | None:
    if adapter == "python":
        return None
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP, name=adapter):
        return cast("Needs", point.load())
    return None


class Pruning:
    """Says of each record whether it stays; see `compaction.Keep`.

    It decides when it is first asked in a pass over the journal. That is when nobody else can
    write to it, so what was written or pinned a moment ago counts.
    """

    def __init__(self, store: Store, run_id: str, wanted: Rules) -> None:
        self._store = store
        self._run_id = run_id
        self._rules = wanted
        self._last = 0
        self._going: set[int] = set()
        self._entry: Callable[[Record], bool | None] = _as_its_waypoint

    def __call__(self, record: Record) -> bool | None:
        """Say whether a waypoint or an entry stays."""
        if not self._last or record.seq <= self._last:
            made = plan(self._store, self._run_id, self._rules)
            self._going, self._entry = set(made.going), made.entry
        self._last = record.seq
        if record.kind == "waypoint":
            return record.waypoint not in self._going
        return self._entry(record)


def is_due(keep: int | None, number: int) -> bool:
    """Say whether a run that keeps its newest `keep` waypoints is pruned after waypoint `number`.

    At each multiple of `keep`: a run then holds at most twice as many, the cost of a pruning is
    spread over `keep` waypoints, and nothing has to be remembered from process to process.
    """
    return keep is not None and number % keep == 0 and number >= 2 * keep
