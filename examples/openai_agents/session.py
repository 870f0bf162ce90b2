"""A chat that remembers, over any number of starts: the SDK's own runner and a `WaypointSession`.

python examples/openai_agents/session.py "The train costs 62 EUR."
python examples/openai_agents/session.py "The bus costs 45 EUR."
python examples/openai_agents/session.py "Which one is cheaper?"     The bus.
caravanserai log chat-openai                                         every turn, readable

A session holds what was said. What a turn had done when it was killed is kept by a `run_id`: see
killed.py. `--real` asks OpenAI.
"""

import sys
from pathlib import Path

from agents import Agent, Runner

sys.path.append(str(Path(__file__).parents[1]))  # where trip.py is, which these examples share

import trip

from caravanserai.openai_agents import WaypointSession

clerk = Agent(name="clerk", instructions="Answer briefly.")

with trip.openai(trip.talk):
    said = trip.words("Which one is cheaper?")
    result = Runner.run_sync(clerk, said, session=WaypointSession("chat-openai"))
print(result.final_output)
