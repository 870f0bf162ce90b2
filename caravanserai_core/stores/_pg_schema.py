"""The tables of a Postgres store, and how they come to be.

Each version is a list of statements that leads from the one before it. Whoever opens a store first
brings it up to date, in one transaction and alone (an advisory lock that ends with it: nothing
here outlives a transaction, so that a transaction pooler may stand in between).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, LiteralString

import psycopg
from psycopg import sql

from caravanserai_core.errors import NewerFormat, StoreRefused

if TYPE_CHECKING:
    from psycopg import Connection

VERSION: Final = 1

_LOCK: Final = 0x0CA7A5
"""Number of the advisory lock; any number that nobody else uses."""

# `line` is what would be a line of journal-N.jsonl, byte for byte; all other columns of `records`
# are taken from it, so that lists and histories read no states. Lanes are bytes: a name may hold
# what text in Postgres cannot. `line` is kept out of line and uncompressed where it is large, so
# that the head of a record is read without its body.
_STEPS: Final[dict[int, tuple[LiteralString, ...]]] = {
    1: (
        """
        CREATE TABLE {s}.runs (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            namespace text NOT NULL,
            folder text NOT NULL,
            seq bigint NOT NULL,
            sum text NOT NULL,
            epoch bigint NOT NULL,
            rolled boolean NOT NULL,
            opened bigint NOT NULL,
            note text,
            live text,
            UNIQUE (namespace, folder)
        ) WITH (fillfactor = 50)
        """,
        """
        CREATE TABLE {s}.records (
            run bigint NOT NULL,
            seq bigint NOT NULL,
            sum text NOT NULL,
            kind text NOT NULL,
            lane bytea NOT NULL,
            waypoint bigint NOT NULL,
            base bigint,
            "full" bigint,
            head integer NOT NULL,
            body integer NOT NULL,
            line bytea NOT NULL,
            PRIMARY KEY (run, seq)
        )
        """,
        "ALTER TABLE {s}.records ALTER COLUMN line SET STORAGE EXTERNAL",
        "CREATE INDEX waypoints ON {s}.records (run, waypoint) WHERE kind = 'waypoint'",
        """
        CREATE TABLE {s}.notes (
            run bigint NOT NULL,
            name text NOT NULL,
            text text NOT NULL,
            PRIMARY KEY (run, name)
        )
        """,
        """
        CREATE TABLE {s}.leases (
            namespace text NOT NULL,
            folder text NOT NULL,
            nonce text NOT NULL,
            host text NOT NULL,
            pid bigint NOT NULL,
            since text NOT NULL,
            epoch bigint NOT NULL,
            by text NOT NULL,
            mark text NOT NULL,
            seconds double precision NOT NULL,
            beat timestamptz NOT NULL DEFAULT clock_timestamp(),
            PRIMARY KEY (namespace, folder)
        ) WITH (fillfactor = 50)
        """,
        """
        CREATE TABLE {s}.damaged (
            run bigint NOT NULL,
            kept_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            seq bigint NOT NULL,
            line bytea NOT NULL
        )
        """,
    ),
}


def check(connection: Connection[Any], schema: str, name: str) -> bool:
    """Say whether the tables are there, in this version.

    Raises:
        NewerFormat: a newer version of the library made them.
    """
    return _known(_version(connection, schema), name) == VERSION


def prepare(connection: Connection[Any], schema: str, name: str) -> None:
    """Bring the tables of a store to this version, whoever else does that at the same time.

    Args:
        connection: in autocommit mode.
        schema: the Postgres schema that they are in.
        name: the store's address, for messages.

    Raises:
        NewerFormat: a newer version of the library made them.
        StoreRefused: the role may neither use nor make them.
    """
    version = _version(connection, schema)
    if version < VERSION:
        try:
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                version = _version(connection, schema)
                for number in range(version + 1, VERSION + 1):
                    _step(connection, schema, number)
        except psycopg.errors.InsufficientPrivilege as error:
            raise StoreRefused(
                f"{name}: the tables of the store are not there, and this role may not make them "
                f"({_line(error)}). Let somebody who may open the store once, or grant it: GRANT "
                f"CREATE ON DATABASE … TO …. docs/stores.md names the rights. Nothing was written."
            ) from error
    _known(version, name)


def _known(version: int, name: str) -> int:
    if version > VERSION:
        raise NewerFormat(
            f"{name}: its tables have version {version}; this version of caravanserai knows up to "
            f"{VERSION}. Upgrade it: pip install --upgrade caravanserai"
        )
    return version


def _version(connection: Connection[Any], schema: str) -> int:
    """Return the version of the tables, 0 where there are none."""
    table = sql.SQL("{}.version").format(sql.Identifier(schema))
    # Not to_regclass: its cache may not know yet what another session has just made.
    found = connection.execute(
        "SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n "
        "ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = 'version'",
        (schema,),
    ).fetchone()
    if found is None:
        return 0
    row = connection.execute(sql.SQL("SELECT max(number) FROM {}").format(table)).fetchone()
    return int(row[0]) if row is not None and row[0] is not None else 0


def _step(connection: Connection[Any], schema: str, number: int) -> None:
    name = sql.Identifier(schema)
    if number == 1:
        found = connection.execute(
            "SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)
        ).fetchone()
        if found is None:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(name))
        connection.execute(
            sql.SQL("CREATE TABLE {}.version (number integer PRIMARY KEY)").format(name)
        )
    for statement in _STEPS[number]:
        connection.execute(sql.SQL(statement).format(s=name))
    connection.execute(
        sql.SQL("INSERT INTO {}.version (number) VALUES (%s)").format(name), (number,)
    )


def _line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
