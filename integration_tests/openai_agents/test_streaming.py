"""`run_streamed`: the events of a run that goes on are those that an undisturbed one has left."""

# ruff: noqa: E402

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import agents
import pytest

from integration_tests.support import require

require("agents")

from agents import RunConfig

from caravanserai import list_runs
from caravanserai.openai_agents import Runner
from integration_tests.openai_agents import apps
from integration_tests.openai_agents.apps import NESTED, SCRIPTS
from integration_tests.openai_agents.jobs import TASK, event_shown, talk
from integration_tests.openai_agents.life import Life, comparable
from integration_tests.openai_agents.scripted import ScriptedOpenAI

Whole = Callable[..., dict[str, Any]]
Start = Callable[..., Life]


def items(events: list[list[str]]) -> list[list[str]]:
    """Return the events of items and agents, which a consumer builds its picture from."""
    return [event for event in events if event[0] != "raw"]


def check_answers(events: list[list[str]]) -> None:
    """The raw events are answers one after the other, each opened before its parts, and closed."""
    is_open, parts = False, 0
    for kind in [event[1] for event in events if event[0] == "raw"]:
        if kind == "response.created":
            assert not is_open, "an answer begins inside of another"
            is_open, parts = True, 0
        elif kind == "response.output_item.added":
            assert is_open
            parts += 1
        elif kind == "response.output_item.done":
            parts -= 1
        elif kind == "response.completed":
            assert is_open, "an answer ends that has not begun"
            assert parts == 0, "an item was not closed"
            is_open = False
    assert not is_open


@pytest.mark.parametrize("api", ["responses", "chat"])
@pytest.mark.parametrize("app", ["refund", "nested", "structured", "guarded"])
def test_undisturbed_it_streams_what_the_sdk_streams(life: Start, app: str, api: str) -> None:
    """Event by event: raw ones, items, agents."""
    ours = life(app, way="stream", api=api)
    ours.finished()
    theirs = life(app, way="stream", api=api, plain=True)
    theirs.finished()
    assert items(ours.events()) == items(theirs.events())
    assert ours.events() == theirs.events()


PLACES = [
    "begin lookup_order",
    "hook model 1",
    "between",
    "hook handoff refund agent",
    "begin issue_refund",
    "hook tool issue_refund",
    "hook end refund agent",
    "event tool_output 1",
    "event tool_called 2",
    "event handoff_requested 1",
    "event handoff_occured 1",
    "event response.completed 1",
    "event response.completed 2",
    "event response.completed 4",
    "event message_output_created 1",
]


@pytest.mark.parametrize("place", PLACES)
def test_a_resumed_run_streams_what_is_left(life: Start, whole: Whole, place: str) -> None:
    """It begins with its agent and a whole turn; nothing comes twice, nothing is left out."""
    undisturbed = whole("refund", way="stream")
    one = life("refund", way="stream")
    one.killed(place)
    before = one.events()
    starts = [one.ended().get("events")]
    while one.agree():
        starts.append(one.ended().get("events"))
    starts = [events for events in starts if events is not None]  # None: it asked at once
    all_items = items(undisturbed["events"])
    heard = items(before)
    for events in starts:
        check_answers(events)
        found = items(events)
        assert found, "a consumer hears something"
        assert found[0][0] == "agent", "first of all whose turn it is"
        assert [e for e in found if e[0] == "item"] == _unique(found)
        heard += found
    told = {tuple(event) for event in heard}
    assert {tuple(event) for event in all_items} <= told, "nothing is left out"
    for events in starts:
        assert _is_stretch([e for e in items(events) if e[0] == "item"], all_items)
    assert comparable(one.ended())["final"] == undisturbed["result"]["final"]
    assert one.asked() == undisturbed["answers"]


def _unique(found: list[list[str]]) -> list[list[str]]:
    return [list(event) for event in dict.fromkeys(tuple(e) for e in found if e[0] == "item")]


def _is_stretch(part: list[list[str]], whole: list[list[str]]) -> bool:
    """Say whether events follow each other as they do in the whole."""
    only = [event for event in whole if event[0] == "item"]
    return any(only[at : at + len(part)] == part for at in range(len(only) + 1))


