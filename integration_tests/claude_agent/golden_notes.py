"""Notes of real sessions, compared with those that are part of the review."""

from __future__ import annotations

import os
import re
from difflib import unified_diff
from importlib.metadata import version
from pathlib import Path

from integration_tests.claude_agent.life import Life
from integration_tests.notes.linter import lint

_SESSION = "6f0c2e0e-0b6b-5d0b-9f0e-3c1a2b7d4e55"


def notes_in(life: Life) -> dict[str, str]:
    """Return the notes of a run by file, without what no two runs share."""
    found = {}
    for path in sorted((life.folder / ".caravanserai" / life.run_id).glob("*.md")):
        note = path.read_text(encoding="utf-8").replace(str(life.folder), "/srv/billing")
        note = note.replace(life.run_id, "billing")
        note = note.replace(version("claude-agent-sdk"), "VERSION")
        note = re.sub(r"\d{4}-\d\d-\d\d(?=[T ])", "2026-08-20", note)
        note = re.sub(r"\d\d:\d\d:\d\d", "22:41:03", note)
        note = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", _SESSION, note)
        note = re.sub(r"from [\d,]+ to [\d,]+ tokens", "from 95,000 to 2,700 tokens", note)
        note = re.sub(r"\$\d+\.\d\d", "$0.09", note)
        note = re.sub(r"/[0-9a-f]{16}`", "/0123456789abcdef`", note)
        note = re.sub(r"process \d+ on [^),\s]+", "process 4121 on build-7", note)
        note = re.sub(r"(Did it happen\?`: \w+, by) \S+", r"\1 dana", note)
        found[path.name] = note
    return found


def check(folder: Path, written: dict[str, str]) -> None:
    """Compare notes with the golden ones in a folder, or write them with WRITE_GOLDEN_NOTES=1."""
    if os.environ.get("WRITE_GOLDEN_NOTES"):
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob("*.md"):
            path.unlink()
        for file, note in written.items():
            (folder / file).write_text(note, encoding="utf-8")
    expected = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    for file, note in written.items():
        old = expected.get(file, "")
        assert note == old, "\n".join(unified_diff(old.split("\n"), note.split("\n"), file))
        assert lint(note) == []
    assert written.keys() == expected.keys()
