"""What the page of LangChain shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from integration_tests.support import ROOT, require

require("langchain_core")

PAGE = (ROOT / "docs" / "langchain.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

RUNS = {
    "weather-1": ("Seven degrees.", "answered the question"),
    "weather-2": ("Seven degrees.", "asked the model"),
    "chat-1": ("ai Answer 3.", 'The user asked "And in Rome?" The model answered "Answer 3."'),
    "chat-3": ("Refund order A17, please.", "The chat begins with what `order-1@1` left"),
}
"""What each snippet prints last, and the run that it leaves with its note, in order."""


@pytest.mark.parametrize(
    ("source", "run_id"), list(zip(SNIPPETS, RUNS, strict=True)), ids=list(RUNS)
)
def test_every_snippet_runs_and_leaves_its_run(source: str, run_id: str, tmp_path: Path) -> None:
    """Each Python block runs twice as it stands, and its notes lie in the default store."""
    shown, told = RUNS[run_id]
    for _ in range(2 if run_id == "weather-2" else 1):
        done = subprocess.run(
            [sys.executable, "-c", source], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == shown
    note = (tmp_path / ".caravanserai" / run_id / "latest.md").read_text(encoding="utf-8")
    assert told in note
