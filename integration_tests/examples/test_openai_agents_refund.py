"""`examples/openai_agents_refund.py`, as its head tells it: killed, gone on, asked, answered."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from integration_tests.support import ROOT, require

require("agents")

EXAMPLE = ROOT / "examples" / "openai_agents_refund.py"


def run(folder: Path, *words: str) -> tuple[int, list[str]]:
    """Start a program as a person does; returns its exit code and what it printed."""
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 6, -signal.SIGKILL), done.stderr
    return done.returncode, done.stdout.splitlines()


def answer(folder: Path, *words: str) -> None:
    code, _ = run(folder, "-m", "caravanserai_core.cli", "answer", "refund-a17", *words)
    assert code == 0


def test_killed_once_and_approved(tmp_path: Path) -> None:
    """Nothing is asked or done twice but the tool that was killed in its middle."""
    code, first = run(tmp_path, str(EXAMPLE))
    assert code == -signal.SIGKILL
    assert first == [
        "model asked, with 0 results of tools",
        "tool: lookup_order A17",
        "model asked, with 1 results of tools",
        "tool: shipping_quote A17",
        "kill -9, in the middle of a tool. Start me again.",
    ]
    code, second = run(tmp_path, str(EXAMPLE))
    assert code == 6
    assert second[:-1] == [
        "tool: shipping_quote A17",
        "model asked, with 2 results of tools",
        "model asked, with 3 results of tools",
        'refund agent wants issue_refund({"order_id": "A17", "amount": 40})',
    ]
    assert run(tmp_path, str(EXAMPLE))[1] == second[-2:], "asked again it only asks again"
    answer(tmp_path, "--approve")
    code, third = run(tmp_path, str(EXAMPLE))
    last = "Order A17: refunded 40 EUR."
    assert (code, third) == (
        0,
        ["tool: issue_refund A17, 40 EUR", "model asked, with 4 results of tools", last],
    )
    assert run(tmp_path, str(EXAMPLE)) == (0, [last])
    log = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    assert [line["n"] for line in log if "decided" in line] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("words", [["--reject", "--reason", "ask the shop first"]])
def test_without_the_kill_and_rejected(tmp_path: Path, words: list[str]) -> None:
    assert run(tmp_path, str(EXAMPLE), "--calm")[0] == 6
    answer(tmp_path, *words)
    assert run(tmp_path, str(EXAMPLE))[1][-1] == "Order A17: ask the shop first."
