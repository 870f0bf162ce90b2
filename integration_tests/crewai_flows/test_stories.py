"""What real flows tell. The golden folders beside this are part of the review.

To write them anew after a change of wording: pytest integration_tests/crewai_flows/test_stories.py
with WRITE_GOLDEN_NOTES=1; then read them.
"""

# ruff: noqa: E402

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.support import require

require("crewai")

from caravanserai import answer
from integration_tests.crewai.golden_notes import check, notes_in
from integration_tests.crewai_flows.test_flows import FLOWS, RUN, Kickoffs
from integration_tests.preloaded import Preloaded

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    with Preloaded(FLOWS) as process:
        yield process


@pytest.fixture
def kickoffs(preloaded: Preloaded, tmp_path: Path) -> Kickoffs:
    return Kickoffs(preloaded, tmp_path)


def _notes(kickoffs: Kickoffs) -> dict[str, str]:
    return notes_in(kickoffs.folder / ".caravanserai" / RUN)


def test_a_flow_tells_its_story(kickoffs: Kickoffs) -> None:
    """A loop, killed in its second round and in its third."""
    kickoffs.kill("looping", "count 2")
    kickoffs.kill("looping", "decide B3")

    check(GOLDEN / "killed", _notes(kickoffs))


def test_a_flow_that_waits_tells_what_it_waits_for(kickoffs: Kickoffs) -> None:
    """Paused for feedback, answered, paused again, answered and ended."""
    for said in ("shorter, please", "good"):
        assert "pending" in kickoffs.ended("reviewing")
        answer(RUN, said, store=kickoffs.store, by="ana")
    assert "result" in kickoffs.ended("reviewing")

    check(GOLDEN / "paused", _notes(kickoffs))
