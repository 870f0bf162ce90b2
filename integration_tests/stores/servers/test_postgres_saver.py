"""Threads in the tables of LangGraph's PostgresSaver go on in a store of ours."""

# ruff: noqa: E402

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("langgraph.checkpoint.postgres")

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.types import Command, interrupt

from caravanserai.langgraph import WaypointSaver
from caravanserai_core.copying import copy_runs
from caravanserai_core.errors import UsageError
from caravanserai_core.stores import open_store
from caravanserai_core.verify import verify
from integration_tests.langgraph.graphs import config, graph_of, says

calls: list[str] = []


def first(state: Any) -> Any:
    """Do something that must not be done twice."""
    calls.append("first")
    return {"log": ["first"], "box": {1, 2, 3}}


def asks(state: Any) -> Any:
    return {"log": [f"answer {interrupt({'question': 'go on?'})}"]}


NODES = {"first": first, "asks": asks, "last": says("last")}


@pytest.fixture
def database(postgres: Callable[[str], str]) -> Iterator[str]:
    """Leave a paused and a finished thread in the tables of LangGraph."""
    address = postgres("x").partition("?")[0]
    with PostgresSaver.from_conn_string(address) as saver:
        saver.setup()
        graph = graph_of(saver, NODES)
        for thread in ("paused", "finished"):
            graph.invoke({"log": ["begin"]}, config(thread))
        graph.invoke(Command(resume="yes"), config("finished"))
    calls.clear()
    yield f"langgraph+{address}"
    with psycopg.connect(address, autocommit=True) as connection:
        for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
            connection.execute(f"DROP TABLE {table}")  # type: ignore[arg-type]
        connection.execute("DROP TABLE checkpoint_migrations")


def test_threads_come_along_and_go_on(database: str, url: str) -> None:
    command = [sys.executable, "-m", "caravanserai_core.cli", "copy", "--from", database]
    done = subprocess.run([*command, "--to", url], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    store = open_store(url)
    saver = WaypointSaver(store)
    assert graph_of(saver, NODES).invoke(Command(resume="yes"), config("paused"))["log"] == [
        "begin",
        "first",
        "answer yes",
        "last",
    ]
    assert not calls, "a finished node ran again"
    assert graph_of(saver, NODES).get_state(config("finished")).values["log"][-1] == "last"
    assert not verify(store, "finished").damaged
    assert next(copy_runs(database, store, ["finished"])).before
    assert next(copy_runs(database, store, ["paused"])).error is not None  # it went on
    store.close()


def test_what_is_no_database_of_langgraph(postgres: Callable[[str], str], tmp_path: Path) -> None:
    address = postgres("x").partition("?")[0]
    with pytest.raises(UsageError, match="checkpoints"):
        list(copy_runs(f"langgraph+{address}", tmp_path / "to"))
    nowhere = address.replace("127.0.0.1", "127.0.0.2")
    with pytest.raises(UsageError, match="cannot be read"):
        list(copy_runs(f"langgraph+{nowhere}", tmp_path / "to"))
