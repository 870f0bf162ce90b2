"""What one process saves, another one loads: nothing rests on what the first one had in memory."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from caravanserai_core import load
from integration_tests.codec.values import VALUES, same
from integration_tests.support import ROOT, require_command

SAVE = """
from caravanserai_core import checkpoint
from integration_tests.codec.values import VALUES
for number, (name, value) in enumerate(VALUES.items()):
    checkpoint(f"run-{number}", {"value": value, "more": [value]}, name)
"""

PARSE = """
const fs = require("fs");
const text = fs.readFileSync(process.argv[1]);
const lines = new TextDecoder("utf-8", {fatal: true}).decode(text).trimEnd().split("\\n");
const states = lines.map((line) => JSON.parse(line)).filter((r) => r.kind === "waypoint");
console.log(JSON.stringify(states.map((record) => record.state)));
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which another process has saved every value."""
    folder = tmp_path_factory.mktemp("saved")
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    done = subprocess.run(
        [sys.executable, "-c", SAVE],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / ".caravanserai"


def test_every_value_comes_back(saved: Path) -> None:
    """Enums in classes, generic models, counters, bytes, keys that are numbers: all of them."""
    for number, (name, value) in enumerate(VALUES.items()):
        found = load(f"run-{number}", store=saved)
        assert same(found, {"value": value, "more": [value]}), name


def test_every_journal_is_strict_json_in_utf_8(saved: Path) -> None:
    """Python's own parser reads each line; no NaN, no Infinity, no byte that is no UTF-8."""
    for number, name in enumerate(VALUES):
        for line in (saved / f"run-{number}" / "journal-1.jsonl").read_bytes().splitlines():
            # More digits than Python's parser takes are no fault of the file.
            with contextlib.suppress(ValueError) if "digits" in name else contextlib.nullcontext():
                json.loads(line.decode("utf-8"), parse_constant=pytest.fail)


def test_a_parser_of_another_language_reads_special_numbers(saved: Path) -> None:
    """JavaScript's: what JSON has no word for stands there under its documented tag."""
    node = require_command("node")
    told = {"nan": "nan", "inf": "inf", "-inf": "-inf"}
    for name, word in told.items():
        journal = saved / f"run-{list(VALUES).index(name)}" / "journal-1.jsonl"
        done = subprocess.run(
            [node, "-e", PARSE, str(journal)], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        tag = {"$float": word}
        assert json.loads(done.stdout) == [{"value": tag, "more": [tag]}]
