"""Servers for the tests of object stores: each is started once, when it is first asked for."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator

import pytest

from caravanserai_core.stores.objects import ObjectStore
from integration_tests import object_servers
from integration_tests.object_servers import AZURE_KEYS, KEYS, Proxy, Server
from integration_tests.support import fresh_forkserver


@pytest.fixture(scope="session", autouse=True)
def _credentials() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_"))]:
            patch.delenv(name)
        for name, value in {**KEYS, **AZURE_KEYS}.items():
            patch.setenv(name, value)
        fresh_forkserver()
        yield


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory, _credentials: None) -> Iterator[Server]:
    with object_servers.seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory, _credentials: None) -> Iterator[Server]:
    with object_servers.moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory, _credentials: None) -> Iterator[Server]:
    with object_servers.azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture(scope="session")
def rclone(tmp_path_factory: pytest.TempPathFactory, _credentials: None) -> Iterator[Server]:
    with object_servers.rclone(tmp_path_factory.mktemp("rclone")) as server:
        yield server


@pytest.fixture
def prefix() -> str:
    """Return a prefix that no other test uses."""
    return f"tests/{uuid.uuid4().hex}"


@pytest.fixture
def proxy(seaweedfs: Server) -> Iterator[Proxy]:
    """Return a proxy before SeaweedFS."""
    found = Proxy(seaweedfs)
    yield found
    found.close()


@pytest.fixture
def opened() -> Iterator[Callable[..., ObjectStore]]:
    """Return what opens stores, and closes them after the test."""
    stores: list[ObjectStore] = []

    def open_it(url: str, **options: object) -> ObjectStore:
        stores.append(ObjectStore(url, **options))  # type: ignore[arg-type]
        return stores[-1]

    yield open_it
    for store in stores:
        store.close()
