"""A LangGraph agent that asks before it sends a mail, and survives kill -9 anywhere.

python examples/langgraph_agent.py                 works until it has to ask
python examples/langgraph_agent.py --answer yes    goes on with the answer
python examples/langgraph_agent.py --kill-at 9     dies at event 9; start it again with any line
caravanserai show offer-118                        what the last waypoint says

Its model is a script, reached over HTTP like a real one; `--base-url http://…/v1` names another
that speaks OpenAI's chat format (MODEL and MODEL_KEY where it wants them). Each event is printed
with its number. After a kill only the node that was running runs again: what its model call or tool
had just done, before LangGraph stored it, is done twice.
"""

import argparse
import json
import os
import signal
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from langchain_core.messages import AIMessage, convert_to_openai_messages
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send, interrupt

from caravanserai.langgraph import WaypointSaver, resumable_graph

TASK = "Send Northside Cafe their offer, number 118."
OUTSIDE = Path(os.environ.get("OUTSIDE", "outside.txt"))  # the outside world: what tools did there


# --- the agent: two tools, a node that asks the model, a node that runs a tool


@tool
def get_offer(number: int) -> str:
    """Look up an offer by its number."""
    with OUTSIDE.open("a") as outside:
        outside.write(f"looked up offer {number}\n")
    return "40 chairs, 5,200 EUR, valid to 2026-12-15; for office@northside.example"


@tool
def send_mail(to: str, body: str) -> str:
    """Send a mail, if a person agrees."""
    # Asked first: the tool starts again from its first line once there is an answer.
    if interrupt({"question": "Send this mail?", "to": to, "body": body}) != "yes":
        return "Not sent: the person said no."
    with OUTSIDE.open("a") as outside:
        outside.write(f"mail to {to}: {body}\n")
    return "Sent."


TOOLS = [get_offer, send_mail]


def build(ask_model):
    """Build the graph: the model is asked, its tool calls are run, until it calls none."""

    def agent(state):
        return {"messages": [ask_model(state["messages"])]}

    def route(state):
        return [Send("tools", [call]) for call in state["messages"][-1].tool_calls] or END

    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode(TOOLS))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", route, ["tools", END])
    builder.add_edge("tools", "agent")
    return builder


def model(base_url):
    """Return a function that asks the model at `base_url` for its next message."""

    def ask(messages):
        body = {
            "model": os.environ.get("MODEL", "any"),
            "messages": convert_to_openai_messages(messages),
            "tools": [convert_to_openai_tool(each) for each in TOOLS],
        }
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {os.environ.get('MODEL_KEY', '')}",
        }
        url = f"{base_url}/chat/completions"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as reply:
            said = json.load(reply)["choices"][0]["message"]
        calls = [
            {
                "name": call["function"]["name"],
                "args": json.loads(call["function"]["arguments"]),
                "id": call["id"],
            }
            for call in said.get("tool_calls") or []
        ]
        return AIMessage(said.get("content") or "", tool_calls=calls)

    return ask


# --- the scripted model: what it says depends on the results that the conversation holds


def scripted(messages):
    """Return the model's next message."""
    results = [message["content"] for message in messages if message["role"] == "tool"]
    if not results:
        text, name, arguments = "I will look up the offer.", "get_offer", {"number": 118}
    elif len(results) == 1:
        body = "Thank you for your call. Our offer: " + results[0].partition(";")[0] + "."
        arguments = {"to": "office@northside.example", "body": body}
        text, name = "I have the offer, and send it now.", "send_mail"
    else:
        return {"role": "assistant", "content": f"Offer 118: {results[-1]}"}
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{len(results) + 1}", "type": "function", "function": function}
    return {"role": "assistant", "content": text, "tool_calls": [call]}


class Scripted(BaseHTTPRequestHandler):
    """OpenAI's chat format, as far as it is needed here."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"choices": [{"index": 0, "message": scripted(asked["messages"])}]}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *args):
        pass


def serve():
    """Start the scripted model and return its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"


# --- events, and the kill


class Events:
    """What happens, counted; at one of them this process dies, and nothing can catch it."""

    def __init__(self, kill_at):
        self.kill_at = kill_at
        self.count = 0
        self.lock = threading.Lock()  # LangGraph stores from threads of its own

    def now(self, name):
        with self.lock:
            self.count += 1
            print(f"[{self.count}] {name}", flush=True)
            if self.count == self.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def around(self, name, call):
        def watched(*args, **options):
            self.now(f"{name} begins")
            result = call(*args, **options)
            self.now(f"{name} ends")
            return result

        return watched


class WatchedSaver(WaypointSaver):
    """A saver whose events are counted; without --kill-at a plain `WaypointSaver` does the same."""

    def __init__(self, events):
        super().__init__()
        self.events = events

    def put(self, *args):
        return self.events.around("checkpoint", super().put)(*args)

    def put_writes(self, config, writes, task_id, task_path=""):
        name = "writes to " + ", ".join(channel for channel, _ in writes)
        self.events.around(name, super().put_writes)(config, writes, task_id, task_path)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--answer", choices=["yes", "no"], help="may the mail be sent?")
    parser.add_argument("--base-url", help="a model to ask in place of the scripted one")
    parser.add_argument("--kill-at", type=int, metavar="N", help="die at event N")
    given = parser.parse_args(argv)

    events = Events(given.kill_at)
    ask = events.around("model", model(given.base_url or serve()))
    for each in TOOLS:
        each.func = events.around(f"tool {each.name}", each.func)
    graph = build(ask).compile(checkpointer=WatchedSaver(events))

    # The same line starts the job, goes on after a crash, and returns what it came to.
    job = resumable_graph(graph, run_id="offer-118")
    result = job.invoke({"messages": [("user", TASK)]})
    if "__interrupt__" in result and given.answer:
        result = job.invoke(Command(resume=given.answer))

    if "__interrupt__" in result:
        for name, value in result["__interrupt__"][0].value.items():
            print(f"{name}: {value}")
        print("Answer with --answer yes or --answer no.")
    else:
        print(result["messages"][-1].content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
