"""What release 0.2.0 left in a folder: `state.json`, `latest`, `meta.json`, notes.

Read-only: the old files stay as they are. A run that goes on gets a journal beside them, whose
first waypoint has the old number and the old state.
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from typing import Any, NamedTuple

from caravanserai_core.errors import JournalDamaged
from caravanserai_core.quoting import visible


class Legacy(NamedTuple):
    """A run as release 0.2.0 left it.

    Attributes:
        path: its folder.
        number: number of its last waypoint; only this one has a state.
        state: that state.
        command: the recorded command, or None.
        updated: when it was last written, seconds since the epoch.
    """

    path: str
    number: int
    state: Any
    command: list[str] | None
    updated: float

    def note(self, number: int) -> str | None:
        """Return the note of waypoint `number`, without its title, or None."""
        try:
            with open(f"{self.path}/waypoint-{number}.md", encoding="utf-8") as file:
                return file.read().partition("\n\n")[2].strip()
        except (OSError, UnicodeDecodeError):
            return None

    def time(self, number: int) -> str | None:
        """Return the time in the title of note `number`, or None."""
        try:
            with open(f"{self.path}/waypoint-{number}.md", encoding="utf-8") as file:
                time = file.readline().rstrip().rpartition(" ")[2]
            datetime.fromisoformat(time)
        except (OSError, ValueError):
            return None
        return time


def find(root: str, run_id: str) -> Legacy | None:
    """Find a run of release 0.2.0, which used the run_id itself as the folder's name."""
    if not run_id or "/" in run_id or "\\" in run_id or "\0" in run_id or run_id in (".", ".."):
        return None  # 0.2.0 refused these
    path = f"{root}/{run_id}"
    try:
        found = read(path)
        # On a disk that ignores case another run's folder may answer to this name.
        return found if found is not None and run_id in os.listdir(root) else None
    except (OSError, ValueError) as error:
        if isinstance(error, JournalDamaged):
            raise
        return None


def read(path: str) -> Legacy | None:
    """Read a folder of release 0.2.0, or return None if it is none.

    Raises:
        JournalDamaged: it is one, and its files do not hold what 0.2.0 wrote.
    """
    latest = f"{path}/latest"
    if os.path.islink(path) or not os.path.isfile(latest):
        return None
    try:
        with open(latest, encoding="utf-8") as file:
            number = int(file.read())
        with open(f"{path}/state.json", encoding="utf-8") as file:
            state = json.load(file)
        updated = os.stat(latest).st_mtime
    except (OSError, ValueError, RecursionError) as error:
        raise JournalDamaged(
            f"{visible(path)} was written by caravanserai 0.2.0 and cannot be read: {error}. "
            "Nothing was changed.",
            path=path,
        ) from None
    command = None
    try:
        with open(f"{path}/meta.json", encoding="utf-8") as file:
            command = json.load(file)["command"]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return Legacy(path, number, state, command, updated)
