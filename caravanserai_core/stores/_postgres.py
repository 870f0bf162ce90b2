"""Runs in a Postgres database: a row for each run, and a row for each record.

An append is one statement, which is one transaction and one round trip: it moves the end of the
journal on from where the writer knows it to be, and adds the records only if that was the end.
docs/stores.md says what the database needs; `_pg_schema` has the tables.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit, urlunsplit

try:
    import psycopg
    from psycopg import sql
    from psycopg.conninfo import conninfo_to_dict
except ModuleNotFoundError as error:  # pragma: no cover - an environment without the extra
    from caravanserai_core.errors import UsageError

    raise UsageError(
        f"a postgresql:// store needs {error.name}: pip install 'caravanserai[postgres]'"
    ) from error

from caravanserai_core.errors import JournalDamaged, StaleWriter, StoreFailed, UsageError
from caravanserai_core.names import folder_name
from caravanserai_core.quoting import visible
from caravanserai_core.records import Record
from caravanserai_core.secrets import declare_password
from caravanserai_core.stores import _alive, _pg_sql
from caravanserai_core.stores._beats import Beats
from caravanserai_core.stores._pg_link import Link, Lost, Patience
from caravanserai_core.stores._pg_rows import (
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

LEASE = 30.0
"""Seconds without a sign of life after which a lease lapses."""

_PAGE = 500
"""Records that are fetched at once."""

_LARGEST = 100
"""Records that one statement of a replacement adds."""

_OWN = ("namespace", "schema", "keep", "lease", "timeout")


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
        UsageError: the URL cannot be read.
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
        params, own = _split(url)
        self.namespace = own.get("namespace", "") if namespace is None else namespace
        self.schema = own.get("schema", "caravanserai")
        self.keep = _number(own, "keep", int) if keep is None else keep
        self.lease = lease or _number(own, "lease", float) or LEASE
        self.timeout = timeout or _number(own, "timeout", float) or 20.0
        self._params = params
        self._given = url
        if params.get("password"):
            digest = sha256(f"{urlsplit(url).hostname}{urlsplit(url).path}".encode()).hexdigest()[
                :8
            ]
            declare_password(f"store-{digest}", url)
        where = {**_defaults(), **{name: str(value) for name, value in params.items()}}
        self._where = (where["host"], where["port"], where["dbname"] or where["user"])
        self._link = Link(params, self.schema, self.name, self.timeout)
        self._texts: dict[str, bytes] = {}
        self._beats: Beats[_PostgresHold] = Beats(self._beat, self.lease / 3)

    def __repr__(self) -> str:
        return f"PostgresStore({self.name!r})"

    @property
    def url(self) -> str:
        own = {"namespace": self.namespace, "schema": self.schema, "keep": self.keep or ""}
        own |= {"lease": f"{self.lease:g}", "timeout": f"{self.timeout:g}"}
        usual = {"schema": "caravanserai", "lease": f"{LEASE:g}", "timeout": "20"}
        query = {name: value for name, value in own.items() if value and usual.get(name) != value}
        parts = urlsplit(self._given)
        kept = [(name, value) for name, value in parse_qsl(parts.query) if name not in _OWN]
        text = urlencode([*kept, *query.items()], quote_via=quote)
        return urlunsplit(parts._replace(query=text))

    @property
    def name(self) -> str:
        host, port, database = self._where
        user = f"{quote(str(self._params['user']))}@" if "user" in self._params else ""
        own = {"namespace": self.namespace}
        own |= {"schema": self.schema} if self.schema != "caravanserai" else {}
        space = urlencode({name: value for name, value in own.items() if value}, quote_via=quote)
        space = f"?{space}" if space else ""
        return f"postgresql://{user}{host}:{port}/{database}{space}"

    @property
    def key(self) -> object:
        return ("postgres", *self._where, self.schema, self.namespace)

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
            text = _pg_sql.append(sealed, begins=begins, waits=waits)
            with self._link.connection() as connection:
                self._link.make(connection)
                row = connection.execute(self._sql(text), params).fetchone()
            return None if row is None else row[0]

        return self._write(run_id, known, epoch, seal, write, waits=sync)

    def replace(self, run_id: str, known: Tail | None, epoch: int, seal: Seal) -> Appended:
        def write(tail: Tail | None, sealed: Sealed, params: dict[str, Any]) -> int | None:
            with self._link.connection() as connection:
                self._link.make(connection)
            with self._link.connection() as connection, connection.transaction():
                text = _pg_sql.BEGIN if tail is None else _pg_sql.MOVE
                row = connection.execute(self._sql(text), params).fetchone()
                if row is None:
                    return None
                self._put(connection, row[0], sealed)
                return int(row[0])

        return self._write(run_id, known, epoch, seal, write)

    def _put(
        self, connection: Connection[Any], run: int, sealed: Sealed, *, notes_stay: bool = False
    ) -> None:
        """Put records in the place of all that a run has; notes of waypoints that went go too."""
        connection.execute(self._sql(_pg_sql.DELETE_RECORDS), {"run": run})
        rows = rows_of(sealed)
        for first in range(0, len(rows), _LARGEST):
            some = rows[first : first + _LARGEST]
            text = self._sql(_pg_sql.add(len(some)))
            connection.execute(text, {"run": run, **numbered(some)})
        if notes_stay:
            return
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
        attempts: set[tuple[int, str]] = set()
        patience = Patience(self._link)
        while True:
            self._refuse_stale(run_id, tail, epoch)
            sealed = seal(tail, news)
            params = params_of(sealed) | self._run(run_id) | _known(tail) | {"mine": epoch}
            while True:
                try:
                    run = write(tail, sealed, params)
                except Lost as lost:
                    attempts.add((sealed.seq, sealed.sum))
                    unknown = "It is not known whether the last append arrived."
                    patience.wait(lost, unknown)
                    continue  # the very same lines: they arrive once
                break
            if run is None and attempts:
                run = self._landed(run_id, attempts)
            if run is not None:
                end = Tail(sealed.seq, sealed.sum, sealed.epoch, sealed.rolled, run)
                first = sealed.seq - len(sealed.lines) + 1
                durable = waits or tail is None or tail.rolled or sealed.rolled
                return Appended(end, list(range(first, sealed.seq + 1)), durable)
            tail, news = self._news(run_id, known)

    def _landed(self, run_id: str, attempts: set[tuple[int, str]]) -> int | None:
        """Return the run's id if one of the appends whose answers were lost is in its journal."""
        found = self._rows(_pg_sql.END, self._run(run_id))
        for seq, sum_ in attempts if found else ():
            params = {"run": found[0][0], "seq": seq, "sum": sum_}
            if self._rows(_pg_sql.STANDS, params)[0][0]:
                return int(found[0][0])
        return None

    def _news(self, run_id: str, known: Tail | None) -> tuple[Tail | None, list[Record] | None]:
        """Return the end of a journal, and what came behind `known`; None where that is not it."""
        rows = self._rows(_pg_sql.NEWS, self._run(run_id) | _known(known))
        if not rows:
            return None, [] if known is None else None
        tail = tail_of(rows[0][:5])
        if known is None or tail.token != known.token or not rows[0][5]:
            if known is not None and tail.token == known.token and tail.seq < known.seq:
                raise self._forgotten(run_id, tail, known)
            return tail, None
        lines = [(row[6], 0, row[7], None) for row in rows if row[6] is not None]
        return tail, self._whole(run_id, lines)

    def _forgotten(self, run_id: str, tail: Tail, known: Tail) -> StoreFailed:
        """Build the error for records that no longer stand: no journal ends before it did."""
        return StoreFailed(
            f"{self.where(run_id)}: the server crashed, and lost records {tail.seq + 1} to "
            f"{known.seq}, which were not waited for. All that was acknowledged as durable stands. "
            "Run again to go on from there."
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
        def work(connection: Connection[Any]) -> None:
            connection.execute(self._sql(_pg_sql.SYNC), {"run": tail.token})

        self._link.retry(work)

    def mend(self, run_id: str, seal: Salvage, damaged: Container[str]) -> list[str]:
        run = self._run(run_id)
        kept: list[int] = []
        with self._direct() as connection, connection.transaction():
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

    def _direct(self) -> Any:
        """Give a connection for work that is not tried again."""
        return _Direct(self._link)

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
                self._refuse_taken(run_id, lapsed)
            return run

        appended = self._write(run_id, known, ANY_EPOCH, seal, write)
        self._beats.add(hold)
        return appended, hold

    def _refuse_taken(self, run_id: str, lapsed: Lapsed | None) -> None:
        found = self._lease(run_id)
        if lapsed is not None and found is not None and found.nonce != lapsed.lease:
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
        with self._link.connection() as connection:
            nonces = [hold.nonce for hold in holds]
            connection.execute(self._sql(_pg_sql.BEAT), {"nonces": nonces})

    def release(self, hold: _PostgresHold) -> None:
        """Give a lease back, if it is still the one that counts."""
        if self._beats.remove(hold):
            self._link.retry(
                lambda connection: connection.execute(
                    self._sql(_pg_sql.RELEASE), {"nonce": hold.nonce}
                )
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
        newest = next(
            (r for r in reversed(found) if r.kind == "waypoint" and r.lane == last.lane), None
        )
        if newest is None or newest.seq < opened:
            return Recent(tail, last, by_seq[opened], [], [])
        chain = self._chain(newest, found)
        since = [record for record in found if record.seq > newest.seq]
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
            self._direct() as connection,
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
            raise busy_error(run_id, lease.holder)

        def work(connection: Connection[Any]) -> bool:
            run = self._run(run_id)
            if not self._link.made(connection):
                return False
            with connection.transaction():
                connection.execute(self._sql(_pg_sql.DELETE_LEASE), run)
                row = connection.execute(self._sql(_pg_sql.DELETE_RUN), run).fetchone()
                if row is None:
                    return False
                # In statements of their own: they see what an append that was waited for added.
                for text in (_pg_sql.DELETE_RECORDS, _pg_sql.DELETE_NOTES):
                    connection.execute(self._sql(text), {"run": row[0]})
                return True

        return self._link.retry(work)


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


class _Direct:
    """A connection whose loss is an error: what it was for cannot simply be tried again."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._given = link.connection()

    def __enter__(self) -> Connection[Any]:
        try:
            return self._given.__enter__()
        except Lost as lost:
            raise self._failed(lost) from lost

    def __exit__(self, *error: Any) -> bool | None:
        try:
            return self._given.__exit__(*error)
        except Lost as lost:
            raise self._failed(lost) from lost

    def _failed(self, lost: Lost) -> StoreFailed:
        return StoreFailed(f"{self._link.name} was lost in the middle of its work ({lost}).")


def _known(tail: Tail | None) -> dict[str, Any]:
    if tail is None:
        return {"run": None, "known_seq": None, "known_sum": None}
    return {"run": tail.token, "known_seq": tail.seq, "known_sum": tail.sum}


def _split(url: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return libpq's parameters of a URL, and those of the store."""
    parts = _parts(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    own = {name: value for name, value in pairs if name in _OWN}
    rest = urlencode([pair for pair in pairs if pair[0] not in _OWN], quote_via=quote)
    try:
        return conninfo_to_dict(urlunsplit(parts._replace(query=rest))), own
    except psycopg.ProgrammingError as error:
        told = str(error).strip()
        option = _OPTION.search(told)
        why = f"it has no parameter {option[1]}" if option else _ENCODE
        raise UsageError(f"{_UNREADABLE}: {why}") from None


_OPTION = re.compile(r'invalid (?:URI query parameter|connection option):? "([A-Za-z_]{1,40})"')
_UNREADABLE = "the address of the store cannot be read (postgresql://user@host:5432/database)"
_ENCODE = (
    "in user, password and other names write @ as %40, / as %2F, # as %23, ? as %3F, : as %3A, "
    "% as %25 and a space as %20. Better: leave the password to ~/.pgpass or PGPASSWORD"
)


def _parts(url: str) -> SplitResult:
    """Split an address; what cannot be split as it was meant is not shown: it may be a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise UsageError(f"{_UNREADABLE}: {_ENCODE}") from None
    if parts.fragment or "@" in parts.path or parts.netloc.count("@") > 1 or "#" in url:
        raise UsageError(f"{_UNREADABLE}: {_ENCODE}")
    return parts


def _defaults() -> dict[str, str]:
    """Return where libpq goes if a URL does not say it."""
    user = os.environ.get("PGUSER") or os.environ.get("USER", "")
    return {
        "host": os.environ.get("PGHOST", "localhost"),
        "port": os.environ.get("PGPORT", "5432"),
        "dbname": os.environ.get("PGDATABASE", ""),
        "user": user,
    }


def _number(own: dict[str, str], name: str, kind: type[Any]) -> Any:
    """Return a number of the URL's query, or None where it is not given."""
    text = own.get(name)
    if text is None:
        return None
    try:
        found = kind(text)
    except ValueError:
        found = 0
    if not 0 < found < 1e9:
        raise UsageError(f"{name}={visible(text)} in the address of a store is not a number from 1")
    return found
