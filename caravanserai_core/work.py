"""What is written of a run between its beginning and its end: waypoints, entries, remarks.

`run` adds how a run is opened, entered and finished.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai_core import codec, reading
from caravanserai_core.errors import UsageError
from caravanserai_core.meta import check_text, plain_copy
from caravanserai_core.notes import Note, as_note
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from caravanserai_core.compaction import Keep
    from caravanserai_core.journal import Journal
    from caravanserai_core.stores.base import Store

    NoteLike = str | Note | Callable[[Any], str | Note] | None


class Entry(NamedTuple):
    """Fine-grained progress since a waypoint.

    Attributes:
        name: what kind of entry it is; the adapter's own word.
        data: its value, exactly as it was given.
        say: the line it adds to the live note, or None.
        time: when it was written, ISO 8601 in UTC.
        meta: what its adapter noted in its head; `{}` if nothing.
    """

    name: str
    data: Any
    say: str | None
    time: str
    meta: dict[str, Any] = {}  # noqa: RUF012 - never written to


class Work:
    """What can be written of a run that is open; see `Run`.

    Attributes:
        run_id: its name.
        store: where it lives.
    """

    run_id: str
    store: Store
    _journal: Journal

    # -------------------------------------------------------------- waypoints

    def checkpoint(
        self,
        state: object,
        note: NoteLike = None,
        *,
        lane: str = "",
        meta: dict[str, Any] | None = None,
    ) -> int:
        """Write a waypoint: the exact state and a note.

        Args:
            state: any value that `caravanserai_core.codec` can keep exactly.
            note: a text, a `Note`, a function of the state that returns one, or None for a note
                derived from what changed since the waypoint before.
            lane: the line of waypoints it belongs to; "" is the main one.
            meta: a little plain JSON that lists and filters find without reading the state;
                `Waypoint.meta`.

        Returns:
            The waypoint's number. When it returns, a crash of the machine does not lose it.

        Raises:
            UnserialisableState: the state cannot be kept exactly; nothing was written.
            UsageError: `meta` is no plain JSON.
            Conflict: another process wrote a waypoint on this lane in between.
            StoreFailed, StoreBusy, StoreRefused, StaleWriter, JournalDamaged: nothing was
                written, the earlier waypoints stand.
        """
        save = self._save(state, note, lane, meta)
        return self._journal.turns.do(save)  # type: ignore[no-any-return]

    def acheckpoint(
        self,
        state: object,
        note: NoteLike = None,
        *,
        lane: str = "",
        meta: dict[str, Any] | None = None,
    ) -> Coroutine[Any, Any, int]:
        """Write a waypoint from async code; see `checkpoint`.

        The state is encoded and takes its place in the run's queue before this returns, so a
        later change of it does not matter, and cancelling the wait does not undo the save.
        """
        return self._later(self._save(state, note, lane, meta))

    def _save(
        self, state: object, note: NoteLike, lane: str, meta: dict[str, Any] | None
    ) -> Callable[[], int]:
        """Encode a state now; returns what writes it."""
        check_text("a lane", lane)
        noted = None if meta is None else plain_copy(meta)
        prepared = self._journal.prepare(state, lane)
        told = as_note(note, state)
        return lambda: self._journal.checkpoint(prepared, told, lane, noted)

    def repeat(
        self, note: str | Note, *, lane: str = "", meta: dict[str, Any] | None = None
    ) -> int:
        """Write a waypoint with the same state as the lane's newest one: a pause, an error.

        Args:
            note: what happened.
            lane: the line of waypoints it belongs to.
            meta: as in `checkpoint`.

        Returns:
            The waypoint's number, durable.

        Raises:
            UsageError: the lane has no waypoint yet.
            Conflict, StoreFailed, …: as `checkpoint`.
        """
        return self._journal.turns.do(self._repeat(note, lane, meta))  # type: ignore[no-any-return]

    def arepeat(
        self, note: str | Note, *, lane: str = "", meta: dict[str, Any] | None = None
    ) -> Coroutine[Any, Any, int]:
        """Write a waypoint with the same state, from async code; see `repeat`."""
        return self._later(self._repeat(note, lane, meta))

    def _repeat(self, note: object, lane: str, meta: dict[str, Any] | None) -> Callable[[], int]:
        check_text("a lane", lane)
        noted = None if meta is None else plain_copy(meta)
        told = as_note(note, None) if isinstance(note, (str, Note)) else None
        if told is None:
            raise UsageError("a repeated waypoint is told by a text or a Note that says why")
        return lambda: self._journal.repeat(told, lane, noted)

    # -------------------------------------------------------------- between waypoints

    def entry(
        self,
        name: str,
        data: object = None,
        *,
        say: str | None = None,
        lane: str = "",
        meta: dict[str, Any] | None = None,
        durable: bool = True,
    ) -> int:
        """Write down progress since the last waypoint.

        Args:
            name: what kind of entry it is.
            data: any value that can be kept exactly.
            say: a line for the live note, `latest.md`.
            lane: the lane it belongs to.
            meta: a little plain JSON that is found without reading the data; `Entry.meta`.
            durable: wait until a crash of the machine does not lose it. Without, a crash of the
                process does not, and the next durable write of the run makes it durable too.

        Returns:
            The number of its record in the journal.

        Raises:
            UnserialisableState: the data cannot be kept exactly; nothing was written.
            UsageError: `meta` is no plain JSON.
        """
        write = self._entry(name, data, say, lane, meta, durable)
        return self._journal.turns.do(write)  # type: ignore[no-any-return]

    def aentry(
        self,
        name: str,
        data: object = None,
        *,
        say: str | None = None,
        lane: str = "",
        meta: dict[str, Any] | None = None,
        durable: bool = True,
    ) -> Coroutine[Any, Any, int]:
        """Write down progress from async code; see `entry` and `acheckpoint`."""
        return self._later(self._entry(name, data, say, lane, meta, durable))

    def _entry(
        self,
        name: str,
        data: object,
        say: str | None,
        lane: str,
        meta: dict[str, Any] | None,
        durable: bool,
    ) -> Callable[[], int]:
        check_text("the name of an entry", name)
        check_text("a lane", lane)
        fields: dict[str, Any] = {"name": name}
        if say is not None:
            fields["say"] = Note(say).to_json()
        if meta is not None and (noted := plain_copy(meta)):
            fields["meta"] = noted
        encoded = codec.encode(data)
        if encoded.tagged:
            fields["tagged"] = True
        if encoded.shared:
            fields["shared"] = list(encoded.shared)
        body = b'"data":' + encoded.data
        return lambda: self._journal.add("entry", fields, lane=lane, body=body, sync=durable)

    def entries(self, lane: str = "") -> list[Entry]:
        """Return what was written down since the lane's newest waypoint, oldest first."""

        def read() -> list[Entry]:
            found: list[Entry] = []
            state: Any = None
            for record in self._journal.entries(lane):
                head = record.head
                if "name" in head:
                    if head.get("shared") and state is None:
                        chain = reading.newest(self.store, self.run_id, lane) or []
                        number = chain[-1].waypoint if chain else 0
                        state = reading.decode(chain, number, self.store, self.run_id)
                    data = reading.data_of(record, state)
                    meta = head.get("meta") or {}
                    found.append(Entry(head["name"], data, head.get("say"), head["time"], meta))
            return found

        return self._journal.turns.do(read)  # type: ignore[no-any-return]

    def remark(self, text: str) -> None:
        """Say why something was done; it joins the "Decided" part of the next note."""
        if type(text) is not str or not text.strip():
            raise UsageError("a remark is a string of at least one word")
        told = Note(text).to_json()
        self._journal.turns.do(lambda: self._journal.add("entry", {"remark": told}))

    # -------------------------------------------------------------- removing

    def compact(self, keep: Keep) -> int:
        """Remove waypoints and entries for good, with their notes; see `Journal.compact`.

        Args:
            keep: asked for the record of each waypoint and entry; False: it goes. None for an
                entry: it goes with its waypoint.

        Returns:
            How many waypoints were removed.

        Raises:
            RunNotFound: nothing was written of this run yet.
            JournalDamaged, StoreFailed, StoreBusy: nothing was changed.
        """
        return self._journal.turns.do(lambda: self._journal.compact(keep))  # type: ignore[no-any-return]

    def _later(self, work: Callable[[], Any]) -> Coroutine[Any, Any, Any]:
        """Queue `work` now, do it in a worker thread, return what waits for it."""
        turn = self._journal.turns.take(work)
        return wait_for(
            in_thread(lambda: self._journal.turns.finish(turn), few=not self.store.is_far)
        )
