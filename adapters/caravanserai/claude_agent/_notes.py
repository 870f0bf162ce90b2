"""The notes of a session, told from the states of its waypoints alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from caravanserai_core.notes import Note
from caravanserai_core.words import quote

if TYPE_CHECKING:
    from caravanserai.claude_agent._facts import Tree

_SO_FAR: Final = 10


def note(tree: Tree, *, resumed: bool) -> Note:
    """Tell a waypoint."""
    crashed = "**Picked up after a crash.** " if resumed else ""
    return Note(
        f"{crashed}{line(tree)}",
        happened=[str(fact) for fact in tree["did"]],
        plan=[(item["text"], item["status"] == "completed") for item in tree["plan"]],
        so_far=tree["so_far"],
        goal=quote(tree["prompt"]) if tree["prompt"] else None,
    )


def line(tree: Tree) -> str:
    """Tell a waypoint in one line of a later note."""
    return f"At {tree['at']}."


def so_far(lines: list[str], number: int, line: str) -> list[str]:
    """Return the lines of "So far" with one more."""
    return [*lines, f"waypoint {number}: {line}"][-_SO_FAR:]
