"""Quoting: foreign text can never end its quote."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from caravanserai_core.quoting import code, fenced, one_line, prose, quoted, visible
from integration_tests.notes.hostile import ALL
from integration_tests.notes.linter import headings, lint

_texts = st.text(st.sampled_from('`~#=->+*1.) \n\t<>h2!?/[]|\\"aé\x1b\u202e\r'), max_size=40)


def tokens(text: str) -> list[str]:
    """The block tokens of a text, as a viewer sees them."""
    return [token.type for token in MarkdownIt("commonmark").parse(text)]


@pytest.mark.parametrize("name", ALL)
def test_code_is_one_code_span(name: str) -> None:
    """A code span holds all of the text and nothing stands outside."""
    text = ALL[name].strip() or "x"
    (_, inline, _) = MarkdownIt("commonmark").parse(f"before {code(text)} after")
    assert inline.children is not None
    assert [child.type for child in inline.children] == ["text", "code_inline", "text"]
    expected = visible(text).replace("\n", " ")
    assert inline.children[1].content.strip() == expected.strip()


@pytest.mark.parametrize("text", ["a ``` ![x](http://evil/) b", "``` x", "a\n~~~ ```` b"])
@pytest.mark.parametrize("begin", ["", "- ", "1. ", "> "])
def test_a_code_span_that_begins_a_line_stays_one(text: str, begin: str) -> None:
    """Its ticks are many where the text holds some, and look like those that open a block."""
    line = prose(f"{begin}{code(text)} began.")
    (inline,) = (token for token in MarkdownIt("commonmark").parse(line) if token.type == "inline")
    assert inline.children is not None
    assert [child.type for child in inline.children] == ["code_inline", "text"]


@pytest.mark.parametrize("name", ALL)
def test_fenced_is_one_block(name: str) -> None:
    """The fence is longer than any run of backticks inside, and the text is whole."""
    text = ALL[name]
    block = fenced(text, limit=2_000_000)
    assert tokens(f"{block}\n\nafter") == ["fence", "paragraph_open", "inline", "paragraph_close"]
    (fence,) = MarkdownIt("commonmark").parse(block)
    assert fence.content == visible(text.replace("\r\n", "\n")).rstrip("\n") + "\n"
    assert fence.info == "text"


@pytest.mark.parametrize("name", ALL)
def test_quoted_is_one_short_line(name: str) -> None:
    """A quote in a sentence is one line, of bounded length, in quotes or a code span."""
    shown = quoted(ALL[name], 80)
    assert "\n" not in shown
    assert len(shown) <= 80 + 2 * (80 + 2)
    assert shown[0] == shown[-1]
    assert shown[0] in '"`'
    assert tokens(f"said {shown}.") == ["paragraph_open", "inline", "paragraph_close"]


def test_quoted_examples() -> None:
    """As the notes show it."""
    assert quoted("Sounds good.") == '"Sounds good."'
    assert quoted('lookup(key="2-1")') == '`lookup(key="2-1")`'
    assert quoted("a `tick` b") == "``a `tick` b``"
    assert quoted("`tick`") == "`` `tick` ``"
    assert quoted("two\nlines") == "`two\\nlines`"
    assert quoted("x" * 300, 10) == '"xxxxxxxxx…"'
    assert quoted("") == '""'
    assert code(" ") == "`   `"
    assert one_line("a\r\nb\tc\x1b") == "a\\nb\\tc\\x1b"
    assert visible("a\x1b[0m\u202e\ud800\U000e0041\n\t") == "a\\x1b[0m\\u202e\ufffd\\U000e0041\n\t"
    assert fenced("a\n```\nb") == "````text\na\n```\nb\n````"
    assert fenced("x" * 10, limit=4) == "```text\nxxxx …\n```"


@hypothesis.given(_texts)
@hypothesis.settings(max_examples=hypothesis.settings().max_examples * 10)
def test_prose_holds_whatever_it_is_given(text: str) -> None:
    """No text at all makes a heading, leaves a block open, or is read as HTML."""
    shown = prose(text)
    note = f"# Waypoint 1 — 2026-01-01T00:00:00+00:00\n\nstory\n\n{shown}\n\n## Next\n\nthis\n"
    assert [h for h in headings(note) if h != (1, note.split("\n")[0][2:])] == [(2, "Next")]
    assert lint(note, quotes_data=True) == []
    indented = shown.strip().replace("\n", "\n  ")
    item = note.replace(f"\n\n{shown}\n\n", f"\n\n- {indented}\n- b\n\n")
    assert [level for level, _ in headings(item)] == [1, 2]


@hypothesis.given(_texts)
def test_prose_is_stable(text: str) -> None:
    """Characters that act on a terminal are gone, whatever else stands there."""
    assert visible(prose(text)) == prose(text)
