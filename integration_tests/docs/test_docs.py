"""What the documents show is what happens."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from integration_tests.support import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
GUARANTEES = "".join(
    page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "guarantees").glob("*.md"))
)

PAGES = "".join(
    (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("handoff", "moving")
)

# What a snippet takes from the reader's own program.
READERS_OWN = """
from pathlib import Path
def all_files(): return [Path("b.txt"), Path("a.txt")]
def convert(path): print("converted", path)
messages = [{"role": "user", "content": "hello"}]
def look_up(order): print("looked up", order); return 40
def pay_back(order, amount): print("paid back", amount)
"""


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run_python(source: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a snippet as a script of its own."""
    (folder / "snippet.py").write_text(READERS_OWN + source, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")])}
    return subprocess.run(
        [sys.executable, "snippet.py"], cwd=folder, env=env, capture_output=True, text=True
    )


# Those that ask a model run beside a scripted one: `test_docs.py` of the adapters.
SNIPPETS = [
    source
    for source in blocks(README + GUIDE + GUARANTEES + PAGES, "python")
    if not re.search(r"caravanserai\.(openai_agents|crewai|claude_agent)", source)
]


@pytest.mark.parametrize("source", SNIPPETS)
def test_every_snippet_runs(source: str, tmp_path: Path) -> None:
    """Each Python block of the README, the guide and the guarantees runs as it stands."""
    if "langgraph" in source:
        pytest.importorskip("langgraph")
    for number in range(3 if "at=3" in source else 0):
        run_python(f'from caravanserai import save; save("my-run", {number})', tmp_path)

    done = run_python(source, tmp_path)

    if 'ask(f"Refund' in source:
        assert "WaitingForPerson" in done.stderr
        return
    if "sys.exit(error.exit_code)" in source:
        assert (done.returncode, "waits for a person" in done.stderr) == (6, True), done.stderr
        return
    assert done.returncode == 0, done.stderr


def test_the_question_of_the_readme_is_answered_and_the_money_paid_once(tmp_path: Path) -> None:
    """Its program, its command, its program again."""
    source = next(block for block in blocks(README, "python") if 'ask(f"Refund' in block)
    command = next(line for line in README.splitlines() if line.startswith("caravanserai answer o"))
    outputs = [run_python(source, tmp_path).stdout]
    words = [sys.executable, "-m", "caravanserai_core.cli", *shlex.split(command)[1:]]
    answered = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert answered.returncode == 0, answered.stderr

    outputs += [run_python(source, tmp_path).stdout for _ in range(2)]

    assert outputs == ["looked up A17\n", "paid back 40\n", ""]


def test_the_first_example_leaves_the_note_that_is_shown(tmp_path: Path) -> None:
    """Waypoint 3 is the title line, an empty line, one sentence, and nothing else."""
    done = run_python(blocks(README, "python")[0], tmp_path)

    assert done.returncode == 0, done.stderr
    note = (tmp_path / ".caravanserai/my-run/waypoint-3.md").read_text(encoding="utf-8")
    shown = README.split("$ cat .caravanserai/my-run/waypoint-3.md\n")[1].split("```")[0]
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"
    assert re.sub(stamp, "TIME", note) == re.sub(stamp, "TIME", shown)
    names = {path.name for path in (tmp_path / ".caravanserai/my-run").iterdir()}
    assert {f"waypoint-{n}.md" for n in range(1, 6)} | {"latest.md", "journal-1.jsonl"} <= names


def test_the_transcript_of_the_demo_is_real(tmp_path: Path) -> None:
    """Its commands, with a ^C after the third step, print what the README shows."""
    shown = README.split("<!-- transcript: demo -->\n```\n")[1].split("```")[0]
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", shown, re.MULTILINE)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")])}
    env["DEMO_PAUSE"] = "0.5"

    assert [command for command, _ in steps] == [
        "python examples/demo.py",
        "python examples/demo.py",
        "caravanserai show demo",
    ]
    for command, expected in steps:
        words = shlex.split(command)
        words[0:1] = (
            [sys.executable]
            if words[0] == "python"
            else [sys.executable, "-m", "caravanserai_core.cli"]
        )
        words = [str(ROOT / w) if w.startswith("examples/") else w for w in words]
        with subprocess.Popen(
            words,
            cwd=tmp_path,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            if "^C" in expected:
                wait_for(tmp_path / ".caravanserai/demo/waypoint-3.md")
                process.send_signal(signal.SIGINT)
            output = process.communicate(timeout=60)[0]
        # A terminal shows ^C by itself; a pipe does not.
        assert plain(output) == plain(expected.replace("^C\n", ""))


def wait_for(path: Path) -> None:
    """Wait until a file is there."""
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)


def plain(text: str) -> list[str]:
    """Return the lines of a text that are not empty, with times left out."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.+]*\d", "TIME", text)
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def without_code(text: str) -> str:
    """Leave out code blocks and code spans."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S))


def test_links_between_documents_lead_somewhere() -> None:
    """Every relative link in a document names a file, and its heading if it names one."""
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    links = [
        (page, link)
        for page in documents
        for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8")))
        if "://" not in link
    ]
    assert len(links) > 10
    for page, link in links:
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in headings}
            assert anchor in slugs, f"{page.name}: {link}"
