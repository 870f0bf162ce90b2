"""A key in each part that a model's message has: none of them is a gap in the policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from caravanserai_core import checkpoint, history, load, open_run
from integration_tests.api.helpers import forget_everything
from integration_tests.secrets.planted import KEY, hits
from integration_tests.support import require

MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": f"my key is {KEY}"},
    {"role": "user", "content": [{"type": "text", "text": KEY}, {"type": "image_url", "image_url": {"url": f"https://example.com/i.png?key={KEY}"}}]},  # noqa: E501
    {"role": "assistant", "reasoning_content": f"I will call it with {KEY}.", "content": None},
    {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "fetch", "arguments": f'{{"headers": {{"Authorization": "Bearer {KEY}"}}}}'}}]},  # noqa: E501
    {"role": "tool", "tool_call_id": "c1", "content": f"HTTP/1.1 200\nx-api-key: {KEY}"},
]  # fmt: skip


@pytest.fixture(autouse=True)
def _planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_API_KEY", KEY)


def test_every_part_of_a_plain_message_is_searched(store_dir: Path) -> None:
    """Text, parts beside text, reasoning, a tool's arguments, a header: in states and entries."""
    with open_run("run") as run:
        run.entry("model", MESSAGES, say=f"asked with {KEY}")
        for number in range(len(MESSAGES)):
            run.checkpoint({"messages": MESSAGES[: number + 1]}, f"message {number}: {KEY}")

    assert hits(store_dir, [KEY]) == []
    forget_everything()
    assert load("run") == {"messages": MESSAGES}
    assert [len(point.state["messages"]) for point in history("run")] == [1, 2, 3, 4, 5]
    journal = (store_dir / "run" / "journal-1.jsonl").read_text()
    assert journal.count('"$secret"') > len(MESSAGES)


def test_every_part_of_a_message_of_langchain_is_searched(store_dir: Path) -> None:
    """The same for its objects: blocks, reasoning, artifacts, provider's metadata."""
    require("langchain_core")
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    import caravanserai.langchain  # noqa: F401 - registers the messages

    messages = [
        HumanMessage(
            [{"type": "text", "text": KEY}, {"type": "image", "url": f"https://x/?k={KEY}"}]
        ),
        AIMessage(
            [{"type": "reasoning", "reasoning": f"I use {KEY}"}],
            additional_kwargs={"reasoning_content": KEY},
            response_metadata={"headers": {"x-api-key": KEY}},
            tool_calls=[{"name": "fetch", "args": {"key": KEY}, "id": "c1"}],
        ),
        ToolMessage("done", tool_call_id="c1", artifact={"request": {"headers": [KEY]}}),
    ]

    checkpoint("run", {"messages": messages})

    assert hits(store_dir, [KEY]) == []
    forget_everything()
    found = load("run")["messages"]
    assert found == messages
    assert found[2].artifact == {"request": {"headers": [KEY]}}
