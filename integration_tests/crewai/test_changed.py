"""A crew that the program changed since the run was begun: what is as it was is kept."""

# ruff: noqa: E402

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from caravanserai import load
from integration_tests.support import require

require("crewai")

from integration_tests.crewai.life import RUN, Life, comparable
from integration_tests.crewai.scripts import EDITED, RATED

Whole = Callable[..., dict[str, Any]]
Start = Callable[..., Life]

EDITS = {"changed": 1, "inserted": 1, "other agent": 1, "other type": 2, "shortened": 2}
"""By edit how many tasks are as they were."""

DONE = {"begin lookup draft": 1, "begin lookup review": 2, "end write_down review": 2, None: 3}
"""By place how many tasks are done; None: the run is finished."""

NAMES = ("research", "draft", "review")


@pytest.mark.parametrize("place", DONE)
@pytest.mark.parametrize("app", EDITS)
def test_the_tasks_in_front_of_a_change_are_kept(
    life: Start, app: str, place: str | None, thorough: bool
) -> None:
    """And all behind it is done anew, in a run that was cut off or is finished."""
    if app != "changed" and place != "begin lookup review" and not thorough:
        pytest.skip("part of --thorough")
    script = [*RATED, *EDITED] if app == "other type" else EDITED
    alone = life(app, script=script)
    expected = alone.ended()
    one = life("report", script=script)
    if place is None:
        one.ended()
    else:
        one.killed(place)
    before, outside = one.asked(), one.outside()
    found = one.ended(app=app)
    assert _without_tokens(found) == _without_tokens(expected)
    kept = min(EDITS[app], DONE[place])
    # What was cut off inside of a task that is as it was goes on inside of it.
    inside = place == "begin lookup draft" and EDITS[app] == 2
    assert one.asked() - before == alone.asked() - 3 * kept - inside
    assert one.outside() - outside == alone.outside() - _lines(NAMES[:kept])
    assert _told(one, kept)
    again = one.requests()
    assert one.ended(app=app) == found
    assert one.requests() == again


def _without_tokens(found: Any) -> Any:
    """Return an outcome without its tokens: those of what is not kept were spent, too."""
    return {name: value for name, value in comparable(found).items() if name != "usage"}


def _lines(names: tuple[str, ...]) -> Counter[str]:
    """Return the lines that tasks leave."""
    tools = [(side, tool) for side in ("begin", "end") for tool in ("lookup", "write_down")]
    lines = [f"{side} {tool} {name}" for name in names for side, tool in tools]
    return Counter([*lines, *(f"then {name}" for name in names)])


def _told(one: Life, kept: int) -> bool:
    """Say whether a note tells that the first tasks are kept."""
    said = "Task 1 is kept." if kept == 1 else "Tasks 1 and 2 are kept."
    notes = (one.folder / ".caravanserai" / RUN).glob("waypoint-*.md")
    return any(said in note.read_text() for note in notes)


@pytest.mark.parametrize("way", ["kickoff_async", "akickoff"])
def test_a_changed_first_task_begins_anew(life: Start, way: str) -> None:
    """Nothing can be kept."""
    one = life("report", way=way)
    one.killed("begin lookup draft")
    before = one.asked()
    found = one.ended(app="renamed")
    assert [task["name"] for task in found["tasks"]] == list(NAMES)
    assert one.asked() - before == 9


def test_a_change_back_is_a_change(life: Start, whole: Whole) -> None:
    """What the other crew did is not taken for what this one did before it."""
    one = life("report", script=EDITED)
    one.killed("begin lookup review")
    one.killed("begin lookup draft", app="inserted")
    found = one.ended()
    expected = whole("report")["result"]
    assert _without_tokens(found) == _without_tokens(expected)
    assert load(RUN, store=one.store)["at"] == "end"
