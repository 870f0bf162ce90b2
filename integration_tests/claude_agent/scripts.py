"""What the scripted model says in each job."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Rule = dict[str, Any]
Script = list[Rule] | Callable[[Any], Rule]

CHARGE = "mcp__pay__charge"
COUNTER = "You charge customers one and two."
"""What the subagent is told that it is; nothing else says so."""

DONE = "All customers are charged."
SUMMARY = "Customers one and two are charged, three and four are not."
"""The summary of a conversation that was shortened behind the second charge."""


def charge(*numbers: int) -> Rule:
    return {"call": [[CHARGE, {"n": n}] for n in numbers]}


def bash(name: str, *, seconds: float = 0) -> Rule:
    """Return a command that leaves the lines that a tool leaves, too."""
    wait = f"sleep {seconds}; " if seconds else ""
    line = f"echo begin {name} >> outside.txt; {wait}echo end {name} >> outside.txt"
    return {"call": [["Bash", {"command": line}]]}


def agent(*, beside: bool) -> Rule:
    given = {
        "description": "charge two customers",
        "prompt": "Charge customers one and two.",
        "subagent_type": "counter",
        "run_in_background": beside,
    }
    return {"call": [["Agent", given]]}


def _with_agent(*, beside: bool) -> Callable[[Any], Rule]:
    """Return a model that has a subagent charge one and two, and charges three itself."""
    send = agent(beside=beside)

    def decide(asked: Any) -> Rule:
        said = [asked.system, *asked.said]
        if any(COUNTER in text for text in said):
            return _counter(asked)
        last = next((text for text in reversed(asked.said) if text.startswith("[Carav")), "")
        sent = any(asked.calls[id_][0] == "Agent" for id_ in asked.tried)
        if not asked.made(*send["call"][0]) or ("subagents were cut off" in last and not sent):
            return send
        told = "\n".join([*asked.said, *asked.results.values()])
        for n in (*map(int, re.findall(r"A person decides about (\d)", told)), 3):
            if not asked.made(CHARGE, {"n": n}):
                return charge(n)
        return {"say": DONE}

    return decide


def _counter(asked: Any) -> Rule:
    """Be the subagent: make each call once, and report those that wait for a person."""
    results = {call[1]["n"]: asked.results.get(id_, "") for id_, call in asked.calls.items()}
    for n in (1, 2):
        if n not in results:
            return charge(n)
    waits = [n for n, text in sorted(results.items()) if "a person has to decide" in text]
    return {"say": " ".join([f"A person decides about {n}." for n in waits]) or "Both are charged."}


def _waiting(asked: Any) -> Rule:
    """Send a subagent to the background, run a command, and take note of the subagent's end."""
    if any(COUNTER in text for text in [asked.system, *asked.said]):
        return _counter(asked)
    if asked.said and "<task-notification>" in asked.said[-1]:
        return {"say": "Noted."}
    for rule in (agent(beside=True), bash("three")):
        if not asked.made(*rule["call"][0]):
            return rule
    return {"say": DONE}


SCRIPTS: dict[str, Script] = {
    "charges": [
        charge(1),
        {"say": "On with it.", **charge(2)},
        charge(3),
        charge(4),
        {"say": DONE},
    ],
    "parallel": [charge(1), charge(2, 3), charge(4), {"say": DONE}],
    "commands": [bash("one"), bash("two", seconds=1.5), bash("three"), {"say": DONE}],
    "agent": _with_agent(beside=False),
    "beside": _with_agent(beside=True),
    "waiting": _waiting,
    # The CLI shortens a conversation of which the model says it is so long.
    "shortened": [
        *({"if_said": SUMMARY, **rule} for rule in (charge(3), charge(4), {"say": DONE})),
        charge(1),
        {**charge(2), "tokens": 95_000},
        {"say": "It should have been shortened."},
    ],
}

# What a CLI is told that shortens conversations early (2.1.332).
ENVIRONMENTS = {"shortened": {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000"}}
"""What is different in the environment of a job."""
