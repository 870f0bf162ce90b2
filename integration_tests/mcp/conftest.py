"""What the tests of the server share: two servers, one of which may answer."""

# ruff: noqa: E402

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.support import require

require("mcp")

from integration_tests.mcp.talking import Client, started

SECRET = "never-to-be-shown-4711"


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that all tests of the session share; each has runs of its own in it."""
    return tmp_path_factory.mktemp("mcp") / "store"


@pytest.fixture(scope="session")
def reader(shared_store: Path) -> Iterator[Client]:
    """A server as it is by default."""
    with started(shared_store, shared_store.parent, SHOP_API_KEY=SECRET) as client:
        yield client


@pytest.fixture(scope="session")
def answerer(shared_store: Path) -> Iterator[Client]:
    """A server that was started with --allow-answers."""
    with started(shared_store, shared_store.parent, "--allow-answers") as client:
        yield client
