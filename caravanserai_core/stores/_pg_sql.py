"""The statements of a Postgres store. Values are bound, always; `{s}` is the schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from caravanserai_core.stores.base import Sealed

# A record without a body that is not part of its sum: its head, and what follows the body.
HEADS: Final = """
    r.seq, r.body,
    CASE WHEN r.body > 2048 THEN substring(r.line FROM 1 FOR r.head) ELSE r.line END,
    CASE WHEN r.body > 2048 THEN substring(r.line FROM r.head + r.body + 2) END
"""
LINES: Final = "r.seq, r.body, r.line, NULL::bytea"

_ADDED: Final = """
    INSERT INTO {s}.records
        (run, seq, sum, kind, lane, waypoint, base, "full", head, body, line)
    SELECT head.id, new.* FROM head, (VALUES {{rows}}) AS new
"""
_TOLD: Final = """
    INSERT INTO {s}.notes (run, name, text)
    SELECT head.id, new.* FROM head, (VALUES {{rows}}) AS new
    ON CONFLICT (run, name) DO UPDATE SET text = excluded.text
"""
_ROW: Final = (
    "(%(seq{n})s::bigint, %(sum{n})s, %(kind{n})s, %(lane{n})b::bytea, %(waypoint{n})s::bigint, "
    "%(base{n})s::bigint, %(full{n})s::bigint, %(head{n})s::integer, %(body{n})s::integer, "
    "%(line{n})b::bytea)"
)
_SHOWS: Final = """
    note = CASE WHEN %(shows)s THEN coalesce(%(note)s, note) ELSE note END,
    live = CASE WHEN %(shows)s THEN %(live)s ELSE live END
"""

# One statement, hence one transaction: the end of the journal moves on from where the writer knows
# it, and only then is there anything to add records and notes to.
_MOVED: Final = (
    """
    UPDATE {s}.runs SET
        seq = %(seq)s, sum = %(sum)s, epoch = %(epoch)s, rolled = %(rolled)s,
        opened = coalesce(%(opened)s, opened),
"""
    + _SHOWS
    + """
    WHERE id = %(run)s AND seq = %(known_seq)s AND sum = %(known_sum)s AND epoch <= %(mine)s
    RETURNING id
"""
)
_BEGUN: Final = """
    INSERT INTO {s}.runs (namespace, folder, seq, sum, epoch, rolled, opened, note, live)
    VALUES (%(namespace)s, %(folder)s, %(seq)s, %(sum)s, %(epoch)s, %(rolled)s, %(opened)s,
            %(note)s, %(live)s)
    ON CONFLICT (namespace, folder) DO NOTHING
    RETURNING id
"""


# A role, or the server, may be set not to wait for what is acknowledged.
WAITS: Final = (
    "CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' "
    "ELSE current_setting('synchronous_commit') END"
)
_QUICK: Final = "'off'"


def _added(count: int) -> str:
    rows = ", ".join(_ROW.replace("{n}", str(number)) for number in range(count))
    return _ADDED.replace("{{rows}}", rows)


def told(count: int) -> str:
    """Return what writes so many notes of the run in `head`."""
    rows = ", ".join(f"(%(name{number})s, %(text{number})s)" for number in range(count))
    return _TOLD.replace("{{rows}}", rows)


def tell(count: int) -> str:
    """Return the statement that writes so many notes of a run."""
    return f"WITH head AS (SELECT %(run)s::bigint AS id) {told(count)}"


def append(sealed: Sealed, *, begins: bool, waits: bool) -> str:
    """Return the statement of an append; it gives the run's id, or no row.

    Args:
        sealed: what is appended.
        begins: the run does not exist yet.
        waits: until it is durable. Else a crash of the server may lose the end of the journal, see
            https://www.postgresql.org/docs/current/wal-async-commit.html.
    """
    shown = sealed.shown
    names = {*sealed.notes, *([] if shown is None or shown.name is None else [shown.name])}
    notes = f", told AS ({told(len(names))})" if names else ""
    quick = f", set_config('synchronous_commit', {WAITS if waits else _QUICK}, true)"
    head = _BEGUN if begins else _MOVED
    added = _added(len(sealed.lines))
    return f"WITH head AS ({head}), added AS ({added}){notes} SELECT id{quick} FROM head"


def add(count: int) -> str:
    """Return the statement that adds so many records to a run."""
    return f"WITH head AS (SELECT %(run)s::bigint AS id) {_added(count)}"


MOVE: Final = _MOVED
BEGIN: Final = _BEGUN

# An update that changes nothing is a commit that waits, and makes those before it durable.
SYNC: Final = """
    UPDATE {s}.runs SET rolled = rolled WHERE id = %(run)s
    RETURNING seq, EXISTS (SELECT 1 FROM {s}.records k
        WHERE k.run = id AND k.seq = %(known_seq)s AND k.sum = %(known_sum)s), (
        SELECT min(k.seq) FROM {s}.records k WHERE k.run = id), set_config(
        'synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
            ELSE current_setting('synchronous_commit') END, true)
