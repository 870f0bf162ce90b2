"""Runs in a Postgres database: a row for each run, and a row for each record.

An append is one statement, which is one transaction and one round trip: it moves the end of the
journal on from where the writer knows it to be, and adds the records only if that was the end.
docs/stores.md says what the database needs; `_pg_schema` has the tables.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

try:
    import psycopg
except ModuleNotFoundError as error:  # pragma: no cover - an environment without the extra
    from caravanserai_core.errors import UsageError

    raise UsageError(
        f"a postgresql:// store needs {error.name}: pip install 'caravanserai[postgres]'"
    ) from error

from caravanserai_core.errors import CaravanseraiError
from caravanserai_core.stores import _alive, _pg_sql
from caravanserai_core.stores._beats import Beats
from caravanserai_core.stores._pg_rows import known_as
from caravanserai_core.stores._pg_writing import PostgresWriting
from caravanserai_core.stores.base import ANY_EPOCH
from caravanserai_core.stores.owners import Hold, Holder, Lapsed, busy_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import Connection

    from caravanserai_core.stores._pg_writing import Seal
    from caravanserai_core.stores.base import Appended, Sealed, Tail

_log = logging.getLogger("caravanserai")


class PostgresStore(PostgresWriting):
    """Runs in a Postgres database.

    Args:
        url: `postgresql://user@host:5432/database`, as libpq takes it; a password is better kept
            in `~/.pgpass` or PGPASSWORD. Beside libpq's own parameters it may say
            `?namespace=acme` (runs of two namespaces never meet), `schema=caravanserai` (where the
            tables are), `keep=50`, `lease=30` and `timeout=20`, as below.
        namespace: in place of the one in the URL.
        keep: how many of the newest waypoints of each run stay; None: all.
        lease: seconds without a sign of life after which a run may be taken from its owner.
        timeout: seconds for which a server that does not answer is waited for.

    Raises:
        UsageError: the URL cannot be read, or a number is none.
    """

    def __init__(
        self,
        url: str,
        *,
        namespace: str | None = None,
        keep: int | None = None,
        lease: float | None = None,
        timeout: float | None = None,
    ) -> None:
        super().__init__(url, namespace=namespace, keep=keep, lease=lease, timeout=timeout)
        self._beats: Beats[_PostgresHold] = Beats(self._beat, self._address.lease / 3)

    def hold(self, run_id: str, known: Tail | None, holder: Holder) -> Hold | None:
        hold = _PostgresHold(self, holder)
        params = self._lease_params(run_id, hold) | known_as(known)
        rows = self._rows(_pg_sql.HOLD, params, writes=True)
        is_end, nonce = rows[0]
        if nonce is not None:
            self._beats.add(hold)
            return hold
        found = self._lease(run_id)
        if found is not None and found.nonce == hold.nonce:
            self._beats.add(hold)  # the answer was lost, and it was taken the first time
            return hold
        if not is_end:
            return None
        if found is None:
            return self.hold(run_id, known, holder)  # it was given back just now
        if found.lives:
            raise busy_error(run_id, found.holder, found.seconds)
        raise Lapsed(found.holder, found.nonce)

    def take_over(
        self,
        run_id: str,
        known: Tail | None,
        holder: Holder,
        seal: Seal,
        *,
        lapsed: Lapsed | None = None,
    ) -> tuple[Appended, Hold]:
        hold = _PostgresHold(self, holder)

        def write(tail: Tail | None, sealed: Sealed, params: dict[str, Any]) -> int | None:
            hold.holder = holder._replace(epoch=sealed.epoch)
            lease = self._lease_params(run_id, hold)
            lease["lapsed"] = None if lapsed is None else lapsed.lease
            text = _pg_sql.append(sealed, begins=tail is None, waits=True)
            run: int | None = None
            with self._link.connection() as connection:
                self._link.make(connection)
            with self._link.connection() as connection, connection.transaction():
                row = connection.execute(self._sql(text), params).fetchone()
                taken = connection.execute(self._sql(_pg_sql.TAKE), lease).fetchone()
                if row is None or taken is None:
                    raise psycopg.Rollback
                run = row[0]
            if run is None:
                self._refuse_taken(run_id, hold, lapsed)
            return run

        appended = self._write(run_id, known, ANY_EPOCH, seal, write)
        self._beats.add(hold)
        return appended, hold

    def _refuse_taken(self, run_id: str, hold: _PostgresHold, lapsed: Lapsed | None) -> None:
        found = self._lease(run_id)
        if found is None or found.nonce == hold.nonce:
            return  # its own: the answer was lost
        if lapsed is not None and found.nonce != lapsed.lease:
            raise busy_error(run_id, found.holder, found.seconds)

    def holder(self, run_id: str) -> Holder | None:
        found = self._lease(run_id)
        return found.holder if found is not None and found.lives else None

    def _lease(self, run_id: str) -> _Lease | None:
        rows = self._rows(_pg_sql.LEASE, self._run(run_id))
        return _Lease(rows[0]) if rows else None

    def _lease_params(self, run_id: str, hold: _PostgresHold) -> dict[str, Any]:
        own = {"nonce": hold.nonce, "mark": _alive.mark(), "seconds": self.lapses}
        return self._run(run_id) | hold.holder._asdict() | own

    def _beat(self, holds: list[_PostgresHold]) -> None:
        with self._direct() as connection:  # not from the pool: all of that may be in use
            nonces = [hold.nonce for hold in holds]
            connection.execute(self._sql(_pg_sql.BEAT), {"nonces": nonces})

    def release(self, hold: _PostgresHold) -> None:
        """Give a lease back, if it is still the one that counts."""
        if not self._beats.remove(hold):
            return
        try:
            self._link.retry(
                lambda connection: connection.execute(
                    self._sql(_pg_sql.RELEASE), {"nonce": hold.nonce}
                )
            )
        except CaravanseraiError as error:
            # All that was saved is saved: what its block came to counts, not this.
            _log.warning(
                "a run could not be given back, and is free in %g s: %s", self.lapses, error
            )

    # ------------------------------------------------------------------ deletion

    def delete(self, run_id: str) -> bool:
        lease = self._lease(run_id)
        if lease is not None and lease.lives and lease.mark != _alive.mark():
            raise busy_error(run_id, lease.holder, lease.seconds)
        found = self._rows(_pg_sql.END, self._run(run_id))
        # This one alone, however often it is tried: another may have begun under its name.
        run = {"run": found[0][0]} if found else {}

        def work(connection: Connection[Any]) -> None:
            with connection.transaction():
                connection.execute(self._sql(_pg_sql.WAIT))
                if lease is not None:
                    params = self._run(run_id) | {"nonce": lease.nonce}
                    connection.execute(self._sql(_pg_sql.DELETE_LEASE), params)
                if run:
                    connection.execute(self._sql(_pg_sql.DELETE_RUN), run)
                    # In statements of their own: they see what an append added that was waited for.
                    for text in (_pg_sql.DELETE_RECORDS, _pg_sql.DELETE_NOTES):
                        connection.execute(self._sql(text), run)

        if run or lease is not None:
            self._link.retry(work)
        return bool(run)


class _PostgresHold(Hold):
    """A lease: a row that is found by its nonce."""

    def __init__(self, store: PostgresStore, holder: Holder) -> None:
        self.holder = holder
        self.nonce = os.urandom(16).hex()
        self._store = store

    def release(self) -> None:
        self._store.release(self)


class _Lease:
    """A lease as it stands in the database.

    Attributes:
        holder: who has it.
        mark: what tells its process from others on that machine.
        nonce: what tells it from other leases.
        lives: its owner gave a sign of life lately, by the server's clock, and is not known to
            be dead.
        seconds: without a sign of life after which it lapses.
    """

    def __init__(self, row: Sequence[Any]) -> None:
        self.holder = Holder(*row[:5])
        self.mark: str = row[5]
        self.nonce: str = row[6]
        self.seconds: float = row[7]
        self.lives = row[8] < self.seconds and not _alive.is_gone(self.mark)
