"""The scripted model refuses what OpenAI refuses, in its words, and counts what it answered."""

# ruff: noqa: E402

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import ROOT, require

require("openai")

from openai import BadRequestError, OpenAI, RateLimitError

from integration_tests.openai_agents.scripted import REFUND, Asked, Refused, ScriptedOpenAI

USER = {"role": "user", "content": "Refund order A17 please."}
TOOL: Any = {"type": "function", "name": "lookup_order", "parameters": {}, "strict": False}
CHAT_TOOL: Any = {"type": "function", "function": {"name": "lookup_order", "parameters": {}}}


def client(server: Any) -> OpenAI:
    return OpenAI(base_url=server.url, api_key="test", max_retries=0)


def refusal(server: Any, items: list[Any]) -> str:
    with pytest.raises(BadRequestError) as refused, client(server) as openai:
        openai.responses.create(model="m", input=items, tools=[TOOL])
    return str(refused.value)


def call(name: str = "0007", call_id: str = "call_1") -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{name}_0",
        "call_id": call_id,
        "name": "lookup_order",
        "arguments": "{}",
    }


def reasoning(name: str = "0007") -> dict[str, Any]:
    return {"type": "reasoning", "id": f"rs_{name}", "summary": []}


OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "x"}


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([USER, reasoning(), call()], "No tool output found for function call call_1."),
        ([USER, OUTPUT], "No tool call found for function call output with call_id call_1."),
        ([USER, OUTPUT, reasoning(), call()], "No tool call found for function call output"),
        ([USER, reasoning(), USER], "'reasoning' was provided without its required following"),
        ([USER, reasoning()], "'reasoning' was provided without its required following"),
        ([USER, call(), OUTPUT], "without its required 'reasoning' item: 'rs_0007'"),
    ],
)
def test_responses_refuses_orphans(items: list[Any], words: str) -> None:
    """A call without a result, a result without a call, reasoning that is alone or missing."""
    with ScriptedOpenAI() as server:
        said = refusal(server, items)
        assert words in said
        assert len(server.errors) == 1
        assert server.answered == []


def test_responses_refuses_an_item_that_comes_twice() -> None:
    whole = [reasoning(), call(), OUTPUT]
    with ScriptedOpenAI() as server:
        assert "Duplicate item found with id" in refusal(server, [USER, *whole, *whole])


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([USER, {"role": "tool", "tool_call_id": "c", "content": "x"}], "preceeding message"),
        (
            [
                USER,
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "c",
                            "type": "function",
                            "function": {"name": "lookup_order", "arguments": "{}"},
                        }
                    ],
                },
                USER,
            ],
            "did not have response messages: c",
        ),
    ],
)
def test_chat_refuses_orphans(messages: list[Any], words: str) -> None:
    with (
        ScriptedOpenAI() as server,
        client(server) as openai,
        pytest.raises(BadRequestError, match=words),
    ):
        openai.chat.completions.create(model="m", messages=messages, tools=[CHAT_TOOL])


def test_a_stream_holds_what_the_whole_answer_holds() -> None:
    """In both APIs: deltas add up, and the real client's own accumulation agrees."""
    with ScriptedOpenAI() as server, client(server) as openai:
        given: Any = {"model": "m", "input": [USER], "tools": [TOOL]}
        events = list(openai.responses.create(**given, stream=True))
        assert events[-1].type == "response.completed"
        deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
        (found,) = [item for item in events[-1].response.output if item.type == "function_call"]
        assert json.loads("".join(deltas)) == json.loads(found.arguments) == {"order_id": "A17"}
        assert len(deltas) > 1
        talk: Any = {"model": "m", "messages": [USER], "tools": [CHAT_TOOL]}
        chunks = list(openai.chat.completions.create(**talk, stream=True))
        pieces = [c.choices[0].delta.tool_calls for c in chunks if c.choices]
        text = "".join(p[0].function.arguments or "" for p in pieces if p and p[0].function)
        assert json.loads(text) == {"order_id": "A17"}
        assert len(server.answered) == 2


def test_each_answer_has_new_ids_unless_it_is_told_otherwise() -> None:
    def ids(reuse: bool) -> list[str]:
        with ScriptedOpenAI(reuse_ids=reuse) as server, client(server) as openai:
            given: Any = {"model": "m", "input": [USER], "tools": [TOOL]}
            return [openai.responses.create(**given).output[-1].call_id for _ in range(2)]

    assert ids(reuse=False) == ["call_0001_0", "call_0002_0"]
    assert ids(reuse=True) == ["call_0", "call_0"]


def test_a_conversation_that_the_server_keeps() -> None:
    """`previous_response_id` stands for what came before, and an unknown one is refused."""
    with ScriptedOpenAI() as server, client(server) as openai:
        first = openai.responses.create(model="m", input=[USER], tools=[TOOL])
        output: Any = {**OUTPUT, "call_id": first.output[-1].call_id}
        with pytest.raises(BadRequestError, match="not found"):
            openai.responses.create(model="m", input=[output], previous_response_id="resp_9")
        second = openai.responses.create(model="m", input=[output], previous_response_id=first.id)
        assert second.output_text == "There is nobody who can refund order A17."


def test_a_client_that_is_gone_was_not_answered() -> None:
    """Cut off between two events of a stream that is held: asked, and not answered."""
    with ScriptedOpenAI(hold=(1, 4)) as server, client(server) as openai:
        stream = openai.responses.create(model="m", input=[USER], tools=[TOOL], stream=True)
        for _ in range(4):
            next(stream)
        stream.close()
        deadline = time.monotonic() + 10
        while len(server.lines) < 2 and time.monotonic() < deadline:
            time.sleep(0.005)
        assert [line.get("answered") for line in server.lines] == [None, False]
        assert (len(server.asked), server.answered) == (1, [])


def test_a_function_may_decide() -> None:
    def decide(asked: Any) -> Any:
        assert asked == Asked("Be short.", USER["content"], [], [], ["lookup_order"])
        raise Refused("busy", 429)

    with (
        ScriptedOpenAI(decide) as server,
        client(server) as openai,
        pytest.raises(RateLimitError, match="busy"),
    ):
        openai.responses.create(model="m", instructions="Be short.", input=[USER], tools=[TOOL])


def test_as_a_process_of_its_own(tmp_path: Path) -> None:
    """It says where it listens, reads a script, and its log goes on after a restart."""
    program = ROOT / "examples" / "scripted_openai.py"
    port, log, script = (tmp_path / name for name in ("port", "log.jsonl", "script.json"))
    script.write_text(json.dumps([{"say": "Hello."}]))
    for number in (1, 2):
        port.unlink(missing_ok=True)
        process = subprocess.Popen([sys.executable, str(program), str(port), str(log), str(script)])
        try:
            deadline = time.monotonic() + 20
            while not port.exists():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            url = f"http://127.0.0.1:{port.read_text()}/v1"
            with OpenAI(base_url=url, api_key="test", max_retries=0) as openai:
                answer = openai.responses.create(model="m", input="Hi.")
            assert (answer.id, answer.output_text) == (f"resp_000{number}", "Hello.")
        finally:
            process.kill()
            process.wait(20)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line.get("decided", line.get("answered")) for line in lines] == ["Hello.", True] * 2


def test_the_refund_script_needs_five_answers() -> None:
    """It is what the tests and the example rest on: four calls or pairs, and a text."""
    assert [len(rule.get("call", ())) for rule in REFUND] == [1, 0, 1, 2, 1, 0]
