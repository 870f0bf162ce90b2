"""The seam to the operating system: every call by which the file store touches a disk.

A test replaces it to record calls, replay every crash point, or fail the n-th call. It is also
the one place where platforms differ: macOS has no fdatasync and needs F_FULLFSYNC, Windows
has no flock.
"""

from __future__ import annotations

import errno
import os
import sys

if sys.platform != "win32":
    import fcntl


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
    symlink = staticmethod(os.symlink)
    readlink = staticmethod(os.readlink)
    unlink = staticmethod(os.unlink)
    rmdir = staticmethod(os.rmdir)
    listdir = staticmethod(os.listdir)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """Read `size` bytes at `offset`, fewer only at the end of the file."""
        data = os.pread(fd, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size and data:  # one call reads at most 2 GiB on Linux
            data = os.pread(fd, size - got, offset + got)
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def sync_data(self, fd: int) -> None:
        """Make the file's data and length durable."""
        if sys.platform == "darwin":
            # fsync(2) on macOS leaves data in the drive's cache; F_FULLFSYNC flushes it.
            try:
                fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            except OSError:
                os.fsync(fd)
        elif sys.platform == "win32":
            os.fsync(fd)
        else:
            os.fdatasync(fd)

    def sync_dir(self, path: str) -> None:
        """Make the names in a folder durable. Windows does it by itself."""
        if sys.platform == "win32":
            return
        fd = self.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            self.close(fd)

    def lock(self, fd: int) -> bool:
        """Take the exclusive lock of an open file if nobody holds it."""
        if sys.platform == "win32":
            import msvcrt

            try:
                msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
            except OSError:
                return False
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise
        return True

    def unlock(self, fd: int) -> None:
        """Give the lock back, also where a forked child still has the file open."""
        if sys.platform == "win32":
            import msvcrt

            os.lseek(fd, 0, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
            return
        fcntl.flock(fd, fcntl.LOCK_UN)
