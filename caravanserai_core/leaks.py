"""Looking for secrets in the files of a store, byte by byte; without files, in its records.

This is the check from outside: it knows nothing of records, and reads every file that is there,
temporary ones and copies of damaged parts too. It finds what was written before a value was
declared, by another release, or by hand.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from caravanserai_core import secrets
from caravanserai_core.names import folder_name
from caravanserai_core.records import Malformed
from caravanserai_core.shapes import shapes
from caravanserai_core.stores import FileStore
from caravanserai_core.stores.base import Bad

if TYPE_CHECKING:
    from collections.abc import Iterator

    from caravanserai_core.stores import Store
    from caravanserai_core.stores.base import Listed

_PIECE: Final = 1 << 20
"""Bytes that are looked at together."""

_OVERLAP: Final = 16 << 10
"""Bytes of the piece before that are looked at again: what lies across the border is in them."""


class Leak(NamedTuple):
    """Where a secret stands.

    Attributes:
        path: the file, relative to the store; words stand for a secret in the path itself.
        offset: byte offset there; None: it is in the path.
        what: `env:NAME` or `name:NAME`; for one that only looks like a secret, its kind.
        declared: whether it is a declared value.
    """

    path: str
    offset: int | None
    what: str
    declared: bool


def leaks(store: Store, run_id: str | None = None) -> Iterator[Leak]:
    """Look for declared values, in all their forms, and for what looks like a secret.

    Args:
        store: where to look: in a folder in all of its files, else in records and notes.
        run_id: the run to look at; None: all that is there.

    Raises:
        OSError: a file cannot be read.
        CaravanseraiError: see `Store.scan`.
    """
    if not isinstance(store, FileStore):
        yield from _in_runs(store, run_id)
        return
    root = Path(store.root)
    tops = [root]
    if run_id is not None:
        # Release 0.2.0 used the run's name as it is, where that is the name of a folder.
        names = dict.fromkeys([folder_name(run_id), run_id])
        tops = [root / name for name in names if name not in (".", "..") and "/" not in name]
    for top in tops:
        for folder, folders, files in os.walk(top, onerror=_raise):
            folders.sort()
            seen: set[str] = set()
            # Beside a writer a segment may come while others are read.
            while news := sorted(set(files) - seen):
                seen.update(news)
                for file in news:
                    yield from _in_file(root, Path(folder, file))
                files = _segments(folder)


def _in_runs(store: Store, run_id: str | None) -> Iterator[Leak]:
    names = [run_id] if run_id is not None else [_name(listed) for listed in store.listing()]
    found = secrets.current()
    for name in names:
        points = []
        for item in store.scan(name, bodies=True):
            if isinstance(item, Bad):
                continue
            if item.kind == "waypoint":
                points.append(item.waypoint)
            text = orjson.dumps(item.head) + (item.body or b"")
            for at, what, declared in _in_bytes(found, text):
                yield Leak(f"{folder_name(name)}, record {item.seq}", at, what, declared)
        for note in (*(f"waypoint-{number}.md" for number in points), "latest.md"):
            text = (store.get_note(name, note) or "").encode("utf-8", "replace")
            for at, what, declared in _in_bytes(found, text):
                yield Leak(f"{folder_name(name)}/{note}", at, what, declared)


def _name(listed: Listed) -> str:
    """Return the exact name of a listed run, or that of its folder where it cannot be read."""
    try:
        data: Any = listed.opening.data() if listed.opening is not None else None
        return str(data["run_id"])
    except (Malformed, KeyError, TypeError, ValueError):
        return listed.folder


def _segments(folder: str) -> list[str]:
    """Return the names of the segments that a folder has now."""
    try:
        return [path.name for path in Path(folder).glob("journal-*")]
    except FileNotFoundError:
        return []


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _in_file(root: Path, path: Path) -> Iterator[Leak]:
    found = secrets.current()
    relative = str(path.relative_to(root))
    secret = found.in_text(relative)
    if secret is not None:
        relative = "[a name that holds a secret]"
        yield Leak(relative, None, secret.source, declared=True)
    told: set[tuple[int, str]] = set()
    try:
        kind = path.lstat().st_mode
        if not stat.S_ISREG(kind):
            return  # a link leads elsewhere; a pipe would be waited for
        opened = path.open("rb")
    except FileNotFoundError:
        return  # a writer or a pruning was at it
    with opened as file:
        start, before = 0, b""
        while piece := file.read(_PIECE):
            data = before + piece
            for at, what, declared in _in_bytes(found, data):
                if (start + at, what) not in told:
                    told.add((start + at, what))
                    yield Leak(relative, start + at, what, declared)
            before = data[-_OVERLAP:]
            start += len(data) - len(before)
            told = {item for item in told if item[0] >= start}


def _in_bytes(found: secrets.Found, data: bytes) -> Iterator[tuple[int, str, bool]]:
    if found.among(data):
        for at, secret in found.places(data):
            yield at, secret.source, True
    # Each byte is one character, so that an index is an offset.
    for at, kind in shapes(data.decode("latin-1")):
        yield at, kind, False
