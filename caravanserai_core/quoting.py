"""Foreign text made harmless: for notes, messages and terminals.

Text of a model, a tool or a user may hold anything. Here it is quoted so that it can never end
its own quote, forge a heading, or reach a terminal as an instruction.
"""

from __future__ import annotations

import re

# C0 but tab and line feed, DEL, C1; zero-width and bidirectional controls (Unicode TR36, TR9);
# line and paragraph separators, which some viewers break a line at; lone surrogates.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ud800-\udfff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
# Characters on which Markdown acts inside a line.
_MARKDOWN = re.compile(r'["`*_<>\[\]|\\&#~$]|\n')
_HEADING = re.compile(r"^( {0,3})(#{1,6}(?:[ \t]|$)|=+[ \t]*$|-{2,}[ \t]*$)", re.MULTILINE)
_BACKTICKS = re.compile(r"`+")


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def visible(text: str) -> str:
    r"""Return `text` with control, zero-width and bidi characters spelled out as `\x1b`.

    Line feeds and tabs stay; a lone surrogate becomes U+FFFD.
    """
    return _UNSAFE.sub(_escape, text) if not text.isascii() or _UNSAFE.search(text) else text


def one_line(text: str, limit: int = 200) -> str:
    """Return `text` on one line, control characters visible, at most `limit` characters."""
    text = (
        visible(text[: limit * 4].replace("\r\n", "\n")).replace("\n", "\\n").replace("\t", "\\t")
    )
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def prose(text: str) -> str:
    """Return the caller's own words for a note: as they are, but no line can forge a heading.

    Control characters are made visible; a heading or an underline gets a backslash.
    """
    return _HEADING.sub(r"\1\\\2", visible(text.replace("\r\n", "\n")))


def quoted(text: str, limit: int = 200) -> str:
    """Quote one line of foreign text for a sentence.

    Straight double quotes, or a code span where the text holds a quote or a character on which
    Markdown acts.
    """
    short = one_line(text, limit)
    return code(short) if _MARKDOWN.search(short) else f'"{short}"'


def code(text: str) -> str:
    """Return `text` as a code span whose backticks it cannot close (CommonMark 6.1)."""
    text = visible(text).replace("\n", " ")
    fence = "`" * (1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") or not text.strip() else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def fenced(text: str, limit: int = 4000) -> str:
    """Return several lines of foreign text as a fenced block that they cannot close."""
    text = visible(text.replace("\r\n", "\n")).rstrip("\n")
    if len(text) > limit:
        text = text[:limit].rstrip() + " …"
    fence = "`" * max(3, 1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
    return f"{fence}text\n{text}\n{fence}"
