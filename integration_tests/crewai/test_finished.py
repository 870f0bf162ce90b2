"""A run that is finished, is begun anew, has other inputs, or is busy."""

# ruff: noqa: E402

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from caravanserai import RunBusy, load
from integration_tests.support import require

require("crewai")

from caravanserai.crewai import waypoints
from integration_tests.crewai import apps
from integration_tests.crewai.life import RUN, Life, comparable
from integration_tests.openai_agents.scripted import by_rules

Whole = Callable[..., dict[str, Any]]
Start = Callable[..., Life]


@pytest.mark.parametrize("way", ["kickoff", "kickoff_async", "akickoff"])
@pytest.mark.parametrize("killed", [False, True])
def test_other_inputs_are_refused_and_both_are_shown(life: Start, way: str, killed: bool) -> None:
    """Finished or not; nothing runs, and the run goes on with its own."""
    one = life("report", way=way)
    if killed:
        one.killed("begin lookup draft")
    else:
        one.ended()
    before = one.requests(), one.outside()
    for inputs in ({"topic": "wasps"}, {"topic": "bees", "year": 2026}, None):
        said = one.refused(inputs=inputs)
        assert "InputChanged" in said
        assert "bees" in said
        assert str((inputs or {}).get("topic")) in said
    assert (one.requests(), one.outside()) == before
    assert "after value" in one.ended()["raw"] or "kept review" in one.ended()["raw"]


def test_inputs_name_the_run(life: Start, whole: Whole) -> None:
    """With a template other inputs are another run."""
    one = life("report", run_id="job-{topic}")
    assert comparable(one.ended()) == comparable(whole("report")["result"])
    one.ended(inputs={"topic": "wasps"})
    assert one.requests() == 2 * whole("report")["answers"]


def test_an_input_that_names_the_run_has_to_be_there(life: Start) -> None:
    one = life("report", run_id="job-{year}")
    said = one.refused()
    assert "UsageError" in said
    assert "year" in said
    assert one.requests() == 0


@pytest.mark.parametrize("killed", [False, True])
def test_again_begins_anew(life: Start, whole: Whole, killed: bool) -> None:
    """Whatever is recorded, also with other inputs."""
    one = life("report")
    if killed:
        one.killed("begin lookup review")
    else:
        one.ended()
    before = one.asked()
    found = one.ended(more={"again": True})
    assert comparable(found) == comparable(whole("report")["result"])
    assert one.asked() - before == whole("report")["answers"]
    one.ended(more={"again": True}, inputs={"topic": "wasps"})
    assert load(RUN, store=one.store)["given"] == {"topic": "wasps"}
    assert comparable(one.ended(inputs={"topic": "wasps"}))


def test_a_new_begin_that_was_killed_goes_on_without_again(life: Start, whole: Whole) -> None:
    """What was recorded before it does not count."""
    one = life("report")
    one.ended()
    before = one.asked()
    one.killed("begin lookup draft", more={"again": True})
    found = one.ended()
    assert comparable(found) == comparable(whole("report")["result"])
    assert one.asked() - before == whole("report")["answers"]


def test_a_run_that_another_process_works_on_is_busy(life: Start, whole: Whole) -> None:
    """The second is refused before it asks anything; the first ends as if it were alone."""
    working, go_on = threading.Event(), threading.Event()

    def held(asked: Any) -> Any:
        working.set()
        assert go_on.wait(60)
        return by_rules(script, asked)

    one = life("report")
    script, one.script = one.script, held
    found: list[Any] = []
    first = threading.Thread(target=lambda: found.append(one.ended()))
    first.start()
    try:
        assert working.wait(60)
        crew = apps.build("report", one.server.url)
        crew.task_callback = waypoints(RUN, store=one.store)
        with pytest.raises(RunBusy):
            crew.kickoff(inputs={"topic": "bees"})
    finally:
        go_on.set()
        first.join(60)
    assert comparable(found[0]) == comparable(whole("report")["result"])
    assert one.requests() == whole("report")["answers"]