"""

END: Final = """
    SELECT r.id, r.seq, r.sum, r.epoch, r.rolled
    FROM {s}.runs r WHERE r.namespace = %(namespace)s AND r.folder = %(folder)s
"""
# The end with what came behind a record, if that is part of the journal, in one snapshot.
NEWS: Final = """
    SELECT h.id, h.seq, h.sum, h.epoch, h.rolled,
        EXISTS (SELECT 1 FROM {s}.records k
                WHERE k.run = h.id AND k.seq = %(known_seq)s AND k.sum = %(known_sum)s),
        (SELECT min(k.seq) FROM {s}.records k WHERE k.run = h.id),
        r.seq, r.line
    FROM {s}.runs h LEFT JOIN {s}.records r
        ON r.run = h.id AND r.seq > %(known_seq)s AND h.id = %(run)s
    WHERE h.namespace = %(namespace)s AND h.folder = %(folder)s
    ORDER BY r.seq
"""
STANDS: Final = """
    SELECT EXISTS (SELECT 1 FROM {s}.records
                   WHERE run = %(run)s AND seq = %(seq)s AND sum = %(sum)s)
"""

LIKE: Final = """
    SELECT line FROM {s}.records
    WHERE run = %(run)s AND kind = %(kind)s AND waypoint = %(waypoint)s
"""

# A waypoint, then the one that it builds on, and so on to a full one.
_CHAIN: Final = """
    chain AS (
        SELECT n.seq, n.base, n."full" FROM newest n
        UNION ALL
        SELECT b.seq, b.base, b."full" FROM chain c JOIN head h ON true JOIN {s}.records b
            ON b.run = h.id AND b.kind = 'waypoint' AND b.waypoint = c.base AND b.seq < c.seq
            AND b.seq >= c."full"
        WHERE c.base IS NOT NULL
    )
"""
_HEAD: Final = """
    head AS (SELECT * FROM {s}.runs WHERE namespace = %(namespace)s AND folder = %(folder)s)
"""
RECENT: Final = f"""
    WITH RECURSIVE {_HEAD},
    last AS (SELECT r.* FROM head h JOIN {{s}}.records r ON r.run = h.id AND r.seq = h.seq),
    newest AS (
        SELECT w.seq, w.base, w."full" FROM head h, last l, {{s}}.records w
        WHERE w.run = h.id AND w.kind = 'waypoint' AND w.lane = l.lane AND w.seq <= l.seq
            AND w.seq >= h.opened
        ORDER BY w.seq DESC LIMIT 1
    ),
    {_CHAIN},
    wanted AS (
        SELECT c.seq FROM chain c
        UNION SELECT h.seq FROM head h
        UNION SELECT h.opened FROM head h
        UNION SELECT r.seq FROM head h, newest n, {{s}}.records r
            WHERE r.run = h.id AND r.seq > n.seq
    )
    SELECT h.id, h.seq, h.sum, h.epoch, h.rolled, h.opened, {LINES}
    FROM head h JOIN wanted w ON true LEFT JOIN {{s}}.records r ON r.run = h.id AND r.seq = w.seq
    ORDER BY w.seq
"""
CHAIN: Final = f"""
    WITH RECURSIVE {_HEAD},
    newest AS (
        SELECT w.seq, w.base, w."full" FROM head h JOIN {{s}}.records w
            ON w.run = h.id AND w.kind = 'waypoint' AND w.waypoint = %(waypoint)s
        ORDER BY w.seq DESC LIMIT 1
    ),
    {_CHAIN}
    SELECT {LINES} FROM head h JOIN chain c ON true
    JOIN {{s}}.records r ON r.run = h.id AND r.seq = c.seq
    ORDER BY r.seq
"""


def scan(*, bodies: bool) -> str:
    """Return the statement that reads a journal from a seq on."""
    return f"""
        SELECT {LINES if bodies else HEADS}
        FROM {{s}}.runs h JOIN {{s}}.records r ON r.run = h.id AND r.seq >= %(start)s
        WHERE h.namespace = %(namespace)s AND h.folder = %(folder)s
        ORDER BY r.seq
    """


_LIVES: Final = "extract(epoch FROM clock_timestamp() - l.beat)::float8"
LISTING: Final = f"""
    SELECT h.folder, l.mark, {_LIVES}, l.seconds, o.seq, o.line, {HEADS}
    FROM {{s}}.runs h
    LEFT JOIN {{s}}.records o ON o.run = h.id AND o.seq = h.opened
    LEFT JOIN {{s}}.records r ON r.run = h.id AND r.seq = h.seq
    LEFT JOIN {{s}}.leases l ON l.namespace = h.namespace AND l.folder = h.folder
    WHERE h.namespace = %(namespace)s
