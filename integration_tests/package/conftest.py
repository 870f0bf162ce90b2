"""Build the distributions once, install each into an environment of its own once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration_tests.support import ROOT

# The running interpreter's hatchling builds: it is the pinned one, and no download repeats it.
# What isolation would show, a build requirement that is not declared, the editable install shows:
# pip builds that one in isolation.
BUILD = [sys.executable, "-m", "build", "--no-isolation"]

# What tools leave behind, for a source distribution that is unpacked where there is no git.
IGNORED = re.compile(r"(^|/)(\.venv.*|\.?[a-z]+_cache|__pycache__|\.hypothesis|PKG-INFO)(/|$)")

KINDS = ("wheel", "wheel from sdist", "editable")


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command that has to succeed; return what it printed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command} exited {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Installed:
    """A fresh environment that holds the project, and nothing else that was asked for."""

    kind: str
    folder: Path

    def python(self, code: str) -> str:
        """Run code there, in a folder without the sources; return what it printed."""
        return run(self.folder / "bin" / "python", "-I", "-c", code, cwd=self.folder).strip()

    def script(self, *arguments: str) -> str:
        """Run the installed command `caravanserai`; return what it printed."""
        return run(self.folder / "bin" / "caravanserai", *arguments, cwd=self.folder)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the source tree."""
    out = tmp_path_factory.mktemp("wheel")
    run(*BUILD, "--wheel", "--outdir", out, ROOT, cwd=out)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution."""
    out = tmp_path_factory.mktemp("sdist")
    run(*BUILD, "--sdist", "--outdir", out, ROOT, cwd=out)
    return next(out.glob("*.tar.gz"))


@pytest.fixture(scope="session")
def unpacked_sdist(sdist: Path) -> Path:
    """Unpack the source distribution, far from the source tree."""
    with tarfile.open(sdist) as archive:
        archive.extractall(sdist.parent, filter="data")
    return next(path for path in sdist.parent.iterdir() if path.is_dir())


@pytest.fixture(scope="session")
def wheel_from_sdist(unpacked_sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel from nothing but the source distribution."""
    out = tmp_path_factory.mktemp("wheel_from_sdist")
    run(*BUILD, "--wheel", "--outdir", out, unpacked_sdist, cwd=out)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="session", params=KINDS)
def installed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    """Install one kind, with its dependencies as pinned, into a fresh environment."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    what: list[str | Path]
    if request.param == "editable":
        what = ["-e", ROOT]
    else:
        what = [request.getfixturevalue(request.param.replace(" ", "_"))]
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "-q"]
    run(*pip, "-c", ROOT / "constraints" / "base.txt", *what, cwd=folder)
    return Installed(request.param, folder)


def contents(archive: Path) -> dict[str, bytes]:
    """Read a wheel: file name to bytes."""
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


@pytest.fixture(scope="session")
def tracked() -> list[str]:
    """List the project's files: those git tracks or would track, without git all that are there."""
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = run(*command, cwd=ROOT).split("\0")
    else:
        listed = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*")]
        listed = [name for name in listed if not IGNORED.search(name)]
    return sorted(name for name in listed if (ROOT / name).is_file())