@pytest.mark.parametrize("api", ["responses", "chat"])
@pytest.mark.parametrize("held", [(1, 1), (1, 5), (2, 7), (5, 6)])
def test_killed_in_the_middle_of_an_answer(
    life: Start, whole: Whole, api: str, held: tuple[int, int]
) -> None:
    """It is asked for again, since nobody had it whole; all others are not."""
    number, events = held
    one = life("refund", way="stream", api=api, server={"hold": held})
    # The client dies when it has what was sent; the SDK's events before that are of other answers.
    place = _event_in_answer(whole("refund", way="stream", api=api)["events"], number, events, api)
    if number == 5:  # asked for by the start after the approval
        one.ended()
        one.agree()
    one.killed(place)
    found = one.finished()
    undisturbed = whole("refund", way="stream", api=api)
    assert found["final"] == undisturbed["result"]["final"]
    assert one.asked() == undisturbed["answers"]
    assert len(one.server.asked) == undisturbed["answers"] + 1
    assert [line["answered"] for line in one.server.lines if "answered" in line].count(False) == 1


def _event_in_answer(events: list[list[str]], number: int, sent: int, api: str) -> str:
    """Name the consumer's event that comes of the last one that was sent of an answer."""
    created = [n for n, event in enumerate(events) if event[1] == "response.created"]
    # Approved, the run starts anew, and its consumer counts from one.
    second = next(
        n for n, event in enumerate(events) if n and event[:1] == ["agent"] and n > created[3]
    )
    offset = created[number - 1] - (second if number == 5 else 0)
    return f"event {offset + (sent if api == 'responses' else 1)}"


def test_a_finished_run_streams_its_last_answer(life: Start) -> None:
    one = life("refund", way="stream")
    one.finished()
    before = one.asked()
    found = one.ended()
    assert one.asked() == before
    check_answers(found["events"])
    assert [event[1] for event in items(found["events"])] == [
        "refund agent",
        "message_output_created",
    ]
    assert found["final"] == "Refund for order A17: refunded 40 EUR."


# ---------------------------------------------------------------------- in this process


def streamed(model: Any, **options: Any) -> Any:
    """Start the nested run in this process."""
    config = RunConfig(tracing_disabled=True)
    agent = apps.nested(model)
    return Runner.run_streamed(agent, TASK, run_id="here", run_config=config, **options)


async def read(result: Any) -> list[list[str]]:
    return [event_shown(event) async for event in result.stream_events()]


def test_a_consumer_that_stops_reading(tmp_path: Path) -> None:
    """What it did not look at is done by the next start, in the same process."""
    with ScriptedOpenAI(NESTED) as server:

        async def work(model: Any) -> Any:
            first = streamed(model)
            async for event in first.stream_events():
                if event_shown(event)[1] == "tool_output":
                    break
            first.cancel()
            second = streamed(model)
            await read(second)
            return second

        result = talk(server, work)
        assert result.final_output == "Done, kept."
        assert len(server.answered) == 5
    assert [run.status for run in list_runs()] == ["finished"]


def test_events_that_nobody_reads() -> None:
    """The work is done all the same, and the run can be started again."""
    with ScriptedOpenAI(NESTED) as server:

        async def work(model: Any) -> Any:
            first = streamed(model)
            await first.run_loop_task
            second = streamed(model)
            await read(second)
            return second

        assert talk(server, work).final_output == "Done, kept."
        assert len(server.answered) == 5


def test_stopped_after_a_turn_it_goes_on() -> None:
    """`cancel(mode="after_turn")` is the SDK's way to stop; the same line goes on from there."""
    with ScriptedOpenAI(NESTED) as server:

        async def work(model: Any) -> Any:
            first = streamed(model)
            async for event in first.stream_events():
                if event_shown(event)[1] == "tool_called":
                    first.cancel(mode="after_turn")
            asked = len(server.answered)
            second = streamed(model)
            await read(second)
            return asked, second

        asked, result = talk(server, work)
        assert asked == 3, "the answer of the turn, and two of the agent inside of its tool"
        assert result.final_output == "Done, kept."
        assert len(server.answered) == 5


def test_what_is_said_of_a_streamed_result() -> None:
    """Before, while and after its events are read: the SDK's own attributes."""
    with ScriptedOpenAI(SCRIPTS["nested"]) as server:

        async def work(model: Any) -> None:
            result = streamed(model)
            assert isinstance(result, agents.RunResultStreaming)
            assert not result.is_complete
            await read(result)
            assert result.is_complete
            assert result.current_agent.name == result.last_agent.name == "shop"
            assert result.final_output == "Done, kept."
            assert len(result.raw_responses) == 3
            assert result.to_input_list()[0] == {"role": "user", "content": TASK}

        talk(server, work)
