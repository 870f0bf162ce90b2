"""The wheel, the source distribution and the editable install hold what a user needs."""

from __future__ import annotations

import email
import json
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from integration_tests.package.conftest import Installed, contents
from integration_tests.support import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PACKAGES = {
    "caravanserai_core": ROOT / "caravanserai_core",
    "caravanserai": ROOT / "adapters" / "caravanserai",
}
EXTRAS = {
    *("langgraph", "langchain", "openai-agents", "openai", "crewai", "claude-agent"),
    *("claude-agent-sdk", "postgres", "objects", "web", "mcp", "all", "dev"),
}


def test_both_packages_import_and_are_typed(installed: Installed) -> None:
    code = (
        "import caravanserai, caravanserai_core, importlib.resources as r;"
        "print(all(r.files(m).joinpath('py.typed').is_file()"
        " for m in (caravanserai, caravanserai_core)))"
    )
    assert installed.python(code) == "True"


def test_packages_come_from_the_place_that_was_installed(installed: Installed) -> None:
    code = "import caravanserai as a, caravanserai_core as b; print(a.__file__); print(b.__file__)"
    found = [Path(line).parent for line in installed.python(code).splitlines()]
    if installed.kind == "editable":
        assert found == [PACKAGES["caravanserai"], PACKAGES["caravanserai_core"]]
    else:
        assert all(installed.folder in path.parents for path in found)


def test_the_command_runs(installed: Installed) -> None:
    assert "Usage: caravanserai" in installed.script("--help")


def test_metadata_names_version_extras_and_licence(installed: Installed) -> None:
    code = (
        "import importlib.metadata as m, json; d = m.distribution('caravanserai');"
        "print(json.dumps([d.version, d.metadata.get_all('Provides-Extra'),"
        "d.metadata['License-Expression'], d.read_text('licenses/LICENSE')]))"
    )
    version, extras, licence, text = json.loads(installed.python(code))
    assert version == PROJECT["version"]
    assert set(extras) == EXTRAS
    assert licence == "MIT"
    assert text == (ROOT / "LICENSE").read_text("utf-8")


def test_only_the_base_dependencies_come_along(installed: Installed) -> None:
    code = (
        "import importlib.metadata as m, json;"
        "print(json.dumps([d.name.lower() for d in m.distributions()]))"
    )
    expected = {"caravanserai", "orjson", "click", "rich", "markdown-it-py", "mdurl", "pygments"}
    assert set(json.loads(installed.python(code))) == expected


def test_the_wheel_holds_the_two_packages_and_nothing_else(wheel: Path) -> None:
    files = set(contents(wheel))
    dist_info = f"caravanserai-{PROJECT['version']}.dist-info"
    expected = {
        f"{package}/{path.relative_to(folder).as_posix()}"
        for package, folder in PACKAGES.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    names = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    assert files == expected | {f"{dist_info}/{name}" for name in names}


def test_the_wheel_from_the_sdist_is_the_same_wheel(wheel: Path, wheel_from_sdist: Path) -> None:
    assert wheel_from_sdist.name == wheel.name
    assert contents(wheel_from_sdist) == contents(wheel)


def test_the_sdist_holds_what_building_and_testing_need(sdist: Path, tracked: list[str]) -> None:
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert files - {"PKG-INFO"} == set(tracked)


def test_the_long_description_is_the_readme(wheel: Path) -> None:
    metadata = next(data for name, data in contents(wheel).items() if name.endswith("/METADATA"))
    message = email.message_from_bytes(metadata)
    assert message["Description-Content-Type"] == "text/markdown"
    body = message.get_payload(decode=True)
    assert isinstance(body, bytes)
    assert body.decode().strip() == (ROOT / "README.md").read_text("utf-8").strip()


@pytest.mark.parametrize(("file", "extras"), [("base.txt", ["dev"]), ("all.txt", ["all", "dev"])])
def test_every_requirement_is_pinned_to_a_version_it_allows(file: str, extras: list[str]) -> None:
    pins = read_pins(ROOT / "constraints" / file)
    wrong = [
        f"{requirement}: {pins.get(canonicalize_name(requirement.name))}"
        for requirement in requirements(extras)
        if not allows(requirement, pins.get(canonicalize_name(requirement.name)))
    ]
    assert not wrong


def test_the_two_constraints_files_agree() -> None:
    every, base = (read_pins(ROOT / "constraints" / name) for name in ("all.txt", "base.txt"))
    assert base.items() <= every.items()


def requirements(extras: list[str]) -> list[Requirement]:
    """List the base requirements and those of the extras, with the project's own extras opened."""
    found = [Requirement(text) for text in PROJECT["dependencies"]]
    waiting = list(extras)
    while waiting:
        for text in PROJECT["optional-dependencies"][waiting.pop()]:
            requirement = Requirement(text)
            if requirement.name == PROJECT["name"]:
                waiting += requirement.extras
            else:
                found.append(requirement)
    return found


def read_pins(path: Path) -> dict[str, str]:
    """Read a constraints file that holds nothing but comments and `name==version` lines."""
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    parsed = [Requirement(line) for line in lines]
    assert all(
        item.url is None and not item.marker and str(item.specifier).startswith("==")
        for item in parsed
    )
    return {canonicalize_name(item.name): str(item.specifier)[2:] for item in parsed}


def allows(requirement: Requirement, version: str | None) -> bool:
    """Say whether a pinned version is there and within the requirement."""
    return version is not None and requirement.specifier.contains(
        Version(version), prereleases=True
    )
