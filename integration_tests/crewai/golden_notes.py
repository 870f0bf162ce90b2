"""Notes of real runs, compared with those that are part of the review."""

from __future__ import annotations

import os
import re
from importlib.metadata import version
from pathlib import Path

from integration_tests.notes.linter import lint


def notes_in(folder: Path) -> dict[str, str]:
    """Return the notes of a run by file, without what no two runs share."""
    found = {}
    for path in sorted(folder.glob("*.md")):
        note = path.read_text(encoding="utf-8")
        note = note.replace(f"CrewAI {version('crewai')}", "CrewAI VERSION")
        note = re.sub(r"\d{4}-\d\d-\d\d(?=[T ])", "2026-08-20", note)
        note = re.sub(r"\d\d:\d\d:\d\d", "22:41:03", note)
        note = re.sub(r"\b\d+(\.\d)? s\b", "0.1 s", note)
        note = re.sub(r"process \d+ on [^),\s]+", "process 4121 on build-7", note)
        found[path.name] = note
    return found


def check(folder: Path, written: dict[str, str]) -> None:
    """Compare notes with the golden ones in a folder, or write them with WRITE_GOLDEN_NOTES=1."""
    if os.environ.get("WRITE_GOLDEN_NOTES"):
        folder.mkdir(parents=True, exist_ok=True)
        for file, note in written.items():
            (folder / file).write_text(note, encoding="utf-8")
    expected = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    assert written == expected
    for note in written.values():
        assert lint(note) == []
