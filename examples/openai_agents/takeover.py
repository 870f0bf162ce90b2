"""An agent of the OpenAI Agents SDK goes on where a program of any framework stopped: `continues=`.

python examples/plain/loop.py                            or another one: it is killed in the middle
python examples/openai_agents/takeover.py trip-plain     looks up what is missing, and books
caravanserai log trip-plain-openai --graph               who did what

Give it any run that does this job: trip-langgraph, trip-crewai, trip-claude. The SDK is given the
conversation as its own items, and a message that tells the rest. `--real` asks OpenAI.
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

source = trip.words("trip-plain")
with trip.openai():
    result = Runner.run_sync(
        clerk,
        trip.GO_ON,
        run_id=f"{source}-openai",
        continues=source,
        on_uncertain={"fare": "rerun", "book": "ask"},  # what may have happened there
    )
print(result.final_output)
