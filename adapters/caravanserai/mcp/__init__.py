"""A server of the Model Context Protocol (MCP) that lets an agent read the runs of a store.

    caravanserai mcp --store PATH

is how a client starts it: over stdin and stdout. Needs the official SDK, `mcp` 1.30 or newer.
Importing this module imports no part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from caravanserai.mcp._serve import serve

__all__ = ["serve"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from caravanserai.mcp import _serve
    except ModuleNotFoundError as error:
        # A module that is missing inside of it is another fault, and says so itself.
        if error.name not in ("mcp", "anyio"):
            raise
        raise ImportError(
            'the MCP SDK is not installed: pip install "caravanserai[mcp]"', name=error.name
        ) from None
    return getattr(_serve, name)
