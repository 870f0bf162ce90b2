"""Stores: where journals live. `open_store` turns an address into one."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from caravanserai_core.errors import UsageError
from caravanserai_core.redact import redact
from caravanserai_core.stores._file import FileStore
from caravanserai_core.stores._memory import MemoryStore
from caravanserai_core.stores.base import Store

if TYPE_CHECKING:
    from caravanserai_core.stores._postgres import PostgresStore
    from caravanserai_core.stores.objects import ObjectStore

__all__ = ["FileStore", "MemoryStore", "ObjectStore", "PostgresStore", "Store", "open_store"]


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_ADDRESS = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://")
_KINDS = ("postgresql", "postgres", "s3", "gs", "az")


def __getattr__(name: str) -> Any:
    """Import what needs an extra only where it is asked for."""
    if name == "PostgresStore":
        from caravanserai_core.stores._postgres import PostgresStore

        return PostgresStore
    if name == "ObjectStore":
        from caravanserai_core.stores.objects import ObjectStore

        return ObjectStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def open_store(address: str | os.PathLike[str] | Store | None = None) -> Store:
    """Return the store at an address.

    Args:
        address: a store (returned as it is), a folder, a URL (`file:///…`, `postgresql://…`,
            `s3://…`, `gs://…`, `az://…`; with `?keep=50` for runs that keep their newest 50
            waypoints), or None for the environment variable CARAVANSERAI_STORE, else the folder
            `.caravanserai` here.

    Raises:
        UsageError: the URL names no kind of store that is known.
    """
    if isinstance(address, Store):
        return address
    if address is None:
        address = os.environ.get("CARAVANSERAI_STORE") or ".caravanserai"
    given: object = address
    if not isinstance(given, (str, os.PathLike)):
        raise UsageError(
            "a store is named by a folder or a URL, or is a Store itself, not "
            f"{type(given).__name__}"
        )
    text = os.fspath(address)
    if text.startswith("~"):
        text = os.path.expanduser(text)
    if _ADDRESS.match(text):
        text = text.strip()
    scheme, found, rest = text.partition("://")
    if not found or not _SCHEME.fullmatch(scheme):
        _refuse_meant(text)
        return FileStore(text)
    if scheme == "file":
        from urllib.parse import unquote

        path, _, query = rest.removeprefix("localhost").partition("?")
        return FileStore(unquote(path), keep=_kept(text, query))
    if scheme in ("postgresql", "postgres"):
        from caravanserai_core.stores._postgres import PostgresStore

        return PostgresStore(text)
    if scheme in ("s3", "gs", "az"):
        from caravanserai_core.stores.objects import ObjectStore

        return ObjectStore(text)
    like = f" For {scheme}:// write postgresql://." if scheme.startswith("postgres") else ""
    raise UsageError(
        f"no store for {scheme}:// in this version. Use a folder, or a URL that begins with "
        f"file://, postgresql://, s3://, gs:// or az://.{like}"
    )


def _refuse_meant(text: str) -> None:
    """Refuse what would be a folder of an odd name, and was meant as an address.

    Raises:
        UsageError: without the text, which may hold a password.
    """
    kind = text.lstrip().partition(":")[0].lower()
    words = {word.partition("=")[0].lower() for word in text.split() if "=" in word}
    if (kind in _KINDS and kind != text.lower()) or words & {"dbname", "password", "hostaddr"}:
        raise UsageError(
            "the store's address is neither a folder nor a URL. A URL begins with file://, "
            "postgresql://, s3://, gs:// or az://."
        )


def _kept(address: str, query: str) -> int | None:
    """Return what `?keep=50` of a store's URL says, None where there is no such thing."""
    if not query:
        return None
    name, _, value = query.partition("=")
    if name != "keep" or not (value.isascii() and value.isdigit()):
        raise UsageError(f"{redact(address)}: a file:// URL takes ?keep=NUMBER, and nothing else")
    return int(value)
