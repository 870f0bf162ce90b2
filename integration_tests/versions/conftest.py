"""A run written by one version of a program's source and read by another, in real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from integration_tests.support import ROOT

Started = subprocess.CompletedProcess[str]


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., Started]:
    """Give a function that writes `agent.py` and runs a line of Python that may import it."""

    def started(source: str, line: str = "import agent") -> Started:
        (tmp_path / "agent.py").write_text(source, encoding="utf-8")
        path = os.pathsep.join([str(ROOT), str(ROOT / "adapters"), str(tmp_path)])
        # Two versions of a source in one second and of one size would share their bytecode.
        env = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [sys.executable, "-c", line], cwd=tmp_path, env=env, capture_output=True, text=True
        )

    return started
