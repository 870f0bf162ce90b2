"""The CLI's processes: one that outlived its program is waited for, or ended.

It goes on by itself for seconds: it finishes a command that runs, asks the model once more, and
writes an end that never was. Nothing of a session is read before it is gone.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import psutil

from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_log = logging.getLogger("caravanserai")

PATIENCE = 15.0
"""Seconds that an old process may take to come to its end; then it is ended."""

_GRACE = 3.0
"""Seconds between asking a process to end and making it."""

_NAMING = ("--resume", "--session-id")
"""The CLI's options that name a session (claude-agent-sdk 0.2.189)."""


def of_session(session_ids: Iterable[str]) -> list[psutil.Process]:
    """Return the CLI's processes on this machine that work on one of some sessions.

    The id of a session is a UUID that stands in the command line, so no other process is meant,
    whatever its number is.
    """
    wanted = set(session_ids)
    return [process for process in psutil.process_iter() if wanted & set(_sessions(process))]


def _sessions(process: psutil.Process) -> Iterator[str]:
    try:
        words = process.cmdline()
    except psutil.Error:
        return
    for word, following in zip(words, words[1:], strict=False):
        if word in _NAMING:
            yield following
    for word in words:
        name, _, value = word.partition("=")
        if value and name in _NAMING:
            yield value


def wait_for_end(run_id: str, session_ids: Iterable[str], *, patience: float | None = None) -> int:
    """Wait until no process of earlier starts works on a session; returns how many did.

    Args:
        run_id: the run, for what is said.
        session_ids: the sessions.
        patience: seconds until they are ended; None: `PATIENCE`.
    """
    found = of_session(session_ids)
    if not found:
        return 0
    limit = PATIENCE if patience is None else patience
    for process in found:
        _log.warning(
            "run %s: the Claude process %d, begun at %s, still works on its session, though the "
            "program that began it is gone. It is waited for, at most %g s, and then ended: two at "
            "once would spoil the session.",
            one_line(run_id),
            process.pid,
            _begun(process),
            limit,
        )
    _, alive = psutil.wait_procs(found, timeout=limit)
    for process in alive:
        _tell(process.terminate)
    _, alive = psutil.wait_procs(alive, timeout=_GRACE)
    for process in alive:
        _tell(process.kill)
    psutil.wait_procs(alive, timeout=_GRACE)
    return len(found)


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
