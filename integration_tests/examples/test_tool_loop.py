"""`examples/tool_loop.py`, killed anywhere: nothing that is finished runs twice."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from integration_tests.examples.scripted_chat import ScriptedChat
from integration_tests.support import ROOT

EXAMPLE = ROOT / "examples" / "tool_loop.py"
RUNNER = Path(__file__).with_name("killing_runner.py")
ANSWER = "Done: tea is ordered."

# What an undisturbed run does.
TALK = [1, 4, 6]
SHOP = ["price tea", "price honey", "order tea"]


@pytest.fixture
def chat() -> Iterator[ScriptedChat]:
    with ScriptedChat() as server:
        yield server


def start(chat: ScriptedChat, folder: Path, *command: str) -> subprocess.Popen[str]:
    env = {**os.environ, "MODEL_URL": chat.url, "SHOP": str(folder / "shop.txt")}
    return subprocess.Popen(
        [sys.executable, *command],
        env=env,
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out.splitlines()


def shop(folder: Path) -> list[str]:
    lines = (folder / "shop.txt").read_text().splitlines()
    return [line.rpartition(" ")[0] for line in lines]


def test_undisturbed(chat: ScriptedChat, tmp_path: Path) -> None:
    """Three model calls, three tools; started again it prints its answer and asks nobody."""
    first = finish(start(chat, tmp_path, str(EXAMPLE)))
    again = finish(start(chat, tmp_path, str(EXAMPLE)))
    assert first[-1] == ANSWER
    assert again == [ANSWER]
    assert chat.requests == TALK
    assert shop(tmp_path) == SHOP


def test_without_a_model_it_says_what_to_set(tmp_path: Path) -> None:
    """One sentence on the error stream and exit code 2; nothing is begun."""
    env = {name: value for name, value in os.environ.items() if name != "MODEL_URL"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Set MODEL_URL ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_it_imports_what_a_user_has() -> None:
    """Only the public package and Python's own modules."""
    imports = re.findall(r"^(?:from|import) (\w+\S*)", EXAMPLE.read_text(), re.MULTILINE)
    assert "caravanserai" in imports
    assert not [name for name in imports if name.startswith("caravanserai_core")]


def events_of_a_run(folder: Path) -> list[str]:
    folder.mkdir()
    with ScriptedChat() as chat:
        finish(start(chat, folder, str(RUNNER), str(EXAMPLE), "0", str(folder / "events")))
    return (folder / "events").read_text().splitlines()


def killed_at(folder: Path, number: int) -> tuple[list[int], list[str], str]:
    """Kill a run at its event `number`, start it again, and return what model and shop saw."""
    folder.mkdir()
    with ScriptedChat() as chat:
        runner = (str(RUNNER), str(EXAMPLE), str(number), str(folder / "events"))
        process = start(chat, folder, *runner)
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
        out = finish(start(chat, folder, str(EXAMPLE)))
        return chat.requests, shop(folder), out[-1]


def expected(events: list[str], number: int) -> tuple[list[int], list[str]]:
    """Say what model and shop see if the run is killed at event `number`: only what began and had
    no waypoint yet is there twice."""
    models = tools = 0
    flight = ""
    for name in events[:number]:
        if name == "model begins":
            continue  # killed before the request is sent
        if name == "model ends":
            models, flight = models + 1, "model"
        elif name == "tool ends":
            tools, flight = tools + 1, "tool"
        elif name == "checkpoint ends":
            flight = ""
    talk, visits = list(TALK), list(SHOP)
    if flight == "model":
        talk.insert(models, talk[models - 1])
    # An order is recognised by the id of its call; a price is looked up again.
    if flight == "tool" and visits[tools - 1].startswith("price"):
        visits.insert(tools, visits[tools - 1])
    return talk, visits


def test_killed_at_every_event(tmp_path: Path) -> None:
    """SIGKILL before and after each model call, tool, entry, waypoint: nothing done repeats."""
    events = events_of_a_run(tmp_path / "whole")
    assert [events.count(f"{name} ends") for name in ("model", "tool", "checkpoint")] == [3, 3, 6]
    points = range(1, len(events) + 1)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 2)) as pool:
        seen = list(pool.map(lambda n: killed_at(tmp_path / f"kill-{n}", n), points))
    for number, (talk, visits, answer) in zip(points, seen, strict=True):
        event = f"killed at event {number}, {events[number - 1]}"
        assert (talk, visits) == expected(events, number), event
        # An order that was found to be carried out already says so in the end.
        assert answer in (ANSWER, "Done: tea is ordered already."), event


@pytest.mark.parametrize("request_number", [1, 2, 3])
def test_killed_while_the_model_answers(
    chat: ScriptedChat, tmp_path: Path, request_number: int
) -> None:
    """A kill during a model call: that one is made again, and no other."""
    process = start(chat, tmp_path, str(EXAMPLE))
    chat.on_request = lambda number: process.kill() if number == request_number else None
    process.communicate(timeout=60)
    chat.on_request = None
    assert finish(start(chat, tmp_path, str(EXAMPLE)))[-1] == ANSWER
    talk = list(TALK)
    talk.insert(request_number, talk[request_number - 1])
    assert chat.requests == talk
    assert shop(tmp_path) == SHOP


def test_the_note_says_what_was_in_flight(tmp_path: Path) -> None:
    """After a kill inside a tool, latest.md names the call that began."""
    events = events_of_a_run(tmp_path / "whole")
    folder = tmp_path / "killed"
    folder.mkdir()
    with ScriptedChat() as chat:
        at = str(events.index("tool ends") + 1)
        start(chat, folder, str(RUNNER), str(EXAMPLE), at, str(folder / "events")).wait(60)
    text = (folder / ".caravanserai/tool-loop/latest.md").read_text(encoding="utf-8")
    assert 'Since then: `price({"item": "tea"})` began.' in text
