"""A flow that is killed in its second method, and goes on there: `WaypointFlowPersistence`.

python examples/crewai/flow.py        looks one fare up, and is killed while it looks up the other
python examples/crewai/flow.py        goes on with that method; the one before does not run again
python examples/crewai/flow.py        finished: gives the recorded result, runs no method
caravanserai log trip-flow            what each method gave

No model is asked, so it wants no key; a crew or a model inside a method is recorded as in crew.py.
"""

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # where trip.py is, which these examples share
# Before CrewAI is imported: it phones home otherwise.
os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_DISABLE_VERSION_CHECK": "true"}
os.environ |= {"CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "true"}

import trip
from crewai.flow.flow import Flow, listen, start
from crewai.flow.persistence import persist

from caravanserai.crewai import WaypointFlowPersistence


@persist(WaypointFlowPersistence())
class Trip(Flow):
    @start()
    def train(self):
        self.state["train"] = trip.fare("train")
        return "the train is looked up"

    @listen(train)
    def bus(self):
        self.state["bus"] = trip.fare("bus")
        return "the bus is looked up"

    @listen(bus)
    def book(self):
        prices = {way: int(self.state[way].split()[-2]) for way in ("train", "bus")}
        return trip.book(min(prices, key=prices.get))


trip.dies_once("trip-flow")
print(Trip(suppress_flow_events=True).kickoff(inputs={"id": "trip-flow"}))
