"""Prose without secrets: notes, errors, displays.

A note is read and never resumed from, so words may take the place of a secret there, and what
merely looks like one goes too. A state is never treated like that: a mask that comes back into a
program is handed to its tools as if it were the key.

What looks like a secret is told by its form, as the big services give theirs one. That is a safety
net with large holes: about six of ten unknown forms are found, and nothing in free prose.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from caravanserai_core import secrets

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PROSE", "SHAPES", "beginning", "redact", "redact_fields", "shapes"]

SHAPES: Final = (
    ("github", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{36,251}"),
    ("github", ("github_pat_",), r"github_pat_[A-Za-z0-9_]{60,251}"),
    ("anthropic", ("sk-ant-",), r"sk-ant-[A-Za-z0-9_\-]{24,250}"),
    ("openai", ("sk-",), r"sk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_\-]{32,250}"),
    ("aws", ("AKIA", "ASIA"), r"(?:AKIA|ASIA)[A-Z2-7]{16}"),
    ("google", ("AIza",), r"AIza[A-Za-z0-9_\-]{35}"),
    ("slack", ("xox", "xapp-"), r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9\-]{20,250}"),
    ("gitlab", ("glpat-",), r"glpat-[A-Za-z0-9_\-]{20,60}"),
    ("hugging face", ("hf_",), r"hf_[A-Za-z]{34}"),
    ("stripe", ("k_live_", "k_test_"), r"[rs]k_(?:live|test)_[A-Za-z0-9]{24,200}"),
    ("npm", ("npm_",), r"npm_[A-Za-z0-9]{36}"),
    ("pypi", ("pypi-AgEI",), r"pypi-AgEI[A-Za-z0-9_\-]{50,250}"),
    ("sendgrid", ("SG.",), r"SG\.[A-Za-z0-9_\-]{22}\.[A-Za-z0-9_\-]{43}"),
    (
        "private key",
        ("-----BEGIN",),
        (
            r"-----BEGIN (?:[A-Z]+ ){0,2}PRIVATE KEY-----[A-Za-z0-9+/=\s\\]{20,8000}?"
            r"(?:-----END (?:[A-Z]+ ){0,2}PRIVATE KEY-----|\Z)"
        ),
    ),
)
"""By kind: what one begins with, and its whole form."""

_MORE: Final = 4096
"""Characters behind the end of a beginning that are looked at too."""

_BORDER: Final = r"(?<![A-Za-z0-9_\-+/=])"

_PATTERNS: Final = [
    (kind, begins, re.compile(_BORDER + pattern)) for kind, begins, pattern in SHAPES
]

PROSE: Final[tuple[str, ...]] = ("note", "say", "remark", "error", "text", "why", "reason", "taken")
"""Members of a record's head that are prose."""


def shapes(text: str) -> Iterator[tuple[int, str]]:
    """Yield what looks like a secret in a text: where, and of which kind."""
    for kind, begins, pattern in _PATTERNS:
        if any(begin in text for begin in begins):
            for match in pattern.finditer(text):
                yield match.start(), kind


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
    for kind, begins, pattern in _PATTERNS:
        for begin in begins:
            if begin in text:
                text = pattern.sub(f"[possible secret: {kind}]", text)
                break
    return text


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
