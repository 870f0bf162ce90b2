"""An MCP server over stdio with one tool, which leaves a line in the file that it is told.

python mcp_server.py OUTSIDE [KILL]      KILL: the tool kills its client, before it answers
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

Server: Any
try:
    from mcp.server import MCPServer as Server
except ImportError:  # mcp 1, which comes with openai-agents 0.20
    from mcp.server.fastmcp import FastMCP as Server

server = Server("weather")
outside = Path(sys.argv[1])


@server.tool()
def forecast(city: str) -> str:
    """Say how the weather will be."""
    with outside.open("a") as file:
        file.write(f"begin forecast {city}\nend forecast {city}\n")
    if sys.argv[2:]:
        os.kill(os.getppid(), signal.SIGKILL)
    return f"sunny in {city}"


if __name__ == "__main__":
    server.run("stdio")
