"""A Postgres and an S3 server for each worker; each test gets a part of one that is its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from integration_tests.postgres_server import postgres
from integration_tests.support import require

require("psycopg_pool")


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres() as server:
        yield f"{server.url()}?namespace=%s"


@pytest.fixture(params=["postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """Return the address of an empty store."""
    address: str = request.getfixturevalue(f"{request.param}_url")
    return address % uuid.uuid4().hex
