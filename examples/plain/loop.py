"""A loop of your own around a model: its answers are waypoints, its tools are steps under `once`.

python examples/plain/loop.py        looks one fare up, and is killed while it looks up the other
python examples/plain/loop.py        looks that one up, and books; a third start does nothing
caravanserai show trip-plain         what the last waypoint says

What is recorded is not asked for, paid for or done a second time. The tool that was killed is run
again if that is harmless; in front of a second booking a person would be asked. `--real` asks
OpenAI. Between the two starts, any `takeover.py` of these folders can go on in its place.
"""

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # where trip.py is, which these examples share

import trip

from caravanserai import Note, open_run, quoted

TOOLS = {"fare": trip.fare, "book": trip.book}


def work(run, messages):
    """Ask the model and run its tools, until it calls none."""
    while True:
        if messages[-1]["role"] != "assistant":
            messages.append(trip.chat(messages, trip.SCHEMAS))
            run.checkpoint({"messages": messages}, "The model has answered.")
        calls = messages[-1].get("tool_calls")
        if not calls:
            return messages[-1]["content"]
        for call in calls:
            name = call["function"]["name"]
            way = json.loads(call["function"]["arguments"])["way"]
            again = "rerun" if name == "fare" else "ask"
            result = run.once(name, TOOLS[name], way, key=way, on_uncertain=again)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        run.checkpoint({"messages": messages}, Note(f"A tool gave {quoted(result)}."))


trip.dies_once("trip-plain")
with trip.openai(), open_run("trip-plain", goal=trip.TASK) as run:
    finished, answer = run.finished()
    if not finished:
        state = run.state or {"messages": [{"role": "user", "content": trip.TASK}]}
        answer = work(run, state["messages"])
        run.finish(answer)
print(answer)
