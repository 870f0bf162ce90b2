"""Whether a server keeps two writers apart at all.

Everything here rests on conditional writes: "only if nothing is there", "only if this version is".
Some servers that speak the S3 protocol ignore both, and let the second writer overwrite the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PreconditionError,
)

from caravanserai_core import signals
from caravanserai_core.errors import StoreFailed, StoreRefused
from caravanserai_core.quoting import visible
from caravanserai_core.stores._objects_layout import new_nonce

if TYPE_CHECKING:
    from caravanserai_core.stores._objects_bucket import Bucket

_MOST_TRIES = 5

_PAUSES = (0.1, 0.5, 2.0)
"""Seconds; a server that starts again may not find for a moment what it has, or have lost it."""


def probe(bucket: Bucket) -> None:
    """Write a small object, and see that it cannot be created again or changed unseen.

    Raises:
        StoreRefused: it can, or the server knows no conditional writes.
        StoreFailed: the server does not answer.
    """
    for pause in (*_PAUSES, None):
        problem = _probed(bucket)
        if problem is None:
            return
        if pause is None:
            raise problem
        signals.sleep(pause)


def _probed(bucket: Bucket) -> Exception | None:
    """Try it once.

    Returns:
        What to say if it is so each time; None: all is well.
    """
    nonce = new_nonce()
    key = f".caravanserai-probe-{nonce}"
    data = b'{"nonce":"%b"}\n' % nonce.encode()
    try:
        if bucket.create(key, data, nonce) is not None:
            return _refused(bucket, "If-None-Match")
        first = bucket.get(key)
        if first is None:
            return bucket.no_bucket(key)
        if not _refuses(bucket, key, b"{}\n", "create"):
            return _refused(bucket, "If-None-Match")
        if bucket.swap(key, data + b"\n", nonce, first.version) is None:
            return _refused(bucket, "If-Match")
        if not _refuses(bucket, key, b"{}\n", first.version):
            return _refused(bucket, "If-Match")
    finally:
        _remove(bucket, key)
    return None


def _refuses(bucket: Bucket, key: str, data: bytes, mode: Any) -> bool:
    """Say whether a write that must not succeed does not."""
    problem = ""
    for _ in range(_MOST_TRIES):
        try:
            bucket.put(key, data, mode)
        except (AlreadyExistsError, PreconditionError):
            return True
        except NotSupportedError:
            return False
        except BaseError as error:
            problem = str(error)[:300]
            bucket.check("cannot be written", key, error)
        else:
            return False
    raise StoreFailed(f"{visible(bucket.path(key))} cannot be written: {visible(problem)}")


def _remove(bucket: Bucket, key: str) -> None:
    try:
        bucket.delete([key])
    except (StoreFailed, StoreRefused):
        return  # nothing depends on it


def _refused(bucket: Bucket, header: str) -> StoreRefused:
    return StoreRefused(
        f"{visible(bucket.address.base)}: this server ignores {header}, so two writers could "
        "overwrite each other's waypoints unseen. Nothing was written. Use a server with "
        "conditional writes: Amazon S3, Google Cloud Storage, Azure Blob Storage, Cloudflare R2, "
        "MinIO, Ceph or SeaweedFS in a recent release; not `rclone serve s3`."
    )
