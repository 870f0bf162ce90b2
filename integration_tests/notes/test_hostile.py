"""No text in a note can pass for another part of it, hide one, or reach a terminal as a command."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from caravanserai import Note, checkpoint, get_waypoint, open_run, resumable
from caravanserai_core import quoting
from integration_tests.notes.hostile import ALL, FENCES, HEADINGS, TERMINAL
from integration_tests.notes.linter import body, headings, lint, sections

CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]"
)

FIELDS: dict[str, Any] = {
    "summary": lambda text: Note(text, happened=["it"], next=["the true next"], goal="the goal"),
    "happened": lambda text: Note(
        "story", happened=["a", text, "b"], next=["the true next"], goal="the goal"
    ),
    "plan": lambda text: Note(
        "story", plan=[(text, True), "b"], next=["the true next"], goal="the goal"
    ),
    "next": lambda text: Note("story", happened=["it"], next=[text, "the true next"], goal="g"),
    "one next": lambda text: Note("story", next=[text], goal="the goal"),
    "decided": lambda text: Note(
        "story", next=["the true next"], decided=[text, "b"], goal="the goal"
    ),
    "so_far": lambda text: Note("story", next=["the true next"], so_far=[text], goal="the goal"),
    "goal": lambda text: Note("story", happened=["it"], next=["the true next"], goal=text),
}
SHOWN = {
    "summary": ["Happened", "Next", "Goal"],
    "happened": ["Happened", "Next", "Goal"],
    "plan": ["Plan", "Next", "Goal"],
    "next": ["Happened", "Next", "Goal"],
    "one next": ["Next", "Goal"],
    "decided": ["Next", "Decided", "Goal"],
    "so_far": ["Next", "So far", "Goal"],
    "goal": ["Happened", "Next", "Goal"],
}


def read(name: str = "latest.md") -> str:
    """Read a note's bytes as they are: no line end is translated."""
    return Path(".caravanserai/run", name).read_bytes().decode()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("field", FIELDS)
def test_text_stays_in_its_place(field: str, name: str) -> None:
    """Whatever a field holds, the note has the sections that it has, and says what is next."""
    checkpoint("run", {}, FIELDS[field](ALL[name]))
    text = read()
    assert lint(text, quotes_data=True) == []
    assert sections(text) == SHOWN[field]
    if "next" not in field:
        assert body(text, "Next") == "the true next"
    if field != "goal" and "the goal" in text:
        assert body(text, "Goal") == "the goal"
    assert not CONTROL.search(text)


@pytest.mark.parametrize("name", ALL)
def test_plain_text_is_no_heading(name: str) -> None:
    """The same where the whole note is one text: one heading, the title."""
    checkpoint("run", {}, ALL[name])
    text = read()
    assert [level for level, _ in headings(text)] == [1]
    assert lint(text, quotes_data=True) == []


@pytest.mark.parametrize("name", [*HEADINGS, *FENCES, *TERMINAL])
def test_remarks_entries_and_errors_stay_in_their_place(name: str) -> None:
    """What joins a note from elsewhere is held to the same."""
    text = ALL[name]

    @resumable
    def work(run_id: str, state: Any) -> None:
        with open_run(run_id) as run:
            run.remark(text)
            run.checkpoint({"n": 1}, Note("story", next="the true next"))
            run.entry("tool", say=text)
            run.entry("tool", say="second")
        raise ValueError(text)

    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its text is the hostile one
        work("run", {})
    assert caught.value.args == (text,)
    for note in (read("waypoint-1.md"), read()):
        assert lint(note, quotes_data=True) == []
        assert sections(note) == ["Next", "Decided"]
        assert body(note, "Next") == "the true next"
        assert not CONTROL.search(note)
    assert "Since then:" in read()
    assert "the run failed at" in read()


@pytest.mark.parametrize("name", [*HEADINGS, *FENCES, *TERMINAL])
def test_derived_notes_quote_what_they_name(name: str) -> None:
    """Keys and values of a state are foreign text too."""
    text = ALL[name]
    for state in (
        {text: 1},
        {"key": text},
        {"k": {"$tuple": text}},
        {"b": text.encode("utf-8", "replace")},
    ):
        checkpoint("run", state)
        note = read()
        assert lint(note, quotes_data=True) == []
        assert len(note.rstrip("\n").split("\n")) == 3, "a derived note is one line"
        assert not CONTROL.search(note)


def test_own_words_stay_as_they_are() -> None:
    """What does not look like a part of a note is written byte for byte."""
    for text in (
        "Fixed `Vec<String>` in #12 and C#; a < b, 5 > 3, x <- y.",
        "- one\n- two\n\n1. first\n2. second",
        "```python\n# a comment in code\nx = [1, 2]\n```",
        "~~~\n<h2>code</h2>\n~~~\n\nand `<b>` in a span",
        "> a quote\n\n**bold**, _it_, [link](https://example.com) | pipe",
        "    indented code",
        "Grüße, 世界 🍸, 100 %, 50 € — “quoted” …",
        "a - b = c",
        "-1 is a number, --flag an option, == an operator",
        "#hashtag and ####### seven",
        "* * *",
        "trailing backslash \\",
    ):
        assert quoting.prose(text) == text
        checkpoint("run", {}, text)
        assert read().partition("\n\n")[2] == text + "\n"
        assert lint(read(), quotes_data=True) == []


def test_record_keeps_the_text_itself() -> None:
    """Only the rendering is made harmless; the note that programs read is what was given."""
    for text in ("## Next\x1b[2J\u202e", "<h2>\r\n```"):
        checkpoint("run", {}, Note(text, happened=[text]))
        assert get_waypoint("run").note == Note(text, happened=[text])
