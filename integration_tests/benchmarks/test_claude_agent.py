"""The benchmark of the Claude adapter runs and yields every figure."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.benchmarks import test_smoke
from integration_tests.support import require


@pytest.mark.timeout(180)
def test_quick_benchmark_of_the_claude_agent_sdk_yields_every_figure(tmp_path: Path) -> None:
    """Sessions run with the SDK alone, with hooks that do nothing, and as runs."""
    require("claude_agent_sdk")
    result = test_smoke._quick("claude_agent", tmp_path / "data", seconds=170)

    found = test_smoke._keys(result)
    if not isinstance(result["figures"]["calls"]["raw"].get("ours"), dict):
        found["calls"] = {"syncs"}  # strace is missing, or may not trace here
    assert found == {
        "sessions": {"call", "call_bare", "session", "bytes", "bytes_call", "appends"},
        "calls": {"syncs"},
    }
    assert {"claude-agent-sdk", "psutil", "file_system"} <= set(result["machine"])
