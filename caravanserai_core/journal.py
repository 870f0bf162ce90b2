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
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai_core import codec, compaction, delta, reading, renderer, survey
from caravanserai_core.derive import derive
from caravanserai_core.durability import Durability
from caravanserai_core.errors import Conflict, JournalDamaged, StoreFailed, UsageError
from caravanserai_core.lane import SMALL, Lane, Patch, Prepared, Texts, remembering
from caravanserai_core.notes import Note, foot, render
from caravanserai_core.opening import legacy_draft, open_body, writer
from caravanserai_core.piece import Piece
from caravanserai_core.quoting import one_line
from caravanserai_core.records import FORMAT, Draft, Record, body_digest, now
from caravanserai_core.stores.base import SELF, Line, Sealed, Shown
from caravanserai_core.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from caravanserai_core.compaction import Heads, Keep
    from caravanserai_core.stores.base import Appended, Recent, Store, Tail

_log = logging.getLogger("caravanserai")

_EPOCH = 1

_MOST_TRIES = 64
"""How often an append is tried while others replace the journal, or delete the run."""

_LIVE_LINES = 20
"""Most lines of "Since then" in the live note."""

_DERIVED = {"open", "snapshot", "waypoint", "entry", "finish", "roll", "removed"}
"""Kinds that a new segment does not carry over: waypoints and what belongs to them stay."""


class _Reopen(Exception):
    """The journal on disk is not the one this process knows."""


class _Moved(Exception):
    """The head of a lane is no longer the one that was to be repeated."""


class _Safe(NamedTuple):
    """What a journal knew before it wrote records that are not durable yet."""

    tail: Tail
    since: list[str]
    remarks: dict[str, list[str]]
    finish: dict[str, Any] | None


