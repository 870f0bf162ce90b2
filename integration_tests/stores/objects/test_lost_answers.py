"""Answers that are lost or wrong: nothing of an append is lost, and nothing is there twice."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from caravanserai_core.errors import StoreFailed
from caravanserai_core.records import Record
from caravanserai_core.stores.base import Store
from caravanserai_core.stores.objects import ObjectStore
from caravanserai_core.testing import HandWriter
from integration_tests.object_servers import Proxy, Server
from integration_tests.stores.objects.raw import journals, objects

Open = Callable[..., ObjectStore]


class Faults:
    """Goes wrong with the first so many writes of journal objects."""

    def __init__(self, fault: str, times: int, *, of: str = ".jsonl") -> None:
        self.fault = fault
        self.left = times
        self._of = of
        self._lock = threading.Lock()

    def __call__(self, method: str, path: str) -> str | None:
        with self._lock:
            if method != "PUT" or not path.endswith(self._of) or not self.left:
                return None
            self.left -= 1
            return self.fault


def seqs(store: Store) -> list[int]:
    found = list(store.scan("run", bodies=True))
    assert all(isinstance(record, Record) for record in found), found
    return [record.seq for record in found if isinstance(record, Record)]


@pytest.fixture
def store(seaweedfs: Server, prefix: str, proxy: Proxy, opened: Open) -> ObjectStore:
    """Return a store that talks to its server through the proxy."""
    return opened(seaweedfs.url(prefix, proxy.endpoint), timeout=5.0)


@pytest.mark.parametrize("fault", ["drop", "500 after", "500", "409"])
@pytest.mark.parametrize("times", [1, 3])
def test_an_append_whose_answer_is_lost_is_there_once(
    store: ObjectStore, proxy: Proxy, fault: str, times: int
) -> None:
    """Done and not answered, answered wrongly, or refused and not done: it ends the same way."""
    writer = HandWriter(store)
    writer.append(writer.state())
    proxy.fault = faults = Faults(fault, times)

    writer.append(writer.entry(), writer.state())
    writer.append(writer.entry())

    if fault in ("drop", "500 after"):
        assert faults.left == max(0, times - 2)  # what landed is seen at once, and not sent again
    else:
        assert faults.left == 0
    assert seqs(store) == [1, 2, 3, 4, 5]
    assert len(writer.seals) == 3  # nobody was asked twice


@pytest.mark.parametrize("fault", ["drop", "409"])
def test_two_writers_whose_answers_are_lost_lose_nothing(
    store: ObjectStore, proxy: Proxy, opened: Open, fault: str
) -> None:
    """Who really was faster is found out by the nonce, not by the answer."""
    writers = [HandWriter(store, name="a"), HandWriter(opened(store.url, timeout=5.0), name="b")]
    writers[0].append(writers[0].state())
    writers[1].known = writers[0].known
    proxy.fault = Faults(fault, 6)

    def work(writer: HandWriter) -> None:
        for _ in range(5):
            writer.append(writer.entry())

    threads = [threading.Thread(target=work, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seqs(store) == list(range(1, 13))


def test_a_server_that_does_not_come_back_fails_the_append(
    seaweedfs: Server, prefix: str, proxy: Proxy, opened: Open
) -> None:
    """It says where, and that it is not known; the next append finds out."""
    store = opened(seaweedfs.url(prefix, proxy.endpoint), timeout=0.3)
    writer = HandWriter(store)
    writer.append(writer.state())
    before = writer.known
    proxy.fault = lambda _method, _path: "500"

    with pytest.raises(StoreFailed, match=r"0000000002\.jsonl may have been written or not"):
        writer.append(writer.state())

    proxy.fault = lambda _method, _path: None
    assert writer.known == before
    writer.append(writer.entry())
    assert seqs(store) == [1, 2, 3]


def test_an_append_that_was_given_up_and_landed_is_news(
    seaweedfs: Server, prefix: str, proxy: Proxy, opened: Open
) -> None:
    """The writer is told of its own record, and does not write over it."""
    store = opened(seaweedfs.url(prefix, proxy.endpoint), timeout=0.3)
    writer = HandWriter(store)
    writer.append(writer.state())
    proxy.fault = lambda method, path: (
        ("drop" if method == "PUT" else "500") if path.endswith("2.jsonl") else None
    )
    with pytest.raises(StoreFailed):
        writer.append(writer.entry())
    proxy.fault = lambda _method, _path: None

    writer.append(writer.entry())

    assert [record.by for record in writer.seals[-1][1] or ()] == ["w"]
    assert seqs(store) == [1, 2, 3, 4]


@pytest.mark.parametrize("fault", ["drop", "500 after", "409"])
def test_a_replacement_whose_answer_is_lost_is_done_once(
    store: ObjectStore, proxy: Proxy, fault: str
) -> None:
    """The closing object is compared by its nonce, as an append is."""
    writer = HandWriter(store)
    writer.append(writer.state(b'"old"'))
    proxy.fault = Faults(fault, 2)

    writer.replace(writer.state(b'"new"'))

    assert seqs(store) == [3, 4]
    found = objects(store.url)
    assert not [key for key, data in found.items() if b'"old"' in data]
    assert len(journals(found)["run"]) == 2


@pytest.mark.parametrize("fault", ["drop", "500 after", "409"])
def test_a_lease_whose_answers_are_lost_is_held_and_given_back(
    store: ObjectStore, proxy: Proxy, fault: str
) -> None:
    """Its own object tells the owner that it has it."""
    from caravanserai_core.testing._leases import me

    proxy.fault = Faults(fault, 1, of="lease.json")
    hold = store.hold("run", None, me("first"))
    assert hold is not None
    assert store.holder("run") == me("first")

    proxy.fault = Faults(fault, 1, of="lease.json")
    hold.release()
    assert store.holder("run") is None


def test_a_sweep_that_was_cut_short_is_finished_by_the_next_writer(
    seaweedfs: Server, prefix: str, proxy: Proxy, opened: Open
) -> None:
    """The run is deleted with its closing object; what is left is removed later."""
    store = opened(seaweedfs.url(prefix, proxy.endpoint), timeout=0.3)
    writer = HandWriter(store)
    for _ in range(3):
        writer.append(writer.state(b'"secret"'))
    proxy.fault = lambda method, path: (
        "500" if method == "PUT" and not path.endswith("4.jsonl") else None
    )
    with pytest.raises(StoreFailed):
        store.delete("run")
    proxy.fault = lambda _method, _path: None

    fresh = opened(store.url)
    assert fresh.recent("run") is None
    assert any(b'"secret"' in data for data in objects(store.url).values())
    other = HandWriter(fresh, name="other")
    other.append(other.state())

    assert not any(b'"secret"' in data for data in objects(store.url).values())
    assert seqs(fresh) == [1, 2]
