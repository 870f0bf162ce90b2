"""Finishing what was begun when a journal was replaced. Always under the lock."""

from __future__ import annotations

import logging
import os
import re
from typing import TYPE_CHECKING, Final

from caravanserai_core.quoting import visible
from caravanserai_core.records import Record, now
from caravanserai_core.stores import _legacy
from caravanserai_core.stores._folder import close, sync_data, sync_names, write_all
from caravanserai_core.stores._notes import remove_notes
from caravanserai_core.stores._seam import NEW, READ
from caravanserai_core.stores._segments import RunFolder, segment_path

if TYPE_CHECKING:
    from caravanserai_core.stores._seam import Files

_log = logging.getLogger("caravanserai")

TEMPORARY: Final = ".journal-1.jsonl."

# A line of the lock file: the first segment is being replaced by one of this generation.
_REPLACING = re.compile(rb"^(replacing|mending) (\d+)$", re.MULTILINE)


class RunSettler(RunFolder):
    """The folder of one run, for the holder of its lock.

    Args:
        files: the system calls.
        path: the folder.
        lock_size: bytes of the lock file, which tells of failed syncs and of replacements; looked
            at when it was locked.
    """

    def __init__(self, files: Files, path: str, lock_size: int) -> None:
        super().__init__(files, path)
        self.lock_size = lock_size

    def _settle(self, lock: int) -> None:
        """Finish what a replacement began, or undo it, as the first segment says.

        Only evidence counts: after a loss of power an old mark may be there again.
        """
        if not self.lock_size:
            return
        marks = list(_REPLACING.finditer(self.files.read(lock, self.lock_size, 0)))
        if not marks:
            return
        self._drop_leftovers(self.last_segment())
        self._drop_temporaries()
        size = marks[-1].start()
        if self.generation(1) == int(marks[-1][2]):
            if marks[-1][1] == b"mending":
                self._drop_unreadable()  # the notes of lost waypoints are all that is left of them
            else:
                self._remove_notes()
            size = 0  # marks of failed syncs are of segments that have gone
        sync_names(self.files, self.path)  # what was removed does not come back
        self.files.truncate(lock, size)
        self.lock_size = size

    def _drop_leftovers(self, last: int) -> None:
        """Remove segments of an earlier generation; from the end, so that no gap is seen."""
        # Before anything is removed, or acknowledged in the new one, it has its name for good.
        sync_names(self.files, self.path)
        for segment in self.segments_behind(last, all_generations=True):
            if self.left_over(segment):
                self.files.unlink(segment_path(self.path, segment))

    def _drop_unreadable(self) -> None:
        """Set aside segments of which not even the beginning can be read."""
        for segment in self.segments_behind(1):
            if self.generation(segment) is None:
                self._drop_unfinished(segment)

    def _drop_unfinished(self, segment: int) -> None:
        """Set aside a segment that was begun and never acknowledged."""
        if segment == 1 or not self.exists(segment):
            return
        fd = self.open_segment(segment, READ)
        try:
            if self.files.fstat(fd).st_size:
                self._keep_damaged(segment, fd, 0)
        finally:
            close(self.files, fd)
        self.files.unlink(segment_path(self.path, segment))

    def _drop_temporaries(self) -> None:
        for name in self.files.listdir(self.path):
            if name.startswith(TEMPORARY):
                self.files.unlink(f"{self.path}/{name}")

    def _remove_notes(self) -> None:
        items = list(self.scan(bodies=False, start=None))
        records = [item for item in items if isinstance(item, Record)]
        kept = {record.waypoint for record in records if record.kind == "waypoint"}
        newest = max((record.waypoint for record in records), default=0)
        old = _legacy.read(self.path)
        if old is not None:
            kept.update(range(1, old.number + 1))
        try:
            remove_notes(self.files, self.path, kept, newest)
        except OSError as error:
            _log.warning(
                "%s: notes of removed waypoints are still there (%s)",
                visible(self.path),
                error.strerror,
            )

    def _keep_damaged(self, segment: int, fd: int, start: int, *, sync: bool = False) -> str:
        """Copy a segment from an offset on to a name of its own; returns the path."""
        stamp = now()[:19].replace(":", "").replace("-", "")
        name = f"{self.path}/journal-{segment}.damaged-{stamp}-{os.urandom(4).hex()}"
        size = self.files.fstat(fd).st_size
        copy = self.files.open(name, NEW, 0o600)
        try:
            while start < size:
                piece = self.files.read(fd, min(1 << 20, size - start), start)
                write_all(self.files, copy, piece)
                start += len(piece)
            if sync:
                sync_data(self.files, copy, self.path)
        finally:
            self.files.close(copy)
        return name
