"""Saves that are interrupted, forgotten or overtaken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from caravanserai import (
    Conflict,
    FileStore,
    StoreBusy,
    UsageError,
    checkpoint,
    clean,
    history,
    load,
    load_latest,
    open_run,
    save,
)
from caravanserai_core import journal as journal_module
from caravanserai_core import known as known_module
from caravanserai_core.stores._seam import Files
from integration_tests.api.helpers import forget_everything
from integration_tests.support import ROOT

ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")])}


def elsewhere(code: str) -> None:
    """Run code in another process."""
    subprocess.run([sys.executable, "-c", "import caravanserai as c\n" + code], env=ENV, check=True)


def test_a_run_that_was_begun_anew_is_compared_with_itself(store_dir: Path) -> None:
    """What this process knew of a deleted run is not the base of a patch on its successor."""
    save("run", {"prompt": "P" * 9000, "approved": False, "who": "ann", "n": 1})
    elsewhere(
        "c.clean('run')\n"
        "c.save('run', {'prompt': 'P' * 9000, 'approved': True, 'who': 'bob', 'n': 1})"
    )
    state = load("run")
    state["approved"], state["n"] = False, 2
    save("run", state)
    forget_everything()
    assert load("run") == {"prompt": "P" * 9000, "approved": False, "who": "bob", "n": 2}


def test_a_run_whose_seqs_meet_by_chance_is_no_base(store_dir: Path) -> None:
    """A successor with other records under the same numbers stays readable."""
    for n in range(3):
        save("run", {"prompt": "P" * 9000, "n": n})
    elsewhere(
        "c.clean('run')\n"
        "run = c.open_run('run')\n"
        "run.entry('a'); run.entry('b'); run.checkpoint({'prompt': 'P' * 9000, 'n': 7})"
    )
    state = load("run")
    save("run", {**state, "n": 8})
    forget_everything()
    assert load("run")["n"] == 8


@pytest.mark.parametrize("first", [True, False])
def test_after_an_interrupted_save_no_number_is_given_twice(
    monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    """A save whose append landed and whose call did not return is one waypoint, not half of two."""
    if not first:
        save("run", {"n": 1})
    real = journal_module.Journal._append

    def interrupted(self: Any, seal: Any) -> Any:
        real(self, seal)
        raise KeyboardInterrupt

    monkeypatch.setattr(journal_module.Journal, "_append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save("run", {"n": 2})
    monkeypatch.setattr(journal_module.Journal, "_append", real)
    number = save("run", {"n": 3})
    assert load("run", at=number) == {"n": 3}
    numbers = [waypoint.number for waypoint in history("run")]
    assert numbers == list(range(1, number + 1))


def test_a_run_is_remembered_beside_a_thousand_others() -> None:
    """Somebody else's waypoint in between is a conflict, however many runs came in between."""
    save("run", {"balance": 100})
    mine = load("run")
    for n in range(700):
        save(f"other-{n}", n)
    elsewhere("s = c.load('run'); s['balance'] -= 30; c.save('run', s)")
    mine["balance"] -= 1
    with pytest.raises(Conflict):
        save("run", mine)
    assert load("run") == {"balance": 70}


def test_states_of_many_runs_are_not_all_kept() -> None:
    """The states kept for comparing are those of the runs used last; all go on exactly."""
    for n in range(80):
        save(f"run-{n}", {"text": "x" * 9000, "n": n})
    kept = [
        lane.shadow is not None
        for journal in journal_module._table.values()
        for lane in journal._lanes.values()
    ]
    assert kept.count(True) <= journal_module._MOST_WARM
    save("run-0", {"text": "x" * 9000, "n": 99})
    assert load("run-0")["n"] == 99


SIGNALLED = """
import signal, sys, threading, os
import caravanserai as c
state = {"n": 0}
def term(*_):
    c.save("run", state, store="s")
    sys.exit(0)
signal.signal(signal.SIGTERM, term)
print("ready", flush=True)
while True:
    state["n"] += 1
    c.save("run", state, store="s")
"""


