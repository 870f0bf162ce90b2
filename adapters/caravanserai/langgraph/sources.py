"""Threads that LangGraph's own savers hold, to be copied into a store; see `copying`.

Importing this module imports no part of LangGraph.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from caravanserai_core.errors import ProgramNotFound, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from caravanserai_core.copying import Source


@contextmanager
def sqlite(address: str, trust: Sequence[str] = ()) -> Iterator[Source]:
    """Open the file of a `SqliteSaver` or `AsyncSqliteSaver`; it is only read.

    Args:
        address: `sqlite:///threads.db` for a path from here, `sqlite:////var/threads.db` for one
            from the root, as SQLAlchemy writes them.
        trust: types of the program that stored values may be loaded as, `module:Class`.

    Raises:
        ProgramNotFound: there is no such file.
        UsageError: it is no database of LangGraph, or the address has two slashes.
        ImportError: langgraph or langgraph-checkpoint-sqlite is not installed.
    """
    _, there, written = address.partition(":///")
    if not there:
        name = address.partition("://")[2] or "threads.db"
        raise UsageError(f"a SQLite file is named with three slashes: sqlite:///{name}")
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "langgraph":
            raise
        raise ImportError(
            "reading LangGraph's SQLite file needs its saver: "
            'pip install "caravanserai[langgraph]" langgraph-checkpoint-sqlite',
            name=error.name,
        ) from None
    from caravanserai.langgraph._copying import Exact, Threads

    path = unquote(written)
    if not Path(path).is_file():
        raise ProgramNotFound(f"there is no file {path!r}, so there is nothing to copy")
    uri = f"file:{path.replace('%', '%25').replace('?', '%3f').replace('#', '%23')}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, check_same_thread=False)) as connection:
        saver = SqliteSaver(connection, serde=Exact(trust))
        saver.is_setup = True  # its set-up writes
        try:
            ids = _threads(connection)
            saver._has_task_path = _has_task_path(connection)
        except sqlite3.DatabaseError as error:
            raise UsageError(
                f"{path!r} is no database of LangGraph's SqliteSaver: {error}"
            ) from None

        def paths(thread_id: str, ns: str, checkpoint_id: str) -> dict[str, str]:
            rows = connection.execute(
                "SELECT DISTINCT task_id, task_path FROM writes "
                "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
                (thread_id, ns, checkpoint_id),
            )
            return dict(rows.fetchall())

        yield Threads(saver, ids, paths if saver._has_task_path else None)


@contextmanager
def postgres(address: str, trust: Sequence[str] = ()) -> Iterator[Source]:
    """Open the tables of a `PostgresSaver` or `AsyncPostgresSaver`; they are only read.

    Args:
        address: `langgraph+postgresql://user@host/database`: what follows the plus is the address
            that the saver was given.
        trust: types of the program that stored values may be loaded as, `module:Class`.

    Raises:
        UsageError: the server cannot be reached, or has no tables of LangGraph.
        ImportError: langgraph or langgraph-checkpoint-postgres is not installed.
    """
    try:
        import psycopg
        from langgraph.checkpoint.postgres import PostgresSaver
        from psycopg.rows import dict_row
    except ModuleNotFoundError as error:
        raise ImportError(
            "reading LangGraph's tables needs its saver: "
            'pip install "caravanserai[langgraph,postgres]" langgraph-checkpoint-postgres',
            name=error.name,
        ) from None
    from caravanserai.langgraph._copying import Exact, Threads

    where = address.partition("+")[2]
    try:
        connect: Any = psycopg.connect
        with connect(
            where,
            autocommit=True,
            row_factory=dict_row,
            options="-c default_transaction_read_only=on",
        ) as connection:
            saver = PostgresSaver(connection, serde=Exact(trust))
            found: list[Any] = connection.execute(
                "SELECT DISTINCT thread_id FROM checkpoints ORDER BY thread_id"
            ).fetchall()

            def paths(thread_id: str, ns: str, checkpoint_id: str) -> dict[str, str]:
                rows: list[Any] = connection.execute(
                    "SELECT DISTINCT task_id, task_path FROM checkpoint_writes "
                    "WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s",
                    (thread_id, ns, checkpoint_id),
                ).fetchall()
                return {row["task_id"]: row["task_path"] for row in rows}

            yield Threads(saver, [row["thread_id"] for row in found], paths)
    except (psycopg.OperationalError, psycopg.errors.UndefinedTable) as error:
        told = str(error).strip().partition("\n")[0]
        raise UsageError(f"threads of LangGraph's PostgresSaver cannot be read: {told}") from None


def _threads(connection: sqlite3.Connection) -> list[str]:
    rows: list[tuple[Any]] = connection.execute(
        "SELECT DISTINCT thread_id FROM checkpoints ORDER BY thread_id"
    ).fetchall()
    return [str(row[0]) for row in rows]


def _has_task_path(connection: sqlite3.Connection) -> bool:
    """Say whether writes have a task_path: the saver adds it when it sets an older file up."""
    return any(row[1] == "task_path" for row in connection.execute("PRAGMA table_info(writes)"))
