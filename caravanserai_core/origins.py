"""Where a run comes from, as its first record says: a copy, a fork, or a handoff of another one."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["HANDED", "handed_origin"]

HANDED: Final = "handoff"
"""What `how` of a run's origin says where it goes on from another one."""


def handed_origin(origin: object) -> dict[str, Any] | None:
    """Return the origin of a run that goes on from another one, also of a copy or fork of such.

    Returns:
        `run_id`, `waypoint`, `how` and `adapter` of the other run, or None.
    """
    while isinstance(origin, dict):
        if origin.get("how") == HANDED and isinstance(origin.get("run_id"), str):
            return origin
        origin = origin.get("before")
    return None
