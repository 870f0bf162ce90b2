"""Reading runs: the newest state, any earlier one, the list of waypoints, the list of runs.

Nothing here writes, takes a lock, or remembers anything between two calls.
"""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from caravanserai_core import codec, delta
from caravanserai_core.errors import (
    JournalDamaged,
    NewerFormat,
    RunNotFound,
    SchemaMismatch,
    UnknownType,
    WaypointNotFound,
)
from caravanserai_core.notes import Note
from caravanserai_core.quoting import one_line
from caravanserai_core.records import FORMAT, Malformed, Record
from caravanserai_core.stores.base import Bad, damage_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from caravanserai_core.stores.base import Recent, Store

NEW, STOPPED, FAILED, FINISHED, DAMAGED = "new", "stopped", "failed", "finished", "damaged"


class Waypoint:
    """A stop of a run, as it was left.

    Attributes:
        number: its number in the run, from 1.
        note: what happened and what is next; `str(note)` is its summary.
        time: when it was written (aware, UTC).
        parent: number of the waypoint before it on its lane, or None.
        lane: the line of waypoints it is on; the main one is "".
        adapter: what wrote the run: "python", "langgraph", …
        by: nonce of the writer; it differs for each process.
    """

    __slots__ = ("_read", "_time", "_tree", "adapter", "by", "lane", "number", "parent")

    def __init__(
        self,
        record: Record,
        adapter: str,
        read: Callable[[int], Any],
    ) -> None:
        head = record.head
        self.number: int = head["waypoint"]
        self._tree = head.get("note", "")
        self._time: str = head["time"]
        self.parent: int | None = head.get("parent")
        self.lane: str = head.get("lane", "")
        self.by: str = head.get("by", "")
        self.adapter = adapter
        self._read = read

    @property
    def note(self) -> Note:
        """What happened and what is next."""
        return Note.from_json(self._tree)

    @property
    def time(self) -> datetime:
        """When it was written: aware, in UTC."""
        return datetime.fromisoformat(self._time)

    @property
    def state(self) -> Any:
        """The exact state; read from the store each time it is asked for.

        Raises:
            WaypointNotFound: the waypoint has no state (release 0.2.0 kept only the last one).
            JournalDamaged: it cannot be rebuilt.
        """
        return self._read(self.number)

    def __repr__(self) -> str:
        return f"<Waypoint {self.number}: {one_line(str(self.note), 60)}>"


class RunInfo(NamedTuple):
    """One line of a list of runs.

    Attributes:
        run_id: the run's exact name; its folder's name where that cannot be read.
        status: new, stopped, failed, finished or damaged.
        waypoints: number of its newest waypoint.
        updated: when its last record was written, or None.
        adapter: what wrote it.
        folder: name of its folder in the store.
        error: what is wrong with it, or None.
    """

    run_id: str
    status: str
    waypoints: int
    updated: datetime | None
    adapter: str
    folder: str
    error: str | None


class Opening(NamedTuple):
    """What the first record of a run says about it.

    Attributes:
        run_id: the exact name.
        adapter: what wrote it.
        goal: what it is for, or None.
        argv: the command that started it.
        folder: the working folder of that command.
        imported: what release 0.2.0 had left, `{"from", "waypoints", "folder"}`, or None.
    """

    run_id: str
    adapter: str
    goal: str | None
    argv: list[str]
    folder: str
    imported: dict[str, Any] | None


def opening(record: Record, run_id: str | None = None) -> Opening:
    """Read an `open` record.

    Raises:
        NewerFormat: it was written by a newer major format.
        JournalDamaged: it belongs to another run, or is no open record.
    """
    version = record.head.get("format")
    if type(version) is not int or record.kind != "open":
        raise JournalDamaged("a journal does not begin with an open record", offset=0)
    if version > FORMAT:
        raise NewerFormat(
            f"this run was written in journal format {version}; this version of caravanserai reads "
            f"up to {FORMAT}. Upgrade it: pip install --upgrade caravanserai"
        )
    try:
        data: Any = codec.decode_tree(record.data())
        found = Opening(
            data["run_id"],
            data.get("adapter", "python"),
            data.get("goal"),
            data.get("argv") or [],
            data.get("cwd") or "",
            data.get("imported"),
        )
    except (Malformed, KeyError, TypeError, AttributeError) as error:
        raise JournalDamaged(f"an open record cannot be read: {error!r}", offset=0) from None
    if run_id is not None and found.run_id != run_id:
        raise JournalDamaged(
            f"the folder of run {one_line(run_id)} holds the run {one_line(found.run_id)}. Was it "
            "copied or renamed? Give it its own name back.",
            offset=0,
        )
    return found


