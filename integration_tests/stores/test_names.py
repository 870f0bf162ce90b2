"""Where runs lie: folder names, modes, links, and nothing outside the store."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from caravanserai_core import checkpoint, clean, list_runs, load, open_run
from caravanserai_core.errors import (
    InvalidRunId,
    JournalDamaged,
    StoreFailed,
    StoreRefused,
)
from caravanserai_core.journal import forget
from caravanserai_core.names import folder_name
from caravanserai_core.stores import FileStore
from caravanserai_core.testing import HOSTILE_IDS
from integration_tests.stores.seams import Logging

RUN = "run"


def tree(folder: Path) -> dict[str, object]:
    """Return all that is below a folder: names, kinds, contents."""
    found: dict[str, object] = {}
    for parent, folders, files in os.walk(folder):
        for name in folders + files:
            path = Path(parent) / name
            kind = stat.S_IFMT(path.lstat().st_mode)
            content = path.read_bytes() if kind == stat.S_IFREG else None
            found[str(path.relative_to(folder))] = (kind, content)
    return found


def test_every_string_has_a_folder_of_its_own_inside_the_store(tmp_path: Path) -> None:
    """Whatever the id: its own run, its exact name in the list, nothing outside touched."""
    outside = tmp_path / "outside"
    for name in ("up", "runs-beside", "etc"):
        (outside / name).mkdir(parents=True)
        (outside / name / "file").write_text(name)
    root = outside / "runs"
    store = FileStore(root)
    ids = [*HOSTILE_IDS, "../up", "../../x", f"{outside}/etc", "run", "..\\x", "up\u202e"]
    ids = list(dict.fromkeys(ids))
    before = tree(outside)

    for number, run_id in enumerate(ids):
        assert checkpoint(run_id, {"id": number}, f"run {number}", store=store) == 1
    for number, run_id in enumerate(ids):
        forget(store, run_id)
        assert load(run_id, store=store) == {"id": number}, run_id

    assert sorted(info.run_id for info in list_runs(store=store)) == sorted(ids)
    assert len(list_runs(store=store)) == len(ids)
    after = tree(outside)
    assert {n: v for n, v in after.items() if n.split("/")[0] != "runs"} == before
    assert len({p.name for p in root.iterdir()} - {".gitignore"}) == len(ids)

    for run_id in ids:
        assert clean(run_id, store=store)
    assert [p.name for p in root.iterdir()] == [".gitignore"]


def test_folder_names_are_short_plain_and_differ_without_case(tmp_path: Path) -> None:
    """At most 64 ASCII characters, no reserved name, unique also on a disk that ignores case."""
    ids = [*HOSTILE_IDS, *(f"{a}{b}" for a in "aA" for b in "bB"), "a" * 64, "a" * 65, "A" * 64]
    ids += [
        "a.b",
        "a..b",
        "a.",
        "a-",
        "a_",
        "_a",
        "-a",
        ".a",
        "1",
        "con",
        "con.txt",
        "lpt9",
        "conx",
    ]
    ids = list(dict.fromkeys(ids))

    names = [folder_name(run_id) for run_id in ids]

    assert all(name.isascii() and 1 <= len(name) <= 64 for name in names)
    assert len({name.casefold() for name in names}) == len(ids)
    reserved = {"con", "prn", "aux", "nul", *(f"{d}{n}" for d in ("com", "lpt") for n in range(10))}
    assert not {name.split(".")[0].casefold() for name in names} & reserved
    assert all(name[0] not in ".-~" and name[-1] not in ". " for name in names)
    assert [folder_name(run_id) for run_id in ("a.b", "1", "a" * 64)] == ["a.b", "1", "a" * 64]


def test_no_path_beneath_the_store_is_long(tmp_path: Path) -> None:
    """Below 120 characters, whatever the id and whatever is made beside: Windows takes 260."""
    seam = Logging()
    root = tmp_path / "runs"
    store = FileStore(root, files=seam)
    run_id = "A very long name: " + "x" * 150

    with open_run(run_id, store=store) as run:
        for number in range(1, 4):
            run.checkpoint({"n": number}, "one")
            run.entry("e", 1, say="called")
        run.compact(lambda record: record.waypoint > 1)
    forget(store, run_id)
    with (root / folder_name(run_id) / "journal-1.jsonl").open("ab") as file:
        file.write(b'{"torn')
    checkpoint(run_id, {"n": 4}, store=store)
    assert clean(run_id, store=store)

    paths = [part for _, args, _ in seam.log for part in args if isinstance(part, str)]
    beneath = {path.removeprefix(f"{root}/") for path in paths if path.startswith(f"{root}/")}
    assert any(".damaged-" in path for path in beneath)
    assert any("waypoint-3.md" in path for path in beneath)
    assert max(map(len, beneath)) < 120


@pytest.mark.parametrize("run_id", ["", None, 1, b"run", ["run"]])
def test_what_is_no_string_names_no_run(run_id: object, tmp_path: Path) -> None:
    """1 and "1" would be one run in some places and two in others."""
    with pytest.raises(InvalidRunId):
        checkpoint(run_id, {}, store=tmp_path / "runs")  # type: ignore[arg-type]
    assert not (tmp_path / "runs").exists()


# ---------------------------------------------------------------------- modes


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_everything_is_private_from_its_first_byte(tmp_path: Path, mask: int) -> None:
    """Folders 0700, files 0600, whatever the umask: asked for when they are made."""
    before = os.umask(mask)
    try:
        seam = Logging()
        root = tmp_path / "new" / "runs"
        store = FileStore(root, files=seam)
        checkpoint(RUN, {"n": 1}, "one", store=store)
        open_run(RUN, store=store).entry("e", 1, say="called")
        checkpoint(RUN, {"n": 2}, "two", store=store)
        forget(store, RUN)
        with (root / RUN / "journal-1.jsonl").open("ab") as file:
            file.write(b'{"torn')
        checkpoint(RUN, {"n": 3}, "three", store=store)
    finally:
        os.umask(before)

    made = [args for name, args, _ in seam.log if name == "open" and args[1] & os.O_CREAT]
    assert {args[2] for args in made} == {0o600}
    assert all(args[1] & os.O_NOFOLLOW for args in made)
    folders = [args for name, args, _ in seam.log if name == "mkdir"]
    assert {args[1] for args in folders} == {0o700}
    assert any(".damaged-" in path.name for path in (root / RUN).iterdir())
    for path in [root.parent, root, *root.rglob("*")]:
        if not path.is_symlink():
            expected = 0o700 if path.is_dir() else 0o600
            assert stat.S_IMODE(path.lstat().st_mode) == expected & ~mask, path


def test_a_store_is_not_committed_by_accident(store_dir: Path) -> None:
    """State may be private: the store tells git to leave it alone."""
    checkpoint(RUN, {})

    assert (store_dir / ".gitignore").read_text() == "*\n"


# ---------------------------------------------------------------------- links


def test_a_run_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """It is neither read, written, listed nor deleted through."""
    store = FileStore(tmp_path / "runs")
    checkpoint("other", {}, store=store)
    outside = tmp_path / "outside"
    FileStore(outside)
    checkpoint(RUN, {"of": "outside"}, store=outside)
    (tmp_path / "runs" / RUN).symlink_to(outside / RUN)
    before = tree(outside)

    for use in (
        lambda: load(RUN, store=store),
        lambda: checkpoint(RUN, {"n": 1}, store=store),
        lambda: clean(RUN, store=store),
    ):
        with pytest.raises(StoreRefused, match="link"):
            use()
    assert [info.run_id for info in list_runs(store=store)] == ["other"]
    assert tree(outside) == before


@pytest.mark.parametrize("name", ["lock", "journal-1.jsonl", "waypoint-1.md", "latest.md"])
@pytest.mark.parametrize("dangling", [True, False])
def test_a_planted_link_leads_nowhere(tmp_path: Path, name: str, dangling: bool) -> None:
    """A link under a name that will be written: what it points to is unchanged."""
    root, victim = tmp_path / "runs", tmp_path / "victim"
    (root / RUN).mkdir(parents=True, mode=0o700)
    if not dangling:
        victim.write_text("precious")
    (root / RUN / name).symlink_to(victim)
    store = FileStore(root, timeout=0.5)

    written = False
    try:
        checkpoint(RUN, {"n": 1}, "one", store=store)
        written = True
    except (StoreFailed, StoreRefused, JournalDamaged) as error:
        assert str(root) in str(error)  # noqa: PT017

    assert victim.exists() != dangling
    assert dangling or victim.read_text() == "precious"
    assert written == (name == "latest.md")
    if written:
        assert (root / RUN / "latest.md").read_text().endswith("one\n")


@pytest.mark.parametrize("name", ["journal-2.jsonl", "waypoint-2.md", "latest.md", "lock"])
def test_a_link_planted_in_a_living_run_leads_nowhere(tmp_path: Path, name: str) -> None:
    """Also where the program already knows the run."""
    root, victim = tmp_path / "runs", tmp_path / "victim"
    victim.write_text("precious")
    store = FileStore(root, timeout=0.5)
    checkpoint(RUN, {"n": 1}, "one", store=store)
    (root / RUN / name).unlink(missing_ok=True)
    (root / RUN / name).symlink_to(victim)

    try:
        checkpoint(RUN, {"n": 2}, "two", store=store)
    except (StoreFailed, StoreRefused, JournalDamaged) as error:
        assert str(root) in str(error)  # noqa: PT017
        (root / RUN / name).unlink()
        forget(store, RUN)
        assert load(RUN, store=store) == {"n": 1}
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("plant", ["hard link", "pipe", "folder"])
def test_what_is_planted_as_live_note_is_not_written_to(tmp_path: Path, plant: str) -> None:
    """It is the one file that is written over in its place, and only where it has one name."""
    root, victim = tmp_path / "runs", tmp_path / "victim"
    victim.write_text("precious")
    store = FileStore(root, timeout=0.5)
    checkpoint(RUN, {"n": 1}, "one", store=store)
    latest = root / RUN / "latest.md"
    latest.unlink()
    {"hard link": lambda: os.link(victim, latest), "pipe": lambda: os.mkfifo(latest)}.get(
        plant, latest.mkdir
    )()

    checkpoint(RUN, {"n": 2}, "two", store=store)
    assert victim.read_text() == "precious"
    if plant == "folder":
        return  # said in the log; the waypoint and its note are there
    assert latest.read_text() == (root / RUN / "waypoint-2.md").read_text()
    assert latest.stat().st_nlink == 1


def test_a_temporary_name_cannot_be_guessed(tmp_path: Path) -> None:
    """Each is another one, of 32 random bits or more, and made only where nothing has that name."""
    made: list[set[str]] = []
    for turn in ("one", "two"):
        seam = Logging()
        root = tmp_path / turn
        store = FileStore(root, files=seam)
        with open_run(RUN, store=store) as run:
            for number in range(1, 4):
                run.checkpoint({"n": number}, "one")
                run.entry("e", 1, say="called")
            run.compact(lambda record: record.waypoint > 1)
        assert clean(RUN, store=store)
        targets = {"open": 0, "rename": 1}
        names: set[str] = set()
        for name, args, _ in seam.log:
            at = args[targets[name]] if name in targets else ""
            if Path(at).name.startswith(".") and Path(at).name != ".gitignore":
                names.add(at.removeprefix(str(root)))
                assert name != "open" or not args[1] & os.O_CREAT or args[1] & os.O_EXCL, at
        assert {Path(name).name.split(".")[1] for name in names} >= {"latest", "journal-1"}
        assert all(re.search(r"[0-9a-f]{8,}", Path(name).name) for name in names), names
        made.append(names)
    assert not made[0] & made[1]


def test_a_store_behind_a_link_is_the_same_store(tmp_path: Path) -> None:
    """The person's own link to the store's folder is followed."""
    checkpoint(RUN, {"n": 1}, store=tmp_path / "runs")
    (tmp_path / "link").symlink_to(tmp_path / "runs")

    assert load(RUN, store=tmp_path / "link") == {"n": 1}
    assert checkpoint(RUN, {"n": 2}, store=tmp_path / "link") == 2
    assert load(RUN, store=tmp_path / "runs") == {"n": 2}
