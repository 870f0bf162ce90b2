"""Tests of leases: one owner at a time, and who takes a run over fences who had it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from caravanserai_core.errors import RunBusy, StaleWriter
from caravanserai_core.stores.owners import Holder
from caravanserai_core.testing._base import Hooks, end, raises, refuse
from caravanserai_core.testing._writer import HandWriter

if TYPE_CHECKING:
    from caravanserai_core.stores.base import Store


class LeaseTests(Hooks):
    """What `hold`, `take_over` and `holder` promise, as far as one process can tell."""

    def test_a_run_is_held_by_one_at_a_time(self, store: Store) -> None:
        """The second is told who the first is; after its release the run is free at once."""
        writer = HandWriter(store)
        writer.append(writer.state())
        assert store.holder("run") is None

        hold = store.hold("run", writer.known, me("first"))
        assert hold is not None
        assert store.holder("run") == self.reopen(store).holder("run") == me("first")
        with raises(RunBusy) as busy:
            self.reopen(store).hold("run", writer.known, me("second"))
        assert (busy.value.pid, busy.value.host) == (os.getpid(), "here")
        assert (busy.value.since, busy.value.run_id) == (me("first").since, "run")

        hold.release()
        assert store.holder("run") is None
        again = self.reopen(store).hold("run", writer.known, me("second"))
        assert again is not None
        hold.release()  # a second time: it is another's by now
        assert store.holder("run") == me("second")
        again.release()

    def test_a_refused_start_takes_nothing_from_the_owner(self, store: Store) -> None:
        """To ask, and to be refused, any number of times leaves the lease where it is."""
        hold = store.hold("run", None, me("first"))
        assert hold is not None
        for _ in range(3):
            with raises(RunBusy):
                self.reopen(store).hold("run", None, me("second"))
            assert self.reopen(store).holder("run") == me("first")
        hold.release()

    def test_a_lease_writes_nothing_to_the_journal(self, store: Store) -> None:
        """A run that is held, and released, is what it was."""
        writer = HandWriter(store)
        writer.append(writer.state())
        before = self.raw_lines(store, "run")

        hold = store.hold("run", writer.known, me("first"))
        assert hold is not None
        hold.release()

        assert self.raw_lines(store, "run") == before
        assert end(store) == writer.known

    def test_a_run_is_held_before_its_first_record(self, store: Store) -> None:
        """It does not exist any more for that; its owner, like any other, writes the first."""
        hold = store.hold("run", None, me("first"))
        assert hold is not None
        assert store.recent("run") is None
        assert list(self.reopen(store).listing()) == []

        writer = HandWriter(store)
        writer.append(writer.state())
        assert store.holder("run") == me("first")
        hold.release()

    def test_who_does_not_know_the_end_gets_no_lease(self, store: Store) -> None:
        """Its epoch might be an old one: it looks again first."""
        writer, other = HandWriter(store), HandWriter(self.reopen(store), name="o")
        writer.append(writer.state())
        known = writer.known
        other.known = known
        other.append(other.entry())

        assert store.hold("run", known, me("first")) is None
        assert store.hold("run", None, me("first")) is None
        assert store.holder("run") is None
        hold = store.hold("run", other.known, me("first"))
        assert hold is not None
        hold.release()

    def test_a_takeover_fences_who_held_the_run(self, store: Store) -> None:
        """The old owner's append is refused, its release changes nothing, the new one works."""
        old, new = HandWriter(store, name="old"), HandWriter(self.reopen(store), name="new")
        old.append(old.state())
        new.known = old.known
        hold = store.hold("run", old.known, me("old"))
        assert hold is not None

        taken = new.take_over(me("new"))
        assert end(store).epoch == 2
        assert self.reopen(store).holder("run") == me("new")._replace(epoch=2)
        with raises(StaleWriter):
            old.append(old.state())
        hold.release()
        assert store.holder("run") == me("new")._replace(epoch=2)
        with raises(RunBusy):
            store.hold("run", new.known, me("old"))
        new.append(new.state())

        taken.release()
        assert store.holder("run") is None

    def test_a_takeover_that_is_given_up_leaves_the_owner(self, store: Store) -> None:
        """What `seal` raises, and nothing else has happened."""
        old, new = HandWriter(store, name="old"), HandWriter(self.reopen(store), name="new")
        old.append(old.state())
        new.known = old.known
        hold = store.hold("run", old.known, me("old"))
        assert hold is not None
        before = self.raw_lines(store, "run")

        with raises(KeyError):
            new.take_over(me("new"), decide=refuse(KeyError("given up")))

        assert self.raw_lines(store, "run") == before
        assert store.holder("run") == me("old")
        old.append(old.entry())
        hold.release()

    def test_a_deleted_run_is_held_by_nobody(self, store: Store) -> None:
        """Its owner may delete it; what it holds is not the next run of that name."""
        writer = HandWriter(store)
        writer.append(writer.state())
        hold = store.hold("run", writer.known, me("first"))
        assert hold is not None

        assert store.delete("run")
        assert store.holder("run") is None
        again = store.hold("run", None, me("second"))
        assert again is not None
        hold.release()
        assert store.holder("run") == me("second")
        again.release()


def me(name: str) -> Holder:
    """Return this process, under the nonce of a writer."""
    return Holder("here", os.getpid(), "2026-01-02T03:04:05.000006+00:00", 1, name)
