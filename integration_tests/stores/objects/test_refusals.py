"""What an object store refuses, and what it keeps apart."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from caravanserai_core.errors import StoreFailed, StoreRefused, UsageError
from caravanserai_core.stores import _objects_probe
from caravanserai_core.stores._objects_bucket import Bucket
from caravanserai_core.stores.objects import ObjectStore
from caravanserai_core.testing import HOSTILE_IDS, HandWriter
from caravanserai_core.testing._base import run_id_of
from caravanserai_core.testing._leases import me
from integration_tests.object_servers import Proxy, Server
from integration_tests.stores.objects.raw import keys, objects

Open = Callable[..., ObjectStore]


def test_a_server_that_ignores_conditions_is_refused(
    rclone: Server, prefix: str, opened: Open
) -> None:
    """It says what would happen, and which servers work; nothing of a run was written."""
    store = opened(rclone.url(prefix))
    writer = HandWriter(store)

    for use in (
        lambda: writer.append(writer.state()),
        lambda: writer.replace(writer.state()),
        lambda: store.hold("run", None, me("first")),
    ):
        with pytest.raises(StoreRefused, match=r"ignores If-None-Match.*overwrite.*SeaweedFS"):
            use()

    assert not [key for key in objects(store.url) if not key.startswith(".caravanserai-")]


def test_wrong_credentials_are_named(
    moto: Server, seaweedfs: Server, prefix: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says where they come from and what they have to permit."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    store = opened(seaweedfs.url(prefix))
    writer = HandWriter(store)

    with pytest.raises(StoreRefused, match=r"AWS_.*s3:ListBucket"):
        writer.append(writer.state())
    with pytest.raises(StoreRefused):
        list(store.listing())


def test_a_bucket_that_is_not_there_is_named(moto: Server, opened: Open) -> None:
    """It is not made, and a run in it is not simply missing."""
    store = opened(moto.url("x").replace("://runs/", "://nothing/"))
    writer = HandWriter(store)

    for use in (
        lambda: writer.append(writer.state()),
        lambda: store.recent("run"),
        lambda: list(store.listing()),
    ):
        with pytest.raises(StoreFailed, match="there is no bucket nothing"):
            use()


@pytest.mark.parametrize("lost", ["object", "change"])
@pytest.mark.parametrize("times", [1, 99])
def test_a_probe_that_is_gone_is_no_proof(
    seaweedfs: Server,
    prefix: str,
    opened: Open,
    monkeypatch: pytest.MonkeyPatch,
    times: int,
    lost: str,
) -> None:
    """A server that crashes may lose what it had acknowledged: it is asked once more."""
    real, left = Bucket.swap, [times]

    def swap(self: Bucket, key: str, *rest: Any) -> Any:
        if not left[0] or "probe" not in key:
            return real(self, key, *rest)
        left[0] -= 1
        before = self.get(key)
        assert before is not None
        if lost == "object":
            self.delete([key])
        changed = real(self, key, *rest)
        if lost == "change":
            self.put(key, before.data, "overwrite")
        return changed

    monkeypatch.setattr(Bucket, "swap", swap)
    monkeypatch.setattr(_objects_probe, "_PAUSES", (0.0, 0.0))
    writer = HandWriter(opened(seaweedfs.url(prefix)))
    if times == 1:
        assert writer.append(writer.state()).tail.seq == 2
    else:
        with pytest.raises(StoreRefused, match="If-Match"):
            writer.append(writer.state())


def test_nobody_answers(opened: Open) -> None:
    """The message names the address."""
    url = "s3://runs/x?endpoint=http://127.0.0.1:9&region=us-east-1"
    for store in (opened(f"{url}&timeout=0.2"), opened(f"{url}&timeout=60", timeout=0.2)):
        writer = HandWriter(store)
        began = time.monotonic()
        with pytest.raises(StoreFailed, match="s3://runs/x/"):
            writer.append(writer.state())
        with pytest.raises(StoreFailed, match="s3://runs/x/"):
            store.recent("run")
        assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3:///prefix",
        "s3://key:secret@bucket/prefix",
        "s3://bucket/a/../b",
        "s3://bucket/a//b",
        "s3://bucket/a%00b",
        "s3://bucket/a?keep=0",
        "s3://bucket/a?keep=many",
        "s3://bucket/a?lease=-1",
        "s3://bucket/a?timeout=0",
        "s3://bucket/a?secret=x",
        "s3://bucket/a?endpoint=ftp://x",
        "s3://bucket/a?endpoint=http://u:p@x",
        "s3://bucket/a#b",
        "ftp://bucket/a",
        "s3://[bucket/a",
    ],
)
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(UsageError):
        ObjectStore(url)


@pytest.mark.parametrize(
    ("url", "again"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket/a/b c/", "s3://bucket/a/b%20c"),
        ("s3://bucket/a?lease=5&keep=50", "s3://bucket/a?keep=50&lease=5"),
        ("s3://bucket/a?timeout=2.5", "s3://bucket/a?timeout=2.5"),
        ("s3://bucket/%25?region=x", "s3://bucket/%25?region=x"),
        ("az://container/a", "az://container/a"),
    ],
)
def test_an_address_that_is_opened_again(url: str, again: str) -> None:
    store = ObjectStore(url)

    assert store.url == again
    assert ObjectStore(store.url).url == again
    assert ObjectStore(store.url).key == store.key
    assert ObjectStore(url, keep=7).keep == 7


def test_what_a_run_is_called_stays_below_the_prefix(
    seaweedfs: Server, prefix: str, opened: Open
) -> None:
    """Whatever its name: no key of it stands anywhere else."""
    store = opened(seaweedfs.url(prefix))
    before = set(keys(store.url))

    for run_id in HOSTILE_IDS:
        writer = HandWriter(store, run_id)
        writer.append(writer.state())
        hold = store.hold(run_id, writer.known, me("first"))
        assert hold is not None
        hold.release()

    new = set(keys(store.url)) - before
    assert new
    assert all(key.startswith(f"{prefix}/") for key in new)
    assert all("//" not in key and ".." not in key and key.isascii() for key in new)


def test_two_prefixes_never_see_each_other(seaweedfs: Server, prefix: str, opened: Open) -> None:
    """Also where one begins like the other, or lies in it."""
    stores = [opened(seaweedfs.url(f"{prefix}{end}")) for end in ("", "/run", "0", "-1", "/ü% x~")]
    for index, store in enumerate(stores):
        writer = HandWriter(store, name=f"w{index}")
        writer.append(writer.state())

    assert stores[0].delete("run")

    for index, store in enumerate(stores[1:], 1):
        (record, _) = store.scan("run", bodies=False)
        assert getattr(record, "by", None) == f"w{index}"
        assert [run_id_of(listed) for listed in store.listing()] == ["run"]
    assert list(stores[0].listing()) == []


def test_what_was_removed_is_nowhere(seaweedfs: Server, prefix: str, opened: Open) -> None:
    """After a replacement and a deletion: in no object, whatever its name."""
    store = opened(seaweedfs.url(prefix))
    writer = HandWriter(store)
    for _ in range(20):
        writer.append(writer.state(b'"first secret"'))
    writer.replace(writer.state(b'"second secret"'))
    assert not any(b"first secret" in data for data in objects(store.url).values())
    writer.append(writer.state(b'"second secret"'))

    store.delete("run")

    assert not any(b"secret" in data for data in objects(store.url).values())


@pytest.mark.skipif(sys.platform == "win32", reason="fork")
def test_a_forked_child_is_refused_and_does_not_hang(
    seaweedfs: Server, prefix: str, opened: Open
) -> None:
    """The client's runtime does not survive a fork; one that is made after it works."""
    store = opened(seaweedfs.url(prefix))
    writer = HandWriter(store)
    writer.append(writer.state())
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            store.recent("run")
            os.write(write, b"read")
        except BaseException as error:  # noqa: BLE001 - told to the parent
            os.write(write, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    said = os.read(read, 4096).decode()
    os.close(read)
    os.close(write)

    assert said.startswith("StoreRefused: ")
    assert "spawn" in said
    process = multiprocessing.get_context("forkserver").Process(target=_read, args=(store.url,))
    process.start()
    process.join(30)
    assert process.exitcode == 0


def _read(url: str) -> None:
    assert ObjectStore(url).recent("run") is not None


def test_a_damaged_object_is_told_and_mended_around(
    seaweedfs: Server, prefix: str, proxy: Proxy, opened: Open
) -> None:
    """Every reader says which object it is; what stands before it still loads."""
    import obstore

    from caravanserai_core.errors import JournalDamaged
    from caravanserai_core.stores._objects_address import connect, parse_address
    from caravanserai_core.stores.base import Bad

    store = opened(seaweedfs.url(prefix))
    writer = HandWriter(store)
    for number in range(3):
        writer.append(writer.state(b'"%d"' % number))
    client = connect(parse_address(store.url), 5)
    key = f"{prefix}/run/1/0000000003.jsonl"
    data = bytes(obstore.get(client, key).bytes())
    obstore.put(client, key, data.replace(b'"state":"2"', b'"state":"X"'))
    fresh = opened(store.url)

    with pytest.raises(JournalDamaged, match=r"0000000003\.jsonl.* up to 2 ") as damage:
        fresh.recent("run")
    assert damage.value.last_waypoint == 2
    bad = [item for item in fresh.scan("run", bodies=True) if isinstance(item, Bad)]
    assert [item.path.rpartition("/")[2] for item in bad] == ["0000000003.jsonl"]
    assert [record.body for record in fresh.chain("run", 2)] == [b'"state":"1"']
    assert "damaged" in (next(iter(fresh.listing())).error or "")
    late = HandWriter(fresh, name="late")
    with pytest.raises(JournalDamaged):
        late.append(late.state())


def test_without_its_client_the_extra_is_named() -> None:
    """Importing the module says what to install; nothing else of the package needs it."""
    code = (
        "import sys; sys.modules['obstore'] = None\n"
        "import caravanserai_core.stores\n"
        "import caravanserai_core.stores.objects"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .endswith("need the package obstore: pip install 'caravanserai[objects]'")
    )
    assert "UsageError" in done.stderr
