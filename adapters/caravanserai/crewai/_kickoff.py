"""CrewAI's crews and tasks, changed so that a crew with our callback is a job.

A crew is recognised by its `task_callback`, so nothing else has to be attached, and a copy of it
(`kickoff_for_each`) is recognised too. A crew without it does what it did.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from concurrent.futures import Future
from functools import cache
from typing import TYPE_CHECKING, Any

import crewai.task as task_module
from crewai import Crew, Task
from crewai.tasks.conditional_task import ConditionalTask

from caravanserai.crewai import _sdk
from caravanserai.crewai._crew import OPTIONS, CrewJob
from caravanserai.crewai._instrument import change, instrument, with_context
from caravanserai.crewai._steps import Place, at, here
from caravanserai_core.errors import UsageError
from caravanserai_core.quoting import one_line
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from crewai import CrewOutput, TaskOutput

    from caravanserai.crewai._options import Options


@cache
def install() -> None:
    """Change CrewAI's classes, once in a process."""
    instrument()
    change(Crew, "kickoff", _kickoff)
    change(Crew, "akickoff", _akickoff)
    change(Crew, "kickoff_for_each", _for_each)
    change(Crew, "kickoff_for_each_async", _afor_each)
    change(Crew, "akickoff_for_each", _afor_each)
    change(Task, "execute_sync", _execute)
    change(Task, "aexecute_sync", _aexecute)
    change(Task, "execute_async", _execute_async)
    change(ConditionalTask, "should_execute", _should_execute)
    # A task calls it by the name that it has imported.
    module: Any = task_module
    module.process_guardrail = _process_guardrail(module.process_guardrail)


def options_of(crew: Crew) -> Options | None:
    """Return how the run of a crew is kept, None: it is no crew of ours."""
    return getattr(crew.task_callback, OPTIONS, None)


# ---------------------------------------------------------------------- crews


def _job(crew: Crew, inputs: Any, given: dict[str, Any]) -> CrewJob | None:
    """Return the job of a kickoff, None: it is none of ours."""
    options = options_of(crew)
    if options is None or crew.stream or _sdk.is_training(crew):
        # A crew that streams calls its kickoff again, from the thread whose work it streams.
        return None
    if inputs is not None and not isinstance(inputs, Mapping):
        return None  # CrewAI says what is wrong with them
    named = None if inputs is None else dict(inputs)
    if getattr(given.get("from_checkpoint"), "restore_from", None) is not None:
        raise UsageError(
            "kickoff(from_checkpoint=…) would begin from CrewAI's own checkpoint, and a crew with "
            "waypoints(…) goes on from its newest waypoint. Leave from_checkpoint out."
        )
    instrument()
    return CrewJob(crew, named, options)


def _kickoff(kickoff: Any) -> Any:
    def changed(self: Crew, inputs: Any = None, *args: Any, **kwargs: Any) -> Any:
        job = _job(self, inputs, kwargs)
        if job is None:
            return kickoff(self, inputs, *args, **kwargs)
        with job.alone(), at(None), job.open():
            known = job.begin()
            if known is not None:
                return known.value
            try:
                with job.working():
                    result: CrewOutput = kickoff(self, inputs, *args, **kwargs)
            except Exception:
                if job.reason is not None:
                    raise job.reason from None
                raise
            job.end(result)
            return result

    return changed


def _akickoff(akickoff: Any) -> Any:
    async def changed(self: Crew, inputs: Any = None, *args: Any, **kwargs: Any) -> Any:
        job = _job(self, inputs, kwargs)
        if job is None:
            return await akickoff(self, inputs, *args, **kwargs)
        async with job.alone():
            with at(None):
                async with job.open():
                    known = await wait_for(in_thread(job.begin))
                    if known is not None:
                        return known.value
                    try:
                        with job.working():
                            result: CrewOutput = await akickoff(self, inputs, *args, **kwargs)
                    except Exception:
                        if job.reason is not None:
                            raise job.reason from None
                        raise
                    await wait_for(in_thread(lambda: job.end(result)))
                    return result

    return changed


