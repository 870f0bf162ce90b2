"""What one process knows of a run's journal, and how it learns what others wrote.

Nothing here writes. `appending` is how a process adds to the journal, `journal` is what it adds;
each of the three classes builds on the one before, so that a save reaches all of it directly.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from caravanserai_core import compaction, reading, survey
from caravanserai_core.errors import Conflict
from caravanserai_core.lane import Lane
from caravanserai_core.lease import Lease
from caravanserai_core.ledger import MARKS, Ledger
from caravanserai_core.notes import Note, Place, foot, render
from caravanserai_core.opening import writer
from caravanserai_core.pending import NOTHING, Pending, from_json, lines_after, said_of, went, when
from caravanserai_core.quoting import one_line
from caravanserai_core.redact import redact, redact_fields
from caravanserai_core.schema import FIRST, schema_of
from caravanserai_core.stores.base import Shown
from caravanserai_core.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from caravanserai_core.compaction import Heads
    from caravanserai_core.records import Record
    from caravanserai_core.stores.base import Recent, Store, Tail

_log = logging.getLogger("caravanserai")

_LIVE_LINES = 20
"""Most lines of "Since then" in the live note, but for steps that have no result yet."""

_EARLIER = re.compile(r"(\d+) more came before these; `caravanserai log` has them\.")

DERIVED = {"open", "snapshot", "waypoint", "entry", "finish", "lease", "roll", "removed"}
"""Kinds that a new segment does not carry over: waypoints and what belongs to them stay, and the
epoch that a lease began stands in its `open`."""


class Reopen(Exception):
    """The journal on disk is not the one this process knows."""


class Known:
    """A run's journal, as this process knows it.

    Attributes:
        store: where it lives.
        run_id: the run.
        turns: the queue in which all work on it is done.
        lease: what this process has of the run's lease.
        adapter: what writes it, for the `open` record of a new run.
        goal: what it is for, likewise.
        framework: name and version of the adapter's framework, likewise.
        program: the function that the program runs, `module:name`, likewise.
        origin: the run that it goes on from, likewise.
        schema: what the program declared of its states.
        observed: the program has read or written this run; a foreign waypoint is then a conflict.
        given: by lane, the ids of questions whose answers the program has got; its next waypoint
            there uses them up.
        waited: ids of the questions that the program was told to wait for.
    """

    def __init__(self, store: Store, run_id: str) -> None:
        self.store = store
        self.run_id = run_id
        self.adapter = "python"
        self.goal: str | None = None
        self.framework: str | None = None
        self.program: str | None = None
        self.origin: dict[str, Any] | None = None
        self.schema = FIRST
        self._told_schema = False
        self.turns = Turns()
        self.lease = Lease(store, run_id)
        self.given: dict[str, set[str]] = {}
        self.waited: set[str] = set()
        self._forget()

    def _forget(self) -> None:
        self._known = False
        self._tail: Tail | None = None
        self._newest = 0
        self._taken = 0
        self._lanes: dict[str, Lane] = {}
        self._knows_lanes = False
        # The `open` record of the last segment: its body, to repeat in the next, and its seq.
        self._opening: bytes | None = None
        self._opened = 0
        # What tells this run from another of its name, and how often its journal was replaced.
        self._run: str | None = None
        self._generation = 1
        self._legacy: Any = None
        self._remarks: dict[str, list[str]] = {}
        self._shown: tuple[int, str, Note] = (0, "", Note(""))
        self._since: list[str] = []
        # What is not settled now, and what was not at the waypoint that is shown.
        self._pending: Pending = NOTHING
        self._shown_pending: Pending = NOTHING
        # Results and answers; None: not read yet. And where the last segment begins.
        self._ledger: Ledger | None = None
        self._segment: Any = None
        self._finish: dict[str, Any] | None = None
        # By lane: a waypoint that somebody else wrote, and that the program has not looked at;
        # None where somebody else removed what it last saw.
        self._overtaken: dict[str, Record | None] = {}
        # Records of other kinds in the last segment; None: it was not read from its beginning.
        self._carried: list[Any] | None = None
        self.observed = False

    # ------------------------------------------------------------------ reading

    def look(self, lane: str = "") -> list[Record] | None:
        """Read the end of the journal and take it as what the program goes on from.

        Returns:
            The chain of the lane's newest waypoint (empty: none yet), or None: no such run.
        """
        found = self.look_at(lane)
        return None if found is None else found[0]

    def look_at(self, lane: str) -> tuple[list[Record], list[Record] | None] | None:
        """Look, as `look` does.

        Returns:
            The chain, and the records after it or None where they were not read; None: no run.
        """
        found = self._catch_up()
        self._overtaken.clear()
        self.observed = True
        self.lease.looked()
        if found is None:
            return None
        head = self._head(lane)
        if head is None or not head.seq:
            return [], []
        if found.chain and found.chain[-1].seq == head.seq:
            return found.chain, found.since
        return self.store.chain(self.run_id, head.number), None

    def _catch_up(self) -> Recent | None:
        """Read the end of the journal; lanes that did not move keep what is known of them."""
        found = reading.recent(self.store, self.run_id)
        if found is not None and self._known and found.tail == self._tail:
            return found
        lanes = self._lanes if self._tail is not None else {}
        run = self._run
        self._forget()
        self._known = True
        self._legacy = self.store.legacy(self.run_id)
        if found is None:
            self.origin = None
            self._knows_lanes = True
            if self._legacy is not None:
                self._newest = self._legacy.number
                self._lanes[""] = Lane(self._newest, 0)
            return None
        self._tail = found.tail
        self._opening, self._opened = found.opening.body, found.opening.seq
        self._segment = found.opening.place
        self._run = compaction.identity(found.opening)
        if run != self._run:
            self.given.clear()  # those of another run of this name
        self._generation = compaction.generation(found.opening)
        first = reading.opening(found.opening)
        self.adapter, self.goal, self.framework = first.adapter, first.goal, first.framework
        self.origin = first.origin
        if found.chain and found.chain[-1].lane == "":
            self._take_in(found.chain[-1])
            for record in found.since:
                self._take_in(record)
        else:
            for record in survey.records(self.store, self.run_id, bodies=False):
                self._take_in(record)
            self._knows_lanes = True
        for name, lane in self._lanes.items():
            before = lanes.get(name)
            if before is not None and before.sum == lane.sum != "":
                self._lanes[name] = before
        return found

    def _head(self, lane: str) -> Lane | None:
        """Return the head of a lane; the end of a journal alone does not tell all of them."""
        if lane not in self._lanes and not self._knows_lanes:
            heads: dict[str, Lane] = {}
            for record in survey.records(self.store, self.run_id, bodies=False):
                if record.kind == "waypoint":
                    heads[record.lane] = _lane(record)
            self._lanes = {**heads, **self._lanes}
            self._knows_lanes = True
        return self._lanes.get(lane)

    def _take_in(self, record: Record) -> None:
        """Note what a record on disk means for the next one, once."""
        if record.seq <= self._taken:
            return  # the news of an append that failed come again with the next one
        self._taken = record.seq
        self._newest = max(self._newest, record.waypoint)
        if record.kind not in DERIVED and record.kind not in MARKS:
            self._carried = None
        if record.kind == "open":
            self._opened, self._segment = record.seq, record.place
        if self._ledger is not None:
            self._ledger.take(record)
            if not self._ledger.whole:
                self._ledger = None  # what the news hold no bodies of is read again
        # What is shown and written again of it may hold what was declared a secret since.
        head = redact_fields(record.head)
        since, pending = self.behind([head])
        if record.kind == "waypoint":
            self._lanes[record.lane] = _lane(record)
            self._finish = None
            self._remarks.pop(record.lane, None)
            if record.lane == "":
                goal = None if self.goal is None else redact(self.goal)
                note = Note.from_json(head.get("note", "")).with_goal(goal)
                self._shown = (record.waypoint, record.head["time"], note)
                self._shown_pending = from_json(record.head.get("pending"))
        elif record.kind == "finish":
            self._finish = head
        elif record.kind in ("entry", "answer"):
            if record.kind == "entry":
                self._finish = None
            remark = head.get("remark")
            if isinstance(remark, str):
                self._remarks.setdefault(record.lane, []).append(remark)
        self._since, self._pending = since, pending

    def behind(self, heads: Iterable[dict[str, Any]]) -> tuple[list[str], Pending]:
        """Return the lines of "Since then" and what is not settled, behind further records."""
        since, pending = self._since, self._pending
        for head in heads:
            main = head["kind"] == "waypoint" and not head.get("lane")
            since = [] if main else lines_after(since, pending, head)
            line = said(head)
            pending = pending.after(head)
            if line:
                since = _shortened([*since, line], pending)
        return since, pending

    @property
    def ledger(self) -> Ledger:
        """The run's steps and questions, read when they are first asked for; in a turn."""
        if not self._known:
            self._catch_up()
        if self._ledger is None:
            if self._tail is None:
                self._ledger = Ledger()
            else:
                self._ledger = Ledger.read(self.store, self.run_id, self._segment)
        return self._ledger

    @property
    def tail(self) -> Tail | None:
        """The end of the journal, as this process knows it."""
        return self._tail

    @property
    def pending(self) -> Pending:
        """What is not settled, as of the last look."""
        return self._pending

    @property
    def exists(self) -> bool:
        """Whether the run has a journal, or a folder of release 0.2.0."""
        return self._tail is not None or self._legacy is not None

    @property
    def legacy(self) -> Any:
        """What release 0.2.0 left, where no journal has taken it over yet."""
        return self._legacy if self._tail is None else None

    @property
    def outcome(self) -> dict[str, Any] | None:
        """Head of the `finish` record, if nothing came after it."""
        return self._finish

    def number(self, lane: str = "") -> int:
        """Number of the lane's newest waypoint, or 0."""
        head = self._head(lane)
        return head.number if head is not None else 0

    def entries(self, lane: str = "") -> list[Record]:
        """Read the entries of a lane since its newest waypoint, with bodies."""
        found = reading.recent(self.store, self.run_id)
        if found is None:
            return []
        if found.chain and found.chain[-1].lane == lane:
            return [r for r in found.since if r.kind == "entry" and r.lane == lane]
        entries: list[Record] = []
        for record in survey.records(self.store, self.run_id, bodies=True):
            if record.lane != lane:
                continue
            if record.kind == "waypoint":
                entries.clear()
            elif record.kind == "entry":
                entries.append(record)
        return entries

    # ------------------------------------------------------------------ what others did

    def _replaced(self, since: int = 0) -> bool:
        """Say whether it is the same run all the same, in another journal; then read that.

        Args:
            since: the generation that is no other journal.
        """
        if self._tail is None or self._run is None:
            return False
        found = reading.recent(self.store, self.run_id)
        if found is None or compaction.identity(found.opening) != self._run:
            return False
        if compaction.generation(found.opening) == since:
            return False
        heads = {name: (lane.number, lane.time) for name, lane in self._lanes.items()}
        self._read_again(heads, all_known=self._knows_lanes)
        return True

    def _read_again(self, heads: Heads, *, all_known: bool) -> None:
        """Read the journal that took the place of the one this process knew.

        A lane whose head is not the one that it knew was written or cut by somebody else, and is
        a conflict as it would have been before.

        Args:
            heads: number and time of the newest waypoint of each lane, as this process knows it.
            all_known: whether the run has no other lanes that it might have known.
        """
        observed, overtaken = self.observed, self._overtaken
        self._known = False
        self._catch_up()
        self.observed, self._overtaken = observed, overtaken
        if not observed:
            return
        newest: dict[str, Record] = {}
        for record in survey.records(self.store, self.run_id, bodies=False):
            if record.kind == "waypoint":
                newest[record.lane] = record
        for lane in {*heads, *newest} if all_known else heads:
            found, (number, at) = newest.get(lane), heads.get(lane, (0, ""))
            if found is None or found.waypoint < number:
                if number:
                    overtaken[lane] = None
            elif found.by != writer() and (found.waypoint, found.head["time"]) != (number, at):
                overtaken[lane] = found

    def _landed(self) -> bool:
        """Say whether the journal begins with a first append of this process that ^C cut short."""
        if self._tail is not None:
            return False
        found = reading.recent(self.store, self.run_id)
        return found is not None and found.last.by == writer()

    def _named(self) -> str:
        return f"{one_line(self.run_id)} in {self.store.where(self.run_id)}"

    def _check_news(self, news: list[Record] | None, lane: str | None) -> None:
        """Take in what others wrote since; refuse where it is a waypoint of `lane`."""
        if news is None:
            raise Reopen
        for record in news:
            if record.kind == "waypoint" and record.by != writer() and self.observed:
                self._overtaken[record.lane] = record
            self._take_in(record)
        if lane is None or lane not in self._overtaken:
            return
        other = self._overtaken[lane]
        did = (
            f"wrote waypoint {other.waypoint} at {other.head['time'][:19]}"
            if other is not None
            else "removed the newest waypoint"
        )
        raise Conflict(
            f"run {self._named()}: another process {did} since this one last looked. Nothing was "
            "written. load() the run to go on from there, or use another run_id."
        )

    # ------------------------------------------------------------------ beside the journal

    def shown_now(self) -> Shown | None:
        """Return what should lie beside the journal for the newest main waypoint, or None."""
        number, time, note = self._shown
        if self._tail is None:
            return None
        if not number:
            begun = self._since or self._pending != NOTHING
            return Shown(None, "", self._live(end=self._finish)) if begun else None
        then = self._shown_pending
        open_ = self._since or self._pending != then.told()
        live = self._live(end=self._finish) if open_ else None
        text = self._render(number, time, note, then)
        return Shown(f"waypoint-{number}.md", text, live)

    def _live(
        self, heads: Sequence[dict[str, Any]] = (), *, end: dict[str, Any] | None = None
    ) -> str:
        """Render the live note as it is behind further records, and the run's end, if that is."""
        since, pending = self.behind(heads)
        for head in heads:
            end = {"finish": head, "entry": None}.get(head["kind"], end)
        failed = bool(end and end.get("outcome") == "failed")
        ended = bool(end and end.get("outcome") == "finished")
        moved = bool(since) and not ended
        return self._render(*self._shown, pending, tuple(since), failed=failed, moved=moved)

    def _render(
        self,
        number: int,
        time: str,
        note: Note,
        pending: Pending = NOTHING,
        since: tuple[str, ...] = (),
        *,
        failed: bool = False,
        moved: bool = False,
    ) -> str:
        at = Place(self.run_id, pending)
        end = foot(self.run_id, self.framework, number, open_=failed or pending.open)
        return render(number, time, note, since=since, foot=end, at=at, moved=moved)

    # ------------------------------------------------------------------ letting go

    def cool(self) -> None:
        """Let go of the states kept for comparing; what was seen of the run is kept."""
        for lane in self._lanes.values():
            lane.cool()


