"""Four charges, with the Claude Agent SDK; and one kill -9 that leaves the CLI an orphan.

python examples/claude_agent_billing.py                dies behind the third charge
python examples/claude_agent_billing.py                asks: did that one happen?
cat charges.txt                                        customer 3 stands in it
caravanserai answer billing q1 happened --result '"charged customer 3"'
python examples/claude_agent_billing.py                goes on with the answer, to the end
caravanserai show billing                              what the last waypoint says

`rerun` in place of `happened` would charge customer 3 once more. `--calm` does without the kill.
The CLI is the real one that the SDK brings along. The model is a script (`scripted_anthropic.py`),
which the CLI reaches over HTTP; its configuration is in `./claude-config`, not in `~/.claude`.
`--real` asks Anthropic, with ANTHROPIC_API_KEY. Each question to the scripted model and each
charge prints a line when it really happens.
"""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, tool
from scripted_anthropic import BILLING, ScriptedAnthropic, by_rules

from caravanserai.claude_agent import resumable_query

TASK = "Charge customers 1 to 4, one after the other."
CHARGES = Path("charges.txt")  # the bank, for this example: a line for each charge
KILLED = Path("killed-once.txt")  # that this example has killed itself, so that it does so once


@tool("charge", "Charge a customer.", {"customer": int})
async def charge(given):
    pay(given["customer"])
    return {"content": [{"type": "text", "text": f"charged customer {given['customer']}"}]}


def pay(customer):
    with CHARGES.open("a") as bank:
        bank.write(f"customer {customer}\n")
    print(f"tool: charge customer {customer}", flush=True)
    if customer == 3 and not KILLED.exists():
        KILLED.touch()
        print("kill -9, before anybody was told of that charge. Start me again.", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def options(environment):
    """Return the options of the SDK; nothing in them is for Caravanserai."""
    return ClaudeAgentOptions(
        model="claude-sonnet-4-5",
        mcp_servers={"pay": create_sdk_mcp_server("pay", tools=[charge])},
        allowed_tools=["mcp__pay__charge"],
        setting_sources=[],
        env=environment,
    )


async def work(environment):
    """Start the run, go on with it, or give what it came to: this line does all three."""
    async for message in resumable_query(
        prompt=TASK, run_id="billing", options=options(environment)
    ):
        if isinstance(message, ResultMessage):
            waits = message.deferred_tool_use
            if waits is None:
                print(message.result)
            else:
                print(f"waits for you: did {waits.name}({waits.input}) happen? Look, then:")
                print("""caravanserai answer billing q1 happened --result '"charged customer 3"'""")
                print("caravanserai answer billing q1 rerun      # it did not: charge again")


def scripted(asked):
    """Decide as the script says, and show that the model was asked."""
    print(f"model asked, with {len(asked.results)} results of tools", flush=True)
    return by_rules(BILLING, asked)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calm", action="store_true", help="do without the kill")
    parser.add_argument("--real", action="store_true", help="ask Anthropic, not the script")
    given = parser.parse_args(argv)
    if given.calm:
        KILLED.touch()
    if given.real:
        asyncio.run(work({}))
        return 0
    # The SDK gives the CLI the whole environment; what is set for the real API is not for this.
    for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "CLAUDE"))]:
        del os.environ[name]
    folder = str(Path("claude-config").resolve())
    with ScriptedAnthropic(scripted) as server:
        asyncio.run(work({**server.environment, "CLAUDE_CONFIG_DIR": folder}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