class Journal:
    """The journal of one run, as this process knows it.

    Attributes:
        store: where it lives.
        run_id: the run.
        turns: the queue in which all work on it is done.
        adapter: what writes it, for the `open` record of a new run.
        goal: what it is for, likewise.
        framework: name and version of the adapter's framework, likewise.
        observed: the program has read or written this run; a foreign waypoint is then a conflict.
    """

    def __init__(self, store: Store, run_id: str) -> None:
        self.store = store
        self.run_id = run_id
        self.adapter = "python"
        self.goal: str | None = None
        self.framework: str | None = None
        self.turns = Turns()
        # Notes that are ready and not written yet; None: each is written with its record.
        self._ready: dict[int, tuple[str, Note]] | None = None
        self._ready_since = 0.0
        self._due = True  # they, and that of the waypoint being written, are written with it
        self.last_append = 0.0
        self._writing = threading.Lock()
        self._durability = Durability()
        self._forget()

    def _forget(self) -> None:
        self._known = False
        self._tail: Tail | None = None
        self._durability.forget()
        # What was known before the first record that is not durable yet.
        self._safe: _Safe | None = None
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
        self._run = compaction.identity(found.opening)
        self._generation = compaction.generation(found.opening)
        first = reading.opening(found.opening)
        self.adapter, self.goal, self.framework = first.adapter, first.goal, first.framework
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
        before = head.texts if head is not None else {}
        texts: Texts = {}

        def build(tree: object, dumps: Callable[[object], bytes]) -> delta.Shadow:
            once = remembering(dumps, before, texts)
            if like is None or (isinstance(like, bytes) and len(like) <= SMALL):
                data = once(tree)
                if len(data) <= SMALL:
                    return data
            return delta.shadow(tree, once, codec.expand, like)

        node, tagged, shared = codec.pieces(state, build)
        prepared = Prepared(node, tagged=tagged, shared=shared)
        prepared.texts = texts
        return prepared

    def checkpoint(
        self,
        prepared: Prepared,
        note: Note | None,
        lane: str = "",
        meta: dict[str, Any] | None = None,
        pieces: Sequence[Piece] = (),
    ) -> int:
        """Write a waypoint; returns its number. Runs in its turn of the queue.

        Args:
            prepared: its state.
            note: its note, or None for one derived from what changed.
            lane: the lane it belongs to.
            meta: what stands in its head under this name, plain JSON (`meta.plain_copy`).
            pieces: entries that stand in front of it, in the same append.

        Raises:
            Conflict: somebody else wrote a waypoint on this lane since the program last looked.
            StoreFailed, StoreBusy, StoreRefused, StaleWriter, JournalDamaged: see the store.
        """
        return self._retry(lambda: self._checkpoint(prepared, note, lane, meta, pieces))  # type: ignore[no-any-return]

    def repeat(
        self,
        note: Note,
        lane: str = "",
        meta: dict[str, Any] | None = None,
        pieces: Sequence[Piece] = (),
    ) -> int:
        """Write a waypoint with the state of the lane's newest one; returns its number.

        Raises:
            UsageError: the lane has no waypoint.
            Conflict, StoreFailed, …: as `checkpoint`.
        """
        return self._retry(lambda: self._repeat(note, lane, meta, pieces))  # type: ignore[no-any-return]

    def _repeat(
        self, note: Note, lane: str, meta: dict[str, Any] | None, pieces: Sequence[Piece]
    ) -> int:
        head = self._head(lane)
        shadow = None if head is None else self._shadow_of(head)
        if head is None or shadow is None:
            raise UsageError(
                f"run {self._named()} has no waypoint whose state a further one could repeat"
            )
        prepared = Prepared(shadow, tagged=head.tagged, shared=head.shared)
        return self._checkpoint(prepared, note, lane, meta, pieces, again=head)

    def _checkpoint(
        self,
        prepared: Prepared,
        note: Note | None,
        lane: str,
        meta: dict[str, Any] | None,
        pieces: Sequence[Piece],
        again: Lane | None = None,
    ) -> int:
        head = again or self._head(lane)
        if note is None:
            before = None if head is None else self._shadow_of(head)
            note = derive(before, prepared.node)
        told = note
        patch, kept = None, prepared.node
        if again is not None:
            patch = again.repeat(self.store.max_chain)
        elif head is not None:
            patch, kept = head.compare(prepared, self.store, self.run_id, self._legacy)
        if patch is None:
            self._roll(prepared.size)
        stamp = now()
        # The large digest is made here, before the lock is taken.
        body = _body(prepared, patch)
        digest = body_digest(body)

        def seal(tail: Tail | None, news: list[Record] | None) -> Sealed:
            nonlocal told, patch, body, digest
            self._check_news(news, lane)
            told = note.with_decided(self._remarks.get(lane, ())).with_goal(self.goal)
            parent = self._lanes.get(lane)
            if again is not None and parent is not again:
                raise _Moved
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
            if prepared.shared:
                fields["shared"] = list(prepared.shared)
            if meta:
                fields["meta"] = meta
            number = self._newest + 1
            fields["note"] = told.to_json()
            text = ""
            if self._due:
                text = render(number, stamp, told, foot=self._foot(number))
            if self._ready is None and type(fields["note"]) is not str:
                # A plain note is its own text; how sections are laid out may change one day.
                fields["note_sha256"] = hashlib.sha256(text.encode()).hexdigest()
            draft = Draft(
                "waypoint", fields, by=writer(), lane=lane, body=body, digest=digest, time=stamp
            )
            # With lanes the live note follows the main one.
            live = self._live(()) if lane and self._due else None
            shown = Shown(f"waypoint-{number}.md", text, live)
            for piece in pieces:
                if piece.lane == lane:
                    piece.quiet()
            drafts = [*self._placed(pieces), (draft, loc, number)]
            return self._sealed(tail, drafts, shown=shown)

        appended = self._append(seal)
        self._note_pieces(pieces, appended.tail.seq - len(pieces))
        number = self._newest + 1
        if self._ready is not None and not self._due:
            self._ready[number] = (stamp, told)
        at = (appended.tail.seq, appended.places[-1], appended.tail.sum)
        written = Lane.written(head, patch, number, at, (kept, prepared.size))
        written.tagged, written.shared = prepared.tagged, prepared.shared
        written.texts = prepared.texts
        written.time = stamp
        self._newest, self._lanes[lane] = number, written
        self._remarks.pop(lane, None)
        self._finish = None
        if lane == "":
            self._shown = (number, stamp, told)
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
        sync: bool = True,
    ) -> int:
        """Write one record that is no waypoint; returns its seq. Runs in its turn of the queue.

        Args:
            kind: its kind.
            fields: what goes into its head, JSON values.
            lane: the lane it belongs to.
            body: `"data":…`, or empty.
            sync: wait until it is durable; else see `wait_durable` and `sync`.
        """
        return self._retry(lambda: self._add(kind, fields, lane, body, sync))  # type: ignore[no-any-return]

    def _add(self, kind: str, fields: dict[str, Any], lane: str, body: bytes, sync: bool) -> int:
        draft = Draft(kind, fields, by=writer(), lane=lane, body=body)
        record = Record({**fields, "kind": kind, "lane": lane, "waypoint": 0}, None, "", None)

        self._head(lane)

        def seal(tail: Tail | None, news: list[Record] | None) -> Sealed:
            self._check_news(news, lane if kind == "finish" else None)
            head = self._lanes.get(lane)
            place = head.place if head is not None else None
            line = _said({**record.head, "time": draft.time})
            shown = None
            if line:
                shown = Shown(None, "", self._live((line,)) if self._ready is None else None)
            return self._sealed(tail, [(draft, place, self._newest)], shown=shown)

        appended = self._append(seal, sync=sync)
        record.head["waypoint"] = self._newest
        record.head["seq"] = appended.tail.seq
        record.head["time"] = draft.time
        self._take_in(record)
        self._tail = appended.tail
        return appended.tail.seq

    def add_pieces(self, pieces: Sequence[Piece], *, sync: bool) -> None:
        """Write entries in one append. Runs in its turn of the queue.

        Args:
            pieces: the entries, in order; each is told its seq.
            sync: wait until they are durable; else see `wait_durable` and `sync`.
        """
        self._retry(lambda: self._add_pieces(pieces, sync))

    def _add_pieces(self, pieces: Sequence[Piece], sync: bool) -> None:
        for piece in pieces:
            self._head(piece.lane)

        def seal(tail: Tail | None, news: list[Record] | None) -> Sealed:
            self._check_news(news, None)
            lines = [line for piece in pieces if (line := _said(piece.record(0, 0).head))]
            shown = None
            if lines:
                live = self._live(tuple(lines)) if self._ready is None else None
                shown = Shown(None, "", live)
            return self._sealed(tail, self._placed(pieces), shown=shown)

        appended = self._append(seal, sync=sync)
        self._note_pieces(pieces, appended.tail.seq - len(pieces) + 1)
        self._tail = appended.tail

    def _placed(self, pieces: Sequence[Piece]) -> list[tuple[Draft, Any, int]]:
        heads = [self._lanes.get(piece.lane) for piece in pieces]
        return [
            (piece.draft(), head.place if head is not None else None, self._newest)
            for piece, head in zip(pieces, heads, strict=True)
        ]

    def _note_pieces(self, pieces: Sequence[Piece], first: int) -> None:
        for seq, piece in enumerate(pieces, first):
            piece.seq = seq
            self._take_in(piece.record(seq, self._newest))

    # ------------------------------------------------------------------ removing

    def compact(self, keep: Keep) -> int:
        """Write the journal anew without what `keep` leaves out. Runs in its turn of the queue.

        All else stays: the run's beginning, results, records of kinds that are not known here.
        Numbers of waypoints stay as they are and are never given again; every waypoint that is
        kept loads.

        Args:
            keep: asked for the record of each waypoint and entry, in order, with its body;
                False: it goes. None for an entry: it goes with its waypoint. May be asked again.

        Returns:
            How many waypoints were removed.

        Raises:
            RunNotFound: there is no such run.
            JournalDamaged: the journal is damaged somewhere; nothing was changed.
            StoreFailed, StoreBusy, StoreRefused, StaleWriter: see the store.
        """
        return self._retry(lambda: self._compact(keep))  # type: ignore[no-any-return]

    def _compact(self, keep: Keep) -> int:
        if self._tail is None:
            raise reading.not_found(self.store, self.run_id)
        if self._ready is not None:
            # Later ones would bring back notes of what is removed now.
            tail, notes, latest = self._take_notes()
            if tail is not None and latest is not None:
                self.store.put_notes(self.run_id, tail, notes, latest)
        done: compaction.Rewritten | None = None

        def seal(tail: Tail | None, news: list[Record] | None) -> Sealed:
            nonlocal done
            self._check_news(news, None)
            opened = compaction.Opened(self._generation + 1, self._run)
            done = compaction.rewrite(self.store, self.run_id, keep, tail, opened)
            return done.sealed

        all_known = self._knows_lanes
        self.store.replace(self.run_id, self._tail, _EPOCH, seal)
        assert done is not None, "the store replaced a journal and did not ask for the new one"
        before = set(self._lanes)
        heads = {name: at for name, at in done.heads.items() if all_known or name in before}
        self._read_again(heads, all_known=all_known)
        if self._tail is not None:
            self._durability.reached(self._tail.seq)
            shown = self.shown_now()
            if shown is not None:
                self.store.put_notes(self.run_id, self._tail, {}, shown)
        return done.removed

    # ------------------------------------------------------------------ durable or not yet

    @property
    def durable(self) -> int:
        """Seq of the last record that this process knows to be durable."""
        return self._durability.seq

    def watch(self, changed: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `changed`, from whatever thread, when more became durable; see `wait_durable`."""
        return self._durability.watch(changed)

    def wait_durable(self, seq: int, seconds: float) -> bool:
        """Wait until a record that was written without `sync` is durable by somebody's sync.

        Runs outside of the run's turns: who syncs needs them.

        Args:
            seq: what `add` returned.
            seconds: how long to wait at most.

        Returns:
            Whether it is durable. If not, `sync` makes it so.

        Raises:
            StoreFailed: a failed sync may have taken it.
        """
        return self._durability.wait(seq, seconds)

    def sync(self, seq: int | None = None) -> None:
        """Make all that this process wrote durable. Runs in its turn of the queue.

        Args:
            seq: a record that is to be among it, as `add` returned it.

        Raises:
            StoreFailed: the disk did not keep it, now or in an earlier sync.
        """
        if seq is not None:
            self._durability.check(seq)
        tail = self._tail
        if tail is None or self._durability.seq >= tail.seq:
            return
        try:
            self.store.sync(self.run_id, tail)
        except StoreFailed:
            self._step_back()
            raise
        self._safe = None
        self._durability.reached(tail.seq)

    def _step_back(self) -> None:
        """Go back to what is durable: the rest may be gone. What is still there comes as news."""
        if self._safe is None or self._tail is None:
            return
        self._durability.lost(self._tail.seq)
        self._tail, self._since, self._remarks, self._finish = self._safe
        self._taken, self._safe = self._tail.seq, None

    # ------------------------------------------------------------------ sealing

    def _append(
        self,
        seal: Callable[[Tail | None, list[Record] | None], Sealed],
        *,
        sync: bool = True,
    ) -> Appended:
        end: Tail | None = None
        ready: Shown | None = None
        written: dict[str, str] | None = None
        at = monotonic()
        self._due = self._ready is None or (
            bool(self._ready) and at - self._ready_since > renderer.GATHER
        )

        def sealed(tail: Tail | None, news: list[Record] | None) -> Sealed:
            nonlocal end, ready, written
            end = tail
            made = seal(tail, news)
            if self._ready is None:
                return made
            ready = made.shown
            if self._due and ready is not None and ready.name is not None:
                written = self._rendered()
                return made._replace(notes=written)
            return made._replace(shown=None)

        try:
            appended = self.store.append(self.run_id, self._tail, _EPOCH, sealed, sync=sync)
        except StoreFailed:
            self._step_back()
            raise
        if appended.durable:
            self._safe = None
            self._durability.reached(appended.tail.seq)
        else:
            self._durability.written(appended.tail.seq)
            if self._safe is None and end is not None:
                remarks = {lane: list(texts) for lane, texts in self._remarks.items()}
                self._safe = _Safe(end, list(self._since), remarks, self._finish)
        if self._tail is None:
            self._carried = []
            _log.info("run %s is new in %s", one_line(self.run_id), self.store.where(self.run_id))
        self._opening = self._opening or self._open_body()
        self.observed = True
        self.last_append = at
        if written is not None:
            self._ready = {}
        elif ready is not None and self._ready is not None:
            if not self._ready:
                self._ready_since = at
            renderer.later(self)
        return appended  # the caller notes the tail last: until then all of it would be news

    def _retry(self, work: Callable[[], Any]) -> Any:
        if not self._known:
            self._catch_up()
        for _ in range(_MOST_TRIES):
            try:
                return work()
            except _Moved:
                continue  # its new head is known now
            except JournalDamaged:
                # What this process builds on went: that is no damage, and maybe a conflict.
                if not self._replaced(since=self._generation):
                    raise
            except _Reopen:
                if self._replaced():
                    continue
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
        raise Conflict(f"run {one_line(self.run_id)} is replaced or begun again all the time")

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
            raise _Reopen
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

    def _sealed(
        self,
        tail: Tail | None,
        wanted: list[tuple[Draft, Any, int]],
        *,
        shown: Shown | None = None,
    ) -> Sealed:
        """Seal an append: what a new segment needs first, then the records themselves."""
        drafts: list[tuple[Draft, Any, int]] = []
        if tail is None or tail.rolled:
            fields: dict[str, Any] = {"format": FORMAT}
            fields |= {"generation": self._generation, "epoch": _EPOCH}
            if tail is not None and self._run is not None:
                fields["run"] = self._run
            body = self._opening or self._open_body()
            before = self._newest if tail is not None else 0
            drafts.append((Draft("open", fields, by=writer(), body=body), None, before))
            if tail is not None:
                drafts.append((self._snapshot(), None, before))
            elif self._legacy is not None:
                drafts.append((legacy_draft(self._legacy), SELF, self._legacy.number))
            self._opened = tail.seq + 1 if tail is not None else 1
        drafts += wanted
        first = tail.seq + 1 if tail is not None else 1
        prev = tail.sum if tail is not None else ""
        lines: list[Line] = []
        for index, (item, place, at) in enumerate(drafts):
            text, prev = item.seal(
                seq=first + index, first=first, count=len(drafts), waypoint=at, prev=prev
            )
            lines.append(Line(text, place))
            if tail is None and not index:
                self._run = prev
        return Sealed(
            lines,
            first + len(drafts) - 1,
            prev,
            _EPOCH,
            wanted[-1][0].kind == "roll",
            shown,
        )

    def shown_now(self) -> Shown | None:
        """Return what should lie beside the journal for the newest main waypoint, or None."""
        number, time, note = self._shown
        if self._tail is None or not number:
            return None
        live = self._live(()) if self._since else None
        text = render(number, time, note, foot=self._foot(number))
        return Shown(f"waypoint-{number}.md", text, live)

    def defer_notes(self) -> None:
        """Let notes be written a moment after their records, by another thread."""
        if self._ready is None:
            self._ready = {}

    def write_notes(self) -> None:
        """Write the notes that are ready; they stay away where the journal is another by now."""
        with self._writing:
            tail, notes, latest = self.turns.do(self._take_notes)
            if tail is not None and latest is not None:
                self.store.put_notes(self.run_id, tail, notes, latest)

    def _take_notes(self) -> tuple[Tail | None, dict[str, str], Shown | None]:
        notes, self._ready = self._rendered(), {}
        return self._tail, notes, self.shown_now()

    def _rendered(self) -> dict[str, str]:
        return {
            f"waypoint-{number}.md": render(number, stamp, note, foot=self._foot(number))
            for number, (stamp, note) in (self._ready or {}).items()
        }

    def _live(self, more: tuple[str, ...]) -> str:
        since = (*self._since, *more)[-_LIVE_LINES:]
        return render(*self._shown, since=since, foot=self._foot(self._shown[0]))

    def _open_body(self) -> bytes:
        return open_body(self.run_id, self.adapter, self.goal, self._legacy, self.framework)

    def _foot(self, number: int) -> str | None:
        return foot(self.run_id, self.framework, number)

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
            return self._sealed(tail, [(Draft("roll", {}, by=writer()), None, self._newest)])

        self._tail = self._append(seal).tail

    def cool(self) -> None:
        """Let go of the states kept for comparing; what was seen of the run is kept."""
        for lane in self._lanes.values():
            lane.cool()


def _lane(record: Record) -> Lane:
    lane = Lane(record.waypoint, record.seq, record.place, record.sum)
    lane.time = record.head["time"]
    return lane


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
