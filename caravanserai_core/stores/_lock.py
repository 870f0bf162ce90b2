"""The lock of a run: who may append, for as long as an append takes."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from caravanserai_core import signals
from caravanserai_core.errors import StoreBusy
from caravanserai_core.quoting import visible
from caravanserai_core.stores._folder import close, failed, make_folders, typed
from caravanserai_core.stores._seam import LOCK

if TYPE_CHECKING:
    from caravanserai_core.stores._seam import Files

_POLL = 0.0005
"""Seconds between two looks at a held lock, with jitter; a growing pause starves a waiter."""

_open_locks: set[int] = set()
"""Lock files open now: a forked child closes its copies, or they would outlive the parent."""


class RunLock:
    """The exclusive lock of a run, as a context that gives the open lock file.

    The lock is a file of its own, opened for each use: a lock on the journal would be lost when
    a segment rolls over, and a kept descriptor is shared by a forked child, so that both would
    hold it. After locking, the file must still be the one that has the name: a deletion takes
    the name away first.

    Args:
        files: the system calls.
        root: the store's folder.
        path: the run's folder.
        timeout: seconds to wait.
        create: whether to make the folders where they are missing.

    Attributes:
        size: bytes of the lock file when it was locked.

    Raises:
        FileNotFoundError: there is no run folder and `create` is false.
        StoreBusy: not free in time; names the holder.
    """

    __slots__ = ("_create", "_fd", "_files", "_path", "_root", "_timeout", "size")

    def __init__(self, files: Files, root: str, path: str, timeout: float, *, create: bool) -> None:
        self._files = files
        self._root = root
        self._path = path
        self._timeout = timeout
        self._create = create
        self._fd = -1
        self.size = 0

    def __enter__(self) -> int:
        deadline = 0.0
        name = self._path + "/lock"
        while True:
            fd = self._open(name)
            ours = free = False
            holder = ""
            late = bool(deadline) and time.monotonic() >= deadline
            try:
                _open_locks.add(fd)
                with typed("the run's lock cannot be taken", name):
                    free = self._files.lock(fd)
                    ours = free and self._still_named(fd, name)
                if ours:
                    self._fd = fd
                    return fd
                if late and not free:
                    holder = _holder(self._files, fd)
            finally:
                if not ours:
                    self._release(fd)
            if free:
                continue  # it was deleted since it was opened
            if late:
                raise StoreBusy(
                    f"{visible(self._path)} is being written by {holder or 'another process'}, "
                    f"which has held its lock for more than {self._timeout:g} s. Wait, or end it "
                    "if it is stopped."
                )
            deadline = deadline or time.monotonic() + self._timeout
            signals.sleep(_POLL * (0.5 + os.urandom(1)[0] / 256))

    def __exit__(self, *_: object) -> None:
        self._release(self._fd)

    def _open(self, name: str) -> int:
        while True:
            try:
                return self._files.open(name, LOCK, 0o600)
            except FileNotFoundError:
                if not self._create:
                    raise
                make_folders(self._files, self._root, self._path)
            except OSError as error:
                raise failed("the run's lock cannot be opened", name, error) from error

    def _still_named(self, fd: int, name: str) -> bool:
        """Say whether the open file is still the one that has the name."""
        mine = self._files.fstat(fd)
        try:
            named = self._files.stat(name)
        except FileNotFoundError:
            return False
        self.size = mine.st_size
        return mine.st_ino == named.st_ino and mine.st_dev == named.st_dev

    def _release(self, fd: int) -> None:
        _open_locks.discard(fd)
        try:
            with contextlib.suppress(OSError):
                self._files.unlock(fd)
        finally:
            close(self._files, fd)


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


def _drop_locks_after_fork() -> None:
    """Close a forked child's copies of open lock files."""
    for fd in list(_open_locks):
        with contextlib.suppress(OSError):
            os.close(fd)
    _open_locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_locks_after_fork)
