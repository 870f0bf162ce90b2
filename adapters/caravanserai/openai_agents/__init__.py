"""OpenAI Agents SDK: the same line starts a run, resumes it, and returns its result.

    from caravanserai.openai_agents import Runner

    result = await Runner.run(agent, "Refund order A17 please.", run_id="order-a17")

Importing this module imports no part of the SDK: `transcript` reads runs without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from caravanserai.openai_agents._hooks import WaypointHooks
    from caravanserai.openai_agents._runner import Runner
    from caravanserai.openai_agents._session import WaypointSession

__all__ = ["Runner", "WaypointHooks", "WaypointSession"]


_MODULES: Final = {
    "Runner": "_runner",
    "WaypointHooks": "_hooks",
    "WaypointSession": "_session",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    except ModuleNotFoundError as error:
        # A module that is missing inside of it is another fault, and says so itself.
        if (error.name or "").partition(".")[0] not in ("agents", "openai"):
            raise
        raise ImportError(
            'openai-agents is not installed: pip install "caravanserai[openai-agents]"',
            name=error.name,
        ) from None
    return getattr(module, name)
