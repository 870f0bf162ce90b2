"""The lease of a run in a folder: a file that its owner keeps locked.

The lock is a POSIX record lock: it belongs to the process alone, not to a forked child, and is gone
the moment the process is, so whoever finds the file unlocked knows that nobody is at work. What
stands in the file only tells others who that is.

Such a lock is lost when its process closes *any* descriptor of the file. So a process has one at
most, in a table, and never opens a file again that it has there.

All but `holder_of` is done under the run's lock: that is what deletion and takeover, which give the
name to another file or take it away, are kept apart by.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import orjson

from caravanserai_core.stores._folder import close, typed, write_all
from caravanserai_core.stores._seam import LEASE, NEW, READ
from caravanserai_core.stores.owners import Hold, Holder, busy_error, host_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from caravanserai_core.stores._seam import Files

    T = TypeVar("T")

_NAME = "/lease"
_LARGEST = 4096  # bytes
_WIDTH = 400
"""Bytes of the first line, which is all that counts, so that a shorter one covers a longer one."""
_TYPES = [str, int, str, int, str]
_LOOKS = 20
_PAUSE = 0.001
"""Seconds between two looks at a file whose new owner has not yet written who it is."""

# Re-entrant: a generator that holds a lease may be closed wherever the collector runs.
_mutex = threading.RLock()
_held: dict[tuple[int, int], FileHold] = {}
"""The leases of this process, by device and inode."""


class FileHold(Hold):
    """A locked lease file.

    Attributes:
        holder: what stands in it.
    """

    def __init__(self, files: Files, fd: int, holder: Holder) -> None:
        self.holder = holder
        self._files = files
        self._fd = fd
        found = files.fstat(fd)
        self._key = (found.st_dev, found.st_ino)
        _held[self._key] = self

    def release(self) -> None:
        with _mutex:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                _held.pop(self._key, None)
                close(self._files, fd)

    def left_behind(self) -> None:
        """Let go of what a forked child has of its parent's lease; the parent's lock stays."""
        fd, self._fd = self._fd, -1
        with contextlib.suppress(OSError):
            os.close(fd)


def take(files: Files, path: str, run_id: str, holder: Holder) -> FileHold:
    """Take the lease of the run in folder `path`; its lock is held.

    Raises:
        RunBusy: somebody has it.
        StoreFailed: the disk refused.
    """
    name = path + _NAME
    with _mutex, typed("the lease cannot be taken", name):
        mine = _mine(files, name)
        if mine is not None:
            raise busy_error(run_id, mine.holder)
        fd = files.open(name, LEASE, 0o600)
        try:
            if not files.own(fd):
                raise busy_error(run_id, _told(files, fd, files.owner(fd) or 0))
            _tell(files, fd, holder)
            return FileHold(files, fd, holder)
        except BaseException:
            close(files, fd)
            raise


def take_away(
    files: Files, path: str, append: Callable[[], T], holder: Callable[[T], Holder]
) -> tuple[T, FileHold]:
    """Take the lease over from whoever has it; the run's lock is held.

    Args:
        files: the system calls.
        path: the run's folder.
        append: raises the journal's epoch; called when all that may be refused is done.
        holder: what is to stand in the file, given what `append` returned.
    """
    name = path + _NAME
    temporary = f"{path}/.lease.{os.urandom(8).hex()}"
    with _mutex, typed("the lease cannot be taken", name):
        fd = files.open(temporary, NEW, 0o600)
        try:
            files.own(fd)  # nobody else knows this file
            appended = append()
            who = holder(appended)
            _tell(files, fd, who)
            files.rename(temporary, name)
            return appended, FileHold(files, fd, who)
        except BaseException:
            close(files, fd)
            with contextlib.suppress(OSError):
                files.unlink(temporary)
            raise


def holder_of(files: Files, path: str) -> Holder | None:
    """Say who has the lease of the run in folder `path`, this process or another; None: nobody."""
    name = path + _NAME
    with _mutex, typed("the lease cannot be read", name):
        mine = _mine(files, name)
        if mine is not None:
            return mine.holder
        try:
            fd = files.open(name, READ)
        except FileNotFoundError:
            return None
        try:
            pid = files.owner(fd)
            return None if pid is None else _told(files, fd, pid)
        finally:
            close(files, fd)


def held_elsewhere(files: Files, path: str) -> Holder | None:
    """Say which other process has the lease of the run in folder `path`."""
    with _mutex:
        return None if _mine(files, path + _NAME) is not None else holder_of(files, path)


def _mine(files: Files, name: str) -> FileHold | None:
    """Return this process's own lease, without opening the file."""
    if not _held:
        return None
    try:
        found = files.lstat(name)
    except FileNotFoundError:
        return None
    return _held.get((found.st_dev, found.st_ino))


def _tell(files: Files, fd: int, holder: Holder) -> None:
    # Over what stands there. ext4 would flush a file that was cut to nothing and written again.
    write_all(files, fd, orjson.dumps(holder._asdict()).ljust(_WIDTH) + b"\n")


def _told(files: Files, fd: int, pid: int) -> Holder:
    """Read who the owner says it is; wait a moment for one that has only just locked the file.

    Args:
        files: the system calls.
        fd: the open file.
        pid: the owner's process id as it is seen from here, 0 where it is not.
    """
    host = host_name()
    for _ in range(_LOOKS):
        found = _read(files, fd)
        # On another "machine", which is a container with the same disk, pids are others.
        if found is not None and (not pid or found.pid == pid or found.host != host):
            return found
        time.sleep(_PAUSE)
    return Holder(host if pid else "", pid, "", 1, "")


def _read(files: Files, fd: int) -> Holder | None:
    try:
        found: Any = orjson.loads(files.read(fd, _LARGEST, 0).partition(b"\n")[0])
        values = [found[name] for name in Holder._fields]
    except (ValueError, KeyError, TypeError):
        return None
    return Holder(*values) if [type(value) for value in values] == _TYPES else None


def _after_fork() -> None:
    global _mutex
    _mutex = threading.RLock()
    for hold in _held.values():
        hold.left_behind()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