def rebuild(chain: list[Record], number: int) -> Any:
    """Rebuild the JSON tree of waypoint `number` from its chain of records.

    Args:
        chain: records with bodies; the full one and all between it and the waypoint. Records
            of other lanes and kinds may stand in between.
        number: the waypoint wanted.

    Raises:
        Malformed: the chain does not lead there.
    """
    first, *steps = path(chain, number)
    tree = codec.parse(first.member("state"))
    if steps:
        patches: Any = codec.parse(b"[%b]" % b",".join([step.member("patch") for step in steps]))
        for patch in patches:
            tree = delta.apply(tree, patch)
    return tree


def path(chain: list[Record], number: int) -> list[Record]:
    """Return the records that waypoint `number` is rebuilt from, the full one first.

    Raises:
        Malformed: the chain does not lead there.
    """
    if (
        chain
        and chain[0].full
        and all(
            step.head.get("base") == before.head["waypoint"] for before, step in pairwise(chain)
        )
    ):
        return chain
    found = {record.waypoint: record for record in chain if record.kind == "waypoint"}
    steps: list[Record] = []
    record = found.get(number)
    while record is not None and not record.full:
        steps.append(record)
        if len(steps) > len(chain):
            raise Malformed("the waypoints build on each other in a circle")
        record = found.get(record.head["base"])
    if record is None:
        raise Malformed(f"a waypoint that {number} builds on is missing")
    return [record, *reversed(steps)]


def decode(
    chain: list[Record], number: int, store: Store, run_id: str, *, raw: bool = False
) -> Any:
    """Rebuild and decode the state of a waypoint.

    Raises:
        JournalDamaged: the chain does not lead there.
        UnknownType, SchemaMismatch: see `caravanserai_core.codec.decode`.
    """
    tree = tree_of(chain, number, store, run_id)
    if raw or not any(record.head.get("tagged") for record in chain):
        return tree
    try:
        return codec.decode_tree(tree)
    except UnknownType as error:
        told = f"run {one_line(run_id)}, waypoint {number}: {error}"
        raise UnknownType(told, path=error.path, type_name=error.type_name) from error.__cause__
    except SchemaMismatch as error:
        told = f"run {one_line(run_id)}, waypoint {number}: {error}"
        raise SchemaMismatch(told, path=error.path) from error.__cause__


def tree_of(chain: list[Record], number: int, store: Store, run_id: str) -> Any:
    """Rebuild the JSON tree of a waypoint.

    Raises:
        JournalDamaged: the chain does not lead there.
    """
    try:
        return rebuild(chain, number)
    except (Malformed, ValueError, KeyError, TypeError) as error:
        raise JournalDamaged(
            f"waypoint {number} of run {one_line(run_id)} in {store.where(run_id)} cannot be "
            f"rebuilt: {error}. The other waypoints are not touched; `caravanserai verify` says "
            "which are whole.",
            path=store.where(run_id),
        ) from None


def recent(store: Store, run_id: str) -> Recent | None:
    """Return the end of a run's journal after checking whose and of which format it is."""
    found = store.recent(run_id)
    if found is not None:
        opening(found.opening, run_id)
    return found


def newest(store: Store, run_id: str, lane: str = "") -> list[Record] | None:
    """Return the chain of the newest waypoint of a lane; empty: none yet; None: no such run."""
    found = recent(store, run_id)
    if found is None:
        return None
    if found.chain and found.chain[-1].lane == lane:
        return found.chain
    last = 0
    for record in records(store, run_id, bodies=False):
        if record.kind == "waypoint" and record.lane == lane:
            last = record.waypoint
    return store.chain(run_id, last) if last else []