def _for_each(kickoff_for_each: Any) -> Any:
    def changed(self: Crew, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        _check_names(self, inputs)
        return kickoff_for_each(self, inputs, *args, **kwargs)

    return changed


def _afor_each(for_each: Any) -> Any:
    async def changed(self: Crew, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        _check_names(self, inputs)
        return await for_each(self, inputs, *args, **kwargs)

    return changed


def _check_names(crew: Crew, inputs: Any) -> None:
    """Refuse a kickoff for each of some inputs where two of them would be one run.

    Raises:
        UsageError: it says which.
    """
    options = options_of(crew)
    if options is None or not isinstance(inputs, (list, tuple)):
        return
    if not options.fields:
        raise UsageError(
            f"kickoff_for_each makes a run of each of the inputs, and "
            f"waypoints({one_line(options.run_id, 80)!r}) names one run. Name an input in it: "
            'waypoints("report-{topic}"). Nothing was run.'
        )
    names: dict[str, int] = {}
    for number, given in enumerate(inputs, 1):
        name = options.name_for(given)
        if name in names:
            raise UsageError(
                f"inputs {names[name]} and {number} of kickoff_for_each would both be run "
                f"{one_line(name, 80)!r}. Name more inputs in waypoints({options.run_id!r}). "
                "Nothing was run."
            )
        names[name] = number


# ---------------------------------------------------------------------- tasks


def _here(task: Task) -> tuple[CrewJob, int] | None:
    """Return the job that a task is part of, and which of its tasks it is."""
    place = here.get()
    if place is None or not isinstance(place.job, CrewJob):
        return None
    index = place.job.index_of(task)
    if index is None:
        return None
    instrument()  # models that CrewAI made since
    return place.job, index


def _execute(execute: Any) -> Any:
    def changed(self: Task, *args: Any, **kwargs: Any) -> TaskOutput:
        found = _here(self)
        if found is None:
            return execute(self, *args, **kwargs)  # type: ignore[no-any-return]
        job, index = found
        known = job.give_again(index)
        if known is not None:
            return known
        args, kwargs = with_context(job, self, 1, args, kwargs)
        try:
            with at(job.place_of(index)):
                return execute(self, *args, **kwargs)  # type: ignore[no-any-return]
        except BaseException as error:
            job.failed_task(index, error)
            raise

    return changed


def _aexecute(execute: Any) -> Any:
    async def changed(self: Task, *args: Any, **kwargs: Any) -> TaskOutput:
        found = _here(self)
        if found is None:
            return await execute(self, *args, **kwargs)  # type: ignore[no-any-return]
        job, index = found
        known = job.give_again(index)
        if known is not None:
            return known
        args, kwargs = with_context(job, self, 1, args, kwargs)
        try:
            with at(job.place_of(index)):
                return await execute(self, *args, **kwargs)  # type: ignore[no-any-return]
        except BaseException as error:
            job.failed_task(index, error)
            raise

    return changed


def _execute_async(execute: Any) -> Any:
    def changed(self: Task, *args: Any, **kwargs: Any) -> Future[TaskOutput]:
        found = _here(self)
        if found is None:
            return execute(self, *args, **kwargs)  # type: ignore[no-any-return]
        job, index = found
        known = job.give_again(index)
        if known is not None:
            done: Future[TaskOutput] = Future()
            done.set_result(known)
            return done
        args, kwargs = with_context(job, self, 1, args, kwargs)
        with at(job.place_of(index)):
            future: Future[TaskOutput] = execute(self, *args, **kwargs)
        future.add_done_callback(functools.partial(_ended, job, index))
        return future

    return changed


def _ended(job: CrewJob, index: int, future: Future[TaskOutput]) -> None:
    error = future.exception()
    if error is not None:
        job.failed_task(index, error)


def _should_execute(should_execute: Any) -> Any:
    def changed(self: ConditionalTask, context: Any) -> bool:
        found = _here(self)
        if found is None:
            return should_execute(self, context)  # type: ignore[no-any-return]
        job, index = found
        return job.decide(index, context, lambda output: should_execute(self, output))

    return changed


def _process_guardrail(process: Any) -> Any:
    @functools.wraps(process)
    def changed(output: Any, guardrail: Any, *args: Any, **kwargs: Any) -> Any:
        place = here.get()
        if place is None or not isinstance(place.job, CrewJob):
            return process(output, guardrail, *args, **kwargs)
        name = getattr(guardrail, "__name__", type(guardrail).__name__)
        return place.job.judge(
            place, name, output, lambda: process(output, guardrail, *args, **kwargs)
        )

    return changed


def task_ended(output: TaskOutput) -> tuple[bool, Any]:
    """Write down that a task of a crew of ours is done; called as its task callback.

    Returns:
        Whether there is a run at all, and what the callback is to return.
    """
    place: Place | None = here.get()
    if place is None or not isinstance(place.job, CrewJob):
        return False, None
    index = place.job.index_at(place.path)
    return True, None if index is None else place.job.finished_task(index, output)
