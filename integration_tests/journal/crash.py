"""What a disk may hold after a crash of the machine, computed from a log of system calls.

An honest disk and no more: the data of a file is durable up to its last data sync, the names in a
folder up to its last sync. Of what came after, any prefix may be there; of the write that comes
last, any number of bytes, or its length with holes of NUL bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

Call = tuple[str, tuple[Any, ...], Any]
Tree = dict[str, Any]
"""Names to folders (dicts), file contents (bytes) and targets of links (str)."""


class Folder:
    """A folder: its durable names, and the changes since its last sync."""

    def __init__(self) -> None:
        self.durable: dict[str, Any] = {}
        self.names: dict[str, Any] = {}
        self.changes: list[dict[str, Any]] = []

    def update(self, change: dict[str, Any]) -> None:
        """Add, remove or rename names, as one step."""
        self.changes.append(change)
        _apply(self.names, change)

    def sync(self) -> None:
        """Make the names durable."""
        self.durable, self.changes = dict(self.names), []

    def after_crash(self, keep: float) -> dict[str, Any]:
        """Return the names with the given share of the changes since the last sync."""
        names = dict(self.durable)
        for change in self.changes[: round(len(self.changes) * keep)]:
            _apply(names, change)
        return names


class File:
    """A file: its durable bytes, and the changes since its last data sync."""

    def __init__(self, data: bytes = b"") -> None:
        self.durable = data
        self.data = data
        self.changes: list[tuple[int, bytes | None]] = []

    def write(self, at: int, data: bytes) -> None:
        """Write, or with None cut off, at an offset."""
        self.changes.append((at, data))
        self.data = _written(self.data, at, data)

    def truncate(self, size: int) -> None:
        """Cut off."""
        self.changes.append((size, None))
        self.data = _written(self.data, size, None)

    def sync(self) -> None:
        """Make the data durable."""
        self.durable, self.changes = self.data, []

    def after_crash(self, how: Loss) -> bytes:
        """Return the bytes that are left."""
        if how.kind == "keep" or not self.changes:
            return self.data
        if how.kind == "drop":
            return self.durable
        data = self.durable
        for at, change in self.changes[:-1]:
            data = _written(data, at, change)
        at, last = self.changes[-1]
        if last is None:
            return data
        cut = min(len(last), max(1, round(len(last) * how.share)))
        if how.kind == "torn":
            return _written(data, at, last[:cut])
        if how.kind == "hole":
            return _written(data, at, bytes(cut) + last[cut:])
        return _written(data, at, last[:cut] + bytes(len(last) - cut))


class Loss(NamedTuple):
    """What became of data that was not synced.

    Attributes:
        kind: keep, drop, torn (the last write is cut), hole (it begins with NUL bytes), tail (it
            ends with them).
        share: where the cut is.
    """

    kind: str
    share: float = 0.0


LOSSES = (
    *(Loss("keep"), Loss("drop")),
    *(Loss("torn", share) for share in (0.0, 0.2, 0.5, 0.8, 0.999)),
    *(Loss("hole", 0.5), Loss("hole", 1.0), Loss("tail", 0.4)),
)
KEPT_NAMES = (1.0, 0.0, 0.5)


def _apply(names: dict[str, Any], change: dict[str, Any]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _written(data: bytes, at: int, change: bytes | None) -> bytes:
    if change is None:
        return data[:at].ljust(at, b"\0")
    return data[:at].ljust(at, b"\0") + change + data[at + len(change) :]


class Disk:
    """A disk below one folder.

    Args:
        base: that folder; what is in it now is durable.
    """

    def __init__(self, base: Path) -> None:
        self.base = str(base)
        self.root = self._load(base)
        self._open: dict[int, tuple[File, int, bool]] = {}

    def _load(self, path: Path) -> Folder:
        folder = Folder()
        for child in path.iterdir():
            if child.is_symlink():
                folder.durable[child.name] = os.readlink(child)
            elif child.is_dir():
                folder.durable[child.name] = self._load(child)
            else:
                folder.durable[child.name] = File(child.read_bytes())
        folder.names = dict(folder.durable)
        return folder

    def _find(self, path: str) -> tuple[Folder, str] | None:
        """Return the folder and the name of a path; None outside of this disk."""
        if not path.startswith(self.base + "/"):
            return None
        *parents, name = path[len(self.base) + 1 :].split("/")
        folder = self.root
        for parent in parents:
            folder = folder.names[parent]
        return folder, name

    def _folder(self, path: str) -> Folder | None:
        if path == self.base:
            return self.root
        found = self._find(path)
        return found[0].names[found[1]] if found is not None else None

    def do(self, call: Call) -> None:
        """Take a call of the log over."""
        name, args, result = call
        handler = getattr(self, f"_do_{name}", None)
        if handler is not None and not isinstance(result, OSError):
            handler(result, *args)

    def _do_open(self, fd: int, path: str, flags: int, mode: int = 0) -> None:
        folder, name = self._find(path) or (None, "")
        if folder is None or flags & os.O_DIRECTORY:
            return
        node = folder.names.get(name)
        if node is None:
            node = File()
            folder.update({name: node})
        self._open[fd] = (node, 0, bool(flags & os.O_APPEND))

    def _do_write(self, count: int, fd: int, data: bytes) -> None:
        node, at, append = self._open[fd]
        node.write(len(node.data) if append else at, bytes(data[:count]))
        self._open[fd] = (node, at + count, append)

    def _do_truncate(self, _result: None, fd: int, size: int) -> None:
        self._open[fd][0].truncate(size)

    def _do_close(self, _result: None, fd: int) -> None:
        self._open.pop(fd, None)

    def _do_sync_data(self, _result: None, fd: int) -> None:
        self._open[fd][0].sync()

    def _do_sync_dir(self, _result: None, path: str) -> None:
        folder = self._folder(path)
        if folder is not None:
            folder.sync()

    def _do_mkdir(self, _result: None, path: str, mode: int) -> None:
        folder, name = self._find(path) or (None, "")
        if folder is not None:
            folder.update({name: Folder()})

    def _do_rename(self, _result: None, old: str, new: str) -> None:
        (source, before), (target, after) = self._find(old), self._find(new)  # type: ignore[misc]
        assert source is target, "no rename between folders is expected"
        source.update({after: source.names[before], before: None})

    def _do_unlink(self, _result: None, path: str) -> None:
        folder, name = self._find(path)  # type: ignore[misc]
        folder.update({name: None})

    _do_rmdir = _do_unlink

    # ------------------------------------------------------------------ images

    def images(self) -> Iterator[Tree]:
        """Yield what may be on the disk if the machine crashes now."""
        for loss in LOSSES:
            for keep in KEPT_NAMES:
                yield self._image(self.root, loss, keep)

    def _image(self, folder: Folder, loss: Loss, keep: float) -> Tree:
        tree: Tree = {}
        for name, node in folder.after_crash(keep).items():
            if isinstance(node, Folder):
                tree[name] = self._image(node, loss, keep)
            else:
                tree[name] = node.after_crash(loss) if isinstance(node, File) else node
        return tree


def lay_out(tree: Tree, path: Path) -> None:
    """Write an image to a real folder."""
    path.mkdir(mode=0o700)
    for name, node in tree.items():
        if isinstance(node, dict):
            lay_out(node, path / name)
        elif isinstance(node, str):
            (path / name).symlink_to(node)
        else:
            (path / name).write_bytes(node)


def fingerprint(tree: Tree) -> str:
    """Return what tells one image from another: everything but random names."""
    parts = []
    for name in sorted(tree):
        node = tree[name]
        parts.append((name, fingerprint(node) if isinstance(node, dict) else node))
    return repr(parts)
