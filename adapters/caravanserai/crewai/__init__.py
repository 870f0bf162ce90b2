"""CrewAI: add a callback to a crew, and it survives; `@persist` a flow, and it goes on.

    from caravanserai.crewai import waypoints

    crew = Crew(agents=[…], tasks=[…], task_callback=waypoints("report-{topic}"))
    crew.kickoff(inputs={"topic": "bees"})

Importing this module imports no part of CrewAI, which takes seconds: `transcript` reads runs
without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from caravanserai.crewai._persistence import WaypointFlowPersistence
    from caravanserai.crewai._waypoints import resumable_crew, waypoints

__all__ = ["WaypointFlowPersistence", "resumable_crew", "waypoints"]


_MODULES: Final = {
    "WaypointFlowPersistence": "_persistence",
    "resumable_crew": "_waypoints",
    "waypoints": "_waypoints",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    except ModuleNotFoundError as error:
        # A module that is missing inside of it is another fault, and says so itself.
        if (error.name or "").partition(".")[0] != "crewai":
            raise
        raise ImportError(
            'CrewAI is not installed: pip install "caravanserai[crewai]"', name=error.name
        ) from None
    return getattr(module, name)
