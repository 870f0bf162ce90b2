"""Stores as they are found: missing, empty, damaged, of a newer version, written meanwhile."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from caravanserai import checkpoint, open_run
from caravanserai_core.stores import FileStore
from integration_tests.mcp.talking import Client, environment, started

WRITER = """
import sys
from caravanserai import checkpoint, open_run
with open_run("busy", store=sys.argv[1]) as run:
    for number in range(1, 10**6):
        run.checkpoint({"n": number, "log": ["x" * 50] * (number % 20)}, f"note {number}")
        run.once("step", str, number, key=number)
        if number == 3:
            print("going", flush=True)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores")


@pytest.fixture(scope="module")
def client(home: Path) -> Iterator[Client]:
    """A server whose store does not exist when it is started."""
    with started(home / "store", home) as found:
        yield found


def test_a_missing_and_an_empty_store_have_no_runs(client: Client, home: Path) -> None:
    assert "There is no store at" in client.told("list_runs")
    assert client.resources() == []
    for tool in ("read_note", "log", "diff", "handoff"):
        assert "no run" in client.refused(tool, run="a")
        assert "no run" in client.refused(tool, run="@-")
    assert not (home / "store").exists()

    (home / "store").mkdir()

    assert "No runs yet" in client.told("list_runs")
    assert list((home / "store").iterdir()) == []


def test_a_run_without_a_waypoint_is_told_as_such(client: Client, home: Path) -> None:
    with open_run("new", store=home / "store") as run:
        run.once("step", str, 1)

    assert "No waypoint yet" in client.told("read_note", run="new")
    assert client.told("handoff", run="new")
    assert "no waypoint yet" in client.refused("diff", run="new")
    assert client.told("log", run="new")


def test_a_damaged_run_is_named_as_damaged_and_hides_no_other(client: Client, home: Path) -> None:
    store = home / "store"
    for run_id in ("whole", "damaged"):
        for number in range(1, 5):
            checkpoint(run_id, {"n": number}, f"note {number}", store=store)
    journal = store / "damaged" / "journal-1.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"note 2", b"n@te 2")
    journal.write_bytes(b"".join(lines))

    listed = client.told("list_runs")

    assert "whole\tstopped\t4" in listed
    note = client.told("read_note", run="damaged", waypoint=4)
    assert "It is damaged: " in note
    assert "note 4" in note
    assert "It is damaged: " in client.told("log", run="damaged")
    assert "damaged" in client.refused("handoff", run="damaged")
    assert "note 4" in client.told("read_note", run="whole")
    journal.write_bytes(b"".join(lines[:-1]) + lines[-1].replace(b"note 4", b"n@te 4"))
    assert "damaged\tdamaged\t" in client.told("list_runs")
    assert "damaged" in client.refused("read_note", run="damaged")


def test_a_run_of_a_newer_version_is_told_as_such(
    client: Client, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("appending", "reading"):
        monkeypatch.setattr(f"caravanserai_core.{module}.FORMAT", 9)
    checkpoint("newer", 1, store=home / "store")

    for tool in ("read_note", "log", "diff", "handoff"):
        assert "journal format 9" in client.refused(tool, run="newer")
    with pytest.raises(Exception, match="journal format 9"):
        client.read("caravanserai://runs/newer/latest")
    assert "journal format 9" in client.told("list_runs")


def test_a_run_that_is_written_meanwhile_is_read_at_any_time(client: Client, home: Path) -> None:
    store = home / "store"
    command = [sys.executable, "-c", WRITER, str(store)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=environment(home / "late"), text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "going\n"
            numbers = []
            for _ in range(15):
                note = client.told("read_note", run="busy")
                assert "run `busy`, running, " in note
                numbers.append(int(note.partition("# Waypoint ")[2].partition(" ")[0]))
                assert "It is damaged" not in client.told("log", run="busy", limit=5)
                client.told("diff", run="busy")
            assert "A living process works on the run." in client.told("handoff", run="busy")
            assert "busy\trunning\t" in client.told("list_runs")
        finally:
            process.kill()
    assert numbers == sorted(numbers)
    assert numbers[-1] > numbers[0]


def test_reading_writes_nothing(client: Client, home: Path) -> None:
    store = home / "store"
    for number in (1, 2):
        checkpoint("untouched", {"n": number}, f"note {number}", store=store)
    (store / "untouched" / "waypoint-1.md").unlink()  # as if a killed process had not come to it

    def files() -> dict[str, tuple[int, bytes]]:
        found = (store / "untouched").iterdir()
        return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in found}

    before = files()
    for tool in ("read_note", "log", "diff", "handoff"):
        client.told(tool, run="untouched")
    assert "note 1" in client.told("read_note", run="untouched", waypoint=1)
    client.read("caravanserai://runs/untouched/latest")

    assert files() == before
    assert FileStore(store).holder("untouched") is None
