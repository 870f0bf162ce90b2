"""What the adapter uses of the SDK and the CLI beyond their documented interface."""

from __future__ import annotations

import dataclasses
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, ResultMessage
from claude_agent_sdk.types import DeferredToolUse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

LOST: Final = "No conversation found"
"""How the CLI begins to say that it cannot resume a session (2.1.332)."""

DEFERRED: Final = "tool_deferred"
"""Why the CLI stopped, where a hook answered "defer" (`ResultMessage.stop_reason`)."""

COMPLETED: Final = "completed"
"""`ResultMessage.terminal_reason` of a turn that came to its end (2.1.332)."""

CONTINUES: Final = "Continue from where you left off."
"""What the CLI itself asks the model behind a deferred call (2.1.332)."""

NOTIFIED: Final = "<task-notification>"
"""How the CLI begins to tell the model that a subagent in the background ended (2.1.332)."""


@cache
def sdk_version() -> str:
    """Return the version of claude-agent-sdk."""
    return version("claude-agent-sdk")


def framework() -> str:
    """Return name and version of the framework, as notes have it."""
    return f"Claude Agent SDK {sdk_version()}"


def result_tree(message: ResultMessage) -> dict[str, Any]:
    """Return a result as JSON."""
    return dataclasses.asdict(message)


def result_of(tree: Mapping[str, Any]) -> ResultMessage:
    """Return the result that JSON was made of, also by another version of the SDK."""
    known = {field.name for field in dataclasses.fields(ResultMessage)}
    fields = {name: value for name, value in tree.items() if name in known}
    deferred = fields.get("deferred_tool_use")
    if isinstance(deferred, dict):
        fields["deferred_tool_use"] = DeferredToolUse(**deferred)
    return ResultMessage(**fields)


def with_hooks(
    given: ClaudeAgentOptions, mine: Mapping[str, Callable[..., Awaitable[Any]]]
) -> dict[Any, list[HookMatcher]]:
    """Return the hooks of some options and ours behind them.

    A tool does not begin where ours in front of it fails: what is not written down does not
    happen. The CLI gives a hook a minute; a journal on a slow disk may need more.
    """
    hooks: dict[Any, list[HookMatcher]] = {
        event: list(matchers) for event, matchers in (given.hooks or {}).items()
    }
    for event, hook in mine.items():
        if event == "PreToolUse":
            matcher = HookMatcher(hooks=[hook], timeout=_SECONDS, on_failure="block")
        else:
            matcher = HookMatcher(hooks=[hook], timeout=_SECONDS)
        hooks.setdefault(event, []).append(matcher)
    return hooks


_SECONDS: Final = 300.0
