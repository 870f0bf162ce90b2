"""Values that are no plain JSON, answers that are of no use, tools that do not exist."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, ModelBehaviorError, RunConfig, function_tool
from pydantic import BaseModel

from caravanserai import InputChanged, StaleWriter, StoreFailed, answer
from caravanserai.openai_agents import Runner
from caravanserai_core import stores
from integration_tests.openai_agents.paused import QUIET, RUN, Scripted, agent_of, model_of
from integration_tests.openai_agents.test_versions import Stopping, Stops


class Colour(enum.StrEnum):
    RED = "red"


class Old(str, enum.Enum):  # noqa: UP042 - the older form, which programs have
    RED = "red"


class Safe(str):
    """A string with a type of its own, as template engines have."""

    def __str__(self) -> str:
        return self


RESULTS: dict[str, Any] = {
    "a string enum": Colour.RED,
    "an older string enum": Old.RED,
    "a string of its own type": Safe("red"),
    "half of an emoji": "red \ud83d",
    "a tuple": ("red", 1),
    "a set": {"red"},
    "bytes": b"red",
    "an object": object,
    "a large number": 2**80,
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_run_can_be_read_whatever_its_tools_return(tmp_path: Path, name: str) -> None:
    """At the pause behind it, in the turn after it, and at its end."""

    @function_tool
    def look_up(bill: int) -> Any:
        """Look a bill up."""
        done.append(bill)
        return RESULTS[name]

    done: list[int] = []

    def start() -> Any:
        agent = agent_of(model_of(), lambda _: None)
        agent.tools[0] = look_up
        return Runner.run_sync(agent, "Pay.", run_id=RUN, store=tmp_path, run_config=QUIET)

    assert len(start().interruptions) == 1
    assert len(start().interruptions) == 1
    answer(RUN, True, store=tmp_path)
    assert start().final_output == "Done."
    assert start().final_output == "Done."
    assert done == [7]


INPUTS: dict[str, Any] = {
    "a string enum": Colour.RED,
    "an older string enum": Old.RED,
    "a tuple of parts": [{"role": "user", "content": ({"type": "input_text", "text": "Pay."},)}],
    "an enum in an item": [{"role": "user", "content": Colour.RED}],
    "half of an emoji": "Pay \ud83d",
}


@pytest.mark.parametrize("name", INPUTS)
def test_a_run_can_be_read_whatever_it_is_given(tmp_path: Path, name: str) -> None:
    def start(given: Any) -> Any:
        agent = agent_of(model_of(), lambda _: None)
        return Runner.run_sync(agent, given, run_id=RUN, store=tmp_path, run_config=QUIET)

    assert len(start(INPUTS[name]).interruptions) == 1
    answer(RUN, True, store=tmp_path)
    assert start(INPUTS[name]).final_output == "Done."
    with pytest.raises(InputChanged):
        start("Another.")


def test_what_differs_in_an_input_of_items_is_shown(tmp_path: Path) -> None:
    def start(id_: str) -> Any:
        given: list[Any] = [{"role": "user", "content": "Pay."}]
        given += [{"role": "assistant", "content": "Ok.", "id": id_, "type": "message"}, given[0]]
        agent = agent_of(model_of(), lambda _: None)
        return Runner.run_sync(agent, given, run_id=RUN, store=tmp_path, run_config=QUIET)

    start("msg_1")
    with pytest.raises(InputChanged) as refused:
        start("msg_2")

    assert "number 2" in str(refused.value)
    assert "msg_1" in str(refused.value)
    assert "msg_2" in str(refused.value)


class Verdict(BaseModel):
    paid: bool


@pytest.mark.parametrize("kind", ["output", "arguments"])
def test_an_answer_of_no_use_is_asked_for_again_by_the_next_start(
    tmp_path: Path, kind: str
) -> None:
    """A retry around the same line helps, as it does with the SDK's own runner."""

    @function_tool(failure_error_function=None)
    def look_up(bill: int) -> str:
        """Look a bill up."""
        return "40 EUR"

    model = Scripted(("look_up", {"bill": "seven"})) if kind == "arguments" else Scripted()

    def start() -> Any:
        agent = Agent(
            name="clerk",
            instructions="Pay.",
            model=model,
            tools=[look_up],
            output_type=Verdict if kind == "output" else None,
        )
        return Runner.run_sync(agent, "Pay.", run_id=RUN, store=tmp_path, run_config=QUIET)

    for times in (1, 2, 3):
        with pytest.raises(ModelBehaviorError):
            start()
        assert model.asked == times


def test_a_tool_that_a_model_invents_does_not_stop_a_run_for_good(tmp_path: Path) -> None:
    """The SDK tells the model, where it is asked to; a crash in that turn changes nothing."""
    config = RunConfig(tracing_disabled=True, tool_not_found_behavior="return_error_to_model")

    def start(model: Any, **more: Any) -> Any:
        agent = agent_of(model, lambda _: None)
        return Runner.run_sync(agent, "Pay.", run_id=RUN, store=tmp_path, run_config=config, **more)

    with pytest.raises(Stops):
        start(Scripted(("guess", {"bill": 7})), hooks=Stopping(1))
    model = Scripted(("guess", {"bill": 7}))
    result = start(model)

    assert result.final_output == "Done."
    assert model.asked == 1


@pytest.mark.parametrize("error", [StoreFailed, StaleWriter])
def test_a_failing_store_is_no_error_of_the_tool(
    tmp_path: Path, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = stores.FileStore.append
    failing = False

    def append(self: Any, *args: Any, **options: Any) -> Any:
        if failing:
            raise error("the disk is full")
        return real(self, *args, **options)

    monkeypatch.setattr(stores.FileStore, "append", append)

    def fail(_: str) -> None:
        nonlocal failing
        failing = True

    agent = agent_of(model_of(), fail)
    with pytest.raises(error):
        Runner.run_sync(agent, "Pay.", run_id=RUN, store=tmp_path, run_config=QUIET)
