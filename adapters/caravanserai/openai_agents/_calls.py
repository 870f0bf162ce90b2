"""Calls of tools: recorded before they begin and when they ended, as steps of the core."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from caravanserai.openai_agents import _notes, _sdk
from caravanserai.openai_agents._steps import here
from caravanserai_core import codec, effects
from caravanserai_core.errors import UnserialisableState
from caravanserai_core.escaping import collected
from caravanserai_core.questions import digest_of
from caravanserai_core.quoting import one_line
from caravanserai_core.stepping import Step

if TYPE_CHECKING:
    from agents import FunctionTool

_log = logging.getLogger("caravanserai")


async def call_tool(tool: FunctionTool, invoke: Any, ctx: Any, arguments: str) -> Any:
    """Call a tool, or return what the very call gave before.

    Args:
        tool: the tool.
        invoke: what calls it.
        ctx: the SDK's context of the call; names its id.
        arguments: as the model wrote them, JSON.
    """
    place = here.get()
    if place is None:
        return await invoke(ctx, arguments)
    key = place.call(str(getattr(ctx, "tool_call_id", "")))
    if _sdk.inner_agent(tool) is not None:
        # What its agent does is recorded itself, so the call can be made again.
        token = here.set(place.inside(key, ordered=True))
        place.job.enter(key, _sdk.inner_agent(tool))
        try:
            return await invoke(ctx, arguments)
        finally:
            here.reset(token)
    given: list[Any] = []

    async def call() -> Any:
        token = here.set(place.inside(key, ordered=False))
        try:
            with collected() as escaping:
                value = await invoke(ctx, arguments)
        finally:
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
    value = await effects.aonce(journal, step, call, place.job.policy(tool))
    return given[0] if given else value


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
        return str(value)
    return value
