"""What the adapter uses of the SDK beyond its documented interface; all of it stands here.

Read in openai-agents 0.20.0 and 0.24.0; the tests run on both ends.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import hashlib
import threading
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from agents import (
    Agent,
    FunctionTool,
    Handoff,
    RunConfig,
    RunResult,
    RunResultStreaming,
    RunState,
)
from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner
from agents.run_config import _coerce_run_config

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator


@cache
def sdk_version() -> str:
    """Return the version of openai-agents."""
    return version("openai-agents")


def inner_agent(tool: object) -> Agent[Any] | None:
    """Return the agent that `Agent.as_tool` made a tool of, or None for another tool."""
    found = getattr(tool, "_agent_instance", None)
    return found if isinstance(found, Agent) else None


def target(handoff: Handoff[Any, Any]) -> Agent[Any] | None:
    """Return the agent that a handoff made by `handoff(agent)` leads to, or None."""
    reference = getattr(handoff, "_agent_ref", None)
    found = None if reference is None else reference()
    return found if isinstance(found, Agent) else None


def reachable(agent: Agent[Any]) -> list[Agent[Any]]:
    """Return an agent and all that a run of it can come to: by handoffs, and inside of tools."""
    found: dict[int, Agent[Any]] = {}
    todo = [agent]
    while todo:
        one = todo.pop()
        if id(one) in found:
            continue
        found[id(one)] = one
        for handoff in one.handoffs:
            to = handoff if isinstance(handoff, Agent) else target(handoff)
            todo += [] if to is None else [to]
        inner = (inner_agent(tool) for tool in one.tools if isinstance(tool, FunctionTool))
        todo += [to for to in inner if to is not None]
    return list(found.values())


def function_tools(agent: Agent[Any]) -> list[FunctionTool]:
    """Return the function tools of all agents that a run of an agent can come to."""
    tools = (tool for one in reachable(agent) for tool in one.tools)
    return [tool for tool in tools if isinstance(tool, FunctionTool)]


def instructions(agent: Agent[Any]) -> dict[str, str]:
    """Return digests of the instructions that are plain texts, by the name of their agent."""
    texts = {one.name: one.instructions for one in reachable(agent)}
    return {
        name: hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        for name, text in sorted(texts.items())
        if isinstance(text, str)
    }


def callable_names(agent: Agent[Any]) -> set[str]:
    """Return the names under which a model can call what an agent has."""
    names = {str(tool.name) for tool in agent.tools}
    for handoff in agent.handoffs:
        if isinstance(handoff, Agent):
            names.add(Handoff.default_tool_name(handoff))
        else:
            names.add(handoff.tool_name)
    return names


Engine = AgentRunner
"""What `agents.Runner` leaves the work to. The SDK says of it that it may change (0.20 to 0.24)."""


def default_runner() -> Engine:
    """Return what `agents.Runner` runs agents with, as does `Agent.as_tool`."""
    return get_default_agent_runner()


def set_default_runner(runner: Engine) -> None:
    """Let `agents.Runner` run agents with another."""
    set_default_agent_runner(runner)


def config_of(given: RunConfig | dict[str, Any] | None) -> tuple[RunConfig, bool]:
    """Return the configuration of a run as the SDK reads it, and whether its provider is new.

    A new one is the runner's to close. The SDK does that since 0.24, where it made it itself.
    """
    own = given is None or (isinstance(given, dict) and "model_provider" not in given)
    return RunConfig() if given is None else _coerce_run_config(given), own


_AFTER: Final = "_ensure_model_provider_cleanup_on_completion"


async def close_provider(config: RunConfig) -> None:
    """Close the provider of a configuration that was made for a run, as the SDK does."""
    if hasattr(RunResultStreaming, _AFTER):
        with suppress(Exception):
            await config.model_provider.aclose()


def close_provider_after(result: RunResultStreaming, config: RunConfig) -> None:
    """Do so when a streamed run has ended."""
    ensure = getattr(result, _AFTER, None)
    if ensure is not None:
        ensure(lambda: close_provider(config))


def state_json(result: RunResultStreaming | RunState[Any]) -> dict[str, Any]:
    """Return the run state of a result as JSON, without the program's context.

    The SDK writes the items of a context that is a mapping in clear (and up to 0.22 even where a
    serialiser is given), so it is not shown one.
    """
    state = result if isinstance(result, RunState) else result.to_state()
    wrapper = state._context
    if wrapper is None:
        return state.to_json()
    bare = copy.copy(wrapper)
    bare.context = None
    state._context = bare
    try:
        with _items_once(state):
            return state.to_json()
    finally:
        state._context = wrapper


@contextmanager
def _items_once(state: RunState[Any]) -> Iterator[None]:
    """Let a state turn each of its items into JSON once: it has most of them in two lists.

    That is the larger part of what `to_json` costs in a long run (openai-agents 0.20 to 0.24).
    """
    serialize = state._serialize_item
    found: dict[int, dict[str, Any]] = {}  # by id: the state keeps the items alive

    def once(item: Any, **given: Any) -> dict[str, Any]:
        if id(item) not in found:
            found[id(item)] = serialize(item, **given)
        return found[id(item)]

    state._serialize_item = once  # type: ignore[method-assign]
    try:
        yield
    finally:
        del state._serialize_item


def restored(agent: Agent[Any], tree: dict[str, Any], context: Any) -> Any:
    """Return what `RunState.from_json` makes of a state, with the program's context in it.

    The tree stays as it is: the SDK is given a copy.
    """

    async def restore() -> RunState[Any]:
        state: RunState[Any] = await RunState.from_json(agent, copy.deepcopy(tree))
        if state._context is not None:
            state._context.context = context
        return state

    return driven(restore())


def driven(work: Coroutine[Any, Any, Any]) -> Any:
    """Return what a coroutine returns that waits for nothing, in a loop's thread or in none."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    found: list[Any] = []

    def drive() -> None:
        try:
            found.append((asyncio.run(work), None))
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            found.append((None, error))

    thread = threading.Thread(target=drive, name="caravanserai-restore")
    thread.start()
    thread.join()
    value, problem = found[0]
    if problem is not None:
        raise problem
    return value


