"""What all work on a Postgres store begins with: its address, its statements, its connections."""

from __future__ import annotations

from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from caravanserai_core.errors import StoreFailed
from caravanserai_core.names import folder_name
from caravanserai_core.quoting import visible
from caravanserai_core.secrets import declare_password
from caravanserai_core.stores._pg_address import parse
from caravanserai_core.stores._pg_link import Link, Lost
from caravanserai_core.stores._pg_rows import records_of
from caravanserai_core.stores.base import Bad, Store, damage_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import Connection

    from caravanserai_core.records import Record


class PostgresTables(Store):
    """The tables of a store, and the way to them; the arguments are those of `PostgresStore`."""

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
        self.lapses, self.timeout = self._address.lease, self._address.timeout
        if self._address.params.get("password"):
            place = sha256(repr(self._address.place).encode()).hexdigest()[:8]
            declare_password(f"store-{place}", url)
        self._link = Link(self._address.params, self.schema, self.name, self.timeout)
        self._texts: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

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

    def _whole(self, run_id: str, rows: list[tuple[Any, ...]], last: int = 0) -> list[Record]:
        """Read rows that must all be whole."""
        found: list[Record] = []
        for item in records_of(rows, self.where(run_id)):
            if isinstance(item, Bad):
                raise damage_error(item.path, item.offset, item.why, last)
            found.append(item)
        return found
