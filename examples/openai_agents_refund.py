"""Two agents, a hand-over and an approval, with the OpenAI Agents SDK; and one kill -9.

python examples/openai_agents_refund.py        dies in the middle of a tool
python examples/openai_agents_refund.py        goes on there, and asks for an approval
caravanserai answer refund-a17 --approve       or: --reject --reason "ask the shop first"
python examples/openai_agents_refund.py        goes on with the answer, to the end
caravanserai show refund-a17                   what the last waypoint says

`--calm` does without the kill. The model is a script (`scripted_openai.py`), reached over HTTP by
the SDK's real client; `--real` asks OpenAI, with OPENAI_API_KEY. Each question to the model and
each tool prints a line when it really happens: none comes twice, but the tool that was killed.
"""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from agents import Agent, OpenAIResponsesModel, RunConfig, function_tool
from openai import AsyncOpenAI
from scripted_openai import ScriptedOpenAI, by_rules

from caravanserai.openai_agents import Runner

TASK = "Refund order A17 please."
KILLED = Path("killed-once.txt")  # that this example has killed itself, so that it does so once


# --- tools


@function_tool
async def lookup_order(order_id: str) -> str:
    """Look up an order."""
    print(f"tool: lookup_order {order_id}", flush=True)
    return f"order {order_id}: 40 EUR, delivered, broken"


@function_tool
def shipping_quote(order_id: str) -> str:
    """Ask what the way back costs."""
    print(f"tool: shipping_quote {order_id}", flush=True)
    if not KILLED.exists():
        KILLED.touch()
        print("kill -9, in the middle of a tool. Start me again.", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return f"5 EUR for {order_id}"


@function_tool(needs_approval=True)
async def issue_refund(order_id: str, amount: int) -> str:
    """Pay money back."""
    print(f"tool: issue_refund {order_id}, {amount} EUR", flush=True)
    return f"refunded {amount} EUR"


# --- agents


def build(model):
    """Return the agent that everything begins with; `model` None: the SDK's own choice."""
    refund = Agent(
        name="refund agent",
        instructions="Issue the refund. Say what came of it.",
        model=model,
        tools=[issue_refund],
    )
    return Agent(
        name="triage agent",
        instructions="Look up the order, then the shipping, then hand over to refund.",
        model=model,
        tools=[lookup_order, shipping_quote],
        handoffs=[refund],
    )


async def work(model):
    # The same line starts the run, goes on after a crash or an answer, and returns what it came to.
    result = await Runner.run(
        build(model),
        TASK,
        run_id="refund-a17",
        run_config=RunConfig(tracing_disabled=model is not None),
    )
    if not result.interruptions:
        print(result.final_output)
        return 0
    for asked in result.interruptions:
        print(f"{asked.agent.name} wants {asked.tool_name}({asked.arguments})")
    print("Say: caravanserai answer refund-a17 --approve   (or --reject), and start me again.")
    return 6  # as the command line has it for what waits for a person


def scripted(asked):
    """Decide as the script says, and show that the model was asked."""
    print(f"model asked, with {len(asked.outputs)} results of tools", flush=True)
    return by_rules(REFUND, asked)


REFUND = [
    {"call": [["issue_refund", {"order_id": "A17", "amount": 40}]]},
    {"if_tool": "issue_refund", "say": "Order A17: {last}."},
    {"call": [["lookup_order", {"order_id": "A17"}]]},
    {"call": [["shipping_quote", {"order_id": "A17"}]]},
    {"call": [["transfer_to_refund_agent", {}]]},
]


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calm", action="store_true", help="do without the kill")
    parser.add_argument("--real", action="store_true", help="ask OpenAI in place of the script")
    given = parser.parse_args(argv)
    if given.calm:
        KILLED.touch()
    if given.real:
        return asyncio.run(work(None))
    # The log lets the ids of a later start go on where those of this one ended.
    with ScriptedOpenAI(scripted, log=Path("requests.jsonl")) as server:
        client = AsyncOpenAI(base_url=server.url, api_key="none")
        return asyncio.run(work(OpenAIResponsesModel("scripted", client)))


if __name__ == "__main__":
    sys.exit(main())