def plain_result(streamed: RunResultStreaming) -> RunResult:
    """Return the result of a streamed run as `Runner.run` gives it."""
    values: dict[str, Any] = {"_last_agent": streamed.current_agent}
    later: dict[str, Any] = {}
    for field in dataclasses.fields(RunResult):
        name = "current_turn" if field.name == "_current_turn" else field.name
        if field.name in values or not hasattr(streamed, name):
            continue
        (values if field.init else later)[field.name] = getattr(streamed, name)
    result = RunResult(**values)
    for name, value in later.items():
        if not name.endswith("_ref"):
            setattr(result, name, value)
    # The run state knows more than the fields: what a session still has to be given, and the like.
    result.to_state = streamed.to_state  # type: ignore[method-assign]
    return result


def task_of(result: RunResultStreaming) -> asyncio.Task[Any] | None:
    """Return the task that works on a streamed run."""
    found = getattr(result, "run_loop_task", None)
    return found if isinstance(found, asyncio.Task) else None


def current_agent(state: RunState[Any]) -> Agent[Any]:
    """Return the agent whose turn it is."""
    found = state._current_agent
    assert found is not None, "the SDK restores no state without an agent"
    return found


def call_id(item: Any) -> str:
    """Return the id of the call that waits for approval."""
    raw = item.raw_item
    found = raw.get("call_id") or raw.get("id") if isinstance(raw, dict) else None
    return str(found or getattr(raw, "call_id", None) or getattr(raw, "id", None) or "")


def _owner(state: RunState[Any], item: Any) -> tuple[Any, Any]:
    """Return the context that holds the decision about a call, and the item there."""
    find = getattr(state, "_find_nested_approval_state", None)
    nested: Any = find(item) if callable(find) else None
    owner, own = nested or (state, item)
    return owner._context, own


def decision(state: RunState[Any], item: Any) -> bool | None:
    """Return what is decided about a call: True, False, or None for nothing yet."""
    context, own = _owner(state, item)
    if context is None:
        return None
    return context.get_approval_status(  # type: ignore[no-any-return]
        own.tool_name or "", call_id(own), existing_pending=own
    )


def rejection(state: RunState[Any], item: Any) -> str | None:
    """Return the message that a call was rejected with, or None."""
    context, own = _owner(state, item)
    found = context.get_rejection_message(own.tool_name or "", call_id(own), existing_pending=own)
    return found if isinstance(found, str) else None


def result_of(cls: type[Any], state: RunState[Any], output: Any, *, max_turns: int | None) -> Any:
    """Return the result of a run that has ended or waits, from its state; the SDK has no way to.

    Args:
        cls: `RunResult` or `RunResultStreaming`.
        state: the state.
        output: the final output.
        max_turns: as the program gives it.
    """
    agent = state._current_agent
    values: dict[str, Any] = {
        "input": copy.deepcopy(state._original_input),
        "new_items": list(state._session_items),
        "raw_responses": list(state._model_responses),
        "final_output": output,
        "input_guardrail_results": list(state._input_guardrail_results),
        "output_guardrail_results": list(state._output_guardrail_results),
        "tool_input_guardrail_results": list(state._tool_input_guardrail_results),
        "tool_output_guardrail_results": list(state._tool_output_guardrail_results),
        "context_wrapper": state._context,
        "max_turns": max_turns,
        "_model_input_items": list(state._generated_items),
        "_original_input": copy.deepcopy(state._original_input),
        "_conversation_id": state._conversation_id,
        "_previous_response_id": state._previous_response_id,
        "_auto_previous_response_id": state._auto_previous_response_id,
        "_last_processed_response": state._last_processed_response,
        "interruptions": list(state.get_interruptions()),
    }
    if cls is RunResult:
        values |= {"_last_agent": agent, "_current_turn": state._current_turn}
    else:
        values |= {
            "current_agent": agent,
            "current_turn": state._current_turn,
            "_current_agent_output_schema": None,
            "trace": None,
            "is_complete": True,
            "_state": state,
        }
    return cls(**values)
