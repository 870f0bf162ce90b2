"""What the golden journals hold, and how they are made when a new format is released.

`python -m integration_tests.format.golden` writes them anew into a folder that is not there yet.
Released ones are never written again: they prove that old runs load.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import enum
import math
import shutil
import sys
import tempfile
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from unittest import mock
from zoneinfo import ZoneInfo

from caravanserai import (
    FileStore,
    Note,
    WaitingForPerson,
    answer,
    fork,
    open_run,
    pin,
    prune,
    register_type,
)
from caravanserai_core.pipeline import Pipeline
from caravanserai_core.records import FORMAT
from caravanserai_core.stores import _file

FOLDER = Path(__file__).parent / "golden" / str(FORMAT)

LATER = FOLDER.with_name(f"{FORMAT}.1")
"""Runs that are written in another way since, in the same format."""


@register_type(name="golden.Phase")
class Phase(enum.Enum):
    """An enum of the program."""

    PLAN = "plan"
    WORK = "work"


@register_type(name="golden.Task")
@dataclass
class Task:
    """A dataclass of the program."""

    title: str
    phase: Phase
    tries: tuple[int, ...] = ()


def small() -> list[Any]:
    """States of the plain loop of the README."""
    return [{"step": step} for step in range(1, 6)]


def typed() -> list[Any]:
    """States with every kind of value that has a tag of its own, but numpy's."""
    berlin = ZoneInfo("Europe/Berlin")
    return [
        {
            "tuple": (1, ("two", None)),
            "sets": [{3, 1, 2}, frozenset({"a"})],
            "bytes": [b"\x00\xff", bytearray(b"x")],
            "numbers": [2**70, -(2**64), math.nan, math.inf, -0.0, 1 + 2j, decimal.Decimal("1.20")],
            "text": "a\ud800b",
            "keys": {1: "one", "1": "text", (2, 3): "pair"},
            "tag": {"$tuple": [1]},
            "when": [
                datetime.datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001 - a naive one
                datetime.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=berlin),
                datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
                datetime.date(2026, 1, 2),
                datetime.time(1, 2, 3),
                datetime.timedelta(days=-1, microseconds=1),
                datetime.timezone(datetime.timedelta(hours=2), "X"),
                berlin,
            ],
            "kin": [
                deque([1, 2], maxlen=3),
                OrderedDict(b=1, a=2),
                defaultdict(list, {"x": [1]}),
                Counter("aab"),
                range(1, 9, 2),
                PurePosixPath("a/b"),
                uuid.UUID(int=7),
            ],
            "task": Task("write", Phase.WORK, (1, 2)),
        }
    ]


def growing() -> list[Any]:
    """States that are written as patches of every kind, over several segments."""
    states: list[Any] = []
    messages = [{"role": "user", "content": "x" * 400, "id": n} for n in range(12)]
    for n in range(60):
        messages = [*messages, {"role": "assistant", "content": f"answer {n} ", "id": n}]
        state = {
            "messages": messages,
            "n": n,
            "a/b~c": {"deep": {"er": list(range(n % 5))}},
            "window": list(range(n, n + 100)),
            "table": {f"row {i}": "y" * 60 + str(n if i == n % 9 else 0) for i in range(20)},
        }
        states.append(dict(reversed(state.items())) if n % 17 == 3 else state)
    return states


