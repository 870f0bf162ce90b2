"""Each append to a journal as two places at which a process can be killed."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from caravanserai_core.stores import FileStore

APPENDS = "appends.txt"
"""The places that were reached, a line each."""

_real = FileStore.append
_lock = threading.Lock()


def watch_appends(pass_by: Callable[[str], None]) -> None:
    """Make each append of this process a place where it begins and one where it ended, from 1 on.

    Args:
        pass_by: called at each; it may end the process.
    """
    numbers = itertools.count(1)

    def reach(place: str) -> None:
        with Path(APPENDS).open("a") as file:
            file.write(f"{place}\n")
        pass_by(place)

    def append(self: FileStore, *args: Any, **options: Any) -> Any:
        with _lock:
            name = f"append {next(numbers)}"
        reach(f"{name} begins")
        result = _real(self, *args, **options)
        reach(f"{name} ends")
        return result

    FileStore.append = append  # type: ignore[method-assign]
