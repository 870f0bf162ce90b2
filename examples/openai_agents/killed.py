"""An agent of the OpenAI Agents SDK that is killed in a tool, and goes on.

python examples/openai_agents/killed.py     looks one fare up, and is killed in the next tool
python examples/openai_agents/killed.py     goes on in that tool, and books
python examples/openai_agents/killed.py     finished: gives the recorded result, asks no model
caravanserai show trip-openai               what the last waypoint says

No recorded answer of the model is asked for again. `--real` asks OpenAI. Between the first two
starts, any `takeover.py` of these folders can go on.
"""

import sys
from pathlib import Path

from agents import Agent, function_tool

sys.path.append(str(Path(__file__).parents[1]))  # where trip.py is, which these examples share

import trip

from caravanserai.openai_agents import Runner

clerk = Agent(
    name="clerk",
    instructions="Book what you are asked to.",
    tools=[function_tool(trip.fare), function_tool(trip.book)],
)

trip.dies_once("trip-openai")
with trip.openai():
    result = Runner.run_sync(
        clerk, trip.TASK, run_id="trip-openai", on_uncertain={"fare": "rerun", "book": "ask"}
    )
print(result.final_output)
