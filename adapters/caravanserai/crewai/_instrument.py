"""CrewAI's classes, changed so that what runs in a run of ours is looked up and recorded.

Outside of such a run each does what it did. Methods of classes are changed, not objects: CrewAI
copies agents, models and tools (`kickoff_for_each`), and a copy of a changed object would work on
the original. What is written here rests on public methods of public classes; the rest is in
`_sdk`.
"""

from __future__ import annotations

import functools
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from crewai.agents.agent_builder.base_agent import BaseAgent
from crewai.llms.base_llm import BaseLLM
from crewai.tools.base_tool import BaseTool
from crewai.tools.structured_tool import CrewStructuredTool

from caravanserai.crewai import _calls, _models, _sdk
from caravanserai.crewai._steps import Place, at, here
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from caravanserai.crewai._job import Job

_MARK: Final = "_caravanserai"

_calling: ContextVar[object] = ContextVar("caravanserai_crewai_tool", default=None)
"""The tool whose method runs: what that calls of its base class is no call of its own."""


def change(cls: type, name: str, make: Callable[[Any], Any]) -> None:
    """Change a method that a class defines itself, once."""
    method = cls.__dict__.get(name)
    if method is None or not callable(method) or hasattr(method, _MARK):
        return
    changed = functools.wraps(method)(make(method))
    setattr(changed, _MARK, True)
    setattr(cls, name, changed)


def instrument() -> None:
    """Change the classes that there are by now; called again before each task, for later ones."""
    _sdk.count_usage()
    for cls in _and_below(BaseLLM):
        change(cls, "call", _model)
        change(cls, "acall", _amodel)
    for cls in _and_below(BaseTool):
        change(cls, "run", _tool)
        change(cls, "arun", _atool)
    for cls in _and_below(CrewStructuredTool):
        change(cls, "invoke", _tool)
        change(cls, "ainvoke", _atool)
    for cls in _and_below(BaseAgent):
        change(cls, "execute_task", _attempt)
        change(cls, "aexecute_task", _aattempt)


def _and_below(cls: type) -> Iterator[type]:
    yield cls
    subclasses: list[type] = cls.__subclasses__()
    for below in subclasses:
        yield from _and_below(below)


# ---------------------------------------------------------------------- models


def _model(call: Any) -> Any:
    def instrumented(self: Any, messages: Any, *args: Any, **kwargs: Any) -> Any:
        question = _models.question(here.get(), self, messages, kwargs)
        if question is None:
            return call(self, messages, *args, **kwargs)
        known = question.answer()
        if known is not None:
            return known.value
        with question.asking():
            answer = call(self, messages, *args, **kwargs)
        question.record(answer)
        return answer

    return instrumented


def _amodel(call: Any) -> Any:
    async def instrumented(self: Any, messages: Any, *args: Any, **kwargs: Any) -> Any:
        question = _models.question(here.get(), self, messages, kwargs)
        if question is None:
            return await call(self, messages, *args, **kwargs)
        known = question.answer()
        if known is not None:
            return known.value
        with question.asking():
            answer = await call(self, messages, *args, **kwargs)
        await wait_for(in_thread(lambda: question.record(answer)))
        return answer

    return instrumented


# ---------------------------------------------------------------------- tools


def _tool(run: Any) -> Any:
    def instrumented(self: Any, *args: Any, **kwargs: Any) -> Any:
        place = here.get()
        if place is None or _calling.get() is self:
            return run(self, *args, **kwargs)
        token = _calling.set(self)
        try:
            return _calls.call_tool(place, self, args, kwargs, lambda: run(self, *args, **kwargs))
        finally:
            _calling.reset(token)

    return instrumented


def _atool(run: Any) -> Any:
    async def instrumented(self: Any, *args: Any, **kwargs: Any) -> Any:
        place = here.get()
        if place is None or _calling.get() is self:
            return await run(self, *args, **kwargs)
        token = _calling.set(self)
        try:
            return await _calls.acall_tool(
                place, self, args, kwargs, lambda: run(self, *args, **kwargs)
            )
        finally:
            _calling.reset(token)

    return instrumented


# ---------------------------------------------------------------------- agents


def _attempt(execute: Any) -> Any:
    def instrumented(self: Any, task: Any, *args: Any, **kwargs: Any) -> Any:
        place = _place_of_attempt(self, task)
        if place is None:
            return execute(self, task, *args, **kwargs)
        args, kwargs = with_context(place.job, task, 0, args, kwargs)
        with at(place):
            return execute(self, task, *args, **kwargs)

    return instrumented


def _aattempt(execute: Any) -> Any:
    async def instrumented(self: Any, task: Any, *args: Any, **kwargs: Any) -> Any:
        place = _place_of_attempt(self, task)
        if place is None:
            return await execute(self, task, *args, **kwargs)
        args, kwargs = with_context(place.job, task, 0, args, kwargs)
        with at(place):
            return await execute(self, task, *args, **kwargs)

    return instrumented


def with_context(
    job: Job, task: Any, position: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what a task is executed with: what a run was handed is part of its context.

    Args:
        job: of the run.
        task: the task.
        position: of the context among the arguments.
        args: what it is called with.
        kwargs: likewise, by name.
    """
    if job.handed is None:
        return args, kwargs
    if len(args) > position:
        given = job.context_of(task, args[position])
        return (*args[:position], given, *args[position + 1 :]), kwargs
    return args, {**kwargs, "context": job.context_of(task, kwargs.get("context"))}


def _place_of_attempt(agent: Any, task: Any) -> Place | None:
    """Return the place of an agent's work on a task that begins, None outside of a run."""
    place = here.get()
    if place is None:
        return None
    if place.attempt is not None and place.attempt[0] is agent and place.attempt[1] is task:
        # CrewAI begins the task again, from inside of its work on it: a model or a tool failed.
        place.job.retried(place.path)
        return place
    number = place.steps.key("attempt", place.path).rpartition("#")[2]
    role = str(getattr(agent, "role", "") or "")
    return Place(place.job, f"{place.path}/{number}", role, (agent, task))
