"""The programs in the folders of `examples/`, and the page that lists them: what heads say happens.

Each is started as a person does, killed where it kills itself, and started again; what it did
outside is counted in a file that it writes.
"""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from caravanserai import history
from integration_tests.preloaded import Preloaded
from integration_tests.support import ROOT, require

EXAMPLES = ROOT / "examples"
PAGE = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
PROGRAMS = sorted(path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.glob("*/*.py"))

MAY_IMPORT = {
    "plain": set(),
    "langgraph": {"langchain_core", "langgraph"},
    "langchain": {"langchain_core"},
    "openai_agents": {"agents"},
    "crewai": {"crewai"},
    "claude_agent": {"claude_agent_sdk"},
}
"""By folder what it needs beside Python and Caravanserai: what the extra of that name installs."""

ANSWER = "A seat on the bus is booked, for 45 EUR."
KILLED = ["tool: fare train", "tool: fare bus", "kill -9. Start me again."]
REST = ["tool: fare bus", "tool: book bus"]
ALL = ["fare train", "fare bus", "book bus"]


def environment(folder: Path) -> dict[str, str]:
    """Return what a program finds in its environment; keys and addresses of the real APIs too."""
    return {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")]),
        "PYTHONUTF8": "1",
        "HOME": str(folder / "home"),
        "CREWAI_STORAGE_DIR": str(folder / "storage"),
        "CREWAI_TESTING": "true",
        # Refused by the operating system: whoever used the person's own would be told so.
        **dict.fromkeys(("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"), "http://127.0.0.1:9/v1"),
        **dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), "key-of-who-tries-the-example-1"),
    }


def start(folder: Path, *words: str, code: int = 0) -> list[str]:
    """Run a command of a head or the page as a person does; returns what it printed."""
    if words[0] == "python":
        command = [sys.executable, str(ROOT / words[1]), *words[2:]]
    elif words[0] == "caravanserai":
        command = [sys.executable, "-m", "caravanserai_core.cli", *words[1:]]
    else:
        command = list(words)
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment(folder)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=140,
        check=False,
    )
    assert done.returncode == code, f"{words} ended with {done.returncode}\n{done.stderr}"
    return done.stdout.splitlines()


def run(folder: Path, program: str, *words: str, code: int = 0) -> list[str]:
    return start(folder, "python", f"examples/{program}", *words, code=code)


def forked(process: Preloaded, folder: Path, program: str, *words: str, code: int = 0) -> list[str]:
    """Do what `run` does, in a process in which CrewAI, which takes seconds, is imported."""
    ended = process.run(f"{__name__}:as_main", program, *words, folder=folder)
    assert ended.code == code, ended.out + (folder / "err.txt").read_text(encoding="utf-8")
    return ended.out.splitlines()


