"""Prose without secrets: notes, errors, displays.

A note is read and never resumed from, so words may take the place of a secret there, and what
merely looks like one goes too. A state is never treated like that: a mask that comes back into a
program is handed to its tools as if it were the key.

What looks like a secret is told by its form, as the big services give theirs one. That is a safety
net with large holes: about six of ten unknown forms are found, and nothing in free prose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from caravanserai_core import secrets
from caravanserai_core.shapes import PATTERNS, may_be_in

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["PROSE", "beginning", "is_clean", "redact", "redact_fields"]

_MORE: Final = 4096
"""Characters behind the end of a beginning that are looked at too."""

PROSE: Final[tuple[str, ...]] = (
    "note",
    "say",
    "remark",
    "error",
    "text",
    "why",
    "reason",
    "taken",
    "of",
)
"""Members of a record's head that are prose."""


def redact(text: str) -> str:
    """Return a text with words in the place of secrets.

    Args:
        text: prose; `[secret env:NAME]` takes the place of a declared value, in any form, and
            `[possible secret: github]` that of what looks like one.
    """
    found = secrets.current()
    if found.secrets and found.in_text(text) is not None:
        for form in found.forms:
            text = text.replace(form.text, f"[secret {form.secret.source}]")
        for encoded, secret in found.encoded:
            text = text.replace(encoded, f"[secret {secret.source}]")
    if not may_be_in(text):
        return text
    for kind, begins, pattern in PATTERNS:
        for begin in begins:
            if begin in text:
                text = pattern.sub(f"[possible secret: {kind}]", text)
                break
    return text


def is_clean(texts: Iterable[str]) -> bool:
    """Say whether none of some texts can hold a secret, by one look at all; else each is redacted.

    A secret that is in one of them is in the whole, whatever it is joined with.
    """
    whole = "\n".join(texts)
    found = secrets.current()
    return not may_be_in(whole) and (not found.secrets or found.in_text(whole) is None)


def beginning(text: str, size: int) -> str:
    """Return the beginning of a text, redacted, and no part of a secret that is cut there.

    Args:
        text: prose of any length.
        size: characters that are needed of it.
    """
    end = size + _MORE
    if len(text) <= end:
        return redact(text)
    short = redact(text[:end])
    return short[: max(0, len(short) - secrets.current().longest)]


def redact_tree(tree: Any) -> Any:
    """Return plain JSON with every text in it redacted; the keys stay."""
    if type(tree) is str:
        return redact(tree)
    if type(tree) is list:
        return [redact_tree(item) for item in tree]
    if type(tree) is dict:
        return {key: redact_tree(item) for key, item in tree.items()}
    return tree


def redact_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a record's head with its prose redacted."""
    prose = {key: redact_tree(fields[key]) for key in PROSE if key in fields}
    return {**fields, **prose} if prose else fields
