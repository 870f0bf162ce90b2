"""What was not waited for may be lost when the server crashes, and that is never passed over."""

from __future__ import annotations

import signal

import pytest

from caravanserai_core.errors import StoreFailed
from caravanserai_core.stores import PostgresStore
from caravanserai_core.testing import HandWriter
from integration_tests.postgres_server import postgres


def test_a_crash_of_the_server_is_told_where_it_lost_something() -> None:
    """The writer is told what went; what it waited for stands, and it goes on from there."""
    with postgres() as server:
        server.sql("ALTER SYSTEM SET wal_writer_delay = '10s'")
        server.sql("SELECT pg_reload_conf()")
        store = PostgresStore(server.url())
        writer = HandWriter(store)
        durable = writer.append(writer.state(b'"durable"')).tail
        lost = writer.append(writer.entry(b'"lost"'), sync=False)
        assert not lost.durable
        server.stop(signal.SIGQUIT)
        server.start()

        recent = store.recent("run")
        assert recent is not None
        assert recent.tail == durable, "nothing was lost: the test is too tame"
        with pytest.raises(StoreFailed, match="crashed, and lost records 3 to 3"):
            writer.append(writer.state(b'"next"'))

        writer.known = durable
        writer.append(writer.entry(b'"kept"'), sync=False)
        kept = writer.append(writer.entry(b'"and this"'))
        server.stop(signal.SIGQUIT)
        server.start()
        recent = store.recent("run")
        assert recent is not None
        assert recent.tail == kept.tail
        store.close()


def test_sync_makes_it_durable() -> None:
    with postgres() as server:
        server.sql("ALTER SYSTEM SET wal_writer_delay = '10s'")
        server.sql("SELECT pg_reload_conf()")
        store = PostgresStore(server.url())
        writer = HandWriter(store)
        writer.append(writer.state())
        tail = writer.append(writer.entry(b'"kept"'), sync=False).tail
        store.sync("run", tail)
        server.stop(signal.SIGQUIT)
        server.start()
        recent = store.recent("run")
        assert recent is not None
        assert recent.tail == tail
        store.close()
