"""The promises of all adapters, kept by a session of the Claude Agent SDK."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from integration_tests.support import require

require("claude_agent_sdk")

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, tool

from caravanserai.claude_agent import resumable_query
from caravanserai_core import ask, once
from caravanserai_core.testing import AdapterTests, Job
from integration_tests.openai_agents.scripted import load_example

ScriptedAnthropic = load_example("scripted_anthropic").ScriptedAnthropic

STEPS = ("look", "send", "sum")
GIVEN: dict[str, Any] = {"now": "now"}


def said(asked: Any) -> dict[str, Any]:
    """Ask for the tool of each step in turn, then say what they gave."""
    for step in STEPS:
        if not asked.made(f"mcp__work__{step}", GIVEN):
            # It takes its time, so that what was done is in the transcript.
            return {"say": "Next.", "mid": 0.3, "call": [[f"mcp__work__{step}", GIVEN]]}
    # The CLI puts reminders of its own behind the results.
    results = [one for one in ALL if any(one in result for result in asked.results.values())]
    return {"say": json.dumps(results), "call": []}


ALL = [f"{step} done" for step in STEPS]


class TestClaudeAgent(AdapterTests):
    """A session with a tool for each step."""

    def start(self, job: Job) -> Any:
        """Begin the job or go on with it."""
        return asyncio.run(self._start(job))

    async def _start(self, job: Job) -> Any:
        def text(given: str) -> dict[str, Any]:
            return {"content": [{"type": "text", "text": given}]}

        @tool("look", "Look.", {"now": str})
        async def look(_given: Any) -> dict[str, Any]:
            found = job.do("look")
            return text(f"{found} Bearer {os.environ[job.secret]}" if job.secret else found)

        @tool("send", "Send.", {"now": str})
        async def send(_given: Any) -> dict[str, Any]:
            if job.asks and ask("Send it?", options=["yes", "no"]) == "no":
                return text("left out")
            return text(once("send", job.do, "send"))

        @tool("sum", "Add up.", {"now": str})
        async def total(_given: Any) -> dict[str, Any]:
            return text(job.do("sum"))

        home = Path(job.log).parent / "claude"
        home.mkdir(exist_ok=True)
        # The SDK starts the CLI with all of this process's environment.
        secret = {job.secret: os.environ[job.secret]} if job.secret else {}
        secret |= {name: value for name, value in os.environ.items() if name[:4] == "AWS_"}
        path = os.environ["PATH"]
        os.environ.clear()
        with ScriptedAnthropic(said) as server:
            folders = {"HOME": str(home), "CLAUDE_CONFIG_DIR": str(home), "TMPDIR": str(home)}
            os.environ |= {"PATH": path, **folders, **server.environment, **secret}
            migrations = [lambda state: state] if job.version == 2 and job.migrates else []
            options = ClaudeAgentOptions(
                model="claude-sonnet-4-5",
                cwd=home,
                permission_mode="acceptEdits",
                allowed_tools=["mcp__work__*"],
                mcp_servers={"work": create_sdk_mcp_server("work", tools=[look, send, total])},
                setting_sources=[],
            )
            result = None
            async for message in resumable_query(
                prompt="Do all of it.",
                run_id=job.run_id,
                options=options,
                store=job.store,
                on_uncertain="rerun",
                schema=job.version,
                migrations=migrations,
                continues=job.continues,
            ):
                if isinstance(message, ResultMessage) and not message.is_error:
                    result = json.loads(message.result or "null")
            return result
