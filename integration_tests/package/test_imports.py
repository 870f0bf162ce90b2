"""What an import loads, and which module may import which."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from integration_tests.support import ROOT

THIRD_PARTY = {"orjson"}
# Imported where they are used: any one of them costs about as much as all the rest together.
LAZY = {
    *("asyncio", "concurrent.futures", "http", "multiprocessing", "socket", "sqlite3", "ssl"),
    *("subprocess", "unittest"),
}
OURS_LATER = {"caravanserai_core.cli", "caravanserai_core.demo", "caravanserai_core.testing"}


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a statement loads in a new interpreter."""
    code = (
        f"import sys; before = set(sys.modules); exec({statement!r});"
        "loaded = sorted(set(sys.modules) - before); import json; print(json.dumps(loaded))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True
    )
    return set(json.loads(done.stdout))


def top(modules: set[str]) -> set[str]:
    """Return the top-level names of modules."""
    return {name.partition(".")[0] for name in modules}


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """Name the modules that `import caravanserai` adds."""
    return loaded_by("import caravanserai")


def test_the_only_third_party_module_is_orjson(loaded: set[str]) -> None:
    ours = {"caravanserai", "caravanserai_core"}
    assert top(loaded) - sys.stdlib_module_names - ours == THIRD_PARTY


def test_no_costly_part_of_the_standard_library_is_loaded(loaded: set[str]) -> None:
    assert loaded & LAZY == set()


def test_no_adapter_and_no_tool_of_ours_is_loaded(loaded: set[str]) -> None:
    assert {name for name in loaded if name.startswith("caravanserai.")} == set()
    assert loaded & OURS_LATER == set()


def test_the_measurement_sees_what_an_import_loads() -> None:
    seen = loaded_by("import caravanserai, asyncio, click")
    assert {"asyncio", "socket", "subprocess"} <= seen & LAZY
    assert "click" in top(seen) - sys.stdlib_module_names


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the import rules of the sources in a folder."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(folder / "adapters")])}
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as run; run()",
    ]
    return subprocess.run(
        [*command, "--no-cache"], cwd=folder, env=env, capture_output=True, text=True
    )


def test_imports_point_one_way() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


CORE = (
    *("errors", "names", "quoting", "codec", "records", "delta", "transcript", "stores"),
    *(
        "journal",
        "appending",
        "known",
        "notes",
        "lane",
        "lease",
        "ledger",
        "pending",
        "calls",
        "words",
        "questions",
        "effects",
        "escaping",
        "stepping",
        "doing",
        "steps",
        "ownership",
        "jobs",
        "derive",
        "compaction",
        "copying",
        "durability",
        "piece",
        "referring",
        "pipeline",
        "renderer",
        "trees",
        "meta",
        "opening",
        "homes",
        "threads",
        "importing",
        "turns",
        "reading",
        "listing",
        "patching",
        "signals",
        "survey",
        "secrets",
        "shapes",
        "redact",
        "likely",
        "leaks",
        "run",
        "work",
        "verify",
        "repair",
        "api",
        "branching",
        "identity",
        "points",
        "retention",
        "schema",
        "upkeep",
        "resumable",
        "conversation",
        "lookup",
        "telling",
        "comparing",
        "answering",
        "cli",
        "demo",
        "testing",
    ),
)
ADAPTERS = ("langgraph", "langchain", "openai_agents", "crewai", "claude_agent", "mcp")


@pytest.fixture
def skeleton(tmp_path: Path) -> Path:
    """Lay out every package of the project, all empty, under the project's rules."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for folder, names in (("caravanserai_core", CORE), ("adapters/caravanserai", ADAPTERS)):
        for name in ("", *names):
            package = tmp_path / folder / name
            package.mkdir(parents=True)
            (package / "__init__.py").touch()
    return tmp_path


def test_the_rules_allow_the_empty_skeleton(skeleton: Path) -> None:
    done = lint_imports(skeleton)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("caravanserai_core/stores", "import caravanserai_core.records"),
        ("caravanserai_core/journal", "import caravanserai_core.appending"),
        ("caravanserai_core/known", "import caravanserai_core.stores.base"),
        ("caravanserai_core/reading", "import caravanserai_core.stores, caravanserai_core.notes"),
        ("caravanserai_core/run", "import caravanserai_core.journal, caravanserai_core.reading"),
        ("caravanserai_core/verify", "import caravanserai_core.journal"),
        ("caravanserai_core/cli", "import click, rich, caravanserai_core.demo"),
        ("caravanserai_core/cli", "import caravanserai_core.resumable"),
        ("adapters/caravanserai/crewai", "import caravanserai, caravanserai_core.api"),
        ("adapters/caravanserai/langgraph", "import langgraph.graph, caravanserai_core.run"),
        ("adapters/caravanserai/langgraph", "import caravanserai.langchain.messages"),
    ],
)
def test_a_right_import_is_allowed(skeleton: Path, module: str, statement: str) -> None:
    (skeleton / "caravanserai_core" / "stores" / "base.py").touch()
    (skeleton / "adapters" / "caravanserai" / "langchain" / "messages.py").touch()
    (skeleton / module / "probe.py").write_text(f"{statement}\n")
    done = lint_imports(skeleton)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "statement", "rule"),
    [
        ("caravanserai_core/errors", "import caravanserai_core.names", "one way"),
        ("caravanserai_core/names", "import caravanserai_core.quoting", "one way"),
        ("caravanserai_core/codec", "import caravanserai_core.stores", "one way"),
        ("caravanserai_core/stores", "import caravanserai_core.journal", "one way"),
        ("caravanserai_core/stores", "import caravanserai_core.notes", "one way"),
        ("caravanserai_core/reading", "import caravanserai_core.journal", "one way"),
        ("caravanserai_core/journal", "import caravanserai_core.run", "one way"),
        ("caravanserai_core/known", "import caravanserai_core.appending", "one way"),
        ("caravanserai_core/run", "import caravanserai_core.resumable", "one way"),
        ("caravanserai_core/resumable", "import caravanserai_core.cli", "one way"),
        ("caravanserai_core/codec", "import langgraph.graph", "no framework"),
        ("caravanserai_core/run", "import caravanserai", "no framework"),
        ("caravanserai_core/notes", "import rich.text", "only the command line"),
        ("adapters/caravanserai/crewai", "import click", "only the command line"),
        ("adapters/caravanserai/mcp", "import click", "only the command line"),
        ("caravanserai_core/cli", "import mcp.types", "no framework"),
        ("adapters/caravanserai/crewai", "import adapters.caravanserai", "the folder adapters/"),
        ("adapters/caravanserai/crewai", "import caravanserai.langgraph", "another one"),
        ("adapters/caravanserai/langchain", "import caravanserai.langgraph", "another one"),
    ],
)
def test_a_wrong_import_is_refused(skeleton: Path, module: str, statement: str, rule: str) -> None:
    (skeleton / module / "probe.py").write_text(f"{statement}\n")
    done = lint_imports(skeleton)
    assert done.returncode == 1
    broken = [line for line in done.stdout.splitlines() if line.endswith(" BROKEN")]
    assert len(broken) == 1
    assert rule in broken[0]


def test_a_module_without_a_place_in_the_layers_is_refused(skeleton: Path) -> None:
    (skeleton / "caravanserai_core" / "unplaced.py").touch()
    done = lint_imports(skeleton)
    assert done.returncode == 1
    assert "unplaced" in done.stdout
