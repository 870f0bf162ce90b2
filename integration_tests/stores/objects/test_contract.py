"""The shipped tests of a store, on object stores of three makers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from caravanserai_core.stores.base import Store
from caravanserai_core.stores.objects import ObjectStore
from caravanserai_core.testing import StoreTests
from integration_tests.object_servers import Server
from integration_tests.stores.objects.raw import Raw

Open = Callable[..., ObjectStore]


class ObjectStoreTests(Raw, StoreTests):
    @pytest.fixture(autouse=True)
    def _open(self, opened: Open) -> None:
        self.opened = opened

    def reopen(self, store: Store) -> ObjectStore:
        return self.opened(store.url)


class TestSeaweedFS(ObjectStoreTests):
    @pytest.fixture
    def store(self, seaweedfs: Server, prefix: str, opened: Open) -> ObjectStore:
        return opened(seaweedfs.url(prefix))


class TestMoto(ObjectStoreTests):
    @pytest.fixture
    def store(self, moto: Server, prefix: str, opened: Open) -> ObjectStore:
        return opened(moto.url(prefix))

    def test_readers_see_the_old_journal_or_the_new_one(
        self, store: Store, request: pytest.FixtureRequest
    ) -> None:
        if not request.config.getoption("--thorough"):
            pytest.skip("moto takes too long for it; the other servers do it")
        super().test_readers_see_the_old_journal_or_the_new_one(store)


class TestAzurite(ObjectStoreTests):
    @pytest.fixture
    def store(self, azurite: Server, prefix: str, opened: Open) -> ObjectStore:
        return opened(azurite.url(prefix))