"""

SIZE: Final = """
    SELECT sum(octet_length(r.line)) FROM {s}.runs h JOIN {s}.records r ON r.run = h.id
    WHERE h.namespace = %(namespace)s AND h.folder = %(folder)s
"""

NOTE: Final = """
    SELECT CASE
        WHEN %(name)s <> 'latest.md' THEN
            (SELECT n.text FROM {s}.notes n WHERE n.run = h.id AND n.name = %(name)s)
        WHEN h.live IS NOT NULL THEN h.live
        ELSE (SELECT n.text FROM {s}.notes n WHERE n.run = h.id AND n.name = h.note)
    END
    FROM {s}.runs h WHERE h.namespace = %(namespace)s AND h.folder = %(folder)s
"""
# Notes of a journal that is still the one they belong to; the live note where nobody wrote on.
_NOTES: Final = (
    """
    WITH head AS (
        UPDATE {s}.runs h SET
"""
    + _SHOWS.replace(
        "%(shows)s", "(%(shows)s AND (%(known_seq)s::bigint IS NULL OR seq = %(known_seq)s))"
    )
    + """
        WHERE h.namespace = %(namespace)s AND h.folder = %(folder)s AND (
            %(known_seq)s::bigint IS NULL OR h.id = %(run)s AND EXISTS (
                SELECT 1 FROM {s}.records k
                WHERE k.run = h.id AND k.seq = %(known_seq)s AND k.sum = %(known_sum)s))
        RETURNING id
    )
"""
)


def notes(count: int) -> str:
    """Return the statement that writes so many notes, and what the live note shows."""
    return _NOTES + (told(count) if count else " SELECT id FROM head")


KEEP_NOTES: Final = """
    DELETE FROM {s}.notes WHERE run = %(run)s AND NOT name = ANY(%(kept)s)
"""

LEASE: Final = f"""
    SELECT l.host, l.pid, l.since, l.epoch, l.by, l.mark, l.nonce, l.seconds, {_LIVES}
    FROM {{s}}.leases l WHERE l.namespace = %(namespace)s AND l.folder = %(folder)s
"""
_LEASE_ROW: Final = """
    INSERT INTO {s}.leases
        (namespace, folder, nonce, host, pid, since, epoch, by, mark, seconds)
    SELECT %(namespace)s, %(folder)s, %(nonce)s, %(host)s, %(pid)s, %(since)s, %(epoch)s, %(by)s,
        %(mark)s, %(seconds)s
"""
HOLD: Final = (
    """
    WITH head AS (
        SELECT id, seq, sum FROM {s}.runs
        WHERE namespace = %(namespace)s AND folder = %(folder)s
    ), known AS (
        SELECT CASE WHEN %(run)s::bigint IS NULL THEN NOT EXISTS (SELECT 1 FROM head)
            ELSE EXISTS (SELECT 1 FROM head
                WHERE id = %(run)s AND seq = %(known_seq)s AND sum = %(known_sum)s) END AS is_end
    ), held AS (
"""
    + _LEASE_ROW
    + """
        FROM known WHERE is_end
        ON CONFLICT (namespace, folder) DO NOTHING RETURNING nonce
    )
    SELECT is_end, (SELECT nonce FROM held) FROM known
"""
)
TAKE: Final = (
    _LEASE_ROW
    + """
    ON CONFLICT (namespace, folder) DO UPDATE SET
        nonce = excluded.nonce, host = excluded.host, pid = excluded.pid, since = excluded.since,
        epoch = excluded.epoch, by = excluded.by, mark = excluded.mark,
        seconds = excluded.seconds, beat = clock_timestamp()
    WHERE %(lapsed)s::text IS NULL OR leases.nonce = %(lapsed)s
    RETURNING nonce
"""
)
BEAT: Final = "UPDATE {s}.leases SET beat = clock_timestamp() WHERE nonce = ANY(%(nonces)s)"
RELEASE: Final = "DELETE FROM {s}.leases WHERE nonce = %(nonce)s"

DELETE_RUN: Final = "DELETE FROM {s}.runs WHERE id = %(run)s RETURNING id"
DELETE_LEASE: Final = """
    DELETE FROM {s}.leases WHERE namespace = %(namespace)s AND folder = %(folder)s
        AND nonce = %(nonce)s
"""
DELETE_RECORDS: Final = "DELETE FROM {s}.records WHERE run = %(run)s"
DELETE_NOTES: Final = "DELETE FROM {s}.notes WHERE run = %(run)s"
LOCK: Final = END + " FOR UPDATE"
WAIT: Final = f"SELECT set_config('synchronous_commit', {WAITS}, true)"
KEEP_DAMAGED: Final = """
    INSERT INTO {s}.damaged (run, seq, line)
    SELECT run, seq, line FROM {s}.records WHERE run = %(run)s AND seq = ANY(%(seqs)s)
"""
