"""The adapter changes nothing about a crew that nobody kills."""

# ruff: noqa: E402

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from integration_tests.support import require

require("crewai")

from integration_tests.crewai.life import comparable
from integration_tests.crewai.scripts import SCRIPTS

Whole = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("app", SCRIPTS)
def test_a_crew_gives_what_it_gives_without_waypoints(whole: Whole, app: str) -> None:
    """The same result and messages, tokens, requests, calls of tools and of callbacks."""
    plain = whole(app, plain=True)
    kept = whole(app)
    assert comparable(kept["result"]) == comparable(plain["result"])
    assert kept["answers"] == plain["answers"]
    assert kept["outside"] == plain["outside"]
