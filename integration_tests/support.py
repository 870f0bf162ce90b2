"""What tests of every subject share."""

from __future__ import annotations

import importlib
import os
import shutil
from multiprocessing import forkserver
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[1]
"""The folder that holds pyproject.toml."""


def in_ci() -> bool:
    """Say whether this is CI, where nothing that a test needs may be missing."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def fresh_forkserver() -> None:
    """Let the process that others are forked from begin anew, with the environment as it is now."""
    forkserver._forkserver._stop()


def require(module: str) -> ModuleType:
    """Import an optional framework; where it is missing skip, in CI fail.

    For the head of a test module or for one test, in place of `pytest.importorskip`. A module
    that is there and breaks while it is imported is an error everywhere.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        missing(f"{module} is not installed: pip install 'caravanserai[all]'")


def require_command(command: str) -> str:
    """Return the path of a program; where it is missing skip, in CI fail."""
    path = shutil.which(command)
    return path if path is not None else missing(f"the program {command} is not installed")


def missing(reason: str) -> NoReturn:
    """Skip what cannot be tested here; in CI fail."""
    if in_ci():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason, allow_module_level=True)
