"""Started in one framework, killed, finished in another: each account is charged once."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import pytest

from caravanserai import handoff
from caravanserai_core.conversation import read
from caravanserai_core.transcript import Message
from caravanserai_core.verify import verify
from integration_tests.handoff.relay import ACCOUNTS, ANSWER, Relay

FRAMEWORKS = ("plain", "langgraph", "openai-agents", "crewai", "claude-agent")
MADE_WITH = {
    "plain": "",
    "langgraph": "LangGraph",
    "openai-agents": "OpenAI Agents SDK",
    "crewai": "CrewAI",
    "claude-agent": "Claude Agent SDK",
}
PAIRS = [pair for pair in itertools.product(FRAMEWORKS, repeat=2) if pair[0] != pair[1]]


def killed_at(begun: str, other: str) -> int:
    """Return with how many accounts charged a pair's first program is killed: 1 or 2."""
    return 1 + (FRAMEWORKS.index(begun) + FRAMEWORKS.index(other)) % 2


@pytest.mark.parametrize(("begun", "other"), PAIRS, ids=map("-".join, PAIRS))
def test_what_one_framework_began_another_one_finishes(
    relay: Relay, begun: str, other: str
) -> None:
    step = killed_at(begun, other)
    assert relay.start(begun, "first", kill_at=step).killed
    assert relay.charged() == list(ACCOUNTS[:step])
    handed = handoff("first", store=relay.store)

    assert relay.said(other, "second", continues="first") == ANSWER

    assert relay.charged() == list(ACCOUNTS)
    # The whole job is in what the second one leaves, and the notes tell who did what.
    said = read("second", store=relay.store)
    assert "account 1 was charged" in json.dumps(said.to_json())
    assert "account 3 was charged" in json.dumps(said.to_json())
    first, second = relay.note("second", "waypoint-1.md"), relay.note("first")
    assert "goes on from run `first`" in first
    assert MADE_WITH[begun] in first
    assert "charge" in second
    drawn = drawing(relay)
    assert MADE_WITH[begun] in drawn
    assert MADE_WITH[other] in drawn
    assert "handed over" in drawn
    assert not verify(relay.store, "second").damaged
    print(f"{begun} → {other}, losses: {'; '.join(handed.losses) or 'none'}")
    # Started again, it gives its recorded result, and no model is asked.
    assert relay.said(other, "second", continues="first") == ANSWER
    assert relay.bodies == []
    assert relay.charged() == list(ACCOUNTS)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_its_own_framework_goes_on_exactly(relay: Relay, framework: str) -> None:
    assert relay.start(framework, "whole").code == 0
    undisturbed = comparable(relay, "whole")
    (relay.folder / "outside.txt").unlink()
    for step in (1, 2):
        name = f"killed-{step}"
        assert relay.start(framework, name, kill_at=step).killed

        assert relay.said(framework, name) == ANSWER

        assert relay.charged() == list(ACCOUNTS)
        if framework == "claude-agent":
            # Its CLI writes its transcript a moment late: what a kill took of it is told to Claude
            # from what was recorded, in a message more. What was said last is the same.
            assert comparable(relay, name)[-1] == undisturbed[-1]
        else:
            assert comparable(relay, name) == undisturbed
        (relay.folder / "outside.txt").unlink()


def comparable(relay: Relay, run_id: str) -> list[object]:
    """Return a conversation without the ids that its model's server made up."""
    found = read(run_id, store=relay.store)
    assert not found.uncertain
    return [told(message) for message in found.messages]


def told(message: Message) -> object:
    """Return what a message says."""
    calls = [(call.name, call.arguments) for call in message.tool_calls]
    return message.role, message.text, calls, message.name, message.failed


def drawing(relay: Relay) -> str:
    """Return what `caravanserai log --graph` draws."""
    command = [sys.executable, "-m", "caravanserai_core.cli", "log", "second", "--graph"]
    return subprocess.run(
        [*command, "--store", str(relay.store.root)], capture_output=True, text=True, check=True
    ).stdout


def test_a_job_goes_through_all_frameworks(relay: Relay) -> None:
    """Each one charges nothing or one account, is killed, and the next one goes on."""
    assert relay.start("crewai", "r1", kill_at=1).killed
    assert relay.start("openai-agents", "r2", kill_at=2, continues="r1").killed
    assert relay.start("langgraph", "r3", kill_at=2, continues="r2").killed
    assert relay.start("claude-agent", "r4", kill_at=3, continues="r3").killed

    assert relay.said("plain", "r5", continues="r4") == ANSWER

    assert relay.charged() == list(ACCOUNTS)
    text = handoff("r5", store=relay.store).text
    assert all(f"account {account} was charged" in text for account in ACCOUNTS)
