"""What the page of the adapter and the README show is what happens."""

# ruff: noqa: E402

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import ROOT, require

require("agents")

from integration_tests.openai_agents.scripted import ScriptedOpenAI


def _snippets(*pages: str) -> list[str]:
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    found = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [source for source in found if "caravanserai.openai_agents" in source]


SNIPPETS = _snippets("README.md", "docs/openai_agents.md")

SCRIPT: list[Any] = [
    {"call": [["lookup_order", {"order_id": "A17"}]]},
    {"call": [["issue_refund", {"order_id": "A17", "amount": 40}]]},
    {"if_tool": "lookup_order", "say": "It was delivered."},
    {"if_tool": "issue_refund", "say": "Done: {last}."},
    {"say": "Hello yourself."},
]


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """The SDK's own client asks the scripted model, by the variables that it knows."""
    with ScriptedOpenAI(SCRIPT) as server:
        yield os.environ | {
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "none",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
        }
        assert server.errors == []


@pytest.mark.parametrize(
    ("source", "printed", "run_id", "told"),
    [
        (source, *expected)
        for source, expected in zip(
            SNIPPETS,
            [
                ("It was delivered.\n", "order-a17", 'triage agent answered "It was delivered."'),
                ("It was delivered.\n", "order-a17", 'triage agent answered "It was delivered."'),
                (
                    "['issue_refund']\nDone: refunded 40 EUR.\n",
                    "refund-a17",
                    'refund agent answered "Done: refunded 40 EUR."',
                ),
                ("Hello yourself.\n", "hello-1", 'assistant answered "Hello yourself."'),
                ("Hello yourself. 3\n", "talk-7", "Hello yourself."),
                ("Hello yourself.\n", "look-3", "not resumed"),
                ("Hello yourself.\n", "ticket-9b", "Answer the customer."),
            ],
            strict=True,
        )
    ],
)
def test_every_snippet_runs_and_leaves_its_run(
    source: str,
    printed: str,
    run_id: str,
    told: str,
    tmp_path: Path,
    environment: dict[str, str],
) -> None:
    """Each Python block runs as it stands, and its notes lie in the default store."""
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == printed
    note = (tmp_path / ".caravanserai" / run_id / "latest.md").read_text(encoding="utf-8")
    assert told in note
