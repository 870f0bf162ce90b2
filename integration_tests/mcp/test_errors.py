"""Wrong and hostile arguments: an error of the tool, in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from caravanserai import checkpoint
from integration_tests.mcp.talking import Client

HOSTILE = [
    *("../../etc/passwd", "/etc/passwd", "..", ".", "~", "*", "a\0b", "\x1b[2J", "%s%n", "'; --"),
    *(
        "@",
        "@-@",
        "@3",
        "@--1",
        "run@99999999999",
        "x" * 9_999,
        "\u202e",
        "-",
        "{run}",
        "run\n## x",
    ),
]


@pytest.mark.parametrize("run", HOSTILE)
def test_a_hostile_name_is_no_run(reader: Client, shared_store: Path, run: str) -> None:
    checkpoint("there", 1, store=shared_store)
    before = sorted(shared_store.parent.rglob("*"))

    for tool in ("read_note", "log", "diff", "handoff"):
        said = reader.refused(tool, run=run)
        assert said.startswith("no run "), said
        assert "Traceback" not in said
        assert len(said) < 1_500
        assert not set(said) & set("\x1b\0\u202e\n")
    assert sorted(shared_store.parent.rglob("*")) == before


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("log", {}, "log needs the argument 'run'"),
        ("log", {"run": 3}, "'run' of log is a text"),
        ("log", {"run": None}, "log needs the argument 'run'"),
        ("log", {"run": ["a"]}, "'run' of log is a text"),
        ("log", {"run": "x" * 10_001}, "'run' of log has at most 10,000 characters"),
        ("log", {"run": ""}, "'run' of log is empty"),
        ("log", {"run": "there", "limit": 0}, "'limit' of log is a number from 1 to 500"),
        ("log", {"run": "there", "limit": 10**30}, "'limit' of log is a number from 1 to 500"),
        ("log", {"run": "there", "limit": True}, "'limit' of log is a whole number"),
        ("log", {"run": "there", "limit": "7"}, "'limit' of log is a whole number"),
        ("log", {"run": "there", "before": 1.5}, "'before' of log is a whole number"),
        ("log", {"run": "there", "store": "/"}, 'log has no argument "store"'),
        ("log", {"run": "there", "client": "me"}, 'log has no argument "client"'),
        ("log", {"run": "there", "\x1b[2J": 1}, "log has no argument `\\x1b[2J`"),
        ("diff", {"run": "there", "from": "1"}, "'from' of diff is a whole number"),
        ("diff", {"run": "there", "to": 99}, "has no waypoint 99"),
        ("diff", {"run": "there", "to": 0}, "not one of them"),
        ("read_note", {"run": "there", "waypoint": 99}, "has no waypoint 99"),
        ("read_note", {"run": "there", "waypoint": -99}, "waypoints; @-99 is not one of them"),
        ("read_note", {"run": "there", "waypoint": 0}, "not one of them"),
        ("handoff", {"run": "there", "for_": "me"}, "'for_' of handoff is one of human, openai"),
        ("handoff", {"run": "there", "max_chars": 10**9}, "from 2,000 to 100,000"),
        ("handoff", {"run": "there", "waypoint": 99}, "has no waypoint 99"),
        ("answer", {"run": "there", "value": True}, "this server only reads"),
        ("clean", {"run": "there"}, 'there is no tool "clean", only list_runs, read_note, log'),
        ("_answer", {"run": "there"}, "there is no tool `_answer`"),
    ],
)
def test_what_does_not_fit_is_told(
    reader: Client, shared_store: Path, tool: str, arguments: dict[str, Any], said: str
) -> None:
    checkpoint("there", 1, store=shared_store)

    found = reader.refused(tool, arguments)

    assert said in found
    assert "Traceback" not in found
