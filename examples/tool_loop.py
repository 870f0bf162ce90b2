"""A hand-written agent: a model, two tools, and a loop that survives kill -9.

To try it, give it the address of a model that speaks OpenAI's chat format and can call tools
(MODEL_KEY holds its key and MODEL its name, where it wants them), kill it, and start it again:

    MODEL_URL=http://127.0.0.1:8000/v1/chat/completions python examples/tool_loop.py

There is a waypoint after each model answer and after each tool result, so neither is asked for,
paid for, or done a second time once it is there. What was in flight at a kill may run again: each
tool is therefore given the id of its call, and `order` uses it to recognise a call that it has
already carried out.
"""

import json
import os
import sys
import urllib.request
from pathlib import Path

from caravanserai import Note, open_run, quoted

TASK = "Find out what tea and honey cost, and order the cheaper one."
PRICES = {"tea": 4, "honey": 7}
SHOP = Path(os.environ.get("SHOP", "shop.txt"))  # the outside world: what the shop was asked


def price(call_id, item):
    """Look up a price."""
    with SHOP.open("a") as shop:
        shop.write(f"price {item} {call_id}\n")
    return f"{item} costs {PRICES[item]}"


def order(call_id, item):
    """Order something."""
    if SHOP.exists() and f"order {item} {call_id}\n" in SHOP.read_text():
        return f"{item} is ordered already"
    with SHOP.open("a") as shop:
        shop.write(f"order {item} {call_id}\n")
    return f"{item} is ordered"


TOOLS = {"price": price, "order": order}
SCHEMAS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": tool.__doc__,
            "parameters": {
                "type": "object",
                "properties": {"item": {"type": "string"}},
                "required": ["item"],
            },
        },
    }
    for name, tool in TOOLS.items()
]


def ask_model(messages):
    """Send the conversation to the model and return its answer."""
    request = urllib.request.Request(
        os.environ["MODEL_URL"],
        json.dumps(
            {"model": os.environ.get("MODEL", "any"), "messages": messages, "tools": SCHEMAS}
        ).encode(),
        {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {os.environ.get('MODEL_KEY', '')}",
        },
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)["choices"][0]["message"]


def open_calls(messages):
    """Return the tool calls of the last answer that have no result yet."""
    done = {message["tool_call_id"] for message in messages if message["role"] == "tool"}
    asked = [call for message in messages for call in message.get("tool_calls") or []]
    return [call for call in asked if call["id"] not in done]


def shown(call):
    """Write a call as a note shows it; the model's words cannot act there."""
    return quoted(f"{call['function']['name']}({call['function']['arguments']})")


def work(run):
    """Go on from the run's last waypoint to the model's final answer."""
    messages = run.state or [{"role": "user", "content": TASK}]
    while True:
        for call in open_calls(messages):
            # Written before the tool starts: after a crash the note says what was in flight.
            run.entry("tool", call["id"], say=f"{shown(call)} began.")
            print(f"tool: {shown(call)}", flush=True)
            tool, arguments = TOOLS[call["function"]["name"]], call["function"]["arguments"]
            result = tool(call["id"], **json.loads(arguments))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            run.checkpoint(messages, Note(f"{shown(call)} gave {quoted(result)}.", goal=TASK))
        if messages[-1]["role"] == "assistant":
            return messages[-1]["content"]
        messages.append(ask_model(messages))
        calls = [shown(call) for call in open_calls(messages)]
        told = "The model asks for tools." if calls else "The model gave its answer."
        run.checkpoint(messages, Note(told, next=calls, goal=TASK))
        print(f"model: {told}", flush=True)


def main():
    if not os.environ.get("MODEL_URL"):
        print(
            "Set MODEL_URL to a model's address in OpenAI's format, for example "
            "http://127.0.0.1:8000/v1/chat/completions",
            file=sys.stderr,
        )
        return 2
    with open_run("tool-loop") as run:
        finished, answer = run.finished()
        if not finished:
            answer = work(run)
            run.finish(answer)
    print(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
