"""Flows that go on from another run, and what a killed flow tells."""

# ruff: noqa: E402

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("crewai")

from caravanserai import handoff, open_run
from integration_tests.crewai_flows.test_flows import FLOWS, Kickoffs
from integration_tests.preloaded import Preloaded

CALL = {"name": "lookup", "arguments": '{"key": "research"}'}
GIVEN: list[dict[str, Any]] = [
    {"role": "user", "content": "Find out about research, please."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": CALL}],
    },
    {"role": "tool", "tool_call_id": "a", "content": "as recorded"},
]
MORE = {"continues": "before", "replay": ["lookup"]}
RESULT = "before@1: Know it. as recorded, kept draft"


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    with Preloaded(FLOWS) as process:
        yield process


@pytest.fixture
def kickoffs(preloaded: Preloaded, tmp_path: Path) -> Kickoffs:
    made = Kickoffs(preloaded, tmp_path)
    with open_run("before", store=made.store, goal="Know it.") as run:
        run.checkpoint({"messages": GIVEN}, "It was looked up.")
    return made


@pytest.mark.parametrize("place", [None, "begin", "begin write_down draft"])
def test_a_flow_goes_on_from_another_run(kickoffs: Kickoffs, place: str | None) -> None:
    """Its methods have the handoff, a tool the recorded result; killed anywhere, the same."""
    if place is not None:
        kickoffs.kill("handed", place, persistence=MORE)
        shutil.rmtree(kickoffs.folder / ".caravanserai/before")

    found = kickoffs.ended("handed", persistence=MORE)

    assert found["result"] == RESULT
    assert "begin lookup research" not in kickoffs.outside
    if place is not None:
        return
    first = (kickoffs.folder / ".caravanserai/flow-1/waypoint-1.md").read_text()
    assert "Flow `Handed` goes on from run `before` at waypoint 1." in first
    assert "\n## Goal\n\nKnow it.\n" in first
    assert handoff("flow-1", store=kickoffs.store).messages[:3] == GIVEN
    refused = kickoffs.ended("handed", persistence={"continues": "other"})
    assert refused["raised"][0] == "InputChanged"
    assert kickoffs.ended("handed", persistence={})["result"] == RESULT


def test_a_flow_of_its_own_is_handed_nothing(kickoffs: Kickoffs) -> None:
    assert kickoffs.ended("handed")["result"].startswith("nothing value of research")
    assert kickoffs.ended("handed", persistence=MORE)["raised"][0] == "InputChanged"


def test_the_name_of_the_other_run_may_hold_inputs(kickoffs: Kickoffs) -> None:
    own = {"continues": "be{part}"}
    found = kickoffs.ended("handed", inputs={"id": "flow-1", "part": "fore"}, persistence=own)
    assert found["result"].startswith("before@1: Know it. value of research")
    refused = kickoffs.ended("handed", inputs={"id": "flow-2"}, persistence=own)
    assert "no input 'part'" in refused["raised"][1]


def test_a_further_turn_goes_on_from_the_same(kickoffs: Kickoffs) -> None:
    own = {**MORE, "turns": True}
    assert kickoffs.ended("handed", persistence=own)["result"] == RESULT
    assert kickoffs.ended("handed", persistence=own)["result"] == RESULT
    assert kickoffs.outside.count("begin write_down draft") == 2


def test_a_killed_flow_tells_what_its_method_did(kickoffs: Kickoffs) -> None:
    """Calls of tools behind the newest waypoint; one that never reported back, by name."""
    kickoffs.kill("handed", "end write_down draft")

    found = handoff("flow-1", store=kickoffs.store)

    told = [(m.role, m.text, [call.name for call in m.tool_calls]) for m in found.transcript[0]]
    assert told[-4:] == [
        ("assistant", "nothing", []),
        ("assistant", "", ["lookup"]),
        ("tool", "value of research", []),
        ("assistant", "", ["write_down"]),
    ]
    assert [call.name for call in found.uncertain] == ["write_down"]

    own = {"continues": "flow-1", "on_uncertain": "ask"}
    waits = kickoffs.ended("handed", inputs={"id": "flow-2"}, persistence=own)
    assert waits["raised"][0] == "WaitingForPerson"
    assert kickoffs.outside.count("end write_down draft") == 1
