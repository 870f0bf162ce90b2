"""Steps for `migrations=` of `Runner`: what a program of today makes of yesterday's states.

A state names agents and nothing else of them, so a renamed agent is all that the SDK does not find
again by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["rename_agent"]

_REFERENCES: Final = frozenset({"agent", "current_agent", "source_agent", "target_agent", "owner"})
"""Where a run state holds `{"name": …}` of an agent (openai-agents 0.20 to 0.24)."""

_BY_AGENT: Final = frozenset({"tool_use_tracker"})
"""Objects with a key for each agent."""


def rename_agent(old: str, new: str) -> Callable[[Any], Any]:
    """Return a step that leads states to a new name of an agent.

        Runner.run(agent, text, run_id="order-a17", migrations=[rename_agent("triage", "desk")])

    Args:
        old: the name as it was.
        new: the agent's name in this program.
    """

    def step(state: Any) -> Any:
        if isinstance(state, dict) and isinstance(state.get("run"), dict):
            state["run"] = _renamed(state["run"], old, new)
        return state

    return step


def _renamed(tree: Any, old: str, new: str) -> Any:
    if isinstance(tree, list):
        return [_renamed(item, old, new) for item in tree]
    if not isinstance(tree, dict):
        return tree
    result: dict[Any, Any] = {}
    for key, value in tree.items():
        changed = _renamed(value, old, new)
        if key in _REFERENCES and isinstance(changed, dict) and changed.get("name") == old:
            changed = {**changed, "name": new}
        elif key in _BY_AGENT and isinstance(changed, dict):
            changed = {new if name == old else name: tools for name, tools in changed.items()}
        result[key] = changed
    return result
