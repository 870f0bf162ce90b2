"""The environment that the CLI runs in: it asks this machine alone, and touches no home."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from integration_tests.support import ROOT

FOLDERS = {"HOME": "home", "CLAUDE_CONFIG_DIR": "config", "TMPDIR": "tmp"}


def environment(folder: Path, server: dict[str, str], **more: str) -> dict[str, str]:
    """Return all that a process is to find in its environment.

    The SDK gives the whole environment of its process to the CLI.

    Args:
        folder: that of the test; what the CLI writes stays below it.
        server: what names the scripted model.
        **more: what is different.
    """
    places = {name: str(folder / place) for name, place in FOLDERS.items()}
    found = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")]),
        **places,
        **server,
        **more,
    }
    for name in FOLDERS:
        Path(found[name]).mkdir(parents=True, exist_ok=True)
    return found


def enter(given: dict[str, str]) -> None:
    """Make an environment the one of this process, and leave nothing of the old one."""
    os.environ.clear()
    os.environ.update(given)
    tempfile.tempdir = None  # it remembers the old TMPDIR
