"""Fixtures of the tests of handoffs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.handoff.relay import WARMED, Relay
from integration_tests.preloaded import Preloaded
from integration_tests.support import require

FRAMEWORKS = ("langgraph", "agents", "crewai", "claude_agent_sdk")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # CrewAI 1.15.30 never closes the clients of its models: each goes when it is collected, in
    # whatever code that happens.
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))


@pytest.fixture(scope="session")
def everything() -> Iterator[Preloaded]:
    """Return what forks programs of all frameworks."""
    for module in FRAMEWORKS:
        require(module)
    with Preloaded(WARMED) as process:
        yield process


@pytest.fixture
def relay(everything: Preloaded, tmp_path: Path) -> Iterator[Relay]:
    """Return a job that goes from framework to framework."""
    folder = tmp_path / "relay"
    folder.mkdir()
    with Relay(everything, folder) as one:
        yield one
