"""Addresses: passwords are shown and written nowhere, and what is none is no folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from caravanserai_core import checkpoint, list_runs, load, open_run
from caravanserai_core.errors import CaravanseraiError, RunNotFound, UsageError, WaitingForPerson
from caravanserai_core.stores import PostgresStore, open_store
from integration_tests.cutting import CuttingProxy
from integration_tests.postgres_server import PostgresServer, free_port
from integration_tests.stores.workers import wait_until

PASSWORD = "hunter2-is-long"


@pytest.fixture
def guarded(server: PostgresServer) -> Iterator[str]:
    """Return the address of a database whose name nobody else uses, with a password in it."""
    name = f"guarded_{os.urandom(5).hex()}"
    server.sql(f"CREATE DATABASE {name}")
    yield server.url(name).replace("@", f":{PASSWORD}@")
    server.sql(f"DROP DATABASE {name} WITH (FORCE)")


def run(*words: str, **env: str) -> str:
    done = subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, **env}, stdin=subprocess.DEVNULL
    )
    return done.stdout + done.stderr


def cli(*words: str) -> str:
    return run(sys.executable, "-m", "caravanserai_core.cli", *words)


def everything(server: PostgresServer, address: str) -> str:
    """Return all that the tables hold."""
    name = address.rpartition("/")[2]
    rows = server.sql("SELECT convert_from(line, 'UTF8') FROM caravanserai.records", database=name)
    rows += server.sql("SELECT text FROM caravanserai.notes", database=name)
    rows += server.sql("SELECT live FROM caravanserai.runs", database=name)
    return repr(rows)


def test_a_password_is_printed_and_kept_nowhere(
    server: PostgresServer, guarded: str, tmp_path: Path
) -> None:
    """Not by the command line, not in the recorded command, not in what an error says of it."""
    program = tmp_path / "job.py"
    program.write_text(
        "import sys\nfrom caravanserai import open_run, resumable\n"
        "with open_run('asks', store=sys.argv[1], goal='Go on.') as run:\n"
        "    run.checkpoint({'n': 1, 'store': sys.argv[1]}, 'one')\n"
        "    if run.ask('Go on?') == 'fail':\n"
        "        raise RuntimeError('boom ' + sys.argv[1])\n"
    )
    run(sys.executable, str(program), guarded)
    said = cli("answer", "asks", "q1", "fail", "--store", guarded)
    assert "resume asks" in said
    said += run(sys.executable, str(program), guarded).partition("Traceback")[0]
    for verb in ("list", "show asks", "log asks", "handoff asks", "verify asks", "doctor"):
        said += cli(*verb.split(), "--store", guarded)
    said += cli("resume", "asks", "--store", guarded)
    assert "the recorded command" in said
    assert PASSWORD not in said
    assert PASSWORD not in everything(server, guarded)
    assert load("asks", store=guarded) == {"n": 1, "store": guarded}


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:hunter2/secret@127.0.0.1/db",
        "postgresql://me:p@ss/w#rd@127.0.0.1/db",
        "postgresql://me:hunter2@secret@127.0.0.1/db",
        "postgresql://me:hunter2%zzsecret@127.0.0.1/db",
        "postgresql://me:hunter2 secret@127.0.0.1/db",
        "postgresql://me:hunter2secret@[127.0.0.1/db",
        "postgresql://me:hunter2secret@127.0.0.1/db?nonsense=hunter2",
        "postgresql+psycopg://me:hunter2secret@127.0.0.1/db",
        "postgresql:/me:hunter2secret@127.0.0.1/db",
        "host=127.0.0.1 dbname=db password=hunter2secret",
        "s3://bucket/x?AWS_SECRET_ACCESS_KEY=hunter2secret",
        "s3://key:hunter2secret@bucket/x",
        "s3:/bucket/hunter2",
        "mysql://me:hunter2secret@127.0.0.1/db",
    ],
)
def test_an_address_that_cannot_be_meant_is_refused_unseen(address: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as told:
        checkpoint("run", {}, "one", store=address)
    assert "hunter2" not in str(told.value)
    assert "ss/w" not in str(told.value)
    assert "secret" not in str(told.value)
    assert not list(tmp_path.iterdir()), "a folder of that name was made"


def test_blanks_around_an_address_are_none_of_it(server: PostgresServer) -> None:
    assert isinstance(open_store(f"  {server.url()}\n"), PostgresStore)


def test_reading_makes_no_tables(server: PostgresServer, guarded: str) -> None:
    """A typing error in the name of a schema is not one more schema."""
    url = guarded + "?schema=Typo"
    assert list_runs(store=url) == []
    with pytest.raises(RunNotFound, match="schema=Typo"):
        load("run", store=url)
    name = guarded.rpartition("/")[2]
    schemas = server.sql("SELECT nspname FROM pg_namespace", database=name)
    assert ("Typo",) not in schemas
    checkpoint("run", {"n": 1}, "one", store=url)
    assert load("run", store=url) == {"n": 1}


def test_a_program_does_not_wait_for_a_dead_server_again_and_again(
    server: PostgresServer, guarded: str
) -> None:
    """Its save, its mark that it failed, its lease: the time is given once."""
    port = server.port
    with CuttingProxy(port) as proxy:
        url = guarded.replace(f":{port}/", f":{proxy.port}/") + "?timeout=2"
        began: list[float] = []

        def work() -> None:
            with open_run("r", store=url) as run:
                run.checkpoint({"n": 1}, "one")
                proxy.__exit__()
                began.append(time.monotonic())
                run.once("step", str, 1)

        with pytest.raises(CaravanseraiError, match="did not answer"):
            work()
        assert time.monotonic() - began[0] < 5


def test_an_interrupt_ends_the_wait_for_a_server(guarded: str, server: PostgresServer) -> None:
    url = guarded.replace(f":{server.port}/", f":{free_port()}/") + "?timeout=60"
    code = f"import caravanserai as c; print('go', flush=True); c.save('r', {{}}, store={url!r})"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "go\n"
        time.sleep(0.5)
        waiting.send_signal(signal.SIGINT)
        wait_until(lambda: waiting.poll() is not None, 5)
        assert waiting.returncode != 0


def test_who_waits_is_told_who_works_and_until_when(store: PostgresStore) -> None:
    with open_run("run", store=store), pytest.raises(CaravanseraiError) as busy:
        store.hold("run", None, store.holder("run"))  # type: ignore[arg-type]
    assert f"process {os.getpid()}" in str(busy.value)
    assert "After 30 s without a sign of life it is free." in str(busy.value)
    with pytest.raises(WaitingForPerson), open_run("run", store=store) as run:
        run.ask("Go on?")
