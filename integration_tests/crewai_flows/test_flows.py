"""Flows that are killed, paused and started again, in processes of their own."""

# ruff: noqa: E402

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from integration_tests.support import require

require("crewai")

from caravanserai import answer, load
from caravanserai_core.ledger import Ledger
from caravanserai_core.stores import FileStore
from integration_tests.preloaded import Ended, Preloaded

FLOWS = "integration_tests.crewai_flows.flows"
RUN = "flow-1"

ROUNDS = [
    *("begin", "count 1", "decide B1", "count 2", "decide B2", "count 3", "decide B3"),
    *("left", "right", "end"),
]


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    with Preloaded(FLOWS) as process:
        yield process


class Kickoffs(NamedTuple):
    """Kickoffs of a flow in one folder."""

    preloaded: Preloaded
    folder: Path

    def start(self, flow: str, **options: Any) -> Ended:
        (self.folder / "result.json").unlink(missing_ok=True)
        (self.folder / "out.txt").touch()
        given = {"flow": flow, **options}
        return self.preloaded.run(f"{FLOWS}:run", given, folder=self.folder, kill_after=60)

    def kill(self, flow: str, place: str, **options: Any) -> None:
        ended = self.start(flow, place=place, **options)
        assert ended.killed, ended.out

    def ended(self, flow: str, **options: Any) -> dict[str, Any]:
        ended = self.start(flow, **options)
        assert ended.code == 0, ended.out
        found: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return found

    @property
    def store(self) -> FileStore:
        return FileStore(self.folder / ".caravanserai")

    @property
    def outside(self) -> list[str]:
        path = self.folder / "outside.txt"
        return path.read_text().splitlines() if path.exists() else []

    def note(self) -> str:
        return (self.folder / ".caravanserai" / RUN / "latest.md").read_text()

    def questions(self) -> list[str]:
        known = Ledger.read(self.store, RUN, None).questions.values()
        return [one.id for one in known if one.state == "open"]


@pytest.fixture
def kickoffs(preloaded: Preloaded, tmp_path: Path) -> Kickoffs:
    return Kickoffs(preloaded, tmp_path)


# ---------------------------------------------------------------------- position


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("place", ROUNDS)
def test_a_killed_flow_goes_on_at_the_method_that_was_running(
    kickoffs: Kickoffs, preloaded: Preloaded, tmp_path: Path, place: str, way: str
) -> None:
    whole = Kickoffs(preloaded, tmp_path / "whole")
    whole.folder.mkdir()
    undisturbed = whole.ended("looping")
    assert whole.outside[:7] == ROUNDS[:7]

    kickoffs.kill("looping", place, way=way)
    found = kickoffs.ended("looping", way=way)

    assert found["result"] == undisturbed["result"] == "3 rounds"
    assert found["state"] == undisturbed["state"]
    assert sorted(found["outputs"]) == sorted(undisturbed["outputs"])
    times = Counter(kickoffs.outside)
    assert times.pop(place) == 2
    both = {"left", "right"}
    # Of two methods at once, the other one may have been running too.
    assert all(n == 1 or (name in both and place in both) for name, n in times.items()), times
    assert set(times) | {place} == set(ROUNDS)


def test_killed_at_each_method_in_turn(kickoffs: Kickoffs) -> None:
    for place in ("begin", "count 1", "decide B1", "count 2", "decide B2", "count 3", "end"):
        kickoffs.kill("looping", place)
    found = kickoffs.ended("looping")
    assert found["result"] == "3 rounds"
    assert found["state"]["log"] == [
        "begin",
        "count 1 of A",
        "count 2 of again",
        "count 3 of again",
    ]
    assert max(Counter(kickoffs.outside).values()) == 2


def test_a_finished_flow_gives_its_recorded_result(kickoffs: Kickoffs) -> None:
    first = kickoffs.ended("looping")
    before = kickoffs.outside
    again = kickoffs.ended("looping")
    assert again == first
    assert kickoffs.outside == before


