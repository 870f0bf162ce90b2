"""Reading a run: the newest state, any earlier one, the list of waypoints.

Nothing here writes, takes a lock, or remembers anything between two calls.
"""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from caravanserai_core import codec, patching, referring, survey
from caravanserai_core.errors import (
    JournalDamaged,
    NewerFormat,
    RunNotFound,
    SchemaMismatch,
    SecretChanged,
    SecretMissing,
    UnknownType,
    WaypointNotFound,
)
from caravanserai_core.notes import Note
from caravanserai_core.quoting import one_line
from caravanserai_core.records import FORMAT, Malformed, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from caravanserai_core.stores.base import Recent, Store


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
        meta: what its adapter noted beside the state; `{}` if nothing.
        schema: the schema of its state that its writer declared; 1 if none.
    """

    __slots__ = (
        "_goal",
        "_meta",
        "_read",
        "_time",
        "_tree",
        "adapter",
        "by",
        "lane",
        "number",
        "parent",
        "schema",
    )

    def __init__(
        self,
        record: Record,
        adapter: str,
        read: Callable[[int], Any],
        goal: str | None = None,
    ) -> None:
        head = record.head
        self.number: int = head["waypoint"]
        self._tree = head.get("note", "")
        self._time: str = head["time"]
        self.parent: int | None = head.get("parent")
        self.lane: str = head.get("lane", "")
        self.by: str = head.get("by", "")
        self.schema: int = head.get("schema", 1)
        self._meta: dict[str, Any] | None = head.get("meta")
        self.adapter = adapter
        self._read = read
        self._goal = goal

    @property
    def note(self) -> Note:
        """What happened and what is next."""
        return Note.from_json(self._tree).with_goal(self._goal)

    @property
    def meta(self) -> dict[str, Any]:
        """What its adapter noted beside the state; `{}` if nothing."""
        return self._meta or {}

    @property
    def time(self) -> datetime:
        """When it was written: aware, in UTC."""
        return datetime.fromisoformat(self._time)

    @property
    def state(self) -> Any:
        """The exact state, as it was recorded; read from the store each time it is asked for.

        It is in the schema of its writer: `load` leads it to that of the program.

        Raises:
            WaypointNotFound: the waypoint has no state (release 0.2.0 kept only the last one).
            JournalDamaged: it cannot be rebuilt.
        """
        return self._read(self.number)

    def __repr__(self) -> str:
        return f"<Waypoint {self.number}: {one_line(str(self.note), 60)}>"


class Opening(NamedTuple):
    """What the first record of a run says about it.

    Attributes:
        run_id: the exact name.
        adapter: what wrote it.
        goal: what it is for, or None.
        argv: the command that started it.
        folder: the working folder of that command.
        imported: what release 0.2.0 had left, `{"from", "waypoints", "folder"}`, or None.
        framework: name and version of the framework it was begun with, or None.
        origin: the run that it was copied or forked from, `{"run_id"}` and for a fork
            `"waypoint"`, or that it goes on from: these and `"how": "handoff"`; or None.
        program: the function that its first process ran, `module:name`, or None.
    """

    run_id: str
    adapter: str
    goal: str | None
    argv: list[str]
    folder: str
    imported: dict[str, Any] | None
    framework: str | None
    origin: dict[str, Any] | None
    program: str | None


def opening(record: Record, run_id: str | None = None, *, resolve: bool = False) -> Opening:
    """Read an `open` record.

    Args:
        record: the record.
        run_id: the run that it has to belong to, if that is known.
        resolve: put secrets back where the command refers to them; else `[secret env:NAME]`
            stands there, so that a run is listed where they are not known.

    Raises:
        SecretMissing: a secret of the command is to be put back and is not here.
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
        tree = record.data()
        data: Any = codec.decode_tree(tree if resolve else codec.displayed(tree))
        found = Opening(
            data["run_id"],
            data.get("adapter", "python"),
            data.get("goal"),
            data.get("argv") or [],
            data.get("cwd") or "",
            data.get("imported"),
            data.get("framework"),
            data.get("origin"),
            data.get("program"),
        )
    except (Malformed, KeyError, TypeError, AttributeError) as error:
        raise JournalDamaged(f"an open record cannot be read: {error!r}", offset=0) from None
    if run_id is not None and found.run_id != run_id:
        raise JournalDamaged(misplaced(run_id, found.run_id), offset=0)
    return found


