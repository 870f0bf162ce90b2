"""Writing without waiting for the disk: what outlives a kill, and what a failed sync takes."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from caravanserai_core import open_run
from caravanserai_core.errors import StoreFailed
from caravanserai_core.journal import Journal, forget, journal_for
from caravanserai_core.piece import Piece
from caravanserai_core.stores import FileStore
from caravanserai_core.testing import HandWriter
from caravanserai_core.verify import verify
from integration_tests.stores.seams import Failing, Logging
from integration_tests.stores.workers import join, start

RUN = "run"


def begun(root: Path, files: Logging | Failing | None = None) -> tuple[FileStore, Journal]:
    """Return a store with a run of one waypoint, and the run's journal."""
    store = FileStore(root, files=files)
    open_run(RUN, store=store).checkpoint({"n": 1}, "one")
    return store, journal_for(store, RUN)


def lazy(journal: Journal, number: int) -> int:
    """Write an entry without waiting for the disk."""
    fields = {"name": "e", "n": number}
    return int(journal.turns.do(lambda: journal.add("entry", fields, sync=False)))


def numbers(store: FileStore) -> list[int]:
    """Return the entries on disk, as another process reads them."""
    items = store.scan(RUN, bodies=False)
    return [item.head["n"] for item in items if getattr(item, "kind", "") == "entry"]


def syncs(seam: Logging) -> int:
    """Return how many data syncs there were."""
    return sum(name == "sync_data" for name, _, _ in seam.log)


def test_one_sync_covers_all_that_was_written_before(tmp_path: Path) -> None:
    """Entries cost no sync of their own; the next waypoint makes them durable."""
    seam = Logging()
    store, journal = begun(tmp_path / "runs", seam)
    before = syncs(seam)

    found = [lazy(journal, number) for number in range(5)]

    assert syncs(seam) == before
    assert journal.durable < found[0]
    assert not journal.wait_durable(found[-1], 0.0)
    open_run(RUN, store=store).checkpoint({"n": 2}, "two")
    assert syncs(seam) == before + 1
    assert journal.wait_durable(found[-1], 0.0)


def test_sync_makes_the_end_durable_once(tmp_path: Path) -> None:
    """The second call has nothing to do."""
    seam = Logging()
    _, journal = begun(tmp_path / "runs", seam)
    seq = lazy(journal, 1)
    before = syncs(seam)

    for _ in range(3):
        journal.turns.do(journal.sync)

    assert syncs(seam) == before + 1
    assert journal.durable == seq


def test_what_was_not_synced_outlives_a_killed_process(tmp_path: Path) -> None:
    """kill -9 right behind the write loses nothing: the write itself was done."""
    store, _ = begun(tmp_path / "runs")

    def work() -> None:
        run = open_run(RUN, store=store)
        for number in range(3):
            run.entry("e", number, durable=False)
        os.kill(os.getpid(), signal.SIGKILL)

    assert join(start(work)) == -signal.SIGKILL
    forget(store, RUN)
    assert [entry.data for entry in open_run(RUN, store=store).entries()] == [0, 1, 2]
    assert not verify(store, RUN).findings


def test_who_waits_is_woken_by_who_syncs(tmp_path: Path) -> None:
    """The wait runs outside of the turns, and ends with the next synced append."""
    store, journal = begun(tmp_path / "runs")
    seq = lazy(journal, 1)
    waiting = threading.Event()
    found: list[tuple[bool, float]] = []

    def wait() -> None:
        begin = time.monotonic()
        waiting.set()
        found.append((journal.wait_durable(seq, 60.0), time.monotonic() - begin))

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(60.0)
    open_run(RUN, store=store).checkpoint({"n": 2}, "two")
    thread.join()

    assert [(durable, seconds < 30.0) for durable, seconds in found] == [(True, True)]


def test_a_forked_child_can_wait(tmp_path: Path) -> None:
    """A thread of the parent may hold the condition at the fork; the child has one of its own."""
    _, journal = begun(tmp_path / "runs")
    seq = lazy(journal, 1)
    with journal._durability._changed:
        child = start(lambda: journal.wait_durable(seq, 0.01))
    assert join(child) == 0


def test_a_failed_sync_may_take_what_was_not_synced(tmp_path: Path) -> None:
    """Entries before it are refused to who waits; what was acknowledged stands, and it goes on."""
    seam = Failing()
    store, journal = begun(tmp_path / "runs", seam)
    acknowledged = (tmp_path / "runs" / RUN / "journal-1.jsonl").read_bytes()
    lost = [lazy(journal, number) for number in (1, 2)]
    run = open_run(RUN, store=store)

    seam.arm(1, OSError(errno.EIO, "I/O"), only="sync_data")
    with pytest.raises(StoreFailed, match="did not keep"):
        run.checkpoint({"n": 2}, "two")

    assert (tmp_path / "runs" / RUN / "journal-1.jsonl").read_bytes() == acknowledged
    for seq in lost:
        with pytest.raises(StoreFailed):
            journal.wait_durable(seq, 0.0)
        with pytest.raises(StoreFailed):
            journal.turns.do(lambda seq=seq: journal.sync(seq))
    kept = lazy(journal, 3)
    journal.turns.do(journal.sync)
    assert journal.wait_durable(kept, 0.0)
    assert numbers(store) == [3]
    assert run.checkpoint({"n": 2}, "two") == 2
    assert (tmp_path / "runs" / RUN / "journal-1.jsonl").read_bytes() == acknowledged
    assert not verify(store, RUN).findings


