"""`WaypointHooks`: notes of a run of `agents.Runner`, to read and not to resume.

Hooks see what happens and can change nothing: they cannot answer in the place of a model or a
tool that ran already. What makes a run go on after a crash is `Runner` of this package.
"""

from __future__ import annotations

import copy
import json
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from agents import Agent, RunHooks
from typing_extensions import TypeVar

from caravanserai.openai_agents import _conversation, _telling
from caravanserai.openai_agents._notebook import Change, Notebook
from caravanserai_core.errors import UsageError
from caravanserai_core.notes import Note
from caravanserai_core.quoting import one_line
from caravanserai_core.words import sentence, shortened, value_text

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from agents import AgentHookContext, ModelResponse, RunContextWrapper, Tool
    from agents.items import TResponseInputItem

    from caravanserai_core.homes import StoreLike

_log = logging.getLogger("caravanserai")

TContext = TypeVar("TContext", default=Any)

_SO_FAR: Final = 6

_READ_ONLY: Final = (
    "This run can be read and **not resumed**: hooks wrote it. `Runner` of "
    "`caravanserai.openai_agents` writes runs that go on after a crash."
)


class WaypointHooks(RunHooks[TContext]):
    """Hooks that leave a waypoint at each turn, handover and end of a run.

    For those who keep `agents.Runner`: `await Runner.run(agent, text, hooks=WaypointHooks("a17"))`.
    The run can be read with all of Caravanserai's commands, and its states hold the conversation
    as it was, for another agent to take it up. It cannot be resumed, which each note says: started
    again, the SDK begins anew. The SDK calls no hook where it stops for an approval; what its model
    asked for is in the live note, `latest.md`.

    One object is for one run at a time. It takes no lease. A store that fails, is locked or full
    never stops the agents: that is warned of once, and what was not written is not told. The one
    error that is raised, before the first model is asked, is a `run_id` that belongs to something
    else than a conversation, which would be lost.

    Args:
        run_id: the run's name, any string.
        store: a store, a folder or URL; by default CARAVANSERAI_STORE, else `.caravanserai` here.
        hooks: hooks of the program, called after these with the same arguments.

    Raises:
        InvalidRunId: the name cannot be one.
    """

    def __init__(
        self,
        run_id: str,
        *,
        store: StoreLike = None,
        hooks: RunHooks[TContext] | None = None,
    ) -> None:
        self._notebook = Notebook(run_id, store)
        self._hooks: RunHooks[TContext] = RunHooks() if hooks is None else hooks
        self._known: list[Any] | None = None  # the conversation that was told last
        self._since: list[Any] = []  # what came since, as items of one
        self._so_far: deque[str] = deque(maxlen=_SO_FAR)
        self._warned = False

    def __repr__(self) -> str:
        run_id = self._notebook.run_id
        return f"<WaypointHooks {run_id!r} in {self._notebook.store.where(run_id)}>"

    # ------------------------------------------------------------------ what the SDK calls

    async def on_agent_start(
        self, context: AgentHookContext[TContext], agent: Agent[TContext]
    ) -> None:
        """See that the run is one to write to."""
        if self._known is None:
            await self._keep(lambda: self._notebook.later(self._notebook.items))
        await self._hooks.on_agent_start(context, agent)

    async def on_llm_start(
        self,
        context: RunContextWrapper[TContext],
        agent: Agent[TContext],
        system_prompt: str | None,
        input_items: list[TResponseInputItem],
    ) -> None:
        """Write what was asked, or the turn that ended."""
        await self._keep(lambda: self._turned(agent, input_items))
        await self._hooks.on_llm_start(context, agent, system_prompt, input_items)

    async def on_llm_end(
        self,
        context: RunContextWrapper[TContext],
        agent: Agent[TContext],
        response: ModelResponse,
    ) -> None:
        """Write a line for the live note: what the model answered."""
        await self._keep(lambda: self._answered(agent, response))
        await self._hooks.on_llm_end(context, agent, response)

    async def on_tool_start(
        self, context: RunContextWrapper[TContext], agent: Agent[TContext], tool: Tool
    ) -> None:
        """Do nothing but call the program's hooks."""
        await self._hooks.on_tool_start(context, agent, tool)

    async def on_tool_end(
        self,
        context: RunContextWrapper[TContext],
        agent: Agent[TContext],
        tool: Tool,
        result: object,
    ) -> None:
        """Note what came back, for the next waypoint."""
        # Only tools that are functions tell which call this is of.
        call_id = getattr(context, "tool_call_id", None)
        if isinstance(call_id, str):
            output = result if isinstance(result, str) else value_text(result)
            self._since.append(_result(call_id, output))
        await self._hooks.on_tool_end(context, agent, tool, result)

    # The SDK gives these by keyword (0.20, 0.24): their names are part of the interface.
    async def on_handoff(
        self,
        context: RunContextWrapper[TContext],
        from_agent: Agent[TContext],
        to_agent: Agent[TContext],
    ) -> None:
        """Write that another agent took over."""
        await self._keep(lambda: self._handed_over(from_agent, to_agent))
        await self._hooks.on_handoff(context=context, from_agent=from_agent, to_agent=to_agent)

    async def on_agent_end(
        self, context: AgentHookContext[TContext], agent: Agent[TContext], output: Any
    ) -> None:
        """Write the end."""
        await self._keep(lambda: self._ended(context, agent, output))
        await self._hooks.on_agent_end(context, agent, output)

    # ------------------------------------------------------------------ what is written

    async def _turned(self, agent: Agent[TContext], given: list[Any]) -> None:
        items = copy.deepcopy(list(given))
        who = _telling.agent_name(agent.name)
        if self._known is None:
            asked = _new_input(items)
            before = items[: len(items) - len(asked)]
            self._so_far.extend(_conversation.so_far(before))
            told = _conversation.lines(asked, before)
        elif self._since:
            told = _conversation.lines(self._since, self._known, who)
        else:
            self._known = items
            return
        goal = _conversation.goal_of(items)
        await self._write(items, agent, told, [f"{who}'s model answers."], goal)

    async def _answered(self, agent: Agent[TContext], response: ModelResponse) -> None:
        answer = copy.deepcopy(list(response.to_input_items()))
        self._since += answer
        told = _conversation.lines(answer, self._known or (), _telling.agent_name(agent.name))
        if told:
            await self._notebook.later(lambda: self._notebook.say(" ".join(told)))

    async def _handed_over(self, source: Agent[TContext], target: Agent[TContext]) -> None:
        who, to = _telling.agent_name(source.name), _telling.agent_name(target.name)
        calls = _conversation.open_calls(self._since)
        acts = [item for item in self._since if item not in calls]
        told = _conversation.lines(acts, self._known or (), who)
        items = [*(self._known or ()), *self._since]
        if len(calls) == 1:  # what the SDK is about to give as its result (0.20, 0.24)
            result = json.dumps({"assistant": target.name})
            items.append(_result(_conversation.call_id(calls[0]), result))
        line = f"{who} handed over to {to}."
        await self._write(items, target, [*told, line], [f"{to}'s model answers."])

    async def _ended(
        self, context: AgentHookContext[TContext], agent: Agent[TContext], output: Any
    ) -> None:
        who = _telling.agent_name(agent.name)
        told = _conversation.lines(self._since, self._known or (), who)
        items = [*(self._known or ()), *self._since]
        if not isinstance(output, str) or not told:
            told.append(sentence(f"The run's output is {value_text(output)}"))
        usage = context.usage
        told.append(
            f"In all {usage.requests} answer{'s' if usage.requests != 1 else ''} of models, "
            f"{usage.total_tokens} tokens."
        )
        await self._write(items, agent, told, ["Nothing: the run has come to its end."])
        await self._notebook.later(self._notebook.finish)
        self._known = None

    async def _write(
        self,
        items: list[Any],
        agent: Agent[TContext],
        told: list[str],
        next_: list[str],
        goal: str | None = None,
    ) -> None:
        summary, happened = _conversation.story(told, "A turn came to its end.")
        note = Note(
            f"{summary} {_READ_ONLY}", happened=happened, next=next_, so_far=list(self._so_far)
        )
        change = Change(items, note, more={"agent": agent.name})
        self._known, self._since = items, []
        self._so_far.extend(shortened(line) for line in told)
        await self._notebook.later(lambda: self._notebook.change(lambda _: change, goal))

    async def _keep(self, write: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Write something; where that fails the agents go on all the same."""
        try:
            await write()
        except UsageError:
            raise
        except Exception as problem:  # noqa: BLE001 - notes are not what the run is for
            if not self._warned:
                self._warned = True
                _log.warning(
                    "hooks of run %s: a note was not written, and others may be missing: %s",
                    one_line(self._notebook.run_id),
                    problem,
                )


def _result(call_id: str, output: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _new_input(items: list[Any]) -> list[Any]:
    """Return what is new in the input of a run: what the user said behind all that was said."""
    start = len(items)
    while start and isinstance(items[start - 1], dict) and items[start - 1].get("role") == "user":
        start -= 1
    return items[start:] or items
