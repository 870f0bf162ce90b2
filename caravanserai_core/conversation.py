"""The conversation of a run, whatever framework it is of: what a different agent goes on from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from caravanserai_core import codec, points, reading, survey
from caravanserai_core.errors import UsageError
from caravanserai_core.homes import store_for
from caravanserai_core.journal import journal_for
from caravanserai_core.names import check_run_id
from caravanserai_core.quoting import one_line
from caravanserai_core.transcript import GROUP, Transcript, find

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from caravanserai_core.homes import StoreLike
    from caravanserai_core.stores.base import Store

__all__ = ["read"]


def read(run_id: str, *, at: int | None = None, store: StoreLike = None) -> Transcript:
    """Return the conversation of a run up to a waypoint, without the framework that had it.

    An adapter whose states hold no copy of the conversation says so: its function has an attribute
    `entries`, the name of the journal's entries that hold it, and takes them as a second argument.

    Args:
        run_id: the run's name.
        at: a waypoint's number, or a negative one counted from the end; None for the newest of
            the main lane.
        store: as in `caravanserai.checkpoint`.

    Raises:
        RunNotFound: there is no such run in the store.
        WaypointNotFound: the run has no such waypoint.
        JournalDamaged, NewerFormat: the journal cannot be read.
        UsageError: nothing that is installed reads a conversation from such a run. A plain run
            has none that could be known: its state is the program's own.
    """
    run_id = check_run_id(run_id)
    if at is not None and type(at) is not int:
        raise UsageError(f"at= takes a waypoint's number, an int, not {type(at).__name__}")
    found = store_for(run_id, store)
    # What this process has queued for the run is written first.
    turns = journal_for(found, run_id).turns
    return cast("Transcript", turns.do(lambda: _read(found, run_id, at)))


def _read(store: Store, run_id: str, at: int | None) -> Transcript:
    number = None if at is None else points.resolve(store, run_id, at)
    tree = reading.load(store, run_id, number, raw=True)
    adapter = reading.written_by(store, run_id)
    told: Callable[..., Transcript] | None = find(adapter)
    if told is None:
        raise UsageError(
            f"no conversation can be read from run {one_line(run_id)}: it was written by "
            f"{one_line(adapter)!r}, and no installed package has an entry point of that name in "
            f"the group {GROUP}."
        )
    name = getattr(told, "entries", None)
    if name is None:
        return told(tree)
    if number is None:
        chain = reading.newest(store, run_id)
        number = chain[-1].waypoint if chain else 0
    return told(tree, list(_entries(store, run_id, name, number)))


def _entries(store: Store, run_id: str, name: str, waypoint: int) -> Iterator[Any]:
    """Yield the raw data of the entries of a name that stand in front of a waypoint."""
    for record in survey.records(store, run_id, bodies=True):
        if record.kind == "waypoint" and record.waypoint == waypoint:
            return
        if record.kind == "entry" and record.head.get("name") == name:
            yield codec.parse(record.member("data"))
