"""The promises of all adapters, kept by a run of the OpenAI Agents SDK."""

# ruff: noqa: E402

from __future__ import annotations

import os
from typing import Any

from integration_tests.support import require

require("agents")

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

from agents import Agent, Model, ModelResponse, ToolCallOutputItem, Usage, function_tool
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from caravanserai.openai_agents import Runner
from caravanserai.openai_agents.migrations import rename_agent
from caravanserai_core import ask, once
from caravanserai_core.testing import AdapterTests, Job

STEPS = ("look", "send", "sum")


class Scripted(Model):
    """Asks for one tool after the other, as the conversation tells it."""

    async def get_response(self, *args: Any, **_: Any) -> Any:
        items = args[1] if isinstance(args[1], list) else []
        done = sum(item.get("type") == "function_call_output" for item in items)
        output: list[Any]
        if done < len(STEPS):
            output = [
                ResponseFunctionToolCall(
                    type="function_call", name=STEPS[done], call_id=f"c{done}", arguments="{}"
                )
            ]
        else:
            text = ResponseOutputText(type="output_text", text="Done.", annotations=[])
            output = [
                ResponseOutputMessage(
                    id="m", type="message", role="assistant", status="completed", content=[text]
                )
            ]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError


class TestOpenAIAgents(AdapterTests):
    """`Runner` with a tool for each step."""

    def start(self, job: Job) -> Any:
        """Begin the job or go on with it."""

        @function_tool
        def look() -> str:
            """Look."""
            found = job.do("look")
            return f"{found} Bearer {os.environ[job.secret]}" if job.secret else found

        @function_tool
        def send() -> str:
            """Send."""
            if job.asks and ask("Send it?", options=["yes", "no"]) == "no":
                return ""
            return once("send", job.do, "send")

        @function_tool(name_override="sum")
        def total() -> str:
            """Add up."""
            return job.do("sum")

        agent = Agent(
            name="first" if job.version == 1 else "second",
            instructions="Do it.",
            model=Scripted(),
            tools=[look, send, total],
        )
        steps = [rename_agent("first", "second")] if job.version == 2 and job.migrates else []
        result = Runner.run_sync(
            agent,
            "Do the job.",
            run_id=job.run_id,
            store=job.store,
            schema=job.version,
            migrations=steps,
            continues=job.continues,
        )
        items = [item for item in result.new_items if isinstance(item, ToolCallOutputItem)]
        return [str(item.output).partition(" Bearer")[0] for item in items if item.output]
