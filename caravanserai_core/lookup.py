"""Finding what somebody names: a run, one of its waypoints, and all that is recorded of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from caravanserai_core import codec, listing, reading, survey
from caravanserai_core.errors import (
    JournalDamaged,
    NewerFormat,
    RunNotFound,
    UsageError,
    WaypointNotFound,
)
from caravanserai_core.origins import HANDED
from caravanserai_core.quoting import one_line, visible
from caravanserai_core.reading import Opening, Waypoint
from caravanserai_core.records import Record
from caravanserai_core.stores.base import Bad

if TYPE_CHECKING:
    from caravanserai_core.stores.base import Store

__all__ = [
    "Named",
    "Trail",
    "exists",
    "find",
    "goal",
    "handed_to",
    "meant",
    "number_at",
    "opening",
    "origin",
    "origin_text",
    "raw_state",
    "split",
    "state_tree",
    "trail",
    "waypoint",
]

_AT: Final = re.compile(r"(?s)(.+)@(-?[0-9]{1,9})")
_WHOLE: Final = 1 << 30
_SHOWN: Final = 12
"""Most candidates that an ambiguous beginning lists."""
_MEANT: Final = 3


class Named(NamedTuple):
    """What a person named.

    Attributes:
        run_id: the run.
        at: a waypoint's number, a negative one counted from the end, or None for the newest.
    """

    run_id: str
    at: int | None


def find(store: Store, text: str, *, prefix: bool = True) -> Named:
    """Find the run, and the waypoint of it, that `text` names.

    An exact name wins, then `NAME@N`, then the beginning of a name.

    Args:
        store: where to look.
        text: what was typed.
        prefix: whether the beginning of a name will do; not for verbs that change something.

    Raises:
        RunNotFound: nothing has that name.
        UsageError: several names begin like that.
    """
    wanted = dict.fromkeys((Named(text, None), split(text)))
    for named in wanted:
        if named.run_id == "@-":
            return Named(_newest(store), named.at)
        if exists(store, named.run_id):
            return named
    if prefix:
        names = [info.run_id for info in listing.runs(store)]
        for named in wanted:
            found = sorted({name for name in names if name.startswith(named.run_id)})
            if len(found) == 1:
                return Named(found[0], named.at)
            if found:
                raise UsageError(_ambiguous(named.run_id, found))
    raise RunNotFound(
        f"no run {one_line(text, 200)!r} in the store {visible(store.name)}. {meant(store, text)}"
        "`caravanserai list` shows the runs there; --store or CARAVANSERAI_STORE names another "
        "store."
    )


def split(text: str) -> Named:
    """Read `NAME@N`, whether or not there is a run called so as a whole."""
    match = _AT.fullmatch(text)
    return Named(text, None) if match is None else Named(match[1], int(match[2]))


def meant(store: Store, text: str) -> str:
    """Return `Did you mean …? ` with the names of runs that are like what was typed, or nothing."""
    from difflib import get_close_matches

    name = split(text).run_id
    names = [info.run_id for info in listing.runs(store)]
    found = [other for other in names if other.startswith(name)]
    found = list(dict.fromkeys(found + get_close_matches(name, names, n=_MEANT)))[:_MEANT]
    return f"Did you mean {' or '.join(one_line(other, 80) for other in found)}? " if found else ""


def exists(store: Store, run_id: str) -> bool:
    """Say whether the store holds a run of exactly this name, whole or damaged."""
    try:
        return store.recent(run_id) is not None or store.legacy(run_id) is not None
    except (JournalDamaged, NewerFormat):
        return True


def _newest(store: Store) -> str:
    for info in listing.runs(store):
        return info.run_id
    raise RunNotFound(f"no runs yet in the store {visible(store.name)}")


def _ambiguous(text: str, found: list[str]) -> str:
    shown = ", ".join(one_line(name, 80) for name in found[:_SHOWN])
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return (
        f"{len(found)} runs begin with {one_line(text, 80)!r}: {shown}{more}. "
        "Give more of the name."
    )


class Trail(NamedTuple):
    """All that is recorded of a run, without states.

    Attributes:
        records: the whole records in order; empty for a run of release 0.2.0.
        damage: what is wrong with the journal, a sentence or two each.
        status: new, running, stopped, failed, finished or damaged.
    """

    records: list[Record]
    damage: list[str]
    status: str

    def since(self, waypoint: int) -> list[Record]:
        """Return what was recorded after a waypoint; nothing, if its lane has a newer one."""
        start: int | None = None if waypoint else 0
        lane = ""
        for index, record in enumerate(self.records):
            if record.kind != "waypoint":
                continue
            if record.waypoint == waypoint:
                start, lane = index + 1, record.lane
            elif start is not None and record.lane == lane:
                return []
        return [] if start is None else self.records[start:]


def trail(store: Store, run_id: str) -> Trail:
    """Read everything that is recorded of a run; damage does not hide what lies behind it.

    Raises:
        RunNotFound: there is no such run.
        NewerFormat: it was written by a newer version.
    """
    records: list[Record] = []
    damage: list[str] = []
    last = 0
    for item in survey.survey(store, run_id, bodies=False):
        if isinstance(item, Bad):
            if item.complete:
                damage.append(str(survey.damaged(item, last)))
        else:
            records.append(item)
            last = item.waypoint
    try:
        found = reading.recent(store, run_id)
    except JournalDamaged as error:
        damage = damage or [str(error)]
    else:
        if found is None and store.legacy(run_id) is None:
            raise reading.not_found(store, run_id)
    latest = records[-1] if records else None
    status = listing.DAMAGED if damage else listing.status_now(store, run_id, latest)
    if not records and not damage:
        status = listing.STOPPED if store.legacy(run_id) is not None else listing.NEW
    return Trail(records, damage, status)


def numbers(store: Store, run_id: str, records: list[Record]) -> list[int]:
    """Return the numbers of the main lane's waypoints, else of all, oldest first."""
    points = [(r.waypoint, r.lane) for r in records if r.kind == "waypoint"]
    old = store.legacy(run_id)
    if old is not None:
        first = min(points[0][0] if points else old.number + 1, old.number + 1)
        points = [(n, "") for n in range(1, first)] + points
    return [n for n, lane in points if not lane] or [n for n, _ in points]


