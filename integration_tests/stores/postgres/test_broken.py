"""What may go wrong between a server and several programs, and must not be passed over."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import psycopg
import pytest

from caravanserai_core import checkpoint, list_runs, load, open_run, prune
from caravanserai_core.errors import JournalDamaged, RunBusy, StoreFailed, UsageError
from caravanserai_core.stores import PostgresStore, open_store
from caravanserai_core.stores._pg_link import Link, Lost
from caravanserai_core.stores.owners import Holder, Lapsed
from caravanserai_core.testing import HandWriter
from caravanserai_core.verify import verify
from integration_tests.postgres_server import PostgresServer, postgres

ME = Holder("here", os.getpid(), "2026-01-02T03:04:05+00:00", 1, "me")


@pytest.fixture
def loses(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what lets the answer to the next commit of a transaction get lost."""
    real = psycopg.Connection.transaction
    left = [0]

    class Losing:
        def __init__(self, real: Any) -> None:
            self._real = real

        def __enter__(self) -> Any:
            return self._real.__enter__()

        def __exit__(self, *error: Any) -> Any:
            done = self._real.__exit__(*error)
            if left[0] and not any(error):
                left[0] -= 1
                raise psycopg.OperationalError("the answer was lost")
            return done

    monkeypatch.setattr(
        psycopg.Connection, "transaction", lambda self, *a, **k: Losing(real(self, *a, **k))
    )

    def lose(count: int = 1) -> None:
        left[0] = count

    return lose


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("how", ["append", "sync"])
def test_what_a_crash_lost_is_told_whoever_wrote_since(how: str, other: bool) -> None:
    with postgres() as server:
        server.sql("ALTER SYSTEM SET wal_writer_delay = '10s'")
        server.sql("SELECT pg_reload_conf()")
        store = PostgresStore(server.url())
        writer, second = HandWriter(store), HandWriter(store, name="o")
        writer.append(writer.state())
        second.known, second.newest = writer.known, 1
        lost = writer.append(writer.entry(), sync=False).tail
        server.stop(signal.SIGQUIT)
        server.start()
        if other:
            for _ in range(3):
                second.append(second.entry())
        use: Any = (
            (lambda: store.sync("run", lost))
            if how == "sync"
            else (lambda: writer.append(writer.state()))
        )
        with pytest.raises(StoreFailed, match="crashed, and lost records"):
            use()
        store.close()


def test_a_role_that_does_not_wait_waits_for_what_is_acknowledged() -> None:
    with postgres() as server:
        server.sql("ALTER SYSTEM SET wal_writer_delay = '10s'")
        server.sql("ALTER SYSTEM SET synchronous_commit = off")
        server.sql("SELECT pg_reload_conf()")
        for number in (1, 2, 3):
            checkpoint("run", {"n": number}, "saved", store=server.url())
        prune("run", keep=2, store=server.url())
        server.stop(signal.SIGQUIT)
        server.start()
        store = PostgresStore(server.url())
        recent = store.recent("run")
        assert recent is not None
        assert recent.last.waypoint == 3
        store.close()


