"""What to tell about a value that cannot be kept: its type and what to do, never the value."""

from __future__ import annotations

import datetime
import types
import uuid
from typing import TYPE_CHECKING

from caravanserai_core.codec._fault import Fault, clean, type_name
from caravanserai_core.codec._unfit import Unfit

if TYPE_CHECKING:
    from typing import Any

__all__ = ["is_secret", "refusal"]

_SECRETS = frozenset({"Secret", "SecretStr", "SecretBytes"})
_KEPT = (
    str, int, float, complex, list, dict, tuple, set, frozenset, bytes, bytearray,
    datetime.datetime, datetime.date, datetime.time, datetime.timedelta, uuid.UUID,
)  # fmt: skip
_PLACES = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)
_RUNNING = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)


def is_secret(cls: type) -> bool:
    """Whether a class is one of pydantic's wrappers for secrets."""
    return any(
        base.__module__ == "pydantic.types" and base.__name__ in _SECRETS for base in cls.__mro__
    )


def refusal(value: Any, cls: type) -> Fault:
    """Why an object of this exact class is not kept."""
    return Fault(f"the type {type_name(cls)} {_advice(value)}")


def _advice(value: object) -> str:
    if isinstance(value, Unfit):
        return (
            f"stands for a {clean(value.type_name)} that no longer fits its type; a migration has "
            "to put something else in its place"
        )
    if isinstance(value, _PLACES):
        return (
            "(a class, function or module) cannot be kept; store its name and look it up after "
            "loading"
        )
    if isinstance(value, _RUNNING):
        return "runs and cannot be kept; store what it yields, for example as a list"
    if isinstance(value, BaseException):
        return "is an exception and cannot be kept; store its text"
    for base in _KEPT:
        if isinstance(value, base):
            return (
                f"is a subclass of {base.__name__} and would come back as another type; convert "
                f"it to {base.__name__}, or register_codec(cls, name=...)"
            )
    return (
        "cannot be kept exactly; store plain data in its place, make it a dataclass, or "
        "register_codec(cls, name=...)"
    )
