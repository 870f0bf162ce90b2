"""Errors that must leave CrewAI, which makes a text for the model of what a tool raises.

CrewAI lets one kind of error through but for the body of a tool: the one by which a hook stops a
run. So what has to stop a start is raised as an error of both kinds, again at the next question to
a model or call of a tool where a tool raised it, and told as what it is where it has left.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from crewai.hooks.dispatch import HookAborted

if TYPE_CHECKING:
    from caravanserai_core.errors import CaravanseraiError


@functools.cache
def _both(kind: Any) -> type[CaravanseraiError]:
    return type(kind.__name__, (kind, HookAborted), {"__module__": kind.__module__})


def leaving(error: CaravanseraiError) -> CaravanseraiError:
    """Return an error as one that CrewAI lets through."""
    if isinstance(error, HookAborted):
        return error
    kind: Any = type(error)
    cls = _both(kind)
    made = cls.__new__(cls, *error.args)
    made.args = error.args
    made.__dict__.update(error.__dict__)
    made.__dict__.update(reason=str(error), source="caravanserai")
    made.__cause__ = error
    return made
