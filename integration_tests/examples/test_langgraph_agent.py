"""`examples/langgraph_agent.py`, killed anywhere: nothing that is finished runs twice."""

# ruff: noqa: E402

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("langgraph")

from caravanserai.langgraph import WaypointSaver
from caravanserai_core import list_runs
from integration_tests.examples.preloaded_agent import EXAMPLE, agent
from integration_tests.examples.scripted_chat import ScriptedChat
from integration_tests.preloaded import Ended, Preloaded

MAIN = "integration_tests.examples.preloaded_agent:main"

# What an undisturbed run does.
TALK = [1, 3, 5]
LOOKED_UP = "looked up offer 118"
MAILED = (
    "mail to office@northside.example: Thank you for your call. "
    "Our offer: 40 chairs, 5,200 EUR, valid to 2026-12-15."
)
ANSWER = "Offer 118: Sent."
QUESTION = "question: Send this mail?"

# Pending writes, as the example prints them: of the agent's first two answers, of a tool (and of
# the input), of the tool that asked, and of the last answer.
CALLS, RESULT, ANSWERED, LAST = (
    "writes to messages, __pregel_tasks",
    "writes to messages, branch:to:agent",
    "writes to __resume__, messages, branch:to:agent",
    "writes to messages",
)


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    with Preloaded("integration_tests.examples.preloaded_agent") as process:
        yield process


def chat() -> ScriptedChat:
    """Return the example's own script behind a server that counts; each call has an id once."""

    def answer(number: int, messages: list[dict[str, Any]]) -> dict[str, Any]:
        message: dict[str, Any] = agent.scripted(messages)
        for call in message.get("tool_calls", ()):
            call["id"] += f"_{number}"
        return message

    return ScriptedChat(answer)


class Place:
    """A folder where the example runs, with a model that counts its calls."""

    def __init__(self, preloaded: Preloaded, server: ScriptedChat, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.preloaded = preloaded
        self.server = server
        self.folder = folder

    def run(self, *argv: str) -> list[str]:
        """Run the example to its end and return what it printed but events."""
        ended = self.start(*argv)
        assert ended.code == 0, ended.out
        return [line for line in ended.out.splitlines() if not line.startswith("[")]

    def start(self, *argv: str) -> Ended:
        base_url = self.server.url.removesuffix("/chat/completions")
        return self.preloaded.run(MAIN, "--base-url", base_url, *argv, folder=self.folder)

    def outside(self) -> list[str]:
        path = self.folder / "outside.txt"
        return path.read_text().splitlines() if path.exists() else []

    def conversation(self) -> list[tuple[Any, ...]]:
        """Return the messages of the newest checkpoint, without what is new in each run."""
        saver = WaypointSaver(self.folder / ".caravanserai")
        found = saver.get_tuple({"configurable": {"thread_id": "offer-118"}})
        assert found is not None
        return [
            (m.type, m.content, [(c["name"], c["args"]) for c in getattr(m, "tool_calls", ())])
            for m in found.checkpoint["channel_values"]["messages"]
        ]

    def notes(self) -> list[str]:
        """Return the notes of all waypoints, in order."""
        paths = sorted(
            (self.folder / ".caravanserai" / "offer-118").glob("waypoint-*.md"),
            key=lambda path: int(path.stem.rpartition("-")[2]),
        )
        return [path.read_text(encoding="utf-8") for path in paths]


@pytest.fixture
def place(preloaded: Preloaded, tmp_path: Path) -> Iterator[Place]:
    with chat() as server:
        yield Place(preloaded, server, tmp_path)


def test_from_a_terminal_with_the_model_that_it_brings(tmp_path: Path) -> None:
    """Started twice as its head says: it asks, and goes on with the answer."""

    def run(*argv: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, str(EXAMPLE), *argv], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if not line.startswith("[")]

    assert run()[0] == QUESTION
    assert run("--answer", "yes") == [ANSWER]
    assert (tmp_path / "outside.txt").read_text().splitlines() == [LOOKED_UP, MAILED]


def test_undisturbed_it_asks_once_and_sends_once(place: Place) -> None:
    """The same line asks again without work; after the answer it prints the result, again."""
    first = place.run()
    before = (list(place.server.requests), place.outside())
    assert first[0] == QUESTION
    assert place.run() == first
    assert (place.server.requests, place.outside()) == before
    assert place.run("--answer", "yes") == [ANSWER]
    assert place.run() == [ANSWER]
    assert place.run("--answer", "no") == [ANSWER], "a finished job has nothing to be answered"
    assert place.server.requests == TALK
    assert place.outside() == [LOOKED_UP, MAILED]
    assert [run.status for run in list_runs(store=place.folder / ".caravanserai")] == ["finished"]


def test_where_the_answer_is_no_nothing_is_sent(place: Place) -> None:
    assert place.run("--answer", "no") == ["Offer 118: Not sent: the person said no."]
    assert place.outside() == [LOOKED_UP]


