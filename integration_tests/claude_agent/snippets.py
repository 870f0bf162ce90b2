"""The Python blocks of the documents, each run as a program of its own in a forked process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio._backends._asyncio  # imported where it is first used
import claude_agent_sdk._internal.transport.subprocess_cli

from caravanserai.claude_agent import _client, _query, _session_store, _with
from integration_tests.claude_agent import offline

# Imported to be there.
LOADED = (anyio, claude_agent_sdk, _client, _query, _session_store, _with)

PRINTED = "printed.txt"
"""What the block prints."""


def run(source: str, server: dict[str, str]) -> None:
    """Run a block in this folder.

    Args:
        source: the block.
        server: the part of the environment that names the scripted model.
    """
    offline.enter(offline.environment(Path.cwd(), server))

    def printed(*values: Any) -> None:
        with Path(PRINTED).open("a", encoding="utf-8") as file:
            print(*values, file=file)

    names: dict[str, Any] = {"__name__": "__main__", "print": printed}
    exec(compile(source, "snippet.py", "exec"), names)
