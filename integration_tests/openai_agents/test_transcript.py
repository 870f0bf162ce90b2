"""A run's conversation is read from its JSON, in a program that has no SDK."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from caravanserai import checkpoint, load
from caravanserai.openai_agents._folding import folded
from caravanserai.openai_agents.transcript import transcript
from caravanserai_core import codec
from caravanserai_core import transcript as core
from caravanserai_core.transcript import Message, ToolCall, Transcript

HERE = Path(__file__).parent
STATES = HERE / "golden" / "states"

READER = """
import sys
sys.modules["agents"] = sys.modules["openai"] = sys.modules["pydantic"] = None  # imports fail
from caravanserai import load
from caravanserai_core.transcript import find
found = find("openai-agents")(load("job", raw=True, store=sys.argv[1]))
for one in found.messages:
    print(one.role, one.name, repr(one.text), [call.name for call in one.tool_calls])
print([call.id for call in found.uncertain], found.losses)
"""


def golden(name: str, number: int) -> dict[str, Any]:
    """Return one state of `states.py`, without the SDK that it needs."""
    lines = (STATES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    run: dict[str, Any] = orjson.loads(lines[number])
    return {"given": orjson.loads(lines[0])["original_input"], "run": run}


def raw(value: object) -> Any:
    return orjson.loads(codec.encode(value).data)


@pytest.mark.parametrize("release", ["0.20", "0.24"])
def test_a_run_is_read_with_its_agents_calls_and_results(release: str) -> None:
    refund = ToolCall("c5", "issue_refund", {"order_id": "A17", "amount": 40})

    assert transcript(golden(f"{release}-refund", 6)) == Transcript(
        (
            Message("user", "Refund order A17 please."),
            Message(
                "assistant",
                "",
                (ToolCall("c1", "lookup_order", {"order_id": "A17"}),),
                name="triage agent",
            ),
            Message("tool", "order A17: 40 EUR, delivered", (), "c1", "lookup_order"),
            Message(
                "assistant",
                "",
                (
                    ToolCall("c2", "get_policy", {"topic": "refund"}),
                    ToolCall("c3", "shipping_quote", {"order_id": "A17"}),
                ),
                name="triage agent",
            ),
            Message("tool", "refunds up to 50 EUR need approval", (), "c2", "get_policy"),
            Message("tool", "5 EUR", (), "c3", "shipping_quote"),
            Message(
                "assistant",
                "",
                (ToolCall("c4", "transfer_to_refund_agent", {}),),
                name="triage agent",
            ),
            Message("tool", "Handed over to refund agent.", (), "c4", "transfer_to_refund_agent"),
            Message("assistant", "", (refund,), name="refund agent"),
            Message("tool", "refunded 40", (), "c5", "issue_refund"),
            Message("assistant", "Refund of 40 for order A17 is done.", name="refund agent"),
        ),
        (),
        ("2 × reasoning of a model",),
    )


@pytest.mark.parametrize("name", ["refund", "rich", "nested"])
def test_a_state_without_its_repetitions_is_read_alike(name: str) -> None:
    state = golden(f"0.24-{name}", 3)

    assert transcript({**state, "run": folded(state["run"])}) == transcript(state)


@pytest.mark.parametrize("release", ["0.20", "0.24"])
def test_a_call_without_a_result_is_uncertain(release: str) -> None:
    """It waits to be approved in this state; the journal behind it may know more."""
    found = transcript(golden(f"{release}-refund", 4))

    assert [call.name for call in found.uncertain] == ["issue_refund"]
    assert found.to_openai()[-1]["tool_call_id"] == "c5"


@pytest.mark.parametrize("release", ["0.20", "0.24"])
def test_what_a_provider_ran_and_what_is_lost_is_said(release: str) -> None:
    found = transcript(golden(f"{release}-rich", 3))

    asked, hosted, read, looked, photo, boom, expert, deep, done = found.messages
    assert asked == Message("user", "Look at this.")
    assert [call.name for call in hosted.tool_calls] == ["files.read"]
    assert read == Message("tool", "hello", (), hosted.tool_calls[0].id, "files.read")
    assert looked.text == "Looking."
    assert [call.name for call in looked.tool_calls] == ["photo", "boom"]
    assert (photo.text, boom.text) == ("", "It is broken.")
    assert expert.tool_calls == (ToolCall("c3", "ask_expert", {"input": "how deep?"}),)
    assert (deep.text, done.text) == ("Very deep.", "All done.")
    assert found.losses == (
        "3 × content of the type 'image'",
        "1 × what the provider's tool web_search gave",
        "1 × what the provider's tool image_generation gave",
    )
    assert found.uncertain == ()


@pytest.mark.parametrize("name", ["refund", "rich", "nested"])
@pytest.mark.parametrize("release", ["0.20", "0.24"])
def test_openais_form_keeps_calls_and_results_together(name: str, release: str) -> None:
    """Behind a message with calls stand the results of just these, before anything else."""
    for number in range(4):
        open_: set[str] = set()
        for message in transcript(golden(f"{release}-{name}", number)).to_openai():
            if message["role"] == "tool":
                assert message["tool_call_id"] in open_
                open_.remove(message["tool_call_id"])
            else:
                assert open_ == set()
                open_ = {call["id"] for call in message.get("tool_calls", ())}
        assert open_ == set()


def test_what_a_session_held_before_comes_first() -> None:
    """The SDK puts it in front of what the run was given; a handoff may put a summary there."""
    earlier = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Yes?"}]
    own = {"role": "user", "content": "Refund it."}

    def texts(original: Any) -> list[str]:
        state = {"given": "Refund it.", "run": {"original_input": original}}
        return [message.text for message in transcript(state).messages]

    assert texts([*earlier, own]) == ["Hello.", "Yes?", "Refund it."]
    assert texts([{"role": "assistant", "content": "<CONVERSATION HISTORY>"}]) == ["Refund it."]
    assert texts("Refund it.") == ["Refund it."]


def test_a_session_is_read_from_its_items() -> None:
    items = [
        {"role": "user", "content": "How warm is it?"},
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"at": "Oslo"}'},
        {"type": "function_call_output", "call_id": "c", "output": "7 degrees"},
        {"type": "function_call", "call_id": "d", "name": "send", "arguments": "{"},
        {"type": "hologram", "id": "h"},
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {"type": "output_text", "text": "7."},
                {"type": "refusal", "refusal": "No."},
            ],
        },
    ]

    assert transcript({"items": items}) == Transcript(
        (
            Message("user", "How warm is it?"),
            Message("assistant", "", (ToolCall("c", "look", {"at": "Oslo"}),)),
            Message("tool", "7 degrees", (), "c", "look"),
            Message("assistant", "7.\nNo.", (ToolCall("d", "send", "{"),)),
        ),
        (ToolCall("d", "send", "{"),),
        ("1 × reasoning of a model", "1 × an item of the type 'hologram'"),
    )


def test_texts_that_json_cannot_hold_and_secrets_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference to a secret is told by its name; nothing resolves it."""
    monkeypatch.setenv("BANK_API_KEY", "abcdefghijklmnop1234")
    key = "abcdefghijklmnop1234"
    items = [
        {"role": "user", "content": "half \ud800"},
        {
            "type": "function_call",
            "call_id": "c",
            "name": "pay",
            "arguments": orjson.dumps({"key": key}).decode(),
        },
    ]
    checkpoint("talk", {"items": items})

    said, call = transcript(load("talk", raw=True)).messages

    assert said.text == "half \ud800"
    assert call.tool_calls[0].arguments == {"key": "[secret env:BANK_API_KEY]"}


def test_reading_needs_no_sdk(tmp_path: Path) -> None:
    """The function is found by the adapter's name, in a process where no SDK can be imported."""
    checkpoint("job", golden("0.24-refund", 3), store=tmp_path)

    read = [sys.executable, "-c", READER, str(tmp_path)]
    done = subprocess.run(read, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:3] == [
        "user None 'Refund order A17 please.' []",
        "assistant triage agent '' ['lookup_order']",
        "tool lookup_order 'order A17: 40 EUR, delivered' []",
    ]
    assert done.stdout.splitlines()[-1] == "[] ('2 × reasoning of a model',)"


@pytest.mark.parametrize(
    "tree",
    [
        *(None, 1, "x", [], {}, {"run": 1}, {"items": 1}, {"run": {}, "given": None}),
        *({"items": [None]}, {"items": [{}]}, {"items": [[]]}, {"$x": 1}),
        {"run": {"session_items": [None, {"type": 1, "raw_item": 2, "agent": 3}]}},
    ],
)
def test_a_state_without_a_conversation_gives_none(tree: Any) -> None:
    assert transcript(tree).messages == ()


def test_the_function_is_found_by_the_adapters_name() -> None:
    assert core.find("openai-agents") is transcript
