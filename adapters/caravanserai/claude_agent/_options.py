"""How a session is kept: what the entry points take, and what of the SDK's options they refuse."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

from claude_agent_sdk import ClaudeAgentOptions

from caravanserai.claude_agent._tools import HARMLESS
from caravanserai_core.errors import UsageError

if TYPE_CHECKING:
    from caravanserai_core.continuing import Continues
    from caravanserai_core.effects import OnUncertain
    from caravanserai_core.homes import StoreLike
    from caravanserai_core.schema import Migrations

_SIMPLE: Final = "CLAUDE_CODE_SIMPLE"
"""Lets the CLI call no hooks (2.1.332), as its option --bare does."""

_ARGUMENTS: Final = (
    "resume",
    "continue",
    "session-id",
    "fork-session",
    "no-session-persistence",
)
"""Options of the CLI that say how a session begins."""

_TAKEN: Final = {
    "resume": "the run_id says which session goes on",
    "session_id": "the run_id names the session, and its id is recorded in the waypoints",
    "continue_conversation": "the run_id says which session goes on",
    "fork_session": "at= and new_run_id= begin a run of its own at a waypoint",
    "resume_session_at": "at= and new_run_id= begin a run of its own at a waypoint",
    "resume_drops_turn": "at= and new_run_id= begin a run of its own at a waypoint",
    "session_store": "the run keeps the transcript itself",
    "enable_file_checkpointing": (
        "the SDK does not allow it beside a session store, which a run needs. A waypoint records "
        "the commit of the working folder instead"
    ),
}


class Keeping(TypedDict, total=False):
    """The keyword arguments that all entry points take; see `resumable_query`."""

    store: StoreLike
    needs_approval: Sequence[str]
    on_uncertain: OnUncertain | Mapping[str, OnUncertain] | None
    takeover: bool
    at: int | None
    new_run_id: str | None
    schema: int | None
    migrations: Migrations
    continues: Continues
    replay: Sequence[str]


class Options(NamedTuple):
    """How a session is kept; see `resumable_query`.

    Attributes:
        run_id: the run.
        store: where it is kept.
        needs_approval: patterns of tools that a person has to approve.
        on_uncertain: what to do where a call equals one that may have happened, by tool.
        again: begin anew.
        takeover: take the run from another living process.
        at: waypoint of another run that this one begins at, or None.
        schema: schema of the states that the program writes.
        migrations: one function for each step from schema to schema.
        forked: the run that `run_id` is a fork of, where `at` is given.
        continues: the run that this one goes on from, or None.
        replay: names of tools whose recorded results of that run are given again.
    """

    run_id: str
    store: StoreLike = None
    needs_approval: tuple[str, ...] = ()
    on_uncertain: OnUncertain | Mapping[str, OnUncertain] | None = None
    again: bool = False
    takeover: bool = False
    at: int | None = None
    schema: int | None = None
    migrations: Migrations = ()
    forked: str | None = None
    continues: Continues = None
    replay: tuple[str, ...] = ()

    @property
    def patterns(self) -> tuple[str, ...]:
        """All patterns of tools."""
        chosen = self.on_uncertain
        return (*self.needs_approval, *(chosen if isinstance(chosen, Mapping) else ()))

    def policy(self, tool: str) -> OnUncertain:
        """Return what is done where a call equals one that may have happened."""
        if isinstance(self.on_uncertain, Mapping):
            for pattern, policy in self.on_uncertain.items():
                if fnmatchcase(tool, pattern):
                    return policy
        elif self.on_uncertain is not None:
            return self.on_uncertain
        return "rerun" if tool in HARMLESS else "ask"

    def approved_by_people(self, tool: str) -> bool:
        """Say whether a person has to approve each call of a tool."""
        return any(fnmatchcase(tool, pattern) for pattern in self.needs_approval)


def options_of(run_id: Any, keeping: Keeping, *, again: bool = False) -> Options:
    """Return how a session is to be kept.

    Raises:
        UsageError: the arguments mean nothing; it says which.
    """
    if not isinstance(run_id, str) or not run_id:
        raise UsageError(
            "run_id= is the name under which the session is kept and found again, a string"
        )
    given: dict[str, Any] = dict(keeping)
    for name in given.keys() - Keeping.__annotations__.keys():
        raise TypeError(f"unexpected keyword argument {name!r}")
    at, new = given.pop("at", None), given.pop("new_run_id", None)
    patterns: Any = given.pop("needs_approval", ()) or ()
    if isinstance(patterns, str) or not all(isinstance(one, str) for one in patterns):
        raise UsageError('needs_approval= is a list of names of tools: ["mcp__pay__*", "Bash"]')
    chosen = given.get("on_uncertain")
    policies = chosen.values() if isinstance(chosen, Mapping) else [chosen]
    if any(one not in (None, "ask", "rerun", "stop") for one in policies):
        raise UsageError('on_uncertain= is "ask", "rerun" or "stop", or a dict of tools to these')
    if (at is None) != (new is None):
        raise UsageError(
            "at= and new_run_id= belong together: to go on from an earlier waypoint is a run of "
            "its own, and the one that it branches off stays as it is"
        )
    if new is not None and new == run_id:
        raise UsageError(
            f"new_run_id= names a run of its own, and {run_id!r} is the one that it branches off"
        )
    if at is not None and type(at) is not int:
        raise UsageError(f"at= takes a waypoint's number, an int, not {type(at).__name__}")
    if new is not None and given.get("continues") is not None:
        raise UsageError(
            "continues= goes on from another run by what was said there, at= and new_run_id= begin "
            "with an exact copy of a session: give one of them"
        )
    replay: Any = given.pop("replay", ()) or ()
    if isinstance(replay, str) or not all(isinstance(one, str) for one in replay):
        raise UsageError('replay= is a list of names of tools: replay=["lookup"]')
    name, origin = (run_id, None) if new is None else (new, run_id)
    return Options(
        name,
        needs_approval=tuple(patterns),
        again=again,
        at=at,
        forked=origin,
        replay=tuple(replay),
        **given,
    )


def check_given(given: ClaudeAgentOptions) -> None:
    """Refuse options of the SDK that would take the session out of the run's hands.

    Raises:
        UsageError: it says which, and what to do instead.
    """
    if not isinstance(given, ClaudeAgentOptions):
        raise UsageError(f"options= takes ClaudeAgentOptions, not {type(given).__name__}")
    for name, why in _TAKEN.items():
        if getattr(given, name, None):
            raise UsageError(f"ClaudeAgentOptions({name}=…) cannot be combined with a run: {why}.")
    if given.env.get(_SIMPLE, os.environ.get(_SIMPLE)):
        raise UsageError(
            f"{_SIMPLE} is set: the CLI calls no hooks then, and nothing would be written down "
            "before a tool begins. Unset it for this program."
        )
    for name in (*_ARGUMENTS, "bare"):
        if name in given.extra_args:
            raise UsageError(
                f"ClaudeAgentOptions(extra_args={{{name!r}: …}}) cannot be combined with a run, "
                "which says itself how its session begins and needs the CLI's hooks"
            )