@pytest.mark.parametrize("sync", [False, True])
def test_what_is_written_over_what_was_lost_is_not_lost(tmp_path: Path, sync: bool) -> None:
    """Several records of one append take the numbers of those that a failed sync took."""
    seam = Failing()
    store, journal = begun(tmp_path / "runs", seam)
    lost = [lazy(journal, number) for number in (1, 2, 3)]
    seam.arm(1, OSError(errno.EIO, "I/O"), only="sync_data")
    with pytest.raises(StoreFailed, match="did not keep"):
        journal.turns.do(journal.sync)

    pieces = [Piece({"name": "e", "n": n}, "", b"null") for n in (4, 5, 6)]
    journal.turns.do(lambda: journal.add_pieces(pieces, sync=sync))
    journal.turns.do(journal.sync)

    assert pieces[0].seq in lost
    assert all(journal.wait_durable(piece.seq, 0.0) for piece in pieces)
    assert numbers(store) == [4, 5, 6]


def test_a_failed_sync_of_its_own_goes_back_to_what_is_durable(tmp_path: Path) -> None:
    """`sync` is refused, the journal ends where it was durable, everybody begins a segment."""
    seam = Failing()
    store, journal = begun(tmp_path / "runs", seam)
    sleeper = Journal(FileStore(store.root), RUN)
    sleeper.turns.do(sleeper.look)
    seq = lazy(journal, 1)

    seam.arm(1, OSError(errno.EIO, "I/O"), only="sync_data")
    with pytest.raises(StoreFailed):
        journal.turns.do(journal.sync)

    with pytest.raises(StoreFailed):
        journal.wait_durable(seq, 0.0)
    assert numbers(store) == []
    sleeper.turns.do(lambda: sleeper.add("entry", {"name": "e", "n": 7}))
    lazy(journal, 8)
    assert numbers(store) == [7, 8]
    assert (tmp_path / "runs" / RUN / "journal-2.jsonl").exists()
    assert not verify(store, RUN).findings


def test_a_failed_sync_does_not_take_what_others_acknowledged(tmp_path: Path) -> None:
    """Behind our unsynced entry somebody else's synced one: neither is cut off."""
    seam = Failing()
    store, journal = begun(tmp_path / "runs", seam)
    other = Journal(FileStore(store.root), RUN)
    other.turns.do(other.look)
    lazy(journal, 1)
    other.turns.do(lambda: other.add("entry", {"name": "e", "n": 2}))

    seam.arm(1, OSError(errno.EIO, "I/O"), only="sync_data")
    with pytest.raises(StoreFailed):
        journal.turns.do(journal.sync)

    other.turns.do(lambda: other.add("entry", {"name": "e", "n": 3}))
    lazy(journal, 4)
    assert numbers(store) == [1, 2, 3, 4]
    assert not verify(store, RUN).findings


def test_after_somebody_elses_failed_sync_ours_proves_nothing(tmp_path: Path) -> None:
    """A second sync would succeed although the data may be gone: it is not tried."""
    store, journal = begun(tmp_path / "runs")
    seq = lazy(journal, 1)
    seam = Failing()
    other = Journal(FileStore(store.root, files=seam), RUN)
    other.turns.do(other.look)
    seam.arm(1, OSError(errno.EIO, "I/O"), only="sync_data")
    with pytest.raises(StoreFailed):
        other.turns.do(lambda: other.add("entry", {"name": "e", "n": 2}))

    with pytest.raises(StoreFailed):
        journal.turns.do(journal.sync)
    with pytest.raises(StoreFailed):
        journal.wait_durable(seq, 0.0)


def test_a_full_disk_takes_no_unsynced_entry(tmp_path: Path) -> None:
    """A write that fails is cut off alone; what was written before is still there."""
    seam = Failing()
    store, journal = begun(tmp_path / "runs", seam)
    lazy(journal, 1)
    seam.arm(1, OSError(errno.ENOSPC, "full"), only="write", short=True)

    with pytest.raises(StoreFailed):
        lazy(journal, 2)

    assert numbers(store) == [1]
    lazy(journal, 3)
    assert numbers(store) == [1, 3]
    assert journal.turns.do(lambda: journal.sync()) is None
    assert not verify(store, RUN).findings


def test_marks_of_one_place_are_equal(tmp_path: Path) -> None:
    """A reader's end is the writer's, whatever is synced: nothing is read anew for that."""
    store = FileStore(tmp_path / "runs")
    writer = HandWriter(store)
    writer.append(writer.state())
    tail = writer.append(writer.entry(), sync=False).tail
    recent = store.recent("run")
    assert recent is not None
    assert recent.tail == tail
    assert (recent.tail != tail) is False
    assert hash(recent.tail) == hash(tail)
    assert tail.token.unsynced > 0
