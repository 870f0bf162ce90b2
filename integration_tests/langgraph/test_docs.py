"""What the page of the adapter shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from integration_tests.support import ROOT

PAGE = (ROOT / "docs" / "langgraph.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


WROTE = "Node `write` wrote `report`"
SAID = "Node `write` said"

RUNS = {
    "report-7": WROTE,
    "report-8": WROTE,
    "report-10": WROTE,
    "report-11": SAID,
    "talk-1": SAID,
    "report-9": WROTE,
}
"""What each snippet leaves, in the order of the page."""


@pytest.mark.parametrize(
    ("source", "run_id"), list(zip(SNIPPETS, RUNS, strict=True)), ids=list(RUNS)
)
def test_every_snippet_runs_and_leaves_its_run(source: str, run_id: str, tmp_path: Path) -> None:
    """Each Python block runs as it stands, and its notes lie in the default store."""
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert "caravan" in done.stdout
    note = (tmp_path / ".caravanserai" / run_id / "latest.md").read_text(encoding="utf-8")
    assert RUNS[run_id] in note
