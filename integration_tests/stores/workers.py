"""Processes that work on one run at once, are killed and stopped, and log what was acknowledged."""

from __future__ import annotations

import json
import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from caravanserai_core import checkpoint, load, open_run
from caravanserai_core.errors import Conflict, RunNotFound, WaypointNotFound
from caravanserai_core.journal import forget
from caravanserai_core.stores import FileStore
from caravanserai_core.stores._seam import Files
from integration_tests.stores.seams import CALLS

RUN = "run"
DEADLINE = 120.0
"""Seconds after which a test that waits for processes gives up."""


def wait_until(condition: Callable[[], Any], seconds: float = DEADLINE) -> Any:
    """Wait until `condition` is true and return what it gives."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.001)
    return found


def start(work: Callable[[], object]) -> int:
    """Do `work` in a forked child and return its pid; the child ends with 1 where it raises."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - shown, then told by the exit code
        traceback.print_exc()
    finally:
        os._exit(code)


def join(pid: int) -> int:
    """Wait for a child; returns its exit code, or minus the signal that ended it."""
    found = wait_until(lambda: (done := os.waitpid(pid, os.WNOHANG))[0] and done)
    return os.waitstatus_to_exitcode(found[1])


class Dying(Files):
    """Now and then writes half of a line and is gone.

    Args:
        chance: where the randomness comes from.
        often: share of the writes to a journal at which that happens.
    """

    def __init__(self, chance: random.Random, often: float) -> None:
        self._chance = chance
        self._often = often

    def write(self, fd: int, data: bytes) -> int:  # type: ignore[override]
        if data.startswith(b'{"len":') and self._chance.random() < self._often:
            os.write(fd, data[: self._chance.randrange(len(data))])
            os.kill(os.getpid(), signal.SIGKILL)
        return os.write(fd, data)


class Killed(Files):
    """Is gone at any of its calls, now and then.

    Args:
        chance: where the randomness comes from.
        often: share of the calls at which that happens.
    """

    def __init__(self, chance: random.Random, often: float) -> None:
        real = Files()
        for name in CALLS:
            setattr(self, name, self._around(getattr(real, name), chance, often))

    def _around(
        self, real: Callable[..., Any], chance: random.Random, often: float
    ) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if chance.random() < often:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args)

        return call


class Ack(NamedTuple):
    """What a writer logged after its save returned.

    Attributes:
        number: the waypoint's number.
        token: what tells this save from every other.
        seconds: the longest that a call took since the one before.
    """

    number: int
    token: str
    seconds: float


def count_up(
    root: Path, acks: Path, count: int, seed: int, *, dying: float = 0.0, forks: bool = False
) -> None:
    """Add 1 to the state `count` times, by load and checkpoint, and log each acknowledgement.

    Args:
        root: the store.
        acks: a folder; each process logs to a file of its own in it.
        count: how often.
        seed: of the randomness.
        dying: share of the writes in which the process dies.
        forks: whether a forked child goes on as a further writer, in the middle.
    """
    chance = random.Random(seed)
    store = FileStore(root, files=Dying(chance, dying) if dying else None, timeout=60.0)
    forget(store, RUN)
    fork_at = count // 2 if forks else -1
    for done in range(count):
        if done == fork_at:
            start(lambda: _add(store, acks, chance, 3))
        _add(store, acks, chance, 1)


def _add(store: FileStore, acks: Path, chance: random.Random, count: int) -> None:
    log = os.open(acks / f"{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for _ in range(count):
        longest = 0.0
        while True:
            token = f"{os.getpid()}-{chance.getrandbits(64):x}"
            begin = time.monotonic()
            number = _try(store, token)
            longest = max(longest, time.monotonic() - begin)
            if number:
                break
        os.write(log, f"{number} {token} {longest:.6f}\n".encode())
    os.close(log)


def _try(store: FileStore, token: str) -> int:
    try:
        state = load(RUN, store=store)
    except RunNotFound:
        state = {"n": 0, "life": token}
    except WaypointNotFound:
        return 0  # deleted and begun again while it was read
    try:
        number = state["n"] + 1
        return checkpoint(
            RUN, {"n": number, "token": token, "life": state["life"]}, "one more", store=store
        )
    except Conflict:
        return 0


def compact_on(root: Path, stop: Path, seed: int, *, often: float = 0.0) -> None:
    """Write the run anew, with all its waypoints, again and again.

    Args:
        root: the store.
        stop: a file; where it is there, that is the end.
        seed: of the randomness.
        often: share of the system calls at which the process dies.
    """
    chance = random.Random(seed)
    store = FileStore(root, files=Killed(chance, often) if often else None, timeout=60.0)
    while not stop.exists():
        forget(store, RUN)
        try:
            open_run(RUN, store=store).compact(lambda record: True)
        except (RunNotFound, Conflict):
            pass  # not begun, or deleted, or deleted and begun again
        time.sleep(chance.uniform(0.0, 0.01))


def acknowledged(acks: Path) -> list[Ack]:
    """Return what all writers logged."""
    found = []
    for path in acks.iterdir():
        for line in path.read_text().splitlines():
            number, token, seconds = line.split()
            found.append(Ack(int(number), token, float(seconds)))
    return found


def on_disk(root: Path) -> dict[int, Any]:
    """Return the states of a run by waypoint, read without the store; all must be full ones."""
    found: dict[int, Any] = {}
    segments = (root / RUN).glob("journal-*.jsonl")
    for path in sorted(segments, key=lambda path: int(path.stem[8:])):
        for line in path.read_bytes().splitlines():
            record = json.loads(line)
            if record["kind"] == "waypoint":
                assert record["waypoint"] not in found, "a number was given twice"
                found[record["waypoint"]] = record["state"]
    return found