def test_a_signal_handler_may_save(tmp_path: Path) -> None:
    """`save on SIGTERM` works at once, whatever the program was doing."""
    (tmp_path / "program.py").write_text(SIGNALLED)
    for _ in range(5):
        with subprocess.Popen(
            [sys.executable, "program.py"], cwd=tmp_path, env=ENV, stdout=subprocess.PIPE
        ) as program:
            assert program.stdout is not None
            program.stdout.readline()
            time.sleep(0.05)  # into the loop; any moment of it will do
            program.send_signal(signal.SIGTERM)
            assert program.wait(timeout=15) == 0
    numbers = [waypoint.number for waypoint in history("run", store=tmp_path / "s")]
    assert numbers == list(range(1, len(numbers) + 1))


ANYWHERE = """
import os, signal, sys
import caravanserai as c

os.environ["SOME_API_KEY"] = "sk-begins-with-this-0"
lines = places = saved = 0

def trace(frame, event, _):
    global lines
    if "caravanserai" not in frame.f_code.co_filename:
        return None
    if event == "line":
        lines += 1
        if lines == at:
            signal.raise_signal(signal.SIGUSR1)
    return trace

def handle(*_):
    global saved
    saved += 1
    c.save("run", {"by": "the handler", "saved": saved}, store="s")

def job():
    os.environ["SOME_API_KEY"] = f"sk-begins-with-this-{at % 2}"
    c.save(f"new-{at}", {"at": at}, store="s")
    c.save("run", {"at": at}, store="s")
    with c.open_run("run", store="s") as run:
        run.once(f"step {at}", abs, at)
        run.checkpoint({"at": at}, "by the job")

signal.signal(signal.SIGUSR1, handle)
at = 0
job()
while lines >= at:
    at, lines = at + int(sys.argv[1]), 0
    sys.settrace(trace)
    job()
    sys.settrace(None)
    places += 1
print(places, saved, c.load("run", store="s") == {"at": at})
"""


def test_a_signal_handler_may_save_at_every_line(tmp_path: Path, thorough: bool) -> None:
    """No lock is held by the code that the handler interrupted, and no save is lost for it."""
    (tmp_path / "program.py").write_text(ANYWHERE)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "program.py", "7" if thorough else "301"],
        cwd=tmp_path,
        env=ENV,
        capture_output=True,
        text=True,
        timeout=600 if thorough else 120,
    )
    assert done.returncode == 0, done.stderr
    places, saved, last = done.stdout.split()
    assert int(places) > 20
    assert int(saved) == int(places) - 1
    assert last == "True"


class SlowSync(Files):
    """A disk on which a handler comes while it is waited for."""

    def sync_data(self, fd: int) -> None:
        time.sleep(0.05)
        super().sync_data(fd)


@pytest.mark.parametrize("others", [0, 1])
def test_what_a_handler_raises_comes_out_as_it_is(tmp_path: Path, others: int) -> None:
    """A time limit is an `OSError`, and no error of the disk; other threads may get the signal."""
    store = FileStore(tmp_path, files=SlowSync())
    over = threading.Event()
    waiting = [threading.Thread(target=over.wait) for _ in range(others)]

    def late(*_: object) -> None:
        raise TimeoutError("too late")

    before = signal.signal(signal.SIGALRM, late)
    try:
        for other in waiting:
            other.start()
        for number in range(3):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            with pytest.raises(TimeoutError, match="too late"):
                save("run", {"n": number}, store=store)
        assert signal.getsignal(signal.SIGALRM) is late
    finally:
        over.set()
        signal.signal(signal.SIGALRM, before)
    assert [waypoint.number for waypoint in history("run", store=store)] == [1, 2, 3]
    assert (tmp_path / "run/lock").read_bytes() == b""


SENDER = """
import os, random, signal, sys, time
until = time.monotonic() + float(sys.argv[2])
while time.monotonic() < until:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        os.kill(int(sys.argv[1]), number)
    time.sleep(random.uniform(0, 0.002))
"""

STORM = """
import os, signal, sys, threading
import caravanserai as c
threading.Thread(target=threading.Event().wait, daemon=True).start()
armed = False
def raises(*_):
    global armed
    if armed:
        armed = False  # the program itself is not ready for two at once
        raise KeyboardInterrupt
numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
for number in numbers:
    signal.signal(number, raises)
told, last = 0, ""
print("ready", flush=True)
while last != "last":
    try:
        armed = True
        while not os.path.exists("over"):
            c.save("run", "more", store="s")
        c.save("run", "last", store="s")
        last = c.load("run", store="s")
    except KeyboardInterrupt:
        told += 1
armed = False
print(told, len(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
      all(signal.getsignal(number) is raises for number in numbers))
"""


