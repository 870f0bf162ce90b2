"""The ways of CrewAI to kick a crew off: for each of some inputs, twice, in threads."""

# ruff: noqa: E402

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caravanserai import list_runs
from integration_tests.support import require

require("crewai")

from crewai import Agent, Crew, Task

from caravanserai.crewai import resumable_crew, waypoints
from integration_tests.crewai import apps
from integration_tests.crewai.checking import check_killed
from integration_tests.crewai.life import RUN, Life, comparable
from integration_tests.crewai.scripts import EVALUATED

Whole = Callable[..., dict[str, Any]]
Start = Callable[..., Life]

EACH = [{"topic": "bees"}, {"topic": "wasps"}, {"topic": "ants"}]
FOR_EACH: dict[str, Any] = {"inputs": EACH, "run_id": "job-{topic}"}
WAYS = {"kickoff_for_each": 1, "kickoff_for_each_async": 3, "akickoff_for_each": 3}
"""By way how many of the runs are worked on at once."""

OTHERS = "integration_tests.crewai.others"


@pytest.mark.parametrize("way", WAYS)
def test_each_of_some_inputs_is_a_run_of_its_own(
    life: Start, whole: Whole, way: str, thorough: bool
) -> None:
    """Killed, and started again: what is finished is given again, the others go on."""
    undisturbed = whole("report", way=way, **FOR_EACH)
    places = [f"request {number}" for number in range(1, 28)]
    for place in places if thorough else random.sample(places[9:], 1):
        one = life("report", way=way, **FOR_EACH)
        one.killed(place)
        found = one.ended()
        assert len(found) == 3
        assert [_without_tokens(each) for each in found] == [
            _without_tokens(each) for each in undisturbed["result"]
        ]
        at_once = WAYS[way]
        assert 1 <= one.requests() - undisturbed["answers"] <= at_once
        assert not undisturbed["outside"] - one.outside()
        again = one.outside() - undisturbed["outside"]
        assert again.total() <= 2 * (at_once - 1)
        runs = {run.run_id: run.status for run in list_runs(store=one.store)}
        assert runs == {f"job-{each['topic']}": "finished" for each in EACH}
        before = one.requests()
        assert one.ended() == found
        assert one.requests() == before


def _without_tokens(found: Any) -> Any:
    """Return an outcome without its tokens, which the crews of a process count together."""
    return {name: value for name, value in comparable(found).items() if name != "usage"}


def test_without_a_template_there_is_one_run_for_all_inputs(life: Start) -> None:
    """So it is refused before anything runs."""
    for way in WAYS:
        one = life("report", way=way, inputs=EACH)
        said = one.refused()
        assert "UsageError" in said
        assert "report-{topic}" in said
        assert one.requests() == 0
        assert not (one.folder / ".caravanserai").exists()


def test_two_inputs_of_one_name_are_refused(life: Start) -> None:
    one = life("report", way="kickoff_for_each", inputs=[EACH[0], EACH[0]], run_id="job-{topic}")
    said = one.refused()
    assert "inputs 1 and 2 of kickoff_for_each would both be run 'job-bees'" in said
    assert one.requests() == 0


def test_a_crew_that_is_kicked_off_twice_gives_what_it_gave(life: Start, whole: Whole) -> None:
    """In one process, by the same object."""
    one = life("report", each=[{"topic": "bees"}] * 2)
    first, second = one.ended(job=f"{OTHERS}:twice")
    assert first == second
    assert comparable(first) == comparable(whole("report")["result"])
    assert one.requests() == whole("report")["answers"]


@pytest.mark.parametrize("place", [None, "request 5", "request 14"])
def test_a_crew_that_is_kicked_off_with_other_inputs_works_anew(
    life: Start, place: str | None
) -> None:
    """Nothing of the run before is taken for its own, neither in this process nor in the next."""
    other = life("report", each=EACH[:2], plain=True)
    expected = other.ended(job=f"{OTHERS}:twice")
    one = life("report", each=EACH[:2], run_id="job-{topic}")
    if place is not None:
        one.killed(place, job=f"{OTHERS}:twice")
    found = one.ended(job=f"{OTHERS}:twice")
    if place is None:
        assert comparable(found) == comparable(expected)
    # CrewAI counts the tokens of a kickoff with those of the kickoffs before it in its process.
    assert [_without_tokens(each) for each in found] == [_without_tokens(each) for each in expected]
    assert one.asked() == other.asked()
    assert one.outside() == other.outside()