def as_main(program: str, *words: str) -> None:
    """Be that program, in a process that was forked for it."""
    os.environ.update(environment(Path.cwd()))
    os.dup2(os.open("err.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
    path = str(EXAMPLES / program)
    sys.argv = [path, *words]
    sys.path.insert(0, str(Path(path).parent))
    runpy.run_path(path, run_name="__main__")


def killed(folder: Path, program: str) -> None:
    """Start one that kills itself in the middle of its second tool."""
    assert run(folder, program, code=-signal.SIGKILL) == KILLED
    assert outside(folder) == ALL[:1]


def outside(folder: Path) -> list[str]:
    return (folder / "outside.txt").read_text().splitlines()


def needs(folder: str) -> None:
    for module in sorted(MAY_IMPORT[folder]):
        require(module)


def handed(folder: Path, run_id: str) -> str:
    """Return what the first note of a run says of the one that it goes on from."""
    return history(run_id, store=folder / ".caravanserai")[0].note.decided[0]


# --- plain Python


def test_plain_once_and_ask(tmp_path: Path) -> None:
    """Asked, answered, killed behind the payment, asked about it: paid once."""
    program = "plain/once_and_ask.py"
    head = ast.get_docstring(ast.parse((EXAMPLES / program).read_text())) or ""
    first, second = re.findall(r"^caravanserai answer .*$", head, re.MULTILINE)

    asked = run(tmp_path, program, code=6)
    assert asked[0] == "looks up B4"
    assert "Pay 40 EUR back for order B4?" in asked[1]
    start(tmp_path, *shlex.split(first))
    assert run(tmp_path, program, code=-signal.SIGKILL)[0] == "pays 40 EUR"
    assert "Did it happen?" in run(tmp_path, program, code=6)[0]
    start(tmp_path, *shlex.split(second))
    assert run(tmp_path, program) == ["paid back 40 EUR"]
    assert outside(tmp_path) == ["looked up B4", "paid 40 EUR for B4"]


def test_plain_iterate(tmp_path: Path) -> None:
    """The letter in work comes once more, and no other; a new one is done by a later start."""
    program = "plain/iterate.py"
    letters = [f"letter-{number}.txt" for number in range(1, 7)]
    assert run(tmp_path, program, code=-signal.SIGKILL)[:3] == letters[:3]
    assert run(tmp_path, program) == [*letters[2:5], "5 letters are done."]
    (tmp_path / "inbox" / letters[5]).write_text("Dear reader 6,\n")
    assert run(tmp_path, program) == [letters[5], "6 letters are done."]
    assert sorted(path.name for path in (tmp_path / "outbox").iterdir()) == letters
    assert (tmp_path / "outbox" / letters[2]).read_text() == "DEAR READER 3,\n"


# --- killed in a tool, and gone on; or taken over by plain Python


@pytest.mark.parametrize(
    ("program", "run_id"),
    [
        ("plain/loop.py", "trip-plain"),
        ("langgraph/job.py", "trip-langgraph"),
        ("openai_agents/killed.py", "trip-openai"),
        ("claude_agent/query.py", "trip-claude"),
    ],
)
def test_killed_in_a_tool_it_goes_on_or_plain_python_takes_over(
    tmp_path: Path, program: str, run_id: str
) -> None:
    """Either way the fare that is known is not looked up again, and one seat is booked."""
    needs(program.partition("/")[0])
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    killed(here, program)
    shutil.copytree(here, there)
    assert run(here, program) == [*REST, ANSWER]
    assert outside(here) == ALL
    plain_takes_over(there, run_id)
    if program == "plain/loop.py":
        assert run(here, program) == [ANSWER], "finished, it gives what it came to"


def plain_takes_over(folder: Path, run_id: str) -> None:
    printed = run(folder, "plain/takeover.py", run_id)
    assert printed[0].startswith(f"goes on from {run_id}@")
    assert printed[1:] == [*REST, ANSWER]
    assert outside(folder) == ALL
    assert f"goes on from run `{run_id}`" in handed(folder, f"{run_id}-plain")


def test_crewai(tmp_path: Path) -> None:
    """The same for a crew and a flow; and a crew goes on with what plain Python began.

    One test, since each process that imports CrewAI takes seconds to begin.
    """
    needs("crewai")
    here, there, flow, taken = (tmp_path / name for name in ("here", "there", "flow", "taken"))
    for folder in (here, flow, taken):
        folder.mkdir()
    killed(here, "crewai/crew.py")
    shutil.copytree(here, there)
    plain_takes_over(there, "trip-crewai")
    killed(taken, "plain/loop.py")

    with Preloaded("integration_tests.crewai.warmed", __name__) as process:
        assert forked(process, here, "crewai/crew.py") == [*REST, ANSWER]
        assert forked(process, taken, "crewai/takeover.py", "trip-plain") == [*REST, ANSWER]
        assert forked(process, flow, "crewai/flow.py", code=-signal.SIGKILL) == KILLED
        printed = forked(process, flow, "crewai/flow.py")
        assert printed[-3:] == [*REST, "a seat on the bus is booked"]
    assert [outside(folder) for folder in (here, taken, flow)] == [ALL] * 3
    assert "goes on from run `trip-plain`" in handed(taken, "trip-plain-crewai")


def test_claude_agent_approval(tmp_path: Path) -> None:
    """Nothing is booked until a person says so, in whatever process."""
    needs("claude_agent")
    program = "claude_agent/approval.py"
    waits = "waits for you: mcp__trip__book({'way': 'bus'})"
    assert run(tmp_path, program) == [*KILLED[:2], waits]
    assert outside(tmp_path) == ALL[:2]
    start(tmp_path, "caravanserai", "answer", "trip-approved", "--approve")
    assert run(tmp_path, program) == ["tool: book bus", ANSWER]
    assert outside(tmp_path) == ALL


# --- begun in plain Python, taken over by a framework


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("langgraph", "langgraph"),
        ("langchain", "langchain"),
        ("claude_agent", "claude"),
    ],
)
def test_it_takes_over_what_plain_python_began(tmp_path: Path, folder: str, name: str) -> None:
    """What is known is not looked up again; what was cut off is; one seat is booked."""
    needs(folder)
    killed(tmp_path, "plain/loop.py")
    assert run(tmp_path, f"{folder}/takeover.py", "trip-plain") == [*REST, ANSWER]
    assert outside(tmp_path) == ALL
    assert "goes on from run `trip-plain`" in handed(tmp_path, f"trip-plain-{name}")


