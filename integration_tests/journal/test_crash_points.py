"""The machine crashes between any two system calls: what was acknowledged is there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from caravanserai_core import checkpoint, clean, lane, load, open_run, pin, prune, reading
from caravanserai_core.errors import CaravanseraiError, RunNotFound, WaypointNotFound
from caravanserai_core.journal import forget
from caravanserai_core.records import Record
from caravanserai_core.stores import FileStore, _file
from caravanserai_core.stores._seam import Files
from caravanserai_core.verify import verify
from integration_tests.journal.crash import Call, Disk, fingerprint, lay_out
from integration_tests.stores.seams import Logging, Wrapped

RUN = "run"


class Known(NamedTuple):
    """What a program knows of a run once a call returned.

    Attributes:
        states: what was saved, by waypoint number; empty: there is no run.
        entries: data of the entries since the newest waypoint.
        finished: the result was written down.
        highest: the highest number that was given, where that waypoint is not there any more.
    """

    states: dict[int, Any]
    entries: tuple[int, ...] = ()
    finished: bool = False
    highest: int = 0


class Step(NamedTuple):
    """One call of a program.

    Attributes:
        act: the call.
        after: what is known once it returned.
    """

    act: Callable[[FileStore], object]
    after: Known


class Scenario(NamedTuple):
    """Calls of a program, from a prepared folder.

    Attributes:
        prepare: makes that folder, without the log.
        before: what is known at the beginning.
        steps: the calls.
        killed: what another program did before that, and synced nothing of it.
        undone: what is there where nothing of that reached the disk, if not `before`.
    """

    prepare: Callable[[Path], None]
    before: Known
    steps: tuple[Step, ...]
    killed: Callable[[Path, Files], None] | None = None
    undone: Known | None = None


def state(number: int) -> dict[str, Any]:
    """Return the state of waypoint `number`."""
    return {"n": number, "text": "x" * 300, "log": list(range(number))}


def states(*numbers: int) -> dict[int, Any]:
    """Return the states of several waypoints."""
    return {number: state(number) for number in numbers}


def save(number: int) -> Callable[[FileStore], object]:
    """Return a call that saves waypoint `number`."""
    return lambda store: checkpoint(RUN, state(number), f"step {number}", store=store)


def enter(number: int) -> Callable[[FileStore], object]:
    """Return a call that writes an entry."""
    return lambda store: open_run(RUN, store=store).entry("e", number, say=f"called {number}")


def saved(root: Path, count: int = 3) -> None:
    """Prepare a run of some waypoints."""
    for number in range(1, count + 1):
        save(number)(FileStore(root / "runs"))
    forget(FileStore(root / "runs"), RUN)


def last_segment(root: Path) -> Path:
    """Return the path of the last segment of the prepared run."""
    return max((root / "runs" / RUN).glob("journal-*.jsonl"))


def torn(root: Path, files: Files) -> None:
    """Be a program that was killed in the middle of an append."""
    fd = files.open(str(last_segment(root)), os.O_WRONLY | os.O_APPEND, 0o600)
    files.write(fd, b'{"len":[200,400],"seq":5,"kind":"waypoint"' + b"x" * 300)
    files.close(fd)


def left_segment(root: Path, files: Files) -> None:
    """Be a program that was killed while it began a segment."""
    last = last_segment(root)
    name = last.with_name(f"journal-{int(last.stem[8:]) + 1}.jsonl")
    fd = files.open(str(name), os.O_WRONLY | os.O_CREAT, 0o600)
    files.write(fd, b'{"len":[200,4')
    files.close(fd)


def old_release(root: Path) -> None:
    """Prepare what release 0.2.0 leaves."""
    folder = root / "runs" / RUN
    folder.mkdir(parents=True)
    (folder / "state.json").write_text('{"old": true}')
    (folder / "waypoint-1.md").write_text("# Waypoint 1 — 2026-08-20T22:41:03+00:00\n\nold\n")
    (folder / "latest").write_text("1")


SCENARIOS = {
    "from nothing": Scenario(
        lambda root: None,
        Known({}),
        (
            Step(save(1), Known(states(1))),
            Step(save(2), Known(states(1, 2))),
            Step(enter(1), Known(states(1, 2), (1,))),
            Step(enter(2), Known(states(1, 2), (1, 2))),
            Step(save(3), Known(states(1, 2, 3))),
            Step(
                lambda store: open_run(RUN, store=store).finish("end"),
                Known(states(1, 2, 3), (), finished=True),
            ),
        ),
    ),
    "new segments": Scenario(
        saved,
        Known(states(1, 2, 3)),
        tuple(Step(save(n), Known(states(*range(1, n + 1)))) for n in range(4, 9)),
    ),
    "torn tail": Scenario(
        saved, Known(states(1, 2, 3)), (Step(save(4), Known(states(1, 2, 3, 4))),), torn
    ),
    "unfinished segment": Scenario(
        saved, Known(states(1, 2, 3)), (Step(save(4), Known(states(1, 2, 3, 4))),), left_segment
    ),
    "taking over": Scenario(
        old_release,
        Known({1: {"old": True}}),
        (Step(save(2), Known({1: {"old": True}, 2: state(2)})),),
    ),
    "delete and begin again": Scenario(
        saved,
        Known(states(1, 2, 3)),
        (
            Step(lambda store: clean(RUN, store=store), Known({})),
            Step(save(1), Known(states(1))),
        ),
    ),
}


def keep_some(*numbers: int) -> Callable[[FileStore], object]:
    """Return a call that removes all other waypoints."""

    def keep(record: Record) -> bool | None:
        return record.waypoint in numbers if record.kind == "waypoint" else None

    return lambda store: open_run(RUN, store=store).compact(keep)


def pinned(root: Path) -> None:
    """Prepare a run whose first waypoint is pinned."""
    saved(root, 4)
    pin(RUN, 1, store=root / "runs")
    forget(FileStore(root / "runs"), RUN)


def unfinished_copy(root: Path, files: Files) -> None:
    """Be a program that was killed while it wrote the journal anew."""
    folder = last_segment(root).parent
    fd = files.open(str(folder / "lock"), os.O_WRONLY | os.O_APPEND, 0o600)
    files.write(fd, b"replacing 2\n")
    files.sync_data(fd)
    files.close(fd)
    name = folder / ".journal-1.jsonl.0123456789abcdef"
    fd = files.open(str(name), os.O_WRONLY | os.O_CREAT, 0o600)
    files.write(fd, b'{"len":[200,4')
    files.close(fd)


def killed_removal(root: Path, files: Files) -> None:
    """Be a program that was killed when the new journal had just got its name."""
    renamed = False

    class Killed(Wrapped):
        def call(self, name: str, real: Callable[..., Any], args: tuple[Any, ...]) -> Any:
            nonlocal renamed
            if renamed and name not in ("unlock", "close"):
                raise KeyboardInterrupt
            renamed = renamed or (name == "rename" and args[1].endswith(".jsonl"))
            return getattr(files, name)(*args)

    store = FileStore(root / "runs", files=Killed())
    with pytest.raises(KeyboardInterrupt):
        keep_some(1, 3)(store)
    assert renamed
    forget(store, RUN)


SCENARIOS |= {
    "removing": Scenario(
        lambda root: saved(root, 4),
        Known(states(1, 2, 3, 4)),
        (
            Step(keep_some(2, 3, 4), Known(states(2, 3, 4))),
            Step(enter(1), Known(states(2, 3, 4), (1,))),
            Step(keep_some(3, 4), Known(states(3, 4), (1,))),
            Step(save(5), Known(states(3, 4, 5))),
        ),
    ),
    "removing the newest": Scenario(
        saved,
        Known(states(1, 2, 3)),
        (
            Step(keep_some(1, 2), Known(states(1, 2), highest=3)),
            Step(enter(1), Known(states(1, 2), (1,), highest=3)),
            Step(save(4), Known(states(1, 2, 4))),
        ),
    ),
    "removing behind a torn tail": Scenario(
        saved,
        Known(states(1, 2, 3)),
        (Step(keep_some(1, 3), Known(states(1, 3))),),
        torn,
    ),
    "removing beside an unfinished segment": Scenario(
        saved,
        Known(states(1, 2, 3)),
        (Step(keep_some(1, 3), Known(states(1, 3))), Step(save(4), Known(states(1, 3, 4)))),
        left_segment,
    ),
    "removing after a crash of the same": Scenario(
        saved,
        Known(states(1, 2, 3)),
        (Step(save(4), Known(states(*range(1, 5)))), Step(keep_some(4), Known(states(4)))),
        unfinished_copy,
    ),
    "pruning": Scenario(
        pinned,
        Known(states(1, 2, 3, 4)),
        (
            Step(lambda store: prune(RUN, keep=2, store=store), Known(states(1, 3, 4))),
            Step(save(5), Known(states(1, 3, 4, 5))),
            Step(lambda store: prune(RUN, keep=1, store=store), Known(states(1, 5))),
        ),
    ),
    "going on after a killed removal": Scenario(
        saved,
        Known(states(1, 3)),
        (Step(save(4), Known(states(1, 3, 4))),),
        killed_removal,
        undone=Known(states(1, 2, 3)),
    ),
}


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_file, "SEGMENT_SIZE", 1200)
    monkeypatch.setattr(lane, "SMALL", 100)
    monkeypatch.setattr(lane, "UNSEEN_SMALL", 100)


class Recorded(NamedTuple):
    """A scenario as it ran.

    Attributes:
        base: the folder it ran in, as it was before.
        log: its system calls.
        marks: how many of them were done when each step returned.
    """

    base: Path
    log: list[Call]
    marks: list[int]


def record(scenario: Scenario, tmp_path: Path) -> Recorded:
    """Run a scenario and keep its log."""
    base, work = tmp_path / "before", tmp_path / "work"
    work.mkdir()
    scenario.prepare(work)
    shutil.copytree(work, base, symlinks=True)
    seam = Logging()
    store = FileStore(work / "runs", files=seam)
    if scenario.killed is not None:
        scenario.killed(work, seam)
    marks = []
    for step in scenario.steps:
        step.act(store)
        marks.append(len(seam.log))
    forget(store, RUN)
    here, there = str(work), str(base)
    moved = [
        (name, tuple(a.replace(here, there) if isinstance(a, str) else a for a in args), result)
        for name, args, result in seam.log
    ]
    return Recorded(base, moved, marks)


def crashes(
    scenario: Scenario, recorded: Recorded, without: int | None = None
) -> Iterator[tuple[int, Any, list[Known]]]:
    """Yield (calls done, image, what may be there) for every crash.

    Args:
        scenario: what ran.
        recorded: its log.
        without: index of a call that has no effect, as if the code had forgotten it.
    """
    disk = Disk(recorded.base)
    seen: set[str] = set()
    for done in range(len(recorded.log) + 1):
        if done and done - 1 != without:
            disk.do(recorded.log[done - 1])
        acknowledged = sum(mark <= done for mark in recorded.marks)
        known = [scenario.before, *(step.after for step in scenario.steps)]
        possible = known[acknowledged : acknowledged + 2]
        if scenario.undone is not None and not acknowledged:
            possible = [scenario.undone, *possible]
        for image in disk.images():
            key = f"{acknowledged} {fingerprint(image)}"
            if key not in seen:
                seen.add(key)
                yield done, image, possible


def problem_with(image: Any, possible: list[Known], where: Path) -> str | None:
    """Say what is wrong with a disk after a crash, or None if all is well."""
    lay_out(image, where)
    store = FileStore(where / "runs")
    try:
        found = look(store)
        known = [one for one in possible if one._replace(highest=0) == found]
        if not known:
            return f"there is {found}"
        if verify_finds_damage(store):
            return "verify finds damage"
        number = checkpoint(RUN, {"after": "the crash"}, "went on", store=store)
        forget(store, RUN)
        if load(RUN, store=store) != {"after": "the crash"}:
            return "what was saved after the crash is not there"
        if number not in {max([*one.states, one.highest], default=0) + 1 for one in known}:
            return f"the next waypoint has number {number}"
        left = {path.name for path in (where / "runs" / RUN).iterdir()}
        if any(name.startswith(".journal") for name in left):
            return f"a temporary file is left: {sorted(left)}"
        notes = {int(name[9:-3]) for name in left if name.startswith("waypoint-")}
        if notes - {*found.states, number}:
            return f"notes of removed waypoints are left: {sorted(notes)}"
        if verify_finds_damage(store):
            return "verify finds damage after going on"
    except CaravanseraiError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        forget(store, RUN)
        shutil.rmtree(where)
    return None


def look(store: FileStore) -> Known:
    """Read all that is in a run, as another process."""
    forget(store, RUN)
    try:
        newest = load(RUN, store=store)
    except RunNotFound:
        return Known({})
    found = {}
    for waypoint in reading.waypoints(store, RUN):
        try:
            found[waypoint.number] = waypoint.state
        except WaypointNotFound:
            assert store.legacy(RUN) is not None
    assert newest == found[max(found)]
    run = open_run(RUN, store=store)
    entries = tuple(entry.data for entry in run.entries())
    return Known(found, entries, finished=run.finished() == (True, "end"))


def verify_finds_damage(store: FileStore) -> bool:
    """Say whether verify finds damage; a run that is not there has none."""
    try:
        return verify(store, RUN).damaged
    except RunNotFound:
        return False


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_crash_between_any_two_calls_loses_nothing(name: str, tmp_path: Path) -> None:
    """What was acknowledged is there, what was in flight is there whole or not at all."""
    scenario = SCENARIOS[name]
    recorded = record(scenario, tmp_path)
    count = 0
    for done, image, possible in crashes(scenario, recorded):
        count += 1
        wrong = problem_with(image, possible, tmp_path / "image")
        assert wrong is None, f"after {done} calls, {recorded.log[done - 1 : done]}: {wrong}"
    assert count > 10


def needed(recorded: Recorded) -> list[int]:
    """Return the syncs, but for those that the same step does once more for the same folder."""
    found = []
    for index, (name, args, _) in enumerate(recorded.log):
        end = next((mark for mark in recorded.marks if mark > index), 0)
        again = any(call[:2] == (name, args) for call in recorded.log[index + 1 : end])
        if name == "sync_data" or (name == "sync_dir" and not again):
            found.append(index)
    return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_sync_is_needed(name: str, tmp_path: Path) -> None:
    """Without any one of the syncs some crash loses something: so the test above can fail."""
    scenario = SCENARIOS[name]
    recorded = record(scenario, tmp_path)
    syncs = needed(recorded)
    assert syncs
    for index in syncs:
        found = (
            problem_with(image, possible, tmp_path / "image")
            for done, image, possible in crashes(scenario, recorded, without=index)
            if done > index
        )
        assert any(wrong is not None for wrong in found), recorded.log[index]
