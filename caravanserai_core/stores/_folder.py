"""Folders and files of the file store: made private, checked, written, removed."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import sys
from typing import TYPE_CHECKING

from caravanserai_core.errors import CaravanseraiError, StoreFailed, StoreRefused
from caravanserai_core.quoting import visible
from caravanserai_core.redact import redact
from caravanserai_core.stores._seam import NEW, OVER

if TYPE_CHECKING:
    from caravanserai_core.stores._seam import Files

_log = logging.getLogger("caravanserai")

# Locks and appends are not reliable there: each client has its own idea of the file's end.
MOUNTS = "/proc/self/mountinfo"
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs", "fuse.sshfs", "9p"}

_PAGE = 4096
"""Bytes; no system has smaller pages."""

_local: set[str] = set()
"""Folders found to be on a local disk; looking takes longer than an append."""

_cannot_sync: set[int] = set()
"""Devices of which that was said."""


def failed(what: str, path: str, error: OSError) -> StoreFailed:
    """Build the error for an operation that the disk refused."""
    return StoreFailed(
        f"{what}: {os.strerror(error.errno or 0)} (errno {error.errno}) at {visible(path)}. "
        "The earlier waypoints are untouched; mend the cause and run again.",
        errno=error.errno,
        filename=path,
    )


class typed:  # noqa: N801 - used like a function; a generator would take three times as long
    """Turn what the operating system refuses into `StoreFailed`; what is not there stays so."""

    __slots__ = ("_path", "_what")

    def __init__(self, what: str, path: str) -> None:
        self._what, self._path = what, path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(
            error, (CaravanseraiError, FileNotFoundError)
        ):
            raise failed(self._what, self._path, error) from error


def refuse_network(root: str) -> None:
    """Refuse a folder on a network file system.

    Raises:
        StoreRefused: file locks and appends there do not keep two machines apart.
    """
    if root in _local:
        return
    kind = _filesystem(root)
    if kind not in _NETWORK:
        _local.add(root)
    else:
        raise StoreRefused(
            f"{visible(root)} is on a network file system ({kind}), where two machines could spoil "
            "one run. Put the store on a local disk: set CARAVANSERAI_STORE to a local folder."
        )


def _filesystem(path: str) -> str:
    """Return the type of the file system that holds `path`, or "" where that is unknown."""
    if not sys.platform.startswith("linux"):
        return ""
    best, kind = "", ""
    real = os.path.realpath(path)
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as mounts:
            for line in mounts:
                # proc(5): the mount point is field 5, the type follows a lone "-".
                fields, _, rest = line.partition(" - ")
                point = fields.split(" ")[4].replace("\\040", " ")
                inside = real == point or real.startswith(point.rstrip("/") + "/")
                if inside and len(point) >= len(best):
                    best, kind = point, rest.split(" ")[0]
    except (OSError, IndexError):
        return ""
    return kind


def check_run_folder(files: Files, path: str) -> bool:
    """Say whether a run's folder exists, and refuse one that is not safely ours.

    Raises:
        StoreRefused: it is a link, no folder, or owned by another user.
        StoreFailed: it cannot be looked at.
    """
    try:
        found = files.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise failed("the run's folder cannot be read", path, error) from error
    if not stat.S_ISDIR(found.st_mode):
        raise StoreRefused(
            f"{visible(path)} is a link or a file, not a folder of this store. It is not followed; "
            "move it away or use another run_id."
        )
    if sys.platform != "win32" and found.st_uid != os.geteuid():
        raise StoreRefused(
            f"{visible(path)} belongs to another user (uid {found.st_uid}). Give the folder to the "
            "user that runs this program, or use another store."
        )
    return True


def make_folders(files: Files, root: str, path: str) -> None:
    """Make the store's folder and the run's, private from the start, and make them durable."""
    refuse_file(files, root)
    what = "the run's folder cannot be made"
    try:
        with typed(what, path):
            if not _exists(files, root):
                _make_root(files, root)
            with contextlib.suppress(FileExistsError):
                files.mkdir(path, 0o700)
            sync_names(files, root)
    except FileNotFoundError as error:
        raise failed(what, path, error) from error
    check_run_folder(files, path)


def sync_names(files: Files, path: str) -> None:
    """Make the names in a folder durable, where its file system can."""
    try:
        files.sync_dir(path)
    except OSError as error:
        allow_no_sync(files, path, error)


def sync_data(files: Files, fd: int, path: str) -> None:
    """Make the data of an open file below `path` durable, where its file system can."""
    try:
        files.sync_data(fd)
    except OSError as error:
        allow_no_sync(files, path, error)


def allow_no_sync(files: Files, path: str, error: OSError) -> None:
    """Go on, after one warning, where a file system cannot sync at all (fsync(2): EINVAL)."""
    if error.errno != errno.EINVAL:
        raise error
    device = files.stat(path).st_dev
    if device not in _cannot_sync:
        _cannot_sync.add(device)
        _log.warning(
            "%s: this file system cannot sync; a power loss may lose waypoints", visible(path)
        )


def _exists(files: Files, path: str) -> bool:
    try:
        files.stat(path)
    except FileNotFoundError:
        return False
    return True


def refuse_file(files: Files, root: str) -> None:
    """Refuse a store that is no folder.

    Raises:
        StoreRefused: it is a file, or lies inside one.
    """
    path = root
    while True:
        try:
            mode = files.stat(path).st_mode
            break
        except (FileNotFoundError, NotADirectoryError):
            path = os.path.dirname(path)
        except OSError as error:
            raise failed("the store cannot be read", path, error) from error
    if not stat.S_ISDIR(mode):
        raise StoreRefused(
            f"{visible(redact(path))} is a file, and a store is a folder. Give another path with "
            "store= or CARAVANSERAI_STORE."
        )


def _make_root(files: Files, root: str) -> None:
    missing = [root]
    while not _exists(files, parent := os.path.dirname(missing[-1])):
        missing.append(parent)
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            files.mkdir(path, 0o700)
        sync_names(files, os.path.dirname(path))
    # State may hold private data: a store inside a project must not be committed by accident.
    ignore = os.path.join(root, ".gitignore")
    with contextlib.suppress(FileExistsError):
        fd = files.open(ignore, NEW, 0o600)
        try:
            files.write(fd, b"*\n")
        finally:
            files.close(fd)


def close(files: Files, fd: int) -> None:
    """Close a file whose data is already synced, or was only read: an error says nothing more."""
    with contextlib.suppress(OSError):
        files.close(fd)


def write_new(files: Files, folder: str, name: str, data: bytes) -> None:
    """Write a file under a temporary name that cannot be guessed, then rename it."""
    temporary = f"{folder}/.{name}.{os.urandom(8).hex()}"
    fd = files.open(temporary, NEW, 0o600)
    try:
        try:
            write_all(files, fd, data)
        finally:
            files.close(fd)
        files.rename(temporary, f"{folder}/{name}")
    except BaseException:
        with contextlib.suppress(OSError):
            files.unlink(temporary)
        raise


def write_over(files: Files, folder: str, name: str, data: bytes) -> None:
    """Give a small file other bytes in its place, or write it anew.

    A file that takes the name of another costs the old one's inode, and its own data at once: on
    ext4 that is up to a hundred times the write. A write inside of one page is whole for every
    process and after every kill. What is longer, or is no plain file with one name, is written
    anew under a temporary name.
    """
    if len(data) > _PAGE or not _overwritten(files, f"{folder}/{name}", data):
        write_new(files, folder, name, data)


def _overwritten(files: Files, path: str, data: bytes) -> bool:
    try:
        fd = files.open(path, OVER)
    except OSError:
        return False  # nothing is there yet, or a link, or something else that is not ours
    try:
        found = files.fstat(fd)
        if found.st_size > _PAGE or found.st_nlink != 1 or not stat.S_ISREG(found.st_mode):
            return False
        # Until the rest is cut off it is empty lines, and never the end of the older text.
        rest = found.st_size - len(data)
        if files.write(fd, data + b"\n" * rest) < max(found.st_size, len(data)):
            return False
        if rest > 0:
            files.truncate(fd, len(data))
        return True
    except OSError:
        return False
    finally:
        close(files, fd)


def write_all(files: Files, fd: int, data: bytes) -> None:
    """Write all of `data`.

    Raises:
        OSError: ENOSPC where the disk took only part of it and then nothing more.
    """
    written = files.write(fd, data)
    while written < len(data):
        more = files.write(fd, data[written:])
        if more <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += more


def remove_tree(files: Files, path: str) -> None:
    """Remove a folder and what is in it; a link is removed and never followed."""
    if not stat.S_ISDIR(files.lstat(path).st_mode):
        files.unlink(path)
        return
    for name in files.listdir(path):
        with contextlib.suppress(FileNotFoundError):  # somebody else removes it too
            remove_tree(files, f"{path}/{name}")
    files.rmdir(path)
