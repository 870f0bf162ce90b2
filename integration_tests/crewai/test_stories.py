"""What real crews tell. The golden folders beside this are part of the review.

To write them anew after a change of wording: pytest integration_tests/crewai/test_stories.py with
WRITE_GOLDEN_NOTES=1; then read them.
"""

# ruff: noqa: E402

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from integration_tests.support import require

require("crewai")

from caravanserai import load
from caravanserai_core.transcript import find
from integration_tests.crewai.golden_notes import check, notes_in
from integration_tests.crewai.life import RUN, Life

GOLDEN = Path(__file__).parent / "golden"

Start = Callable[..., Life]


def undisturbed(life: Start) -> Path:
    """Three tasks, one after another."""
    one = life("report")
    one.ended()
    return one.folder


def killed_in_a_tool(life: Start) -> Path:
    """The second task had looked something up, and was at its next call when the process died."""
    one = life("report")
    one.killed("begin write_down draft")
    one.ended()
    return one.folder


def killed_after_a_task(life: Start) -> Path:
    """The process died, and nobody has started it again yet."""
    one = life("report")
    one.killed("end lookup draft")
    return one.folder


def asked_after_a_kill(life: Start) -> Path:
    """A person has to say whether the call happened, and has not said so yet."""
    one = life("report", more={"on_uncertain": {"write_down": "ask"}})
    one.killed("end write_down draft")
    assert one.ended() == {"waits": ["q1"]}
    return one.folder


def managed(life: Start) -> Path:
    """A manager delegates."""
    one = life("hierarchical")
    one.ended()
    return one.folder


def guarded(life: Start) -> Path:
    """A guardrail refused a result."""
    one = life("guarded")
    one.ended()
    return one.folder


def left_out(life: Start) -> Path:
    """The condition of the second task did not hold."""
    one = life("left out")
    one.ended()
    return one.folder


CREWS = (
    undisturbed,
    killed_in_a_tool,
    killed_after_a_task,
    asked_after_a_kill,
    managed,
    guarded,
    left_out,
)


@pytest.mark.parametrize("case", CREWS, ids=lambda case: case.__name__)
def test_a_crew_tells_its_story(case: Callable[[Start], Path], life: Start) -> None:
    """Each waypoint says what was done and what is next, in the words of the golden file."""
    check(GOLDEN / case.__name__, notes_in(case(life) / ".caravanserai" / RUN))


def test_the_conversation_of_a_real_crew_is_whole(life: Start) -> None:
    """Every call has its result, every task its answer; nothing is lost."""
    one = life("report")
    result = one.ended()
    read = find("crewai")
    assert read is not None

    found = read(load(RUN, raw=True, store=one.store))

    said = [m.text for m in found.messages if m.role == "assistant" and not m.tool_calls]
    assert said == [task["raw"] for task in result["tasks"]]
    calls = [call.name for m in found.messages for call in m.tool_calls]
    assert calls.count("lookup") == sum(m.name == "lookup" for m in found.messages)
    assert found.uncertain == ()
    assert found.losses == ()
