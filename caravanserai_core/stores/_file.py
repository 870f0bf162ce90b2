"""The embedded default: a folder per run, JSON Lines for programs, Markdown for people.

    .caravanserai/                    0700; a .gitignore with "*"
    └── my-run/
        ├── journal-1.jsonl           the records; segments are numbered, most runs have one
        ├── waypoint-1.md …           notes
        ├── latest.md                 the newest note, and what began since
        ├── lock                      held during an append; holds the segments a sync failed in
        └── lease                     locked by who works on the run, if anybody does

An append is one write and one data sync under the lock. See docs/architecture.md for the order
of calls and what a crash between any two of them leaves behind.
"""

from __future__ import annotations

import logging
import os
import stat
from typing import TYPE_CHECKING, Any

from caravanserai_core.errors import JournalDamaged, StoreFailed, StoreRefused, UsageError
from caravanserai_core.names import folder_name
from caravanserai_core.quoting import visible
from caravanserai_core.stores import _folder, _lease, _legacy
from caravanserai_core.stores._lock import RunLock
from caravanserai_core.stores._notes import write_notes
from caravanserai_core.stores._reader import RunReader
from caravanserai_core.stores._replacer import RunReplacer
from caravanserai_core.stores._seam import READ, Files
from caravanserai_core.stores._segments import segment_path
from caravanserai_core.stores.base import (
    ANY_EPOCH,
    Appended,
    Bad,
    Listed,
    Recent,
    Sealed,
    Shown,
    Store,
    Tail,
)
from caravanserai_core.stores.owners import Hold, Holder, busy_error

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping

    from caravanserai_core.records import Record
    from caravanserai_core.stores.base import Salvage
    from caravanserai_core.stores.owners import Lapsed

_log = logging.getLogger("caravanserai")

_LARGEST_NOTE = 64 << 20  # bytes; nothing that is larger is one

SEGMENT_SIZE = 1 << 20
"""Bytes; a segment is closed at a full record once it is larger, and 4 × the state."""

_DELETED = ".deleted-"

_UNREADABLE = "the journal cannot be read"


