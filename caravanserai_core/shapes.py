"""The forms that the big services give their keys, by which one is told from other texts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

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

_BORDER: Final = r"(?<![A-Za-z0-9_\-+/=])"

PATTERNS: Final = [
    (kind, begins, re.compile(_BORDER + pattern)) for kind, begins, pattern in SHAPES
]
"""By kind: what one begins with, and its form where it stands by itself in a text."""


def shapes(text: str) -> Iterator[tuple[int, str]]:
    """Yield what looks like a secret in a text: where, and of which kind."""
    for kind, begins, pattern in PATTERNS:
        if any(begin in text for begin in begins):
            for match in pattern.finditer(text):
                yield match.start(), kind
