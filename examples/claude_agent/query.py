"""A session of the Claude Agent SDK that is killed in a tool, and goes on: `resumable_query`.

python examples/claude_agent/query.py     looks one fare up, and is killed while looking up the next
python examples/claude_agent/query.py     goes on: Claude is told what is done and what is not
python examples/claude_agent/query.py     finished: gives the recorded result, starts no CLI
caravanserai show trip-claude             what the last waypoint says

`--real` asks Anthropic. Between the first two starts, any `takeover.py` of these folders can go on.
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
        run_id="trip-claude",
        options=options,
        on_uncertain={"mcp__trip__fare": "rerun"},  # harmless; of a booking a person is asked
    ):
        if isinstance(message, ResultMessage):
            print(message.result)


trip.dies_once("trip-claude")
with trip.anthropic():
    asyncio.run(main())