def misplaced(run_id: str, found: str) -> str:
    """Say that the folder of a run holds another one."""
    return (
        f"the folder of run {one_line(run_id)} holds the run {one_line(found)}. Was it copied or "
        "renamed? Give it its own name back."
    )


def data_of(record: Record, state: Any = None, *, lenient: bool = False) -> Any:
    """Decode the data of an entry.

    Args:
        record: the entry, with its body.
        state: the state that it refers to, where it shares lists with one.
        lenient: an object that the program's type no longer fits comes as a `codec.Unfit`.

    Raises:
        UnknownType, SchemaMismatch: see `caravanserai_core.codec.decode`.
        JournalDamaged: what it refers to is not there.
    """
    head = record.head
    if referring.refers(record):
        raise JournalDamaged(
            f"entry {record.seq} shares values with waypoint {head['in']}, which does not hold "
            "them. `caravanserai verify` says what is whole."
        )
    tree = codec.parse(record.member("data"))
    if not head.get("tagged"):
        return tree
    shared = head.get("shared", ())
    if not shared:
        return codec.decode_tree(tree, lenient=lenient)
    targets = {path: codec.at(state, path) for path in shared}
    return codec.decode_tree(tree, shared=shared, targets=targets, lenient=lenient)


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
    tree = codec.parse(first.view("state"))
    for patch in _patches(steps):
        tree = patching.apply(tree, patch)
    return tree


def _patches(steps: list[Record]) -> Iterator[Any]:
    """Parse the patches of records, many small ones at once."""
    texts: list[bytes] = []
    left = _AT_ONCE
    for step in steps:
        text = step.member("patch")
        left -= len(text)
        texts.append(text)
        if left < 0:
            yield from cast("list[Any]", codec.parse(b"[%b]" % b",".join(texts)))
            texts, left = [], _AT_ONCE
    if texts:
        yield from cast("list[Any]", codec.parse(b"[%b]" % b",".join(texts)))


_AT_ONCE: Final = 1 << 16
"""Bytes of patches that are parsed together. More of them would need memory that the process has
not used before, and to get that costs about as much as to parse."""


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
    chain: list[Record],
    number: int,
    store: Store,
    run_id: str,
    *,
    raw: bool = False,
    lenient: bool = False,
) -> Any:
    """Rebuild and decode the state of a waypoint.

    Args:
        chain: see `rebuild`.
        number: the waypoint wanted.
        store: where the run lives.
        run_id: its name.
        raw: return the JSON tree, tags and all, with lists in the place of references.
        lenient: an object that the program's type no longer fits comes as a `codec.Unfit`.

    Raises:
        JournalDamaged: the chain does not lead there.
        UnknownType, SchemaMismatch: see `caravanserai_core.codec.decode`.
    """
    tree = tree_of(chain, number, store, run_id)
    if not any(record.head.get("tagged") for record in chain):
        return tree
    shared = shared_in(chain, number)
    try:
        if raw:
            return codec.unshare(tree, shared)
        return codec.decode_tree(tree, shared, lenient=lenient)
    except (SecretMissing, SecretChanged) as missing:
        told = f"run {one_line(run_id)}, waypoint {number}: {missing}"
        raise type(missing)(told, path=missing.path, name=missing.name) from None
    except UnknownType as error:
        told = f"run {one_line(run_id)}, waypoint {number}: {error}"
        raise UnknownType(told, path=error.path, type_name=error.type_name) from error.__cause__
    except SchemaMismatch as error:
        told = f"run {one_line(run_id)}, waypoint {number}: {error}"
        raise SchemaMismatch(told, path=error.path) from error.__cause__


def shared_in(chain: list[Record], number: int) -> tuple[str, ...]:
    """Return the paths of the lists that references in the state of a waypoint mean."""
    for record in reversed(chain):
        if record.kind == "waypoint" and record.waypoint == number:
            return tuple(record.head.get("shared", ()))
    return ()


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
    for record in survey.records(store, run_id, bodies=False):
        if record.kind == "waypoint" and record.lane == lane:
            last = record.waypoint
    return store.chain(run_id, last) if last else []