def test_the_last_step_of_ten_fails_and_nothing_before_it_is_done_again(
    kickoffs: Kickoffs,
) -> None:
    failed = kickoffs.ended("failing")
    assert failed["raised"] == ["ConnectionError", "no network"]
    (kickoffs.folder / "mended").touch()
    assert kickoffs.ended("failing")["result"] == "10"
    steps = [f"step {n}" for n in range(1, 11)]
    assert kickoffs.outside == ["begin", *steps, "step 10"]


def test_only_one_method_is_persisted_and_the_place_is_kept_all_the_same(
    kickoffs: Kickoffs,
) -> None:
    kickoffs.kill("by method", "end")
    assert kickoffs.ended("by method")["result"] == "bme1"
    assert kickoffs.outside == ["begin", "middle", "end", "end"]


def test_what_a_method_gives_and_cannot_be_kept_is_made_again(kickoffs: Kickoffs) -> None:
    kickoffs.kill("giving", "end")
    assert kickoffs.ended("giving")["result"] == "Unkept"
    assert kickoffs.outside == ["begin", "make", "end", "make", "end"]


# ---------------------------------------------------------------------- state


@pytest.mark.parametrize("flow", ["keeping", "keeping dict"])
def test_a_state_of_many_types_is_the_same_after_a_kill(kickoffs: Kickoffs, flow: str) -> None:
    kickoffs.kill(flow, "look")
    found = kickoffs.ended(flow)
    assert "False" not in found["result"]
    assert found["result"].count("True") == 7
    assert kickoffs.outside == ["fill", "look", "look"]


# ---------------------------------------------------------------------- identity


def test_without_an_id_each_kickoff_is_a_new_run(kickoffs: Kickoffs) -> None:
    first = kickoffs.ended("looping", inputs={})
    second = kickoffs.ended("looping", inputs={})
    assert first["id"] != second["id"]
    log = (kickoffs.folder / "log.txt").read_text()
    assert all(f"run {one['id']} is new in " in log for one in (first, second))
    folders = [one for one in (kickoffs.folder / ".caravanserai").iterdir() if one.is_dir()]
    assert len(folders) == 2
    assert Counter(kickoffs.outside)["begin"] == 2


def test_other_inputs_are_refused_and_the_id_alone_goes_on(kickoffs: Kickoffs) -> None:
    kickoffs.kill("looping", "count 2", inputs={"id": RUN, "n": 0})
    refused = kickoffs.ended("looping", inputs={"id": RUN, "n": 5})
    assert refused["raised"][0] == "InputChanged"
    assert '"n": 0' in refused["raised"][1]
    assert '"n": 5' in refused["raised"][1]
    found = kickoffs.ended("looping", inputs={"id": RUN})
    assert found["result"] == "3 rounds"
    assert found["state"]["n"] == 3


def test_a_finished_flow_is_begun_anew_where_that_is_asked_for(kickoffs: Kickoffs) -> None:
    kickoffs.ended("looping")
    found = kickoffs.ended("looping", persistence={"again": True})
    assert found["state"]["log"][0] == "begin"
    assert found["state"]["n"] == 3
    assert Counter(kickoffs.outside)["begin"] == 2


def test_with_turns_each_kickoff_works_on_the_state_of_the_one_before(kickoffs: Kickoffs) -> None:
    kickoffs.ended("looping", persistence={"turns": True})
    found = kickoffs.ended("looping", persistence={"turns": True})
    assert found["state"]["n"] == 4
    assert found["state"]["log"].count("begin") == 2
    kickoffs.kill("looping", "decide B5", persistence={"turns": True})
    third = kickoffs.ended("looping", persistence={"turns": True})
    assert third["state"]["n"] == 5
    assert third["state"]["log"].count("begin") == 3