def shown(name: str) -> list[tuple[list[str], list[str]]]:
    """Return the commands of a transcript on the page, each with what it prints there."""
    text = PAGE.split(f"<!-- transcript: {name} -->\n```\n")[1].split("```")[0]
    found = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE)
    return [(shlex.split(command, comments=True), out.splitlines()) for command, out in found]


def test_the_transcript_of_a_takeover_is_real(tmp_path: Path) -> None:
    """What the page shows is what its commands print."""
    needs("openai_agents")
    steps = shown("takeover")
    assert ["python", "examples/openai_agents/takeover.py", "trip-plain"] in [c for c, _ in steps]
    for command, expected in steps:
        dies = "kill -9" in "".join(expected)
        printed = start(tmp_path, *command, code=-signal.SIGKILL if dies else 0)
        assert [_versionless(line) for line in printed] == [_versionless(e) for e in expected]
    assert outside(tmp_path) == ALL


def _versionless(line: str) -> str:
    return re.sub(r"\d+\.\d+\.\d+", "VERSION", line.rstrip())


# --- chats: every start is a turn


@pytest.mark.parametrize(
    "program",
    [
        "langgraph/chat.py",
        "langchain/history.py",
        "openai_agents/session.py",
        "claude_agent/chat.py",
    ],
)
def test_a_chat_knows_what_was_said_in_an_earlier_start(tmp_path: Path, program: str) -> None:
    needs(program.partition("/")[0])
    assert run(tmp_path, program, "The train costs 62 EUR, the bus costs 45.") == ["Noted."]
    assert run(tmp_path, program, "Which one is cheaper?") == ["The bus."]


# --- what is written about them


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_says_how_it_is_run_and_needs_its_own_framework_only(program: str) -> None:
    """Whoever has that framework can run it; the page names it, with its command."""
    folder = program.partition("/")[0]
    tree = ast.parse((EXAMPLES / program).read_text(encoding="utf-8"))
    head = ast.get_docstring(tree) or ""
    assert f"python examples/{program}" in head
    assert f"../examples/{program}" in PAGE
    assert f"`python examples/{program}" in PAGE
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    for node in ast.walk(tree):
        modules += [name.name for name in node.names] if isinstance(node, ast.Import) else []
    found = {module.partition(".")[0] for module in modules}
    assert found - sys.stdlib_module_names <= MAY_IMPORT[folder] | {"caravanserai", "trip"}


def test_what_they_share_needs_python_only() -> None:
    for name in ("trip.py", "scripted_openai.py", "scripted_anthropic.py"):
        imports = re.findall(
            r"^\s*(?:from|import) (\w+)", (EXAMPLES / name).read_text(), re.MULTILINE
        )
        assert set(imports) - sys.stdlib_module_names <= {"scripted_openai", "scripted_anthropic"}


def test_the_relay_prints_what_the_page_shows() -> None:
    """`test_relay.py` runs it, and expects these lines."""
    ((command, lines),) = shown("relay")
    assert command == ["python", "examples/relay.py"]
    source = Path(__file__).with_name("test_relay.py").read_text(encoding="utf-8")
    place = 0
    for line in filter(None, lines):
        place = source.index(json.dumps(line), place) + 1
