"""The CLI's processes: one that outlived its program is waited for, or ended.

It goes on by itself for seconds: it finishes a command that runs, asks the model once more, and
writes an end that never was. Nothing of a session is read before it is gone.
"""

from __future__ import annotations

import logging
import os
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import psutil

from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_log = logging.getLogger("caravanserai")

PATIENCE = 30.0
"""Seconds that a command which an old process runs may take; then the process is ended."""

_LOOK = 0.1
"""Seconds between two looks at whether it has come to its end."""

_GRACE = 1.0
"""Seconds between asking a process to end and making it."""

_NAMING = ("--session-id", "--resume")
"""The CLI's options that name a session, the one that it works on first (SDK 0.2.189)."""


def of_session(session: str) -> list[psutil.Process]:
    """Return the CLI's processes on this machine that work on a session.

    The id of a session is a UUID that stands in the command line, so no other process is meant,
    whatever its number is.
    """
    return [process for process in psutil.process_iter() if session in _sessions(process)]


def _sessions(process: psutil.Process) -> Iterator[str]:
    try:
        words = process.cmdline()
    except psutil.Error:
        return
    named: dict[str, str] = {}
    for word, following in pairwise([*words, ""]):
        name, _, value = word.partition("=")
        if name in _NAMING:
            named[name] = value or following
    # A fork resumes one session and works on another.
    yield from [named[name] for name in _NAMING if name in named][:1]


def is_used(folder: Path) -> bool:
    """Say whether a living process has a folder as the CLI's configuration."""
    return any(_configured(process) == str(folder) for process in psutil.process_iter())


def _configured(process: psutil.Process) -> str:
    try:
        return str(process.environ().get("CLAUDE_CONFIG_DIR", ""))
    except psutil.Error:
        return ""


def end(
    run_id: str,
    session: str,
    busy: Callable[[], bool],
    whose: str = "began it is gone",
    patience: float = PATIENCE,
) -> int:
    """See to it that no process of earlier starts works on a session; returns how many did.

    Args:
        run_id: the run, for what is said.
        session: its id.
        busy: whether it does something that is worth waiting for.
        whose: ends the sentence that begins with "the program that".
        patience: seconds until it is ended all the same.
    """
    found = of_session(session)
    if not found:
        return 0
    waits = busy()
    why = (
        f"It runs a command: that is waited for, at most {patience:g} s, and then it is ended"
        if waits
        else "It is ended now"
    )
    for process in found:
        if _is_child(process):
            continue  # of a loop of this program that was left a moment ago
        _log.warning(
            "run %s: the Claude process %d, begun at %s, still works on its session, though the "
            "program that %s. %s: two at once would spoil the session.",
            one_line(run_id),
            process.pid,
            _begun(process),
            whose,
            why,
        )
    limit = time.monotonic() + patience
    alive = found
    while alive and waits and time.monotonic() < limit:
        alive = _wait(alive, _LOOK)
        waits = busy()
    for process in alive:
        _tell(process.terminate)
    alive = _wait(alive, _GRACE)
    for process in alive:
        _tell(process.kill)
    _wait(alive, _GRACE)
    return len(found)


def _wait(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Return those that are still at work after some seconds; a zombie only waits to be buried."""
    limit = time.monotonic() + seconds
    while alive := [process for process in processes if _is_alive(process)]:
        if time.monotonic() >= limit:
            break
        time.sleep(min(_LOOK, seconds) / 4)
    return alive


def _is_child(process: psutil.Process) -> bool:
    try:
        return bool(process.ppid() == os.getpid())
    except psutil.Error:
        return True


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _begun(process: psutil.Process) -> str:
    from datetime import UTC, datetime

    try:
        return f"{datetime.fromtimestamp(process.create_time(), UTC):%Y-%m-%d %H:%M:%S} UTC"
    except psutil.Error:
        return "an unknown time"


def _tell(call: Any) -> None:
    try:
        call()  # psutil looks first whether it is still the same process
    except psutil.Error:
        return
