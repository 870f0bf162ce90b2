"""Outputs of tasks and crews as a state keeps them, and back: equal, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crewai import CrewOutput, TaskOutput
from crewai.types.usage_metrics import UsageMetrics

if TYPE_CHECKING:
    from collections.abc import Mapping


def kept_task(output: TaskOutput) -> dict[str, Any]:
    """Return what is kept of a task's output: its fields, read without CrewAI.

    A pydantic output is kept as what it is, an object of the program's class.
    """
    tree = output.model_dump(exclude={"pydantic"})
    tree["output_format"] = output.output_format.value
    if output.pydantic is not None:
        tree["pydantic"] = output.pydantic
    if restored_task(tree) != output:
        # A subclass, or what a validator changes: kept whole, for who has the class.
        tree["exact"] = output
    return tree


def restored_task(tree: dict[str, Any]) -> TaskOutput:
    """Return a task's output."""
    if "exact" in tree:
        return tree["exact"]  # type: ignore[no-any-return]
    made = TaskOutput.model_validate({k: v for k, v in tree.items() if k != "pydantic"})
    made.pydantic = tree.get("pydantic")
    return made


def kept_crew(output: CrewOutput, known: Mapping[int, TaskOutput] | None = None) -> dict[str, Any]:
    """Return what is kept of a crew's output.

    Args:
        output: what the crew gave.
        known: outputs of its tasks, by index, that are kept beside it: they are only named.
    """
    known = known or {}
    tree = output.model_dump(exclude={"pydantic", "tasks_output"})
    if output.pydantic is not None:
        tree["pydantic"] = output.pydantic
    tree["tasks_output"] = [
        next(({"task": i} for i, other in known.items() if other == one), None) or kept_task(one)
        for one in output.tasks_output
    ]
    if restored_crew(tree, known) != output:
        tree["exact"] = output
    return tree


def restored_crew(
    tree: dict[str, Any], known: Mapping[int, TaskOutput] | None = None
) -> CrewOutput:
    """Return a crew's output; see `kept_crew`."""
    if "exact" in tree:
        return tree["exact"]  # type: ignore[no-any-return]
    outputs = [
        (known or {})[one["task"]] if "task" in one else restored_task(one)
        for one in tree["tasks_output"]
    ]
    made = CrewOutput(
        raw=tree["raw"],
        json_dict=tree["json_dict"],
        tasks_output=outputs,
        token_usage=UsageMetrics.model_validate(tree["token_usage"]),
    )
    made.pydantic = tree.get("pydantic")
    return made


def kept(value: Any) -> Any:
    """Return what is kept of what a callback gave: an output of CrewAI in its form, else itself."""
    if type(value) is CrewOutput:
        return {"crew_output": kept_crew(value)}
    if type(value) is TaskOutput:
        return {"task_output": kept_task(value)}
    return {"value": value}


def restored(tree: dict[str, Any]) -> Any:
    """Return what a callback gave."""
    if "crew_output" in tree:
        return restored_crew(tree["crew_output"])
    if "task_output" in tree:
        return restored_task(tree["task_output"])
    return tree["value"]
