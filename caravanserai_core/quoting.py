"""Foreign text made harmless: for notes, messages and terminals.

Text of a model, a tool or a user may hold anything. Here it is quoted so that it can never end
its own quote, forge a heading, or reach a terminal as an instruction. Before anything is cut or
escaped, words take the place of secrets (`redact`): what is left of one would not be found.
"""

from __future__ import annotations

import re
import shlex
from functools import lru_cache

from caravanserai_core.redact import beginning

# C0 but tab and line feed, DEL, C1; zero-width and bidirectional controls (Unicode TR36, TR9);
# line and paragraph separators, which some viewers break a line at; lone surrogates.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ud800-\udfff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
# Characters on which Markdown acts inside a line.
_MARKDOWN = re.compile(r'["`*_<>\[\]|\\&#~$]|\n')
# What begins a heading, underlines one, or opens a code block, at the start of a line or of a
# block quote or list item there (CommonMark 4.2, 4.3, 4.5, 5.1, 5.2). Ticks with others behind them
# on their line open no block: they are those of a code span, which a backslash would open early.
_BLOCK = re.compile(
    r"^((?:[ \t>]|[-+*](?=[ \t])|[0-9]{1,9}[.)](?=[ \t]))*)"
    r"(#{1,6}(?=[ \t]|$)|(?:=+|-+)(?=[ \t]*$)|`{3,}(?=[^`\n]*$)|~{3})",
    re.MULTILINE,
)
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_AUTOLINK = re.compile(r"<(?:[A-Za-z][A-Za-z0-9+.-]{1,31}:|[\w.+-]+@)[^\s<>]*>")
_FENCE = re.compile(r"(`{3,})[^`]*|(~{3,}).*")
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
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(_escape, text)


def one_line(text: str, limit: int = 200) -> str:
    """Return `text` on one line, control characters visible, at most `limit` characters."""
    text = beginning(text, limit * 4)[: limit * 4].replace("\r\n", "\n")
    text = visible(text).replace("\n", "\\n").replace("\t", "\\t")
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def prose(text: str, *, blocks: bool = True) -> str:
    """Return the caller's own words for a note: as they are, but nothing in them acts beyond them.

    Control characters are made visible. A backslash is put before what would be a heading, leave
    a code block open, or be read as HTML. Closed code blocks and code spans stay as they are.

    Args:
        text: the words, as Markdown.
        blocks: whether code blocks are kept; not where the text does not begin a line.
    """
    text = visible(text.replace("\r\n", "\n"))
    if not _BLOCK.search(text) and not _TAG.search(text):
        return text
    lines = text.split("\n")
    done: list[str] = []
    index = 0
    for start, end in _code_blocks(lines) if blocks else ():
        done += _escaped(lines[index:start])
        done += lines[start:end]
        index = end
    done += _escaped(lines[index:])
    return "\n".join(done)


def _code_blocks(lines: list[str]) -> list[tuple[int, int]]:
    """Return the fenced code blocks that are closed, as (first line, line after the last).

    Only those that begin at the very start of a line: whether an indented one belongs to a list
    item, which would end it early, takes a whole parser to say.
    """
    found: list[tuple[int, int]] = []
    open_: dict[str, int] = {}
    index = 0
    while index < len(lines):
        match = _FENCE.fullmatch(lines[index])
        index += 1
        if match is None:
            continue
        fence = match[1] or match[2]
        if len(fence) >= open_.get(fence[0], len(fence) + 1):
            continue  # not even a shorter one is closed below
        close = re.compile(rf" {{0,3}}{fence[0]}{{{len(fence)},}}[ \t]*")
        end = next((i for i in range(index, len(lines)) if close.fullmatch(lines[i])), -1)
        if end < 0:
            open_[fence[0]] = len(fence)
        else:
            found.append((index - 1, end + 1))
            index = end + 1
    return found


