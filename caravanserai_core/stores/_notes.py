"""Notes beside a journal: written, and removed with the waypoints that they tell of."""

from __future__ import annotations

import contextlib
import logging
import re
from typing import TYPE_CHECKING, Final

from caravanserai_core.stores._folder import write_all, write_new, write_over
from caravanserai_core.stores._seam import NEW

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from caravanserai_core.stores._seam import Files
    from caravanserai_core.stores.base import Shown

_log = logging.getLogger("caravanserai")

NOTE: Final = re.compile(r"waypoint-([1-9]\d{0,8})\.md")


def write_notes(files: Files, path: str, shown: Shown) -> None:
    """Write notes beside the journal. They are derived: a failure here fails no append."""
    live, problem = shown.live, None
    if shown.name is not None:
        if live is None:
            live = shown.text
        try:
            _put(files, path, shown.name, shown.text)
        except OSError as error:
            problem = error
    if live is not None:
        try:  # also on a disk that has no room for a further file: this one is there
            write_over(files, path, "latest.md", _utf8(live))
        except OSError as error:
            problem = error
    if problem is not None:
        _not_written(problem)


def write_all_notes(files: Files, path: str, notes: Mapping[str, str]) -> bool:
    """Write several notes, given by name; says whether that succeeded."""
    try:
        for name, text in notes.items():
            _put(files, path, name, text)
    except OSError as error:
        _not_written(error)
        return False
    return True


def _not_written(error: OSError) -> None:
    _log.warning(
        "the note could not be written beside the journal (%s); the next `caravanserai show` "
        "writes it again",
        error.strerror,
    )


def remove_notes(files: Files, path: str, kept: Container[int], newest: int) -> None:
    """Remove the notes of waypoints that are no longer in the journal, and the live note.

    Args:
        files: the system calls.
        path: the run's folder.
        kept: numbers of the waypoints whose notes stay.
        newest: the highest number that was given; a note beyond it tells of a loss and stays.
    """
    for name in files.listdir(path):
        match = NOTE.fullmatch(name)
        if match is None or int(match[1]) in kept or int(match[1]) > newest:
            continue
        with contextlib.suppress(FileNotFoundError):
            files.unlink(f"{path}/{name}")
    # What followed the newest note stands in it word by word, and may be what had to go.
    with contextlib.suppress(FileNotFoundError):
        files.unlink(f"{path}/latest.md")


def _put(files: Files, path: str, name: str, text: str) -> None:
    try:
        fd = files.open(f"{path}/{name}", NEW, 0o600)
    except FileExistsError:
        write_new(files, path, name, _utf8(text))
        return
    try:
        write_all(files, fd, _utf8(text))
    finally:
        files.close(fd)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")
