"""The shipped tests of a store, on a real Postgres server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from caravanserai_core.names import folder_name
from caravanserai_core.stores import PostgresStore
from caravanserai_core.stores.base import Store
from caravanserai_core.testing import StoreTests
from integration_tests.postgres_server import PostgresServer

_opened: list[PostgresStore] = []


@pytest.fixture(autouse=True)
def _closed(server: PostgresServer) -> Iterator[None]:
    TestPostgresStore.server = server
    yield
    while _opened:
        _opened.pop().close()


class TestPostgresStore(StoreTests):
    server: PostgresServer

    def reopen(self, store: Store) -> PostgresStore:
        found = PostgresStore(store.url)
        _opened.append(found)
        return found

    def raw_lines(self, store: Store, run_id: str) -> list[bytes]:
        assert isinstance(store, PostgresStore)
        rows = self.server.sql(
            "SELECT r.line FROM caravanserai.records r JOIN caravanserai.runs h ON h.id = r.run "
            "WHERE h.namespace = %s AND h.folder = %s ORDER BY r.seq",
            store.namespace,
            folder_name(run_id),
        )
        return [bytes(row[0]) for row in rows]  # type: ignore[arg-type]

    def raw_runs(self, store: Store) -> int:
        assert isinstance(store, PostgresStore)
        rows = self.server.sql(
            "SELECT count(*) FROM caravanserai.runs WHERE namespace = %s", store.namespace
        )
        return int(rows[0][0])  # type: ignore[call-overload]
