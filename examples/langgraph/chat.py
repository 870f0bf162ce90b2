"""A chat that remembers, over any number of starts: LangGraph with a `WaypointSaver`.

python examples/langgraph/chat.py "The train costs 62 EUR."
python examples/langgraph/chat.py "The bus costs 45 EUR."
python examples/langgraph/chat.py "Which one is cheaper?"     The bus.
caravanserai log chat-langgraph                               every turn, readable

Each start is a further turn of the thread; for a job that starts, goes on and ends, see job.py.
`--real` asks OpenAI.
"""

import sys
from pathlib import Path

from langchain_core.messages import convert_to_messages, convert_to_openai_messages
from langgraph.graph import START, MessagesState, StateGraph

sys.path.append(str(Path(__file__).parents[1]))  # where trip.py is, which these examples share

import trip

from caravanserai.langgraph import WaypointSaver


def model(state: MessagesState):  # ask your own model here
    said = trip.chat(convert_to_openai_messages(state["messages"]))
    return {"messages": convert_to_messages([said])}


builder = StateGraph(MessagesState)
builder.add_node("model", model)
builder.add_edge(START, "model")
graph = builder.compile(checkpointer=WaypointSaver())

thread = {"configurable": {"thread_id": "chat-langgraph"}}
said = {"messages": [("user", trip.words("Which one is cheaper?"))]}
with trip.openai(trip.talk):
    print(graph.invoke(said, thread, durability="sync")["messages"][-1].content)
