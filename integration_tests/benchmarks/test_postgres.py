"""The benchmark of the Postgres store runs and yields every figure."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.benchmarks import test_smoke
from integration_tests.support import require


@pytest.mark.timeout(180)
def test_quick_benchmark_of_postgres_yields_every_figure(tmp_path: Path) -> None:
    """Our store and LangGraph's saver, in databases of their own on a real server."""
    require("langgraph.checkpoint.postgres")
    result = test_smoke._quick("postgres", tmp_path / "data", seconds=170)

    graphs = {
        name: {f"{name}_step_postgressaver", f"{name}_step_asyncpostgressaver", f"{name}_bytes"}
        for name in ("nodes", "chat", "prose", "document")
    }
    assert test_smoke._keys(result) == {"checkpoint": {"checkpoint_insert"}, **graphs}
