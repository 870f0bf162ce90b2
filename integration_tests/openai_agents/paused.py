"""A run that waits for an approval, small enough to be kept as a golden journal.

    python -m integration_tests.openai_agents.paused FOLDER

writes one with the SDK that is installed; the golden ones are named after its version.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from agents import Agent, Model, ModelResponse, RunConfig, Usage, function_tool
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from caravanserai.openai_agents import Runner, _answers

RUN = "pay"
TASK = "Pay the bill 7."
QUIET = RunConfig(tracing_disabled=True)

Call = tuple[str, dict[str, Any]]


def says(text: str) -> Any:
    """Return a message of a model."""
    content = [ResponseOutputText(type="output_text", text=text, annotations=[])]
    return ResponseOutputMessage(
        id="msg", type="message", role="assistant", status="completed", content=content
    )


class Scripted(Model):
    """A model that asks for calls one after the other, then says "Done.".

    Args:
        calls: a tool and its arguments each.

    Attributes:
        asked: how often it was asked.
    """

    def __init__(self, *calls: Call) -> None:
        self.calls = calls
        self.asked = 0

    async def get_response(self, *args: Any, **named: Any) -> Any:
        self.asked += 1
        given = named["input"] if "input" in named else args[1]
        items = given if isinstance(given, list) else []
        done = sum(item.get("type") == "function_call_output" for item in items)
        output: Any = says("Done.")
        if done < len(self.calls):
            name, arguments = self.calls[done]
            output = ResponseFunctionToolCall(
                type="function_call",
                name=name,
                call_id=f"call_{done}",
                arguments=json.dumps(arguments),
            )
        usage = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
        return ModelResponse(output=[output], usage=usage, response_id=f"resp_{done}")

    async def stream_response(self, *args: Any, **options: Any) -> Any:
        for event in _answers.events(await self.get_response(*args, **options)):
            yield event


def agent_of(
    model: Model, do: Callable[[str], None], *, name: str = "clerk", instructions: str = "Pay."
) -> Agent[Any]:
    """Return an agent that looks a bill up and pays it, if that is approved."""

    @function_tool
    def look_up(bill: int) -> str:
        """Look a bill up."""
        do(f"look_up {bill}")
        return "40 EUR"

    @function_tool(needs_approval=True)
    def pay(bill: int, amount: int) -> str:
        """Pay a bill."""
        do(f"pay {bill} {amount}")
        return f"paid {amount} EUR"

    return Agent(name=name, instructions=instructions, model=model, tools=[look_up, pay])


def model_of() -> Scripted:
    """Return the model of that agent."""
    return Scripted(("look_up", {"bill": 7}), ("pay", {"bill": 7, "amount": 40}))


def start(agent: Agent[Any], store: Path, **options: Any) -> Any:
    """Start the run, or go on with it."""
    return Runner.run_sync(agent, TASK, run_id=RUN, store=store, run_config=QUIET, **options)


if __name__ == "__main__":
    # A golden journal tells nothing of the machine that it was written on.
    with (
        mock.patch.object(sys, "executable", "python3"),
        mock.patch.object(sys, "orig_argv", ["python3", "agent.py"]),
        mock.patch("caravanserai_core.opening.working_folder", return_value="agents"),
        mock.patch("os.uname", return_value=mock.Mock(nodename="host")),
    ):
        result = start(agent_of(model_of(), lambda _: None), Path(sys.argv[1]))
    assert len(result.interruptions) == 1