def not_found(store: Store, run_id: str) -> RunNotFound:
    """Build the error for a run that is not in the store."""
    return RunNotFound(
        f"no run {one_line(run_id)!r} in the store {one_line(store.name, 500)}. `caravanserai "
        "list` shows the runs there; another folder is given with store= or CARAVANSERAI_STORE."
    )


def no_waypoint(store: Store, run_id: str, at: int | None) -> WaypointNotFound:
    """Build the error for a run that exists and does not have the waypoint wanted."""
    which = "no waypoint yet" if at is None else f"no waypoint {at}"
    found = store.recent(run_id)
    newest = found.last.waypoint if found is not None else 0
    if at is not None and 0 < at <= newest:
        for _ in survey.records(store, run_id, bodies=False):
            pass  # raises where it was taken out of the journal
        origin = opening(found.opening).origin if found is not None else None
        first = (origin or {}).get("waypoint")  # a fork begins with the waypoint it was made of
        if type(first) is not int or at > first or (origin or {}).get("how"):
            return WaypointNotFound(
                f"waypoint {at} was removed (pruned) from run {one_line(run_id)} in "
                f"{store.where(run_id)}. `caravanserai log` lists those that are left."
            )
    more = f"; its newest is {newest}. `caravanserai log` lists them all" if newest else ""
    return WaypointNotFound(f"run {one_line(run_id)} in {store.where(run_id)} has {which}{more}.")


def load(store: Store, run_id: str, at: int | None = None, *, raw: bool = False) -> Any:
    """Return the state of the newest waypoint of the main lane, or of waypoint `at`.

    Raises:
        RunNotFound: there is no such run.
        WaypointNotFound: it has no waypoint (of that number), or that one has no state.
        JournalDamaged: it cannot be rebuilt.
    """
    chain = newest(store, run_id) if at is None else chain_at(store, run_id, at)
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


def chain_at(store: Store, run_id: str, at: int) -> list[Record]:
    """Return the chain of waypoint `at`, after checking whose journal it is; empty: none such."""
    written_by(store, run_id)
    return store.chain(run_id, at)


def waypoints(store: Store, run_id: str) -> list[Waypoint]:
    """Return all waypoints of a run, oldest first, without reading a state.

    Raises:
        RunNotFound: there is no such run.
        JournalDamaged: the journal is damaged somewhere.
    """

    def read(number: int) -> Any:
        return load(store, run_id, number)

    found: list[Waypoint] = []
    adapter = goal = None
    for record in survey.records(store, run_id, bodies=False):
        if adapter is None:
            adapter, goal = _written_by(store, run_id)
        if record.head["kind"] == "waypoint":
            found.append(Waypoint(record, adapter, read, goal))
    last = found[-1].number if found else 0
    if adapter is None or store.get_note(run_id, f"waypoint-{last + 1}.md") is not None:
        store.recent(run_id)  # raises where the journal ends too early: it does not show by itself
    old = store.legacy(run_id)
    if old is not None and (not found or found[0].number > 1):
        first = found[0].number if found else old.number + 1
        first = min(first, old.number + 1)  # what was removed since is not the old release's
        found = [_legacy_waypoint(old, n, read) for n in range(1, first)] + found
    if not found and adapter is None:
        raise not_found(store, run_id)
    return found


def written_by(store: Store, run_id: str) -> str:
    """Return the adapter that wrote a run, from its first `open` record that is whole.

    Raises:
        JournalDamaged, NewerFormat: as `opening`.
    """
    return _written_by(store, run_id)[0]


def _written_by(store: Store, run_id: str) -> tuple[str, str | None]:
    """Return the adapter that wrote a run, and what the run is for."""
    for bodies in (False, True):  # what begins a run is seldom large, and states often are
        for item in store.scan(run_id, bodies=bodies):
            if isinstance(item, Record) and item.kind == "open":
                if item.body is None:
                    break
                found = opening(item, run_id)
                return found.adapter, found.goal
        else:
            break
    return "python", None


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
        adapter, goal = _written_by(store, run_id)
        return Waypoint(
            chain[-1], adapter, lambda number: decode(chain, number, store, run_id), goal
        )
    old = store.legacy(run_id)
    if old is not None:
        number = old.number if at is None else at
        if 1 <= number <= old.number:
            return _legacy_waypoint(old, number, lambda n: load(store, run_id, n))
    if old is None and recent(store, run_id) is None:
        raise not_found(store, run_id)
    raise no_waypoint(store, run_id, at)
