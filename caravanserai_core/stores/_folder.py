"""Folders and locks of the file store: made private, checked, locked, deleted."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import sys
import time
from typing import TYPE_CHECKING

from caravanserai_core.errors import CaravanseraiError, StoreBusy, StoreFailed, StoreRefused
from caravanserai_core.quoting import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from caravanserai_core.stores._seam import Files

_log = logging.getLogger("caravanserai")

# Locks and appends are not reliable there: each client has its own idea of the file's end.
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs", "fuse.sshfs", "9p"}

_POLL = 0.0005
"""Seconds between two looks at a held lock, with jitter; a growing pause starves a waiter."""

_cannot_sync: set[int] = set()
"""Devices of which that was said."""

_open_locks: set[int] = set()
"""Lock files open now: a forked child closes its copies, or they would outlive the parent."""


def failed(what: str, path: str, error: OSError) -> StoreFailed:
    """Build the error for an operation that the disk refused."""
    return StoreFailed(
        f"{what}: {os.strerror(error.errno or 0)} (errno {error.errno}) at {visible(path)}. "
        "The earlier waypoints are untouched; mend the cause and run again.",
        errno=error.errno,
        filename=path,
    )


@contextlib.contextmanager
def typed(what: str, path: str) -> Iterator[None]:
    """Turn what the operating system refuses into `StoreFailed`; what is not there stays so."""
    try:
        yield
    except (CaravanseraiError, FileNotFoundError):
        raise
    except OSError as error:
        raise failed(what, path, error) from error


def refuse_network(root: str) -> None:
    """Refuse a folder on a network file system.

    Raises:
        StoreRefused: file locks and appends there do not keep two machines apart.
    """
    kind = _filesystem(root)
    if kind in _NETWORK:
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
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
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
    with typed("the run's folder cannot be made", path):
        if not _exists(files, root):
            _make_root(files, root)
        with contextlib.suppress(FileExistsError):
            files.mkdir(path, 0o700)
        sync_names(files, root)
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


def _make_root(files: Files, root: str) -> None:
    refuse_network(os.path.dirname(root))
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
        fd = files.open(ignore, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            files.write(fd, b"*\n")
        finally:
            files.close(fd)


@contextlib.contextmanager
def locked(files: Files, root: str, path: str, timeout: float, *, create: bool) -> Iterator[int]:
    """Hold the exclusive lock of a run; yields the open lock file.

    The lock is a file of its own, opened for each use: a lock on the journal would be lost when
    a segment rolls over, and a kept descriptor is shared by a forked child, so that both would
    hold it. After locking, the file must still be the one that has the name: a deletion takes
    the name away first.

    Raises:
        FileNotFoundError: there is no run folder and `create` is false.
        StoreBusy: not free within `timeout` seconds; names the holder.
    """
    name = path + "/lock"
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    deadline = 0.0
    while True:
        try:
            fd = files.open(name, flags, 0o600)
        except FileNotFoundError:
            if not create:
                raise
            make_folders(files, root, path)
            continue
        except OSError as error:
            raise failed("the run's lock cannot be opened", name, error) from error
        try:
            _open_locks.add(fd)
            with typed("the run's lock cannot be taken", name):
                free = files.lock(fd)
                ours = free and _still_named(files, fd, name)
            if ours:
                yield fd
                return
            if free:
                continue  # it was deleted since it was opened
            late = bool(deadline) and time.monotonic() >= deadline
            holder = _holder(files, fd) if late else ""
        finally:
            _open_locks.discard(fd)
            try:
                with contextlib.suppress(OSError):
                    files.unlock(fd)
            finally:
                close(files, fd)
        deadline = deadline or time.monotonic() + timeout
        if late:
            raise StoreBusy(
                f"{visible(path)} is being written by {holder or 'another process'}, "
                f"which has held its lock for more than {timeout:g} s. Wait, or end it if it "
                "is stopped."
            )
        time.sleep(_POLL * (0.5 + os.urandom(1)[0] / 256))


def _still_named(files: Files, fd: int, name: str) -> bool:
    """Say whether the open file is still the one that has the name."""
    mine = files.fstat(fd)
    try:
        named = files.stat(name)
    except FileNotFoundError:
        return False
    return (mine.st_ino, mine.st_dev) == (named.st_ino, named.st_dev)


def close(files: Files, fd: int) -> None:
    """Close a file whose data is already synced, or was only read: an error says nothing more."""
    with contextlib.suppress(OSError):
        files.close(fd)


def _holder(files: Files, fd: int) -> str:
    """Name the process that holds a lock, from /proc/locks (Linux), or return ""."""
    try:
        found = files.fstat(fd)
        wanted = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        with open("/proc/locks", encoding="ascii") as locks:
            pids = [
                int(f[-4])
                for f in (line.split() for line in locks)
                if f[-3] == wanted and "->" not in f
            ]
        if not pids:
            return ""
        pid = pids[0]
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as status:
            state = status.read().rpartition(")")[2].split()[0]
    except (OSError, ValueError, IndexError):
        return ""
    paused = " (stopped)" if state in "Tt" else ""
    return f"process {pid}{paused}"


def drop_locks_after_fork() -> None:
    """Close a forked child's copies of open lock files."""
    for fd in list(_open_locks):
        with contextlib.suppress(OSError):
            os.close(fd)
    _open_locks.clear()


def write_new(files: Files, folder: str, name: str, data: bytes) -> None:
    """Write a file under a temporary name that cannot be guessed, then rename it."""
    temporary = f"{folder}/.{name}.{os.urandom(8).hex()}"
    fd = files.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
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
    """Remove a folder and what is in it, following no link."""
    for name in files.listdir(path):
        target = f"{path}/{name}"
        with contextlib.suppress(FileNotFoundError):  # somebody else removes it too
            if stat.S_ISDIR(files.lstat(target).st_mode):
                remove_tree(files, target)
            else:
                files.unlink(target)
    files.rmdir(path)


# Only the process that forks knows its open locks; registered once, at import.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=drop_locks_after_fork)
