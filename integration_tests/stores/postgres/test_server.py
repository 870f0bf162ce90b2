"""What a database may be like: whose it is, which version, behind a pooler, shared by tenants."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from caravanserai_core import (
    answer,
    checkpoint,
    clean,
    fork,
    history,
    list_runs,
    load,
    open_run,
    prune,
)
from caravanserai_core.errors import (
    JournalDamaged,
    NewerFormat,
    RunNotFound,
    StoreFailed,
    StoreRefused,
    UsageError,
    WaitingForPerson,
)
from caravanserai_core.journal import forget
from caravanserai_core.stores import PostgresStore, open_store
from caravanserai_core.testing import HOSTILE_IDS
from caravanserai_core.verify import verify
from integration_tests.postgres_server import PostgresServer, free_port
from integration_tests.stores.workers import join, start
from integration_tests.support import require_command


@pytest.fixture
def database(server: PostgresServer) -> Iterator[str]:
    """A database that nobody has used yet."""
    name = f"new_{os.urandom(6).hex()}"
    server.sql(f'CREATE DATABASE "{name}"')
    yield name
    server.sql(f'DROP DATABASE "{name}" WITH (FORCE)')


def test_eight_that_come_first_at_once_make_the_tables_once(
    server: PostgresServer, database: str
) -> None:
    def begin(number: int) -> None:
        checkpoint(f"run-{number}", {"n": number}, "begun", store=server.url(database))

    pids = [start(lambda n=n: begin(n)) for n in range(8)]  # type: ignore[misc]
    assert [join(pid) for pid in pids] == [0] * 8
    assert len(list_runs(store=server.url(database))) == 8


def test_a_role_needs_rights_on_the_tables_alone(server: PostgresServer, database: str) -> None:
    """One that may not make them is told what to grant; made by another, they are enough."""
    server.sql(f'REVOKE CREATE ON DATABASE "{database}" FROM PUBLIC')
    role = f"poor_{os.urandom(4).hex()}"
    server.sql(f"CREATE ROLE {role} LOGIN")
    url = server.url(database, user=role)

    with pytest.raises(StoreRefused, match=r"may not make them.*GRANT"):
        checkpoint("run", {"n": 1}, "one", store=url)

    # Its owner makes them.
    clean("first", store=server.url(database))
    checkpoint("first", {"n": 1}, "one", store=server.url(database))
    with pytest.raises(StoreRefused, match=r"permission denied.*docs/stores.md"):
        checkpoint("run", {"n": 1}, "one", store=url)

    server.sql(f"GRANT USAGE ON SCHEMA caravanserai TO {role}", database=database)
    server.sql(
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA caravanserai TO {role}",
        database=database,
    )
    checkpoint("run", {"n": 1}, "one", store=url)
    assert load("run", store=url) == {"n": 1}


def test_a_reader_needs_to_read(server: PostgresServer, database: str) -> None:
    """A dashboard's role lists and loads; what it writes is refused, and nothing changes."""
    checkpoint("run", {"n": 1}, "one", store=server.url(database))
    role = f"reader_{os.urandom(4).hex()}"
    server.sql(f"CREATE ROLE {role} LOGIN")
    server.sql(f"GRANT USAGE ON SCHEMA caravanserai TO {role}", database=database)
    server.sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA caravanserai TO {role}", database=database)
    url = server.url(database, user=role)

    forget(open_store(url), "run")  # here the owner of the tables was at work before
    assert load("run", store=url) == {"n": 1}
    assert [info.run_id for info in list_runs(store=url)] == ["run"]
    with pytest.raises(StoreRefused, match="permission denied"):
        checkpoint("run", {"n": 2}, "two", store=url)
    assert load("run", store=server.url(database)) == {"n": 1}


def test_tables_of_a_newer_version_are_left_alone(server: PostgresServer, database: str) -> None:
    checkpoint("run", {"n": 1}, "one", store=server.url(database))
    server.sql("INSERT INTO caravanserai.version VALUES (999)", database=database)
    store = PostgresStore(server.url(database))
    with pytest.raises(NewerFormat, match=r"version 999.*Upgrade"):
        store.recent("run")


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        ("postgresql://postgres@127.0.0.1:{port}/nowhere", StoreRefused, "does not exist"),
        ("postgresql://nobody@127.0.0.1:{port}/postgres", StoreRefused, "nobody"),
        (
            "postgresql://postgres@127.0.0.1:{other}/postgres?timeout=1",
            StoreFailed,
            "did not answer",
        ),
        ("postgresql://postgres@127.0.0.1:{port}/postgres?keep=no", UsageError, "keep=.* not no"),
        ("postgresql://postgres@127.0.0.1:{port}/postgres?nonsense=1", UsageError, "nonsense"),
    ],
)
def test_an_address_that_leads_nowhere(
    server: PostgresServer, url: str, error: type[Exception], words: str
) -> None:
    """The error names the server, never a password, and comes soon."""
    text = url.format(port=server.port, other=free_port()).replace("@", ":hunter2@")
    began = time.monotonic()
    with pytest.raises(error, match=words) as told:
        checkpoint("run", {"n": 1}, "one", store=text)
    assert time.monotonic() - began < 10
    assert "hunter2" not in str(told.value)


