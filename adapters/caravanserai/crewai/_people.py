"""Feedback that CrewAI asks a person for: questions of the core, in place of a prompt."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from crewai.core.providers.human_input import (
    SyncHumanInputProvider,
    get_provider,
    reset_provider,
    set_provider,
)

from caravanserai.crewai._steps import PERSON, Place, here
from caravanserai_core.escaping import collected
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crewai.agents.parser import AgentFinish
    from crewai.core.providers.human_input import AsyncExecutorContext, ExecutorContext


class Questions(SyncHumanInputProvider):
    """Asks for feedback on a task's answer (`human_input=True`) by a question of the run.

    An empty answer means: good as it is.
    """

    def handle_feedback(
        self, formatted_answer: AgentFinish, context: ExecutorContext
    ) -> AgentFinish:
        """Ask, and let the agent work on as long as there is feedback."""
        answer = formatted_answer
        while context.ask_for_human_input:
            feedback = _ask(here.get(), context, answer)
            if not feedback.strip():
                context.ask_for_human_input = False
                break
            context.messages.append(context._format_feedback_message(feedback))
            answer = context._invoke_loop()
        return answer

    async def handle_feedback_async(
        self, formatted_answer: AgentFinish, context: AsyncExecutorContext
    ) -> AgentFinish:
        """Ask, and let the agent work on as long as there is feedback."""
        answer, place = formatted_answer, here.get()
        while context.ask_for_human_input:
            given = answer
            feedback = await wait_for(in_thread(lambda: _ask(place, context, given)))  # noqa: B023
            if not feedback.strip():
                context.ask_for_human_input = False
                break
            context.messages.append(context._format_feedback_message(feedback))
            answer = await context._ainvoke_loop()
        return answer


def _ask(place: Place | None, context: ExecutorContext, answer: AgentFinish) -> str:
    if place is None:
        return ""
    title = (context.task.name or context.task.description) if context.task else "the task"
    key = place.steps.key(PERSON, place.path)
    known = place.steps.recorded(key)
    if known is not None:
        return str(known)
    with place.job.escaping(), collected():
        said = place.job.run.ask(
            f"Is the result of {title!r} good as it is? An empty answer means yes; any other text "
            "is what to change.",
            key=key,
            payload={"result": str(answer.output)},
        )
        place.steps.record(key, "" if said is None else str(said))
    return "" if said is None else str(said)


@contextmanager
def answering() -> Iterator[None]:
    """Let questions of the run take the place of CrewAI's prompt, where the program has no own."""
    if type(get_provider()) is not SyncHumanInputProvider:
        yield
        return
    token = set_provider(Questions())
    try:
        yield
    finally:
        reset_provider(token)
