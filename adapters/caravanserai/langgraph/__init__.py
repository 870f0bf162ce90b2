"""LangGraph: swap in the checkpointer, and every thread is readable and resumes.

    from caravanserai.langgraph import WaypointSaver

    graph = builder.compile(checkpointer=WaypointSaver())

Importing this module imports no part of LangGraph: `transcript` reads threads without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from caravanserai.langgraph._copying import copy_thread
    from caravanserai.langgraph._graph import ResumableGraph, resumable_graph
    from caravanserai.langgraph._saver import WaypointSaver

__all__ = ["ResumableGraph", "WaypointSaver", "copy_thread", "resumable_graph"]


_FRAMEWORK = ("langgraph", "langchain_core", "ormsgpack")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from caravanserai.langgraph import _copying, _graph
    except ModuleNotFoundError as error:
        # A module that is missing inside of it is another fault, and says so itself.
        if (error.name or "").partition(".")[0] not in _FRAMEWORK:
            raise
        raise ImportError(
            'langgraph is not installed: pip install "caravanserai[langgraph]"', name=error.name
        ) from None
    return getattr(_copying if name == "copy_thread" else _graph, name)
