"""The promises of all adapters, kept by a crew."""

# ruff: noqa: E402

from __future__ import annotations

import json
import os
from typing import Any

from integration_tests.support import require

os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "CREWAI_TESTING": "true",
    "OTEL_SDK_DISABLED": "true",
}
require("crewai")

from crewai import Agent, Crew, Task
from crewai.llms.base_llm import BaseLLM
from crewai.tools import tool

from caravanserai.crewai import waypoints
from caravanserai_core import ask, once
from caravanserai_core.testing import AdapterTests, Job

STEPS = ("look", "send", "sum")


class Scripted(BaseLLM):
    """Asks for the tool that its task names, then says that it is done."""

    def supports_function_calling(self) -> bool:
        return True

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        if any(message["role"] == "tool" for message in messages):
            return "Done."
        asked = next(m["content"] for m in reversed(messages) if m["role"] == "user")
        step = next(step for step in STEPS if f"Do {step}." in asked)
        function = {"name": step, "arguments": json.dumps({"now": "now"})}
        return [{"id": f"call_{step}", "type": "function", "function": function}]


class TestCrewAI(AdapterTests):
    """A crew of one agent with a task and a tool for each step."""

    def start(self, job: Job) -> Any:
        """Begin the job or go on with it."""

        @tool
        def look(now: str) -> str:
            """Look."""
            found = job.do("look")
            return f"{found} Bearer {os.environ[job.secret]}" if job.secret else found

        @tool
        def send(now: str) -> str:
            """Send."""
            if job.asks and ask("Send it?", options=["yes", "no"]) == "no":
                return ""
            return once("send", job.do, "send")

        @tool("sum")
        def total(now: str) -> str:
            """Add up."""
            return job.do("sum")

        agent = Agent(
            role="Worker",
            goal="Work",
            backstory="Works.",
            llm=Scripted(model="scripted"),
            tools=[look, send, total],
        )
        migrations = [lambda state: state] if job.version == 2 and job.migrates else []
        crew = Crew(
            agents=[agent],
            tasks=[
                Task(name=step, description=f"Do {step}.", expected_output="It.", agent=agent)
                for step in STEPS
            ],
            task_callback=waypoints(
                job.run_id,
                store=job.store,
                schema=job.version,
                migrations=migrations,
                continues=job.continues,
            ),
        )
        result = crew.kickoff()
        told = [m for task in result.tasks_output for m in task.messages if m["role"] == "tool"]
        results = [str(message["content"]).partition(" Bearer")[0] for message in told]
        return [one for one in results if one]