def _escaped(lines: list[str]) -> list[str]:
    """Escape lines outside of code blocks, paragraph by paragraph."""
    done: list[str] = []
    paragraph: list[str] = []
    for line in [*lines, ""]:
        if line.strip(" \t"):
            paragraph.append(line)
            continue
        # A code span may reach over lines. Only where none does is it plain what is inside one.
        plain = all(_spans(item) is not None for item in paragraph)
        done += [_BLOCK.sub(r"\1\\\2", _no_tags(item, plain=plain)) for item in paragraph]
        done.append(line)
        paragraph = []
    return done[:-1]


_MOST_SPANS = 100


def _spans(line: str) -> list[tuple[int, int]] | None:
    """Return the code spans of a line as (start, end), or None where one may reach further."""
    found: list[tuple[int, int]] = []
    runs = list(_BACKTICKS.finditer(line))
    if len(runs) > _MOST_SPANS or (
        runs and ("\\`" in line or "|" in line or "<" in line[: runs[0].start()])
    ):
        return None  # escaped ticks, cells of a table, links that hold ticks
    while runs:
        first = runs.pop(0)
        close = next((i for i, run in enumerate(runs) if len(run[0]) == len(first[0])), None)
        if close is None:
            return None
        found.append((first.start(), runs[close].end()))
        del runs[: close + 1]
    return found


def _no_tags(line: str, *, plain: bool) -> str:
    """Put a backslash before what CommonMark 6.6 would read as HTML."""
    spans = (_spans(line) or []) if plain else []

    def escape(match: re.Match[str]) -> str:
        at = before = match.start()
        while before and line[before - 1] == "\\":
            before -= 1
        backslashes = at - before
        inside = any(start <= at < end for start, end in spans)
        if inside or backslashes % 2 or _AUTOLINK.match(line, at):
            return "<"
        return "\\<"

    return _TAG.sub(escape, line)


def quoted(text: str, limit: int = 200) -> str:
    """Quote one line of foreign text for a sentence.

    Straight double quotes, or a code span where the text holds a quote or a character on which
    Markdown acts.
    """
    short = one_line(text, limit)
    return code(short) if _MARKDOWN.search(short) else f'"{short}"'


def error_text(error: BaseException) -> str:
    """Return the type and the text of a program's own error, whatever its `__str__` does."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - it must not take the place of the error itself
        text = "(its text cannot be had)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def code(text: str) -> str:
    """Return `text` as a code span whose backticks it cannot close (CommonMark 6.1)."""
    text = visible(text).replace("\n", " ")
    if "`" not in text and text.strip():
        return f"`{text}`"
    fence = "`" * (1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") or not text.strip() else ""
    return f"{fence}{pad}{text}{pad}{fence}"


@lru_cache(maxsize=1024)
def code_name(name: str) -> str:
    """Return a name as `code` does: of a node, a channel, a tool. They come again and again."""
    return code(name)


def fenced(text: str, limit: int = 4000) -> str:
    """Return several lines of foreign text as a fenced block that they cannot close."""
    text = visible(beginning(text, limit).replace("\r\n", "\n")).rstrip("\n")
    if len(text) > limit:
        text = text[:limit].rstrip() + " …"
    fence = "`" * max(3, 1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


def shell_word(text: str) -> str:
    """Quote one word for a shell; control characters become visible in a `$'…'` word.

    That form is known to bash, zsh, ksh and POSIX.1-2024.
    """
    if visible(text) == text and "\n" not in text and "\t" not in text:
        return shlex.quote(text)
    parts: list[str] = []
    for char in text:
        if char in "\\'":
            parts.append("\\" + char)
        elif visible(char) == char and char not in "\n\t":
            parts.append(char)
        else:
            # Bytes in octal, three digits each: no digit that follows can be taken for one.
            data = char.encode(
                "utf-8", "surrogateescape" if "\udc80" <= char <= "\udcff" else "replace"
            )
            parts.append("".join(f"\\{byte:03o}" for byte in data))
    return f"$'{''.join(parts)}'"
