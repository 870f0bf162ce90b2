"""Every adapter on a server: killed jobs, with the store's URL as the only change."""

# ruff: noqa: E402

from __future__ import annotations

import signal
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from integration_tests.support import require

for _module in ("langgraph", "agents", "crewai", "claude_agent_sdk"):
    require(_module)

from caravanserai_core.stores import open_store
from caravanserai_core.testing import AdapterTests, Job
from caravanserai_core.verify import verify
from integration_tests.adapters.test_claude_agent import TestClaudeAgent
from integration_tests.adapters.test_crewai import TestCrewAI
from integration_tests.adapters.test_langgraph import TestLangGraph
from integration_tests.adapters.test_openai_agents import TestOpenAIAgents
from integration_tests.adapters.test_plain import TestPlain

# Under other names, so that they are not collected here with all of their tests.
ADAPTERS = {
    kind.__name__: kind
    for kind in (TestPlain, TestLangGraph, TestOpenAIAgents, TestCrewAI, TestClaudeAgent)
}
del TestPlain, TestLangGraph, TestOpenAIAgents, TestCrewAI, TestClaudeAgent


@pytest.fixture
def job(url: str, tmp_path: Path) -> Job:
    return Job("job", url, str(tmp_path / "log.txt"))


@pytest.fixture(params=list(ADAPTERS), scope="module")  # so that each is imported once
def adapter(request: pytest.FixtureRequest) -> AdapterTests:
    found: AdapterTests = ADAPTERS[request.param]()
    return found


def test_a_job_that_is_killed_inside_a_tool(adapter: AdapterTests, job: Job) -> None:
    """What was done is not repeated unasked, and a person's answer from elsewhere settles it."""
    adapter.test_an_effect_that_did_not_report_is_named_and_not_repeated_unasked(job, "end send", 1)


def test_a_job_on_azure(azure: Callable[[str], str], tmp_path: Path) -> None:
    """One of them on the third kind of server."""
    job = Job("job", azure(uuid.uuid4().hex), str(tmp_path / "log.txt"))
    ADAPTERS["TestPlain"]().test_an_effect_that_did_not_report_is_named_and_not_repeated_unasked(
        job, "end send", 1
    )


def test_a_job_that_is_killed_at_a_pause(adapter: AdapterTests, job: Job) -> None:
    """It waits through restarts and a kill behind the answer, and does each step once."""
    asking = job._replace(asks=True)
    for _ in range(2):
        assert adapter.run(asking).waits
    assert adapter.status(job) == "waiting"
    assert adapter.answer(job, "yes").returncode == 0
    assert adapter.run(asking._replace(kill="begin sum")).code == -signal.SIGKILL
    assert adapter.run(asking).result == ["look done", "send done", "sum done"]
    assert adapter.run(asking).result == ["look done", "send done", "sum done"]

    done = adapter.done(job)
    assert done == Counter(
        {f"{at} {step}": 1 for step in ("look", "send") for at in ("begin", "end")}
        | {"begin sum": 2, "end sum": 1}
    )
    store = open_store(job.store)
    assert not verify(store, job.run_id).damaged
    store.close()
