"""A journal to damage, what each damage may do to it, and an independent judge of both.

Two words are kept apart, as the format does:

torn
    Bytes at the very end that are no whole append, while no note beside the journal says that
    they ever were: an append that was never acknowledged. Readers take it as not there; the next
    writer copies it to `journal-N.damaged-…`, cuts it off and goes on.
damage
    Anything else that is not what was written: a line that is no record with another append
    behind it, a complete last line that is no record, a journal that ends before the newest note
    beside it, a segment that is missing. The newest state is still given where all that it needs
    is whole; otherwise `JournalDamaged` says where. No writer writes over it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from caravanserai_core import api, lane, listing, load, open_run, reading
from caravanserai_core.errors import JournalDamaged, WaypointNotFound
from caravanserai_core.journal import forget
from caravanserai_core.stores import FileStore, _file
from caravanserai_core.verify import verify

RUN = "run"
_LOC = re.compile(rb'(?:,"loc":\d+)?\}$')


class Written(NamedTuple):
    """A run as it was saved.

    Attributes:
        root: its store; nothing in it may be changed.
        states: what was saved at each waypoint.
        segments: the bytes of each segment, by name.
    """

    root: Path
    states: dict[int, Any]
    segments: dict[str, bytes]

    @property
    def newest(self) -> int:
        """Number of the newest waypoint."""
        return max(self.states)

    @property
    def last(self) -> str:
        """Name of the last segment."""
        return max(self.segments)

    def lines(self, name: str) -> list[bytes]:
        """Return the lines of a segment, with their line ends."""
        return self.segments[name].splitlines(keepends=True)


def write_run(root: Path, *, trailing_entry: bool = True) -> Written:
    """Save a run of two segments, with patches, entries, a lane and multi-record appends."""
    states: dict[int, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_file, "SEGMENT_SIZE", 2000)
        patch.setattr(lane, "SMALL", 100)
        patch.setattr(lane, "UNSEEN_SMALL", 100)
        patch.setattr(sys, "orig_argv", ["python", "agent.py"])
        patch.setattr(lane, "PATCH_CHARGE", 100)
        run = open_run(RUN, store=FileStore(root))
        log: list[str] = []
        for step in range(1, 9):
            log = [*log, f"step {step} done"] if step % 4 else ["begun again"]
            state = {"step": step, "text": "x" * 300, "log": log}
            number = run.checkpoint(state, f"finished step {step}")
            states[number] = state
            if step in (2, 6):
                run.entry("tool", {"call": step}, say=f"called tool {step}")
            if step == 3:
                states[run.checkpoint({"side": 1}, "aside", lane="side")] = {"side": 1}
        if trailing_entry:
            run.entry("tool", {"call": "last"})
    folder = root / RUN
    segments = {p.name: p.read_bytes() for p in folder.glob("journal-*.jsonl")}
    forget(FileStore(root), RUN)
    assert sorted(segments) == ["journal-1.jsonl", "journal-2.jsonl"]
    return Written(root, states, segments)


class Case:
    """A copy of a run, to be damaged.

    Args:
        written: the run.
        root: where the copy goes.
    """

    def __init__(self, written: Written, root: Path) -> None:
        self.written = written
        self.root = root
        self.folder = root / RUN
        shutil.copytree(written.root, root, symlinks=True)

    def put(self, name: str, data: bytes | None) -> None:
        """Replace a file of the run, or remove it."""
        path = self.folder / name
        if data is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(data)

    def drop_notes(self, after: int) -> None:
        """Remove the notes of later waypoints: they were never acknowledged."""
        for number in self.written.states:
            if number > after:
                self.put(f"waypoint-{number}.md", None)

    def reset(self) -> None:
        """Make the copy whole again, as a process that never saw it will find it."""
        for name in os.listdir(self.folder):
            if name.startswith("journal-") and name not in self.written.segments:
                self.put(name, None)
        for name, data in self.written.segments.items():
            self.put(name, data)
        for number in self.written.states:
            note = f"waypoint-{number}.md"
            if not (self.folder / note).exists():
                shutil.copy(self.written.root / RUN / note, self.folder / note)
        for number in (max(self.written.states) + 1, max(self.written.states) + 2):
            self.put(f"waypoint-{number}.md", None)
        self.forget()

    def forget(self) -> None:
        """Be a new process: forget what this one knows of the run."""
        forget(FileStore(self.root), RUN)

    def bytes(self) -> dict[str, bytes]:
        """Return every file of the run."""
        found: dict[str, bytes] = {}
        for path in self.folder.iterdir():
            link = path.is_symlink()
            found[path.name] = os.readlink(path).encode() if link else path.read_bytes()
        return found

    # ------------------------------------------------------------------ the judge

    def whole(self) -> set[int]:
        """Return the waypoints whose own chain is whole, judged by the bytes alone.

        A record is whole if the line that was written stands in the same segment, behind what
        it builds on, whatever its hint and line end say.
        """
        found: set[int] = set()
        for name in self.written.segments:
            path = self.folder / name
            if not path.exists():
                continue
            known = {_bare(line.rstrip(b"\n")): parsed(line) for line in self.written.lines(name)}
            here: set[int] = set()
            for line in path.read_bytes().split(b"\n"):
                record = known.get(_bare(line), {"kind": "none"})
                if record["kind"] == "waypoint" and record.get("base") in {None, *here}:
                    here.add(record["waypoint"])
            found |= here
        return found

    def changed(self) -> bool:
        """Say whether more differs from what was written than hints and appends at the end.

        An end without its last appends is what a shorter run looks like.
        """
        found, written = self._lines(self.bytes()), self._lines(self.written.segments)
        return found != written[: len(found)]

    def _lines(self, segments: dict[str, bytes]) -> list[tuple[str, bytes]]:
        return [
            (name, _bare(line))
            for name in sorted(segments)
            if name.startswith("journal-") and segments[name]
            for line in segments[name].removesuffix(b"\n").split(b"\n")
        ]

    # ------------------------------------------------------------------ what must hold

    def examine(self) -> int | JournalDamaged:
        """Read all there is, check that nothing read is wrong, and that nothing was changed.

        Returns:
            The number of the waypoint that `load` gave, or the error it raised.
        """
        before = self.bytes()
        outcome = self._newest()
        self._all(outcome)
        self._each()
        self._verified()
        assert self.bytes() == before, "a reader changed the disk"
        return outcome

    def _newest(self) -> int | JournalDamaged:
        store = FileStore(self.root)
        error: JournalDamaged | None = None
        try:
            state = load(RUN, store=store)
            number = api.get_waypoint(RUN, store=store).number
        except JournalDamaged as found:
            error = found
        if error is not None:
            # Not RunNotFound, ever: waypoint notes lie beside. It says where, and what is whole.
            assert re.fullmatch(r"journal-\d+\.jsonl", Path(error.path).name), error
            assert Path(error.path).parent == self.folder, error
            if error.offset is not None:
                assert 0 <= error.offset <= max(map(len, self.written.segments.values())) + 200
                assert f"at byte {error.offset}" in str(error)
            if error.last_waypoint is not None:
                assert f"up to {error.last_waypoint} is whole" in str(error)
                assert error.last_waypoint in self.written.states
            return error
        assert state == self.written.states[number]
        assert list(state) == list(self.written.states[number])
        return number

    def _all(self, outcome: int | JournalDamaged) -> None:
        """Whoever asks for all waypoints, or for all runs, is told of what is missing, too."""
        store = FileStore(self.root)
        if isinstance(outcome, JournalDamaged):
            with pytest.raises(JournalDamaged):
                reading.waypoints(store, RUN)
            assert [info.folder for info in listing.runs(store)] == [RUN]
            return
        try:
            found = reading.waypoints(store, RUN)
        except JournalDamaged:
            return  # of an earlier part of the journal
        assert max(point.number for point in found if point.lane == "") == outcome

    def _each(self) -> None:
        store = FileStore(self.root)
        whole = self.whole()
        for number, state in self.written.states.items():
            try:
                found = load(RUN, number, store=store)
            except (JournalDamaged, WaypointNotFound):
                found = None
            expected = (state,) if number in whole else (state, None)
            assert found in expected, f"waypoint {number}, whole: {sorted(whole)}"

    def _verified(self) -> None:
        report = verify(FileStore(self.root), RUN)
        if not self.changed():
            return
        findings = [f for f in report.findings if f.level != "note"]
        assert findings, "verify saw nothing"
        assert all(str(self.folder) in finding.where for finding in findings), findings

    def write_on(self) -> int | JournalDamaged:
        """Write a further waypoint as a new process, and check what that did to the disk.

        Returns:
            The new waypoint's number, or the error that refused it.
        """
        before, whole = self.bytes(), self.whole()
        self.forget()
        store = FileStore(self.root)
        state = {"step": "after", "text": "y" * 300}
        try:
            number = api.checkpoint(RUN, state, "went on", store=store)
        except JournalDamaged as error:
            assert self.bytes() == before, "a refused writer changed the disk"
            return error
        after = self.bytes()
        aside = b"".join(data for name, data in after.items() if ".damaged-" in name)
        for name, data in before.items():
            if name.startswith("journal-") and data != after.get(name, b"")[: len(data)]:
                kept = data.removesuffix(aside) if aside else None
                assert aside, f"{name} was overwritten and nothing kept"
                assert kept != data
                assert after[name].startswith(kept), f"{name}: more than the torn tail was cut"
        self.forget()
        assert load(RUN, store=FileStore(self.root)) == state
        for old in whole:
            assert load(RUN, old, store=FileStore(self.root)) == self.written.states[old]
        return number


def _bare(line: bytes) -> bytes:
    """Return a line without what is outside its sum: mark, carriage return, hint."""
    plain, found = _LOC.subn(b"", line.removesuffix(b"\r").removeprefix(b"\xef\xbb\xbf"))
    return plain if found else plain + b" (cut)"


def parsed(line: bytes) -> dict[str, Any]:
    """Return a record's line as JSON."""
    return dict(json.loads(line))
