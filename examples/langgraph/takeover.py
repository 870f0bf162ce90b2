"""A LangGraph agent goes on where a program of any framework stopped: `continues=`.

python examples/plain/loop.py                          or another one: it is killed in the middle
python examples/langgraph/takeover.py trip-plain       looks up what is missing, and books
caravanserai log trip-plain-langgraph --graph          who did what

Give it any run that does this job: trip-openai, trip-crewai, trip-claude. Its messages stand in
front of those of the input, and one that tells the rest. `--real` asks OpenAI.
"""

import sys
from pathlib import Path

from langchain_core.messages import convert_to_messages, convert_to_openai_messages
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

sys.path.append(str(Path(__file__).parents[1]))  # where trip.py is, which these examples share

import trip

from caravanserai.langgraph import resumable_graph


def model(state: MessagesState):  # ask your own model here
    said = trip.chat(convert_to_openai_messages(state["messages"]), trip.SCHEMAS)
    return {"messages": convert_to_messages([said])}


builder = StateGraph(MessagesState)
builder.add_node("model", model)
builder.add_node("tools", ToolNode([trip.fare, trip.book]))
builder.add_edge(START, "model")
builder.add_conditional_edges("model", tools_condition)
builder.add_edge("tools", "model")

source = trip.words("trip-plain")
job = resumable_graph(
    builder.compile(),
    run_id=f"{source}-langgraph",
    continues=source,
    on_uncertain={"book": "ask"},  # what may have been booked there; a fare is just looked up again
)
with trip.openai():
    print(job.invoke({"messages": [("user", trip.GO_ON)]})["messages"][-1].content)
