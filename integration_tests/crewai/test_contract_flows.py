"""What the adapter rests on in CrewAI's flows; see `test_contract` for crews."""

# ruff: noqa: E402

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

from integration_tests.support import require

require("crewai")

# In front of all that imports CrewAI.
from integration_tests.crewai import offline

# isort: split
from crewai.events import crewai_event_bus
from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.flow.flow import Flow, listen, start
from crewai.flow.flow_config import flow_config
from crewai.flow.human_feedback import HumanFeedbackResult
from crewai.flow.persistence import persist
from crewai.flow.persistence.base import FlowPersistence
from pydantic import BaseModel


class Kept(FlowPersistence):
    """A persistence that keeps nothing."""

    def init_db(self) -> None:
        """Do nothing."""

    def save_state(self, flow_uuid: str, method_name: str, state_data: Any) -> None:
        """Do nothing."""

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """Know nothing."""
        return None


class State(BaseModel):
    id: str = ""
    log: list[str] = []


@persist(Kept())
class OfClass(Flow[State]):
    """Two methods, one behind the other."""

    @start()
    def begin(self) -> str:
        self.state.log.append("begin")
        return "A"

    @listen(begin)
    def go_on(self, given: str) -> str:
        self.state.log.append(f"on from {given}")
        return "B"


class OfMethod(Flow[State]):
    """One method is persisted."""

    @start()
    @persist(Kept())
    def begin(self) -> str:
        return "A"


def test_a_flow_tells_what_it_is_persisted_with() -> None:
    of_class, of_method = OfClass()._definition, OfMethod()._definition
    assert of_class.persist is not None
    assert of_class.persist.enabled
    assert isinstance(of_class.persist.persistence, Kept)
    known = of_method.methods["begin"].persist
    assert known is not None
    assert isinstance(known.persistence, Kept)
    assert not OfClass.is_crewai_internal


def test_a_flow_executes_its_methods_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It notes each in the way that `_sdk.give_again` does for one that is not run again."""
    executed: list[tuple[Any, ...]] = []
    execute = Flow._execute_method

    async def recorded(self: Any, name: Any, method: Any, *args: Any, **kwargs: Any) -> Any:
        gave = await execute(self, name, method, *args, **kwargs)
        executed.append((str(name), args, gave[0]))
        return gave

    owner = next(cls for cls in Flow.__mro__ if "_execute_method" in cls.__dict__)
    monkeypatch.setattr(owner, "_execute_method", recorded)
    flow = OfClass()
    assert flow.kickoff() == "B"
    assert executed == [("begin", (), "A"), ("go_on", ("A",), "B")]
    assert flow._method_outputs == [
        {"method": "begin", "output": "A"},
        {"method": "go_on", "output": "B"},
    ]
    assert flow._completed_methods == {"begin", "go_on"}
    assert flow._method_execution_counts == {"begin": 1, "go_on": 1}
    crewai_event_bus.flush()


def test_a_listener_goes_on_from_what_stands_for_a_methods_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A method that was not run, and is noted as if, lets the next one begin with its output."""
    execute = Flow._execute_method

    async def given_again(self: Any, name: Any, method: Any, *args: Any, **kwargs: Any) -> Any:
        if str(name) != "begin":
            return await execute(self, name, method, *args, **kwargs)
        self._method_outputs.append({"method": "begin", "output": "recorded"})
        self._method_execution_counts[name] = 1
        self._completed_methods.add(name)
        return "recorded", None

    owner = next(cls for cls in Flow.__mro__ if "_execute_method" in cls.__dict__)
    monkeypatch.setattr(owner, "_execute_method", given_again)
    flow = OfClass()
    assert flow.kickoff() == "B"
    assert flow.state.log == ["on from recorded"]
    crewai_event_bus.flush()


@pytest.mark.parametrize(
    "name",
    [
        "_completed_methods",
        "_human_feedback_method_outputs",
        "_method_call_counts",
        "_method_execution_counts",
        "_method_outputs",
        "_pending_events",
        "human_feedback_history",
    ],
)
def test_a_flow_remembers_in_things_that_can_be_cleared(name: str) -> None:
    assert callable(getattr(OfClass(), name).clear)


def test_a_flow_has_the_places_of_a_pause() -> None:
    flow = OfClass()
    assert flow._pending_feedback_context is None
    assert flow._is_execution_resuming is False
    assert flow.last_human_feedback is None
    assert flow.input_provider is None
    assert flow_config.input_provider is None
    flow._clear_or_listeners()
    assert list(inspect.signature(Flow._run_human_feedback_step).parameters)[1:4] == [
        "method_name",
        "feedback_definition",
        "method_output",
    ]
    assert len(inspect.signature(Flow._resolve_feedback_provider).parameters) == 2


def test_feedback_and_a_pause_are_plain_and_come_back() -> None:
    """A pause has the model as text or as what it is built of, which may hold a key."""
    assert dataclasses.is_dataclass(HumanFeedbackResult)
    context = PendingFeedbackContext(
        flow_id="one",
        flow_class="x.Y",
        method_name="review",
        method_output="text",
        message="Good?",
        llm={"model": "openai/gpt-4o-mini", "api_key": offline.KEY},
    )
    tree = context.to_dict()
    assert tree["llm"]["model"] == "openai/gpt-4o-mini"
    tree["llm"] = tree["llm"]["model"]
    assert PendingFeedbackContext.from_dict(tree).llm == "openai/gpt-4o-mini"
    assert PendingFeedbackContext.from_dict(tree).message == "Good?"
