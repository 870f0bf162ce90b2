"""Models, tools, guardrails and handoffs, taught to look into the run before they work.

They are changed in place and not copied: the SDK compares agents and tools by identity, a run
state names them, results and hooks hand them out, and a copy would have to stand in for all of
that. What is changed is one function of each object. Outside of a run of ours it does what it
did before; which run it is in, if any, is told by a context variable, so several runs may share
agents.
"""

from __future__ import annotations

import functools
import json
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from agents import (
    Agent,
    ApplyPatchTool,
    ComputerTool,
    CustomTool,
    FunctionTool,
    GuardrailFunctionOutput,
    LocalShellTool,
    ModelProvider,
    ShellTool,
)
from agents.models.interface import Model
from openai.types.responses import ResponseCompletedEvent, ResponseOutputItemDoneEvent

from caravanserai.openai_agents import _answers, _notes, _sdk
from caravanserai.openai_agents._calls import call_tool
from caravanserai.openai_agents._steps import (
    GUARDRAIL,
    HANDOFF,
    MODEL,
    Place,
    digest,
    here,
    outside,
)
from caravanserai_core import codec
from caravanserai_core.errors import UnserialisableState
from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from agents.items import ModelResponse

_log = logging.getLogger("caravanserai")

_MARK: Final = "__caravanserai__"


def prepare(agent: Agent[Any]) -> None:
    """Instrument an agent and all that it can reach: tools, handoffs, agents inside of tools."""
    for one in _sdk.reachable(agent):
        if isinstance(one.model, Model):
            instrument_model(one.model)
        prepare_guardrails([*one.input_guardrails, *one.output_guardrails])
        if one.mcp_servers:
            _instrument_listing(one)
        for tool in one.tools:
            prepare_tool(tool)
        for handoff in one.handoffs:
            _instrument_handoff(handoff)


def prepare_tool(tool: Any) -> None:
    """Instrument a tool that this process runs; what a hosted one gives is in the model's answer.

    Not those that hold an object with many functions, a computer or an editor of files.
    """
    if isinstance(tool, FunctionTool):
        if not hasattr(tool.on_invoke_tool, _MARK):
            _put(tool, "on_invoke_tool", _invoker(tool, tool.on_invoke_tool))
            inner = _sdk.inner_agent(tool)
            if inner is not None:
                prepare(inner)
    elif isinstance(tool, CustomTool):
        _instrument_call(tool, "on_invoke_tool", lambda ctx, text: (ctx.tool_call_id, text))
    elif isinstance(tool, (ShellTool, LocalShellTool)) and tool.executor is not None:
        _instrument_call(tool, "executor", _shell_call)


def _shell_call(request: Any) -> tuple[str, str]:
    action = request.data.action
    commands = getattr(action, "commands", None) or getattr(action, "command", None) or action
    return str(request.data.call_id), json.dumps({"commands": commands}, default=str)


def _instrument_call(tool: Any, name: str, read: Callable[..., tuple[str, str]]) -> None:
    """Instrument a function of a tool, given how to read the call's id and what it is given."""
    function = getattr(tool, name)
    if hasattr(function, _MARK):
        return

    @functools.wraps(function, updated=())
    async def instrumented(*args: Any) -> Any:
        return await call_tool(tool, *read(*args), lambda: function(*args))

    _put(tool, name, instrumented)


def not_recorded(agent: Agent[Any]) -> list[str]:
    """Return the names of tools that this process runs and that are not instrumented."""
    tools = [tool for one in _sdk.reachable(agent) for tool in one.tools]
    return [tool.name for tool in tools if isinstance(tool, (ComputerTool, ApplyPatchTool))]


def prepare_provider(provider: ModelProvider) -> None:
    """Instrument each model that a provider gives."""
    get_model = provider.get_model
    if hasattr(get_model, _MARK):
        return

    @functools.wraps(get_model)
    def instrumented(*args: Any, **kwargs: Any) -> Model:
        model = get_model(*args, **kwargs)
        instrument_model(model)
        return model

    _put(provider, "get_model", instrumented)


def prepare_guardrails(guardrails: Iterable[Any]) -> None:
    """Instrument guardrails of a whole run."""
    for guardrail in guardrails:
        _instrument_guardrail(guardrail)


def _put(target: Any, name: str, function: Any) -> None:
    """Change a function of an object; says so where the object does not let itself be changed."""
    setattr(function, _MARK, True)
    try:
        object.__setattr__(target, name, function)
    except (AttributeError, TypeError):
        _log.warning(
            "a %s cannot be instrumented (it has no attribute of its own for %s): what it does is "
            "not recorded, and is done again after a crash",
            type(target).__qualname__,
            name,
        )


# ---------------------------------------------------------------------- models


