"""The run's hooks, in front of those of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents import RunHooks

from caravanserai.openai_agents._inner_runs import stand_in_front
from caravanserai.openai_agents._instrument import prepare
from caravanserai.openai_agents._steps import outside

if TYPE_CHECKING:
    from caravanserai.openai_agents._job import Job


class Following(RunHooks[Any]):
    """Tells a job how the SDK gets on, then calls the program's own hooks.

    What those ask models is no part of the run: they are called again in a turn that is done
    again.

    Args:
        job: the start of the run.
        hooks: the program's, or None.
    """

    def __init__(self, job: Job, hooks: RunHooks[Any] | None) -> None:
        self._job = job
        self._hooks: RunHooks[Any] = RunHooks() if hooks is None else hooks

    async def on_llm_start(
        self, context: Any, agent: Any, system_prompt: str | None, input_items: list[Any]
    ) -> None:
        """Write the turn that ended down."""
        await self._job.asking(agent)
        with outside():
            await self._hooks.on_llm_start(context, agent, system_prompt, input_items)

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        """Pass on."""
        with outside():
            await self._hooks.on_llm_end(context, agent, response)

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        """Instrument an agent that may have been made only now."""
        prepare(agent)
        with outside():
            await self._hooks.on_agent_start(context, agent)

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        """Note that there is a final output."""
        self._job.answered = True
        with outside():
            await self._hooks.on_agent_end(context, agent, output)

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        """Pass on."""
        with outside():
            await self._hooks.on_handoff(context, from_agent=from_agent, to_agent=to_agent)

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """Stand in front of a runner that the program has set since."""
        stand_in_front()
        with outside():
            await self._hooks.on_tool_start(context, agent, tool)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        """Pass on."""
        with outside():
            await self._hooks.on_tool_end(context, agent, tool, result)
