"""The benchmark runs and yields every figure; what the figures are is no matter here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

KEYS = {
    "checkpoint": {"checkpoint_raw", "checkpoint_raw_p99", "checkpoint_without_sync"}
    | {"bytes_journal", "bytes_notes"},
    "calls": {"syncs_ours"},
    "encoding": {"encode_100kB", "encode_1MB", "encode_10MB"},
    "import": {"import", "import_net"},
    "small": {"small_last_first", "small_bytes", "small_newest", "small_arbitrary"}
    | {"small_history"},
    "document": {"document_last_first", "document_bytes", "document_newest", "document_history"},
    "dict": {"dict_last_first", "dict_bytes", "dict_newest", "dict_history"},
    "list": {"list_last_encode", "list_bytes", "list_newest", "list_history"},
    "runs": {"runs_listed"},
}


@pytest.mark.timeout(120)
def test_quick_benchmark_yields_every_figure(tmp_path: Path) -> None:
    """A quick run, without other packages, prints one document with all figures and cleans up."""
    data = tmp_path / "data"
    command = [sys.executable, "-m", "benchmarks.plain", "--quick", "--json", "--no-install"]
    done = subprocess.run(
        [*command, "--waypoints", "100", "--dir", str(data)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    found = {
        name: {row["key"] for row in figure["rows"]} for name, figure in result["figures"].items()
    }
    if not isinstance(result["figures"]["calls"]["raw"].get("ours"), dict):
        found["calls"] |= KEYS["calls"]  # strace is missing, or may not trace here
    assert found == KEYS
    assert all(row["value"] > 0 for figure in result["figures"].values() for row in figure["rows"])
    assert set(result["missing"]) == {"release", "dbos"}
    assert {"python", "orjson", "file_system"} <= set(result["machine"])
    assert len(result["disk"]) == 2
    assert list(data.iterdir()) == []
