"""What the page of the adapter and the README show is what happens."""

# ruff: noqa: E402

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from integration_tests.support import ROOT, require

require("claude_agent_sdk")

from claude_agent_sdk import ClaudeAgentOptions

from caravanserai import UsageError, list_runs, load
from caravanserai.claude_agent import resumable_query
from caravanserai_core import conversation
from integration_tests.claude_agent.scripted import ScriptedAnthropic
from integration_tests.preloaded import Preloaded

PAGE = (ROOT / "docs" / "claude_agent.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
SNIPPETS = [
    source
    for source in re.findall(r"^```python\n(.*?)^```$", README + PAGE, re.MULTILINE | re.DOTALL)
    if "caravanserai.claude_agent" in source
]

RUN = "integration_tests.claude_agent.snippets:run"


class Shown(NamedTuple):
    """What a block does.

    Attributes:
        printed: its lines.
        runs: those that it leaves, and what stood at the end of each.
        again: the lines of a second start.
        asks: whether that asks the model.
    """

    printed: list[str]
    runs: dict[str, str]
    again: list[str]
    asks: bool = False


SUMMARY, CRATES, BARRELS, BOXES = "It is written.", "42 crates.", "7 barrels.", "9 boxes."
PAID, TWO, THREE = "Order A17 is paid back.", "Two cranes, one pier.", "Three cranes, one pier."
PILES = "Fifteen metres."

EXPECTED = [
    Shown([PAID], {"refund-a16": PAID}, [PAID]),
    Shown([SUMMARY], {"summary": SUMMARY}, [SUMMARY]),
    Shown([CRATES, BARRELS], {"chat-7": BARRELS}, [CRATES, BARRELS]),
    Shown([BOXES, "12 lids."], {"talk-8": "12 lids."}, [BOXES, "12 lids."], asks=True),
    Shown(["Port A."], {"…": "Port A."}, ["Port A."], asks=True),
    Shown(["waits", "paid back A17", PAID], {"refund-a17": PAID}, [PAID, PAID]),
    Shown([TWO, THREE], {"harbour": TWO, "harbour-3": THREE}, [TWO, THREE]),
    Shown([PILES], {"pier": PILES, "survey": ""}, [PILES]),
]


def script(folder: Path) -> list[Any]:
    """Return what the model says; rules of a later message of one conversation stand first."""
    written = {"file_path": str(folder / "summary.txt"), "content": "All is well.\n"}
    return [
        {"if_said": "Refund order A16", "say": PAID},
        {"if_said": "Write a summary", "call": [["Write", written]]},
        {"if_said": "Write a summary", "say": SUMMARY},
        {"if_said": "And the barrels?", "say": BARRELS},
        {"if_said": "Count the crates.", "say": CRATES},
        {"if_said": "And the lids?", "say": "12 lids."},
        {"if_said": "Count the boxes.", "say": BOXES},
        {"if_said": "Name the harbour.", "say": "Port A."},
        {"if_said": "Refund order A17", "call": [["mcp__shop__refund", {"order": "A17"}]]},
        {"if_said": "Refund order A17", "say": PAID},
        {"if_said": "assistant:\n  Nine metres.", "say": PILES},
        {"if_said": "three cranes", "say": THREE},
        {"if_said": "two cranes", "say": TWO},
    ]


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    with Preloaded("integration_tests.claude_agent.snippets") as process:
        yield process


@pytest.mark.parametrize(("source", "shown"), [*zip(SNIPPETS, EXPECTED, strict=True)])
def test_every_snippet_runs_and_leaves_its_run(
    source: str, shown: Shown, tmp_path: Path, preloaded: Preloaded
) -> None:
    """Each Python block runs as it stands, and its runs lie in the default store."""
    out = tmp_path / "printed.txt"
    with ScriptedAnthropic(script(tmp_path)) as server:

        def start(block: str) -> list[str]:
            out.unlink(missing_ok=True)
            ended = preloaded.run(RUN, block, server.environment, folder=tmp_path, kill_after=100)
            assert ended.code == 0, ended.out
            return out.read_text(encoding="utf-8").splitlines()

        assert start(source) == shown.printed
        store = tmp_path / ".caravanserai"
        found = {run.run_id: load(run.run_id, store=store) for run in list_runs(store=store)}
        said = [state.get("said", "") for _, state in sorted(found.items())]
        assert said == [text for _, text in sorted(shown.runs.items())]
        if "…" not in shown.runs:
            assert set(found) == set(shown.runs)
        if "Write" in source:
            assert (tmp_path / "summary.txt").read_text() == "All is well.\n"
            messages = conversation.read("summary", store=store).to_openai()
            assert [one["role"] for one in messages] == ["user", "assistant", "tool", "assistant"]

        asked = len(server.lines)
        answered = re.sub(r"^answer\(.*\n", "", source, flags=re.MULTILINE)
        if not shown.asks:
            assert start(answered) == shown.again
            assert len(server.lines) == asked, "what is recorded is not asked for again"


def test_options_that_the_page_calls_refused_are() -> None:
    """Each of them, with the reason; and there is no other one."""
    limits = PAGE.partition("## Limits")[2].partition("* `resumable_query`")[0]
    named = {name for name in re.findall(r"`(\w+)`", limits) if name != "extra_args"}
    assert len(named) == 8
    for name in named:
        given = ClaudeAgentOptions(**{name: True})  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=f"{name}=.* cannot be combined with a run: "):
            resumable_query(prompt="x", run_id="x", options=given).__anext__().send(None)


def test_what_claude_is_told_is_shown_as_it_is(tmp_path: Path) -> None:
    """The page's message has the sentences of the adapter's own."""
    from caravanserai.claude_agent import _query, _resuming

    block = PAGE.partition("## What Claude is told")[2].partition("```\n")[2].partition("```")[0]
    shown = " ".join(block.split())
    for said in (_resuming._BEGIN, _resuming._QUOTED, _query._GO_ON):
        assert " ".join(said.split()) in shown
