"""Where the files of a working folder stand: the commit, and whether something was changed."""

from __future__ import annotations

import os
import subprocess
from typing import Any, Final

_SECONDS: Final = 5.0
"""A repository that takes longer has its commit recorded, and not whether it was changed."""


def anchor(folder: str | None) -> dict[str, Any] | None:
    """Return the commit of a working folder, None where it is in no repository.

    Args:
        folder: the folder, None: the current one.

    Returns:
        `{"commit": "…", "dirty": True}`; the commit is None in a repository without one, `dirty`
        where that could not be found out in time.
    """
    status = _git(folder, "status", "--porcelain=v2", "--branch", "--ignore-submodules=dirty")
    if status is None:
        # No repository, or one that is too large to be looked through.
        commit = _git(folder, "rev-parse", "--verify", "HEAD")
        return None if commit is None else {"commit": commit, "dirty": None}
    heads = [line.split() for line in status.splitlines() if line.startswith("# branch.oid")]
    commit = heads[0][-1] if heads else ""
    changed = any(not line.startswith("#") for line in status.splitlines())
    return {"commit": None if commit in ("", "(initial)") else commit, "dirty": changed}


def _git(folder: str | None, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-c", "core.fsmonitor=false", *words],
            cwd=folder,
            # It may not take the repository's locks: the agent works in it.
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
