"""`examples/relay.py`, as its head tells it: three frameworks, two kills, nothing twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from caravanserai import handoff
from caravanserai_core.cli import app
from integration_tests.support import ROOT, require

for module in ("crewai", "agents", "claude_agent_sdk"):
    require(module)

EXAMPLE = ROOT / "examples" / "relay.py"


def test_one_job_goes_through_three_frameworks(tmp_path: Path) -> None:
    """The notes read as one story: each first note says who did what before."""
    places = {"HOME": str(tmp_path / "home"), "CREWAI_STORAGE_DIR": str(tmp_path / "storage")}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        cwd=tmp_path,
        env={**os.environ, **places, "CREWAI_TESTING": "true"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:13] == [
        "bees-1, CrewAI:",
        "    tool: search law",
        "    tool: search neighbours",
        "    killed with SIGKILL (exit code -9)",
        "bees-2, OpenAI Agents SDK:",
        "    tool: search yield",
        "    tool: write Rules",
        "    killed with SIGKILL (exit code -9)",
        "bees-3, Claude Agent SDK:",
        "    tool: write Honey",
        "    tool: publish roof-bees",
        "    said: The guide is published: two sections, three facts.",
        "",
    ]
    assert lines[13] == "6 things were done, 0 of them twice."
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    shown = page.partition("<!-- transcript: relay -->\n```\n")[2].partition("\n```")[0]
    assert shown.splitlines() == ["$ python examples/relay.py", *lines[:14]]
    assert "goes on from run `bees-1` (CrewAI" in done.stdout
    assert '`search(topic="neighbours")`' in done.stdout
    assert "goes on from run `bees-2` (OpenAI Agents SDK" in done.stdout

    store = tmp_path / ".caravanserai"
    from click.testing import CliRunner

    drawn = CliRunner().invoke(app, ["log", "bees-3", "--graph", "--store", str(store)])
    assert [line.count("handed over") for line in drawn.stdout.splitlines()].count(1) == 2
    whole = handoff("bees-3", store=store)
    for result in ("registered with the city", "section Rules", "section Honey", "is published"):
        assert result in whole.text