def test_a_flow_that_begins_from_the_state_of_another_is_a_run_of_its_own(
    kickoffs: Kickoffs,
) -> None:
    kickoffs.ended("looping")
    fork = kickoffs.ended("looping", inputs={}, forks=RUN)
    assert fork["state"]["n"] == 4
    assert fork["id"] == fork["state"]["id"] != RUN
    folders = {one.name for one in (kickoffs.folder / ".caravanserai").iterdir() if one.is_dir()}
    assert folders == {RUN, fork["id"]}
    assert load(fork["id"], store=kickoffs.store)["at"] == "end"
    assert load(RUN, store=kickoffs.store)["state"]["n"] == 3

    # Its own state counts where it goes on, not that which it began from.
    kickoffs.kill("looping", "left", inputs={"id": "fork"}, forks=RUN)
    found = kickoffs.ended("looping", inputs={"id": "fork"}, forks=RUN)
    assert found["result"] == "4 rounds"
    assert found["state"]["log"].count("begin") == 2


# ---------------------------------------------------------------------- people


def test_paused_for_feedback_and_answered_from_elsewhere(kickoffs: Kickoffs) -> None:
    paused = kickoffs.ended("asking")
    assert paused["pending"] == "Approve?"
    assert "**Waiting for a person:**" in kickoffs.note()
    assert kickoffs.ended("asking")["pending"] == "Approve?"
    assert kickoffs.outside == ["prepare", "draft"]

    answer(RUN, "", store=kickoffs.store)
    assert kickoffs.ended("asking")["result"] == "dropped DRAFT"
    assert kickoffs.outside == ["prepare", "draft", "drop"]
    assert kickoffs.ended("asking")["result"] == "dropped DRAFT"
    assert kickoffs.outside == ["prepare", "draft", "drop"]


@pytest.mark.parametrize("place", ["prepare", "draft", "drop"])
def test_a_paused_flow_is_killed_around_its_pause(kickoffs: Kickoffs, place: str) -> None:
    if place != "drop":
        kickoffs.kill("asking", place)
    assert kickoffs.ended("asking")["pending"] == "Approve?"
    answer(RUN, "", store=kickoffs.store)
    if place == "drop":
        kickoffs.kill("asking", place)
    assert kickoffs.ended("asking")["result"] == "dropped DRAFT"
    times = Counter(kickoffs.outside)
    assert times.pop(place) == 2
    assert set(times.values()) == {1}
    assert "publish" not in times


def test_crewais_own_way_goes_on_in_a_new_process(kickoffs: Kickoffs) -> None:
    kickoffs.ended("asking")
    found = kickoffs.ended("asking", resume="")
    assert found["result"] == "dropped DRAFT"
    assert kickoffs.outside == ["prepare", "draft", "drop"]
    refused = kickoffs.ended("asking", resume="approved")
    assert refused["raised"][0] == "ValueError"


def test_two_questions_one_after_the_other(kickoffs: Kickoffs) -> None:
    assert kickoffs.ended("reviewing")["pending"] == "What do you think?"
    answer(RUN, "salt", store=kickoffs.store)
    assert kickoffs.ended("reviewing")["pending"] == "And now?"
    assert "DRAFT with salt" in kickoffs.ended("reviewing", resume="fine")["result"]
    assert kickoffs.ended("reviewing")["result"] == "DRAFT with salt, fine"
    assert kickoffs.outside == ["draft", "better", "end"]


def test_a_method_asks_and_is_begun_again_with_the_answer(kickoffs: Kickoffs) -> None:
    waits = kickoffs.ended("prompting")
    assert waits["raised"][0] == "WaitingForPerson"
    (question,) = kickoffs.questions()
    answer(RUN, "Ada", question=question, store=kickoffs.store)
    assert kickoffs.ended("prompting")["result"] == "hello Ada"
    assert kickoffs.outside == ["begin", "talk", "talk", "greet"]


def test_a_pause_is_no_failure_and_the_run_ends_once(kickoffs: Kickoffs) -> None:
    kickoffs.ended("asking")
    ledger = Ledger.read(kickoffs.store, RUN, None)
    assert [one.state for one in ledger.questions.values()] == ["open"]
    answer(RUN, "", store=kickoffs.store)
    kickoffs.ended("asking")
    assert load(RUN, store=kickoffs.store)["at"] == "end"
    journal = (kickoffs.folder / ".caravanserai" / RUN / "journal-1.jsonl").read_text()
    ends = [json.loads(line) for line in journal.splitlines() if '"kind":"finish"' in line]
    assert [end["outcome"] for end in ends] == ["finished"]
