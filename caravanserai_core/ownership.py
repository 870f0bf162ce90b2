"""Working on a run as the only process that does: the lease, for the length of a block.

Whatever in this process works on the run meanwhile shares the lease; the last to leave gives it
back. It is given back by every way out of the block, and by the end of the process.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

from caravanserai_core import reading
from caravanserai_core.errors import Conflict, RunBusy
from caravanserai_core.importing import refuse_work
from caravanserai_core.names import folder_name
from caravanserai_core.opening import writer
from caravanserai_core.quoting import one_line
from caravanserai_core.stores.owners import Holder, Lapsed, busy_error
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from caravanserai_core.journal import Journal
    from caravanserai_core.lease import Held
    from caravanserai_core.stores.base import Tail

TAKE_OVER = "CARAVANSERAI_TAKE_OVER"
"""Names the folder of the run that `caravanserai resume --take-over` takes over."""

_MOST_TRIES = 64
"""How often a lease is tried for while others, who hold none, write to the run."""


class Ownership:
    """The lease of a run, in a `with` or `async with` block.

    Args:
        journal: that of the run.
        tail: returns the end of the journal. It is asked again where that is not the end any more.
        takeover: take the run from another living process, if one holds it.
        taken: called when the run was taken over.

    Raises:
        RunBusy: on entering: another process holds it.
    """

    def __init__(
        self,
        journal: Journal,
        tail: Callable[[], Tail | None],
        *,
        takeover: bool = False,
        taken: Callable[[], None] | None = None,
    ) -> None:
        self._journal = journal
        self._tail = tail
        self._takeover = takeover
        self._taken = taken
        self._held: Held | None = None

    def __enter__(self) -> Self:
        try:
            # Signals wait during a turn, so it is known here whether the lease was taken.
            self._journal.turns.do(self._take)
        except BaseException:
            self.give_back()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()

    async def __aenter__(self) -> Self:
        entering = in_thread(self.__enter__)
        try:
            await wait_for(entering)
        except BaseException:
            # A task that is cancelled here would leave behind what the thread takes.
            entering.add_done_callback(self._undo)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.give_back()

    def _take(self) -> None:
        refuse_work(self._journal.run_id)
        lease = self._journal.lease
        for _ in range(_MOST_TRIES):
            known = self._tail()
            try:
                try:
                    self._held = lease.take(known)
                except Lapsed as lapsed:
                    self._take_over(lapsed.holder, lapsed)
            except RunBusy as busy:
                if not self._takeover:
                    raise
                self._take_over(Holder(busy.host, busy.pid, busy.since, 1, ""))
            if self._held is not None:
                return
        raise Conflict(f"run {one_line(self._journal.run_id)} is written by others all the time")

    def _take_over(self, holder: Holder, lapsed: Lapsed | None = None) -> None:
        self._journal.take_over(holder, lapsed)
        self._held = self._journal.lease.take(None)
        if self._taken is not None:
            self._taken()

    def give_back(self) -> None:
        """Leave the block; nothing is to be done a second time."""
        held, self._held = self._held, None
        if held is not None:
            self._journal.lease.give_back(held)

    def _undo(self, entering: Future[Any]) -> None:
        if entering.exception() is None:
            self.give_back()


def owning(journal: Journal, *, takeover: bool = False) -> Ownership:
    """Return the ownership of a run for who does not look at its state first."""

    def tail() -> Tail | None:
        found = reading.recent(journal.store, journal.run_id)
        return None if found is None else found.tail

    return Ownership(journal, tail, takeover=takeover)


def refuse_busy(journal: Journal) -> None:
    """Refuse a run that another process holds, before any work is done on it.

    Raises:
        RunBusy: one does.
    """
    holder = None if journal.lease.held else journal.store.holder(journal.run_id)
    if holder is not None and holder.by != writer():  # another thread may have taken it just now
        raise busy_error(journal.run_id, holder, journal.store.lapses)


def asked_for(run_id: str, *, takeover: bool) -> bool:
    """Say whether a run is to be taken over: by the program, or by who resumed it (once)."""
    if os.environ.get(TAKE_OVER) == folder_name(run_id):
        del os.environ[TAKE_OVER]  # for this start, and for no program that it starts
        return True
    return takeover
