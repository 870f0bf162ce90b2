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
from psycopg_pool import ConnectionPool, PoolTimeout

from caravanserai_core import signals
from caravanserai_core.errors import StoreFailed, StoreRefused
from caravanserai_core.redact import redact
from caravanserai_core.stores import _pg_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    from psycopg import Connection

    T = TypeVar("T")

_MOST = 16
"""Connections of a store in one process."""

_SOON = 1.0
"""Seconds for which one of a pool's connections is waited for at a time: ^C waits as long."""

_CONNECT = 5
"""Seconds that one connection may take to come to be."""

_PAUSE = 0.05
"""Seconds before something is tried again; twice that the next time, up to a second."""

_PREPARED: Final = 3
"""How often a statement is planned anew before the server keeps its plan."""

_LOST: Final = ("08", "40", "57P", "25P03", "53300")
"""Beginnings of SQLSTATE where another try may succeed: connection lost, serialisation and
deadlock, shutdown or start, idle time-out, too many connections.
https://www.postgresql.org/docs/current/errcodes-appendix.html"""

_REFUSED: Final = {
    "28": "Check user and password: ~/.pgpass, PGPASSWORD, or the server's pg_hba.conf.",
    "3D": "Create the database, or name another one.",
    "3F": "Its tables are not there any more.",
    "42501": "Its role needs rights on the tables: docs/stores.md names them.",
    "42P01": "Its tables are not there any more.",
}
"""Where it will not, by the beginning of the SQLSTATE, and what to do."""

_TOLD: Final = {
    "password authentication failed": "28",
    "no password supplied": "28",
    "no pg_hba.conf entry": "28",
    "does not exist": "3D",
    "does not support SSL": "SSL",
    "sslmode value": "SSL",
}
"""Words of libpq where it gives no SQLSTATE."""

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

    Attributes:
        gave_up: when somebody last waited for it in vain, by `time.monotonic`; 0: nobody did.
    """

    def __init__(self, params: dict[str, Any], schema: str, name: str, timeout: float) -> None:
        self._params = params
        self.schema = schema
        self.name = name
        self.timeout = timeout
        self._lock = threading.Lock()
        self._pool: ConnectionPool[Connection[Any]] | None = None
        self._pid = 0
        self._made = False
        self.gave_up = 0.0
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
        with self.direct() as connection:
            self._made = _pg_schema.check(connection, self.schema, self.name)
            prepared = _PREPARED if _is_direct(connection) else None
        return ConnectionPool(
            self._conninfo,
            kwargs={"autocommit": True, "prepare_threshold": prepared},
            min_size=0,
            max_size=_MOST,
            max_idle=60,
            timeout=min(_SOON, self.timeout),
            reconnect_timeout=self.timeout,
            num_workers=1,
            open=True,
            name="caravanserai",
        )

    @property
    def _conninfo(self) -> str:
        wait = max(2, min(_CONNECT, round(self.timeout)))
        # A network that swallows everything is noticed too.
        alive = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
        alive["tcp_user_timeout"] = round(1000 * self.timeout)
        return make_conninfo("", **{"connect_timeout": wait, **alive, **self._params})

    def direct(self) -> Connection[Any]:
        """Open a connection beside the pool."""
        return psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)

    def make(self, connection: Connection[Any]) -> None:
        """Make the tables where they are not there: reading alone makes none."""
        if not self._made:
            _pg_schema.prepare(connection, self.schema, self.name)
            self._made = True

    def made(self, connection: Connection[Any]) -> bool:
        """Say whether there is anything to read; somebody else may have made the tables since."""
        self._made = self._made or _pg_schema.check(connection, self.schema, self.name)
        return self._made

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
            try:
                connection = pool.getconn()
            except PoolTimeout:
                with self.direct():  # it says why, or that all are in use
                    raise
            try:
                yield connection
            finally:
                pool.putconn(connection)
        except psycopg.Error as error:
            raise self.typed(error) from error

    def typed(self, error: psycopg.Error) -> Exception:
        """Return what an error of the driver means here."""
        told = redact(str(error).strip().partition("\n")[0])
        state = error.sqlstate
        if state is None and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            # libpq gives no code where no connection came to be; only a server says FATAL.
            found = [code for words, code in _TOLD.items() if words in told]
            if "FATAL:" in told and not any(words in told for words in _PASSING):
                found.append("28")
            if not found:
                return Lost(told)
            state = found[0]
        if state is not None and state.startswith(_LOST):
            return Lost(told)
        advice = [advice for code, advice in _REFUSED.items() if (state or "").startswith(code)]
        if advice:
            return StoreRefused(f"{self.name}: {told}. {advice[0]} Nothing was written.")
        if state == "SSL":
            return StoreRefused(
                f"{self.name}: {told}. Change sslmode in the address. Nothing was written."
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
        began = time.monotonic()
        # A program that has just waited in vain ends by further calls: they do not wait anew.
        lately = link.gave_up and began - link.gave_up < link.timeout
        self._until = began if lately else began + link.timeout
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
            self._link.gave_up = time.monotonic()
            raise StoreFailed(
                f"{self._link.name} did not answer for {self._link.timeout:g} s ({lost}). "
                f"{unknown or 'Nothing was written.'} The waypoints before stand: run again when "
                "the server is there."
            ) from lost
        signals.sleep(self._pause)
        self._pause = min(1.0, 2 * self._pause)


_USUAL = ("error connecting in", "discarding closed connection", "reconnection attempt in")


def _is_direct(connection: Connection[Any]) -> bool:
    """Say whether no pooler stands in between: one tells its clients process ids of its own.

    Behind a pooler a statement that was prepared may not be there the next time.
    """
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row is not None and row[0] == connection.info.backend_pid


def _quiet(record: logging.LogRecord) -> bool:
    """Keep the pool from telling of each failed try: who waits is told once, by an error."""
    return not record.msg.startswith(_USUAL)


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
