"""A crew that is killed in a tool, and goes on there: all it takes is a callback.

python examples/crewai/crew.py        looks one fare up, and is killed while it looks up the other
python examples/crewai/crew.py        goes on in that tool, and books; no answer is asked for twice
python examples/crewai/crew.py        finished: gives the recorded result, asks no model
caravanserai show trip-crewai         what the last waypoint says

`--real` asks OpenAI. Between the first two starts, any `takeover.py` of these folders can go on.
"""

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # where trip.py is, which these examples share
# Before CrewAI is imported: it phones home otherwise.
os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_DISABLE_VERSION_CHECK": "true"}
os.environ |= {"CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "true"}

import trip
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

from caravanserai.crewai import waypoints

trip.dies_once("trip-crewai")
with trip.openai():
    clerk = Agent(
        role="Clerk",
        goal="Book what you are asked to.",
        backstory="Exact.",
        llm=LLM(model="openai/gpt-4o-mini"),
        tools=[tool(trip.fare), tool(trip.book)],
    )
    trip_task = Task(name="trip", description=trip.TASK, expected_output="A line.", agent=clerk)
    crew = Crew(
        name="trip", agents=[clerk], tasks=[trip_task], task_callback=waypoints("trip-crewai")
    )
    print(crew.kickoff().raw)
