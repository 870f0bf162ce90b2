"""Errors that must leave a framework which turns what its tools raise into a text for the model.

A question that is open, or a step that a person stopped, ends the start of a run. Told to a model
as "an error occurred" it would be argued with. So an adapter collects them around a tool, and
raises what was collected when the framework has returned.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from caravanserai_core.errors import CaravanseraiError

E = TypeVar("E", bound="CaravanseraiError")

_collected: ContextVar[list[CaravanseraiError] | None] = ContextVar(
    "caravanserai_escaping", default=None
)


def noted(error: E) -> E:
    """Return an error that is about to be raised, after telling whoever collects."""
    found = _collected.get()
    if found is not None:
        found.append(error)
    return error


@contextmanager
def collected() -> Iterator[list[CaravanseraiError]]:
    """Collect what is raised inside of the block, in threads too that have its context."""
    found: list[CaravanseraiError] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        # A generator may be closed in another context than it was begun in.
        with suppress(ValueError):
            _collected.reset(token)
