"""One run for all tests that damage a journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.journal.damage import Case, Written, write_run


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A run of two segments; its folder is never changed."""
    return write_run(tmp_path_factory.mktemp("written") / "store")


@pytest.fixture
def case(written: Written, tmp_path: Path) -> Case:
    """A copy of that run, to be damaged."""
    return Case(written, tmp_path / "copy")
