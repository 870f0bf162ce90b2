"""Writing to a Postgres store: appends, replacements, and what became of lost answers."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from caravanserai_core.errors import StoreFailed
from caravanserai_core.records import parse
from caravanserai_core.stores import _pg_sql
from caravanserai_core.stores._pg_link import Lost, Patience
from caravanserai_core.stores._pg_reading import PostgresReading
from caravanserai_core.stores._pg_rows import (
    Attempt,
    Row,
    attempt_of,
    known_as,
    numbered,
    params_of,
    records_of,
    rows_of,
    tail_of,
)
from caravanserai_core.stores.base import ANY_EPOCH, Appended, Bad, Tail, refuse_stale

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from psycopg import Connection

    from caravanserai_core.records import Record
    from caravanserai_core.stores.base import Salvage, Sealed

    Seal = Callable[[Tail | None, list[Record] | None], Sealed]

_LARGEST = 100
"""Records that one statement of a replacement adds, at most."""

_LARGEST_BYTES = 64 << 20
"""Bytes of them, unless one is larger: a message to the server has 1 GB at most."""

_MANY = 1000
"""Records of an append that is one statement: that takes 65,535 parameters."""

_REPLACING = 4
"""Journals that a process replaces at once."""

_UNKNOWN = "It is not known whether the last append arrived."


class PostgresWriting(PostgresReading):
    """The writing half of `PostgresStore`, without leases."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._replacing = threading.BoundedSemaphore(_REPLACING)

    def append(
        self,
        run_id: str,
        known: Tail | None,
        epoch: int,
        seal: Seal,
        *,
        sync: bool = True,
    ) -> Appended:
        def write(tail: Tail | None, sealed: Sealed, params: dict[str, Any]) -> int | None:
            begins = tail is None
            # What begins a run, or a segment, is durable at once.
            waits = sync or tail is None or tail.rolled or sealed.rolled
            if len(sealed.lines) > _MANY:
                return self._write_parts(tail, sealed, params, whole=False)
            text = _pg_sql.append(sealed, begins=begins, waits=waits)
            with self._link.connection() as connection:
                self._link.make(connection)
                row = connection.execute(self._sql(text), params).fetchone()
            return None if row is None else row[0]

        return self._write(run_id, known, epoch, seal, write, waits=sync)

    def replace(self, run_id: str, known: Tail | None, epoch: int, seal: Seal) -> Appended:
        if known is None:
            return self._write(run_id, known, epoch, seal, partial(self._write_parts, whole=True))
        lost: set[Attempt] = set()
        patience = Patience(self._link)
        while True:
            try:
                # What `seal` reads meanwhile is read by other connections: some must be left.
                with self._replacing, self._direct() as connection, connection.transaction():
                    return self._replace(connection, run_id, known, epoch, seal, lost)
            except Lost as again:
                patience.wait(again, _UNKNOWN)

    def _replace(
        self,
        connection: Connection[Any],
        run_id: str,
        known: Tail,
        epoch: int,
        seal: Seal,
        lost: set[Attempt],
    ) -> Appended:
        """Replace a journal while its row is locked, so that nobody else adds or replaces."""
        connection.execute(self._sql(_pg_sql.WAIT))
        row = connection.execute(self._sql(_pg_sql.LOCK), self._run(run_id)).fetchone()
        landed = self._landed(run_id, lost) if lost and row is not None else None
        if landed is not None:
            # An answer was lost; whoever needs places looks again.
            return Appended(tail_of(row or ()), [])
        tail, news = self._news(run_id, known)
        refuse_stale(run_id, tail, epoch)
        sealed = seal(tail, news)
        assert tail is not None, "seal went on after a deletion"
        lost.add(attempt_of(sealed))
        params = params_of(sealed) | self._run(run_id) | known_as(tail) | {"mine": ANY_EPOCH}
        connection.execute(self._sql(_pg_sql.MOVE), params)
        self._put(connection, tail.token, sealed)
        return self._appended(sealed, tail.token)

    def _write_parts(
        self, tail: Tail | None, sealed: Sealed, params: dict[str, Any], *, whole: bool
    ) -> int | None:
        """Append, or begin a run with, more records than one statement takes parameters for.

        Returns:
            The run's id; None: the end is another one by now.
        """
        with self._link.connection() as connection:
            self._link.make(connection)
        with self._link.connection() as connection, connection.transaction():
            connection.execute(self._sql(_pg_sql.WAIT))
            text = _pg_sql.BEGIN if tail is None else _pg_sql.MOVE
            row = connection.execute(self._sql(text), params).fetchone()
            if row is None:
                return None
            run = int(row[0])
            if whole:
                self._put(connection, run, sealed)
                return run
            self._add(connection, run, sealed)
            names = sum(name.startswith("text") for name in params)
            if names:
                connection.execute(self._sql(_pg_sql.tell(names)), params | {"run": run})
            return run

    def _add(self, connection: Connection[Any], run: int, sealed: Sealed) -> None:
        """Add records to a run, as many at once as a statement takes."""
        some: list[Row] = []
        size = 0
        for row in rows_of(sealed):
            if some and (len(some) >= _LARGEST or size + len(row.line) > _LARGEST_BYTES):
                text = self._sql(_pg_sql.add(len(some)))
                connection.execute(text, {"run": run, **numbered(some)})
                some, size = [], 0
            some.append(row)
            size += len(row.line)
        if some:
            text = self._sql(_pg_sql.add(len(some)))
            connection.execute(text, {"run": run, **numbered(some)})

    def _put(
        self, connection: Connection[Any], run: int, sealed: Sealed, *, notes_stay: bool = False
    ) -> None:
        """Put records in the place of all that a run has; notes of waypoints that went go too."""
        connection.execute(self._sql(_pg_sql.DELETE_RECORDS), {"run": run})
        self._add(connection, run, sealed)
        if notes_stay:
            return
        rows = rows_of(sealed)
        kept = [f"waypoint-{row.waypoint}.md" for row in rows if row.kind == "waypoint"]
        connection.execute(self._sql(_pg_sql.KEEP_NOTES), {"run": run, "kept": kept})

    def _write(
        self,
        run_id: str,
        known: Tail | None,
        epoch: int,
        seal: Seal,
        write: Callable[[Tail | None, Sealed, dict[str, Any]], int | None],
        *,
        waits: bool = True,
    ) -> Appended:
        """Seal against what is known, and again for as long as that is not the end.

        An answer that was lost is found out by reading: sums are made of all that is in a record
        and before it, so the one of this append stands in the journal or it does not.

        Args:
            run_id: the run.
            known: the tail that the writer last saw.
            epoch: its epoch.
            seal: see `Store.append`.
            write: tries it; returns the run's id, or None where the end is another one by now.
            waits: until it is durable.
        """
        tail: Tail | None = known
        news: list[Record] | None = []
        if known is None:
            tail, news = self._news(run_id, None)
        attempts: set[Attempt] = set()
        patience = Patience(self._link)
        while True:
            refuse_stale(run_id, tail, epoch)
            sealed = seal(tail, news)
            params = params_of(sealed) | self._run(run_id) | known_as(tail) | {"mine": epoch}
            while True:
                try:
                    run = write(tail, sealed, params)
                except Lost as lost:
                    attempts.add(attempt_of(sealed))
                    patience.wait(lost, _UNKNOWN)
                    continue  # the very same lines: they arrive once
                break
            if run is None and attempts:
                run = self._landed(run_id, attempts)
            if run is not None:
                durable = waits or tail is None or tail.rolled or sealed.rolled
                return self._appended(sealed, run, durable=durable)
            tail, news = self._news(run_id, known)

    def _appended(self, sealed: Sealed, run: int, *, durable: bool = True) -> Appended:
        end = Tail(sealed.seq, sealed.sum, sealed.epoch, sealed.rolled, run)
        first = sealed.seq - len(sealed.lines) + 1
        return Appended(end, list(range(first, sealed.seq + 1)), durable)

    def _landed(self, run_id: str, attempts: set[Attempt]) -> int | None:
        """Return the run's id if one of the appends whose answers were lost is in its journal."""
        found = self._rows(_pg_sql.END, self._run(run_id))
        for attempt in attempts if found else ():
            params = attempt._asdict() | {"run": found[0][0]}
            if self._rows(_pg_sql.STANDS, params)[0][0]:
                return int(found[0][0])
            # Another process may have written the journal anew since, with other numbers and sums.
            for (line,) in self._rows(_pg_sql.LIKE, params):
                head = parse(bytes(line)).head
                if (head.get("by"), head["time"]) == (attempt.by, attempt.time):
                    return int(found[0][0])
        return None

    def _news(self, run_id: str, known: Tail | None) -> tuple[Tail | None, list[Record] | None]:
        """Return the end of a journal, and what came behind `known`; None where that is not it."""
        rows = self._rows(_pg_sql.NEWS, self._run(run_id) | known_as(known))
        if not rows:
            return None, [] if known is None else None
        tail = tail_of(rows[0][:5])
        if known is None or tail.token != known.token or not rows[0][5]:
            if known is not None and tail.token == known.token:
                self._refuse_forgotten(run_id, known, tail.seq, rows[0][6])
            return tail, None
        lines = [(row[7], 0, row[8], None) for row in rows if row[7] is not None]
        return tail, self._whole(run_id, lines)

    def _refuse_forgotten(self, run_id: str, known: Tail, last: int, first: int | None) -> None:
        """Refuse to go on from a record that is gone where nobody removed it.

        A journal that was replaced begins behind the end of the one before. So one that begins at
        or before `known`, and does not hold it, has lost it.

        Args:
            run_id: the run.
            known: the record.
            last: number of the journal's last record.
            first: number of its first one.
        """
        if first is None or first > known.seq:
            return
        told = f"{last + 1} to {known.seq}" if last < known.seq else f"up to {known.seq}"
        raise StoreFailed(
            f"{self.where(run_id)}: the server crashed, and lost records {told}, which were not "
            "waited for. All that was acknowledged as durable stands. Run again to go on from "
            "there."
        )

    def sync(self, run_id: str, tail: Tail) -> None:
        rows = self._rows(_pg_sql.SYNC, known_as(tail))
        if rows and not rows[0][1]:  # the run is there, and this end is not part of it
            self._refuse_forgotten(run_id, tail, rows[0][0], rows[0][2])

    def mend(self, run_id: str, seal: Salvage, damaged: Container[str]) -> list[str]:
        run = self._run(run_id)
        kept: list[int] = []
        with self._typed_direct() as connection, connection.transaction():
            connection.execute(self._sql(_pg_sql.WAIT))
            row = connection.execute(self._sql(_pg_sql.LOCK), run).fetchone()
            if row is None:
                return []
            text = self._sql(_pg_sql.scan(bodies=True))
            rows = connection.execute(text, run | {"start": 0}, binary=True).fetchall()
            found = list(records_of(rows, self.where(run_id)))
            kept = [item.offset for item in found if isinstance(item, Bad)]
            sealed = seal(iter(found))
            params = params_of(sealed) | run | known_as(tail_of(row)) | {"mine": ANY_EPOCH}
            aside = {"run": row[0], "seqs": kept}
            connection.execute(self._sql(_pg_sql.KEEP_DAMAGED), aside)
            connection.execute(self._sql(_pg_sql.MOVE), params)
            self._put(connection, row[0], sealed, notes_stay=True)
        return [f"{self.name}, table damaged, run {row[0]}, seq {seq}" for seq in kept]
