"""How the codec says where in a value something is wrong.

The walks that encode and decode do not carry a path: it would cost on every element. They
raise a `Fault` instead, and each level that it passes adds its own step, so a path is only ever
built for a value that is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from caravanserai_core.errors import (
    SchemaMismatch,
    SecretChanged,
    SecretFound,
    SecretMissing,
    UnknownType,
    UnserialisableState,
)
from caravanserai_core.redact import redact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from caravanserai_core.errors import CaravanseraiError

__all__ = ["PAIR_TAGS", "Fault", "clean", "secret_refused", "step", "type_name"]

PAIR_TAGS = frozenset({"$dict", "$ordereddict", "$counter", "$defaultdict"})
"""Tags whose content is a list of [key, value]."""

_ASIDE = frozenset({"._extra", "._private", "._cached"})
_LONGEST = 80


class Fault(Exception):
    """A value that is refused, on its way up to the caller.

    Attributes:
        problem: what is wrong and what to do, without the path and without any value.
        error: the public error that it becomes.
        name: the stored name of a type, for `UnknownType`; the name of a secret.
        steps: the path from the inside out.
    """

    def __init__(
        self,
        problem: str,
        error: type[CaravanseraiError] = UnserialisableState,
        name: str = "",
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.error = error
        self.name = name
        self.steps: list[str] = []

    def within(self, tag: str, content: object) -> None:
        """Turn steps through the stored form of a tag into steps through its value.

        `{"$deque": {"items": [..]}}` is entered by `.items[3]`, which means `[3]` of the deque.
        """
        steps = self.steps
        if tag == "$object":
            if steps and steps[-1] == ".value":
                kind = content.get("kind") if isinstance(content, dict) else None
                del steps[-1]
                if type(kind) is str and kind == "pydantic" and steps:
                    del steps[-1]
        elif tag in PAIR_TAGS:
            if isinstance(content, dict) and steps and steps[-1] == ".items":
                content = content.get("items")
                del steps[-1]
            if len(steps) >= 2 and isinstance(content, list):
                self._within_pair(content)
        elif tag == "$deque":
            if steps and steps[-1] == ".items":
                del steps[-1]
        elif tag in {"$set", "$frozenset"} and steps:
            steps[-1] = "[*]"
        elif tag == "$same":
            if len(steps) >= 2 and steps[-1] == ".then" and isinstance(content, dict):
                steps[-2:] = [f"[{content['first'] + int(steps[-2][1:-1])}]"]
        elif tag == "$text":
            del steps[-1:]
        elif "." in tag and steps and steps[-1] in _ASIDE:
            del steps[-1]

    def _within_pair(self, pairs: Sequence[object]) -> None:
        steps = self.steps
        pair = pairs[int(steps.pop()[1:-1])]
        if steps.pop() == "[1]" and isinstance(pair, list) and pair:
            steps.append(step(pair[0]))
        else:
            # There is no way to write a path into a key: name the dict, and say that it is a key.
            steps.clear()
            self.problem = f"a key is refused: {self.problem}"

    def raised(self) -> CaravanseraiError:
        """The public error, with the path that the levels have put together."""
        path = "$" + "".join(reversed(self.steps))
        message = f"{path}: {self.problem}"
        if issubclass(self.error, UnknownType):
            return UnknownType(message, path=path, type_name=self.name)
        if issubclass(self.error, SchemaMismatch):
            return SchemaMismatch(message, path=path)
        if issubclass(self.error, (SecretFound, SecretMissing, SecretChanged)):
            return self.error(message, path=path, name=self.name)
        return UnserialisableState(message, path=path)


def secret_refused(source: str) -> Fault:
    """Why a value that holds a declared secret is not kept."""
    return Fault(
        f"holds the secret {source} as base64 or percent-encoded, as repr() or another language's "
        "JSON writes it, in a number or in bytes, and a reference could not bring that back; keep "
        "the secret as a text, or make what holds it anew when it is needed",
        SecretFound,
        source,
    )


def earlier_refused(source: str) -> Fault:
    """Why a value is not kept that a secret had before it got another one."""
    return Fault(
        f"holds an earlier value of the secret {source}, which has another one by now: a reference "
        "would bring that back in its place. Take the new value, or leave the old one out",
        SecretFound,
        source,
    )


def clean(text: str, longest: int = _LONGEST) -> str:
    """A text from outside, fit for a message: control characters escaped, cut when long."""
    shown = text[:longest]
    if not shown.isprintable():
        shown = shown.encode("unicode_escape").decode("ascii")
    return f"{shown}…" if len(text) > longest else shown


def step(key: object) -> str:
    """One step of a path: `.name`, `["two words"]`, `[3]`, or the type of a stranger key."""
    if type(key) is str:
        key = redact(key)  # a path stands in errors and in the log
        if key.isidentifier() and key.isprintable() and len(key) <= _LONGEST:
            return f".{key}"
        quoted = clean(key).replace('"', '\\"')
        return f'["{quoted}"]'
    if type(key) is int and -(10**18) < key < 10**18:
        return f"[{key}]"
    return f"[<{type_name(type(key))}>]"


def type_name(cls: type) -> str:
    """The name of a class for a message: `module.Name`, without the module for builtins."""
    module = type.__getattribute__(cls, "__module__")
    name = type.__getattribute__(cls, "__qualname__")
    return clean(str(name) if module == "builtins" else f"{module}.{name}", 200)
