"""The packages to compare with, each installed into a folder of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PEERS = {"release": "caravanserai==0.2.0", "dbos": "dbos"}
"""Name of a peer -> what pip installs."""


def find(folder: Path, *, install: bool) -> tuple[dict[str, Path], dict[str, str]]:
    """Find the peers below `folder`, installing those that are not there.

    Returns:
        The folder of each one that is there; why the others are not.
    """
    found: dict[str, Path] = {}
    missing: dict[str, str] = {}
    for name, requirement in PEERS.items():
        target = folder / name
        problem = None
        if not (target / "installed").exists():
            problem = _install(requirement, target) if install else "not installed"
        if problem is None:
            found[name] = target
        else:
            missing[name] = f"{requirement}: {problem}"
    return found, missing


def _install(requirement: str, target: Path) -> str | None:
    """Install one; returns what went wrong, or None."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input"]
    command += ["--disable-pip-version-check", "--target", str(target), requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return lines[-1] if lines else f"pip ended with {done.returncode}"
    (target / "installed").touch()
    return None
