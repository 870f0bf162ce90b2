"""A call that waits until a person approves it: `needs_approval`, with the Claude Agent SDK.

python examples/claude_agent/approval.py       looks the fares up, and waits with the booking
caravanserai answer trip-approved --approve    or: --reject --reason "take the train"
python examples/claude_agent/approval.py       goes on at that very call
caravanserai show trip-approved                what the last waypoint says

No process has to stay alive while it waits, for days if need be. `--real` asks Anthropic.
"""

import asyncio
import sys
from pathlib import Path

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, tool

sys.path.append(str(Path(__file__).parents[1]))  # where trip.py is, which these examples share

import trip

from caravanserai.claude_agent import resumable_query


@tool("fare", "Look up what a seat costs, on the train or on the bus.", {"way": str})
async def fare(given):
    return {"content": [{"type": "text", "text": trip.fare(given["way"])}]}


@tool("book", "Book a seat, on the train or on the bus.", {"way": str})
async def book(given):
    return {"content": [{"type": "text", "text": trip.book(given["way"])}]}


options = ClaudeAgentOptions(
    mcp_servers={"trip": create_sdk_mcp_server("trip", tools=[fare, book])},
    allowed_tools=["mcp__trip__*"],
    setting_sources=[],
)


async def main():
    async for message in resumable_query(
        prompt=trip.TASK,
        run_id="trip-approved",
        options=options,
        needs_approval=["mcp__trip__book"],
    ):
        if isinstance(message, ResultMessage):
            waits = message.deferred_tool_use
            print(f"waits for you: {waits.name}({waits.input})" if waits else message.result)


with trip.anthropic():
    asyncio.run(main())
