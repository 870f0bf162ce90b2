"""A job that goes on from another run: what its graph is given, and calls that it took over."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai.langchain import messages_from
from caravanserai.langgraph import _calls
from caravanserai.langgraph._notes import goal_of, untold
from caravanserai_core import continuing
from caravanserai_core.continuing import Inherited
from caravanserai_core.errors import UsageError
from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langgraph.pregel import Pregel

    from caravanserai_core.effects import OnUncertain
    from caravanserai_core.handed import Handoff
    from caravanserai_core.pipeline import Pipeline

Seed = Callable[["Handoff", Any], Any]
"""Makes the input of a graph from a handoff and from what the program gives."""

_MESSAGES = "messages"


class Given(NamedTuple):
    """What the program says of another run.

    Attributes:
        continues: the run to go on from, a handoff of it, or None.
        replay: names of tools whose recorded results are given again.
        seed: makes the input of the graph, or None: see `with_messages`.
        on_uncertain: what to do about a call that may have happened there.
    """

    continues: str | Handoff | None = None
    replay: Sequence[str] = ()
    seed: Seed | None = None
    on_uncertain: OnUncertain | Mapping[str, OnUncertain] | None = None


class Handed:
    """What a job goes on from, if it does.

    Args:
        graph: the graph.
        given: what the program says of it.

    Raises:
        UsageError: the graph cannot be given a conversation, or `given` means nothing.
    """

    def __init__(self, graph: Pregel[Any, Any, Any, Any], given: Given) -> None:
        self._graph = graph
        self._given = given
        self._handoff: Handoff | None = None
        self._inherited = Inherited(None)
        chosen = given.on_uncertain
        policies = chosen.values() if isinstance(chosen, Mapping) else [chosen]
        if any(one not in (None, "ask", "rerun", "stop") for one in policies):
            raise UsageError(
                'on_uncertain= is "ask", "rerun" or "stop", or a dict of tools to these'
            )
        if given.seed is not None and not callable(given.seed):
            raise UsageError("seed= is a function of a handoff and the input; it returns the input")
        if isinstance(given.replay, str):
            Inherited(None, given.replay)  # says what is wrong with it
        if given.continues is not None:
            self._check_graph()

    def begin(self, run: Pipeline, value: Any) -> Handoff | None:
        """Let a new job go on from the other run; return what this one was handed, or None.

        Args:
            run: the job's.
            value: what the job is given.

        Raises:
            InputChanged, RunNotFound, WaypointNotFound, RunBusy, UsageError: see `begin` of the
                core's `continuing`.
        """
        if not run.exists:
            run.begin(untold(lambda: goal_of(value), None))
        if self._given.continues is not None:
            self._handoff = continuing.begin(run.journal, self._given.continues)
        else:
            self._handoff = continuing.handed_to(run.journal)
        self._inherited = Inherited(self._handoff, self._given.replay)
        return self._handoff

    def seeded(self, value: Any) -> Any:
        """Return what the graph is invoked with, given what the program gives."""
        handoff = self._handoff
        if handoff is None:
            return value
        if self._given.seed is not None:
            return self._given.seed(handoff, value)
        self._check_graph()
        return with_messages(handoff, value)

    @contextmanager
    def during(self, run: Pipeline) -> Iterator[None]:
        """Let calls that the job took over be what they were, in this block."""
        if not self._given.replay and (self._handoff is None or not self._handoff.uncertain):
            yield
            return
        taken = _calls.Taken(run, self._inherited, self._policy)
        with taken.active():
            yield

    def _policy(self, tool: str) -> OnUncertain:
        chosen = self._given.on_uncertain
        if isinstance(chosen, Mapping):
            chosen = chosen.get(tool)
        return chosen or "rerun"

    def _check_graph(self) -> None:
        if self._given.seed is None and not _takes_messages(self._graph):
            raise UsageError(
                "this graph takes no `messages`, so it cannot be given the conversation of the run "
                "that it goes on from. Say how with seed=, a function of the handoff and of the "
                "input that returns the input: "
                'seed=lambda handoff, given: {**given, "before": handoff.text}'
            )


def with_messages(handoff: Handoff, value: Any) -> Any:
    """Return an input with the messages of another run in front of its own.

    Args:
        handoff: of the other run.
        value: the input: a dict, a dataclass or a pydantic model; None: nothing more.

    Raises:
        UsageError: it is something else.
    """
    seed = messages_from(handoff)
    if value is None:
        return {_MESSAGES: seed}
    own = value.get(_MESSAGES) if isinstance(value, Mapping) else getattr(value, _MESSAGES, None)
    more = own if isinstance(own, list) else [] if own is None else [own]
    if isinstance(value, Mapping):
        return {**value, _MESSAGES: [*seed, *more]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, messages=[*seed, *more])
    copy: Any = getattr(value, "model_copy", None)
    if copy is not None:
        return copy(update={_MESSAGES: [*seed, *more]})
    raise UsageError(
        f"the input is a {one_line(type(value).__name__, 60)}, and the conversation of the run "
        'that this one goes on from belongs into a field `messages`: give {"messages": …}, or '
        "say with seed= where it goes"
    )


def _takes_messages(graph: Any) -> bool:
    """Say whether a graph's input has `messages`: what else is in it, `__start__` leaves out."""
    builder: Any = getattr(graph, "builder", None)
    try:
        return _MESSAGES in builder.schemas[builder.input_schema]
    except (AttributeError, KeyError, TypeError):
        names = graph.input_channels
        return _MESSAGES in ([names] if isinstance(names, str) else names)
