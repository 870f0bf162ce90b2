"""The packages to compare with, each installed into a folder of its own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Peer:
    """A package to compare with.

    Attributes:
        requirements: what pip installs.
        module: one that shows that it is here already; None: it gets its folder in any case.
        alone: pip leaves out what it depends on, which is here already and must stay what it is.
    """

    requirements: tuple[str, ...]
    module: str | None = None
    alone: bool = False


PLAIN = {"release": Peer(("caravanserai==0.2.0",)), "dbos": Peer(("dbos",))}

LANGGRAPH = {
    "sqlite": Peer(
        ("langgraph-checkpoint-sqlite>=3.1,<4", "aiosqlite", "sqlite-vec"),
        module="langgraph.checkpoint.sqlite",
        alone=True,
    )
}

OPENAI_AGENTS = {
    "dbos": Peer(
        (
            "dbos-openai-agents>=0.3,<0.4",
            "dbos",
            "sqlalchemy>=2,<3",
            "greenlet",
            "croniter",
            "python-dateutil",
            "six",
            "psycopg",
            "psycopg-binary",
        ),
        module="dbos_openai_agents",
        alone=True,
    )
}


def find(
    folder: Path, peers: Mapping[str, Peer], *, install: bool
) -> tuple[dict[str, Path], dict[str, str]]:
    """Find the peers below `folder`, installing those that are not there.

    Returns:
        The folder of each one that is there (of one that is here anyway: it may not exist); why
        the others are not.
    """
    found: dict[str, Path] = {}
    missing: dict[str, str] = {}
    for name, peer in peers.items():
        target = folder / name
        here = peer.module is not None and _here(peer.module)
        problem = None
        if not here and not (target / "installed").exists():
            problem = _install(peer, target) if install else "not installed"
        if problem is None:
            found[name] = target
        else:
            missing[name] = f"{peer.requirements[0]}: {problem}"
    return found, missing


def _here(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _install(peer: Peer, target: Path) -> str | None:
    """Install one; returns what went wrong, or None."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input"]
    command += ["--disable-pip-version-check", "--target", str(target)]
    command += ["--no-deps"] if peer.alone else []
    command += peer.requirements
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return lines[-1] if lines else f"pip ended with {done.returncode}"
    (target / "installed").touch()
    return None
