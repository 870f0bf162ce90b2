"""Plain Python goes on where a program of any framework stopped: `open_run(…, continues=…)`.

python examples/plain/loop.py                 or another one: it is killed in the middle
python examples/plain/takeover.py trip-plain  goes on: looks up what is missing, and books
caravanserai log trip-plain-plain --graph     who did what

Give it any run that does this job: trip-langgraph, trip-openai, trip-crewai, trip-claude. What
was looked up there is known here, and not looked up again. `--real` asks OpenAI.
"""

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # where trip.py is, which these examples share

import trip

from caravanserai import open_run

TOOLS = {"fare": trip.fare, "book": trip.book}

source = trip.words("trip-plain")
with trip.openai(), open_run(f"{source}-plain", continues=source) as run:
    print(f"goes on from {run.handoff.source}: {run.handoff.summary}")
    finished, answer = run.finished()
    # A later start goes on from this run's own state, and looks at the other run no more.
    messages = run.state or [
        *run.handoff.messages,
        {"role": "user", "content": run.handoff.brief("openai")},  # what no message says
        {"role": "user", "content": trip.GO_ON},
    ]
    while not finished:
        messages.append(trip.chat(messages, trip.SCHEMAS))
        for call in messages[-1].get("tool_calls") or ():
            name = call["function"]["name"]
            way = json.loads(call["function"]["arguments"])["way"]
            again = "rerun" if name == "fare" else "ask"
            result = run.once(name, TOOLS[name], way, key=way, on_uncertain=again)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        run.checkpoint(messages, "The model has answered, and its tools have run.")
        if messages[-1]["role"] == "assistant":
            finished, answer = True, messages[-1]["content"]
            run.finish(answer)
print(answer)
