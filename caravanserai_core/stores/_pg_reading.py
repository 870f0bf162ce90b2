"""Reading a Postgres store: the end of a run, chains, scans, lists, notes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from caravanserai_core.errors import JournalDamaged
from caravanserai_core.records import Record
from caravanserai_core.stores import _alive, _pg_sql
from caravanserai_core.stores._pg_rows import known_as, notes_of, records_of, shows, tail_of
from caravanserai_core.stores._pg_tables import PostgresTables
from caravanserai_core.stores.base import Bad, Listed, Recent, damage_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from caravanserai_core.stores.base import Shown, Tail

_PAGE = 500
"""Records that are fetched at once."""


class PostgresReading(PostgresTables):
    """The reading half of `PostgresStore`."""

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
        params = self._run(run_id) | known_as(known) | shows(shown)
        params |= notes_of(texts)
        self._rows(_pg_sql.notes(len(texts)) + " RETURNING 1" * bool(texts), params)

    def get_note(self, run_id: str, name: str) -> str | None:
        rows = self._rows(_pg_sql.NOTE, self._run(run_id) | {"name": name})
        return rows[0][0] if rows else None
