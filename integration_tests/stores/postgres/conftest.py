"""One server for all tests of a worker; each test gets a namespace of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from integration_tests.support import require

require("psycopg_pool")

import psycopg  # noqa: E402

from caravanserai_core.stores import PostgresStore, _pg_schema  # noqa: E402
from integration_tests.postgres_server import PostgresServer, postgres  # noqa: E402


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with postgres() as found:
        with psycopg.connect(found.url(), autocommit=True) as connection:
            _pg_schema.prepare(connection, "caravanserai", "the tests")
        yield found


@pytest.fixture
def url(server: PostgresServer) -> str:
    return f"{server.url()}?namespace={uuid.uuid4().hex}"


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    found = PostgresStore(url)
    yield found
    found.close()
