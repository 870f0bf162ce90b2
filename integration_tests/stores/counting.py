"""Processes that count up in one run of a store on a server, and log what was acknowledged."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

from caravanserai_core import checkpoint, history, load
from caravanserai_core.errors import Conflict, RunNotFound
from caravanserai_core.journal import forget
from caravanserai_core.stores import Store, open_store
from caravanserai_core.verify import verify
from integration_tests.stores.workers import start

RUN = "run"


def count_up(url: str, acks: Path, count: int) -> None:
    """Add 1 to the state `count` times, by load and checkpoint, and log each acknowledgement."""
    store = open_store(url)
    forget(store, RUN)
    log = os.open(acks / f"{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for turn in range(count):
        while not (number := _try(store, f"{os.getpid()}-{turn}-{random.getrandbits(40):x}", log)):
            pass
        del number


def _try(store: Store, token: str, log: int) -> int:
    try:
        state = load(RUN, store=store)
    except RunNotFound:
        state = {"n": 0}
    try:
        number = checkpoint(RUN, {"n": state["n"] + 1, "token": token}, "one more", store=store)
    except Conflict:
        return 0
    os.write(log, f"{number} {token}\n".encode())
    return number


class Crowd:
    """Writers, some of which are killed or stopped; who dies is followed by another.

    Args:
        url: the store's address.
        acks: a folder for what they log.
        share: saves of each.
    """

    def __init__(self, url: str, acks: Path, share: int) -> None:
        self.url, self.acks, self.share = url, acks, share
        self.chance = random.Random(11)
        self.deaths = 0

    def run(self, size: int, *, kills: int = 0, stops: int = 0) -> None:
        """Let them work until each has done its share."""
        slots = {self._start(self.share): [0, slot] for slot in range(size)}
        done: dict[int, int] = dict.fromkeys(range(size), 0)
        while slots:
            time.sleep(self.chance.uniform(0.005, 0.04))
            for pid in list(slots):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    _, slot = slots.pop(pid)
                    done[slot] += len((self.acks / str(pid)).read_bytes().splitlines())
                    if done[slot] < self.share:
                        self.deaths += 1
                        slots[self._start(self.share - done[slot])] = [0, slot]
            if slots and kills and self.chance.random() < 0.5:
                kills -= 1
                _signal(self.chance.choice(list(slots)), signal.SIGKILL)
            elif slots and stops and self.chance.random() < 0.3:
                stops -= 1
                pid = self.chance.choice(list(slots))
                _signal(pid, signal.SIGSTOP)
                threading.Timer(0.3, _signal, (pid, signal.SIGCONT)).start()

    def _start(self, count: int) -> int:
        pid = start(lambda: count_up(self.url, self.acks, count))
        (self.acks / str(pid)).touch()
        return pid

    def check(self) -> int:
        """Check that what was acknowledged is there once, in a chain without gaps.

        Returns:
            How many waypoints the run has.
        """
        store = open_store(self.url)
        try:
            forget(store, RUN)
            states = {point.number: point.state for point in history(RUN, store=store)}
            assert sorted(states) == list(range(1, len(states) + 1)), "numbers have a gap"
            assert all(state["n"] == n for n, state in states.items()), "a step was lost"
            tokens = Counter(state["token"] for state in states.values())
            assert max(tokens.values()) == 1, "a save arrived twice"
            logged = [line.split() for path in self.acks.iterdir() for line in _lines(path)]
            assert len(logged) >= self.share
            assert all(states[int(number)]["token"] == token for number, token in logged)
            assert len(states) - len(logged) <= self.deaths
            assert not verify(store, RUN).damaged
            return len(states)
        finally:
            store.close()


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
