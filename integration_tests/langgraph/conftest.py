"""What all tests of the saver share: stores, a time limit, and no wait that ran out."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from caravanserai_core.stores import FileStore, MemoryStore, Store
from integration_tests.langgraph.watchdog import watched


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Return an empty store of each kind."""
    return FileStore(tmp_path / "store") if request.param == "file" else MemoryStore()


@pytest.fixture
def watchdog(thorough: bool) -> Iterator[None]:
    """End a graph that hangs, with every thread's stack shown."""
    with watched(240 if thorough else 60):
        yield


@pytest.fixture(autouse=True)
def _no_wait_ran_out() -> Iterator[None]:
    """Fail where a saver gave up waiting for a `put`: its rules do not fit this LangGraph."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", RuntimeWarning)
        yield
    told = [str(found.message) for found in seen if found.category is RuntimeWarning]
    assert not [text for text in told if "did not reach its saver" in text]