def test_a_password_is_shown_nowhere(server: PostgresServer) -> None:
    store = PostgresStore(server.url().replace("@", ":hunter2@") + "?namespace=secret")
    checkpoint("run", {"n": 1}, "one", store=store)
    shown = [
        repr(store),
        store.name,
        store.where("run"),
        str(store.key),
        repr(open_run("run", store=store)),
    ]
    assert not [text for text in shown if "hunter2" in text]
    assert load("run", store=store.url) == {"n": 1}


# ---------------------------------------------------------------------- tenants, names


def test_two_tenants_never_see_each_other(server: PostgresServer, database: str) -> None:
    """The same ids in two namespaces of one database: two runs each."""
    one, two = (f"{server.url(database)}?namespace={name}" for name in ("acme", "acme2"))
    for url, who in ((one, "acme"), (two, "other"), (server.url(database), "none")):
        for number in (1, 2, 3):
            checkpoint("run", {"who": who, "n": number}, f"{who} {number}", store=url)
    checkpoint("only", {}, "here", store=one)
    for url in (one, two):
        with pytest.raises(WaitingForPerson), open_run("asks", store=url) as run:
            run.ask("Go on?")
    answer("asks", "yes", store=one)
    assert [info.status for info in list_runs(store=two) if info.run_id == "asks"] == ["waiting"]
    with open_run("asks", store=one) as run:
        assert run.ask("Go on?") == "yes"

    assert load("run", store=one)["who"] == "acme"
    assert {info.run_id for info in list_runs(store=two)} == {"run", "asks"}
    with pytest.raises(RunNotFound):
        load("only", store=two)
    fork("run", new_run_id="copy", at=1, store=one)
    assert "copy" not in [info.run_id for info in list_runs(store=two)]
    prune("run", keep=1, store=one)
    assert len(list(history("run", store=one))) == 1
    assert len(list(history("run", store=two))) == 3
    assert clean("run", store=one)
    assert load("run", store=two) == {"who": "other", "n": 3}
    assert load("run", store=server.url(database)) == {"who": "none", "n": 3}


def test_hostile_names_of_tenants_are_only_names(server: PostgresServer, database: str) -> None:
    for name in ("x'; DROP SCHEMA caravanserai CASCADE; --", "%", "_", "a\\b", 'a"b', "é", "a b"):
        store = PostgresStore(server.url(database), namespace=name)
        checkpoint("run", {"name": name}, "one", store=store)
        again = open_store(store.url)
        assert again.key == store.key
        assert load("run", store=again) == {"name": name}
        assert len(list_runs(store=again)) == 1
        store.close()
        again.close()


def test_hostile_names_of_runs(store: PostgresStore) -> None:
    for run_id in HOSTILE_IDS:
        if not run_id.isprintable():
            continue
        checkpoint(run_id, {"name": run_id}, "one", store=store)
        assert load(run_id, store=store) == {"name": run_id}
    assert len(list_runs(store=store)) == len([i for i in HOSTILE_IDS if i.isprintable()])


# ---------------------------------------------------------------------- exactness, damage


def test_states_that_jsonb_would_change(store: PostgresStore) -> None:
    """SER-28: NUL, halves of characters, key order, large numbers come back as they were."""
    state: dict[str, Any] = {
        "nul": "a\u0000b",
        "half": "\ud800",
        "order": {"b": 1, "a": 2},
        "large": 2**80,
        "nan": float("nan"),
        "bytes": b"\x00\xff",
        "tuple": (1, (2,)),
    }
    checkpoint("run", state, "one \u0000 \ud800 two", store=store)
    found = load("run", store=store)
    assert list(found["order"]) == ["b", "a"]
    assert repr(found) == repr(state)
    assert store.get_note("run", "waypoint-1.md") is not None


