"""`verify --repair` of runs with questions, answers, steps, pins and takeovers."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from caravanserai_core import (
    FileStore,
    StaleWriter,
    WaitingForPerson,
    answer,
    checkpoint,
    history,
    load,
    open_run,
    pin,
    prune,
)
from caravanserai_core.journal import forget
from caravanserai_core.repair import Repaired, repair

RUN = "run"


def paid(number: int) -> dict[str, Any]:
    """What a step returns."""
    return {"paid": (number,)}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileStore]:
    """A store with a run of three waypoints, two steps, a pin, and three questions."""
    store = FileStore(tmp_path / "store")
    with contextlib.suppress(WaitingForPerson), open_run(RUN, store=store) as run:
        for number in (1, 2, 3):
            run.once("pay", partial(paid, number), key=number)
            run.checkpoint({"n": number})
        for text in ("first?", "second?", "third?"):
            with contextlib.suppress(WaitingForPerson):
                run.ask(text, options=["yes", "no"])
        answer(RUN, "yes", question="q2", store=store)
        pin(RUN, 1, store=store)
        run.entry("end")
    yield store
    forget(store, RUN)


def lines(store: FileStore) -> list[bytes]:
    """The lines of the run's journal."""
    return (Path(store.folder(RUN)) / "journal-1.jsonl").read_bytes().splitlines(keepends=True)


def spoil(store: FileStore, *places: int) -> Repaired:
    """Flip a bit of some lines, and repair."""
    written = lines(store)
    for place in places:
        line = bytearray(written[place])
        line[len(line) // 2] ^= 1
        written[place] = bytes(line)
    (Path(store.folder(RUN)) / "journal-1.jsonl").write_bytes(b"".join(written))
    forget(store, RUN)
    return repair(store, RUN)


def asked(store: FileStore) -> dict[str, Any]:
    """What the program gets that asks and pays again, and what it did."""
    found: dict[str, Any] = {"paid": []}

    def pay(number: int) -> dict[str, Any]:
        found["paid"].append(number)
        return paid(number)

    with open_run(RUN, store=store) as run:
        for number in (1, 2, 3):
            try:
                assert run.once("pay", partial(pay, number), key=number) == paid(number)
            except WaitingForPerson:
                found[f"uncertain {number}"] = True
        for text in ("first?", "second?", "third?"):
            try:
                found[text] = run.ask(text, options=["yes", "no"])
            except WaitingForPerson:
                found[text] = None
    return found


KEPT = {"paid": [], "first?": None, "second?": "yes", "third?": None}


def test_questions_answers_steps_and_pins_outlive_damage_elsewhere(
    store: FileStore, tmp_path: Path
) -> None:
    """Each waypoint lost in turn, and the first record: the rest is there, nothing is redone."""
    whole = lines(store)
    kinds = [json.loads(line)["kind"] for line in whole]
    shutil.copytree(store.folder(RUN), tmp_path / "whole")
    for place in [i for i, kind in enumerate(kinds) if kind in ("open", "waypoint")]:
        shutil.rmtree(store.folder(RUN))
        shutil.copytree(tmp_path / "whole", store.folder(RUN))
        done = spoil(store, place)
        if kinds[place] == "open":
            assert (done.lost, done.others) == ([], 1)
        else:
            assert (done.lost, done.others) == ([kinds[: place + 1].count("waypoint")], 0)
        assert asked(store) == KEPT
        prune(RUN, keep=1, store=store)
        numbers = {point.number for point in history(RUN, store=store)}
        assert numbers >= {1, 3} - set(done.lost)
        assert asked(store) == KEPT


def test_lost_records_that_are_no_waypoints_are_told(store: FileStore) -> None:
    """An answer, a question, a step's result: `others` counts them, the command names them."""
    whole = lines(store)
    for kind, changed in [
        ("answer", {"second?": None}),
        ("question", {}),
        ("effect", {"uncertain 3": True}),
        ("entry", {}),
    ]:
        (Path(store.folder(RUN)) / "journal-1.jsonl").write_bytes(b"".join(whole))
        kinds = [json.loads(line)["kind"] for line in whole]
        done = spoil(store, len(kinds) - 1 - kinds[::-1].index(kind))
        assert (done.kept, done.lost, done.others) == ([1, 2, 3], [], 1), kind
        assert asked(store) == KEPT | changed, kind


def test_the_command_tells_of_lost_records(store: FileStore) -> None:
    """Not that nothing was lost."""
    written = lines(store)
    written[2] = written[2].replace(b"result", b"resulT", 1)
    (Path(store.folder(RUN)) / "journal-1.jsonl").write_bytes(b"".join(written))
    command = [sys.executable, "-m", "caravanserai_core.cli", "--store", store.root]
    done = subprocess.run(
        [*command, "verify", RUN, "--repair", "--yes"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "1 further record(s) could not be read" in done.stdout


OWNER = """
import sys
from caravanserai_core import FileStore, open_run
with open_run("run", store=FileStore(sys.argv[1])) as run:
    print("at it", flush=True)
    sys.stdin.readline()
    for work in (lambda: run.entry("late"), lambda: run.checkpoint({"late": 1})):
        try:
            work()
        except Exception as error:
            print(type(error).__name__, flush=True)
        else:
            print("written", flush=True)
"""


def test_an_owner_that_was_taken_over_stays_so_where_the_takeover_is_lost(tmp_path: Path) -> None:
    """The record of it was the last one, and damage took it."""
    store = FileStore(tmp_path / "store")
    checkpoint(RUN, {"n": 1}, store=store)
    forget(store, RUN)
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, store.root],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "at it\n"
    with open_run(RUN, store=store, takeover=True):
        pass
    assert json.loads(lines(store)[-1])["kind"] == "lease"
    assert spoil(store, -1).others == 1
    told, _ = owner.communicate("\n", timeout=30)
    assert told.split() == [StaleWriter.__name__] * 2
    assert load(RUN, store=store) == {"n": 1}
