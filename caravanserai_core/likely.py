"""What looks like a secret in a state and was not declared: told, or refused, and never changed.

A state may hold such a text for good reasons, as fixtures and generated code do. So by default
there is a warning, once for each place, and nothing else. A program that wants to be sure refuses.
"""

from __future__ import annotations

import logging
import os
import re
from typing import TYPE_CHECKING, Final, Literal

from caravanserai_core.errors import SecretFound, UsageError
from caravanserai_core.redact import redact
from caravanserai_core.shapes import SHAPES, may_be_in_bytes, shapes

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["action", "check", "likely_secrets", "suspects"]

_log = logging.getLogger("caravanserai")

_VARIABLE: Final = "CARAVANSERAI_SECRETS"

_ACTIONS: Final = ("warn", "refuse", "ignore")

_MOST: Final = 64 << 10
"""Bytes of one part of a state that are new, up to which they are looked at for a warning."""

_PATTERNS: Final = [(kind, re.compile(pattern.encode())) for kind, _, pattern in SHAPES]

_BEGINS: Final = [
    (begin.encode(), *found)
    for (_, begins, _), found in zip(SHAPES, _PATTERNS, strict=True)
    for begin in begins
]
"""How each begins, its kind and form."""


class _Policy:
    """What the program asked for, and what was told already."""

    def __init__(self) -> None:
        self.action: str | None = None
        self.version = 0
        self.allow: tuple[str, ...] = ()
        self.texts: set[int] = set()
        self.places: set[tuple[str, str]] = set()


_policy = _Policy()


def likely_secrets(
    action: Literal["warn", "refuse", "ignore"], *, allow: Iterable[str] = ()
) -> None:
    """Say what happens to a state that holds what looks like a secret and was not declared.

    Args:
        action: "warn" logs where it is, once for each place; "refuse" raises `SecretFound` and
            writes nothing; "ignore" does not look. Without this call the variable
            CARAVANSERAI_SECRETS says it, else it is "warn".
        allow: what is let through: a kind ("github"), or a place and all below it
            ("$.fixtures").

    Raises:
        UsageError: it is none of these.
    """
    if action not in _ACTIONS:
        raise UsageError(f"likely_secrets takes one of {', '.join(_ACTIONS)}")
    allowed = () if isinstance(allow, str) else tuple(allow)  # a text is a list of its letters
    kinds = {kind for kind, _, _ in SHAPES}
    fits = all(item in kinds or str(item).startswith("$") for item in allowed)
    if isinstance(allow, str) or not fits:
        raise UsageError(
            'likely_secrets: allow= takes a list of places, such as "$.fixtures", and of kinds: '
            f"{', '.join(sorted(kinds))}"
        )
    _policy.action, _policy.allow = action, allowed
    _policy.version += 1
    _policy.texts.clear()


def action() -> str:
    """Return what is done now.

    Raises:
        UsageError: the environment names something else.
    """
    wanted = _policy.action or os.environ.get(_VARIABLE) or "warn"
    if wanted not in _ACTIONS:
        raise UsageError(f"{_VARIABLE} is one of {', '.join(_ACTIONS)}, not {wanted!r}")
    return wanted


def policy() -> tuple[int, str]:
    """Return what tells one decision of the program from the next; `action` is the second.

    Raises:
        UsageError: as `action`.
    """
    return _policy.version, action()


def suspects(data: bytes, wanted: str) -> bool:
    """Say whether encoded bytes may hold what was not told yet; the encoded whole is then checked.

    Args:
        data: the part of a state that is new.
        wanted: what `action` returned.
    """
    if wanted == "warn" and len(data) > _MOST:
        return False
    if not may_be_in_bytes(data):
        return False
    for begin, kind, pattern in _BEGINS:
        if begin in data:
            for match in pattern.finditer(data):
                if wanted == "refuse" or hash((kind, match[0])) not in _policy.texts:
                    return True
    return False


def check(texts: Iterable[tuple[str, str]], data: bytes, wanted: str) -> None:
    """Tell what looks like a secret, or refuse it.

    Args:
        texts: all texts of a state, each with its path.
        data: the state, encoded.
        wanted: what `action` returned.

    Raises:
        SecretFound: it is to be refused.
    """
    for path, text in texts:
        for _, kind in shapes(text):
            if _allowed(path, kind):
                continue
            shown = redact(path)
            if wanted == "refuse":
                raise SecretFound(
                    f"{shown}: looks like a secret ({kind}). Nothing was written. Declare it: "
                    "declare_secret(name, value); or let it through: "
                    'likely_secrets("refuse", allow=[path or kind])',
                    path=shown,
                    name=kind,
                )
            if (path, kind) not in _policy.places:
                _policy.places.add((path, kind))
                _log.warning(
                    "%s looks like a secret (%s) and is written as it is; declare_secret(name, "
                    "value) keeps it out of the store",
                    shown,
                    kind,
                )
    for kind, pattern in _PATTERNS:
        _policy.texts |= {hash((kind, match[0])) for match in pattern.finditer(data)}


def _allowed(path: str, kind: str) -> bool:
    return any(
        item == kind or path == item or (path.startswith(item) and path[len(item)] in ".[")
        for item in _policy.allow
    )