def not_found(store: Store, run_id: str) -> RunNotFound:
    """Build the error for a run that is not in the store."""
    return RunNotFound(
        f"no run {one_line(run_id)!r} in the store {one_line(store.url, 500)}. `caravanserai list` "
        "shows the runs there; another folder is given with store= or CARAVANSERAI_STORE."
    )


def no_waypoint(store: Store, run_id: str, at: int | None) -> WaypointNotFound:
    """Build the error for a run that exists and does not have the waypoint wanted."""
    which = "no waypoint yet" if at is None else f"no waypoint {at}"
    found = store.recent(run_id)
    newest = found.last.waypoint if found is not None else 0
    more = f"; its newest is {newest}. `caravanserai log` lists them all" if newest else ""
    return WaypointNotFound(f"run {one_line(run_id)} in {store.where(run_id)} has {which}{more}.")


def load(store: Store, run_id: str, at: int | None = None, *, raw: bool = False) -> Any:
    """Return the state of the newest waypoint of the main lane, or of waypoint `at`.

    Raises:
        RunNotFound: there is no such run.
        WaypointNotFound: it has no waypoint (of that number), or that one has no state.
        JournalDamaged: it cannot be rebuilt.
    """
    chain = newest(store, run_id) if at is None else store.chain(run_id, at)
    if chain:
        return decode(chain, chain[-1].waypoint, store, run_id, raw=raw)
    old = store.legacy(run_id)
    if old is None and chain is None:
        raise not_found(store, run_id)
    if old is not None and (at is None or 1 <= at <= old.number):
        if at in (None, old.number):
            return old.state
        raise WaypointNotFound(
            f"waypoint {at} of run {one_line(run_id)} has a note and no state: release 0.2.0 kept "
            f"only the state of the last waypoint, {old.number}."
        )
    if old is None and recent(store, run_id) is None:
        raise not_found(store, run_id)
    raise no_waypoint(store, run_id, at)


def survey(store: Store, run_id: str, *, bodies: bool) -> Iterator[Record | Bad]:
    """Yield the records that count, those of whole appends, in order, and what does not.

    A `Bad` that is `complete` is damage. One that is not is the unfinished end of the journal: it
    was never acknowledged, and is not there yet.
    """
    pending: list[Record] = []
    torn: Bad | None = None
    before: Record | None = None
    for item in store.scan(run_id, bodies=bodies):
        if isinstance(item, Bad):
            pending = []
            if item.complete:
                before = None  # what comes behind damage begins a chain of its own
                yield item
            else:
                torn = torn or item
            continue
        begin, count = item.app
        out_of_place = before is not None and not _follows(item, before)
        if item.seq == begin:
            if torn is not None:
                # Another append follows: what could not be read was acknowledged.
                yield torn._replace(complete=True)
                torn = None
            elif pending or out_of_place:
                yield _gap(store, run_id, item)
            pending = []
        elif not pending or out_of_place:
            if torn is None:
                yield _gap(store, run_id, item)
            pending, before = [], item
            continue
        before = item
        pending.append(item)
        if len(pending) == count:
            yield from pending
            pending = []
    if torn is None and pending:
        torn = _gap(store, run_id, pending[0])._replace(why="its append is not whole")
    if torn is not None:
        yield torn._replace(complete=False)


def _follows(record: Record, before: Record) -> bool:
    return bool(record.seq == before.seq + 1 and record.head["prev"] == before.sum)


def _gap(store: Store, run_id: str, record: Record) -> Bad:
    where, offset = store.place_of(run_id, record)
    why = f"record {record.seq} does not follow what stands before it"
    return Bad(where, offset, 0, complete=True, why=why)


def records(store: Store, run_id: str, *, bodies: bool) -> Iterator[Record]:
    """Yield the records of a journal that count; see `survey`.

    Raises:
        JournalDamaged: something in between is no record.
    """
    last = 0
    for item in survey(store, run_id, bodies=bodies):
        if isinstance(item, Bad):
            if item.complete:
                raise damaged(item, last)
            return
        last = item.waypoint if item.kind == "waypoint" else last
        yield item


def damaged(bad: Bad, last: int) -> JournalDamaged:
    """Build the error for a stretch that holds no record, `last` being the waypoint before it."""
    return damage_error(bad.path, bad.offset, bad.why, last)


