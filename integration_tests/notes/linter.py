"""One linter for all notes, the core's and each adapter's: how a note must be laid out.

It reads a note as a CommonMark parser does, so that what it accepts is what a viewer shows.
"""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.token import Token

from caravanserai_core.notes import SECTIONS
from caravanserai_core.quoting import visible

_TITLE = re.compile(r"# Waypoint [1-9]\d* — \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")
_MACHINE = re.compile(r"[0-9a-f]{32}|sha256|<!--|^\s*[{\[].*[}\]]\s*$", re.MULTILINE)


def headings(text: str) -> list[tuple[int, str]]:
    """Return every heading that a viewer shows, wherever it stands: (level, text)."""
    tokens = MarkdownIt("commonmark").parse(text)
    return [
        (int(token.tag[1:]), tokens[index + 1].content)
        for index, token in enumerate(tokens)
        if token.type == "heading_open"
    ]


def sections(text: str) -> list[str]:
    """Return the names of a note's sections, in order."""
    return [name.partition(" (")[0] for level, name in headings(text) if level == 2]


def body(text: str, section: str) -> str:
    """Return what stands under a section, as it is in the file."""
    lines = text.split("\n")
    starts = [
        (token.map[0], lines[token.map[0]])
        for token in MarkdownIt("commonmark").parse(text)
        if token.type == "heading_open" and token.level == 0 and token.map is not None
    ]
    for index, (line, heading) in enumerate(starts):
        if heading.startswith(f"## {section}"):
            end = starts[index + 1][0] if index + 1 < len(starts) else len(lines)
            return "\n".join(lines[line + 1 : end]).strip("\n")
    raise AssertionError(f"no section {section!r}")


def lint(text: str, *, quotes_data: bool = False) -> list[str]:
    """Return what is wrong with a note; an empty list if nothing is.

    Args:
        text: the note.
        quotes_data: its quoted text holds JSON or digests of the user's, which is no machine line.
    """
    problems = []
    lines = text.split("\n")
    found = headings(text)
    if not _TITLE.fullmatch(lines[0]) and lines[0] != "# No waypoint yet":
        problems.append(f"line 1 is no title: {lines[0]!r}")
    if len(lines) < 4 or lines[1] or not lines[2].strip() or re.match(r"#+( |$)", lines[2]):
        problems.append("line 3 does not tell the story")
    if [level for level, _ in found if level == 1] != [1]:
        problems.append("not exactly one title")
    if any(level > 2 for level, _ in found):
        problems.append("a heading below the sections")
    names = sections(text)
    order = [SECTIONS.index(name) for name in names if name in SECTIONS]
    if len(order) != len(names):
        problems.append(f"unknown sections: {sorted(set(names) - set(SECTIONS))}")
    once = [at for at in order if SECTIONS[at] != "To decide"]  # that has one for each question
    if order != sorted(order) or len(once) != len(set(once)):
        problems.append(f"sections repeated or out of order: {names}")
    problems += [f"section {name} is empty" for name in names if not body(text, name)]
    if not quotes_data and (machine := _MACHINE.search(text)):
        problems.append(f"a line for machines: {machine[0]!r}")
    if visible(text) != text:
        problems.append("characters that nobody sees")
    if not text.endswith("\n") or text.endswith("\n\n"):
        problems.append("does not end with one line end")
    problems += [problem for token in _all(text) if (problem := _token(token, lines))]
    return problems


def _all(text: str) -> list[Token]:
    found = []
    for token in MarkdownIt("commonmark").parse(text):
        found += [token, *(token.children or [])]
    return found


def _token(token: Token, lines: list[str]) -> str | None:
    if token.type in ("html_block", "html_inline"):
        return f"HTML: {token.content[:40]!r}"
    if token.type == "fence" and token.map is not None:
        last = lines[token.map[1] - 1].strip(" >")
        if not last.startswith(token.markup) or token.map[1] - token.map[0] < 2:
            return "a code block that is not closed"
    return None
