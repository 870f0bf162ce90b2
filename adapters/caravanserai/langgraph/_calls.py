"""Calls of tools that a job took over from the run it goes on from.

A saver sees no calls of tools: they happen inside of nodes, in a `ToolNode` or by hand. So
`BaseTool.run` and `arun`, through which each of them goes (langchain-core 1.8), are changed once,
when the first job needs it. A call is looked at where its node belongs to such a job, and only
one that equals a call of the other run is treated otherwise; all others are made as ever.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import ToolMessage
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from caravanserai.langgraph._ids import run_of
from caravanserai_core import codec
from caravanserai_core.errors import CaravanseraiError, UnserialisableState
from caravanserai_core.questions import digest_of
from caravanserai_core.stepping import Step, bare, same, token_slug
from caravanserai_core.words import arguments_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from caravanserai_core.continuing import Inherited
    from caravanserai_core.effects import OnUncertain
    from caravanserai_core.pipeline import Pipeline

_MARK: Final = "_caravanserai"
_ROOM: Final = 100
"""Most characters of arguments that notes show."""

_HAPPENED: Final = "A person says that this call happened. Its result is not known."

_active: dict[tuple[object, str], Taken] = {}
"""By store and run the job that is at work."""

_lock = threading.Lock()


class Taken:
    """The calls that a job took over, while it is at work.

    Args:
        run: the job's.
        inherited: what it took over.
        policy: what to do about a call of a tool that may have happened.
    """

    def __init__(
        self, run: Pipeline, inherited: Inherited, policy: Callable[[str], OnUncertain]
    ) -> None:
        self.journal = run.journal
        self.policy = policy
        self.inherited = inherited
        self._key = (run.store.key, run.run_id)
        calls = inherited.handed.uncertain if inherited.handed is not None else ()
        self._open = {
            (bare(call.name), same(call.arguments if isinstance(call.arguments, dict) else {}))
            for call in calls
        }
        # What each task has called so far; the task stands beside it, so that its id stays its own.
        self._made: dict[int, tuple[object, Counter[str]]] = {}

    @contextmanager
    def active(self) -> Iterator[None]:
        """Look at calls of tools in this block."""
        instrument()
        before = _active.get(self._key)
        _active[self._key] = self
        try:
            yield
        finally:
            if before is None:
                _active.pop(self._key, None)
            else:
                _active[self._key] = before

    def knows(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Say whether a call equals one that was taken over."""
        if (bare(tool), same(arguments)) in self._open:
            return True
        return self.inherited.recorded(tool, arguments) is not None

    def count(self, task: object, call: str) -> int:
        """Return how often a task has made a call, with this time."""
        with _lock:
            _, made = self._made.setdefault(id(task), (task, Counter()))
            made[call] += 1
            return made[call]


