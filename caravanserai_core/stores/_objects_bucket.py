"""A bucket: the few operations that are needed of it, tried again where that is right.

What makes an object store hard is an answer that does not come, or does not mean what it says. A
write that got no answer may have landed; one that was answered by "exists already" may have found
its own object there, after a retry in between, or none at all (S3 says that, with 409, of two
writes at once). So after every such answer the object is read, and its nonce says whose it is.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from caravanserai_core import signals
from caravanserai_core.errors import CaravanseraiError, StoreFailed, StoreRefused
from caravanserai_core.quoting import visible
from caravanserai_core.stores._objects_address import PROCESS, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from caravanserai_core.stores._objects_address import Address, Client

T = TypeVar("T")
S = TypeVar("S")

AT_ONCE: Final = 16
"""How many requests are on their way at once, at most."""

_ERRORS = (BaseError, FileNotFoundError, ValueError)
_CONFLICTS = (AlreadyExistsError, PreconditionError)
_HOPELESS = (InvalidPathError, NotSupportedError, ValueError)
# What a client can be told that is not true a moment later: time-out, too early, too many.
_FINAL = re.compile(r"status code: 4(?!08|09|25|29)\d\d")
_REFUSED = re.compile(r"status code: 40[13]\b")
_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|The specified bucket does not exist")
_JSON = "application/json"


class Found(NamedTuple):
    """An object, or the beginning of one.

    Attributes:
        data: what was read of it.
        size: its whole length.
        version: what a conditional write names it by.
        modified: when it was written, by the server's clock.
    """

    data: bytes
    size: int
    version: dict[str, str]
    modified: datetime


class Bucket:
    """The objects below a prefix. Keys are given, and returned, without that prefix.

    Args:
        address: where it is.
        timeout: seconds in which a request that fails is tried again.
        client: an `obstore` store to use in place of one made from the environment.
    """

    def __init__(self, address: Address, timeout: float, client: Client | None = None) -> None:
        self.address = address
        self.timeout = timeout
        self._given = client
        self._client: tuple[int, Client] | None = None  # and the process that made it
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._worker = threading.local()
        self._gave_up = 0.0  # when a server was last waited for in vain

    def path(self, key: str) -> str:
        """Return the address of an object, for messages."""
        return f"{self.address.base}/{key}"

    def close(self) -> None:
        """Give back the connections and threads; the next use makes new ones."""
        with self._lock:
            pool, self._pool, self._client = self._pool, None, None
        if pool is not None and PROCESS.pid == os.getpid():
            pool.shutdown()

    def connect(self) -> Client:
        """Return the client; nothing is sent for that."""
        with self._lock:
            if self._client is None or self._client[0] != os.getpid():
                made = self._given or connect(self.address, self.timeout)
                self._client = (os.getpid(), made)
            return self._client[1]

    @property
    def client(self) -> Client:
        """The client, on the way to the server."""
        PROCESS.check(self.address.base)
        return self.connect()

    def _key(self, key: str) -> str:
        return f"{self.address.prefix}/{key}" if self.address.prefix else key

    # ------------------------------------------------------------------ several at once

    def map(self, work: Callable[[S], T], items: Iterable[S]) -> list[T]:
        """Do work on each item, several at once, and return what it gave, in order."""
        todo = list(items)
        PROCESS.check(self.address.base)  # a forked child has none of its parent's threads
        if len(todo) < 2 or getattr(self._worker, "busy", False):
            return [work(item) for item in todo]  # a worker that waited for others might wait long
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(AT_ONCE, "caravanserai-objects", self._begin)
            pool = self._pool
        try:
            started = [pool.submit(work, item) for item in todo]
        except RuntimeError:  # the interpreter is ending, or the store was closed meanwhile
            return [work(item) for item in todo]
        return [future.result() for future in started]

    def _begin(self) -> None:
        self._worker.busy = True

    # ------------------------------------------------------------------ reading

    def get(self, key: str, start: int | None = None) -> Found | None:
        """Read an object; None: there is none.

        Args:
            key: its key.
            start: read no more than this many bytes of its beginning.
        """

        def read() -> Found:
            options: Any = None if start is None else {"range": (0, start)}
            result = obstore.get(self.client, self._key(key), options=options)
            meta = result.meta
            data = result.bytes().to_bytes()
            return Found(data, meta["size"], self._version(meta), meta["last_modified"])

        return self._patient("cannot be read", key, read)

    def ranges(self, key: str, parts: list[tuple[int, int]]) -> list[bytes] | None:
        """Read parts of an object, each from one offset to another; None: there is none."""

        def read() -> list[bytes]:
            starts, ends = [part[0] for part in parts], [part[1] for part in parts]
            found = obstore.get_ranges(
                self.client, self._key(key), starts=starts, ends=ends, coalesce=1 << 16
            )
            return [part.to_bytes() for part in found]

        return self._patient("cannot be read", key, read)

    def exists(self, key: str) -> bool:
        """Say whether there is such an object."""
        return self.modified(key) is not None

    def modified(self, key: str) -> datetime | None:
        """Return when an object was written, by the server's clock; None: there is none."""

        def ask() -> datetime:
            return obstore.head(self.client, self._key(key))["last_modified"]

        return self._patient("cannot be read", key, ask)

    def inside(self, folder: str) -> tuple[list[str], list[str]]:
        """Return the names of the folders and of the objects right in a folder; "": the top."""

        def read() -> tuple[list[str], list[str]]:
            found = obstore.list_with_delimiter(self.client, self._key(folder).rstrip("/") or None)
            folders = [name.rstrip("/").rpartition("/")[2] for name in found["common_prefixes"]]
            return folders, [meta["path"].rpartition("/")[2] for meta in found["objects"]]

        return self._patient("cannot be listed", folder, read) or ([], [])

    def below(self, folder: str) -> list[tuple[str, int]]:
        """Return key and size of each object in a folder, whatever its depth."""
        cut = len(self.address.prefix) + 1 if self.address.prefix else 0

        def read() -> list[tuple[str, int]]:
            found = obstore.list(self.client, self._key(folder), chunk_size=1000)
            return [(meta["path"][cut:], meta["size"]) for part in found for meta in part]

        return self._patient("cannot be listed", folder, read) or []

    def _patient(self, what: str, key: str, work: Callable[[], T]) -> T | None:
        """Do what can be done twice until it succeeds; None: there is no such object."""
        for again in self._tries():
            try:
                return work()
            except CaravanseraiError:
                raise
            except FileNotFoundError as error:
                if _NO_BUCKET.search(str(error)):
                    raise self.no_bucket(key) from error
                return None
            except _ERRORS as error:
                self.check(what, key, error)
                if not again():
                    raise self._failed(f"{what}: {_words(error)}", key) from error
        raise AssertionError

    def _tries(self) -> Iterator[Callable[[], bool]]:
        """Yield once for each try a function that waits, and says whether there is another."""
        began = time.monotonic()
        # A program that has just waited in vain ends by further requests: they do not wait anew.
        lately = self._gave_up and began - self._gave_up < self.timeout
        end = began if lately else began + self.timeout
        pause = 0.02

        def again() -> bool:
            wait = pause * random.uniform(0.5, 1.5)
            if time.monotonic() + wait > end:
                self._gave_up = time.monotonic()
                return False
            signals.sleep(wait)
            return True

        while True:
            yield again
            pause = min(pause * 2, 2.0)

    # ------------------------------------------------------------------ writing

    def put(self, key: str, data: bytes, mode: Any = "overwrite", kind: str = _JSON) -> Any:
        """Send one write, once; what it raises is what the client raises."""
        attributes: Any = {"Content-Type": kind}
        return obstore.put(
            self.client,
            self._key(key),
            data,
            mode=mode,
            attributes=attributes,
            use_multipart=False,
        )

    def write(self, key: str, data: bytes, kind: str = _JSON) -> None:
        """Write an object, whatever is there."""

        def put() -> bool:
            self.put(key, data, kind=kind)
            return True

        if not self._patient("cannot be written", key, put):
            raise self.no_bucket(key)

    def create(self, key: str, data: bytes, nonce: str) -> Found | None:
        """Write an object that is not there yet.

        Args:
            key: its key.
            data: its content.
            nonce: a word in it that is in no other.

        Returns:
            None if it is there now; else what somebody else wrote there.

        Raises:
            StoreFailed: the server does not answer; it may have been written or not.
            StoreRefused: the credentials do not suffice.
        """
        written = self._conditional(key, data, nonce, "create", lambda found: found is not None)
        return None if isinstance(written, dict) else written

    def swap(
        self, key: str, data: bytes, nonce: str, version: dict[str, str] | None
    ) -> dict[str, str] | None:
        """Write an object in the place of one version of it.

        Args:
            key: its key.
            data: its content.
            nonce: a word in it that is in no other.
            version: of what is there; None: nothing is.

        Returns:
            The new version, or None if something else is there.

        Raises:
            StoreFailed, StoreRefused: as `create`.
        """

        def lost(found: Found | None) -> bool:
            return (found.version if found is not None else None) != version

        mode: Any = "create" if version is None else version
        written = self._conditional(key, data, nonce, mode, lost)
        return written if isinstance(written, dict) else None

    def _conditional(
        self, key: str, data: bytes, nonce: str, mode: Any, lost: Callable[[Found | None], bool]
    ) -> dict[str, str] | Found | None:
        """Send a conditional write until it is known what became of it.

        Returns:
            The version that was written; or, if `lost` says so, what is there instead.
        """
        for again in self._tries():
            try:
                return self._version(self.put(key, data, mode))
            except CaravanseraiError:
                raise
            except _ERRORS as error:
                if not isinstance(error, (*_CONFLICTS, FileNotFoundError)):
                    self.check("cannot be written", key, error)
                if isinstance(error, FileNotFoundError) and mode == "create":
                    raise self.no_bucket(key) from error
                found = self._look(key, error)
                if found is not None and nonce.encode() in found.data:
                    return found.version
                if lost(found):
                    return found
                if not again():
                    raise self._unknown(key, error) from error
        raise AssertionError

    def _look(self, key: str, error: Exception) -> Found | None:
        """Read what became of a write that was not confirmed."""
        try:
            return self.get(key)
        except StoreFailed:
            raise self._unknown(key, error) from error

    def delete(self, keys: list[str]) -> None:
        """Remove objects; it is no error where one is not there."""

        def remove(key: str) -> None:
            self._patient(
                "cannot be removed", key, lambda: obstore.delete(self.client, self._key(key))
            )

        self.map(remove, keys)

    def _version(self, meta: Any) -> dict[str, str]:
        """Return what a conditional write names an object by; a None in it is refused."""
        names = ("e_tag", "version") if self.address.scheme == "gs" else ("e_tag",)
        return {name: meta[name] for name in names if meta.get(name) is not None}

    # ------------------------------------------------------------------ errors

    def check(self, what: str, key: str, error: Exception) -> None:
        """Raise where another try would end the same way."""
        if _NO_BUCKET.search(str(error)):
            raise self.no_bucket(key) from error
        where = visible(self.path(key))
        refused = isinstance(error, (PermissionDeniedError, UnauthenticatedError))
        if refused or _REFUSED.search(str(error)):
            raise StoreRefused(
                f"{where} {what}: the server refused the credentials ({_words(error)}). They come "
                "from the environment (AWS_…, GOOGLE_…, AZURE_…) and need the right to read, "
                "write, list and delete objects below the prefix - on S3: s3:GetObject, "
                "s3:PutObject and s3:DeleteObject on the objects, s3:ListBucket on the bucket."
            ) from error
        if isinstance(error, _HOPELESS) or _FINAL.search(str(error)):
            raise self._failed(f"{what}: {_words(error)}", key) from error

    def _failed(self, what: str, key: str) -> StoreFailed:
        path = self.path(key)
        return StoreFailed(f"{visible(path)} {what}", filename=path)

    def _unknown(self, key: str, error: Exception) -> StoreFailed:
        return self._failed(
            f"may have been written or not: the server gave no answer that says so within "
            f"{self.timeout:g} seconds ({_words(error)}). What was saved before stands. load() the "
            "run to see what is there before going on.",
            key,
        )

    def no_bucket(self, key: str) -> StoreFailed:
        """Build the error for a bucket that is not there."""
        name, scheme = visible(self.address.bucket), self.address.scheme
        kind = "container" if scheme == "az" else "bucket"
        return self._failed(
            f"cannot be there: there is no {kind} {name}. Create it, or use another address; the "
            "store makes none.",
            key,
        )


_CODE = re.compile(r"<Code>([^<]{1,80})</Code>(?:.*?<Message>([^<]{1,200})</Message>)?", re.DOTALL)
_SENT = re.compile(r"error sending request|connection refused|dns error|timed out", re.IGNORECASE)


def _words(error: Exception) -> str:
    """Return what a server, or the client, says is wrong, in a line."""
    text = str(error).strip()
    told = _CODE.search(text)
    if told is not None:
        return visible(": ".join(part for part in told.groups() if part))
    if "169.254.169.254" in text:  # where a machine of the provider would find its own
        return "there are none in the environment, and this machine has no role of its own"
    if _SENT.search(text):
        return "the server does not answer; look at the endpoint and the network"
    return visible(text.partition("\n")[0][:300] or type(error).__name__)
