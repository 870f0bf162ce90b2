"""Where the files of a working folder stand."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from integration_tests.support import require, require_command

require("claude_agent_sdk")
require_command("git")

from caravanserai.claude_agent._git import anchor  # noqa: E402


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    git(folder, "init", "-q")
    return folder


def git(folder: Path, *words: str) -> str:
    settings = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder.parent)}
    done = subprocess.run(
        ["git", *settings, *words],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def test_a_folder_outside_of_a_repository_has_no_anchor(tmp_path: Path) -> None:
    assert anchor(str(tmp_path)) is None
    assert anchor(str(tmp_path / "gone")) is None


def test_a_commit_and_whether_something_was_changed(repository: Path) -> None:
    assert anchor(str(repository)) == {"commit": None, "dirty": False}
    (repository / "a.txt").write_text("1")
    assert anchor(str(repository)) == {"commit": None, "dirty": True}
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "First")
    head = git(repository, "rev-parse", "HEAD")
    assert anchor(str(repository)) == {"commit": head, "dirty": False}
    (repository / "a.txt").write_text("2")
    assert anchor(str(repository)) == {"commit": head, "dirty": True}


def test_no_lock_of_the_repository_is_taken(repository: Path) -> None:
    """The agent may be in the middle of a commit."""
    (repository / "a.txt").write_text("1")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "First")
    (repository / ".git" / "index.lock").touch()
    found = anchor(str(repository))
    assert found is not None
    assert found["dirty"] is False
