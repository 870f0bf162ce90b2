"""Addresses of object stores, and the client for each: `s3://`, `gs://` and `az://`.

An address holds no credentials. They come from the environment, as the providers' own tools read
them (`AWS_…`, `GOOGLE_…`, `AZURE_…`), so that an address can be shown, logged and kept.
"""

from __future__ import annotations

import os
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from caravanserai_core.errors import StoreRefused, UsageError
from caravanserai_core.quoting import visible

if TYPE_CHECKING:
    Client = S3Store | GCSStore | AzureStore

SCHEMES: Final = ("s3", "gs", "az")

_BUCKET = re.compile(r"[A-Za-z0-9$](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_OPTIONS = ("keep", "lease", "timeout", "endpoint", "region")
_NUMBERS = ("keep", "lease", "timeout")


class Address(NamedTuple):
    """Where an object store is.

    Attributes:
        scheme: `s3`, `gs` or `az`.
        bucket: the bucket, or the container.
        prefix: what all keys begin with, without a slash at either end; "" for none.
        keep: how many of the newest waypoints of each run stay; None: all, or not said.
        lease: seconds without a sign of life after which a lease lapses; None: not said.
        timeout: seconds for which a server that does not answer is waited for; None: not said.
        endpoint: URL of the server, where it is not the provider's own.
        region: the region, where the environment does not name it.
    """

    scheme: str
    bucket: str
    prefix: str
    keep: int | None
    lease: float | None
    timeout: float | None
    endpoint: str | None
    region: str | None

    @property
    def base(self) -> str:
        """The address without its options."""
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    @property
    def url(self) -> str:
        """The address with its options, as `parse_address` reads it."""
        base = f"{self.scheme}://{self.bucket}" + (f"/{quote(self.prefix)}" if self.prefix else "")
        given = {name: getattr(self, name) for name in _OPTIONS}
        query = urlencode({name: _plain(value) for name, value in given.items() if value})
        return f"{base}?{query}" if query else base


def parse_address(url: str) -> Address:
    """Read an address.

    Args:
        url: `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`, with the
            options `?keep=50&lease=30&timeout=20&endpoint=http://127.0.0.1:8333&region=us-east-1`.

    Raises:
        UsageError: it is none, or holds credentials.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UsageError(f"{_bare(url)} is no address of an object store: {error}") from None
    if "@" in parts.netloc:
        raise UsageError(
            "the address of an object store holds no credentials: set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS, or AZURE_STORAGE_ACCOUNT_NAME "
            "and AZURE_STORAGE_ACCOUNT_KEY in the environment instead."
        )
    if parts.scheme not in SCHEMES or not _BUCKET.fullmatch(parts.netloc) or parts.fragment:
        raise UsageError(
            f"{_bare(url)} is no address of an object store: write s3://bucket/prefix, "
            "gs://bucket/prefix or az://container/prefix."
        )
    return Address(parts.scheme, parts.netloc, _prefix(url, parts.path), **_options(url))


def _prefix(url: str, path: str) -> str:
    prefix = unquote(path).strip("/")
    names = prefix.split("/") if prefix else []
    if any(name in ("", ".", "..") or not name.isprintable() for name in names):
        raise UsageError(
            f"the prefix in {_bare(url)} has a part that is empty, `.` or `..`, or that cannot "
            "be printed: object stores disagree on what such a key is. Use another prefix."
        )
    return prefix


def _options(url: str) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys(_OPTIONS)
    for name, value in parse_qsl(urlsplit(url).query, keep_blank_values=True):
        if name not in found:
            raise UsageError(
                f"{_bare(url)}: the address of an object store takes the options "
                f"{', '.join(_OPTIONS)}, and not {visible(name)}."
            )
        found[name] = _number(url, name, value) if name in _NUMBERS else value
    endpoint = found["endpoint"]
    if endpoint is not None:
        try:
            server = urlsplit(endpoint)
        except ValueError:
            server = urlsplit("")
        if server.scheme not in ("http", "https") or not server.netloc or "@" in server.netloc:
            raise UsageError(
                f"{_bare(url)}: endpoint is the URL of a server, http://… or https://…, "
                "without credentials."
            )
    return found


def _number(url: str, name: str, value: str) -> float:
    whole = name == "keep"
    if re.fullmatch(r"\d{1,9}" if whole else r"\d{1,9}(\.\d{1,6})?", value) and float(value) > 0:
        return int(value) if whole else float(value)
    raise UsageError(f"{_bare(url)}: {name} is a number above 0.")


def _bare(url: str) -> str:
    """Return an address for a message: what stands behind it may be a key."""
    return visible(url.partition("?")[0])


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def connect(address: Address, timeout: float) -> Client:
    """Make the client of an object store; nothing is sent yet.

    Args:
        address: where it is.
        timeout: seconds that one request may take.

    Raises:
        UsageError: what the environment says does not fit.
    """
    options: dict[str, Any] = {
        "client_options": {
            "allow_http": (address.endpoint or "").startswith("http://"),
            "connect_timeout": timedelta(seconds=min(timeout, 5.0)),
            "timeout": timedelta(seconds=timeout),
        },
        # Whether to try again is decided where it is known what an answer means: a write that
        # was answered by "exists already" may have been our own.
        "retry_config": {"max_retries": 0},
    }
    config: Any = {}
    if address.endpoint is not None:
        config["base_url" if address.scheme == "gs" else "endpoint"] = address.endpoint
    if address.region is not None and address.scheme == "s3":
        config["region"] = address.region
    try:
        if address.scheme == "s3":
            return S3Store(address.bucket, config=config, **options)
        if address.scheme == "gs":
            return GCSStore(address.bucket, config=config, **options)
        return AzureStore(address.bucket, config=config, **options)
    except (BaseError, ValueError, TypeError, OSError) as error:
        raise UsageError(
            f"{address.base} cannot be opened: {visible(str(error).splitlines()[0])}. Credentials "
            "and accounts are named in the environment: AWS_…, GOOGLE_…, AZURE_…."
        ) from error


class _Process:
    """Which process has sent requests: the client's threads do not survive a fork."""

    def __init__(self) -> None:
        self.pid: int | None = None

    def check(self, where: str) -> None:
        """Refuse a child whose parent has sent requests before the fork: it would wait for ever.

        The runtime of obstore 0.12 belongs to the process that used it first, and a new client
        does not get a new one: https://github.com/tokio-rs/tokio/issues/4301.
        """
        pid = os.getpid()
        if self.pid is None:
            self.pid = pid
        elif self.pid != pid:
            raise StoreRefused(
                f"{visible(where)} cannot be used in this process: it was forked from one that had "
                "used an object store before, and that client does not survive a fork. Start "
                "workers with multiprocessing's `spawn` or `forkserver`, or as programs of their "
                "own, or use no object store before the fork."
            )


PROCESS: Final = _Process()
