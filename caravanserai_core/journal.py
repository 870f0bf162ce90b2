"""Writing a run: its waypoints, its entries, and their removal.

There is one `Journal` per run and process, shared by all threads and tasks (`journal_for`). Its
methods run in their turn (`turns`), but for `prepare`, which encodes in the caller's thread.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from caravanserai_core import codec, compaction, delta, likely, reading, retention, secrets, signals
from caravanserai_core.appending import Appending, Moved
from caravanserai_core.derive import derive
from caravanserai_core.errors import CaravanseraiError, StaleWriter, UsageError
from caravanserai_core.known import older, said
from caravanserai_core.lane import SMALL, Lane, Patch, Prepared, Texts, remembering
from caravanserai_core.ledger import MARKS
from caravanserai_core.notes import Note
from caravanserai_core.opening import writer
from caravanserai_core.pending import NOTHING
from caravanserai_core.piece import Piece
from caravanserai_core.quoting import one_line
from caravanserai_core.records import Draft, Record, body_digest, now
from caravanserai_core.redact import redact, redact_fields
from caravanserai_core.stores.base import SELF, Sealed, Shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from caravanserai_core.compaction import Keep
    from caravanserai_core.stores.base import Store, Tail


_log = logging.getLogger("caravanserai")


class Journal(Appending):
    """The journal of one run, as this process knows it and adds to it; see `Known`."""

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
        version, looked = secrets.current().version, likely.policy()
        searched: list[bytes] | None = None
        if head is None or head.searched != version or head.looked != looked:
            before = {}
        elif like is not None:
            searched = delta.long_leaves(like, codec.LONG)

        def build(tree: object, dumps: codec.Dumps) -> delta.Shadow:
            once = remembering(dumps, before, texts)
            if like is None or (isinstance(like, bytes) and len(like) <= SMALL):
                data = once(tree)
                if len(data) <= SMALL:
                    return data
            return delta.shadow(tree, once, codec.expand, like)

        node, tagged, shared = codec.pieces(state, build, searched)
        prepared = Prepared(node, tagged=tagged, shared=shared)
        prepared.searched, prepared.looked = version, looked
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
        number = self._retry(lambda: self._checkpoint(prepared, note, lane, meta, pieces))
        if retention.is_due(self.store.keep, number):
            self._prune()
        return number  # type: ignore[no-any-return]

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
        number = self._retry(lambda: self._repeat(note, lane, meta, pieces))
        if retention.is_due(self.store.keep, number):
            self._prune()
        return number  # type: ignore[no-any-return]

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
        told = note = note.redacted()
        used: list[str] = []
        goal = None if self.goal is None else redact(self.goal)
        pending = NOTHING
        patch, kept = None, prepared.node
        if again is not None:
            patch = again.repeat(self.store.max_chain)
        elif head is not None:
            patch, kept = head.compare(prepared, self.store, self.run_id, self._legacy)
        if patch is not None and secrets.current().among(patch.data):
            # A key or a value of the state before, which was written before it was declared.
            patch, kept = None, prepared.node
        if patch is None:
            self._roll(prepared.size)
        else:
            for piece in pieces:
                piece.refer(patch.ops, lane)
        schema = self.schema.number if again is None else again.schema
        if head is not None and not self._told_schema:
            self._told_schema = older(schema, head, self.run_id)
        stamp = now()
        # The large digest is made here, before the lock is taken.
        body = _body(prepared, patch)
        digest = body_digest(body)

        def seal(tail: Tail | None, news: list[Record] | None) -> Sealed:
            nonlocal told, pending, patch, body, digest, used
            self._check_news(news, lane)
            told = note.with_decided(self._remarks.get(lane, ())).with_goal(goal)
            parent = self._lanes.get(lane)
            if again is not None and parent is not again:
                raise Moved
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
            if schema != 1:
                fields["schema"] = schema
            if meta:
                fields["meta"] = meta
            if again is not None:
                fields["repeats"] = True
            elif lane in self.given:
                used = self.ledger.unused(self.given[lane])
                if used:
                    fields["used"] = used
            number = self._newest + 1
            fields["note"] = told.to_json(goal)
            pending = self.behind([piece.record(0, 0).head for piece in pieces])[1].at_waypoint()
            if pending != NOTHING:
                fields["pending"] = pending.to_json()
            text = ""
            if self._due:
                text = self._render(number, stamp, told, pending)
            if self._ready is None and (not told.plain or "pending" in fields):
                # A plain note is its own text; how sections are laid out may change one day.
                fields["note_sha256"] = hashlib.sha256(text.encode()).hexdigest()
            draft = Draft(
                "waypoint",
                fields,
                by=writer(),
                lane=lane,
                body=body,
                digest=digest,
                time=stamp,
                searched=prepared.searched,
            )
            # With lanes the live note follows the main one.
            live = self._live() if lane and self._due else None
            shown = Shown(f"waypoint-{number}.md", text, live)
            for piece in pieces:
                if piece.lane == lane:
                    piece.quiet()
            behind = None if patch is None else number
            drafts = [*self._placed(pieces, behind), (draft, loc, number)]
            return self._sealed(tail, drafts, shown=shown)

        appended = self._append(seal)
        self._note_pieces(pieces, appended.tail.seq - len(pieces))
        number = self._newest + 1
        if self._ready is not None and not self._due:
            self._ready[number] = (self._run, stamp, told, pending)
        at = (appended.tail.seq, appended.places[-1], appended.tail.sum)
        written = Lane.written(head, patch, number, at, (kept, prepared.size))
        written.tagged, written.shared = prepared.tagged, prepared.shared
        written.texts, written.schema = prepared.texts, schema
        written.time = stamp
        written.searched, written.looked = prepared.searched, prepared.looked
        self._newest, self._lanes[lane] = number, written
        self._remarks.pop(lane, None)
        self.given.get(lane, set()).difference_update(used)
        self._finish = None
        self._pending = pending.told()
        if self._ledger is not None:
            point = {"kind": "waypoint", "seq": appended.tail.seq, "lane": lane, "used": used}
            self._ledger.take(Record(point, None, "", None))
        if lane == "":
            self._shown, self._shown_pending = (number, stamp, told), pending
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
        fields = redact_fields(fields)
        draft = Draft(kind, fields, by=writer(), lane=lane, body=body)
        made = (draft, fields)
        return self._retry(lambda: self._add(kind, lambda: made, lane, sync))  # type: ignore[no-any-return]

    def add_made(
        self,
        kind: str,
        make: Callable[[], tuple[dict[str, Any], bytes]],
        *,
        lane: str = "",
        time: str | None = None,
    ) -> int:
        """Write one record that depends on what others wrote; returns its seq.

        Args:
            kind: its kind.
            make: returns head and body when the journal's end is certain, or raises: then nothing
                is written. May be called more than once.
            lane: the lane it belongs to.
            time: when it happened, ISO 8601 in UTC; None: now.
        """

        def drafted() -> tuple[Draft, dict[str, Any]]:
            fields, body = make()
            fields = redact_fields(fields)
            return Draft(kind, fields, by=writer(), lane=lane, body=body, time=time), fields

        return self._retry(lambda: self._add(kind, drafted, lane, sync=True))  # type: ignore[no-any-return]

    def _add(
        self,
        kind: str,
        make: Callable[[], tuple[Draft, dict[str, Any]]],
        lane: str,
        sync: bool,
    ) -> int:
        record = Record({}, None, "", None)

        self._head(lane)

        def seal(tail: Tail | None, news: list[Record] | None) -> Sealed:
            nonlocal record
            self._check_news(news, lane if kind == "finish" else None)
            draft, fields = make()
            head = {**fields, "kind": kind, "lane": lane, "waypoint": 0, "time": draft.time}
            record = Record(head, draft.body, "", None)
            on = self._lanes.get(lane)
            place = on.place if on is not None else None
            since, pending = self.behind([head])
            shown = None
            if since != self._since or pending != self._pending:
                live = self._live([head], end=self._finish) if self._ready is None else None
                shown = Shown(None, "", live)
            return self._sealed(tail, [(draft, place, self._newest)], shown=shown, pending=pending)

        appended = self._append(seal, sync=sync)
        record.head["waypoint"] = self._newest
        record.head["seq"] = appended.tail.seq
        self._take_in(record)
        self._tail = appended.tail
        if kind in MARKS and self._ready is not None:
            # A person looks for it: it does not wait with the notes of waypoints.
            self.put_notes()
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
            heads = [piece.record(0, 0).head for piece in pieces]
            shown = None
            if any(map(said, heads)):
                live = self._live(heads) if self._ready is None else None
                shown = Shown(None, "", live)
            return self._sealed(tail, self._placed(pieces), shown=shown)

        appended = self._append(seal, sync=sync)
        self._note_pieces(pieces, appended.tail.seq - len(pieces) + 1)
        self._tail = appended.tail

    def _placed(
        self, pieces: Sequence[Piece], point: int | None = None
    ) -> list[tuple[Draft, Any, int]]:
        heads = [self._lanes.get(piece.lane) for piece in pieces]
        return [
            (piece.draft(point), head.place if head is not None else None, self._newest)
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
            self.put_notes()
        done: compaction.Rewritten | None = None

        def seal(tail: Tail | None, news: list[Record] | None) -> Sealed:
            nonlocal done
            self._check_news(news, None)
            opened = compaction.Opened(self._generation + 1, self._run)
            done = compaction.rewrite(self.store, self.run_id, keep, tail, opened)
            return done.sealed

        all_known = self._knows_lanes
        try:
            self.store.replace(self.run_id, self._tail, self.lease.epoch(), seal)
        except StaleWriter:
            self.lease.lost = True
            raise
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

    def _prune(self) -> None:
        """Remove what the store does not keep; the waypoint just written stands in any case."""
        wanted = retention.Rules(self.store.keep)
        try:
            self.compact(retention.Pruning(self.store, self.run_id, wanted))
        except CaravanseraiError as problem:
            _log.warning("run %s was not pruned: %s", one_line(self.run_id), problem)


def _body(prepared: Prepared, patch: Patch | None) -> bytes:
    if patch is None:
        return b'"state":' + delta.joined(prepared.node)
    return b'"patch":' + patch.data


# ---------------------------------------------------------------------- one per process

_MOST_WARM = 64
"""Runs whose newest state is kept for comparing; those not used for longest let go of it."""

# What was seen of a run is kept as long as the process lives: it is what Conflict rests on.
_table: dict[tuple[object, str], Journal] = {}
_warm: OrderedDict[tuple[object, str], Journal] = OrderedDict()
_newest: Journal | None = None
"""The one that was asked for last; it is the last one in `_warm`."""

_table_lock = signals.Lock()


def journal_for(store: Store, run_id: str) -> Journal:
    """Return the process's journal of a run; threads and tasks share it."""
    key = (store.key, run_id)
    journal = _table.get(key)
    if journal is None:
        # Whoever is first makes it, a signal handler in between too.
        journal = _table.setdefault(key, Journal(store, run_id))
    if journal is not _newest:
        _warm_up(key, journal)
    return journal


def _warm_up(key: tuple[object, str], journal: Journal) -> None:
    global _newest
    with _table_lock:
        _newest = _warm[key] = journal
        _warm.move_to_end(key)
        cold = _warm.popitem(last=False)[1] if len(_warm) > _MOST_WARM else None
    if cold is not None:
        cold.turns.if_idle(cold.cool)


def forget(store: Store, run_id: str) -> None:
    """Forget what this process knows of a run, after its deletion."""
    global _newest
    with _table_lock:
        journal = _table.pop((store.key, run_id), None)
        _warm.pop((store.key, run_id), None)
        _newest = None
    if journal is not None:
        journal.turns.do(journal._forget)


def _after_fork() -> None:
    global _table_lock
    _table_lock = signals.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