def test_signals_from_all_sides_leave_no_signal_blocked(tmp_path: Path, thorough: bool) -> None:
    """However they meet in a save: the program's handlers stand, and each can be reached."""
    (tmp_path / "sender.py").write_text(SENDER)
    with subprocess.Popen(
        [sys.executable, "-c", STORM], cwd=tmp_path, env=ENV, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        program.stdout.readline()
        subprocess.run(
            [sys.executable, "sender.py", str(program.pid), "20" if thorough else "2"],
            cwd=tmp_path,
            check=True,
        )
        (tmp_path / "over").touch()
        out = program.communicate(timeout=60)[0]
    told, blocked, stand = out.split()
    assert int(told) > 50
    assert (blocked, stand) == ("0", "True")


def test_a_save_inside_a_save_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a finaliser or a handler gets in between all the same, it is told, not blocked."""
    real = known_module.Known._render
    seen: list[BaseException] = []

    def nested(*args: Any, **kwargs: Any) -> str:
        try:
            save("run", {"n": "inner"})
        except StoreBusy as error:
            seen.append(error)
        return real(*args, **kwargs)

    monkeypatch.setattr(known_module.Known, "_render", nested)
    save("run", {"n": "outer"})
    assert "signal handler" in str(seen[0])
    monkeypatch.setattr(known_module.Known, "_render", real)
    assert load("run") == {"n": "outer"}
    assert save("run", {"n": "after"}) == 2


def test_control_c_leaves_no_lock_behind(tmp_path: Path) -> None:
    """After ^C in a save, a save of another process goes through at once."""
    code = (
        "import signal, os\n"
        "def stop(*_): raise KeyboardInterrupt\n"
        "signal.signal(signal.SIGALRM, stop)\n"
        "store = c.FileStore('s', timeout=0.2)\n"
        "for i in range(300):\n"
        "    try:\n"
        "        signal.setitimer(signal.ITIMER_REAL, 0.00005 + i * 0.000003)\n"
        "        c.save('run', i, store=store); signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "    except KeyboardInterrupt: pass\n"
        "    signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "    n = c.save('run', -i, store=store)\n"
        "    assert c.load('run', at=n, store=store) == -i\n"
        "ns = [w.number for w in c.history('run', store=store)]\n"
        "assert ns == list(range(1, len(ns) + 1))\n"
    )
    subprocess.run(
        [sys.executable, "-c", "import caravanserai as c\n" + code],
        env=ENV,
        cwd=tmp_path,
        check=True,
        timeout=60,
    )


def test_load_latest_is_one_look(store_dir: Path) -> None:
    """State, note and number belong together, also while somebody else writes."""
    save("run", {"n": 0})
    code = "for n in range(400): checkpoint('run', {'n': n}, str(n)); load('run')"
    program = [sys.executable, "-c", f"from caravanserai import *\n{code}"]
    with subprocess.Popen(program, env=ENV) as writer:
        while writer.poll() is None:
            latest = load_latest("run")
            assert latest is not None
            state, note, _ = latest
            assert note in (str(state["n"]), "n: 0")
    assert writer.returncode == 0


@pytest.mark.parametrize("bad", [3, None, b"x", ["x"], "\ud800"])
def test_names_of_entries_and_lanes_are_checked(bad: Any) -> None:
    """What a head cannot hold is refused before anything is written; the run stays whole."""
    run = open_run("run")
    run.checkpoint({"n": 1})
    for call in (
        lambda: run.entry(bad),
        lambda: run.entry("name", lane=bad),
        lambda: run.checkpoint({"n": 2}, lane=bad),
        lambda: open_run("run", adapter=bad),
    ):
        with pytest.raises(UsageError):
            call()
    forget_everything()
    assert load("run") == {"n": 1}
    assert checkpoint("run", {"n": 2}) == 2


def test_the_live_note_stays_short() -> None:
    """Thousands of entries do not make it longer and longer."""
    run = open_run("run")
    run.checkpoint({"n": 1}, "one")
    for n in range(50):
        run.entry("tool", say=f"tool {n} began")
    text = Path(".caravanserai/run/latest.md").read_text(encoding="utf-8")
    assert "tool 49 began" in text
    assert text.count("began") == 20
    assert clean("run")
