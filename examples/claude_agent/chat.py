"""A chat that remembers, over any number of starts: `WaypointClient` of the Claude Agent SDK.

python examples/claude_agent/chat.py "The train costs 62 EUR."
python examples/claude_agent/chat.py "The bus costs 45 EUR."
python examples/claude_agent/chat.py "Which one is cheaper?"     The bus.
caravanserai log chat-claude                                     every turn, readable

`--real` asks Anthropic.
"""

import asyncio
import sys
from pathlib import Path

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage

sys.path.append(str(Path(__file__).parents[1]))  # where trip.py is, which these examples share

import trip

from caravanserai.claude_agent import WaypointClient


async def main():
    options = ClaudeAgentOptions(setting_sources=[])
    async with WaypointClient(options, run_id="chat-claude") as client:
        await client.query(trip.words("Which one is cheaper?"))
        async for message in client.receive_response():
            if isinstance(message, ResultMessage):
                print(message.result)


with trip.anthropic(lambda asked: {"say": trip.talk(asked)}):
    asyncio.run(main())
