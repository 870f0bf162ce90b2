"""Calls of tools: recorded before they begin and when they ended, as steps of the core."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from agents import CustomTool

from caravanserai.openai_agents import _notes, _sdk
from caravanserai.openai_agents._items import arguments_of
from caravanserai.openai_agents._steps import here
from caravanserai_core import codec
from caravanserai_core.errors import CaravanseraiError, UnserialisableState
from caravanserai_core.escaping import collected
from caravanserai_core.questions import digest_of
from caravanserai_core.quoting import one_line
from caravanserai_core.stepping import Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from caravanserai.openai_agents._steps import Place, Writing

_log = logging.getLogger("caravanserai")


async def call_tool(tool: Any, call_id: str, arguments: str, work: Callable[[], Any]) -> Any:
    """Call a tool, or return what the very call gave before.

    Args:
        tool: a tool of the SDK that this process runs.
        call_id: the id that the model gave the call.
        arguments: what it is called with; of a function tool JSON, as the model wrote it.
        work: calls it; what that returns is awaited, if it can be.
    """
    place = here.get()
    if place is None:
        return await _awaited(work())
    writing = place.steps.writing(place.path)
    try:
        value = await _called(place, writing, tool, call_id, arguments, work)
    except Exception:
        await writing.over()
        raise
    await writing.over()
    return value


async def _called(
    place: Place,
    writing: Writing,
    tool: Any,
    call_id: str,
    arguments: str,
    work: Callable[[], Any],
) -> Any:
    key = place.call(call_id)
    inherited, named = place.job.inherited, _by_name(tool, arguments)
    inner = _sdk.inner_agent(tool)
    if inner is not None and inherited.recorded(tool.name, named) is None:
        # What its agent does is recorded itself, so the call can be made again.
        token = here.set(place.inside(key, ordered=True))
        place.job.enter(key, inner)
        try:
            return await _awaited(work())
        finally:
            here.reset(token)
    given: list[Any] = []

    async def call() -> Any:
        token = here.set(place.inside(key, ordered=False))
        writing.ends()
        try:
            with collected() as escaping:
                value = await _awaited(work())
        finally:
            writing.begins()
            here.reset(token)
        if escaping:
            # The SDK told the model of it, as of an error of the tool.
            place.job.escaping = escaping[0]
            raise escaping[0]
        given.append(value)
        return _kept(tool.name, value)

    step = Step(
        (tool.name, digest_of(key, "a call")),
        digest_of(arguments, "arguments"),
        _notes.called_as(tool.name, arguments),
        token=f"{place.job.token}/{key}",
    )
    journal = place.job.journal
    writing.begins()
    try:
        value = await inherited.aonce(journal, step, named, call, place.job.policy(tool))
    except CaravanseraiError as error:
        # The SDK would make an error of the tool of it.
        place.job.escaping = place.job.escaping or error
        raise
    except asyncio.CancelledError:
        place.job.calls()
        raise
    finally:
        writing.ends()
    place.job.calls()
    return given[0] if given else value


def _by_name(tool: Any, arguments: str) -> dict[str, Any]:
    """Return the arguments of a call by name, as the conversation of a run has them."""
    read = arguments if isinstance(tool, CustomTool) else arguments_of(arguments)
    return read if isinstance(read, dict) else {"input": read}


async def _awaited(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value


def _kept(name: str, value: Any) -> Any:
    """Return what is recorded of a result: itself, or what the SDK tells the model of it."""
    try:
        codec.encode(value)
    except UnserialisableState as error:
        _log.warning(
            "a result of tool %s cannot be kept exactly (%s): after a crash its text is given "
            "in its place, which is what the model is told",
            one_line(name, 60),
            error,
        )
        return str.__str__(value) if isinstance(value, str) else str(value)
    return value
