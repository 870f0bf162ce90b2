"""The conversation in a state with LangChain's messages, read from its JSON alone."""

# ruff: noqa: E402

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path
from typing import Any

import orjson
import pytest

from integration_tests.support import ROOT, require

require("langchain_core")

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)

from caravanserai import checkpoint, langchain, load
from caravanserai.langchain.transcript import messages_of
from caravanserai_core import codec, transcript
from caravanserai_core.transcript import Message, ToolCall, Transcript
from integration_tests.langchain.messages import CHAT

langchain.register()


def raw(value: object) -> Any:
    return orjson.loads(codec.encode(value).data)


def test_a_conversation_is_read_with_its_calls_and_results() -> None:
    checkpoint("run", {"messages": CHAT, "n": 1})
    call = ToolCall("call_1", "weather", {"city": "Oslo"})
    assert messages_of(load("run", raw=True)) == Transcript(
        (
            Message("system", "Be brief."),
            Message("user", "How warm is it in Oslo?"),
            Message("assistant", "", (call,)),
            Message("tool", "7 degrees", (), "call_1", "weather"),
            Message("assistant", "Seven degrees."),
        )
    )


def test_openais_form_is_what_its_api_takes() -> None:
    assert messages_of(raw(CHAT)).to_openai()[2:4] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
                }
            ],
        },
        {"role": "tool", "content": "7 degrees", "tool_call_id": "call_1"},
    ]


def test_a_call_without_a_result_is_uncertain_and_answered_as_such() -> None:
    found = messages_of(raw(CHAT[:3]))
    assert [call.id for call in found.uncertain] == ["call_1"]
    told = found.to_openai()
    assert told[-1]["tool_call_id"] == "call_1"
    assert "No result" in told[-1]["content"]
    assert len(found.to_openai(complete=False)) == 3


def test_openais_form_can_be_read_again() -> None:
    found = messages_of(raw(CHAT))
    again = messages_of({"messages": found.to_openai()})
    assert again.to_openai() == found.to_openai()


class Noted(AIMessage):
    note: str = ""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (Noted(content="n", note="x"), Message("assistant", "n")),
        (AIMessageChunk(content="c"), Message("assistant", "c")),
        (HumanMessage("h\ud800", name="Ann"), Message("user", "h\ud800", name="Ann")),
        (ChatMessage("c", role="assistant"), Message("assistant", "c")),
        (FunctionMessage("f", name="fn"), Message("tool", "f", (), "fn", "fn")),
        (
            ToolMessage("no", tool_call_id="c", status="error"),
            Message("tool", "no", (), "c", failed=True),
        ),
        (("user", "t"), Message("user", "t")),
        ({"role": "developer", "content": "d"}, Message("system", "d")),
        (HumanMessage([{"type": "text", "text": "a"}, "b"]), Message("user", "a\n\nb")),
        (RemoveMessage(id="1"), None),
    ],
)
def test_each_kind_of_message_is_told(message: Any, expected: Message | None) -> None:
    found = messages_of(raw([message]))
    assert found.messages == (() if expected is None else (expected,))
    assert found.losses == ()


def test_what_is_lost_is_said() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:…"}}
    found = messages_of(
        raw(
            [
                HumanMessage(["see", image, image]),
                AIMessage(
                    [{"type": "tool_use", "id": "c", "name": "n", "input": {}}],
                    tool_calls=[{"name": "n", "args": {}, "id": "c"}],
                    invalid_tool_calls=[{"name": "m", "args": "{", "id": "d", "error": None}],
                ),
                ChatMessage("c", role="critic"),
                3,
            ]
        )
    )
    assert found.losses == (
        "2 × content of the type 'image_url'",
        "1 × a call whose arguments are no valid JSON",
        "1 × the role 'critic', told as a user's",
        "1 × something that is no message",
    )


@pytest.mark.parametrize("tree", [None, 1, {}, {"messages": 1}, [], [[]], [{}], [{"$x": 1}]])
def test_a_state_without_a_conversation_gives_none(tree: Any) -> None:
    assert messages_of(tree).messages == ()


def test_the_entry_points_lead_to_functions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for value in project["entry-points"][transcript.GROUP].values():
        module, _, name = value.partition(":")
        assert messages_of(None) == getattr(importlib.import_module(module), name)(None)


def test_the_function_of_an_adapter_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an installed package offers it, one of ours or of somebody else."""
    meta = tmp_path / "other-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text(f"[{transcript.GROUP}]\nother = other_agent:read\n")
    (tmp_path / "other_agent.py").write_text("def read(tree): return ('read', tree)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found: Any = transcript.find("other")
    assert found([1]) == ("read", [1])
    assert transcript.find("another") is None
    sys.modules.pop("other_agent")


def pay(id_: str, result: str, *, failed: bool = False, **arguments: Any) -> list[Any]:
    """Return a call and what the model was told of it."""
    status: Any = "error" if failed else "success"
    return [
        AIMessage("", tool_calls=[{"name": "pay", "args": arguments, "id": id_}]),
        ToolMessage(result, tool_call_id=id_, status=status),
    ]


@pytest.mark.parametrize(
    ("later", "left"),
    [
        ([pay("d", "paid", n=1)], ["c2"]),
        ([pay("d", "paid", n=1), pay("e", "paid", n=1)], []),
        ([pay("d", "unreachable", failed=True, n=1)], ["c1", "c2"]),
        ([pay("d", "unreachable", failed=True, n=1), pay("e", "paid", n=1)], ["c2"]),
        ([pay("d", "paid", n=True), pay("e", "paid", n=1.0)], ["c1", "c2"]),
    ],
)
def test_an_equal_call_that_did_not_fail_settles_one_that_was_not_certain(
    later: list[list[Any]], left: list[str]
) -> None:
    before = [*pay("c1", transcript.NO_RESULT, n=1), *pay("c2", transcript.NO_RESULT, n=1)]
    found = messages_of(raw([*before, *(message for one in later for message in one)]))
    assert [call.id for call in found.uncertain] == left
    settled = [m for m in found.messages if m.tool_call_id in ("c1", "c2")]
    assert [m.tool_call_id for m in settled] == [id_ for id_ in ("c1", "c2") if id_ not in left]
    assert all(m.failed and m.text != transcript.NO_RESULT for m in settled)


def test_what_was_handed_over_settles_nothing_more() -> None:
    """It settled what it could in the run before."""
    handed = [*pay("c", transcript.NO_RESULT, n=1), *pay("d", "paid", n=1)]
    begins = HumanMessage("brief", additional_kwargs={"caravanserai": "handoff"})
    assert [call.id for call in messages_of(raw([*handed, begins])).uncertain] == ["c"]
    assert messages_of(raw([*handed, begins, *pay("e", "paid", n=1)])).uncertain == ()


@pytest.mark.parametrize("call", ["lookup", {"id": "c", "function": "lookup"}, None])
def test_a_call_in_another_form_is_a_loss(call: Any) -> None:
    found = messages_of([{"role": "assistant", "content": "x", "tool_calls": [call]}])
    assert found.messages == (Message("assistant", "x"),)
    assert found.losses == ("1 × a call of a tool in a form that is not known here",)