def undisturbed(preloaded: Preloaded, folder: Path) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the events and the conversation of a run that nobody kills."""
    with chat() as server:
        place = Place(preloaded, server, folder)
        ended = place.start("--answer", "yes")
        assert ended.out.splitlines()[-1] == ANSWER
        assert place.outside() == [LOOKED_UP, MAILED]
        return events_of(ended), place.conversation()


def events_of(ended: Ended) -> list[str]:
    return re.findall(r"^\[\d+\] (.+)$", ended.out, re.MULTILINE)


def may_repeat(events: list[str]) -> dict[str, range]:
    """Say how often model and tools may run twice, from the events up to the kill.

    What ran and whose writes had not begun to be stored runs again; what was stored does not;
    between the two, and while it runs in another thread than the one that is killed, it may.
    """
    seen = Counter(events)

    def range_of(name: str, *writes: str, but: int = 0, asked: int = 0) -> range:
        in_time = seen[f"{name} begins"] - asked - (events[-1] == f"{name} begins")
        begun = sum(seen[f"{write} begins"] for write in writes) - but
        ended = sum(seen[f"{write} ends"] for write in writes) - but
        ran = seen[f"{name} ends"]
        return range(max(0, ran - max(0, begun)), max(0, in_time) - max(0, ended) + 1)

    return {
        "model": range_of("model", CALLS, LAST),
        "look up": range_of("tool get_offer", RESULT, but=1),
        "mail": range_of("tool send_mail", ANSWERED, asked=1),
    }


def killed_at(preloaded: Preloaded, folder: Path, number: int, whole: Any) -> str:
    """Kill a run at event `number`, start it again, and say what is wrong, if anything is."""
    with chat() as server:
        place = Place(preloaded, server, folder)
        killed = place.start("--answer", "yes", "--kill-at", str(number))
        events = events_of(killed)
        assert (killed.code, len(events)) == (-signal.SIGKILL, number)
        again = place.run("--answer", "yes")
        allowed = may_repeat(events)
        seen = {
            "model": len(server.requests) - 3,
            "look up": place.outside().count(LOOKED_UP) - 1,
            "mail": place.outside().count(MAILED) - 1,
        }
        assert again == [ANSWER], (number, events[-1], again)
        assert all(seen[name] in allowed[name] for name in seen), (number, events, seen, allowed)
        assert sorted(server.requests) == server.requests, "an earlier conversation came back"
        assert place.conversation() == whole, (number, events[-1])
        return "" if sum(seen.values()) else "nothing repeated"


def test_killed_at_every_event(preloaded: Preloaded, tmp_path: Path) -> None:
    """SIGKILL before and after each model call, tool, checkpoint, write: nothing done repeats."""
    events, whole = undisturbed(preloaded, tmp_path / "whole")
    counts = [events.count(f"{name} ends") for name in ("model", CALLS, RESULT, ANSWERED, LAST)]
    assert counts == [3, 2, 2, 1, 1]
    points = list(range(1, len(events) + 1))
    halves = [points[::2], points[1::2]]

    def work(mine: list[int]) -> list[str]:
        with Preloaded("integration_tests.examples.preloaded_agent") as process:
            return [killed_at(process, tmp_path / f"kill-{n}", n, whole) for n in mine]

    with ThreadPoolExecutor(2) as pool:
        told = [word for words in pool.map(work, halves) for word in words]
    assert len(told) == len(events)
    # Only model calls and tools have effects; most events are of the saver.
    assert told.count("nothing repeated") > len(events) / 2


def test_an_answer_that_was_stored_counts_after_a_kill(place: Place) -> None:
    """Killed while the approved tool runs: the line without an answer goes on, and asks not."""
    assert place.run()[0] == QUESTION
    events = events_of(place.start("--answer", "yes", "--kill-at", "1"))
    assert events == ["tool send_mail begins"]
    assert place.run() == [ANSWER]


def test_the_notes_tell_the_story(place: Place) -> None:
    """What was called, what came back, what is asked and what was answered stand in the notes."""
    place.run()
    asking = (place.folder / ".caravanserai/offer-118/latest.md").read_text(encoding="utf-8")
    assert re.match(r"# Waypoint \d+ — \S+\n\n\*\*Waiting for a person", asking)
    for fact in ("Send this mail?", "office@northside.example", "valid to 2026-12-15", agent.TASK):
        assert fact in asking, fact
    place.run("--answer", "yes")
    notes = place.notes()
    told = [note.partition("\n\n")[2].partition("\n\n")[0] for note in notes]
    story = "\n".join(told)
    facts = (agent.TASK, "get_offer(number=118)", "40 chairs", "send_mail(", "yes", "Sent.")
    places = [story.index(fact) for fact in facts]
    assert places == sorted(places), story
    assert all(f"# Waypoint {n} — " in note for n, note in enumerate(notes, 1))
