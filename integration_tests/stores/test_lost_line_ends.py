"""A writer that dies between a record and its line end."""

from __future__ import annotations

from pathlib import Path

import pytest

from caravanserai_core.journal import Journal
from caravanserai_core.stores import FileStore
from caravanserai_core.verify import verify


@pytest.mark.parametrize("more", [1, 3])
def test_a_record_without_its_line_end_is_no_damage_to_who_read_it(
    more: int, tmp_path: Path
) -> None:
    """Who knows the journal from before another process wrote the line end goes on."""
    store = FileStore(tmp_path)
    first, second, third = (Journal(store, "run") for _ in range(3))
    for journal in (first, first):
        journal.turns.do(lambda journal=journal: journal.add("entry", {"name": "a"}))
    path = tmp_path / "run" / "journal-1.jsonl"
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    second.turns.do(second.look)
    for _ in range(more):
        third.turns.do(lambda: third.add("entry", {"name": "b"}))

    second.turns.do(lambda: second.add("entry", {"name": "c"}))

    report = verify(store, "run")
    assert not report.damaged
    assert report.records == 2 + 1 + more + 1