class FileStore(Store):
    """Runs in a folder of the local disk.

    Args:
        root: the store's folder; made on first use.
        timeout: seconds to wait for another process that is writing the same run.
        keep: how many of the newest waypoints of each run stay; None: all. A run is pruned each
            time that so many were added, and holds twice as many at most.
        files: the system calls; tests replace them.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] = ".caravanserai",
        *,
        timeout: float = 20.0,
        keep: int | None = None,
        files: Files | None = None,
    ) -> None:
        if keep is not None and (type(keep) is not int or keep < 1):
            raise UsageError(f"keep= takes a number of waypoints from 1, not {keep!r}")
        self.root = os.path.abspath(os.fspath(root))
        self.timeout = timeout
        self.keep = keep
        self._files = files or Files()
        self._key: tuple[str, str] | None = None

    def __repr__(self) -> str:
        return f"FileStore({self.root!r})"

    @property
    def url(self) -> str:
        if self.keep is None:
            return self.root
        from urllib.parse import quote

        return f"file://{quote(self.root)}?keep={self.keep}"

    @property
    def key(self) -> object:
        if self._key is None:
            self._key = ("file", os.path.realpath(self.root))
        return self._key

    def where(self, run_id: str) -> str:
        return self.folder(run_id)

    def folder(self, run_id: str) -> str:
        """Return the absolute path of a run's folder, which need not exist."""
        return f"{self.root}/{folder_name(run_id)}"

    def _reader(self, run_id: str) -> RunReader | None:
        path = self.folder(run_id)
        if not _folder.check_run_folder(self._files, path):
            return None
        return RunReader(self._files, path)

    # ------------------------------------------------------------------ the contract

    def append(
        self,
        run_id: str,
        known: Tail | None,
        epoch: int,
        seal: Callable[[Tail | None, list[Record] | None], Sealed],
        *,
        sync: bool = True,
    ) -> Appended:
        return self._write(
            run_id, known, seal, lambda w, lock: w.append(lock, known, epoch, seal, sync=sync)
        )

    def replace(
        self,
        run_id: str,
        known: Tail | None,
        epoch: int,
        seal: Callable[[Tail | None, list[Record] | None], Sealed],
    ) -> Appended:
        return self._write(run_id, known, seal, lambda w, lock: w.replace(lock, known, epoch, seal))

    def mend(self, run_id: str, seal: Salvage, damaged: Container[str]) -> list[str]:
        path = self.folder(run_id)
        lock = RunLock(self._files, self.root, path, self.timeout, create=False)
        with lock as fd:
            return RunReplacer(self._files, path, lock.size).mend(fd, seal, damaged)

    def _write(
        self,
        run_id: str,
        known: Tail | None,
        seal: Callable[[Tail | None, list[Record] | None], Sealed],
        work: Callable[[RunReplacer, int], Appended],
    ) -> Appended:
        """Do work on a run's folder under its lock; make both for a writer that knows no run."""
        path = self.folder(run_id)
        self._prepare(path, known)
        try:
            lock = RunLock(self._files, self.root, path, self.timeout, create=known is None)
            with lock as fd:
                return work(RunReplacer(self._files, path, lock.size), fd)
        except FileNotFoundError:
            # The run was deleted since `known`: the writer has to decide, with nothing there.
            sealed = seal(None, None)
            raise AssertionError(f"seal went on after a deletion: {sealed!r}") from None

    def _prepare(self, path: str, known: Tail | None) -> None:
        if known is None:
            _folder.refuse_network(self.root)
            if not _folder.check_run_folder(self._files, path):
                _folder.make_folders(self._files, self.root, path)

    def hold(self, run_id: str, known: Tail | None, holder: Holder) -> Hold | None:
        path = self.folder(run_id)
        self._prepare(path, known)
        try:
            lock = RunLock(self._files, self.root, path, self.timeout, create=known is None)
            with lock as fd:
                if not RunReplacer(self._files, path, lock.size).ends_with(fd, known):
                    return None
                return _lease.take(self._files, path, run_id, holder)
        except FileNotFoundError:
            return None  # it was deleted

    def take_over(
        self,
        run_id: str,
        known: Tail | None,
        holder: Holder,
        seal: Callable[[Tail | None, list[Record] | None], Sealed],
        *,
        lapsed: Lapsed | None = None,
    ) -> tuple[Appended, Hold]:
        path = self.folder(run_id)
        holds: list[Hold] = []

        def work(writer: RunReplacer, lock: int) -> Appended:
            appended, hold = _lease.take_away(
                self._files,
                path,
                lambda: writer.append(lock, known, ANY_EPOCH, seal, sync=True),
                lambda appended: holder._replace(epoch=appended.tail.epoch),
            )
            holds.append(hold)
            return appended

        return self._write(run_id, known, seal, work), holds[0]

    def holder(self, run_id: str) -> Holder | None:
        path = self.folder(run_id)
        if not _folder.check_run_folder(self._files, path):
            return None
        return _lease.holder_of(self._files, path)

    def sync(self, run_id: str, tail: Tail) -> None:
        path = self.folder(run_id)
        try:
            lock = RunLock(self._files, self.root, path, self.timeout, create=False)
            with lock as fd, _folder.typed("the journal cannot be read", path):
                RunReplacer(self._files, path, lock.size).sync(fd, tail)
        except FileNotFoundError:
            return  # the run, or the segment, is gone: there is nothing left to keep

    def wants_roll(self, tail: Tail, size: int) -> bool:
        return bool(tail.token.size > max(SEGMENT_SIZE, 4 * size))

    def recent(self, run_id: str) -> Recent | None:
        reader = self._reader(run_id)
        if reader is None:
            return None
        with _folder.typed(_UNREADABLE, reader.path):
            return reader.look(reader.recent)

    def chain(self, run_id: str, waypoint: int) -> list[Record]:
        reader = self._reader(run_id)
        if reader is None:
            return []
        with _folder.typed(_UNREADABLE, reader.path):
            return reader.look(lambda: reader.chain(waypoint)) or []

    def scan(self, run_id: str, *, bodies: bool, start: Any = None) -> Iterator[Record | Bad]:
        reader = self._reader(run_id)
        if reader is not None:
            with _folder.typed(_UNREADABLE, reader.path):
                yield from reader.scan(bodies=bodies, start=start)

    def listing(self) -> Iterator[Listed]:
        try:
            names = self._files.listdir(self.root)
        except FileNotFoundError:
            return
        except NotADirectoryError:
            _folder.refuse_file(self._files, self.root)
            return
        except OSError as error:
            raise _folder.failed("the store cannot be read", self.root, error) from error
        for name in names:
            listed = None if name.startswith(".") else self._listed(name)
            if listed is not None:
                yield listed

    def _listed(self, name: str) -> Listed | None:
        path = f"{self.root}/{name}"
        try:
            if not _folder.check_run_folder(self._files, path):
                return None
        except (StoreRefused, FileNotFoundError):
            return None  # a link, another user's, or deleted just now: not a run of this store
        except StoreFailed as error:
            return Listed(name, None, None, str(error))
        try:
            reader = RunReader(self._files, path)
            return reader.look(lambda: reader.listed(name))
        except FileNotFoundError:
            return None  # deleted just now
        except (JournalDamaged, StoreFailed, StoreRefused) as error:
            return Listed(name, None, None, str(error))
        except OSError as error:
            return Listed(name, None, None, str(_folder.failed(_UNREADABLE, path, error)))

    def place_of(self, run_id: str, record: Record) -> tuple[str, int]:
        return segment_path(self.folder(run_id), record.place.segment), record.place.offset

    def size(self, folder: str) -> int | None:
        path = f"{self.root}/{folder}"
        total = 0
        try:
            for name in self._files.listdir(path):
                total += self._files.lstat(f"{path}/{name}").st_size
        except OSError:
            return None
        return total

    def put_note(self, run_id: str, shown: Shown) -> None:
        path = self.folder(run_id)
        try:
            if _folder.check_run_folder(self._files, path):
                with RunLock(self._files, self.root, path, self.timeout, create=False):
                    write_notes(self._files, path, shown)
        except FileNotFoundError:
            return  # the run was deleted

    def put_notes(self, run_id: str, known: Tail, notes: Mapping[str, str], latest: Shown) -> None:
        path = self.folder(run_id)
        try:
            if _folder.check_run_folder(self._files, path):
                lock = RunLock(self._files, self.root, path, self.timeout, create=False)
                with lock as fd, _folder.typed(_UNREADABLE, path):
                    RunReplacer(self._files, path, lock.size).put_notes(fd, known, notes, latest)
        except FileNotFoundError:
            return  # the run was deleted

    def get_note(self, run_id: str, name: str) -> str | None:
        path = self.folder(run_id)
        try:
            fd = self._files.open(f"{path}/{name}", READ)
        except OSError:
            return None
        try:
            found = self._files.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_NOTE:
                return None
            return self._files.read(fd, found.st_size, 0).decode("utf-8", "replace")
        except OSError:
            return None
        finally:
            _folder.close(self._files, fd)

    def delete(self, run_id: str) -> bool:
        path = self.folder(run_id)
        old = _legacy.find(self.root, run_id)
        gone = False
        with _folder.typed("the run cannot be deleted", path):
            if _folder.check_run_folder(self._files, path):
                gone = self._take_away(path, run_id)
            if old is not None and old.path != path:
                gone = self._take_away(old.path, None) or gone
            self._sweep()
        return gone

    def _take_away(self, path: str, run_id: str | None) -> bool:
        """Give the folder another name, which is the deletion; without a run no lock is needed."""
        hidden = f"{self.root}/{_DELETED}{os.urandom(8).hex()}"
        try:
            if run_id is not None:
                with RunLock(self._files, self.root, path, self.timeout, create=False):
                    holder = _lease.held_elsewhere(self._files, path)
                    if holder is not None:
                        raise busy_error(run_id, holder)
                    # The lock goes along, still held: whoever waits for it sees then that it
                    # no longer has its name, and nobody can make another one before.
                    self._files.rename(path, hidden)
            else:
                self._files.rename(path, hidden)
        except FileNotFoundError:
            return False
        _folder.sync_names(self._files, self.root)
        return True

    def _sweep(self) -> None:
        """Remove what is in deleted folders, also what a crash in an earlier deletion left."""
        try:
            names = self._files.listdir(self.root)
        except (FileNotFoundError, NotADirectoryError):
            return
        for name in names:
            if name.startswith(_DELETED):
                try:
                    _folder.remove_tree(self._files, f"{self.root}/{name}")
                except FileNotFoundError:
                    continue  # somebody else removes it too
                except OSError as error:
                    # The run is deleted all the same; the next deletion tries again.
                    _log.warning("%s cannot be removed: %s", visible(name), error.strerror)

    def legacy(self, run_id: str) -> _legacy.Legacy | None:
        return _legacy.find(self.root, run_id)
