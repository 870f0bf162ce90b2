"""A LangGraph agent as a job: the same line starts it, goes on after a crash, gives its result.

python examples/langgraph/job.py        looks one fare up, and is killed while it looks up the other
python examples/langgraph/job.py        goes on in the node that was killed, and books
python examples/langgraph/job.py        finished: gives the recorded result, and runs no node
caravanserai show trip-langgraph        what the last waypoint says

`--real` asks OpenAI. Between the first two starts, any `takeover.py` of these folders can go on.
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

trip.dies_once("trip-langgraph")
job = resumable_graph(builder.compile(), run_id="trip-langgraph")
with trip.openai():
    print(job.invoke({"messages": [("user", trip.TASK)]})["messages"][-1].content)
