"""Adding to a run's journal: one append, sealed where it really ends, and tried again.

What is in it is `journal`'s business. Here it is settled what a new segment needs in front of it,
when it is durable, what a failed sync takes back, and when the notes beside it are written.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai_core import codec, renderer, signals, survey
from caravanserai_core.durability import Durability
from caravanserai_core.errors import Conflict, JournalDamaged, StaleWriter, StoreFailed
from caravanserai_core.importing import refuse_work
from caravanserai_core.known import DERIVED, Known, Reopen
from caravanserai_core.lease import taken_body
from caravanserai_core.ledger import MARKS, Ledger
from caravanserai_core.notes import Note
from caravanserai_core.opening import legacy_draft, open_body, writer
from caravanserai_core.quoting import one_line
from caravanserai_core.records import FORMAT, Draft
from caravanserai_core.redact import redact
from caravanserai_core.secrets import refuse
from caravanserai_core.stores.base import SELF, Line, Sealed, Shown

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from caravanserai_core.pending import Pending
    from caravanserai_core.records import Record
    from caravanserai_core.stores.base import Appended, Store, Tail
    from caravanserai_core.stores.owners import Holder, Lapsed

_log = logging.getLogger("caravanserai")

_MOST_TRIES = 64
"""How often an append is tried while others replace the journal, or delete the run."""


class Moved(Exception):
    """The head of a lane is no longer the one that was to be repeated."""


class _Safe(NamedTuple):
    """What a journal knew before it wrote records that are not durable yet."""

    tail: Tail
    since: list[str]
    remarks: dict[str, list[str]]
    finish: dict[str, Any] | None
    pending: Pending


class Appending(Known):
    """A run's journal, with what it takes to add to it.

    Attributes:
        last_append: when this process last added to it, by `time.monotonic`.
    """

    def __init__(self, store: Store, run_id: str) -> None:
        # Notes that are ready and not written yet; None: each is written with its record.
        self._ready: dict[int, tuple[str | None, str, Note, Pending]] | None = None
        self._ready_since = 0.0
        self._due = True  # they, and that of the waypoint being written, are written with it
        self.last_append = 0.0
        self._writing = signals.Lock()
        self._durability = Durability()
        super().__init__(store, run_id)

    def _forget(self) -> None:
        super()._forget()
        self._durability.forget()
        # What was known before the first record that is not durable yet.
        self._safe: _Safe | None = None

    # ------------------------------------------------------------------ one append

    def _append(
        self,
        seal: Callable[[Tail | None, list[Record] | None], Sealed],
        *,
        sync: bool = True,
        taking_over: bool = False,
        lapsed: Lapsed | None = None,
    ) -> Appended:
        if self._tail is None:
            refuse("the run_id", self.run_id)  # before a folder of that name is there
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
            if taking_over:
                appended = self.lease.take_over(self._tail, sealed, lapsed)
            else:
                epoch = self.lease.epoch()
                appended = self.store.append(self.run_id, self._tail, epoch, sealed, sync=sync)
        except StaleWriter:
            self.lease.lost = True
            raise
        except StoreFailed:
            self._step_back()
            raise
        self._durability.written(appended.tail.seq - len(appended.places) + 1)
        if appended.durable:
            self._safe = None
            self._durability.reached(appended.tail.seq)
        elif self._safe is None and end is not None:
            remarks = {lane: list(texts) for lane, texts in self._remarks.items()}
            self._safe = _Safe(end, list(self._since), remarks, self._finish, self._pending)
        if end is None or end.rolled:
            self._segment = appended.places[0]
        if self._tail is None:
            self._carried = []
            self._ledger = self._ledger or Ledger()
            where = redact(self.store.where(self.run_id))
            _log.info("run %s is new in %s", one_line(self.run_id), where)
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
        refuse_work(self.run_id)
        if not self._known:
            self._catch_up()
        for _ in range(_MOST_TRIES):
            try:
                return work()
            except Moved:
                continue  # its new head is known now
            except JournalDamaged:
                # What this process builds on went: that is no damage, and maybe a conflict.
                if not self._replaced(since=self._generation):
                    raise
            except Reopen:
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

    def _sealed(
        self,
        tail: Tail | None,
        wanted: list[tuple[Draft, Any, int]],
        *,
        shown: Shown | None = None,
        epoch: int | None = None,
        pending: Pending | None = None,
    ) -> Sealed:
        """Seal an append: what a new segment needs first, then the records themselves.

        Args:
            tail: the end of the journal.
            wanted: the records, where they build on, and their waypoints.
            shown: what a person is to see.
            epoch: the journal's epoch behind it, if this raises it.
            pending: what is not settled behind them, if they change that.
        """
        wanted[-1][0].waits((self._pending if pending is None else pending).waits)
        epoch = epoch or self.lease.after(tail)
        drafts: list[tuple[Draft, Any, int]] = []
        if tail is None or tail.rolled:
            fields: dict[str, Any] = {"format": FORMAT}
            fields |= {"generation": self._generation, "epoch": epoch}
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
                seq=first + index,
                first=first,
                count=len(drafts),
                waypoint=at,
                prev=prev,
                # Another process learns of it from the last record, or from `open`.
                epoch=epoch if index == len(drafts) - 1 else 1,
            )
            lines.append(Line(text, place))
            if tail is None and not index:
                self._run = prev
        return Sealed(
            lines,
            first + len(drafts) - 1,
            prev,
            epoch,
            wanted[-1][0].kind == "roll",
            shown,
        )

    def _open_body(self) -> bytes:
        return open_body(
            self.run_id,
            self.adapter,
            self.goal,
            self._legacy,
            self.framework,
            self.program,
            self.origin,
        )

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
                    carried = (record.data() or {}).get("carried", [])
                    self._carried = [i for i in carried if i["head"]["kind"] not in MARKS]
                elif record.kind not in DERIVED and record.kind not in MARKS:
                    body = (record.body or b"").decode()
                    self._carried.append({"head": record.head, "body": body})
        carried = [*self._carried, *self.ledger.carried()]
        data = codec.encode({"lanes": lanes, "carried": carried}, copied=True)
        return Draft("snapshot", {}, by=writer(), body=b'"data":' + data.data, copied=True)

    def _roll(self, size: int) -> None:
        """Close the segment if a full record of `size` bytes should begin a new one."""
        tail = self._tail
        if tail is None or tail.rolled or not self.store.wants_roll(tail, size):
            return
        # What the new segment carries counts like a state, or many results were copied often.
        if not self.store.wants_roll(tail, size + self.ledger.size):
            return

        def seal(tail: Tail | None, news: list[Record] | None) -> Sealed:
            self._check_news(news, None)
            return self._sealed(tail, [(Draft("roll", {}, by=writer()), None, self._newest)])

        self._tail = self._append(seal).tail

    def take_over(self, holder: Holder, lapsed: Lapsed | None = None) -> None:
        """Take the run from another process, and write down that it was. Runs in its turn.

        Args:
            holder: from whom.
            lapsed: that one is dead or gives no sign of life, and it is taken from nobody else.

        Raises:
            RunBusy: it is no longer that one's.
            StoreFailed, StoreBusy, StoreRefused, JournalDamaged: nothing was written, or see
                `Store.take_over`.
        """
        body = taken_body(holder)

        def seal(tail: Tail | None, news: list[Record] | None) -> Sealed:
            self._check_news(news, None)
            head = self._head("")
            place = head.place if head is not None else None
            ended = (self._finish or {}).get("outcome")
            fields = {"outcome": ended} if ended else {}  # it is still the end of the run
            draft = Draft("lease", fields, by=writer(), body=body)
            epoch = (tail.epoch if tail is not None else 1) + 1
            return self._sealed(tail, [(draft, place, self._newest)], epoch=epoch)

        def work() -> None:
            self._tail = self._append(seal, taking_over=True, lapsed=lapsed).tail

        self._retry(work)

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
        self._tail, self._since, self._remarks, self._finish, self._pending = self._safe
        self._ledger = None
        self._taken, self._safe = self._tail.seq, None

    # ------------------------------------------------------------------ notes that wait

    def defer_notes(self) -> None:
        """Let notes be written a moment after their records, by another thread."""
        if self._ready is None:
            self._ready = {}

    def renew_live(self) -> None:
        """Write the live note again where a killed process did not come to it. Runs in its turn."""
        shown = self.shown_now()
        if shown is None or self._tail is None:
            return
        expected = shown.text if shown.live is None else shown.live
        if self.store.get_note(self.run_id, "latest.md") != expected:
            self.store.put_notes(self.run_id, self._tail, {}, shown)

    def write_notes(self) -> None:
        """Write the notes that are ready; they stay away where the journal is another by now."""
        with self._writing:
            tail, notes, latest = self.turns.do(self._take_notes)
            if tail is not None and latest is not None:
                self.store.put_notes(self.run_id, tail, notes, latest)

    def put_notes(self) -> None:
        """Write the notes that are ready, in a turn of the queue."""
        tail, notes, latest = self._take_notes()
        if tail is not None and latest is not None:
            self.store.put_notes(self.run_id, tail, notes, latest)

    def _take_notes(self) -> tuple[Tail | None, dict[str, str], Shown | None]:
        notes, self._ready = self._rendered(), {}
        return self._tail, notes, self.shown_now()

    def _rendered(self) -> dict[str, str]:
        return {
            f"waypoint-{number}.md": self._render(number, stamp, note, pending)
            for number, (run, stamp, note, pending) in (self._ready or {}).items()
            if run == self._run  # not those of a run of this name that was deleted since
        }
