"""What frameworks ask of a checkpointer, a session, a session store, a persistence: on servers."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings, strategies

from integration_tests.support import require

for _module in ("langgraph.checkpoint.conformance", "agents", "crewai", "claude_agent_sdk"):
    require(_module)

from claude_agent_sdk.testing import run_session_store_conformance

from caravanserai.claude_agent import WaypointSessionStore
from caravanserai.crewai import WaypointFlowPersistence
from caravanserai_core.stores import Store, open_store
from integration_tests.crewai_flows.test_persistence import _context
from integration_tests.crewai_flows.test_persistence import (
    test_a_state_that_cannot_be_kept_leaves_the_one_before as test_flows_keep_the_state_before,
)
from integration_tests.crewai_flows.test_persistence import (
    test_the_newest_state_comes_back_in_another_object as test_flows_give_the_newest_state,
)
from integration_tests.langgraph.test_conformance import (
    test_every_check_of_the_conformance_kit_passes as test_langgraphs_conformance_kit,
)
from integration_tests.openai_agents import test_waypoint_session as sessions
from integration_tests.openai_agents.test_waypoint_session import (
    test_a_conversation_with_tools_goes_on_in_it as test_a_session_goes_on,
)
from integration_tests.openai_agents.test_waypoint_session import (
    test_it_is_cleared_forked_and_read_at_each_step_as_any_run as test_a_session_is_a_run,
)
from integration_tests.openai_agents.test_waypoint_session import (
    test_it_serves_a_run_that_is_itself_kept as test_a_session_serves_a_kept_run,
)

__all__ = [
    "test_a_session_goes_on",
    "test_a_session_is_a_run",
    "test_a_session_serves_a_kept_run",
    "test_flows_give_the_newest_state",
    "test_flows_keep_the_state_before",
    "test_langgraphs_conformance_kit",
]


@pytest.fixture(autouse=True)
def _by_default(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what names no store use the server's."""
    monkeypatch.setenv("CARAVANSERAI_STORE", url)


@pytest.fixture
def kept(url: str) -> WaypointFlowPersistence:
    return WaypointFlowPersistence(store=url)


def test_a_pause_of_a_flow_comes_back_until_it_is_over(kept: WaypointFlowPersistence) -> None:
    kept.save_state("f", "draft", {"id": "f"})
    kept.save_pending_feedback("f", _context(), {"id": "f", "n": 1})
    other = WaypointFlowPersistence(store=kept.store)
    found = other.load_pending_feedback("f")
    assert found is not None
    assert found[0] == {"id": "f", "n": 1}
    other.clear_pending_feedback("f")
    assert kept.load_pending_feedback("f") is None
    assert kept.load_state("f") == {"id": "f", "n": 1}


@pytest.fixture
def opened(new_url: Callable[[], str]) -> Iterator[Callable[[], Store]]:
    """Return what opens one empty store after the other, and closes them at the end."""
    stores: list[Store] = []

    def new() -> Store:
        stores.append(open_store(new_url()))
        return stores[-1]

    yield new
    for store in stores:
        store.close()


def test_a_session_gives_what_sqlite_session_gives(
    opened: Callable[[], Store], monkeypatch: pytest.MonkeyPatch, thorough: bool
) -> None:
    monkeypatch.setattr(sessions, "MemoryStore", opened)
    compare: Any = sessions.test_it_gives_what_sqlite_session_gives
    asked = given(steps=sessions.steps, limit=strategies.none())
    settings(max_examples=50 if thorough else 8)(asked(compare.hypothesis.inner_test))()


def test_the_claude_sdks_contract_of_session_stores(opened: Callable[[], Store]) -> None:
    """All 14 points, the optional ones too."""
    asyncio.run(run_session_store_conformance(lambda: WaypointSessionStore(opened())))