def steady() -> list[Any]:
    """States of which little is replaced, so that patches build on the full one or skip."""
    return [
        {"text": "z" * 30_000, "rows": {str(i): "w" * 90 + str((n - i) // 60) for i in range(60)}}
        for n in range(80)
    ]


def noted() -> list[Any]:
    """States that come with metadata; the last one is repeated."""
    return [{"n": n, "log": ["x" * 90] * n} for n in range(1, 4)]


RUNS = {"small": small, "typed": typed, "growing": growing, "steady": steady, "noted": noted}

REMOVED = "compacted"
"""A run like `growing` of which a part was removed."""


def stays(number: int) -> bool:
    """Say whether a waypoint of that run was kept."""
    return number % 5 == 0 or 30 < number < 45


KEPT, BRANCH = "kept", "branch"
"""A run that was pruned around a pin and went on in another schema; a fork of it."""


def make_kept(folder: Path) -> None:
    """Write these two."""
    with open_run(KEPT, store=folder, program="agent:work") as run:
        for number in range(1, 5):
            run.checkpoint({"n": number, "pair": (number,)}, f"step {number}")
    pin(KEPT, 2, store=folder)
    pin(KEPT, 3, store=folder)
    pin(KEPT, 3, unpin=True, store=folder)
    with open_run(KEPT, store=folder, migrations=[lambda state: {"m": state["n"]}]) as run:
        run.checkpoint(run.state, "step 5")
        prune(KEPT, keep=2, store=folder)
        run.finish("done")
    pin(KEPT, 5, store=folder)
    fork(KEPT, at=4, new_run_id=BRANCH, store=folder)


ASKED = "asked"
"""A run with steps under `once` that ended, failed and were run again, and with questions."""


def look_up(order: str) -> tuple[str, int]:
    """Do a step that ends."""
    return order, 40


def pay_back(order: str, amount: int) -> str:
    """Do a step that fails the first time."""
    if ASKED not in tried:
        tried.add(ASKED)
        raise OSError("the bank is closed")
    return f"paid {amount} for {order}"


tried: set[str] = set()


def make_asked(folder: Path) -> None:
    """Write it."""
    tried.clear()
    for answered in (None, "yes", "tomorrow"):
        if answered is not None:
            answer(ASKED, answered, by="ines", reason="it arrived broken", store=folder)
        with contextlib.suppress(WaitingForPerson, OSError), open_run(ASKED, store=folder) as run:
            if run.state is None:
                run.checkpoint({"n": 1}, "an order came back")
            order, amount = run.once("look up", look_up, "A17")
            about = {"order": order, "amount": amount}
            if run.ask("Refund?", options=["yes", "no"], payload=about) == "yes":
                with contextlib.suppress(OSError):
                    run.once("refund", pay_back, order, amount, key=order)
                run.once("refund", pay_back, order, amount, key=order)
            run.remark("Broken goods are paid back at once.")
            run.checkpoint({"n": 2, "when": run.ask("When is the next one sent?")}, "paid back")


CHAT = "chat"
"""A run of an adapter whose entries share values with the waypoint behind them."""


def said(number: int) -> list[Any]:
    """What a step of that run wrote."""
    return [
        ["messages", [{"role": "assistant", "content": f"answer {number} " * 40}]],
        ["n", number],
    ]


def make_chat(folder: Path) -> None:
    """Write it."""
    run = Pipeline(FileStore(folder), CHAT, "python", "no framework")
    run.begin("to be read for ever")
    messages = [{"role": "user", "content": "question " * 500}]
    for number in range(1, 6):
        data = said(number)
        entry = run.entry("writes", data, lane="", meta={"of": number})
        messages = [*messages, data[0][1][0]]
        state = run.prepare({"messages": messages, "n": number}, "")
        note = Note(f"Answer {number}.", next="The next one.")
        run.checkpoint(state, note, lane="", meta={}).result()
        entry.result(0, sync=True)
    run.write_notes()


HANDED = "handed"
"""A run that goes on from one of another program, of which a call may have happened."""


def make_handed(folder: Path) -> None:
    """Write it, and the run that it goes on from."""
    call = {"id": "c1", "function": {"name": "pay", "arguments": '{"eur": 40}'}}
    messages = [
        {"role": "user", "content": "Pay for order A17."},
        {"role": "assistant", "content": "I pay.", "tool_calls": [call]},
    ]
    with open_run("before", store=folder, goal="Pay once.") as run:
        run.once("look up", look_up, "A17")
        run.checkpoint({"messages": messages}, Note("Asked to pay.", next="Pay."))
        with contextlib.suppress(WaitingForPerson):
            run.ask("Pay?", options=["yes", "no"])
    with open_run(HANDED, store=folder, continues="before") as run:
        run.once("look up", look_up, "A17")
        run.checkpoint({"n": 1}, "looked again")


def folder_of(name: str) -> Path:
    """Return where a run lies as it is written now."""
    return LATER if (LATER / name).exists() else FOLDER


def make(folder: Path) -> None:
    """Write the golden journals."""
    machine = (
        mock.patch.object(sys, "executable", "python3"),
        mock.patch.object(sys, "orig_argv", ["python3", "agent.py", "--all"]),
        mock.patch("caravanserai_core.opening.working_folder", return_value="agents"),
        mock.patch("os.getpid", return_value=4711),
        mock.patch("os.uname", return_value=mock.Mock(nodename="host")),
        mock.patch.object(_file, "SEGMENT_SIZE", 40_000),
    )
    for patch in machine:
        patch.start()
    for name, states in {**RUNS, REMOVED: growing}.items():
        run = open_run(name, store=folder)
        for number, state in enumerate(states(), 1):
            meta = {"step": number, "source": "loop"} if name == "noted" else None
            run.checkpoint(state, f"step {number}", meta=meta)
    run.entry("tool", 1)
    run.compact(lambda record: stays(record.waypoint) if record.kind == "waypoint" else None)
    run.checkpoint({"on": 1}, "step 61")
    with open_run("noted", store=folder) as noted_run:
        noted_run.entry("write", {"a": 1}, meta={"task": "t"}, durable=False)
        noted_run.repeat("paused", meta={"source": "pause"})
    with open_run("small", store=folder) as run:
        run.entry("tool", {"args": (1,)}, say="A tool began.")
        run.remark("Because it was asked for.")
        run.checkpoint({"step": 6}, Note("Six.", plan=[("one", True), "two"], next="Go on."))
        run.checkpoint({"side": 1}, "a side lane", lane="side")
        run.finish((1, 2))
    make_kept(folder)
    make_chat(folder)
    make_asked(folder)
    make_handed(folder)
    for patch in machine:
        patch.stop()
    for file in (*folder.glob("*/lock"), *folder.glob("*/lease")):
        file.unlink()
    (folder / ".gitignore").unlink()


if __name__ == "__main__":
    if LATER.exists():
        sys.exit(f"{LATER} is there: what was released is not written again")
    with tempfile.TemporaryDirectory() as made_in:
        made = Path(made_in, "store")
        make(made)
        for run_id in ("growing", "noted", REMOVED, CHAT, ASKED, HANDED):
            shutil.copytree(made / run_id, LATER / run_id, symlinks=True)
