"""Runs in a Postgres database: a row for each run, and a row for each record.

An append is one statement, which is one transaction and one round trip: it moves the end of the
journal on from where the writer knows it to be, and adds the records only if that was the end.
docs/stores.md says what the database needs; `_pg_schema` has the tables.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import contextmanager
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, Any

try:
    import psycopg
    from psycopg import sql
except ModuleNotFoundError as error:  # pragma: no cover - an environment without the extra
    from caravanserai_core.errors import UsageError

    raise UsageError(
        f"a postgresql:// store needs {error.name}: pip install 'caravanserai[postgres]'"
    ) from error

from caravanserai_core.errors import (
    CaravanseraiError,
    JournalDamaged,
    StaleWriter,
    StoreFailed,
    UsageError,
)
from caravanserai_core.names import folder_name
from caravanserai_core.quoting import visible
from caravanserai_core.records import Record
from caravanserai_core.records import parse as parse_line
from caravanserai_core.secrets import declare_password
from caravanserai_core.stores import _alive, _pg_sql
from caravanserai_core.stores._beats import Beats
from caravanserai_core.stores._pg_address import parse
from caravanserai_core.stores._pg_link import Link, Lost, Patience
from caravanserai_core.stores._pg_rows import (
    Attempt,
    Row,
    attempt_of,
    notes_of,
    numbered,
    params_of,
    records_of,
    rows_of,
    shows,
    tail_of,
)
from caravanserai_core.stores.base import (
    ANY_EPOCH,
    Appended,
    Bad,
    Listed,
    Recent,
    Sealed,
    Shown,
    Store,
    Tail,
    damage_error,
)
from caravanserai_core.stores.owners import Hold, Holder, Lapsed, busy_error

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from psycopg import Connection

    from caravanserai_core.stores.base import Salvage

    Seal = Callable[[Tail | None, list[Record] | None], Sealed]

_log = logging.getLogger("caravanserai")

_PAGE = 500
"""Records that are fetched at once."""

_LARGEST = 100
"""Records that one statement of a replacement adds, at most."""

_LARGEST_BYTES = 64 << 20
"""Bytes of them, unless one is larger: a message to the server has 1 GB at most."""

_MANY = 1000
"""Records of an append that is one statement: that takes 65,535 parameters."""

_REPLACING = 4
"""Journals that a process replaces at once."""

_UNKNOWN = "It is not known whether the last append arrived."


class PostgresStore(Store):
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

    far = True

    def __init__(
        self,
        url: str,
        *,
        namespace: str | None = None,
        keep: int | None = None,
        lease: float | None = None,
        timeout: float | None = None,
    ) -> None:
        self._address = parse(url, namespace=namespace, keep=keep, lease=lease, timeout=timeout)
        self.namespace, self.schema = self._address.namespace, self._address.schema
        self.keep = self._address.keep
        self.lease, self.timeout = self._address.lease, self._address.timeout
        if self._address.params.get("password"):
            place = sha256(repr(self._address.place).encode()).hexdigest()[:8]
            declare_password(f"store-{place}", url)
        self._link = Link(self._address.params, self.schema, self.name, self.timeout)
        self._texts: dict[str, bytes] = {}
        self._replacing = threading.BoundedSemaphore(_REPLACING)
        self._beats: Beats[_PostgresHold] = Beats(self._beat, self.lease / 3)

    def __repr__(self) -> str:
        return f"PostgresStore({self.name!r})"

    @property
    def url(self) -> str:
        return self._address.url

    @property
    def name(self) -> str:
        return self._address.name

    @property
    def key(self) -> object:
        return ("postgres", *self._address.place, self.schema, self.namespace)

    def where(self, run_id: str) -> str:
        return f"{self.name}, run {visible(run_id)}"

    def close(self) -> None:
        self._link.close()

    # ------------------------------------------------------------------ statements

    def _run(self, run_id: str) -> dict[str, Any]:
        return {"namespace": self.namespace, "folder": folder_name(run_id)}

    def _sql(self, text: str) -> bytes:
        found = self._texts.get(text)
        if found is None:
            query: Any = sql.SQL(text)  # pyright: ignore[reportArgumentType] - from _pg_sql
            found = query.format(s=sql.Identifier(self.schema)).as_bytes()
            self._texts[text] = found
        return found

    def _rows(
        self, text: str, params: dict[str, Any], *, writes: bool = False
    ) -> list[tuple[Any, ...]]:
        """Run what may be run twice, again where the connection breaks; read no tables: nothing."""

        def work(connection: Connection[Any]) -> list[tuple[Any, ...]]:
            if writes:
                self._link.make(connection)
            elif not self._link.made(connection):
                return []
            return connection.execute(self._sql(text), params, binary=True).fetchall()

        return self._link.retry(work)

    # ------------------------------------------------------------------ appending

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
                return self._append_many(tail, sealed, params)
            text = _pg_sql.append(sealed, begins=begins, waits=waits)
            with self._link.connection() as connection:
                self._link.make(connection)
                row = connection.execute(self._sql(text), params).fetchone()
            return None if row is None else row[0]

        return self._write(run_id, known, epoch, seal, write, waits=sync)

    def replace(self, run_id: str, known: Tail | None, epoch: int, seal: Seal) -> Appended:
        if known is None:
            return self._write(run_id, known, epoch, seal, self._begin_whole)
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
        self._refuse_stale(run_id, tail, epoch)
        sealed = seal(tail, news)
        assert tail is not None, "seal went on after a deletion"
        lost.add(attempt_of(sealed))
        params = params_of(sealed) | self._run(run_id) | _known(tail) | {"mine": ANY_EPOCH}
        connection.execute(self._sql(_pg_sql.MOVE), params)
        self._put(connection, tail.token, sealed)
        return self._appended(sealed, tail.token)

    def _begin_whole(self, tail: Tail | None, sealed: Sealed, params: dict[str, Any]) -> int | None:
        """Begin a run with all of its records."""
        with self._link.connection() as connection:
            self._link.make(connection)
        with self._link.connection() as connection, connection.transaction():
            connection.execute(self._sql(_pg_sql.WAIT))
            text = _pg_sql.BEGIN if tail is None else _pg_sql.MOVE
            row = connection.execute(self._sql(text), params).fetchone()
            if row is None:
                return None
            self._put(connection, row[0], sealed)
            return int(row[0])

    def _append_many(self, tail: Tail | None, sealed: Sealed, params: dict[str, Any]) -> int | None:
        """Append more records than one statement takes parameters for."""
        with self._link.connection() as connection, connection.transaction():
            self._link.make(connection)
            connection.execute(self._sql(_pg_sql.WAIT))
            text = _pg_sql.BEGIN if tail is None else _pg_sql.MOVE
            row = connection.execute(self._sql(text), params).fetchone()
            if row is None:
                return None
            self._add(connection, row[0], sealed)
            names = [name for name in params if name.startswith("text")]
            if names:
                told = f"WITH head AS (SELECT %(run)s::bigint AS id) {_pg_sql.told(len(names))}"
                connection.execute(self._sql(told), params | {"run": row[0]})
            return int(row[0])

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
            self._refuse_stale(run_id, tail, epoch)
            sealed = seal(tail, news)
            params = params_of(sealed) | self._run(run_id) | _known(tail) | {"mine": epoch}
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
                head = parse_line(bytes(line)).head
                if (head.get("by"), head["time"]) == (attempt.by, attempt.time):
                    return int(found[0][0])
        return None

    def _news(self, run_id: str, known: Tail | None) -> tuple[Tail | None, list[Record] | None]:
        """Return the end of a journal, and what came behind `known`; None where that is not it."""
        rows = self._rows(_pg_sql.NEWS, self._run(run_id) | _known(known))
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

    def _whole(self, run_id: str, rows: list[tuple[Any, ...]], last: int = 0) -> list[Record]:
        """Read rows that must all be whole."""
        found: list[Record] = []
        for item in records_of(rows, self.where(run_id)):
            if isinstance(item, Bad):
                raise damage_error(item.path, item.offset, item.why, last)
            found.append(item)
        return found

    def _refuse_stale(self, run_id: str, tail: Tail | None, epoch: int) -> None:
        if tail is not None and tail.epoch > epoch:
            raise StaleWriter(
                f"run {visible(run_id)}: a writer with epoch {tail.epoch} took it over; this one "
                f"has epoch {epoch} and may not write any more. Nothing was written."
            )

    def sync(self, run_id: str, tail: Tail) -> None:
        rows = self._rows(_pg_sql.SYNC, _known(tail))
        if rows and not rows[0][1]:  # the run is there, and this end is not part of it
            self._refuse_forgotten(run_id, tail, rows[0][0], rows[0][2])

    def mend(self, run_id: str, seal: Salvage, damaged: Container[str]) -> list[str]:
        run = self._run(run_id)
        kept: list[int] = []
        with self._typed_direct() as connection, connection.transaction():
            row = connection.execute(self._sql(_pg_sql.LOCK), run).fetchone()
            if row is None:
                return []
            text = self._sql(_pg_sql.scan(bodies=True))
            rows = connection.execute(text, run | {"start": 0}, binary=True).fetchall()
            found = list(records_of(rows, self.where(run_id)))
            kept = [item.offset for item in found if isinstance(item, Bad)]
            sealed = seal(iter(found))
            params = params_of(sealed) | run | _known(tail_of(row)) | {"mine": ANY_EPOCH}
            aside = {"run": row[0], "seqs": kept}
            connection.execute(self._sql(_pg_sql.KEEP_DAMAGED), aside)
            connection.execute(self._sql(_pg_sql.MOVE), params)
            self._put(connection, row[0], sealed, notes_stay=True)
        return [f"{self.name}, table damaged, run {row[0]}, seq {seq}" for seq in kept]

    @contextmanager
    def _direct(self) -> Iterator[Connection[Any]]:
        """Open a connection beside the pool, for long work: the pool's are for short.

        Raises:
            Lost: it broke.
        """
        try:
            with self._link.direct() as connection:
                self._link.make(connection)
                yield connection
        except psycopg.Error as error:
            raise self._link.typed(error) from error

    @contextmanager
    def _typed_direct(self) -> Iterator[Connection[Any]]:
        """Do the same for work that cannot be tried again.

        Raises:
            StoreFailed: it broke.
        """
        try:
            with self._direct() as connection:
                yield connection
        except Lost as lost:
            told = f"{self.name} was lost in the middle of its work ({lost})."
            raise StoreFailed(told) from lost

    # ------------------------------------------------------------------ leases

    def hold(self, run_id: str, known: Tail | None, holder: Holder) -> Hold | None:
        hold = _PostgresHold(self, holder)
        params = self._lease_params(run_id, hold) | _known(known)
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
            raise busy_error(run_id, found.holder, found.sign)
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
            raise busy_error(run_id, found.holder, found.sign)

    def holder(self, run_id: str) -> Holder | None:
        found = self._lease(run_id)
        return found.holder if found is not None and found.lives else None

    def _lease(self, run_id: str) -> _Lease | None:
        rows = self._rows(_pg_sql.LEASE, self._run(run_id))
        return _Lease(rows[0]) if rows else None

    def _lease_params(self, run_id: str, hold: _PostgresHold) -> dict[str, Any]:
        own = {"nonce": hold.nonce, "mark": _alive.mark(), "seconds": self.lease}
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
                "a run could not be given back, and is free in %g s: %s", self.lease, error
            )

    # ------------------------------------------------------------------ reading

    def recent(self, run_id: str) -> Recent | None:
        rows = self._rows(_pg_sql.RECENT, self._run(run_id))
        if not rows:
            return None
        tail, opened = tail_of(rows[0][:5]), rows[0][5]
        where = self.where(run_id)
        if any(row[6] is None for row in rows):
            raise damage_error(where, tail.seq, "a record is missing", 0)
        found = self._whole(run_id, [row[6:] for row in rows])
        by_seq = {record.seq: record for record in found}
        last = by_seq[tail.seq]
        if last.sum != tail.sum:
            raise damage_error(where, tail.seq, f"record {tail.seq} is not the one it was", 0)
        if by_seq[opened].kind != "open":
            raise damage_error(where, opened, f"record {opened} does not open it", 0)
        newest = next(
            (r for r in reversed(found) if r.kind == "waypoint" and r.lane == last.lane), None
        )
        if newest is None or newest.seq < opened:
            return Recent(tail, last, by_seq[opened], [], [])
        chain = self._chain(newest, found)
        since = [record for record in found if record.seq > newest.seq]
        for before, record in pairwise([newest, *since]):
            if record.seq != before.seq + 1 or record.head["prev"] != before.sum:
                why = f"record {record.seq} does not follow record {before.seq}"
                raise damage_error(where, record.seq, why, before.waypoint)
        return Recent(tail, last, by_seq[opened], chain, since)

    def _chain(self, newest: Record, found: list[Record]) -> list[Record]:
        """Return the chain of a waypoint, of records that hold it."""
        numbers = {r.waypoint: r for r in found if r.kind == "waypoint" and r.seq <= newest.seq}
        chain = [newest]
        while not chain[-1].full:
            before = numbers.get(chain[-1].head.get("base", 0))
            if before is None or before.seq >= chain[-1].seq:
                base = chain[-1].head.get("base")
                why = f"waypoint {base}, which {chain[-1].waypoint} builds on, is not there"
                raise JournalDamaged(why, offset=newest.seq)
            chain.append(before)
        return chain[::-1]

    def chain(self, run_id: str, waypoint: int) -> list[Record]:
        rows = self._rows(_pg_sql.CHAIN, self._run(run_id) | {"waypoint": waypoint})
        found = self._whole(run_id, rows)
        if found and (found[-1].waypoint != waypoint or found[-1].kind != "waypoint"):
            why = f"record {found[-1].seq} is not waypoint {waypoint}, as the table says"
            raise damage_error(self.where(run_id), found[-1].seq, why, 0)
        return self._chain(found[-1], found) if found else []

    def scan(self, run_id: str, *, bodies: bool, start: Any = None) -> Iterator[Record | Bad]:
        """See `Store.scan`. It is one snapshot, however long it takes."""
        text = self._sql(_pg_sql.scan(bodies=bodies))
        params = self._run(run_id) | {"start": start or 0}
        first = self._rows(_pg_sql.scan(bodies=bodies) + f" LIMIT {_PAGE}", params)
        if len(first) < _PAGE:
            yield from self._checked(first, run_id)
            return
        with (
            self._typed_direct() as connection,
            connection.transaction(),
            connection.cursor("caravanserai", binary=True) as cursor,
        ):
            cursor.itersize = _PAGE
            cursor.execute(text, params)
            yield from self._checked(cursor, run_id)

    def _checked(self, rows: Any, run_id: str) -> Iterator[Record | Bad]:
        return records_of(rows, self.where(run_id))

    def listing(self) -> Iterator[Listed]:
        for row in self._rows(_pg_sql.LISTING, {"namespace": self.namespace}):
            folder, mark, age, seconds, opened, line, *last = row
            where = f"{self.name}, {folder}"
            held = mark is not None and age < seconds and not _alive.is_gone(mark)
            rows = [] if line is None else [(opened, 0, line, None)]
            found = [*records_of([*rows, last], where)] if last[0] is not None else []
            if len(found) < 2 or any(isinstance(item, Bad) for item in found):
                error = f"{where} is damaged: its last record or its beginning is not whole"
                yield Listed(folder, None, None, error, held=held)
                continue
            opening, end = found
            assert isinstance(opening, Record)
            assert isinstance(end, Record)
            yield Listed(folder, opening, end, None, held=held)

    def place_of(self, run_id: str, record: Record) -> tuple[str, int]:
        return self.where(run_id), record.seq

    def size(self, folder: str) -> int | None:
        params = {"namespace": self.namespace, "folder": folder}
        rows = self._rows(_pg_sql.SIZE, params)
        return int(rows[0][0]) if rows and rows[0][0] is not None else None

    # ------------------------------------------------------------------ notes

    def put_note(self, run_id: str, shown: Shown) -> None:
        self._put_notes(run_id, None, {}, shown)

    def put_notes(self, run_id: str, known: Tail, notes: Mapping[str, str], latest: Shown) -> None:
        self._put_notes(run_id, known, notes, latest)

    def _put_notes(
        self, run_id: str, known: Tail | None, notes: Mapping[str, str], shown: Shown
    ) -> None:
        texts = dict(notes)
        if shown.name is not None:
            texts[shown.name] = shown.text
        params = self._run(run_id) | _known(known) | shows(shown)
        params |= notes_of(texts)
        self._rows(_pg_sql.notes(len(texts)) + " RETURNING 1" * bool(texts), params)

    def get_note(self, run_id: str, name: str) -> str | None:
        rows = self._rows(_pg_sql.NOTE, self._run(run_id) | {"name": name})
        return rows[0][0] if rows else None

    # ------------------------------------------------------------------ deletion

    def delete(self, run_id: str) -> bool:
        lease = self._lease(run_id)
        if lease is not None and lease.lives and lease.mark != (_alive.mark() or None):
            raise busy_error(run_id, lease.holder, lease.sign)
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
        sign: a sentence about that.
    """

    def __init__(self, row: Sequence[Any]) -> None:
        self.holder = Holder(*row[:5])
        self.mark: str = row[5]
        self.nonce: str = row[6]
        self.lives = row[8] < row[7] and not _alive.is_gone(self.mark)
        self.sign = (
            f"Its last sign of life came {max(0, round(row[8]))} s ago; after {row[7]:g} s without "
            "one the run is free."
        )


def _known(tail: Tail | None) -> dict[str, Any]:
    if tail is None:
        return {"run": None, "known_seq": None, "known_sum": None}
    return {"run": tail.token, "known_seq": tail.seq, "known_sum": tail.sum}
