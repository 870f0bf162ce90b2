"""Where a run lives: the store that was named, or the default one as it was first resolved.

The default is a folder below the working folder, and agents change their working folder.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from caravanserai_core.stores import Store, open_store

if TYPE_CHECKING:
    StoreLike = str | os.PathLike[str] | Store | None

_homes: dict[str, Store] = {}
"""The default store of each run this process has touched."""


def store_for(run_id: str, store: StoreLike = None) -> Store:
    """Return the store of a run: the one given, else the default as first resolved for it."""
    if store is not None:
        return open_store(store)
    found = _homes.get(run_id)
    if found is None:
        found = _homes[run_id] = open_store(None)
    return found


def share_home(run_id: str, other: str) -> None:
    """Let a run have the default store of another one, where it was made beside that."""
    if other in _homes:
        _homes[run_id] = _homes[other]


def leave_home(run_id: str) -> None:
    """Forget where a run's default store was; for a run that was deleted."""
    _homes.pop(run_id, None)
