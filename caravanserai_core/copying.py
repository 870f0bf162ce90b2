"""Copying runs into another store: from a store, or from what another library keeps them in.

What is not a store of Caravanserai is read by an adapter, which is found by the scheme of the
address (entry points `caravanserai.sources`). A run arrives whole or not at all.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from caravanserai_core import listing
from caravanserai_core.compaction import copy_run
from caravanserai_core.errors import CaravanseraiError, SecretFound, UsageError
from caravanserai_core.stores import Store, open_store

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

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
        """
        ...


class Copied(NamedTuple):
    """What became of one run.

    Attributes:
        run_id: its name.
        waypoints: how many were copied.
        error: why nothing was; None: it was copied.
    """

    run_id: str
    waypoints: int
    error: CaravanseraiError | None = None


class _Runs:
    """The runs of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def runs(self) -> list[str]:
        return sorted(info.run_id for info in listing.runs(self._store))

    def copy(self, run_id: str, target: Store) -> int:
        try:
            return copy_run(self._store, run_id, target, run_id)
        except SecretFound as found:
            raise SecretFound(
                f"it holds the secret {found.name}, which stood there before it was declared. "
                "Nothing was copied. `caravanserai verify --secrets` says where; prune what holds "
                "it, or copy the run where the secret is not declared.",
                path=found.path,
                name=found.name,
            ) from found


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
