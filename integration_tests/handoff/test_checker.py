"""A machine that has only the note and the handoff finds what it needs to go on.

The job of each adapter's promises is brought to where it waits for a person. What reads its note
knows nothing of the framework, and no program of it is there.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from caravanserai import handoff
from caravanserai_core.stores import open_store
from caravanserai_core.testing import AdapterTests, Job
from caravanserai_core.verify import renew_notes
from integration_tests.support import require

ADAPTERS = {
    "plain": "",
    "langgraph": "langgraph",
    "openai_agents": "agents",
    "crewai": "crewai",
    "claude_agent": "claude_agent_sdk",
}


class Read(NamedTuple):
    """What was found in a text."""

    goal: str
    next: str
    question: str
    answers: list[str]
    resume: str


def section(text: str, title: str) -> str:
    """Return a section of a note, "" if it has none."""
    found = re.search(
        rf"^## {title}[^\n]*\n\n(.*?)(?=\n## |\n---\n|\Z)", text, re.DOTALL | re.MULTILINE
    )
    return found[1].strip() if found else ""


def read_note(text: str) -> Read:
    """Read a note, and nothing else."""
    asked = re.search(r"^## To decide \((q\d+)\)$", text, re.MULTILINE)
    question = asked[1] if asked else ""
    resume = re.search(r"`(caravanserai resume [^`]+)`", text)
    return Read(
        section(text, "Goal"),
        section(text, "Next"),
        question,
        re.findall(rf"^caravanserai answer \S+ {question} .*$", text, re.MULTILINE),
        resume[1] if resume else "",
    )


def read_handoff(text: str) -> Read:
    """Read a handoff, and nothing else."""
    waiting = section(text, "Waiting for a person")
    asked = re.match(r"\*\*(q\d+):\*\*", waiting)
    question = asked[1] if asked else ""
    resume = re.search(r"`(caravanserai resume [^`]+)`", text)
    return Read(
        section(text, "Goal"),
        section(text, "Next"),
        question,
        re.findall(rf"^caravanserai answer \S+ {question} .*$", waiting, re.MULTILINE),
        resume[1] if resume else "",
    )


@pytest.mark.parametrize("name", ADAPTERS)
def test_who_reads_finds_what_it_needs(name: str, tmp_path: Path) -> None:
    if ADAPTERS[name]:
        require(ADAPTERS[name])
    module = importlib.import_module(f"integration_tests.adapters.test_{name}")
    tests = next(
        one
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, AdapterTests) and one is not AdapterTests
    )
    job = Job("job", str(tmp_path / "store"), str(tmp_path / "log.txt"), asks=True)
    assert tests().run(job).waits
    store = open_store(job.store)
    renew_notes(store, "job")

    note = read_note(Path(store.where("job"), "latest.md").read_text(encoding="utf-8"))
    handed = read_handoff(handoff("job", store=store).text)

    for found in (note, handed):
        assert found.question == "q1"
        assert found.answers == [
            "caravanserai answer job q1 yes",
            "caravanserai answer job q1 no",
        ]
        assert found.resume == "caravanserai resume job"
        assert found.next or name == "plain"  # the program of that says nothing
    if name not in ("plain", "langgraph"):  # these are told no goal, and have no message
        assert note.goal
        assert handed.goal.startswith(note.goal)
    assert tests().answer(job, "yes").returncode == 0
    assert not read_handoff(handoff("job", store=store).text).question
