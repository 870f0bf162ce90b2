"""LangGraph's own types in checkpoints, under names that stay when LangGraph moves a class.

Everything that LangGraph's default serialiser handles comes back as it was: what is not here is
a type of the standard library, a message (`caravanserai.langchain`), or found by its own name
among the modules that the program has imported.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import GetOp, Item, SearchItem
from langgraph.types import (
    Command,
    Interrupt,
    Overwrite,
    PregelTask,
    Send,
    StateSnapshot,
    TimeoutPolicy,
)

from caravanserai import langchain
from caravanserai_core import codec
from caravanserai_core.redact import redact

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["KeptError", "kept_error", "register"]

_LONGEST_TEXT: Final = 10_000


@dataclass(frozen=True)
class KeptError:
    """What is kept of an exception: an object of its class cannot be kept exactly.

    Attributes:
        type: `module.Name` of its class; the name alone for a builtin.
        text: what `str` gave of it.
        shown: what `repr` gave of it, which is what LangGraph's own serialiser keeps.
    """

    type: str
    text: str
    shown: str

    def __str__(self) -> str:
        return self.shown


def kept_error(error: BaseException) -> KeptError:
    """Return what is kept of an exception, with texts of at most 10,000 characters each."""
    cls = type(error)
    name = cls.__qualname__
    if cls.__module__ != "builtins":
        name = f"{cls.__module__}.{name}"
    return KeptError(name, _text(str, error), _text(repr, error))


def _text(make: Callable[[object], str], error: BaseException) -> str:
    try:
        text = str(make(error))
        if len(text) > _LONGEST_TEXT:
            text = redact(text)[:_LONGEST_TEXT]  # before it is cut: of half a secret nobody knows
        return text
    except Exception as failed:  # noqa: BLE001  # a program's own method; the class says enough
        return f"<{type(failed).__name__} while this was shown>"


_NAMED: Final = (
    *(Command, Interrupt, Overwrite, PregelTask, StateSnapshot, TimeoutPolicy),
    *(GetOp, KeptError),
)
"""Dataclasses and named tuples."""

_SLOTTED: Final[tuple[tuple[type, tuple[str, ...]], ...]] = (
    (Send, ("node", "arg", "timeout")),
    (Item, ("value", "key", "namespace", "created_at", "updated_at")),
    (SearchItem, ("value", "key", "namespace", "created_at", "updated_at", "score")),
)
"""Classes that are neither, with the slots that hold all they have."""

_lock = threading.Lock()
_registered = False


def register() -> None:
    """Teach the codec LangGraph's types and LangChain's messages; a second call does nothing."""
    global _registered
    langchain.register()
    with _lock:
        if _registered:
            return
        for cls in _NAMED:
            codec.register_type(cls, name=f"langgraph.{cls.__name__}")
        codec.register_type(_DeltaSnapshot, name="langgraph.DeltaSnapshot")
        for slotted, slots in _SLOTTED:
            _register_slots(slotted, [name for name in slots if hasattr(slotted, name)])
        _registered = True


def _register_slots(cls: type, slots: list[str]) -> None:
    known = set(slots)

    def encode(value: object) -> dict[str, Any]:
        return {name: object.__getattribute__(value, name) for name in slots}

    def decode(content: object) -> object:
        if type(content) is not dict or content.keys() != known:
            raise ValueError
        value: object = object.__new__(cls)
        for name, item in content.items():
            object.__setattr__(value, name, item)
        return value

    codec.register_codec(cls, name=f"langgraph.{cls.__name__}", encode=encode, decode=decode)
