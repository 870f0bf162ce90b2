"""What is known of tools: which change nothing, and which calls are equal; needs no SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from caravanserai_core.stepping import bare, same

if TYPE_CHECKING:
    from collections.abc import Mapping

HARMLESS: Final = frozenset(
    {
        *("Read", "Glob", "Grep", "LS", "NotebookRead", "WebFetch", "WebSearch", "ToolSearch"),
        *("TodoWrite", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "TaskOutput"),
        *("BashOutput", "ListAgents", "AskUserQuestion", "ExitPlanMode", "Skill"),
    }
)
"""Tools of the CLI that change nothing outside of the session: one more call does no harm."""

TAKEN: Final = "Not run again: this very call happened before the session was cut off."
"""How a model is told that a person said so."""

GIVEN: Final = (
    "Not run again: this very call was made and ended before the session was cut off, and its "
    "result was lost with it."
)
REPLAYED: Final = (
    "Not run: the agent that had this job before made this very call, and its recorded result is "
    "given again."
)
"""How it is told that there is a result of a call, which follows."""

_RESULT: Final = " The result: "
_TAKEN_RESULT: Final = " Its result: "
_TAKE: Final = " Take it as done and go on."
_ONCE_MORE: Final = "\nIf it has to be made a second time on purpose, call it once more."

_REMARKS: Final = {
    "Bash": {"description", "timeout", "run_in_background"},
    "Agent": {"description"},
}
"""Arguments that say nothing of what a call does; a model words them anew each time."""


def given(result: str) -> str:
    """Return what a model is told that gets the result which the transcript lost."""
    return f"{GIVEN}{_RESULT}{result}{_ONCE_MORE}"


def replayed(result: str) -> str:
    """Return what a model is told that gets the result of the run before."""
    return f"{REPLAYED}{_RESULT}{result}"


def taken(result: str | None) -> str:
    """Return what a model is told where a person said that a call happened."""
    return f"{TAKEN}{'' if result is None else _TAKEN_RESULT + result}{_TAKE}"


def in_place_of(text: str) -> str | None:
    """Return the result that one of these texts gives in the place of a call, None: it is none.

    Args:
        text: an error, as the CLI tells what a hook said (2.1.332).
    """
    said = text.partition(" hook error: ")[2] if text.startswith("PreToolUse:") else text
    for begin, end in ((GIVEN, _ONCE_MORE), (REPLAYED, "")):
        if said.startswith(begin + _RESULT):
            return said.removeprefix(begin + _RESULT).removesuffix(end)
    if not said.startswith(TAKEN):
        return None
    result = said.removeprefix(TAKEN).removesuffix(_TAKE)
    return result.removeprefix(_TAKEN_RESULT) if result else said


def what_counts(tool: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call that say what it does."""
    remarks = _REMARKS.get(tool, set())
    return {name: value for name, value in given.items() if name not in remarks}


def known_by(tool: str, given: Any) -> tuple[str, str]:
    """Return what a call is recognised by in any framework.

    Args:
        tool: its name, with or without a server's.
        given: its arguments by name; of a text nothing is known.
    """
    name = bare(tool)
    return name, same(what_counts(name, given if isinstance(given, dict) else {}))
