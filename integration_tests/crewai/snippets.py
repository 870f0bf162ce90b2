"""The Python blocks of the documents, each run as a program of its own in a forked process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from integration_tests.crewai.offline import places_of

# isort: split
import crewai  # noqa: F401 - takes seconds, so it is imported before anything is forked

PRINTED = "printed.txt"
"""What the block prints; CrewAI tells its own story on the terminal."""


def run(source: str, url: str) -> None:
    """Run a block in this folder.

    Args:
        source: the block.
        url: of the scripted model; CrewAI's client knows it by a variable.
    """
    os.environ.update(places_of(Path.cwd()), OPENAI_BASE_URL=url)

    def printed(*values: Any) -> None:
        with Path(PRINTED).open("a", encoding="utf-8") as file:
            print(*values, file=file)

    names: dict[str, Any] = {"__name__": "__main__", "print": printed}
    exec(compile(source, "snippet.py", "exec"), names)
