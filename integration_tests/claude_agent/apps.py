"""Options and tools of the jobs that are scripted."""

from __future__ import annotations

import asyncio
from typing import Any

from claude_agent_sdk import AgentDefinition, ClaudeAgentOptions, create_sdk_mcp_server, tool

from integration_tests.claude_agent import places
from integration_tests.claude_agent.scripts import CHARGE, COUNTER

PROMPT = "Charge customers 1 to 4."
MODEL = "claude-sonnet-4-5"

pace = 0.02
"""Seconds that a charge takes."""


@tool("charge", "Charge a customer.", {"n": int})
async def charge(given: dict[str, Any]) -> dict[str, Any]:
    """Charge a customer, and leave two lines."""
    n = given["n"]
    places.pass_by(f"enter {n}")
    places.reach(f"begin {n}")
    await asyncio.sleep(pace)
    places.reach(f"end {n}")
    return {"content": [{"type": "text", "text": f"charged {n}"}]}


def options(**more: Any) -> ClaudeAgentOptions:
    """Return the options of a session that may charge, run commands and send a subagent.

    Args:
        **more: what is different.
    """
    given: dict[str, Any] = {
        "model": MODEL,
        "permission_mode": "acceptEdits",
        "allowed_tools": [CHARGE, "Bash", "Agent"],
        "mcp_servers": {"pay": create_sdk_mcp_server("pay", "1", [charge])},
        "agents": {
            "counter": AgentDefinition(
                description="Charges customers one and two.", prompt=COUNTER, tools=[CHARGE]
            )
        },
        "setting_sources": [],
    }
    return ClaudeAgentOptions(**{**given, **more})
