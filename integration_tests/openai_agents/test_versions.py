"""Old state and new code: another SDK, other agents, other tools, other instructions."""

from __future__ import annotations

import re
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, RunHooks, function_tool

from caravanserai import JournalDamaged, SchemaMismatch, answer, load
from caravanserai.openai_agents.migrations import rename_agent
from integration_tests.openai_agents.paused import RUN, Scripted, agent_of, model_of, start

GOLDEN = Path(__file__).with_name("golden") / "paused"
HERE = version("openai-agents")


class Stops(Exception):
    """Ends a start, as a crash would."""


class Stopping(RunHooks[Any]):
    """Ends a start when a model has answered for the n-th time, before its tools begin."""

    def __init__(self, answers: int) -> None:
        self.left = answers

    async def on_llm_end(self, *_: Any, **__: Any) -> None:
        self.left -= 1
        if not self.left:
            raise Stops


def number_of(text: str) -> tuple[int, ...]:
    """Return a version as numbers."""
    return tuple(int(part) for part in text.split(".")[:2])


@pytest.mark.parametrize("folder", sorted(GOLDEN.iterdir()), ids=lambda path: path.name)
def test_a_run_of_another_version_of_the_sdk_goes_on_or_is_refused(
    tmp_path: Path, folder: Path
) -> None:
    """The SDK reads what older ones wrote; of what a newer one wrote it is said who can."""
    store, done = tmp_path / "store", list[str]()
    shutil.copytree(folder, store)
    answer(RUN, True, store=store)
    model = model_of()

    if number_of(folder.name) > number_of(HERE):
        with pytest.raises(SchemaMismatch) as refused:
            start(agent_of(model, done.append), store)
        assert folder.name in str(refused.value)
        assert HERE in str(refused.value)
        assert done == []
        return
    result = start(agent_of(model, done.append), store)

    assert result.final_output == "Done."
    assert (done, model.asked) == (["pay 7 40"], 1)


def test_a_renamed_agent_is_named_and_a_migration_leads_to_it(tmp_path: Path) -> None:
    done: list[str] = []
    start(agent_of(model_of(), done.append), tmp_path)
    answer(RUN, True, store=tmp_path)

    def renamed() -> Agent[Any]:
        return agent_of(model_of(), done.append, name="accounts")

    with pytest.raises(SchemaMismatch) as refused:
        start(renamed(), tmp_path)
    assert '"clerk"' in str(refused.value)
    assert '"accounts"' in str(refused.value)
    assert "rename_agent('clerk', …)" in str(refused.value)
    assert done == ["look_up 7"]
    result = start(renamed(), tmp_path, migrations=[rename_agent("clerk", "accounts")])

    assert result.final_output == "Done."
    assert result.last_agent.name == "accounts"
    assert done == ["look_up 7", "pay 7 40"]


def test_a_tool_that_is_gone_is_named(tmp_path: Path) -> None:
    """The model called it, and the process ended before it ran."""
    done: list[str] = []
    with pytest.raises(Stops):
        start(agent_of(model_of(), done.append), tmp_path, hooks=Stopping(1))

    @function_tool
    def find(bill: int) -> str:
        """Find a bill."""
        raise AssertionError

    model = model_of()
    bare = Agent(name="clerk", instructions="Pay.", model=model, tools=[find])
    with pytest.raises(SchemaMismatch) as refused:
        start(bare, tmp_path)
    assert "look_up" in str(refused.value)
    assert "find" in str(refused.value)
    assert model.asked == 0
    whole = model_of()
    answered = start(agent_of(whole, done.append), tmp_path)

    assert len(answered.interruptions) == 1
    assert (done, whole.asked) == (["look_up 7"], 1)


def test_changed_instructions_are_told_and_keep_what_is_recorded(tmp_path: Path) -> None:
    done: list[str] = []
    with pytest.raises(Stops):
        start(agent_of(model_of(), done.append), tmp_path, hooks=Stopping(1))

    model = model_of()
    other = agent_of(model, done.append, instructions="Pay at once.")
    result = start(other, tmp_path)

    assert len(result.interruptions) == 1
    assert (done, model.asked) == (["look_up 7"], 1)
    note = (tmp_path / RUN / "waypoint-2.md").read_text(encoding="utf-8")
    decided = note.partition("## Decided")[2]
    assert 'The instructions of "clerk" are not those of waypoint 1' in decided
    # Told once: the next start has the same ones.
    start(other, tmp_path)
    latest = (tmp_path / RUN / "latest.md").read_text(encoding="utf-8")
    assert "The instructions of" not in latest


def test_instructions_of_a_function_may_differ_at_each_start(tmp_path: Path) -> None:
    """They hold the date, or who asks: nothing is told, and nothing is asked again."""
    number = iter(range(100))
    done: list[str] = []

    def agent(model: Scripted) -> Agent[Any]:
        made = agent_of(model, done.append)
        made.instructions = lambda context, agent: f"It is {next(number)}."
        return made

    with pytest.raises(Stops):
        start(agent(model_of()), tmp_path, hooks=Stopping(1))
    model = model_of()
    start(agent(model), tmp_path)

    assert (done, model.asked) == (["look_up 7"], 1)


def test_an_approval_cannot_be_written_into_the_file(tmp_path: Path) -> None:
    """What is recorded is chained; who edits it by hand gets no payment for it."""
    done: list[str] = []
    start(agent_of(model_of(), done.append), tmp_path)
    journal = tmp_path / RUN / "journal-1.jsonl"
    text = journal.read_text(encoding="utf-8")
    forged = re.sub(r'"approvals":\{[^}]*\}', '"approvals":{"pay":{"approved":true}}', text)
    assert forged != text
    journal.write_text(forged, encoding="utf-8")

    with pytest.raises(JournalDamaged):
        start(agent_of(model_of(), done.append), tmp_path)
    assert done == ["look_up 7"]
    with pytest.raises(JournalDamaged):
        load(RUN, store=tmp_path)