class _Call:
    """A call that equals one of the other run.

    Args:
        taken: what the job took over.
        tool: what is called.
        arguments: what with, by name.
        id_: of the call, as the model gave it; None: it was made by hand.
        place: configuration of its node.
    """

    def __init__(
        self,
        taken: Taken,
        tool: BaseTool,
        arguments: dict[str, Any],
        id_: str | None,
        place: Mapping[str, Any],
    ) -> None:
        self._taken = taken
        self._tool = tool
        self._arguments = arguments
        self._id = id_
        # The same in each start: a namespace ends with the id of the task, which is made of the
        # checkpoint that it starts from; what a model asked for stands in that checkpoint.
        told = f"{tool.name}({same(arguments)})"
        number = 0 if id_ else taken.count(place.get("__pregel_scratchpad"), told)
        key = digest_of([str(place.get("checkpoint_ns", "")), id_, told, number], "a call")
        slug = token_slug(taken.journal.run_id)
        self._step = Step(
            (tool.name, key), "", arguments_text(arguments, _ROOM), token=f"{slug}/{key[:12]}"
        )
        self._given: list[Any] = []

    def once(self, call: Callable[[], Any]) -> Any:
        """Make it, or return what is given in its place."""

        def made() -> Any:
            self._given.append(call())
            return self._kept()

        taken, policy = self._taken, self._taken.policy(self._tool.name)
        with _leaving():
            value = taken.inherited.once(taken.journal, self._step, self._arguments, made, policy)
        return self._result(value)

    async def aonce(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make it from async code; see `once`."""

        async def made() -> Any:
            self._given.append(await call())
            return self._kept()

        taken, policy = self._taken, self._taken.policy(self._tool.name)
        with _leaving():
            value = await taken.inherited.aonce(
                taken.journal, self._step, self._arguments, made, policy
            )
        return self._result(value)

    def _kept(self) -> Any:
        """Return what is recorded of a result: itself, or what a model is told of it."""
        value = self._given[-1]
        try:
            codec.encode(value)
        except UnserialisableState:
            if isinstance(value, ToolMessage):
                return value.model_copy(update={"artifact": None})
            return str(value)
        return value

    def _result(self, value: Any) -> Any:
        """Return a result in the form in which `BaseTool.run` gives it."""
        if self._given:
            return self._given[-1]
        if not self._id or isinstance(value, (ToolMessage, Command, list)):
            return value
        if value is None:
            value = _HAPPENED
        text = value if isinstance(value, str) else codec.encode(value).data.decode()
        return ToolMessage(text, tool_call_id=self._id, name=self._tool.name)


@contextmanager
def _leaving() -> Iterator[None]:
    """Let what stops a job leave a `ToolNode`, which may tell the model of errors instead.

    LangGraph lets one kind of error through everywhere, the kind of its own `interrupt`.
    """
    try:
        yield
    except CaravanseraiError as error:
        if isinstance(error, GraphBubbleUp):
            raise
        own: Any = type(error)
        kind = _both(own)
        made = kind.__new__(kind, *error.args)
        made.args = error.args
        made.__dict__.update(error.__dict__)
        raise made from error


@functools.cache
def _both(kind: Any) -> Any:
    return type(kind.__name__, (kind, GraphBubbleUp), {"__module__": kind.__module__})


# ---------------------------------------------------------------------- LangChain's class


def instrument() -> None:
    """Change `BaseTool`, once."""
    with _lock:
        for name, make in (("run", _run), ("arun", _arun)):
            method = getattr(BaseTool, name)
            if not hasattr(method, _MARK):
                changed = functools.wraps(method)(make(method))
                setattr(changed, _MARK, True)
                setattr(BaseTool, name, changed)


def _run(run: Any) -> Any:
    def instrumented(self: BaseTool, tool_input: Any, *args: Any, **options: Any) -> Any:
        call = _found(self, tool_input, options)
        if call is None:
            return run(self, tool_input, *args, **options)
        return call.once(lambda: run(self, tool_input, *args, **options))

    return instrumented


def _arun(arun: Any) -> Any:
    async def instrumented(self: BaseTool, tool_input: Any, *args: Any, **options: Any) -> Any:
        call = _found(self, tool_input, options)
        if call is None:
            return await arun(self, tool_input, *args, **options)
        return await call.aonce(lambda: arun(self, tool_input, *args, **options))

    return instrumented


def _found(tool: BaseTool, given: Any, options: Mapping[str, Any]) -> _Call | None:
    """Return a call that equals one which the job at work took over; None: it is none."""
    if not _active:
        return None
    config = options.get("config") or var_child_runnable_config.get() or {}
    place = config.get("configurable") or {}
    saver = place.get("__pregel_checkpointer")
    store = getattr(saver, "store", None)
    if store is None or "thread_id" not in place:
        return None
    taken = _active.get((getattr(store, "key", None), run_of(place["thread_id"])))
    if taken is None:
        return None
    arguments = _arguments(tool, given)
    if not taken.knows(tool.name, arguments):
        return None
    return _Call(taken, tool, arguments, options.get("tool_call_id"), place)


def _arguments(tool: BaseTool, given: Any) -> dict[str, Any]:
    """Return what a tool is called with by name, without what LangGraph injects."""
    try:
        names = list(tool.args)
    except Exception:  # noqa: BLE001 - a schema of the program's own, which may be of any kind
        names = []
    if isinstance(given, dict):
        return {name: value for name, value in given.items() if not names or name in names}
    return {names[0] if names else "input": given}
