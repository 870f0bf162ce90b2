"""A thread's conversation is read from its JSON, in a program that has no LangGraph."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from caravanserai.langgraph import WaypointSaver

READER = """
import sys
sys.modules["langgraph"] = sys.modules["langchain_core"] = None  # an import of them fails
from caravanserai import load
from caravanserai.langgraph.transcript import transcript
found = transcript(load("talk", raw=True, store=sys.argv[1]))
for message in found.messages:
    print(message.role, repr(message.text), [call.name for call in message.tool_calls])
print([call.id for call in found.uncertain], found.losses)
"""


def _talk(state: MessagesState) -> dict[str, list[AnyMessage]]:
    calls = [{"name": name, "args": {"q": "x"}, "id": name} for name in ("find", "send")]
    return {
        "messages": [
            AIMessage("I look it up", tool_calls=calls),
            ToolMessage("found", tool_call_id="find", name="find"),
        ]
    }


def test_roles_texts_calls_and_what_is_open(tmp_path: Path) -> None:
    """Each message has its role and text; a call without a result is named as uncertain."""
    builder = StateGraph(MessagesState)
    builder.add_node("talk", _talk)
    builder.add_edge(START, "talk")
    builder.add_edge("talk", END)
    graph = builder.compile(checkpointer=WaypointSaver(tmp_path))
    graph.invoke({"messages": [HumanMessage("hello")]}, {"configurable": {"thread_id": "talk"}})

    read = [sys.executable, "-c", READER, str(tmp_path)]
    done = subprocess.run(read, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "user 'hello' []",
        "assistant 'I look it up' ['find', 'send']",
        "tool 'found' []",
        "['send'] ()",
    ]
