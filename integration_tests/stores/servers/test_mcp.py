"""The tools of MCP on a store that is no folder, from a server process of its own."""

# ruff: noqa: E402

from __future__ import annotations

import os
from pathlib import Path

import pytest

from integration_tests.support import require

require("mcp")

from caravanserai_core import WaitingForPerson, checkpoint, open_run
from integration_tests.mcp.talking import started


def test_runs_are_listed_read_and_answered(url: str, tmp_path: Path) -> None:
    checkpoint("book", {"page": 1}, "wrote page 1", store=url)
    checkpoint("book", {"page": 2}, "wrote page 2", store=url)
    with pytest.raises(WaitingForPerson), open_run("asks", store=url) as run:
        run.ask("Go on?")
    keys = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}

    with started(url, tmp_path, "--allow-answers", **keys) as client:
        assert "book" in client.told("list_runs")
        assert "wrote page 2" in client.told("read_note", run="book")
        assert "wrote page 1" in client.told("log", run="book")
        assert "wrote page 2" in client.told("handoff", run="book")
        client.told("answer", run="asks", value="yes")

    with open_run("asks", store=url) as run:
        assert run.ask("Go on?") == "yes"
