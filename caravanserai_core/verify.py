"""Checking a run from its first byte to its last, and writing its notes again.

`verify` reads everything: every line, every sum, the chain from record to record, every patch,
every note beside the journal. It changes nothing. `renew_notes` puts back notes that are missing
and the live note where it is stale; it never touches a note that somebody edited.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai_core import codec, patching, reading, referring, survey
from caravanserai_core.errors import CaravanseraiError, JournalDamaged, NewerFormat
from caravanserai_core.journal import Journal
from caravanserai_core.notes import recorded
from caravanserai_core.records import Malformed, Record
from caravanserai_core.redact import redact
from caravanserai_core.stores.base import Bad, Shown

if TYPE_CHECKING:
    from caravanserai_core.stores.base import Store

_log = logging.getLogger("caravanserai")


class Finding(NamedTuple):
    """Something that is not as it was written.

    Attributes:
        level: "damage" (the journal is not what was written), "torn" (an append that was never
            acknowledged; the next writer sets it aside), "edited" (changed by hand, and read all
            the same), "note" (a note beside the journal is missing or differs).
        where: the file, or the run's name.
        offset: byte offset there, or None.
        waypoint: the waypoint concerned, or the last whole one before it; 0 for none.
        what: a sentence.
    """

    level: str
    where: str
    offset: int | None
    waypoint: int
    what: str


class Report(NamedTuple):
    """What `verify` found.

    Attributes:
        run_id: the run.
        records: how many whole records it has.
        waypoints: how many of them are waypoints.
        findings: what is not as it was written; empty if all is well.
    """

    run_id: str
    records: int
    waypoints: int
    findings: list[Finding]

    @property
    def damaged(self) -> bool:
        """Whether the journal is damaged; edits and notes are not damage."""
        return any(finding.level == "damage" for finding in self.findings)


def verify(store: Store, run_id: str) -> Report:
    """Check a run completely. Nothing is changed.

    Raises:
        RunNotFound: there is no such run.
    """
    check = _Check(store, run_id)
    for item in survey.survey(store, run_id, bodies=True):
        check.item(item)
    try:
        exists = store.recent(run_id) is not None
    except (JournalDamaged, NewerFormat) as error:
        exists = True
        if not check.damaged:
            check.find("damage", str(error), getattr(error, "offset", None))
    if not exists and not check.records and store.legacy(run_id) is None:
        raise reading.not_found(store, run_id)
    return Report(run_id, check.records, check.waypoints, check.findings)


class _Check:
    """The state of one pass over a journal."""

    def __init__(self, store: Store, run_id: str) -> None:
        self.store = store
        self.run_id = run_id
        self.records = 0
        self.waypoints = 0
        self.findings: list[Finding] = []
        self._where = store.where(run_id)
        self._last = 0
        self._framework: str | None = None
        self._goal: str | None = None
        # By lane: the waypoints since its full record, and the newest state.
        self._trees: dict[str, tuple[set[int], Any]] = {}

    @property
    def damaged(self) -> bool:
        return any(finding.level == "damage" for finding in self.findings)

    def find(self, level: str, what: str, offset: int | None = None, where: str = "") -> None:
        self.findings.append(Finding(level, where or self._where, offset, self._last, what))

    def item(self, item: Record | Bad) -> None:
        if isinstance(item, Record):
            self._record(item)
        elif item.complete:
            self.find("damage", item.why, item.offset, item.path)
        else:
            size = f"{item.size} bytes" if item.size else "an append"
            what = f"{size} at the end, never acknowledged: {item.why}"
            self.find("torn", what, item.offset, item.path)

    def _record(self, record: Record) -> None:
        self.records += 1
        where, offset = self.store.place_of(self.run_id, record)
        if record.edited:
            what = f"record {record.seq} has a byte order mark or a CRLF line end"
            self.find("edited", what, offset, where)
        if self.records == 1 and not _begins(record):
            what = f"it begins with record {record.seq}, and does not say what was removed before"
            self.find("damage", what, offset, where)
        try:
            if record.kind == "open":
                opening = reading.opening(record, self.run_id)
                self._framework, self._goal = opening.framework, opening.goal
                self._trees.clear()
            elif record.kind == "waypoint":
                self._waypoint(record)
            elif referring.refers(record):
                raise Malformed(f"waypoint {record.head['in']} does not hold what it refers to")
            elif record.body:
                record.data()
        except NewerFormat as error:
            self.find("damage", str(error), offset, where)
        except (Malformed, JournalDamaged, ValueError, KeyError, TypeError) as error:
            what = f"record {record.seq} (waypoint {record.waypoint}): {error}"
            self.find("damage", what, offset, where)

    def _waypoint(self, record: Record) -> None:
        self._last = record.waypoint
        self.waypoints += 1
        lane = record.lane
        if record.full:
            tree = codec.parse(record.member("state"))
            self._trees[lane] = ({record.waypoint}, tree)
        else:
            numbers, tree = self._trees.get(lane, (set(), None))
            if record.head["base"] not in numbers:
                raise Malformed(f"it builds on waypoint {record.head['base']}, which is not there")
            patch: Any = codec.parse(record.member("patch"))
            on_parent = record.head["base"] == record.head.get("parent")
            if on_parent or all(op["op"] == "replace" for op in patch):
                # Replacements on an older base repeat what was replaced since: they may go on
                # top of it, which spares reading the base again for each of thousands.
                tree = patching.apply(tree, patch)
            else:
                chain = self.store.chain(self.run_id, record.waypoint)
                tree = reading.rebuild(chain, record.waypoint)
            numbers.add(record.waypoint)
            self._trees[lane] = (numbers, tree)
        self._note(record)

    def _note(self, record: Record) -> None:
        name = f"waypoint-{record.waypoint}.md"
        text = self.store.get_note(self.run_id, name)
        expected = recorded(record.head, self.run_id, self._framework, self._goal)
        if text is None:
            self.find("note", f"{name} is missing; `caravanserai show` writes it again")
        elif text in (expected, redact(expected)) or _taken_over(self.store, self.run_id, record):
            return
        elif _unfinished(text, expected):
            self.find("note", f"{name} is unfinished; `caravanserai show` writes it again")
        else:
            self.find("note", f"{name} was edited by hand; the journal has the note as it was")


def _unfinished(text: str, expected: str) -> bool:
    """Say whether a note is what a process left that was killed while it wrote it."""
    return len(text) < len(expected) and expected.startswith(text)


def _begins(record: Record) -> bool:
    """Say whether a journal may begin with a record: the first one, or one behind an anchor."""
    if record.seq == 1:
        return True
    anchor = record.head.get("anchor")
    found = (anchor.get("seq"), anchor.get("sum")) if isinstance(anchor, dict) else None
    return found == (record.seq - 1, record.head["prev"])


def _taken_over(store: Store, run_id: str, record: Record) -> bool:
    """Say whether the note beside this waypoint is one that release 0.2.0 wrote."""
    old = store.legacy(run_id)
    return old is not None and record.waypoint <= old.number


def renew_notes(store: Store, run_id: str) -> None:
    """Write notes again that are missing or unfinished, and the live note if it is stale.

    Never raises for a store that cannot be written, or a journal that cannot be read.
    """
    try:
        journal = Journal(store, run_id)
        journal.turns.do(journal.look)
        shown = journal.shown_now()
        if shown is None:
            return
        expected = shown.text if shown.live is None else shown.live
        stale = store.get_note(run_id, "latest.md") != expected
        for record in survey.records(store, run_id, bodies=False):
            if record.kind == "waypoint":
                name = f"waypoint-{record.waypoint}.md"
                text = redact(recorded(record.head, run_id, journal.framework, journal.goal))
                there = store.get_note(run_id, name)
                gone = there is None or _unfinished(there, text)
                if gone and not _taken_over(store, run_id, record):
                    store.put_note(run_id, Shown(name, text, expected))
                    stale = True
        if stale:
            store.put_note(run_id, shown)
    except (CaravanseraiError, OSError) as error:
        _log.debug("the notes of run %s were not renewed: %s", run_id, error)
