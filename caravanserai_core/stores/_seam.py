"""The seam to the operating system: every call by which the file store touches a disk.

A test replaces it to record calls, replay every crash point, or fail the n-th call. It is also
the one place where platforms differ: macOS has no fdatasync and needs F_FULLFSYNC, Windows
has no flock.
"""

from __future__ import annotations

import errno
import os
import sys

if sys.platform == "win32":
    import msvcrt

    def _read(fd: int, size: int, offset: int) -> bytes:
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, size)

    def _sync_data(fd: int) -> None:
        os.fsync(fd)

    def _lock(fd: int) -> bool:
        os.lseek(fd, 0, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(fd: int) -> None:
        os.lseek(fd, 0, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

    _OWNED = 1 << 30  # behind the content: others could not read a locked byte

    def _own(fd: int) -> bool:
        os.lseek(fd, _OWNED, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _owner(fd: int) -> int | None:
        if not _own(fd):
            return 0
        os.lseek(fd, _OWNED, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
        return None

else:
    import fcntl
    import struct

    def _read(fd: int, size: int, offset: int) -> bytes:
        return os.pread(fd, size, offset)

    def _sync_data(fd: int) -> None:
        if sys.platform == "darwin":
            # fsync(2) on macOS leaves data in the drive's cache; F_FULLFSYNC flushes it.
            try:
                fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            except OSError:
                os.fsync(fd)
        else:
            os.fdatasync(fd)

    def _lock(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise
        return True

    def _unlock(fd: int) -> None:
        # By name and not by closing: a forked child may still have the file open.
        fcntl.flock(fd, fcntl.LOCK_UN)

    def _own(fd: int) -> bool:
        # A record lock: the process's own. A forked child has no part in it, so it ends with the
        # process; a flock would live on in the child.
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    def _owner(fd: int) -> int | None:
        # struct flock: fcntl(2) of Linux; of macOS and the BSDs, whose further members are unused.
        if sys.platform == "linux":
            ask = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack("hhqqi", fcntl.fcntl(fd, fcntl.F_GETLK, ask))
        else:
            ask = struct.pack("qqihh", 0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
            _, _, pid, kind, _ = struct.unpack("qqihh", fcntl.fcntl(fd, fcntl.F_GETLK, ask))
        return None if kind == fcntl.F_UNLCK else int(pid)


# No link is ever followed, and no child process inherits a descriptor.
_ALWAYS = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOINHERIT", 0)
    | getattr(os, "O_BINARY", 0)
)
# A pipe that somebody planted must not make an open wait; on a file it changes nothing.
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
READ = os.O_RDONLY | _ALWAYS | _NO_WAIT
APPEND = os.O_RDWR | os.O_APPEND | _ALWAYS | _NO_WAIT
OVER = os.O_WRONLY | _ALWAYS | _NO_WAIT
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _ALWAYS
# One call reads at most 2 GiB on Linux; below that only the end of a file makes it short.
_LARGE = 1 << 30
LOCK = os.O_RDWR | os.O_APPEND | os.O_CREAT | _ALWAYS
LEASE = os.O_RDWR | os.O_CREAT | _ALWAYS


class Files:
    """The system calls of the file store, as attributes that a test may replace."""

    open = staticmethod(os.open)
    close = staticmethod(os.close)
    write = staticmethod(os.write)
    fstat = staticmethod(os.fstat)
    stat = staticmethod(os.stat)
    lstat = staticmethod(os.lstat)
    truncate = staticmethod(os.ftruncate)
    mkdir = staticmethod(os.mkdir)
    rename = staticmethod(os.replace)
    unlink = staticmethod(os.unlink)
    rmdir = staticmethod(os.rmdir)
    listdir = staticmethod(os.listdir)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """Read `size` bytes at `offset`, fewer only at the end of the file."""
        data = _read(fd, size, offset)
        if len(data) == size or size < _LARGE:
            return data
        parts = [data]
        got = len(data)
        while got < size and data:
            data = _read(fd, size - got, offset + got)
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def sync_data(self, fd: int) -> None:
        """Make the file's data and length durable."""
        _sync_data(fd)

    def sync_dir(self, path: str) -> None:
        """Make the names in a folder durable. Windows does it by itself."""
        if sys.platform == "win32":
            return
        fd = self.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(fd)
        finally:
            self.close(fd)

    def lock(self, fd: int) -> bool:
        """Take the exclusive lock of an open file if nobody holds it."""
        return _lock(fd)

    def unlock(self, fd: int) -> None:
        """Give the lock back."""
        _unlock(fd)

    def own(self, fd: int) -> bool:
        """Make this process the owner of an open file if no other process is.

        Until any descriptor of that file is closed in this process, or the process ends.
        """
        return _own(fd)

    def owner(self, fd: int) -> int | None:
        """Return the pid of the process that owns an open file, or None; 0 where it is unseen."""
        return _owner(fd)