@pytest.mark.parametrize("app", ["report", "parallel", "guarded"])
def test_crews_in_threads_do_not_meet(life: Start, whole: Whole, app: str) -> None:
    """Killed, and started again: each has what it would have alone."""
    one = life(app, each=EACH[:2], run_id="job-{topic}")
    one.killed("request 7", job=f"{OTHERS}:threads")
    first, second = one.ended(job=f"{OTHERS}:threads")
    alone = whole(app)["result"]
    assert comparable(first) == comparable(alone)
    assert comparable(_of_bees(second)) == comparable(alone)
    assert whole(app)["answers"] * 2 + 1 <= one.requests() <= whole(app)["answers"] * 2 + 2


def _of_bees(found: Any) -> Any:
    for task in found["tasks"]:
        task["description"] = task["description"].replace("wasps", "bees")
        task["summary"] = task["summary"].replace("wasps", "bees")
        for message in task["messages"]:
            if message["content"]:
                message["content"] = message["content"].replace("wasps", "bees")
    return found


@pytest.mark.parametrize("place", ["then research", "end write_down draft", "request 8"])
@pytest.mark.parametrize("app", ["report", "heard"])
def test_a_crew_that_is_made_resumable(life: Start, whole: Whole, app: str, place: str) -> None:
    """Its own task callback is called as before, once for each task."""
    check_killed(life(app, resumable=True), whole(app, resumable=True), place)
    assert comparable(whole(app, resumable=True)["result"]) == comparable(whole(app)["result"])
    assert whole(app, resumable=True)["outside"] == whole(app)["outside"]


def test_a_crew_takes_waypoints_without_a_warning(tmp_path: Path) -> None:
    """CrewAI warns of callbacks that it could not name in its own checkpoints."""
    agent = Agent(role="Researcher", goal="g", backstory="b", llm=apps.model("http://127.0.0.1:9"))
    task = Task(name="t", description="d", expected_output="e", agent=agent)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        crew = Crew(agents=[agent], tasks=[task], task_callback=waypoints("r", store=tmp_path))
        resumable_crew(crew, run_id="r", store=tmp_path)


# ---------------------------------------------------------------------- no jobs


def test_a_crew_without_waypoints_is_left_alone(life: Start) -> None:
    """In a process in which another one has some: it works anew each time."""
    other = life("report", plain=True, each=[{"topic": "bees"}] * 2)
    expected = other.ended(job=f"{OTHERS}:twice")
    one = life("report")
    found = one.ended(job=f"{OTHERS}:beside")
    assert comparable(found) == comparable(expected)
    assert one.asked() == 27
    assert [run.run_id for run in list_runs(store=one.store)] == [RUN]


@pytest.mark.parametrize("job", ["tested", "trained"])
def test_a_crew_that_is_tested_or_trained_is_no_run(life: Start, job: str) -> None:
    """CrewAI kicks it off again and again for that, and each time it has to work."""
    plain = life("report", script=EVALUATED, plain=True)
    plain.did(job=f"{OTHERS}:{job}")
    one = life("report", script=EVALUATED)
    one.did(job=f"{OTHERS}:{job}")
    assert one.asked() == plain.asked() > 9
    assert one.outside() == plain.outside()
    assert list_runs(store=one.store) == []


def test_a_replay_of_crewai_is_no_run(life: Start, whole: Whole) -> None:
    """It does its last task again, and the run stays as it is."""
    one = life("report")
    replayed = one.ended(job=f"{OTHERS}:replayed")
    assert replayed["raw"] == whole("report")["result"]["raw"]
    assert one.requests() == whole("report")["answers"] + 3
    before = one.requests()
    assert comparable(one.ended()) == comparable(whole("report")["result"])
    assert one.requests() == before
    twice = Counter({line: 1 for line in one.outside() if line.endswith("review")})
    assert one.outside() == whole("report")["outside"] + twice
