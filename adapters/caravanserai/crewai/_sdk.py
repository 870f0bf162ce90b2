"""What is used of CrewAI beyond its documented surface; each is watched by a contract test."""

from __future__ import annotations

import dataclasses
import json
import weakref
from collections.abc import Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.flow.flow_config import flow_config
from crewai.flow.human_feedback import HumanFeedbackResult
from crewai.llms.base_llm import BaseLLM
from crewai.process import Process
from crewai.utilities.agent_utils import extract_tool_call_info
from crewai.utilities.formatter import DIVIDERS
from crewai.utilities.guardrail import GuardrailResult

from caravanserai.crewai._outputs import kept, restored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crewai import Crew, Task, TaskOutput
    from crewai.flow.flow import Flow


@cache
def crewai_version() -> str:
    """Return the version of CrewAI."""
    return version("crewai")


@cache
def framework() -> str:
    """Return name and version of CrewAI, as the last line of a note shows it."""
    return f"CrewAI {crewai_version()}"


# ---------------------------------------------------------------------- tokens

_usage: ContextVar[list[dict[str, Any]] | None] = ContextVar("caravanserai_usage", default=None)


@cache
def count_usage() -> None:
    """Let what a model's answer used be seen where it is asked."""
    track = BaseLLM._track_token_usage_internal

    def counted(self: BaseLLM, usage_data: dict[str, Any]) -> None:
        found = _usage.get()
        if found is not None:
            found.append(_numbers(usage_data))
        track(self, usage_data)

    BaseLLM._track_token_usage_internal = counted  # type: ignore[method-assign]


def _numbers(usage: Any) -> dict[str, Any]:
    """Return what a provider says of an answer's tokens, without anything else."""
    if not isinstance(usage, Mapping):
        return {}
    found: dict[str, Any] = {}
    for name, value in usage.items():
        if isinstance(value, Mapping):
            found[str(name)] = _numbers(value)
        elif isinstance(value, (int, float)):
            found[str(name)] = value
    return found


@contextmanager
def usage_into(found: list[dict[str, Any]]) -> Iterator[None]:
    """Collect what the answers use that are given inside of the block."""
    token = _usage.set(found)
    try:
        yield
    finally:
        _usage.reset(token)


def add_usage(model: Any, usage: dict[str, Any]) -> None:
    """Count an answer that is not asked for again with those of its model."""
    if isinstance(model, BaseLLM):
        BaseLLM._track_token_usage_internal(model, usage)


_counted: dict[int, tuple[weakref.ref[Any], set[Any]]] = {}
"""By id of a model what is counted with it; CrewAI's models have no hash."""


def first_time(model: Any, what: Any) -> bool:
    """Say whether something is counted with a model of this process for the first time."""
    of, known = _counted.get(id(model), (None, set[Any]()))
    if of is None or of() is not model:
        known = set()
        number = id(model)
        _counted[number] = (weakref.ref(model, lambda gone: _forget(number, gone)), known)
    if what in known:
        return False
    known.add(what)
    return True


def _forget(number: int, gone: weakref.ref[Any]) -> None:
    if number in _counted and _counted[number][0] is gone:
        del _counted[number]


# ---------------------------------------------------------------------- models and tools


def tool_call(item: Any) -> dict[str, Any] | None:
    """Return name and arguments of a call that a model asks for, None for anything else."""
    info = extract_tool_call_info(item)
    if info is None or not info[1]:
        return None
    arguments: Any = info[2]
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = {"arguments": arguments}
    return {"name": info[1], "arguments": arguments if isinstance(arguments, dict) else {}}


# ---------------------------------------------------------------------- crews


def is_hierarchical(crew: Crew) -> bool:
    """Say whether a manager gives out the tasks of a crew."""
    return crew.process == Process.hierarchical


def process_of(crew: Crew) -> str:
    """Return how the tasks of a crew are given out: "sequential" or "hierarchical"."""
    return str(getattr(crew.process, "value", crew.process))


def is_training(crew: Crew) -> bool:
    """Say whether a crew is trained or tested: its kickoffs are no jobs."""
    if crew._train:
        return True
    return any(
        type(getattr(task.callback, "__self__", None)).__name__ == "CrewEvaluator"
        for task in crew.tasks
    )


