"""Agents for the tests, each built anew by a function, with the script of their model.

What they do in the world is a line in `outside.txt`, one where a tool begins and one where it
ended. A place is such a line, or a hook of the SDK; the process dies there if that was asked for.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    GuardrailFunctionOutput,
    ModelSettings,
    RunContextWrapper,
    RunHooks,
    handoff,
    input_guardrail,
    output_guardrail,
)
from agents.mcp import MCPServerStdio
from agents.tool import ToolOutputImage, ToolOutputText, function_tool
from agents.tool_context import ToolContext
from pydantic import BaseModel

from integration_tests.openai_agents.scripted import REFUND

OUTSIDE = "outside.txt"

_place: str | None = None
ended: dict[str, asyncio.Event] = collections.defaultdict(asyncio.Event)
"""By tool whether its end was told, so that another can wait for it."""


def die_at(place: str | None) -> None:
    """Choose where this process is killed; None: nowhere."""
    global _place
    _place = place
    ended.clear()


def reach(place: str) -> None:
    """Write down that a place is reached; die there if that was asked for."""
    with Path(OUTSIDE).open("a") as outside:
        outside.write(f"{place}\n")
    if place == _place:
        os.kill(os.getpid(), signal.SIGKILL)


def lines_outside() -> list[str]:
    """Return what was written down here."""
    path = Path(OUTSIDE)
    return path.read_text().splitlines() if path.exists() else []


def outside(line: str) -> int:
    """Count how often a place was reached here."""
    return lines_outside().count(line)


def forget_outside() -> None:
    """Begin with nothing written down."""
    Path(OUTSIDE).unlink(missing_ok=True)


class Places(RunHooks[Any]):
    """A user's hooks: each is a place. The number of a model's answer counts from the start."""

    def __init__(self) -> None:
        self.answers = 0

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self.answers += 1
        reach(f"hook model {self.answers}")

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
        reach(f"hook tool {tool.name}")
        ended[tool.name].set()

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        reach(f"hook handoff {to_agent.name}")

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        reach(f"hook end {agent.name}")


# ---------------------------------------------------------------------- the refund


def refund(
    model: Any, *, told: bool = False, guarded: bool = False, structured: bool = False
) -> Agent[Any]:
    """Return the triage agent: a look-up, two at once, a hand-over, a refund that is approved.

    Args:
        model: a model or its name.
        told: the hand-over has a callback with an input of its own.
        guarded: there are guardrails on input and output.
        structured: the answer is a `Verdict`.
    """

    @function_tool
    async def lookup_order(order_id: str) -> str:
        """Look up an order."""
        reach("begin lookup_order")
        reach("end lookup_order")
        return f"order {order_id}: 40 EUR, delivered"

    @function_tool
    async def get_policy(topic: str) -> str:
        """Read a policy."""
        reach("begin get_policy")
        if _place == "between":  # the other's result is recorded before its end is told
            await ended["shipping_quote"].wait()
            reach("between")
        reach("end get_policy")
        return f"a {topic} up to 50 EUR needs an approval"

    @function_tool
    def shipping_quote(order_id: str) -> str:
        """Ask what the way back costs."""
        reach("begin shipping_quote")
        reach("end shipping_quote")
        return f"5 EUR for {order_id}"

    @function_tool(needs_approval=True)
    async def issue_refund(context: ToolContext[Any], order_id: str, amount: int) -> str:
        """Pay money back."""
        reach("begin issue_refund")
        _pay(f"{order_id} {amount} {context.tool_call_id}")
        reach("end issue_refund")
        return f"refunded {amount} EUR"

    refunds = Agent(
        name="refund agent",
        instructions="Issue the refund.",
        model=model,
        tools=[issue_refund],
        output_type=Verdict if structured else None,
        output_guardrails=[polite] if guarded else [],
    )
    return Agent(
        name="triage agent",
        instructions="Look the order up, then hand over.",
        model=model,
        tools=[lookup_order, get_policy, shipping_quote],
        handoffs=[handoff(refunds, on_handoff=handed_over, input_type=Why)] if told else [refunds],
        input_guardrails=[decent] if guarded else [],
        model_settings=ModelSettings(parallel_tool_calls=True),
    )


def _pay(what: str) -> None:
    with Path("refunds.txt").open("a") as refunds:
        refunds.write(f"{what}\n")


class Why(BaseModel):
    reason: str


class Verdict(BaseModel):
    order_id: str
    amount: int


async def handed_over(context: RunContextWrapper[Any], why: Why) -> None:
    reach("begin handed_over")
    reach("end handed_over")


# One of the two forms of guardrails runs beside the model, the other before it.
@input_guardrail(run_in_parallel=False)
async def decent(
    context: RunContextWrapper[Any], agent: Agent[Any], given: Any
) -> GuardrailFunctionOutput:
    reach("begin decent")
    rude = "damn" in str(given)
    reach("end decent")
    return GuardrailFunctionOutput({"rude": rude}, tripwire_triggered=rude)


@output_guardrail
async def polite(
    context: RunContextWrapper[Any], agent: Agent[Any], output: Any
) -> GuardrailFunctionOutput:
    reach("begin polite")
    reach("end polite")
    return GuardrailFunctionOutput({"polite": True}, tripwire_triggered="damn" in str(output))


TOLD: list[Any] = [
    {"call": [["transfer_to_refund_agent", {"reason": "it is broken"}]]}
    if rule.get("call", [[""]])[0][0] == "transfer_to_refund_agent"
    else rule
    for rule in REFUND
]
STRUCTURED: list[Any] = [
    {**rule, "say": {"order_id": "A17", "amount": 40}} if "if_tool" in rule else rule
    for rule in REFUND
]

# ---------------------------------------------------------------------- an agent as a tool


def nested(
    model: Any, *, approval: bool = False, options: dict[str, Any] | None = None
) -> Agent[Any]:
    """Return an agent that asks another, which has a tool of its own.

    Args:
        model: a model or its name.
        approval: the inner agent also has a tool that needs an approval.
        options: more for `Agent.as_tool`; with a `run_config`, that says the inner agent's model.
    """

    @function_tool
    async def check_stock(item: str) -> str:
        """Count what is there."""
        reach(f"begin check_stock {item}")
        reach(f"end check_stock {item}")
        return f"3 of {item}"

    @function_tool(needs_approval=True)
    async def reserve(item: str) -> str:
        """Put one aside."""
        reach(f"begin reserve {item}")
        reach(f"end reserve {item}")
        return f"reserved one {item}"

    @function_tool
    async def write_down(text: str) -> str:
        """Keep a text."""
        reach("begin write_down")
        reach("end write_down")
        return "kept"

    expert = Agent(
        name="expert",
        instructions="You know the stock.",
        model=None if "run_config" in (options or {}) else model,
        tools=[check_stock, reserve] if approval else [check_stock],
    )
    asking = expert.as_tool("ask_expert", "Ask who knows the stock.", **(options or {}))
    return Agent(
        name="shop", instructions="Ask the expert.", model=model, tools=[asking, write_down]
    )


def _expert(item: str) -> list[Any]:
    said = f"chairs and tables: {item}"
    return [
        {"if_said": said, "call": [["check_stock", {"item": item}]]},
        {"if_said": said, "call": [["reserve", {"item": item}]]},
        {"if_said": said, "if_tool": "check_stock", "say": f"For {item}: {{last}}."},
    ]


def _shop(*items: str) -> list[Any]:
    asks = [["ask_expert", {"input": f"chairs and tables: {item}"}] for item in items]
    return [
        *(rule for item in items for rule in _expert(item)),
        {"call": asks},
        {"call": [["write_down", {"text": "asked"}]]},
        {"say": "Done, {last}."},
    ]


NESTED = _shop("chair")
BOTH = _shop("chair", "table")

# ---------------------------------------------------------------------- others


def weather(model: Any, kill: bool = False) -> Agent[Any]:
    """Return an agent with a real MCP server; `async with agent.mcp_servers[0]` starts it."""
    script = Path(__file__).with_name("mcp_server.py")
    command = {
        "command": sys.executable,
        "args": [str(script), str(Path(OUTSIDE).absolute()), *(["kill"] if kill else [])],
    }
    server = MCPServerStdio(command, name="weather", client_session_timeout_seconds=30)
    return Agent(
        name="forecaster", instructions="Say how it will be.", model=model, mcp_servers=[server]
    )


WEATHER: list[Any] = [
    {"call": [["forecast", {"city": "Bremen"}]]},
    {"call": [["forecast", {"city": "Emden"}]], "times": 2},
    {"say": "It will be fine."},
]


@dataclasses.dataclass
class Box:
    """What a tool may return that is no string."""

    length: int
    names: tuple[str, ...]


PIXEL = "data:image/png;base64,iVBORw0KGgo="

RESULTS: dict[str, Any] = {
    "a_model": Verdict(order_id="A17", amount=3),
    "a_dict": {"b": [1, 2.5, None], "a": True},
    "a_dataclass": Box(3, ("x", "y")),
    "a_number": 17,
    "nothing": None,
    "an_image": ToolOutputImage(image_url=PIXEL, detail="low"),
    "parts": [ToolOutputText(text="one"), ToolOutputImage(image_url=PIXEL)],
}
"""By tool what it returns."""


def kinds(model: Any, results: dict[str, Any] = RESULTS) -> Agent[Any]:
    """Return an agent whose tools return anything but strings."""

    def tool(name: str) -> Any:
        def returns() -> Any:
            reach(f"begin {name}")
            reach(f"end {name}")
            return results[name]

        return function_tool(returns, name_override=name, description_override="Return it.")

    tools = [tool(name) for name in results]
    return Agent(name="kinds", instructions="Call all.", model=model, tools=tools)


KINDS: list[Any] = [
    {"call": [[name, {}] for name in RESULTS]},
    {"say": "All called."},
]


def three(model: Any, *, failing: Callable[[], bool]) -> Agent[Any]:
    """Return an agent that calls three tools at once, of which the third may raise."""

    @function_tool(failure_error_function=None)
    async def third() -> str:
        """Do it, or fail."""
        reach("begin third")
        if failing():
            # Last, so that the others have ended: the SDK cancels what still runs.
            await asyncio.gather(*(ended[name].wait() for name in ("first", "second")))
            raise ConnectionError("the third is not there")
        reach("end third")
        return "3"

    @function_tool
    async def first() -> str:
        """Do it."""
        reach("begin first")
        reach("end first")
        return "1"

    @function_tool
    async def second() -> str:
        """Do it."""
        reach("begin second")
        reach("end second")
        return "2"

    tools = [first, second, third]
    return Agent(name="three", instructions="Call all.", model=model, tools=tools)


THREE: list[Any] = [
    {"call": [["first", {}], ["second", {}], ["third", {}]]},
    {"say": "All called."},
]


def pair(model: Any) -> Agent[Any]:
    """Return an agent that calls three tools at once, of which two need an approval."""

    def tool(name: str, approval: bool) -> Any:
        def act(order_id: str) -> str:
            reach(f"begin {name}")
            reach(f"end {name}")
            return f"{name} done for {order_id}"

        return function_tool(
            act, name_override=name, description_override="Act.", needs_approval=approval
        )

    tools = [tool("pay", True), tool("count", False), tool("ship", True)]
    return Agent(name="pair", instructions="Call all.", model=model, tools=tools)


PAIR: list[Any] = [
    {"call": [[name, {"order_id": "A17"}] for name in ("pay", "count", "ship")]},
    {"say": "Both, {last}."},
]

SCRIPTS: dict[str, list[Any]] = {
    "refund": REFUND,
    "told": TOLD,
    "guarded": REFUND,
    "structured": STRUCTURED,
    "nested": NESTED,
    "both": BOTH,
    "approving": NESTED,
    "approving both": BOTH,
    "weather": WEATHER,
    "kinds": KINDS,
    "three": THREE,
    "pair": PAIR,
}


def build(app: str, model: Any) -> Agent[Any]:
    """Return the agent of an app, anew."""
    builders: dict[str, Callable[[], Agent[Any]]] = {
        "refund": lambda: refund(model),
        "told": lambda: refund(model, told=True),
        "guarded": lambda: refund(model, guarded=True),
        "structured": lambda: refund(model, structured=True),
        "nested": lambda: nested(model),
        "both": lambda: nested(model),
        "approving": lambda: nested(model, approval=True),
        "approving both": lambda: nested(model, approval=True),
        "weather": lambda: weather(model),
        "kinds": lambda: kinds(model),
        "pair": lambda: pair(model),
        "three": lambda: three(model, failing=lambda: Path("broken").exists()),
    }
    return builders[app]()
