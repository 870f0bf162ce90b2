"""A crew goes on where a program of any framework stopped: `waypoints(…, continues=…)`.

python examples/plain/loop.py                     or another one: it is killed in the middle
python examples/crewai/takeover.py trip-plain     looks up what is missing, and books
caravanserai log trip-plain-crewai --graph        who did what

Give it any run that does this job: trip-langgraph, trip-openai, trip-claude. The crew's first task
gets it as context. `--real` asks OpenAI.
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

source = trip.words("trip-plain")
with trip.openai():
    clerk = Agent(
        role="Clerk",
        goal="Book what you are asked to.",
        backstory="Exact.",
        llm=LLM(model="openai/gpt-4o-mini"),
        tools=[tool(trip.fare), tool(trip.book)],
    )
    trip_task = Task(name="trip", description=trip.GO_ON, expected_output="A line.", agent=clerk)
    crew = Crew(
        name="trip",
        agents=[clerk],
        tasks=[trip_task],
        task_callback=waypoints(
            f"{source}-crewai",
            continues=source,
            on_uncertain={"book": "ask"},  # what may have been booked there
        ),
    )
    print(crew.kickoff().raw)
