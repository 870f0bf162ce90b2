"""A loop over a LangChain model goes on where a program of any framework stopped: `messages_from`.

python examples/plain/loop.py                          or another one: it is killed in the middle
python examples/langchain/takeover.py trip-plain       looks up what is missing, and books
caravanserai log trip-plain-langchain --graph          who did what

Give it any run that does this job: trip-langgraph, trip-openai, trip-crewai, trip-claude. `model`
stands for `ChatOpenAI(…).bind_tools(…)`: it asks a scripted model, with `--real` OpenAI.
"""

import sys
from pathlib import Path

from langchain_core.messages import (
    HumanMessage,
    ToolMessage,
    convert_to_messages,
    convert_to_openai_messages,
)

sys.path.append(str(Path(__file__).parents[1]))  # where trip.py is, which these examples share

import trip

from caravanserai import langchain, open_run

langchain.register()  # so that a state may hold LangChain's messages

TOOLS = {"fare": trip.fare, "book": trip.book}


def model(messages):
    (said,) = convert_to_messages([trip.chat(convert_to_openai_messages(messages), trip.SCHEMAS)])
    return said


source = trip.words("trip-plain")
with trip.openai(), open_run(f"{source}-langchain", continues=source) as run:
    # A later start goes on from this run's own state, and looks at the other run no more.
    state = run.state or {
        "messages": [*langchain.messages_from(run.handoff), HumanMessage(trip.GO_ON)]
    }
    messages = state["messages"]
    while messages[-1].type != "ai":
        messages.append(model(messages))
        for call in messages[-1].tool_calls:
            name, way = call["name"], call["args"]["way"]
            again = "rerun" if name == "fare" else "ask"
            result = run.once(name, TOOLS[name], way, key=way, on_uncertain=again)
            messages.append(ToolMessage(result, tool_call_id=call["id"], name=name))
        run.checkpoint(state, "The model has answered, and its tools have run.")
    run.finish(messages[-1].content)
print(messages[-1].content)
