"""A session of the Claude Agent SDK goes on where a program of any framework stopped: `continues=`.

python examples/plain/loop.py                           or another one: it is killed in the middle
python examples/claude_agent/takeover.py trip-plain     looks up what is missing, and books
caravanserai log trip-plain-claude --graph              who did what

Give it any run that does this job: trip-langgraph, trip-openai, trip-crewai. Claude is told about
it in front of the first prompt. `--real` asks Anthropic.
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
        prompt=trip.GO_ON,
        run_id=f"{source}-claude",
        continues=source,
        options=options,
        on_uncertain={"mcp__trip__fare": "rerun"},  # harmless; of a booking a person is asked
    ):
        if isinstance(message, ResultMessage):
            print(message.result)


source = trip.words("trip-plain")
with trip.anthropic():
    asyncio.run(main())
