"""No file of the project names a machine it was made on or a registry it was installed from."""

from __future__ import annotations

import re

import pytest

from integration_tests.support import ROOT

# Written in pieces, since this file is searched as well.
FOLDERS = ["/" + name + "/" for name in ("home", "opt", "root", "tmp", "work")]
HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("deb", "debian", "org"),
        ("repo1", "maven", "org"),
    )
]
# A path counts where it begins: not in "a/tmp/b", not in "docs/home/".
PATTERN = re.compile(
    "|".join(
        [rf"(?<![\w.~*)\]}}]){re.escape(path)}" for path in FOLDERS] + [re.escape(h) for h in HOSTS]
    )
)
ALLOWED: dict[str, set[str]] = {}
"""File to the findings that are right in it, for example an invented path in a transcript."""


def findings(text: str) -> list[str]:
    """Return every path and host in a text that does not belong there, with what follows it."""
    return [text[m.start() :].split(maxsplit=1)[0][:60] for m in PATTERN.finditer(text)]


def test_no_machine_and_no_registry_is_named(tracked: list[str]) -> None:
    wrong = []
    for name in tracked:
        try:
            text = (ROOT / name).read_text("utf-8")
        except UnicodeDecodeError:  # a sample of damaged bytes
            continue
        allowed = ALLOWED.get(name, set())
        wrong += [f"{name}: {found}" for found in findings(text) if found not in allowed]
    assert not wrong


@pytest.mark.parametrize(
    "text",
    [
        f"see {FOLDERS[0]}me/x",
        f'"{FOLDERS[3]}x"',
        f"https://files.{HOSTS[1]}/p",
        "at " + FOLDERS[4],
    ],
)
def test_the_search_finds_what_it_looks_for(text: str) -> None:
    assert findings(text)


@pytest.mark.parametrize(
    "text", ["github.com/some/project", "docs" + FOLDERS[0], "build" + FOLDERS[3]]
)
def test_the_search_leaves_ordinary_text_alone(text: str) -> None:
    assert not findings(text)
