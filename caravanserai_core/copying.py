"""Copying runs into another store: from a store, or from what another library keeps them in.

What is not a store of Caravanserai is read by an adapter, which is found by the scheme of the
address (entry points `caravanserai.sources`). A run arrives whole or not at all.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from caravanserai_core import listing, survey, trees
from caravanserai_core.compaction import ANEW, copy_run, unmoved
from caravanserai_core.errors import CaravanseraiError, SecretFound, StoreFailed, UsageError
from caravanserai_core.quoting import one_line
from caravanserai_core.stores import Store, open_store

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from caravanserai_core.records import Record

_AT_ONCE: Final = 50
"""States that are held at once to be compared."""

GROUP: Final = "caravanserai.sources"
"""Entry points by scheme: functions of (address, types to trust) that give a `Source`."""


class Source(Protocol):
    """Something that runs are copied from."""

    def runs(self) -> list[str]:
        """Return the names that its runs will have."""
        ...

    def copy(self, run_id: str, target: Store) -> int:
        """Copy a run, all of it or nothing, and compare the copy; returns its waypoints.

        Raises:
            RunNotFound: there is no such run.
            UsageError: the target has a run of this name.
            CopiedBefore: and that is this very run.
        """
        ...


class CopiedBefore(UsageError):
    """The target has the run already, as it is here.

    Attributes:
        waypoints: how many it has.
    """

    def __init__(self, told: str, waypoints: int) -> None:
        super().__init__(told)
        self.waypoints = waypoints


class Copied(NamedTuple):
    """What became of one run.

    Attributes:
        run_id: its name.
        waypoints: how many the copy has.
        error: why there is none; None: there is.
        before: nothing was written: it is a copy from before, and was compared.
    """

    run_id: str
    waypoints: int
    error: CaravanseraiError | None = None
    before: bool = False


class _Runs:
    """The runs of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def runs(self) -> list[str]:
        return sorted(info.run_id for info in listing.runs(self._store))

    def copy(self, run_id: str, target: Store) -> int:
        try:
            copied = unmoved(lambda: copy_run(self._store, run_id, target, run_id))
        except SecretFound as found:
            raise SecretFound(
                f"it holds the secret {found.name}, which stood there before it was declared. "
                "Nothing was copied. `caravanserai verify --secrets` says where; prune what holds "
                "it, or copy the run where the secret is not declared.",
                path=found.path,
                name=found.name,
            ) from found
        except UsageError as error:
            if not self._is_there(run_id, target):
                raise
            raise CopiedBefore(str(error), len(waypoints_of(target, run_id))) from None
        compare(self._store, target, run_id)
        return copied

    def _is_there(self, run_id: str, target: Store) -> bool:
        """Say whether the target has the run, and neither went on since it was copied."""
        here, there = (_moments(store, run_id) for store in (self._store, target))
        if not here or here != there:
            return False
        try:
            compare(self._store, target, run_id)
        except StoreFailed:
            return False
        return True


def _moments(store: Store, run_id: str) -> list[tuple[object, ...]]:
    """Return what a copy keeps of each record, and what no two records of a run share."""
    return [
        (record.kind, record.lane, record.waypoint, record.head.get("time"))
        for record in survey.records(store, run_id, bodies=False)
        if record.kind not in ANEW
    ]


def compare(source: Store, target: Store, run_id: str) -> None:
    """Read a run and its copy again, and compare every waypoint.

    Raises:
        StoreFailed: the copy is another one; it is left as it is, for whoever looks into it.
    """
    pairs = [waypoints_of(store, run_id) for store in (source, target)]
    if not pairs[0] and source.legacy(run_id) is not None:
        return  # release 0.2.0 left one state, and no journal to compare with
    if list(pairs[0]) != list(pairs[1]):
        raise _differs(target, run_id, "it has other waypoints")
    numbers = list(pairs[0])
    for first in range(0, len(numbers), _AT_ONCE):
        some = numbers[first : first + _AT_ONCE]
        ours, theirs = (
            trees.rebuild_all(store, run_id, heads, some)
            for store, heads in zip((source, target), pairs, strict=True)
        )
        for number in some:
            told = [heads[number].head.get("note") for heads in pairs]
            if ours[number] != theirs[number] or told[0] != told[1]:
                raise _differs(target, run_id, f"waypoint {number} is not the same")


def waypoints_of(store: Store, run_id: str) -> dict[int, Record]:
    """Return the heads of a run's waypoints by number."""
    heads = survey.records(store, run_id, bodies=False)
    return {record.waypoint: record for record in heads if record.kind == "waypoint"}


def _differs(target: Store, run_id: str, why: str) -> StoreFailed:
    return StoreFailed(
        f"the copy of run {one_line(run_id)} in {target.where(run_id)} is not what was written: "
        f"{why}. The original stands. `caravanserai verify` says more; `caravanserai clean` "
        "removes the copy."
    )


def copy_runs(
    source: str | os.PathLike[str] | Store | None,
    target: str | os.PathLike[str] | Store,
    run_ids: Sequence[str] = (),
    *,
    trust: Sequence[str] = (),
) -> Iterator[Copied]:
    """Copy runs into another store, one after the other; the originals stay as they are.

    Args:
        source: a store, a folder or URL, or the address of what another library keeps its state
            in (`sqlite:///threads.db`: LangGraph's SqliteSaver).
        target: a store, a folder or URL.
        run_ids: the runs; none: all.
        trust: types that what another library wrote may be loaded as, `module:Class`.

    Yields:
        What became of each run.

    Raises:
        UsageError: source and target are one; nothing reads such an address.
    """
    into = open_store(target)
    with _opened(source, into, trust) as found:
        for run_id in run_ids or found.runs():
            try:
                yield Copied(run_id, found.copy(run_id, into))
            except CopiedBefore as error:  # copying a whole store was interrupted, and began again
                yield Copied(run_id, error.waypoints, before=True)
            except CaravanseraiError as error:
                yield Copied(run_id, 0, error)


@contextmanager
def _opened(
    source: str | os.PathLike[str] | Store | None, into: Store, trust: Sequence[str]
) -> Iterator[Source]:
    scheme, found, _ = source.partition("://") if isinstance(source, str) else ("", "", "")
    reader = _reader(scheme) if found else None
    if reader is not None and isinstance(source, str):
        with reader(source, trust) as opened:
            yield opened
        return
    if trust:
        raise UsageError("types to trust belong to what another library wrote, not to a store")
    store = open_store(source)
    if store.key == into.key:
        raise UsageError(f"runs are copied into another store, and {store.name} is the same one")
    yield _Runs(store)


def _reader(scheme: str) -> Callable[[str, Sequence[str]], AbstractContextManager[Source]] | None:
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP, name=scheme):
        found: Callable[[str, Sequence[str]], AbstractContextManager[Source]] = point.load()
        return found
    return None
