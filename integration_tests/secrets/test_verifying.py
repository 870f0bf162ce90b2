"""`caravanserai verify --secrets`: a look at every byte, from outside."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from caravanserai_core import checkpoint
from caravanserai_core.cli import app
from caravanserai_core.leaks import _OVERLAP, _PIECE
from caravanserai_core.shapes import SHAPES
from integration_tests.secrets.planted import KEY


@pytest.fixture(autouse=True)
def _planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_API_KEY", KEY)
    checkpoint("run", {"key": KEY}, f"used {KEY}")
    checkpoint("other", {"n": 1})


def verify(*args: str) -> Any:
    """Run the command; its exit code and what it printed."""
    return CliRunner().invoke(app, ["verify", "--secrets", *args])


def test_a_store_without_a_secret_is_told_so() -> None:
    """Exit code 0."""
    done = verify()
    assert (done.exit_code, done.stdout) == (0, "no secret found\n")
    assert verify("run").exit_code == 0


def test_it_says_what_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """That no secret was found is no promise: what only the program declares is not known here."""
    before = json.loads(verify("--json").stdout)["looked_for"]
    monkeypatch.setenv("ANOTHER_API_KEY", "planted-" + "another-value")
    done = verify()
    looked = json.loads(verify("--json").stdout)["looked_for"]
    assert looked == {"values": before["values"] + 1, "shapes": len(SHAPES)}
    assert done.stderr == (
        f"looked for {looked['values']} value(s) known in this environment and {len(SHAPES)} "
        "shapes; what only your program declares is not known here\n"
    )


@pytest.mark.parametrize("name", ["other.md", ".journal-1.jsonl.tmp-1", "journal-1.damaged-1"])
@pytest.mark.parametrize("offset", [0, 7, _PIECE - 5, _PIECE - _OVERLAP - 9, 2 * _PIECE - 1])
def test_a_secret_in_any_file_is_found_at_its_byte(store_dir: Path, name: str, offset: int) -> None:
    """Also in temporary files and copies, and across the pieces that are read. Never its value."""
    (store_dir / "other" / name).write_bytes(b"." * offset + KEY.encode() + b"..")
    done = verify()
    assert done.exit_code == 1
    assert done.stdout == f"other/{name}, byte {offset}: the secret env:PLANTED_API_KEY\n"
    assert verify("other").exit_code == 1
    assert verify("run").exit_code == 0


def test_encoded_and_likely_secrets_are_found_too(store_dir: Path) -> None:
    """As base64; and what only looks like one, said to be that."""
    (store_dir / "run" / "a.txt").write_bytes(b"::" + base64.b64encode(b"u:" + KEY.encode()))
    (store_dir / "run" / "b.txt").write_text("clone with ghp_" + "0aZ9" * 9)
    done = verify("--json")
    assert done.exit_code == 1
    found = [(at["path"], at["what"], at["declared"]) for at in json.loads(done.stdout)["found"]]
    assert found == [
        ("run/a.txt", "env:PLANTED_API_KEY", True),
        ("run/b.txt", "github", False),
    ]
    assert KEY not in done.output


def test_a_name_that_holds_a_secret_is_not_printed(store_dir: Path) -> None:
    """It says that there is one."""
    (store_dir / f"leak-{KEY}").mkdir()
    (store_dir / f"leak-{KEY}" / "file").write_text("x")
    done = verify()
    assert done.exit_code == 1
    assert KEY not in done.output
    assert "in its name: the secret env:PLANTED_API_KEY" in done.output