def _shortened(lines: list[str], pending: Pending) -> list[str]:
    """Leave out the oldest line where there are too many: the live note is written anew for each.

    What began and has no result yet stays, and how many are left out is said.
    """
    if len(lines) <= _LIVE_LINES:
        return lines
    before = _EARLIER.fullmatch(lines[0])
    count = int(before[1]) if before else 0
    own = lines[1:] if before else lines
    waited = {went(effect) for effect in pending.effects}
    kept = list(own)
    for line in own:
        if len(kept) <= _LIVE_LINES:
            break
        if line not in waited:
            kept.remove(line)
            count += 1
    return (
        [f"{count} more came before these; `caravanserai log` has them.", *kept] if count else kept
    )


def _lane(record: Record) -> Lane:
    lane = Lane(record.waypoint, record.seq, record.place, record.sum)
    lane.time = record.head["time"]
    lane.schema = schema_of(record.head)
    return lane


def older(schema: int, head: Lane, run_id: str) -> bool:
    """Warn of a state that takes the schema of its run back; returns whether it does.

    Args:
        schema: that of the state to be written.
        head: the newest waypoint of its lane.
        run_id: the run.
    """
    if schema >= head.schema:
        return False
    _log.warning(
        "run %s: its newest state has schema %d, and this process saves one as schema %d, as it "
        "declared no other. Declare it where the run is opened or loaded: schema=%d, migrations=…",
        one_line(run_id),
        head.schema,
        schema,
        head.schema,
    )
    return True


def said(head: dict[str, Any]) -> str | None:
    """Return the line that a record adds to the live note, or None."""
    if head["kind"] in MARKS:
        return said_of(head)
    if head["kind"] != "finish":
        say = head.get("say")
        return say if isinstance(say, str) else None
    if head.get("outcome") == "failed":
        at = when(head["time"])
        if head.get("stopped"):
            return f"a person's answer ended the run at {at}: {head.get('error', '')}"
        advice = head.get("advice", "Start it again to go on.")
        return f"the run failed at {at}: {head.get('error', '')}. {advice}"
    finished = f"the run finished at {head['time'][11:19]} UTC."
    ignored = head.get("unanswered")
    if not isinstance(ignored, list) or not ignored:
        return finished
    names, were = ", ".join(map(str, ignored)), "was" if len(ignored) == 1 else "were"
    return f"{finished} {names} {were} never answered; the program went on."
