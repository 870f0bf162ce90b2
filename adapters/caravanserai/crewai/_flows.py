"""CrewAI's flows, changed so that a flow with our persistence goes on where it was."""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from crewai.flow.async_feedback.types import HumanFeedbackPending
from crewai.flow.flow import Flow

from caravanserai.crewai import _sdk
from caravanserai.crewai._flow import FlowJob
from caravanserai.crewai._instrument import change, instrument
from caravanserai.crewai._steps import Place, at, here
from caravanserai_core.errors import UsageError
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from caravanserai.crewai._persistence import WaypointFlowPersistence


_FORKS = "restore_from_state_id"
"""The argument of a kickoff that begins from the state of another flow."""


@cache
def install() -> None:
    """Change CrewAI's classes, once in a process."""
    instrument()
    for cls in Flow.__mro__:
        change(cls, "kickoff_async", _kickoff)
        change(cls, "resume_async", _resume)
        change(cls, "ask", _ask)
        change(cls, "_execute_method", _execute_method)
        change(cls, "_run_human_feedback_step", _feedback_step)
        change(cls, "_resolve_feedback_provider", _feedback_provider)


def persistence_of(flow: Flow[Any]) -> WaypointFlowPersistence | None:
    """Return the persistence of ours that a flow has, None: it has none."""
    from caravanserai.crewai._persistence import WaypointFlowPersistence

    if type(flow).is_crewai_internal:
        return None
    for found in (flow.persistence, *_sdk.backends(flow)):
        if isinstance(found, WaypointFlowPersistence):
            return found
    return None


def _job_of(flow: Flow[Any]) -> tuple[FlowJob, Place] | None:
    """Return the job that a flow does, and the place of the code that runs."""
    place = here.get()
    if place is None or not isinstance(place.job, FlowJob) or place.job.flow is not flow:
        return None
    return place.job, place


def _kickoff(kickoff: Any) -> Any:
    async def changed(self: Flow[Any], inputs: Any = None, *args: Any, **kwargs: Any) -> Any:
        ours = persistence_of(self)
        if ours is None or self.stream or _job_of(self) is not None:
            return await kickoff(self, inputs, *args, **kwargs)
        if getattr(kwargs.get("from_checkpoint"), "restore_from", None) is not None:
            raise UsageError(
                "kickoff(from_checkpoint=…) would begin from CrewAI's own checkpoint, and a flow "
                "with WaypointFlowPersistence goes on from its newest waypoint. Leave it out."
            )
        given = dict(inputs or {})
        forks = kwargs.get(_FORKS) is not None
        known = given.pop("id", None)
        run_id = str(known or (uuid4() if forks else self.flow_id))
        job = FlowJob(self, run_id, given, ours.options(run_id), turns=ours.turns)
        async with job.alone():
            with at(None):
                async with job.open():
                    recorded = await wait_for(in_thread(job.begin))
                    if recorded is not None:
                        job.give_back()
                        return recorded.value
                    return await _worked(kickoff, self, job, ours, args, kwargs)

    return changed


async def _worked(
    kickoff: Any,
    flow: Flow[Any],
    job: FlowJob,
    ours: WaypointFlowPersistence,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Let the engine do the work of a start."""
    instrument()
    _sdk.clear(flow)
    _sdk.name_it(flow, job.run.run_id)
    inputs = job.inputs
    if kwargs.get(_FORKS) is not None:
        if job.restored is None:
            inputs = {**(inputs or {}), "id": job.run.run_id}  # else the engine makes another one
        else:
            kwargs = {**kwargs, _FORKS: None}  # it has a state of its own by now
    if flow.persistence is None:
        flow.persistence = ours  # where the engine saves a pause
    try:
        with at(Place(job, "flow")):
            result = await kickoff(flow, inputs, *args, **kwargs)
    except Exception:
        if job.reason is not None:
            raise job.reason from None
        raise
    await wait_for(in_thread(lambda: job.end(result)))
    return result


def _resume(resume: Any) -> Any:
    async def changed(self: Flow[Any], feedback: str = "") -> Any:
        ours = persistence_of(self)
        context = self.pending_feedback
        if ours is None or context is None or not ours.asks(context.flow_id):
            return await resume(self, feedback)
        # The engine's own way knows no other branch than the one that asked.
        await wait_for(in_thread(lambda: ours.answer(context.flow_id, feedback)))
        _sdk.no_pause(self)
        return await self.kickoff_async(inputs={"id": context.flow_id})

    return changed


def _execute_method(execute: Any) -> Any:
    async def changed(
        self: Flow[Any], method_name: Any, method: Any, *args: Any, **kwargs: Any
    ) -> tuple[Any, str | None]:
        found = _job_of(self)
        if found is None:
            return await execute(self, method_name, method, *args, **kwargs)  # type: ignore[no-any-return]
        job, _ = found
        job.stop_if_leaving()
        place, known = job.place_of(str(method_name))
        if known is not None:
            return _sdk.give_again(self, method_name, known), None
        body = job.body_of(place)
        if body is not None:
            method = _gives(method, body.value)
        began = time.monotonic()
        before = self.last_human_feedback
        with at(place):
            result, event = await execute(self, method_name, method, *args, **kwargs)
        feedback = self.last_human_feedback
        if feedback is before or getattr(feedback, "method_name", None) != str(method_name):
            feedback = None
        state = self.state
        await wait_for(in_thread(lambda: job.ended_method(place, result, feedback, began, state)))
        return result, event

    return changed


def _gives(method: Any, value: Any) -> Any:
    """Return a method that gives what another one gave before."""

    async def again(*args: Any, **kwargs: Any) -> Any:  # noqa: ARG001 - the method's own
        return value

    again.__name__ = getattr(method, "__name__", "method")
    return again


def _feedback_step(step: Any) -> Any:
    async def changed(self: Flow[Any], method_name: Any, definition: Any, output: Any) -> Any:
        found = _job_of(self)
        if found is not None:
            job, place = found
            await wait_for(in_thread(lambda: job.keep_body(place, output)))
        return await step(self, method_name, definition, output)

    return changed


class _Questions:
    """Asks for feedback on a method's output by a question of the run."""

    def request_feedback(self, context: Any, flow: Flow[Any]) -> str:
        """Return what a person says.

        Raises:
            HumanFeedbackPending: nobody answered yet.
        """
        found = _job_of(flow)
        if found is None:
            raise HumanFeedbackPending(context=context)
        job, place = found
        return job.feedback(place, context)


def _feedback_provider(resolve: Any) -> Any:
    def changed(self: Flow[Any], definition: Any) -> Any:
        provider = resolve(self, definition)
        if provider is None and _job_of(self) is not None:
            return _Questions()
        return provider

    return changed


def _ask(ask: Any) -> Any:
    def changed(self: Flow[Any], message: str, *args: Any, **kwargs: Any) -> Any:
        found = _job_of(self)
        if found is None or _sdk.has_input_provider(self):
            return ask(self, message, *args, **kwargs)
        job, place = found
        return job.asked(place, message)

    return changed
