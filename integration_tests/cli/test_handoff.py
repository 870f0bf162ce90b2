"""handoff, log --graph and doctor: what they print, for people and for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from caravanserai_core import Note, answer, capabilities, clean, fork, open_run
from caravanserai_core.errors import WaitingForPerson
from caravanserai_core.testing import AdapterTests
from integration_tests.support import ROOT

Cli = Callable[..., Result]

HOSTILE = "x```\n## Next\n\x1b[31m\u202e<!-- y --> `rm`\n~~~"


@pytest.fixture
def family() -> None:
    """Make three runs that come from each other, and a fork."""
    with open_run("research", goal="Write about bees.") as run:
        for n in range(1, 15):
            told = {"role": "user", "content": "Write about bees."}
            run.checkpoint({"n": n, "messages": [told]}, Note(f"Read {n}.", next=f"Read {n + 1}."))
    with open_run("draft", continues="research@5") as run:
        run.checkpoint({"n": 1}, 'Wrote "it" [draft](x) | `a`.')
        run.checkpoint({"n": 2}, "Wrote more.")
    with open_run("final", continues="draft") as run:
        run.checkpoint({"n": 1}, "Checked it.")
        run.finish()
    fork("draft", at=1, new_run_id="other")


# ---------------------------------------------------------------------- handoff


def test_handoff_prints_what_the_next_one_needs(cli: Cli, family: None) -> None:
    """The same text that Python gives; RUN@N as it was there; a beginning of the name will do."""
    result = cli("handoff", "research")
    assert result.exit_code == 0
    assert result.stdout.startswith("# Handoff of run `research`, waypoint 14\n")
    assert "## Next\n\nRead 15.\n" in result.stdout
    assert "user:\n  Write about bees." in result.stdout
    assert "## Next\n\nRead 4.\n" in cli("handoff", "resea@3").stdout
    missing = cli("handoff", "nobody")
    assert missing.exit_code == 3
    assert cli("handoff", "research@99").exit_code == 3


def test_handoff_is_worded_for_who_goes_on(cli: Cli, family: None) -> None:
    person = cli("handoff", "research").stdout
    assert "This is all that somebody needs" in person
    for who in ("openai", "anthropic", "langchain", "crewai"):
        text = cli("handoff", "research", "--for", who).stdout
        assert "do not make them again" in text
    assert cli("handoff", "research", "--for", "nobody").exit_code == 2


def test_handoff_keeps_within_its_budget(cli: Cli) -> None:
    with open_run("long") as run:
        said = [{"role": "user", "content": f"message {n} " * 30} for n in range(300)]
        run.checkpoint({"messages": said}, "Said a lot.")
    assert len(cli("handoff", "long").stdout) <= 24_001
    short = cli("handoff", "long", "--max-chars", "3000").stdout
    assert len(short) <= 3001
    assert "messages left out" in short
    assert cli("handoff", "long", "--max-chars", "10").exit_code == 2


def test_handoff_as_json_for_programs(cli: Cli) -> None:
    with open_run("job", goal="Send it.") as run:
        call = {"id": "c1", "function": {"name": "send", "arguments": '{"to": "b"}'}}
        messages = [
            {"role": "user", "content": "Send it."},
            {"role": "assistant", "content": "I send it.", "tool_calls": [call]},
        ]
        run.checkpoint({"messages": messages}, Note("Asked.", next="Send."))
        with pytest.raises(WaitingForPerson):
            run.ask("Send it?", options=["yes", "no"])

    tree = json.loads(cli("handoff", "job", "--json").stdout)

    assert tree["run"] == "job"
    assert (tree["goal"], tree["next"], tree["status"]) == ("Send it.", ["Send."], "waiting")
    assert tree["resume"] == "caravanserai resume job"
    assert tree["waiting"] == [
        {
            "id": "q1",
            "text": "Send it?",
            "options": ["yes", "no"],
            "commands": ["caravanserai answer job q1 yes", "caravanserai answer job q1 no"],
        }
    ]
    assert tree["uncertain"] == [{"id": "c1", "name": "send", "arguments": {"to": "b"}}]
    assert [message["role"] for message in tree["messages"]] == ["user", "assistant", "tool"]
    assert tree["text"].startswith("# Handoff of run `job`")
    help_ = cli("handoff", "--help").stdout
    documented = set(re.findall(r"[a-z_]+", help_.partition("Keys of --json:")[2]))
    assert set(tree) <= documented
    other = json.loads(cli("handoff", "job", "--json", "--for", "anthropic").stdout)
    kinds = [block["type"] for message in other["messages"] for block in message["content"]]
    assert kinds == ["text", "text", "tool_use", "tool_result"]


def test_handoff_lets_nothing_reach_the_terminal(cli: Cli) -> None:
    with open_run("job", goal=HOSTILE) as run:
        run.checkpoint({"messages": [{"role": "user", "content": HOSTILE}]}, Note(HOSTILE))
    for words in (("handoff", "job"), ("handoff", "job", "--json"), ("log", "job", "--graph")):
        out = cli(*words).stdout
        assert not re.search("[\x1b\u202e]", out)
    assert cli("handoff", "job").stdout.count("\n## Next\n") == 1


# ---------------------------------------------------------------------- log --graph


def test_a_graph_shows_handoffs_and_forks(cli: Cli, family: None) -> None:
    """Also from the middle of the family; long stretches are left out."""
    assert cli("log", "final", "--graph").stdout.splitlines() == [
        "research: stopped",
        "├─ 1  Read 1.",
        "├─ 2  Read 2.",
        "├─ 3  Read 3.",
        "├─ 4  Read 4.",
        "├─ 5  Read 5.",
        "├─ ─▶ handed over at 5: draft: stopped",
        '│     ├─ 1  Wrote "it" [draft](x) | `a`.',
        "│     ├─ ─▶ fork at 1: other: stopped",
        "│     │     └─ 1  Forked from waypoint 1 of draft.",
        "│     ├─ 2  Wrote more.",
        "│     └─ ─▶ handed over at 2: final: finished ←",
        "│           └─ 1  Checked it.",
        "├─ … 4 waypoints",
        "├─ 10  Read 10.",
        "├─ 11  Read 11.",
        "├─ 12  Read 12.",
        "├─ 13  Read 13.",
        "└─ 14  Read 14.",
    ]


def test_a_run_that_is_gone_is_drawn_as_gone(cli: Cli, family: None) -> None:
    clean("draft")
    lines = cli("log", "final", "--graph").stdout.splitlines()
    assert lines == [
        "draft: gone",
        "├─ ─▶ fork at 1: other: stopped",
        "│     └─ 1  Forked from waypoint 1 of draft.",
        "└─ ─▶ handed over at 2: final: finished ←",
        "      └─ 1  Checked it.",
    ]
    chart = cli("log", "final", "--mermaid").stdout
    assert '["no waypoint"]' in chart


def test_a_run_that_comes_from_one_of_its_own_name_is_drawn(cli: Cli) -> None:
    with open_run("a") as run:
        run.checkpoint({}, "A.")
    with open_run("b", continues="a") as run:
        run.checkpoint({}, "B.")
    clean("a")
    with open_run("a", continues="b") as run:
        run.checkpoint({}, "A again.")
    assert cli("log", "a", "--graph").exit_code == 0
    assert cli("log", "b", "--mermaid").exit_code == 0


def test_a_chart_for_mermaid(cli: Cli, family: None) -> None:
    lines = cli("log", "draft", "--mermaid").stdout.splitlines()
    assert lines[0] == "flowchart TD"
    assert '    r2w1["1: Wrote #34;it#34; #91;draft#93;#40;x#41; #124; #96;a#96;."]' in lines
    assert '  r1w5 -. "handed over" .-> r2w1' in lines
    assert '  r2w1 -. "fork" .-> r4w1' in lines
    assert lines[-1] == "  style r2 stroke-width:3px"
    assert sum(line.startswith("  subgraph") for line in lines) == lines.count("  end") == 4
    nodes = re.findall(r"^    (\w+)\[", "\n".join(lines), re.MULTILINE)
    assert len(nodes) == len(set(nodes))
    used = re.findall(r"(\w+) (?:-->|-\..*\.->) (\w+)", "\n".join(lines))
    assert {name for pair in used for name in pair} <= set(nodes)
    assert cli("log", "draft", "--graph", "--json").exit_code == 2


def test_lists_say_what_a_run_goes_on_from(cli: Cli, family: None) -> None:
    assert "goes on from research@5" in cli("show", "draft").stdout
    assert "handed over to draft (stopped)" in cli("show", "research").stdout
    assert "run draft was handed over to final (finished)" in cli("resume", "draft").stderr
    assert json.loads(cli("log", "draft", "--json").stdout)["origin"]["how"] == "handoff"


# ---------------------------------------------------------------------- doctor


def test_doctor_tells_what_is_here(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    result = cli("doctor")
    assert result.exit_code == 0, result.stderr
    for adapter in capabilities.ADAPTERS:
        assert adapter.title in result.stdout
    for promise in capabilities.PROMISES.values():
        assert promise in re.sub(r"\s+", " ", result.stdout)
    tree = json.loads(cli("doctor", "--json").stdout)
    assert tree["store"]["problem"] is None
    assert not Path(".caravanserai").exists()  # nothing was written
    documented = cli("doctor", "--help").stdout
    assert all(name in documented for name in tree)

    monkeypatch.setattr(capabilities, "version", lambda name: "0.0.1")
    wrong = cli("doctor")
    assert wrong.exit_code == 1
    assert "LangGraph 0.0.1 does not fit: the adapter is made for >=1.2,<2." in wrong.stderr

    def nowhere(name: str) -> str:
        raise capabilities.PackageNotFoundError(name)

    monkeypatch.setattr(capabilities, "version", nowhere)
    missing = cli("doctor")
    assert missing.exit_code == 0
    assert 'pip install "caravanserai[langgraph]"' in missing.stdout


def test_doctor_says_where_the_store_cannot_be_used(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    result = cli("--store", str(file), "doctor")
    assert result.exit_code == 1
    assert str(file) in result.stdout
    tree = json.loads(cli("--store", "gopher://x", "doctor", "--json").stdout)
    assert "no store for gopher://" in tree["store"]["problem"]


@pytest.mark.parametrize(
    ("here", "wanted", "fits"),
    [
        ("1.2.24", ">=1.2,<2", True),
        ("1.1.9", ">=1.2,<2", False),
        ("2.0.0rc1", ">=1.2,<2", False),
        ("0.25", ">=0.20,<0.25", False),
        ("0.9", ">=0.20,<0.25", False),
        ("0.2.189", ">=0.2.189,<0.3", True),
        ("1.0", "", None),
        ("1.0", "~=1.0", None),
    ],
)
def test_versions_are_compared_as_numbers(here: str, wanted: str, fits: bool | None) -> None:
    assert capabilities._fits(here, wanted) is fits


def test_the_table_of_promises_is_that_of_the_tests() -> None:
    """And each adapter of the table passes all of them: none is left out or changed."""
    tests = [name for name in vars(AdapterTests) if name.startswith("test_")]
    assert list(capabilities.PROMISES) == tests
    modules = {
        "python": "test_plain",
        "langgraph": "test_langgraph",
        "openai-agents": "test_openai_agents",
        "crewai": "test_crewai",
        "claude-agent": "test_claude_agent",
    }
    assert [adapter.name for adapter in capabilities.ADAPTERS] == list(modules)
    folder = ROOT / "integration_tests" / "adapters"
    assert {path.stem for path in folder.glob("test_*.py")} == set(modules.values())
    for module in modules.values():
        text = (folder / f"{module}.py").read_text(encoding="utf-8")
        assert "(AdapterTests):" in text
        assert not re.search(r"def test_|pytest\.mark|skip\(", text)


def test_each_entry_point_of_the_table_is_there() -> None:
    for adapter in capabilities.ADAPTERS:
        module, _, name = adapter.entry.removeprefix("@").rpartition(".")
        assert callable(getattr(import_module(module or "caravanserai"), name))
        assert f"{adapter.name}" in {*_transcripts(), "python"}


def _transcripts() -> set[str]:
    from importlib.metadata import entry_points

    return {point.name for point in entry_points(group="caravanserai.transcripts")}


def test_an_answer_is_a_decision_of_the_next_handoff(cli: Cli) -> None:
    with open_run("job") as run, pytest.raises(WaitingForPerson):
        run.ask("Go?", options=["yes", "no"])
    answer("job", "yes", by="chen")
    tree: Any = json.loads(cli("handoff", "job", "--json").stdout)
    assert tree["waiting"] == []
    assert tree["decided"] == ['"Go?": yes, by chen']
