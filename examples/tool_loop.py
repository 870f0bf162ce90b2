"""A hand-written agent: a model, two tools, and a loop that survives kill -9.

    MODEL_URL=http://127.0.0.1:8000/v1/chat/completions python examples/tool_loop.py

The model speaks OpenAI's chat format. There is a waypoint after each model answer and after each
tool result, so neither is asked for, paid for, or done a second time once it is there. What was
in flight at a kill may run again: each tool is therefore given the id of its call, and `order`
uses it to recognise a call that it has already carried out.
"""

import json
import os
import urllib.request
from pathlib import Path

from caravanserai import Note, open_run

TASK = "Find out what tea and honey cost, and order the cheaper one."
PRICES = {"tea": 4, "honey": 7}
ORDERS = Path(os.environ.get("ORDERS", "orders.txt"))  # the outside world


def price(call_id, item):
    """Look up a price."""
    return f"{item} costs {PRICES[item]}"


def order(call_id, item):
    """Order something, once per call id."""
    if ORDERS.exists() and f"{call_id} " in ORDERS.read_text():
        return f"{item} was ordered before"
    with ORDERS.open("a") as file:
        file.write(f"{call_id} {item}\n")
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
        json.dumps({"model": "any", "messages": messages, "tools": SCHEMAS}).encode(),
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


def work(run):
    """Carry on from the run's last waypoint to the model's final answer."""
    messages = run.state or [{"role": "user", "content": TASK}]
    while True:
        for call in open_calls(messages):
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            shown = f"{name}({arguments})"
            # Written before the tool starts: after a crash the note says what was in flight.
            run.entry("tool", call["id"], say=f"`{shown}` began.")
            print(f"tool: {shown}", flush=True)
            result = TOOLS[name](call["id"], **json.loads(arguments))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            run.checkpoint(messages, Note(f"`{shown}` returned: {result}.", goal=TASK))
        if messages[-1]["role"] == "assistant":
            return messages[-1]["content"]
        answer = ask_model(messages)
        messages.append(answer)
        calls = [call["function"] for call in open_calls(messages)]
        planned = [f"`{call['name']}({call['arguments']})`" for call in calls]
        told = f"The model asks for {len(calls)} tool call(s)." if calls else "The model is done."
        run.checkpoint(messages, Note(told, next=planned, goal=TASK))
        print(f"model: {told}", flush=True)


def main():
    with open_run("tool-loop") as run:
        finished, answer = run.finished()
        if not finished:
            answer = work(run)
            run.finish(answer)
    print(answer)


if __name__ == "__main__":
    main()