def number_at(store: Store, named: Named, known: Trail) -> int:
    """Return the waypoint that was named; 0 where the newest is wanted and there is none.

    Raises:
        WaypointNotFound: there are not as many.
        JournalDamaged: the newest is wanted and the end of the journal is damaged.
    """
    run_id, at = named
    if at is not None and at > 0:
        return at
    if known.damage:
        reading.recent(store, run_id)  # raises where the newest one cannot be told
    points = numbers(store, run_id, known.records)
    if at is None:
        return points[-1] if points else 0
    if at == 0 or -at > len(points):
        raise WaypointNotFound(
            f"run {one_line(run_id, _WHOLE)} has {len(points)} waypoints; @{at} is not one of them."
        )
    return points[at]


def waypoint(store: Store, run_id: str, number: int, known: Trail) -> Waypoint:
    """Return a waypoint by its number, also where what it builds on is damaged.

    Raises:
        WaypointNotFound: the run has no such waypoint.
    """
    for record in known.records:
        if record.kind == "waypoint" and record.waypoint == number:
            adapter = reading.written_by(store, run_id)
            told = goal(store, run_id)
            return Waypoint(record, adapter, lambda at: reading.load(store, run_id, at), told)
    return reading.waypoint(store, run_id, number)


def opening(store: Store, run_id: str) -> Opening | None:
    """Return what the `open` record of a run says, or None where there is none."""
    for item in store.scan(run_id, bodies=True):
        if isinstance(item, Record) and item.kind == "open":
            return reading.opening(item)
    return None


def goal(store: Store, run_id: str) -> str | None:
    """Return what a run is for, or None."""
    found = opening(store, run_id)
    text: Any = None if found is None else found.goal
    return text if isinstance(text, str) and text else None


def origin(store: Store, run_id: str) -> dict[str, Any] | None:
    """Return where a run was copied or forked from, or what it goes on from, or None."""
    found = opening(store, run_id)
    return None if found is None else found.origin


def handed_to(store: Store, run_id: str) -> str:
    """Say which runs go on from one, `handed over to pier (finished)`; nothing, if none does."""
    found = [
        f"{one_line(info.run_id, 100)} ({info.status})"
        for info in listing.runs(store)
        if (info.origin or {}).get("how") == HANDED and (info.origin or {}).get("run_id") == run_id
    ]
    return f"handed over to {', '.join(found)}" if found else ""


def origin_text(origin: dict[str, Any] | None) -> str:
    """Say where a run comes from, `fork of parent@3`; nothing, if it is nobody's copy."""
    name = one_line(str((origin or {}).get("run_id", "")), _WHOLE)
    if origin is None or not name:
        return ""
    if origin.get("how") == HANDED:
        return f"goes on from {name}@{origin.get('waypoint', 0)}"
    return f"fork of {name}@{origin['waypoint']}" if "waypoint" in origin else f"copy of {name}"


def raw_state(store: Store, run_id: str, number: int) -> Any:
    """Return the state of a waypoint as its JSON tree, tags and all, without anybody's types."""
    return reading.load(store, run_id, number, raw=True)


def state_tree(store: Store, run_id: str, number: int) -> tuple[Any, bool]:
    """Return the same, and whether it may hold tags."""
    chain = store.chain(run_id, number)
    if not chain:  # written by release 0.2.0, which had none, or not there
        return raw_state(store, run_id, number), False
    tree = codec.unshare(
        reading.tree_of(chain, number, store, run_id), reading.shared_in(chain, number)
    )
    return tree, any(record.head.get("tagged") for record in chain)
