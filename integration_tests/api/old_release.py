"""The real release 0.2.0, installed apart from everything and run in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from integration_tests.support import in_ci


def install(target: Path) -> Path:
    """Install the release into a folder; where that is not possible skip, in CI fail."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    options = ["--disable-pip-version-check", "--no-cache-dir", "caravanserai==0.2.0"]
    try:
        done = subprocess.run(
            [*command, str(target), *options],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        problem = done.stderr.strip() if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    if problem:
        reason = f"release 0.2.0 cannot be installed: {problem.splitlines()[-1]}"
        if in_ci():
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return target


def run_old(release: Path, code: str) -> str:
    """Run code with the old release in this folder; returns what it printed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "PYTHONPATH": str(release)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
