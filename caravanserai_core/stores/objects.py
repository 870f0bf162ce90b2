"""Runs in an object store: S3 and what speaks its protocol, Google Cloud Storage, Azure.

    ObjectStore("s3://bucket/prefix")

Needs the package obstore. What lies where below the prefix, and why an append needs one request and
no lock, is told in `_objects_layout` and `_objects_writer`.
"""

from __future__ import annotations

from caravanserai_core.errors import UsageError

try:
    from caravanserai_core.stores._objects_store import ObjectStore
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "obstore":
        raise
    raise UsageError(
        "s3://, gs:// and az:// need the package obstore: pip install 'caravanserai[objects]'"
    ) from missing

__all__ = ["ObjectStore"]
