"""The address of a Postgres store: libpq's URL, and some parameters of its own."""

from __future__ import annotations

import os
import re
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from caravanserai_core.errors import UsageError
from caravanserai_core.quoting import visible

LEASE: Final = 30.0
"""Seconds without a sign of life after which a lease lapses."""

TIMEOUT: Final = 20.0
"""Seconds for which a server that does not answer is waited for."""

SCHEMA: Final = "caravanserai"

_OWN = ("namespace", "schema", "keep", "lease", "timeout")

# Postgres cuts a longer name off, and two would be one.
_SCHEMA_NAME = re.compile(r"[^\W\d][\w $-]{0,62}")
_OPTION = re.compile(r'invalid (?:URI query parameter|connection option):? "([A-Za-z_]{1,40})"')
_UNREADABLE = "the address of the store cannot be read (postgresql://user@host:5432/database)"
_ENCODE = (
    "in user, password and other names write @ as %40, / as %2F, # as %23, ? as %3F, : as %3A, "
    "% as %25 and a space as %20. Better: leave the password to ~/.pgpass or PGPASSWORD"
)


class Address(NamedTuple):
    """Where a Postgres store is.

    Attributes:
        server: the URL without the store's own parameters, for libpq.
        params: the same by names.
        namespace: what keeps its runs apart from others in the same tables.
        schema: the Postgres schema of the tables.
        keep: how many of the newest waypoints of each run stay; None: all.
        lease: seconds without a sign of life after which a lease lapses.
        timeout: seconds for which a server that does not answer is waited for.
    """

    server: str
    params: dict[str, Any]
    namespace: str
    schema: str
    keep: int | None
    lease: float
    timeout: float

    @property
    def url(self) -> str:
        """The address, as `parse` reads it."""
        own = {
            "namespace": quote(self.namespace, safe=""),
            "schema": "" if self.schema == SCHEMA else quote(self.schema, safe=""),
            "keep": str(self.keep or ""),
            "lease": "" if self.lease == LEASE else f"{self.lease:g}",
            "timeout": "" if self.timeout == TIMEOUT else f"{self.timeout:g}",
        }
        return _with_query(self.server, own)

    @property
    def name(self) -> str:
        """The address as it may be shown."""
        host, port, database = self.place
        user = f"{quote(str(self.params['user']))}@" if "user" in self.params else ""
        own = {"namespace": quote(self.namespace, safe="")}
        own["schema"] = "" if self.schema == SCHEMA else quote(self.schema, safe="")
        return _with_query(f"postgresql://{user}{host}:{port}/{database}", own)

    @property
    def place(self) -> tuple[str, str, str]:
        """Host, port and database, as libpq finds them."""
        given = {name: str(value) for name, value in self.params.items()}
        user = given.get("user") or os.environ.get("PGUSER") or os.environ.get("USER", "")
        return (
            given.get("host") or os.environ.get("PGHOST", "localhost"),
            given.get("port") or os.environ.get("PGPORT", "5432"),
            given.get("dbname") or os.environ.get("PGDATABASE") or user,
        )


def parse(
    url: str,
    *,
    namespace: str | None = None,
    keep: int | None = None,
    lease: float | None = None,
    timeout: float | None = None,
) -> Address:
    """Read an address; what is given beside it counts in place of what it says.

    Raises:
        UsageError: it cannot be read. What cannot be understood is not shown: it may be a password.
    """
    base, _, query = url.partition("?")
    own: dict[str, str] = {}
    rest: list[str] = []
    try:
        parts = urlsplit(base)
        for pair in query.split("&") if query else ():
            name, _, value = pair.partition("=")
            if name in _OWN:
                own[name] = unquote(value, errors="strict")
            else:
                rest.append(pair)
        if "#" in url or "@" in parts.path or parts.netloc.count("@") > 1:
            raise UsageError(f"{_UNREADABLE}: {_ENCODE}")
        server = f"{base}?{'&'.join(rest)}" if rest else base
        params = conninfo_to_dict(server)
    except psycopg.ProgrammingError as error:
        option = _OPTION.search(str(error))
        why = f"it has no parameter {option[1]}" if option else _ENCODE
        raise UsageError(f"{_UNREADABLE}: {why}") from None
    except ValueError as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{_UNREADABLE}: {_ENCODE}") from None
    port = str(params.get("port", "5432"))
    if not all(part.isdecimal() or not part for part in port.split(",")):
        raise UsageError(f"{_UNREADABLE}: what stands behind the host is no port; {_ENCODE}")
    found = Address(
        server,
        params,
        own.get("namespace", "") if namespace is None else namespace,
        own.get("schema", SCHEMA),
        _number("keep", own, keep, whole=True),
        _number("lease", own, lease) or LEASE,
        _number("timeout", own, timeout) or TIMEOUT,
    )
    if not _SCHEMA_NAME.fullmatch(found.schema) or len(found.schema.encode()) > 63:
        raise UsageError(
            "schema= names a Postgres schema: letters, digits, _, $, - and blanks, no digit first, "
            "63 bytes at most"
        )
    if "\0" in found.namespace or not _is_text(found.namespace):
        raise UsageError("namespace= is a text that UTF-8 can hold, without NUL")
    return found


def _with_query(base: str, pairs: dict[str, str]) -> str:
    query = "&".join(f"{name}={value}" for name, value in pairs.items() if value)
    return f"{base}{'&' if '?' in base else '?'}{query}" if query else base


def _number(name: str, own: dict[str, str], given: float | None, *, whole: bool = False) -> Any:
    """Return a number that is given, or that of the address; None where there is none."""
    if given is None and name not in own:
        return None
    try:
        found: Any = (int if whole else float)(own[name] if given is None else given)
    except (ValueError, TypeError):
        found = 0
    if not 0 < found < 1e9 or (whole and given is not None and type(given) is not int):
        raise UsageError(
            f"{name}= of a store is a {'whole ' if whole else ''}number above 0, and not "
            f"{visible(str(own[name] if given is None else given))}"
        )
    return found


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