def test_a_damaged_row_is_found_named_and_mended(
    server: PostgresServer, store: PostgresStore
) -> None:
    """Never a wrong state: other waypoints load, verify names the row, the damaged one is kept."""
    for number in range(1, 5):
        checkpoint("run", {"n": number}, f"step {number}", store=store)
    server.sql(
        "UPDATE caravanserai.records r SET line = overlay(line placing 'X' from 120) "
        "FROM caravanserai.runs h WHERE h.id = r.run AND h.namespace = %s AND r.seq = 3",
        store.namespace,
    )

    with pytest.raises(JournalDamaged):
        load("run", store=store, at=2)
    assert load("run", store=store, at=1) == {"n": 1}
    report = verify(store, "run")
    assert report.damaged
    from caravanserai_core.repair import repair

    repair(store, "run")
    assert not verify(PostgresStore(store.url), "run").damaged
    assert load("run", store=store) == {"n": 4}
    kept = server.sql("SELECT count(*) FROM caravanserai.damaged")
    assert kept[0][0] != 0


def test_lists_and_histories_read_no_states(server: PostgresServer, store: PostgresStore) -> None:
    """A state of a megabyte crosses the wire only where it is asked for."""
    for number in range(3):
        checkpoint("run", {"n": number, "big": os.urandom(500_000).hex()}, "step", store=store)
    read: list[int] = []
    real = psycopg.Cursor.fetchall

    def counted(cursor: Any) -> Any:
        rows = real(cursor)
        read.append(sum(len(cell) for row in rows for cell in row if isinstance(cell, bytes)))
        return rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.Cursor, "fetchall", counted)
        assert [point.note.summary for point in history("run", store=store)] == ["step"] * 3
        assert [info.waypoints for info in list_runs(store=store)] == [3]
    assert sum(read) < 20_000


def test_a_checkpoint_is_one_statement(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Record, notes and the end of the journal: one round trip, full state or patch."""
    checkpoint("run", {"n": 0, "big": "x" * 9000}, "begun", store=store)
    sent: list[object] = []
    real = psycopg.Connection.execute

    def counted(self: Any, query: Any, *args: Any, **more: Any) -> Any:
        sent.append(query)
        return real(self, query, *args, **more)

    monkeypatch.setattr(psycopg.Connection, "execute", counted)
    for number in range(1, 8):
        checkpoint("run", {"n": number, "big": "x" * 9000}, f"step {number}", store=store)
    assert len(sent) == 7


# ---------------------------------------------------------------------- a pooler


@pytest.fixture
def pooler(server: PostgresServer, tmp_path: Path) -> Iterator[int]:
    """PgBouncer that gives each transaction another connection."""
    program = require_command("pgbouncer")
    port = free_port()
    settings = tmp_path / "pgbouncer.ini"
    users = tmp_path / "users.txt"
    users.write_text('"postgres" ""\n')
    settings.write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = trust\n"
        f"auth_file = {users}\npool_mode = transaction\ndefault_pool_size = 3\nunix_socket_dir =\n"
        "server_round_robin = 1\n"
        f"logfile = {tmp_path}/log.txt\npidfile = {tmp_path}/pid\n"
    )
    own: dict[str, Any] = {}
    if os.geteuid() == 0:
        own = {"user": 65534, "group": 65534}
        for folder in (tmp_path, *tmp_path.parents):
            if folder.stat().st_uid == 0 and folder != Path("/") and not folder.stat().st_mode & 1:
                folder.chmod(folder.stat().st_mode | 0o055)
        tmp_path.chmod(0o777)
    with subprocess.Popen(
        [program, str(settings)], cwd="/", stderr=subprocess.DEVNULL, **own
    ) as found:
        yield port
        found.kill()


def test_behind_a_transaction_pooler(server: PostgresServer, pooler: int) -> None:
    """No statement depends on the connection of the one before."""
    store = PostgresStore(server.url(port=pooler) + f"?namespace={os.urandom(6).hex()}")
    with open_run("run", store=store) as run:
        for number in range(1, 31):
            run.checkpoint({"n": number, "big": "x" * 5000 * (number % 3)}, f"step {number}")
        assert store.holder("run") is not None
    assert store.holder("run") is None
    for number in range(600):
        run.entry("note", {"n": number})
    assert load("run", store=store)["n"] == 30
    assert len(list(store.scan("run", bodies=True))) > 600
    prune("run", keep=3, store=store)
    assert not verify(store, "run").damaged
    assert store._link._pool is not None
    assert store._link._pool.kwargs["prepare_threshold"] is None  # type: ignore[index,call-overload]
    direct = PostgresStore(server.url())
    direct.recent("run")
    assert direct._link._pool is not None
    assert direct._link._pool.kwargs["prepare_threshold"]  # type: ignore[index,call-overload]
    direct.close()
    store.close()
