"""Starts that are refused before any work: they change nothing of what is known of the run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, MaxTurnsExceeded

from caravanserai import InputChanged, SchemaMismatch, answer, list_runs
from caravanserai.openai_agents import Runner
from integration_tests.openai_agents.paused import QUIET, RUN, TASK, agent_of, model_of, start


def status(store: Path) -> str:
    """Return the run's status as lists have it."""
    return next(info.status for info in list_runs(store=store) if info.run_id == RUN)


def begin(way: str, agent: Agent[Any], given: Any, store: Path, **more: Any) -> Any:
    """Start the run in one of two ways, or go on with it."""
    options: dict[str, Any] = {"run_id": RUN, "store": store, "run_config": QUIET, **more}
    if way == "run":
        return Runner.run_sync(agent, given, **options)

    async def streamed() -> Any:
        result = Runner.run_streamed(agent, given, **options)
        async for _ in result.stream_events():
            pass
        return result

    return asyncio.run(streamed())


@pytest.mark.parametrize("way", ["run", "stream"])
def test_a_refused_start_leaves_a_run_that_waits_and_one_that_is_finished(
    tmp_path: Path, way: str
) -> None:
    done: list[str] = []

    def refused() -> None:
        agent = agent_of(model_of(), done.append)
        with pytest.raises(InputChanged):
            begin(way, agent, "Pay 8.", tmp_path)
        renamed = agent_of(model_of(), done.append, name="other")
        with pytest.raises(SchemaMismatch, match="rename_agent"):
            start(renamed, tmp_path)

    start(agent_of(model_of(), done.append), tmp_path)
    refused()
    assert status(tmp_path) == "waiting"
    answer(RUN, True, store=tmp_path)
    start(agent_of(model_of(), done.append), tmp_path)
    refused()

    assert status(tmp_path) == "finished"
    assert "failed" not in (tmp_path / RUN / "latest.md").read_text(encoding="utf-8")
    assert done == ["look_up 7", "pay 7 40"]


@pytest.mark.parametrize("way", ["run", "stream"])
def test_a_run_state_of_another_run_is_refused(tmp_path: Path, way: str) -> None:
    """Decided once, an approval pays once, also where the run_id is misspelt."""
    done: list[str] = []
    agent = agent_of(model_of(), done.append)
    result = begin(way, agent, TASK, tmp_path)
    state = result.to_state()
    state.approve(result.interruptions[0])

    with pytest.raises(InputChanged, match=RUN):
        Runner.run_sync(agent, state, run_id="typo", store=tmp_path, run_config=QUIET)
    assert done == ["look_up 7"]
    ended = Runner.run_sync(agent, state, run_id=RUN, store=tmp_path, run_config=QUIET)

    assert ended.final_output == "Done."
    assert done == ["look_up 7", "pay 7 40"]
    assert [info.run_id for info in list_runs(store=tmp_path)] == [RUN]


@pytest.mark.parametrize("way", ["run", "stream"])
def test_used_up_turns_say_what_to_do(tmp_path: Path, way: str) -> None:
    done: list[str] = []
    agent = agent_of(model_of(), done.append)
    with pytest.raises(MaxTurnsExceeded):
        begin(way, agent, TASK, tmp_path, max_turns=1)

    assert status(tmp_path) == "failed"
    note = (tmp_path / RUN / "latest.md").read_text(encoding="utf-8")
    assert "Start it again with a higher max_turns to go on." in note
    result = start(agent, tmp_path, max_turns=5)
    assert len(result.interruptions) == 1
    assert done == ["look_up 7"]
