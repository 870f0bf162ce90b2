"""What the page of the adapter and the README show is what happens."""

# ruff: noqa: E402

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import ROOT, require

require("crewai")

from integration_tests.openai_agents.scripted import ScriptedOpenAI
from integration_tests.preloaded import Preloaded

PAGES = [(ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/crewai.md")]
SNIPPETS = [
    source
    for source in re.findall(r"^```python\n(.*?)^```$", "".join(PAGES), re.MULTILINE | re.DOTALL)
    if "caravanserai.crewai" in source
]

RUN = "integration_tests.crewai.snippets:run"
MAY, JUNE = "May was warm.", "June was dry."
SCRIPT: list[Any] = [
    {"if_said": "Bees eat nectar and pollen.", "say": "A page about bees and nectar."},
    {"if_said": "Research bees.", "say": "Bees fly."},
    {"if_said": "Write about bees.", "say": "A page about bees."},
    {"if_said": "Sum may up.", "say": MAY},
    {"if_said": "Sum june up.", "say": JUNE},
    {"if_said": "Write a letter.", "say": "Dear Ines."},
]
"""The last message is asked about; a later task is given what the ones before it came to."""


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    with Preloaded("integration_tests.crewai.snippets") as process:
        yield process


@pytest.mark.parametrize(
    ("source", "printed", "told"),
    [
        (source, *expected)
        for source, expected in zip(
            SNIPPETS,
            [
                ("A page about bees.\n", {"report-bees": "The crew is done: 1 task"}),
                ("A page about bees.\n", {"report-bees": "The crew is done: 2 tasks"}),
                (
                    f"ended: {MAY}\nended: {JUNE}\n{MAY}\n{JUNE}\n",
                    {"sum-may": f'The result is "{MAY}"', "sum-june": f'The result is "{JUNE}"'},
                ),
                ("letter-3 waits\nDear Ines.\n", {"letter-3": 'The result is "Dear Ines."'}),
                ("A report of 1 fact.\n", {"report-7": 'The result is "A report of 1 fact."'}),
                (
                    "A page about bees and nectar.\n",
                    {"page-bees": 'The result is "A page about bees and nectar."'},
                ),
                (
                    "Know wasps. 1 message.\n",
                    {"page-7": 'The result is "Know wasps. 1 message."'},
                ),
            ],
            strict=True,
        )
    ],
)
def test_every_snippet_runs_and_leaves_its_run(
    source: str, printed: str, told: dict[str, str], tmp_path: Path, preloaded: Preloaded
) -> None:
    """Each Python block runs as it stands, and its notes lie in the default store."""
    with ScriptedOpenAI(SCRIPT) as server:
        ended = preloaded.run(RUN, source, server.url, folder=tmp_path)
        assert ended.code == 0, ended.out
        out = tmp_path / "printed.txt"
        assert out.read_text(encoding="utf-8") == printed
        for run_id, words in told.items():
            note = tmp_path / ".caravanserai" / run_id / "latest.md"
            assert words in note.read_text(encoding="utf-8")

        # Another start is given what is recorded, and a task callback is called once for each task.
        asked = len(server.answered)
        out.unlink()
        answered = re.sub(r"^answer\(.*\n", "", source, flags=re.MULTILINE)
        again = preloaded.run(RUN, answered, server.url, folder=tmp_path)
        assert again.code == 0, again.out
        assert out.read_text(encoding="utf-8").splitlines()[-1] == printed.splitlines()[-1]
        assert "ended:" not in out.read_text(encoding="utf-8")
        assert len(server.answered) == asked
        assert server.errors == []
