"""What a job is given: what tells one input from another, and how two are told apart."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from caravanserai.langgraph._words import messages_in, text_of, value_text
from caravanserai_core import codec
from caravanserai_core.quoting import code, quoted


def digest_of(encoded: codec.Encoded) -> str:
    """Return what identifies an input; the order of its fields does not matter to a graph."""
    tree: Any = codec.parse(encoded.data)
    if isinstance(tree, dict):
        tree = dict(sorted(tree.items()))
    return hashlib.sha256(orjson.dumps(tree)).hexdigest()[:32]


def differing(value: Any, other: Any) -> str:
    """Show an input; of two with fields only those that differ."""
    if not isinstance(value, Mapping) or not isinstance(other, Mapping):
        return value_text(value)
    shown = [
        f"{code(str(key))}: {_shown(item)}"
        for key, item in value.items()
        if key not in other or codec.encode(item) != codec.encode(other[key])
    ]
    return ", ".join(shown[:6]) or "fewer fields"


def _shown(value: Any) -> str:
    messages = messages_in(value)
    if messages:
        return ", ".join(f"{m.type} {quoted(text_of(m.content))}" for m in messages[-3:])
    return value_text(value)
