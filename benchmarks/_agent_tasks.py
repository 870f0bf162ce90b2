"""What agents are asked to do, known to them and to the model that is scripted for them."""

from __future__ import annotations

SAID = "All is read."
"""The last word of each run."""

WARM = 3
"""Turns of the run before all others."""


def task(turns: int) -> str:
    """Return what an agent is asked to do in so many turns; a scripted server goes by it."""
    return f"Read all {turns} pages."
