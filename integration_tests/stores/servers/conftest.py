"""A Postgres, an S3 and an Azure server for each worker; each store gets a part that is its own."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator

import pytest

from integration_tests.support import fresh_forkserver, require

require("psycopg_pool")
require("obstore")

from caravanserai_core.stores import Store, open_store  # noqa: E402
from integration_tests import object_servers  # noqa: E402
from integration_tests.postgres_server import postgres as postgres_server  # noqa: E402

Address = Callable[[str], str]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Address]:
    with postgres_server() as server:
        yield lambda name: f"{server.url()}?namespace={name}"


@pytest.fixture(scope="session", autouse=True)
def _credentials() -> Iterator[None]:
    """Give all processes that are started the keys of these servers, and no others."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_"))]:
            patch.delenv(name)
        for name, value in (object_servers.KEYS | object_servers.AZURE_KEYS).items():
            patch.setenv(name, value)
        fresh_forkserver()
        yield


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory, _credentials: None) -> Iterator[Address]:
    with object_servers.seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server.url


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory, _credentials: None) -> Iterator[Address]:
    with object_servers.azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server.url


@pytest.fixture(params=["postgres", "s3"])
def new_url(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Return what gives the address of one empty store after the other."""
    address: Address = request.getfixturevalue(request.param)
    return lambda: address(uuid.uuid4().hex)


@pytest.fixture
def url(new_url: Callable[[], str]) -> str:
    return new_url()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    found = open_store(url)
    yield found
    found.close()
