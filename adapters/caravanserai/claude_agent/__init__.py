"""Claude Agent SDK: the same line starts a session, resumes it, and returns its result.

    from caravanserai.claude_agent import resumable_query

    async for message in resumable_query(prompt="Charge customers 1 to 4.", run_id="billing"):
        print(message)

Importing this module imports no part of the SDK: `transcript` reads runs without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from caravanserai.claude_agent._client import WaypointClient
    from caravanserai.claude_agent._query import resumable_query
    from caravanserai.claude_agent._session_store import WaypointSessionStore
    from caravanserai.claude_agent._with import with_waypoints

__all__ = ["WaypointClient", "WaypointSessionStore", "resumable_query", "with_waypoints"]


_MODULES: Final = {
    "WaypointClient": "_client",
    "WaypointSessionStore": "_session_store",
    "resumable_query": "_query",
    "with_waypoints": "_with",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    except ModuleNotFoundError as error:
        # A module that is missing inside of it is another fault, and says so itself.
        if (error.name or "").partition(".")[0] not in ("claude_agent_sdk", "psutil"):
            raise
        raise ImportError(
            'the Claude Agent SDK is not installed: pip install "caravanserai[claude-agent]"',
            name=error.name,
        ) from None
    return getattr(module, name)
