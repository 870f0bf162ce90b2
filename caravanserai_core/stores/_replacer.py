"""Putting another journal in the place of a run's: `Store.replace` and `Store.mend`."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from caravanserai_core.errors import CaravanseraiError
from caravanserai_core.stores._folder import (
    close,
    failed,
    sync_data,
    sync_names,
    typed,
    write_all,
)
from caravanserai_core.stores._notes import write_notes
from caravanserai_core.stores._seam import NEW, READ
from caravanserai_core.stores._segments import Mark, generation_of, segment_path
from caravanserai_core.stores._settler import TEMPORARY
from caravanserai_core.stores._writer import RunWriter, lay_out, tail_after
from caravanserai_core.stores.base import Appended

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from caravanserai_core.records import Record
    from caravanserai_core.stores.base import Salvage, Sealed, Tail


class RunReplacer(RunWriter):
    """The folder of one run, for the holder of its lock."""

    def replace(
        self,
        lock: int,
        known: Tail | None,
        epoch: int,
        seal: Callable[[Tail | None, list[Record] | None], Sealed],
    ) -> Appended:
        """Put another journal in the place of this one; see `Store.replace`.

        The new one is written beside it and renamed onto the first segment: that is the moment.
        From then on the other segments are left over, known by their generation, and so are the
        marks in the lock file. `_settle` clears them away, now or after a crash.
        """
        with typed("the journal cannot be read", self.path):
            fd, found, news = self._find(lock, known)
        try:
            self._refuse_stale(found.tail, epoch)
            sealed = seal(found.tail, news)
            if found.torn:
                self._set_aside(fd, found)
        finally:
            if fd >= 0:
                close(self.files, fd)
        blob, places = lay_out(sealed, 1, 0)
        try:
            self._drop_unfinished(found.segment + 1)
            self._swap(lock, blob, b"replacing %d\n" % generation_of(sealed.lines[0].text))
            self._settle(lock)
        except OSError as error:
            if isinstance(error, CaravanseraiError):
                raise
            raise failed("the journal was not rewritten", self.path, error) from error
        if sealed.shown is not None:
            write_notes(self.files, self.path, sealed.shown)
        return Appended(tail_after(sealed, Mark(1, len(blob))), places)

    def mend(self, lock: int, seal: Salvage, damaged: Container[str]) -> list[str]:
        """Put another journal in the place of a damaged one; see `Store.mend`."""
        try:
            self._settle(lock)
            segments = self.segments_behind(0)[::-1]
            sealed = seal(self.salvage(segments))
            blob, _ = lay_out(sealed, 1, 0)
            named = [n for n in segments if segment_path(self.path, n) in damaged]
            aside: list[str] = []
            for segment in named or segments:
                fd = self.open_segment(segment, READ)
                try:
                    aside.append(self._keep_damaged(segment, fd, 0, sync=True))
                finally:
                    close(self.files, fd)
            sync_names(self.files, self.path)
            self._swap(lock, blob, b"mending %d\n" % generation_of(sealed.lines[0].text))
            self._settle(lock)
        except OSError as error:
            if isinstance(error, CaravanseraiError):
                raise
            raise failed("the journal was not mended", self.path, error) from error
        return aside

    def _swap(self, lock: int, blob: bytes, mark: bytes) -> None:
        """Write the new journal and rename it onto the first segment.

        Args:
            lock: the open, locked lock file.
            blob: the journal.
            mark: the line that says so in the lock file.
        """
        temporary = f"{self.path}/{TEMPORARY}{os.urandom(8).hex()}"
        done = False
        try:
            # Whoever locks the run next sees that there is something to settle.
            write_all(self.files, lock, mark)
            sync_data(self.files, lock, self.path)
            fd = self.files.open(temporary, NEW, 0o600)
            try:
                write_all(self.files, fd, blob)
                sync_data(self.files, fd, self.path)
            finally:
                self.files.close(fd)
            self.files.rename(temporary, segment_path(self.path, 1))
            done = True
        finally:
            if not done:
                with contextlib.suppress(OSError):
                    self.files.unlink(temporary)
                with contextlib.suppress(OSError):
                    self.files.truncate(lock, self.lock_size)
        self.lock_size += len(mark)