def instrument_model(model: Model) -> None:
    """Let a model look for a recorded answer before it asks."""
    if hasattr(model.get_response, _MARK):
        return
    get_response, stream_response = model.get_response, model.stream_response

    @functools.wraps(get_response)
    async def instrumented(*args: Any, **kwargs: Any) -> ModelResponse:
        question = _question(here.get(), args, kwargs)
        if question is None:
            return await get_response(*args, **kwargs)
        answer = question.answer()
        if answer is None:
            with outside():
                answer = await get_response(*args, **kwargs)
            await question.record(answer)
        return answer

    @functools.wraps(stream_response)
    async def streamed(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        question = _question(here.get(), args, kwargs)
        answer = None if question is None else question.answer()
        if answer is not None:
            for event in _answers.events(answer):
                yield event
        elif question is not None and not question.streams:
            # `Runner.run` does not stream; the SDK's streaming loop is used for its snapshots.
            with outside():
                answer = await get_response(*args, **kwargs)
            await question.record(answer)
            yield _answers.completed(answer)
        else:
            items: list[Any] = []
            async with aclosing(stream_response(*args, **kwargs)) as stream:  # type: ignore[type-var]
                async for event in _apart(stream):
                    if isinstance(event, ResponseOutputItemDoneEvent):
                        items.append(event.item)
                    elif isinstance(event, ResponseCompletedEvent) and question is not None:
                        # Before the SDK sees it, so before any tool that it calls.
                        await question.record(_answers.of_event(event.response, items))
                    yield event

    _put(model, "get_response", instrumented)
    _put(model, "stream_response", streamed)


async def _apart(stream: Any) -> AsyncIterator[Any]:
    """Yield what a stream yields; while it works it is in no run, and its reader is."""
    while True:
        with outside():
            try:
                event = await anext(stream)
            except StopAsyncIteration:
                return
        yield event


def _question(
    place: Place | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> _Question | None:
    """Return what a call of a model asks, or None where it is part of no run."""
    if place is None or (not place.path and not place.job.asks):
        return None
    given = dict(zip(_ARGUMENTS, args, strict=False)) | kwargs
    offered = set()
    for tool in given.get("tools") or ():
        prepare_tool(tool)
        offered.add(tool.name)
    for handoff in given.get("handoffs") or ():
        _instrument_handoff(handoff)
        offered.add(handoff.tool_name)
    asked = digest(given.get("system_instructions"), given.get("input"))
    if place.ordered:
        return _Question(place, f"{place.path}#{place.asked + 1}", asked, offered)
    times = place.steps.next_seen(f"{place.path}@{asked}")
    return _Question(place, f"{place.path}@{asked}#{times}", asked, offered)


class _Question:
    """One call of a model at its place in a run."""

    def __init__(self, place: Place, key: str, asked: str, offered: set[str]) -> None:
        self._place, self._key, self._digest, self._offered = place, key, asked, offered

    @property
    def streams(self) -> bool:
        """Whether somebody looks at the answer while it comes."""
        return bool(self._place.path or self._place.job.streams)

    def answer(self) -> ModelResponse | None:
        """Return the recorded answer."""
        entry = self._place.steps.recorded(MODEL, self._key)
        if entry is None or "output" not in entry.data:
            return None
        if entry.meta.get("asked") != self._digest:
            self._place.job.changed(entry.meta.get("agent"))
        self._answered()
        return _answers.from_data(entry.data)

    async def record(self, answer: ModelResponse) -> None:
        """Write an answer down, before anybody works with it."""
        data = _answers.to_data(answer)
        agent = self._place.job.agent_at(self._place.path)
        meta = {"path": self._place.path, "n": self._place.asked + 1, "asked": self._digest}
        if agent:
            meta["agent"] = agent
        called = (i.get("name") for i in data["output"] if i.get("type") == "function_call")
        if invented := sorted({name for name in called if name and name not in self._offered}):
            meta["invented"] = invented
        say = _notes.answered(agent or "an agent inside of a tool", data)
        await self._place.steps.record(MODEL, self._key, data, say=say, meta=meta)
        self._answered()

    def _answered(self) -> None:
        self._place.steps.counts[self._place.path] += 1
        if not self._place.path:
            self._place.job.answered_with(self._key)


_ARGUMENTS: Final = (
    "system_instructions",
    "input",
    "model_settings",
    "tools",
    "output_schema",
    "handoffs",
    "tracing",
)
"""The positional parameters of `Model.get_response` (openai-agents 0.20 to 0.24)."""


# ---------------------------------------------------------------------- tools


def _invoker(tool: FunctionTool, invoke: Any) -> Any:
    """Return what calls a tool; of the same class as before, where that is one of the SDK's.

    The SDK looks at the class and the attributes of what `function_tool` makes.
    """
    cls = type(invoke)
    if not cls.__module__.startswith("agents.") or not hasattr(invoke, "__dict__"):

        @functools.wraps(invoke, updated=())
        async def function(ctx: Any, input: str) -> Any:  # noqa: A002 - the SDK's name
            return await _call(tool, invoke, ctx, input)

        return function

    async def call(self: Any, ctx: Any, input: str) -> Any:  # noqa: A002, ARG001 - the SDK's names
        return await _call(tool, invoke, ctx, input)

    instrumented = type(cls.__name__, (cls,), {"__call__": call, "__module__": cls.__module__})
    made: Any = object.__new__(instrumented)
    made.__dict__.update(invoke.__dict__)
    return made


async def _call(tool: FunctionTool, invoke: Any, ctx: Any, arguments: str) -> Any:
    call_id = str(getattr(ctx, "tool_call_id", ""))
    return await call_tool(tool, call_id, arguments, lambda: invoke(ctx, arguments))


def _instrument_listing(agent: Agent[Any]) -> None:
    """Instrument the tools of MCP servers, which are made anew whenever they are listed."""
    get_mcp_tools = agent.get_mcp_tools
    if hasattr(get_mcp_tools, _MARK):
        return

    @functools.wraps(get_mcp_tools)
    async def instrumented(*args: Any, **kwargs: Any) -> Any:
        tools = await get_mcp_tools(*args, **kwargs)
        for tool in tools:
            prepare_tool(tool)
        return tools

    _put(agent, "get_mcp_tools", instrumented)


# ---------------------------------------------------------------------- handoffs


def _instrument_handoff(handoff: Any) -> None:
    invoke = getattr(handoff, "on_invoke_handoff", None)
    if invoke is None or hasattr(invoke, _MARK):
        return

    @functools.wraps(invoke)
    async def instrumented(ctx: Any, arguments: str) -> Any:
        place = here.get()
        if place is None:
            return await invoke(ctx, arguments)
        key = place.call(f"{handoff.tool_name}:{digest(arguments)}")
        known = place.steps.recorded(HANDOFF, key)
        target = _sdk.target(handoff)
        if known is not None and target is not None and target.name == known.data:
            return target  # what the program does at a handoff was done
        token = here.set(place.inside(key, ordered=False))
        try:
            agent = await invoke(ctx, arguments)
        finally:
            here.reset(token)
        if isinstance(agent, Agent):
            prepare(agent)
            await place.steps.record(HANDOFF, key, agent.name, durable=False)
        return agent

    _put(handoff, "on_invoke_handoff", instrumented)


# ---------------------------------------------------------------------- guardrails


def _instrument_guardrail(guardrail: Any) -> None:
    function = getattr(guardrail, "guardrail_function", None)
    if function is None or hasattr(function, _MARK):
        return

    @functools.wraps(function)
    async def instrumented(*args: Any, **kwargs: Any) -> Any:
        place = here.get()
        if place is None:
            return await _awaited(function(*args, **kwargs))
        name = guardrail.get_name()
        if place.path:
            # Beside its agent, whose models it must not be taken for.
            path = f"{place.path}/guardrail {name}"
            token = here.set(place.inside(path, ordered=False, judges=True))
            try:
                return await _awaited(function(*args, **kwargs))
            finally:
                here.reset(token)
        times = place.steps.next_seen(f"{name}:{place.asked}")
        key = f"{name}:{place.asked}#{times}"
        known = place.steps.recorded(GUARDRAIL, key)
        if known is not None:
            return GuardrailFunctionOutput(**known.data)
        token = here.set(place.inside(f"guardrail {key}", ordered=False, judges=True))
        writing = place.steps.writing("guardrails")
        with place.job.guarding():
            try:
                found = await _awaited(function(*args, **kwargs))
            except Exception:
                await writing.over()
                raise
            finally:
                here.reset(token)
            if getattr(found, "tripwire_triggered", False):
                # The SDK stops the run now, before a tool starts; the next start judges again.
                place.job.tripped()
                await writing.over()
            else:
                writing.begins()
                try:
                    await _record_guardrail(place, key, name, found)
                finally:
                    writing.ends()
            return found

    _put(guardrail, "guardrail_function", instrumented)


async def _awaited(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value


async def _record_guardrail(place: Place, key: str, name: str, found: Any) -> None:
    if not isinstance(found, GuardrailFunctionOutput):
        return  # the SDK says what is wrong with it
    data = {"output_info": found.output_info, "tripwire_triggered": found.tripwire_triggered}
    try:
        codec.encode(data)
    except UnserialisableState as error:
        _log.info("what guardrail %s found is not recorded: %s", one_line(name, 60), error)
        return
    await place.steps.record(GUARDRAIL, key, data, durable=False)
