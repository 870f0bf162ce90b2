"""Where a store may lie, and what lies beside its journals."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from caravanserai import FileStore, StoreRefused, checkpoint, load
from caravanserai_core.stores import _folder

MOUNTS = (
    "22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    "36 22 0:45 / {nfs} rw,relatime shared:2 - nfs4 server:/export rw\n"
    "37 22 0:46 / {nfs}/local rw - ext4 /dev/vdb rw\n"
)


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pretend that a folder is mounted from another machine, and one in it from a local disk."""
    shared = tmp_path / "with space"
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS.replace("{nfs}", str(shared).replace(" ", "\\040")))
    monkeypatch.setattr(_folder, "MOUNTS", str(table))
    (shared / "local").mkdir(parents=True)
    return shared


def test_a_network_disk_is_refused_before_anything_is_made(mounts: Path) -> None:
    """The error names the kind of file system; nothing is written there."""
    with pytest.raises(StoreRefused, match=r"network file system \(nfs4\)"):
        checkpoint("run", 1, store=mounts / "deep" / "store")
    assert [path.name for path in mounts.iterdir()] == ["local"]


def test_a_store_that_is_already_on_a_network_disk_is_refused_too(mounts: Path) -> None:
    """A folder that somebody made there beforehand changes nothing."""
    (mounts / "store").mkdir()
    with pytest.raises(StoreRefused, match="nfs4"):
        checkpoint("run", 1, store=mounts / "store")


def test_a_local_disk_inside_a_network_disk_is_local(mounts: Path) -> None:
    """The innermost mount decides."""
    assert checkpoint("run", 1, store=mounts / "local" / "store") == 1


@pytest.mark.parametrize("target", ["waypoint-99.md", "nowhere/else", "latest.md"])
def test_a_dangling_latest_hides_nothing(store_dir: Path, target: str) -> None:
    """The live note is derived: wherever it points, the journal says what is newest."""
    store = FileStore(store_dir)
    checkpoint("run", {"n": 1}, "one", store=store)
    latest = store_dir / "run" / "latest.md"
    latest.unlink()
    os.symlink(target, latest)
    assert load("run", store=store) == {"n": 1}
    assert checkpoint("run", {"n": 2}, "two", store=store) == 2
    assert latest.read_text(encoding="utf-8").endswith("\n\ntwo\n")


def test_a_home_folder_in_a_path_is_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`~` is what a shell makes of it, and no folder of that name."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    checkpoint("run", 1, store="~/runs")
    assert (tmp_path / "home" / "runs" / "run").is_dir()
    assert not Path("~").exists()


@pytest.mark.parametrize("inside", ["", "/deeper"])
def test_a_file_is_no_store(tmp_path: Path, inside: str) -> None:
    """A path that is a file, or leads through one, is refused with a sentence that says so."""
    (tmp_path / "file").write_text("text")
    with pytest.raises(StoreRefused, match="is a file, and a store is a folder"):
        checkpoint("run", 1, store=f"{tmp_path}/file{inside}")
    assert (tmp_path / "file").read_text() == "text"
