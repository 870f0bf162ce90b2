"""What the waypoints of a session cannot be without, from its records; needs no SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from caravanserai_core.records import Record

__all__ = ["ENTRIES", "HANDOFF", "PATH", "needs"]

ENTRIES: Final = "transcript"
"""Name of the journal's entries that hold those of a transcript."""

PATH: Final = "handoff"
"""Path of those that hold what the run was handed by another one; see `_seed`."""

HANDOFF: Final = "handoff"
"""Name of the journal's entry in which the core keeps that."""


def needs(
    _records: Sequence[Record], heads: set[int], kept: set[int], _tree: Callable[[int], Any]
) -> tuple[set[int], Callable[[Record], bool | None]]:
    """Say what of a session stays; see `retention.Needs` of the core.

    Waypoints hold no copy of the transcript: all of it up to the newest one stays, whatever
    becomes of the waypoints in between.
    """
    return kept | heads, lambda entry: True if entry.head.get("name") == ENTRIES else None