def save_output(task: Task, inputs: dict[str, Any] | None, output: TaskOutput) -> None:
    """Write the output file of a task as CrewAI writes it when the task ends."""
    if inputs:
        task.interpolate_inputs_and_add_conversation_history(inputs)
    structured = output.pydantic.model_dump_json() if output.pydantic else output.raw
    task._save_file(output.json_dict or structured)


def contexts(*texts: str) -> str:
    """Return some texts as one context, as CrewAI joins the outputs of earlier tasks."""
    return DIVIDERS.join(texts)


def guardrail_result(success: bool, gave: Any, error: str | None) -> GuardrailResult:
    """Return what CrewAI makes of a guardrail's finding."""
    return GuardrailResult(success=success, result=gave, error=error)


# ---------------------------------------------------------------------- flows


def flow_name(flow: Flow[Any]) -> str:
    """Return how a flow is called."""
    return str(flow.name or type(flow).__name__)


def backends(flow: Flow[Any]) -> Iterator[Any]:
    """Yield what a flow, and each of its methods, is persisted with."""
    definition = flow._definition
    for persist in (definition.persist, *(one.persist for one in definition.methods.values())):
        if persist is not None and persist.enabled:
            yield persist.persistence


def clear(flow: Flow[Any]) -> None:
    """Let the engine of a flow begin at its start: a kickoff before may have left its place."""
    flow._completed_methods.clear()
    flow._method_outputs.clear()
    flow._pending_events.clear()
    flow._clear_or_listeners()
    flow._method_call_counts.clear()
    flow._method_execution_counts.clear()
    flow._human_feedback_method_outputs.clear()
    flow.human_feedback_history.clear()
    flow.last_human_feedback = None


def name_it(flow: Flow[Any], run_id: str) -> None:
    """Give the state of a flow that begins its id."""
    flow._stamp_state_id(run_id)


def restore(flow: Flow[Any], state: dict[str, Any]) -> None:
    """Give a flow its recorded state."""
    flow._restore_state(state)


def no_pause(flow: Flow[Any]) -> None:
    """Let a flow begin that was made of a pause."""
    flow._pending_feedback_context = None
    flow._is_execution_resuming = False


def give_again(flow: Flow[Any], method: Any, known: dict[str, Any]) -> Any:
    """Do what the engine does where a method ends, for one that is not run again.

    Returns:
        What it gave.
    """
    output = restored(known["output"])
    entry: dict[str, Any] = {"method": str(method), "output": output}
    if "feedback" in known:
        feedback = restored_feedback(known["feedback"])
        flow.human_feedback_history.append(feedback)
        flow.last_human_feedback = feedback
        if feedback.outcome is not None:
            entry |= {"output": feedback.output, "human_feedback": feedback}
    flow._method_outputs.insert(known["before"], entry)
    counts = flow._method_execution_counts
    counts[method] = counts.get(method, 0) + 1
    flow._completed_methods.add(method)
    return output


def kept_feedback(feedback: HumanFeedbackResult) -> dict[str, Any]:
    """Return what is kept of a person's feedback."""
    fields = {one.name: getattr(feedback, one.name) for one in dataclasses.fields(feedback)}
    return {**fields, "output": kept(feedback.output)}


def restored_feedback(tree: dict[str, Any]) -> HumanFeedbackResult:
    """Return a person's feedback."""
    return HumanFeedbackResult(**{**tree, "output": restored(tree["output"])})


def kept_context(context: PendingFeedbackContext) -> dict[str, Any]:
    """Return what is kept of a pause: CrewAI's own form, without what a model is built of."""
    tree = context.to_dict()
    if isinstance(tree["llm"], dict):
        tree["llm"] = tree["llm"].get("model")  # the rest may be a key
    return tree


def restored_context(tree: dict[str, Any]) -> PendingFeedbackContext:
    """Return a pause."""
    return PendingFeedbackContext.from_dict(tree)


def has_input_provider(flow: Flow[Any]) -> bool:
    """Say whether the program itself answers `flow.ask`."""
    return flow.input_provider is not None or flow_config.input_provider is not None