def test_a_deletion_whose_answer_is_lost_deletes_no_run_begun_since(
    server: PostgresServer, store: PostgresStore, loses: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint("run", {"of": "old"}, "old", store=store)
    real = Link.retry
    begun: list[int] = []

    def retry(self: Link, work: Any) -> Any:
        def again(connection: Any) -> Any:
            try:
                return work(connection)
            except psycopg.OperationalError:
                if not begun:
                    begun.append(1)
                    other = HandWriter(PostgresStore(store.url), name="other")
                    other.append(other.state(b'{"of":"new"}'))
                raise

        return real(self, again)

    monkeypatch.setattr(Link, "retry", retry)
    loses()
    assert store.delete("run")
    assert begun
    monkeypatch.undo()
    recent = store.recent("run")
    assert recent is not None
    assert recent.last.by == "other"


def test_a_takeover_whose_answer_is_lost_is_its_own(store: PostgresStore, loses: Any) -> None:
    writer = HandWriter(store)
    writer.append(writer.state())
    assert store.hold("run", writer.known, ME) is not None
    held = store._lease("run")
    assert held is not None

    def seal(tail: Any, news: Any) -> Any:
        writer.epoch = tail.epoch + 1
        return writer._sealed(tail, [writer.draft("lease")], None)

    loses()
    lapsed = Lapsed(held.holder, held.nonce)
    appended, hold = store.take_over("run", writer.known, ME, seal, lapsed=lapsed)
    assert appended.tail.epoch == 2
    assert store.holder("run") is not None
    hold.release()
    assert store.holder("run") is None


def test_a_save_whose_answer_is_lost_and_that_was_pruned_since_is_there_once(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 4):
        checkpoint("run", {"n": number}, "saved", store=store)
    real = Link.connection
    pending = [True]

    from contextlib import contextmanager

    @contextmanager
    def lossy(self: Link) -> Any:
        with real(self) as connection:
            yield connection
        if pending:
            pending.clear()
            other = PostgresStore(store.url)

            recent = other.recent("run")
            assert recent is not None
            assert recent.last.waypoint == 4, "it did not arrive: the test is too tame"

            from caravanserai_core.journal import Journal

            Journal(other, "run").compact(lambda record: record.waypoint > 2)
            raise Lost("the answer was lost")

    monkeypatch.setattr(Link, "connection", lossy)
    assert checkpoint("run", {"n": 4}, "saved", store=store) == 4
    monkeypatch.undo()
    assert checkpoint("run", {"n": 5}, "saved", store=store) == 5
    report = verify(PostgresStore(store.url), "run")
    assert (report.waypoints, report.damaged) == (3, False)


def test_a_block_that_saved_all_ends_well_though_the_server_is_gone(caplog: Any) -> None:
    with postgres() as server:
        url = server.url() + "?timeout=1"
        with open_run("run", store=url) as run:
            run.checkpoint({"n": 1}, "one")
            server.stop(signal.SIGQUIT)
        assert "could not be given back" in caplog.text


def test_many_that_read_inside_of_a_scan(store: PostgresStore) -> None:
    """They take no connection that another one waits for, and the lease lives on."""
    with open_run("run", store=store):
        writer = HandWriter(store, "big")
        writer.append(writer.state(), *[writer.entry() for _ in range(600)])
    problems: list[BaseException] = []

    def work() -> None:
        try:
            for number, _ in enumerate(store.scan("big", bodies=True)):
                if number % 300 == 0:
                    store.recent("big")
        except BaseException as problem:  # noqa: BLE001 - shown below
            problems.append(problem)

    threads = [threading.Thread(target=work) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def test_many_that_prune_at_once(store: PostgresStore) -> None:
    for run in range(24):
        for number in range(6):
            checkpoint(f"run-{run}", {"n": number}, "saved", store=store)
    problems: list[BaseException] = []

    def work(run: int) -> None:
        try:
            prune(f"run-{run}", keep=2, store=store)
        except BaseException as problem:  # noqa: BLE001 - shown below
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(run,)) for run in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert {info.waypoints for info in list_runs(store=store)} == {6}


def test_an_append_of_thousands_of_records(store: PostgresStore) -> None:
    writer = HandWriter(store)
    writer.append(writer.state())
    writer.append(*[writer.entry(b"%d" % number) for number in range(7000)])
    assert sum(1 for _ in store.scan("run", bodies=False)) == 7002


@pytest.mark.parametrize(
    ("change", "damaged"),
    [
        ("DELETE FROM caravanserai.records WHERE run = {run} AND seq = 5", True),
        ("UPDATE caravanserai.records SET seq = 100 WHERE run = {run} AND seq = 6", True),
        ("UPDATE caravanserai.runs SET opened = 3 WHERE id = {run}", True),
        ("UPDATE caravanserai.runs SET sum = repeat('0', 32) WHERE id = {run}", True),
        ("UPDATE caravanserai.records SET line = 'x' WHERE run = {run} AND seq = 4", False),
    ],
)
def test_rows_changed_by_hand(
    server: PostgresServer, store: PostgresStore, change: str, damaged: bool
) -> None:
    """Never an older state in the place of the newest."""
    writer = HandWriter(store)
    for number in range(1, 5):
        writer.append(writer.state(b'{"n":%d}' % number))
    writer.append(writer.entry())
    run = server.sql("SELECT id FROM caravanserai.runs WHERE namespace = %s", store.namespace)
    server.sql(change.format(run=run[0][0]))
    if damaged:
        with pytest.raises(JournalDamaged):
            load("run", store=store)
    else:
        assert load("run", store=store) == {"n": 4}


def test_a_column_that_names_another_waypoint(server: PostgresServer, store: PostgresStore) -> None:
    writer = HandWriter(store)
    for number in range(1, 5):
        writer.append(writer.state(b'{"n":%d}' % number))
    server.sql(
        "UPDATE caravanserai.records r SET waypoint = 5 - r.waypoint FROM caravanserai.runs h "
        "WHERE h.id = r.run AND h.namespace = %s AND r.kind = 'waypoint'",
        store.namespace,
    )
    with pytest.raises(JournalDamaged, match="is not waypoint 2"):
        load("run", store=store, at=2)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql:///db?host=/var/run/pg", ("/var/run/pg", "5432", "db")),
        ("postgresql://h:6543/db?namespace=a%20b&application_name=x+y", ("h", "6543", "db")),
        ("postgresql://[::1]:6543/db", ("::1", "6543", "db")),
        ("postgresql://a:1,b:2/db", ("a,b", "1,2", "db")),
    ],
)
def test_addresses_of_every_kind(url: str, place: tuple[str, ...]) -> None:
    store = open_store(url)
    assert isinstance(store, PostgresStore)
    assert store._address.place == place
    again = open_store(store.url)
    assert isinstance(again, PostgresStore)
    assert again._address == store._address
    assert again.key == store.key


@pytest.mark.parametrize(
    "query", ["schema=" + "x" * 64, "schema=", "schema=a%00b", "schema=100%25s", "namespace=%00"]
)
def test_names_that_postgres_would_change_are_refused(query: str) -> None:
    with pytest.raises(UsageError):
        PostgresStore(f"postgresql://h/db?{query}")
    for wrong in ({"keep": -3}, {"lease": -1}, {"timeout": -5}, {"namespace": "\ud800"}):
        with pytest.raises(UsageError):
            PostgresStore("postgresql://h/db", **wrong)  # type: ignore[arg-type]


def test_it_is_busy_for_others_meanwhile(store: PostgresStore) -> None:
    with open_run("run", store=store), pytest.raises(RunBusy):
        PostgresStore(store.url).hold("run", None, ME)
