"""How many requests things take, and how many bytes: counted in a proxy before the server."""

from __future__ import annotations

from collections.abc import Callable

from caravanserai_core import load, open_run
from caravanserai_core.listing import runs
from caravanserai_core.stores.objects import ObjectStore
from caravanserai_core.testing import HandWriter
from integration_tests.object_servers import Proxy, Server

Open = Callable[..., ObjectStore]


def test_an_append_is_one_request(
    seaweedfs: Server, prefix: str, proxy: Proxy, opened: Open
) -> None:
    """But for the first, and every sixteenth, which leaves a hint where the end is."""
    store = opened(seaweedfs.url(prefix, proxy.endpoint))
    writer = HandWriter(store)
    writer.append(writer.state())
    proxy.seen.clear()

    for _ in range(14):
        writer.append(writer.entry())
    assert [seen.method for seen in proxy.seen] == ["PUT"] * 14
    writer.append(writer.entry())

    assert [seen.path.rpartition("/")[2] for seen in proxy.seen[14:]] == [
        "0000000016.jsonl",
        "head.json",
    ]


def test_a_resume_takes_few_requests_however_long_the_run_is(
    seaweedfs: Server, prefix: str, proxy: Proxy, opened: Open, thorough: bool
) -> None:
    """A state that changed with every waypoint is read in at most a hundred requests."""
    count = 10_000 if thorough else 600
    state: dict[str, object] = {}
    with open_run("run", store=opened(seaweedfs.url(prefix))) as run:
        for number in range(count):
            state[f"k{number % 100}"] = f"{number}" * 5
            run.checkpoint(state, f"step {number}")
    there = opened(seaweedfs.url(prefix, proxy.endpoint))  # another address: nothing is known of it

    with open_run("run", store=there) as run:
        assert run.state == state
        resumed = proxy.count("GET", "HEAD")
        run.checkpoint(state, "one more")

    assert resumed <= 100
    proxy.seen.clear()
    assert load("run", at=count // 2, store=there)["k99"] == f"{count // 2 - 1}" * 5
    assert proxy.count("GET", "HEAD") <= 100
    print(f"resume: {resumed} reads; one waypoint in the middle: {proxy.count('GET', 'HEAD')}")


def test_an_end_is_found_without_a_hint(
    seaweedfs: Server, prefix: str, proxy: Proxy, opened: Open
) -> None:
    """The hint may be missing, stale, or nonsense: it is only a place to begin."""
    store = opened(seaweedfs.url(prefix))
    writer = HandWriter(store)
    for _ in range(75):
        writer.append(writer.entry())
    hints = (None, b"", b"[]", b'{"generation":"1","append":3}', b'{"generation":"9","append":0}')
    hints += (b'{"generation":"9","append":7}', b'{"generation":"1","append":500}')

    for hint in hints:
        if hint is None:
            store._bucket.delete(["run/head.json"])
        else:
            store._bucket.write("run/head.json", hint)
        proxy.seen.clear()
        recent = opened(seaweedfs.url(prefix, proxy.endpoint)).recent("run")

        assert recent is not None
        assert recent.tail == writer.known
        assert len(proxy.seen) <= 60


def test_a_list_reads_no_large_state(
    seaweedfs: Server, prefix: str, proxy: Proxy, opened: Open, thorough: bool
) -> None:
    """Of each run a few heads, whatever else is in it."""
    count = 1000 if thorough else 30
    store = opened(seaweedfs.url(prefix))
    for number in range(count):
        writer = HandWriter(store, f"run-{number}")
        writer.append(writer.state(b'"%b"' % (b"x" * 300_000)))
        writer.append(writer.entry(), writer.state(b'"%b"' % (b"y" * 300_000)))

    found = list(opened(seaweedfs.url(prefix, proxy.endpoint)).listing())

    assert sum(listed.error is None and listed.held is False for listed in found) == count
    assert {listed.last.seq for listed in found if listed.last is not None} == {4}
    assert sum(seen.size for seen in proxy.seen) < count * 100_000
    assert len(proxy.seen) < count * 13
    assert len(runs(store)) == count
