"""The way to a Postgres server: connections, what its errors mean, and when to try again.

Nothing that is done here depends on a connection being the one of before: no session variables, no
session locks, and prepared statements only where no pooler stands in between.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg_pool import ConnectionPool

from caravanserai_core.errors import StoreFailed, StoreRefused
from caravanserai_core.stores import _pg_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    from psycopg import Connection

    T = TypeVar("T")

_MOST = 16
"""Connections of a store in one process."""

_PAUSE = 0.05
"""Seconds before something is tried again; twice that the next time, up to a second."""

_PREPARED: Final = 3
"""How often a statement is planned anew before the server keeps its plan."""

_LOST: Final = ("08", "40", "57P", "25P03", "53300")
"""Beginnings of SQLSTATE where another try may succeed: connection lost, serialisation and
deadlock, shutdown or start, idle time-out, too many connections.
https://www.postgresql.org/docs/current/errcodes-appendix.html"""

_REFUSED: Final = ("28", "3D", "3F", "42501", "42P01")
"""Where it will not: authentication, no such database or schema, no right, no such table."""

_PASSING: Final = ("starting up", "shutting down", "too many", "recovery", "remaining connection")
"""Words in the refusal of a connection that may succeed later."""

# psycopg leaves a parent's connections alone in a forked child, as long as nobody closes them.
_inherited: list[object] = []


class Lost(Exception):
    """The connection is gone, or nothing was done and may be tried again.

    What was asked for last may have been done.
    """


class Link:
    """The connections of one store in this process.

    Args:
        params: connection parameters of libpq.
        schema: the Postgres schema of the tables.
        name: the store's address, for messages.
        timeout: seconds for which a server that is not there is waited for.
    """

    def __init__(self, params: dict[str, Any], schema: str, name: str, timeout: float) -> None:
        self._params = params
        self.schema = schema
        self.name = name
        self.timeout = timeout
        self._lock = threading.Lock()
        self._pool: ConnectionPool[Connection[Any]] | None = None
        self._pid = 0
        _all.add(self)

    def _opened(self) -> ConnectionPool[Connection[Any]]:
        with self._lock:
            if self._pid != os.getpid():
                if self._pool is not None:
                    _inherited.append(self._pool)
                self._pool = None
                self._pid = os.getpid()
            if self._pool is None:
                logging.getLogger("psycopg.pool").addFilter(_quiet)
                self._pool = self._new()
            return self._pool

    def _new(self) -> ConnectionPool[Connection[Any]]:
        wait = max(1, round(self.timeout))
        where = make_conninfo("", **{"connect_timeout": wait, **self._params})
        with psycopg.connect(where, autocommit=True, prepare_threshold=None) as connection:
            _pg_schema.prepare(connection, self.schema, self.name)
            prepared = _PREPARED if _is_direct(connection) else None
        return ConnectionPool(
            where,
            kwargs={"autocommit": True, "prepare_threshold": prepared},
            min_size=0,
            max_size=_MOST,
            max_idle=60,
            timeout=self.timeout,
            reconnect_timeout=self.timeout,
            num_workers=1,
            open=True,
            name="caravanserai",
        )

    def close(self) -> None:
        """Close the connections; the next use opens others."""
        with self._lock:
            pool, self._pool = self._pool, None
            if pool is not None and self._pid == os.getpid():
                pool.close(timeout=1)

    def reset(self) -> None:
        """Begin anew in a forked child."""
        self._lock = threading.Lock()

    @contextmanager
    def connection(self) -> Iterator[Connection[Any]]:
        """Give a connection, in autocommit mode.

        Raises:
            Lost: there is none, or it broke: what was asked for last may have been done.
            StoreFailed, StoreRefused: the server said no, and did nothing.
        """
        try:
            pool = self._opened()
            # Not `pool.connection()`: that commits, and nothing is open here.
            connection = pool.getconn()
            try:
                yield connection
            finally:
                pool.putconn(connection)
        except psycopg.Error as error:
            raise self.typed(error) from error

    def typed(self, error: psycopg.Error) -> Exception:
        """Return what an error of the driver means here."""
        told = str(error).strip().partition("\n")[0]
        state = error.sqlstate
        if state is None and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            # libpq gives no code where no connection came to be; only a server says FATAL.
            if "FATAL:" not in told or any(words in told for words in _PASSING):
                return Lost(told)
            state = "28000"
        if state is not None and state.startswith(_LOST):
            return Lost(told)
        if state is not None and state.startswith(_REFUSED):
            return StoreRefused(
                f"{self.name}: {told}. The role of this address may not use the store, or its "
                "tables are not there: docs/stores.md names the rights. Nothing was written."
            )
        return StoreFailed(
            f"{self.name}: {told} (SQLSTATE {state}). Nothing was written; the waypoints before "
            "stand. Mend that and run again."
        )

    def retry(self, work: Callable[[Connection[Any]], T]) -> T:
        """Do what may be done twice, until it is done or the time is over.

        Raises:
            StoreFailed: the server was not there for all that time, or said no.
        """
        patience = Patience(self)
        while True:
            try:
                with self.connection() as connection:
                    return work(connection)
            except Lost as lost:
                patience.wait(lost)


class Patience:
    """How long a server that is not there is waited for."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._until = time.monotonic() + link.timeout
        self._pause = _PAUSE

    def wait(self, lost: Lost, unknown: str = "") -> None:
        """Wait a moment before the next try.

        Args:
            lost: why there has to be one.
            unknown: what cannot be said of what was tried, for the message.

        Raises:
            StoreFailed: it was long enough.
        """
        if time.monotonic() >= self._until:
            raise StoreFailed(
                f"{self._link.name} did not answer for {self._link.timeout:g} s ({lost}). "
                f"{unknown or 'Nothing was written.'} The waypoints before stand: run again when "
                "the server is there."
            ) from lost
        time.sleep(self._pause)
        self._pause = min(1.0, 2 * self._pause)


def _is_direct(connection: Connection[Any]) -> bool:
    """Say whether no pooler stands in between: one tells its clients process ids of its own.

    Behind a pooler a statement that was prepared may not be there the next time.
    """
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row is not None and row[0] == connection.info.backend_pid


def _quiet(record: logging.LogRecord) -> bool:
    """Keep the pool from telling of each failed try: who waits is told once, by an error."""
    return not record.msg.startswith(("error connecting in", "discarding closed connection"))


_all: weakref.WeakSet[Link] = weakref.WeakSet()


def _close_all() -> None:
    for link in list(_all):
        with suppress(Exception):
            link.close()


def _after_fork() -> None:
    for link in list(_all):
        link.reset()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
