"""Stand-ins for the operating system: one that fails at a chosen call, one that keeps a log."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from caravanserai_core.stores._seam import Files

CALLS = (
    *("open", "close", "read", "write", "truncate", "sync_data", "sync_dir", "lock", "unlock"),
    *("fstat", "stat", "lstat", "listdir", "mkdir", "rename", "unlink"),
    *("rmdir", "own", "owner"),
)
"""Every call of the seam."""

_RELEASING = {"close", "unlock"}
"""Calls that have done their work also where they report an error."""


class Wrapped(Files):
    """The real system, with every call led through `call`."""

    def __init__(self) -> None:
        real = Files()
        for name in CALLS:
            setattr(self, name, self._around(name, getattr(real, name)))

    def _around(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: self.call(name, real, args)

    def call(self, name: str, real: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Do one call."""
        return real(*args)


class Failing(Wrapped):
    """Raises at the n-th call after `arm`.

    Attributes:
        calls: the calls since then, by name.
        fired: whether the fault came.
    """

    def __init__(self) -> None:
        super().__init__()
        self.arm(0, OSError())

    def arm(
        self,
        at: int,
        problem: BaseException,
        *,
        only: str | None = None,
        short: bool = False,
        lasting: bool = False,
    ) -> None:
        """Choose the fault.

        Args:
            at: which call fails, from 1; 0 for none.
            problem: what it raises.
            only: count the calls of this name alone.
            short: a write that fails has written half of its bytes.
            lasting: later calls (of that name) fail too.
        """
        self.at, self.problem, self.only, self.short, self.lasting = (
            *(at, problem, only, short),
            lasting,
        )
        self.calls: list[str] = []
        self.fired = False

    def call(self, name: str, real: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if self.only is not None and name != self.only:
            return real(*args)
        if name == "close" and isinstance(self.problem, KeyboardInterrupt):
            return real(*args)  # the same as one right behind it, but for abandoned generators
        self.calls.append(name)
        number = len(self.calls)
        if not self.at or number < self.at or (number > self.at and not self.lasting):
            return real(*args)
        self.fired = True
        if name in _RELEASING:
            real(*args)
        if name == "write" and self.short:
            os.write(args[0], bytes(args[1][: len(args[1]) // 2]))
        raise self.problem


class Logging(Wrapped):
    """Keeps a log of every call with its arguments and its result or error."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, tuple[Any, ...], Any]] = []

    def call(self, name: str, real: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        try:
            result = real(*args)
        except OSError as error:
            self.log.append((name, args, error))
            raise
        self.log.append((name, args, result))
        return result