def waypoints(store: Store, run_id: str) -> list[Waypoint]:
    """Return all waypoints of a run, oldest first, without reading a state.

    Raises:
        RunNotFound: there is no such run.
        JournalDamaged: the journal is damaged somewhere.
    """

    def read(number: int) -> Any:
        return load(store, run_id, number)

    found: list[Waypoint] = []
    adapter = None
    for record in records(store, run_id, bodies=False):
        if adapter is None:
            adapter = written_by(store, run_id)
        if record.kind == "waypoint":
            found.append(Waypoint(record, adapter, read))
    old = store.legacy(run_id)
    if old is not None and (not found or found[0].number > 1):
        first = found[0].number if found else old.number + 1
        found = [_legacy_waypoint(old, n, read) for n in range(1, first)] + found
    if not found and adapter is None:
        raise not_found(store, run_id)
    return found


def written_by(store: Store, run_id: str) -> str:
    """Return the adapter that wrote a run, from its first `open` record that is whole.

    Raises:
        JournalDamaged, NewerFormat: as `opening`.
    """
    for item in store.scan(run_id, bodies=True):
        if isinstance(item, Record) and item.kind == "open":
            return opening(item, run_id).adapter
    return "python"


def _legacy_waypoint(old: Any, number: int, read: Callable[[int], Any]) -> Waypoint:
    time = datetime.fromtimestamp(old.updated).astimezone().isoformat()
    head = {
        "waypoint": number,
        "note": old.note(number) or "",
        "time": old.time(number) or time,
        "parent": number - 1 or None,
    }
    return Waypoint(Record(head, None, "", None), "python", read)


def waypoint(store: Store, run_id: str, at: int | None = None) -> Waypoint:
    """Return one waypoint, the newest of the main lane if `at` is None. Its state is not read.

    Raises:
        RunNotFound, WaypointNotFound, JournalDamaged: as `load`.
    """
    chain = newest(store, run_id) if at is None else store.chain(run_id, at)
    if chain:
        return Waypoint(
            chain[-1],
            written_by(store, run_id),
            lambda number: decode(chain, number, store, run_id),
        )
    old = store.legacy(run_id)
    if old is not None:
        number = old.number if at is None else at
        if 1 <= number <= old.number:
            return _legacy_waypoint(old, number, lambda n: load(store, run_id, n))
    if old is None and recent(store, run_id) is None:
        raise not_found(store, run_id)
    raise no_waypoint(store, run_id, at)


# ---------------------------------------------------------------------- lists and status


def status_of(last: Record | None) -> str:
    """Derive a run's status from its last record."""
    if last is None or (not last.waypoint and last.kind != "finish"):
        return NEW
    if last.kind == "finish":
        return FAILED if last.head.get("outcome") == "failed" else FINISHED
    return STOPPED


def runs(store: Store) -> list[RunInfo]:
    """Return the runs of a store, the one written last first. No state is read."""
    found: list[RunInfo] = []
    old: list[RunInfo] = []
    for listed in store.listing():
        run_id, adapter, error = listed.folder, "python", listed.error
        if listed.opening is not None:
            try:
                first = opening(listed.opening)
                run_id, adapter = first.run_id, first.adapter
            except (NewerFormat, JournalDamaged) as problem:
                error = str(problem)
        if listed.legacy:
            legacy = store.legacy(listed.folder)
            if legacy is not None:
                time = datetime.fromtimestamp(legacy.updated).astimezone()
                old.append(RunInfo(run_id, STOPPED, legacy.number, time, "python", run_id, None))
            continue
        last = listed.last
        found.append(
            RunInfo(
                run_id,
                DAMAGED if error else status_of(last),
                last.waypoint if last is not None else 0,
                datetime.fromisoformat(last.head["time"]) if last is not None else None,
                adapter,
                listed.folder,
                error,
            )
        )
    # A run of 0.2.0 that went on under another folder name is listed once, as what it is now.
    known = {info.run_id for info in found}
    found += [info for info in old if info.run_id not in known]
    found.sort(key=lambda info: (-(info.updated.timestamp() if info.updated else 0), info.run_id))
    return found


def pretty(tree: Any) -> str:
    """Return a JSON tree as indented text."""
    return orjson.dumps(tree, option=orjson.OPT_INDENT_2).decode()
