"""Writing a run: what one process knows of a journal, and how it adds to it.

There is one `Journal` per run and process, shared by all threads and tasks (`journal_for`). Its
methods run in their turn (`turns`), but for `prepare`, which encodes in the caller's thread.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from caravanserai_core import codec, delta, reading, survey
from caravanserai_core.derive import derive
from caravanserai_core.errors import Conflict
from caravanserai_core.lane import SMALL, Lane, Patch, Prepared
from caravanserai_core.notes import Note, render
from caravanserai_core.opening import legacy_draft, open_body, writer
from caravanserai_core.quoting import one_line
from caravanserai_core.records import FORMAT, Draft, Record, body_digest, now
from caravanserai_core.stores.base import SELF, Line, Sealed, Shown
from caravanserai_core.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from caravanserai_core.stores.base import Appended, Recent, Store, Tail

_log = logging.getLogger("caravanserai")

_EPOCH = 1

_LIVE_LINES = 20
"""Most lines of "Since then" in the live note."""

_DERIVED = {"open", "snapshot", "waypoint", "entry", "finish", "roll"}
"""Kinds that a new segment does not carry over: waypoints and what belongs to them stay."""


class _Reopen(Exception):
    """The journal on disk is not the one this process knows."""


class Journal:
    """The journal of one run, as this process knows it.

    Attributes:
        store: where it lives.
        run_id: the run.
        turns: the queue in which all work on it is done.
        adapter: what writes it, for the `open` record of a new run.
        goal: what it is for, likewise.
        observed: the program has read or written this run; a foreign waypoint is then a conflict.
    """

    def __init__(self, store: Store, run_id: str) -> None:
        self.store = store
        self.run_id = run_id
        self.adapter = "python"
        self.goal: str | None = None
        self.turns = Turns()
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
        self._legacy: Any = None
        self._remarks: dict[str, list[str]] = {}
        self._shown: tuple[int, str, Note] = (0, "", Note(""))
        self._since: list[str] = []
        self._finish: dict[str, Any] | None = None
        # By lane: a waypoint that somebody else wrote, and that the program has not looked at.
        self._overtaken: dict[str, Record] = {}
        # Records of other kinds in the last segment; None: it was not read from its beginning.
        self._carried: list[Any] | None = None
        self.observed = False

    # ------------------------------------------------------------------ reading

    def look(self, lane: str = "") -> list[Record] | None:
        """Read the end of the journal and take it as what the program goes on from.

        Returns:
            The chain of the lane's newest waypoint (empty: none yet), or None: no such run.
        """
        found = self._catch_up()
        self._overtaken.clear()
        self.observed = True
        if found is None:
            return None
        head = self._head(lane)
        if head is None or not head.seq:
            return []
        if found.chain and found.chain[-1].seq == head.seq:
            return found.chain
        return self.store.chain(self.run_id, head.number)

    def _catch_up(self) -> Recent | None:
        """Read the end of the journal; lanes that did not move keep what is known of them."""
        found = reading.recent(self.store, self.run_id)
        if found is not None and self._known and found.tail == self._tail:
            return found
        lanes = self._lanes if self._tail is not None else {}
        self._forget()
        self._known = True
        self._legacy = self.store.legacy(self.run_id)
        if found is None:
            self._knows_lanes = True
            if self._legacy is not None:
                self._newest = self._legacy.number
                self._lanes[""] = Lane(self._newest, 0)
            return None
        self._tail = found.tail
        self._opening, self._opened = found.opening.body, found.opening.seq
        first = reading.opening(found.opening)
        self.adapter, self.goal = first.adapter, first.goal
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
        if record.kind not in _DERIVED:
            self._carried = None
        if record.kind == "open":
            self._opened = record.seq
        if record.kind == "waypoint":
            self._lanes[record.lane] = _lane(record)
            self._finish = None
            self._remarks.pop(record.lane, None)
            if record.lane == "":
                note = Note.from_json(record.head.get("note", ""))
                self._shown = (record.waypoint, record.head["time"], note)
                self._since.clear()
        elif record.kind == "finish":
            self._finish = record.head
        elif record.kind == "entry":
            self._finish = None
            remark = record.head.get("remark")
            if isinstance(remark, str):
                self._remarks.setdefault(record.lane, []).append(remark)
        line = _said(record.head)
        if line:
            self._since.append(line)
            # The live note is written anew for each: it shows the last ones.
            del self._since[:-_LIVE_LINES]

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

    # ------------------------------------------------------------------ waypoints

    def prepare(self, state: object, lane: str = "") -> Prepared:
        """Encode a state in the caller's thread; nothing is written.

        Raises:
            UnserialisableState: it cannot be kept exactly; the message names the path.
        """
        head = self._lanes.get(lane)
        like = head.shadow if head is not None else None

        def build(tree: object, dumps: Callable[[object], bytes]) -> delta.Shadow:
            if like is None or (isinstance(like, bytes) and len(like) <= SMALL):
                data = dumps(tree)
                if len(data) <= SMALL:
                    return data
            return delta.shadow(tree, dumps, codec.expand, like)

        node, tagged = codec.pieces(state, build)
        return Prepared(node, tagged=tagged)

    def checkpoint(self, prepared: Prepared, note: Note | None, lane: str = "") -> int:
        """Write a waypoint; returns its number. Runs in its turn of the queue.

        Raises:
            Conflict: somebody else wrote a waypoint on this lane since the program last looked.
            StoreFailed, StoreBusy, StoreRefused, StaleWriter, JournalDamaged: see the store.
        """
        return self._retry(lambda: self._checkpoint(prepared, note, lane))  # type: ignore[no-any-return]

    def _checkpoint(self, prepared: Prepared, note: Note | None, lane: str) -> int:
        head = self._head(lane)
        if note is None:
            before = None if head is None else self._shadow_of(head)
            note = derive(before, prepared.node)
        told = note
        patch, kept = None, prepared.node
        if head is not None:
            patch, kept = head.compare(prepared, self.store, self.run_id, self._legacy)
        if patch is None:
            self._roll(prepared.size)
        time = now()
        # The large digest is made here, before the lock is taken.
        body = _body(prepared, patch)
        digest = body_digest(body)

        def seal(tail: Tail | None, news: list[Record] | None) -> Sealed:
            nonlocal told, patch, body, digest
            self._check_news(news, lane)
            told = note.with_decided(self._remarks.get(lane, ())).with_goal(self.goal)
            parent = self._lanes.get(lane)
            fields: dict[str, Any] = {"parent": parent.number if parent is not None else None}
            full = head.full if head is not None and parent is head else None
            loc: Any = SELF
            reachable = tail is not None and not tail.rolled and full is not None
            if patch is not None and full is not None and reachable and full.seq > self._opened:
                fields["base"], fields["full"] = patch.base, full.seq
                loc = full.place
            elif patch is not None:
                # What it builds on is not in this segment, or no longer the head.
                patch, body = None, _body(prepared, None)
                digest = body_digest(body)
            if prepared.tagged:
                fields["tagged"] = True
            number = self._newest + 1
            text = render(number, time, told)
            fields["note"] = told.to_json()
            if type(fields["note"]) is not str:
                # A plain note is its own text; how sections are laid out may change one day.
                fields["note_sha256"] = hashlib.sha256(text.encode()).hexdigest()
            draft = Draft(
                "waypoint", fields, by=writer(), lane=lane, body=body, digest=digest, time=time
            )
            # With lanes the live note follows the main one.
            shown = Shown(f"waypoint-{number}.md", text, self._live(()) if lane else None)
            return self._sealed(tail, draft, loc, number, shown=shown)

        appended = self._append(seal)
        number = self._newest + 1
        at = (appended.tail.seq, appended.places[-1], appended.tail.sum)
        written = Lane.written(head, patch, number, at, (kept, prepared.size))
        self._newest, self._lanes[lane] = number, written
        self._remarks.pop(lane, None)
        self._finish = None
        if lane == "":
            self._shown = (number, time, told)
            self._since.clear()
        self._tail = appended.tail
        return number

    def _shadow_of(self, head: Lane) -> delta.Shadow | None:
        return head.read_shadow(self.store, self.run_id, self._legacy)

    # ------------------------------------------------------------------ other records

    def add(
        self,
        kind: str,
        fields: dict[str, Any],
        *,
        lane: str = "",
        body: bytes = b"",
    ) -> int:
        """Write one record that is no waypoint; returns its seq. Runs in its turn of the queue.

        Args:
            kind: its kind.
            fields: what goes into its head, JSON values.
            lane: the lane it belongs to.
            body: `"data":…`, or empty.
        """
        return self._retry(lambda: self._add(kind, fields, lane, body))  # type: ignore[no-any-return]

    def _add(self, kind: str, fields: dict[str, Any], lane: str, body: bytes) -> int:
        draft = Draft(kind, fields, by=writer(), lane=lane, body=body)
        record = Record({**fields, "kind": kind, "lane": lane, "waypoint": 0}, None, "", None)

        self._head(lane)

        def seal(tail: Tail | None, news: list[Record] | None) -> Sealed:
            self._check_news(news, lane if kind == "finish" else None)
            head = self._lanes.get(lane)
            place = head.place if head is not None else None
            line = _said({**record.head, "time": draft.time})
            shown = Shown(None, "", self._live((line,))) if line else None
            return self._sealed(tail, draft, place, self._newest, shown=shown)

        appended = self._append(seal)
        record.head["waypoint"] = self._newest
        record.head["seq"] = appended.tail.seq
        record.head["time"] = draft.time
        self._take_in(record)
        self._tail = appended.tail
        return appended.tail.seq

    # ------------------------------------------------------------------ sealing

    def _append(self, seal: Callable[[Tail | None, list[Record] | None], Sealed]) -> Appended:
        appended = self.store.append(self.run_id, self._tail, _EPOCH, seal)
        if self._tail is None:
            self._carried = []
            _log.info("run %s is new in %s", one_line(self.run_id), self.store.where(self.run_id))
        self._opening = self._opening or self._open_body()
        self.observed = True
        return appended  # the caller notes the tail last: until then all of it would be news

    def _retry(self, work: Callable[[], Any]) -> Any:
        if not self._known:
            self._catch_up()
        for _ in range(8):
            try:
                return work()
            except _Reopen:
                if self.observed and not self._landed():
                    # What is known is kept: refused until the program looks.
                    raise Conflict(
                        f"run {self._named()} is no longer the one this process knows: it was "
                        "deleted, or begun by somebody else. Nothing was written. load() it to go "
                        "on from what is there, or use another run_id."
                    ) from None
                observed = self.observed
                self._catch_up()
                self.observed = observed
        raise Conflict(f"run {one_line(self.run_id)} is deleted and begun again all the time")

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
            raise _Reopen
        for record in news:
            if record.kind == "waypoint" and record.by != writer() and self.observed:
                self._overtaken[record.lane] = record
            self._take_in(record)
        other = self._overtaken.get(lane) if lane is not None else None
        if other is not None:
            raise Conflict(
                f"run {self._named()}: another process wrote waypoint {other.waypoint} at "
                f"{other.head['time'][:19]} since this one last looked. Nothing was written. "
                "load() the run to go on from there, or use another run_id."
            )

    def _sealed(
        self,
        tail: Tail | None,
        draft: Draft,
        loc: Any,
        number: int,
        *,
        shown: Shown | None = None,
    ) -> Sealed:
        """Seal an append: what a new segment needs first, then the record itself."""
        drafts: list[tuple[Draft, Any, int]] = []
        if tail is None or tail.rolled:
            fields = {"format": FORMAT, "generation": 1, "epoch": _EPOCH}
            body = self._opening or self._open_body()
            before = self._newest if tail is not None else 0
            drafts.append((Draft("open", fields, by=writer(), body=body), None, before))
            if tail is not None:
                drafts.append((self._snapshot(), None, before))
            elif self._legacy is not None:
                drafts.append((legacy_draft(self._legacy), SELF, self._legacy.number))
        drafts.append((draft, loc, number))
        first = tail.seq + 1 if tail is not None else 1
        if len(drafts) > 1:
            self._opened = first
        prev = tail.sum if tail is not None else ""
        lines: list[Line] = []
        for index, (item, place, at) in enumerate(drafts):
            text, prev = item.seal(
                seq=first + index, first=first, count=len(drafts), waypoint=at, prev=prev
            )
            lines.append(Line(text, place))
        return Sealed(
            lines,
            first + len(drafts) - 1,
            prev,
            _EPOCH,
            draft.kind == "roll",
            shown,
        )

    def shown_now(self) -> Shown | None:
        """Return what should lie beside the journal for the newest main waypoint, or None."""
        number, time, note = self._shown
        if self._tail is None or not number:
            return None
        live = self._live(()) if self._since else None
        return Shown(f"waypoint-{number}.md", render(number, time, note), live)

    def _live(self, more: tuple[str, ...]) -> str:
        return render(*self._shown, since=(*self._since, *more)[-_LIVE_LINES:])

    def _open_body(self) -> bytes:
        return open_body(self.run_id, self.adapter, self.goal, self._legacy)

    def _snapshot(self) -> Draft:
        """Carry into a new segment what is still alive in the old one.

        Records of kinds that this version does not know are carried as they are, so that an
        older version may write to a run without losing what a newer one put there.
        """
        lanes = {name: [lane.number, lane.seq] for name, lane in self._lanes.items()}
        if self._carried is None:
            self._carried = []
            for record in survey.records(self.store, self.run_id, bodies=True):
                if record.kind == "snapshot":
                    self._carried = list((record.data() or {}).get("carried", []))
                elif record.kind not in _DERIVED:
                    body = (record.body or b"").decode()
                    self._carried.append({"head": record.head, "body": body})
        data = codec.encode({"lanes": lanes, "carried": self._carried})
        return Draft("snapshot", {}, by=writer(), body=b'"data":' + data.data)

    def _roll(self, size: int) -> None:
        """Close the segment if a full record of `size` bytes should begin a new one."""
        tail = self._tail
        if tail is None or tail.rolled or not self.store.wants_roll(tail, size):
            return

        def seal(tail: Tail | None, news: list[Record] | None) -> Sealed:
            self._check_news(news, None)
            return self._sealed(tail, Draft("roll", {}, by=writer()), None, self._newest)

        self._tail = self._append(seal).tail

    def cool(self) -> None:
        """Let go of the states kept for comparing; what was seen of the run is kept."""
        for lane in self._lanes.values():
            lane.cool()


def _lane(record: Record) -> Lane:
    return Lane(record.waypoint, record.seq, record.place, record.sum)


def _body(prepared: Prepared, patch: Patch | None) -> bytes:
    if patch is None:
        return b'"state":' + delta.joined(prepared.node)
    return b'"patch":' + patch.data


def _said(head: dict[str, Any]) -> str | None:
    """Return the line that a record adds to the live note, or None."""
    if head["kind"] != "finish":
        say = head.get("say")
        return say if isinstance(say, str) else None
    at = f"{head['time'][11:19]} UTC"
    if head.get("outcome") == "failed":
        return f"the run failed at {at}: {head.get('error', '')}. Start it again to go on."
    return f"the run finished at {at}."


# ---------------------------------------------------------------------- one per process

_MOST_WARM = 64
"""Runs whose newest state is kept for comparing; those not used for longest let go of it."""

# What was seen of a run is kept as long as the process lives: it is what Conflict rests on.
_table: dict[tuple[object, str], Journal] = {}
_warm: OrderedDict[tuple[object, str], Journal] = OrderedDict()
_table_lock = threading.Lock()


def journal_for(store: Store, run_id: str) -> Journal:
    """Return the process's journal of a run; threads and tasks share it."""
    key = (store.key, run_id)
    with _table_lock:
        journal = _table.get(key)
        if journal is None:
            journal = _table[key] = Journal(store, run_id)
        _warm[key] = journal
        _warm.move_to_end(key)
        cold = _warm.popitem(last=False)[1] if len(_warm) > _MOST_WARM else None
    if cold is not None:
        cold.turns.if_idle(cold.cool)
    return journal


def forget(store: Store, run_id: str) -> None:
    """Forget what this process knows of a run, after its deletion."""
    with _table_lock:
        journal = _table.pop((store.key, run_id), None)
        _warm.pop((store.key, run_id), None)
    if journal is not None:
        journal.turns.do(journal._forget)


def _after_fork() -> None:
    global _table_lock
    _table_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
