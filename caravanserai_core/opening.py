"""What a process writes of itself: who writes, and the first records of a run."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from caravanserai_core import codec
from caravanserai_core.notes import Note
from caravanserai_core.records import Draft
from caravanserai_core.redact import redact
from caravanserai_core.secrets import refuse

if TYPE_CHECKING:
    from caravanserai_core.stores._legacy import Legacy

_nonce = ""


def writer() -> str:
    """Return this process's nonce: a forked child is a new writer."""
    global _nonce
    if not _nonce:
        _nonce = os.urandom(6).hex()
    return _nonce


def open_body(
    run_id: str,
    adapter: str,
    goal: str | None,
    legacy: Legacy | None,
    framework: str | None = None,
    program: str | None = None,
    origin: dict[str, Any] | None = None,
) -> bytes:
    """Return the body of a run's first record: what it is, and the command that started it.

    Args:
        run_id: the run.
        adapter: what writes it.
        goal: what it is for, if that was given.
        legacy: what release 0.2.0 left of it, if it did.
        framework: name and version of the framework that the adapter is for.
        program: the function that this process runs, `module:name`.
        origin: the run that it goes on from, of another program maybe.

    Raises:
        SecretFound: a declared secret is in the run's name; in the command there are references.
    """
    refuse("the run_id", run_id)
    data: dict[str, Any] = {
        "run_id": run_id,
        "adapter": adapter,
        "argv": [sys.executable, *sys.orig_argv[1:]],
        "cwd": working_folder(),
        "pid": os.getpid(),
        "host": os.uname().nodename if hasattr(os, "uname") else "",
    }
    if framework is not None:
        data["framework"] = framework
    if program is not None:
        data["program"] = program
    if origin is not None:
        data["origin"] = origin
    if goal is not None:
        data["goal"] = redact(goal)
    if legacy is not None:
        folder = legacy.path.rpartition("/")[2]
        data["imported"] = {"from": "0.2.0", "waypoints": legacy.number, "folder": folder}
    return b'"data":' + codec.encode(data).data


def legacy_draft(old: Legacy) -> Draft:
    """Take over the last waypoint of release 0.2.0 under its old number."""
    encoded = codec.encode(old.state)
    fields: dict[str, Any] = {"parent": old.number - 1 or None}
    if encoded.tagged:
        fields["tagged"] = True
    fields["note"] = Note(old.note(old.number) or "").redacted().to_json()
    body = b'"state":' + encoded.data
    return Draft("waypoint", fields, by=writer(), body=body, time=old.time(old.number))


def working_folder() -> str:
    """Return the working folder, or "" where it was deleted."""
    try:
        return os.getcwd()  # noqa: PTH109 - a string is what the record holds
    except OSError:
        return ""


def _after_fork() -> None:
    global _nonce
    _nonce = ""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
