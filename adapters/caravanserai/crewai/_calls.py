"""Calls of tools: recorded before they begin and when they ended, as steps of the core."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from crewai.hooks.dispatch import HookAborted
from crewai.tools.agent_tools.base_agent_tools import BaseAgentTool
from crewai.tools.structured_tool import CrewStructuredTool
from crewai.tools.tool_failure import ToolExecutionFailedError

from caravanserai.crewai._escape import leaving
from caravanserai.crewai._steps import GIVEN, RAISED, TOOL, Place, at, called_with, digest
from caravanserai_core import codec
from caravanserai_core.errors import CaravanseraiError, UnserialisableState
from caravanserai_core.escaping import collected
from caravanserai_core.questions import digest_of
from caravanserai_core.quoting import error_text, one_line
from caravanserai_core.stepping import Step
from caravanserai_core.threads import in_thread, wait_for
from caravanserai_core.words import arguments_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_log = logging.getLogger("caravanserai")

_ROOM = 100
"""Most characters of arguments that notes show."""


class _Call(NamedTuple):
    """A call of a tool at its place in a run.

    Attributes:
        place: where it is called.
        tool: what is called.
        arguments: what with, by name.
        key: what tells it from others.
        work: calls it.
    """

    place: Place
    tool: Any
    arguments: dict[str, Any]
    key: str
    work: Callable[[], Any]

    @property
    def inside(self) -> Place:
        """The place of what the tool does."""
        return self.place.inside(digest(self.key))

    @property
    def step(self) -> Step:
        """The call as a step of the core."""
        name = self.place.job.known_as(str(self.tool.name))
        room = max(40, _ROOM + 30 - len(name)) if len(name) > 30 else _ROOM
        return Step(
            (name, digest_of(self.key, "a call")),
            "",
            arguments_text(self.arguments, room),
            token=f"{self.place.job.token}/{digest(self.key)}",
        )


def call_tool(
    place: Place,
    tool: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    work: Callable[[], Any],
) -> Any:
    """Call a tool, or return what the very call gave before.

    Args:
        place: where it is called.
        tool: a `BaseTool`, or what CrewAI makes of one for a model that calls tools by text.
        args: what it is called with.
        kwargs: likewise, by name.
        work: calls it.
    """
    call = _begun(place, tool, args, kwargs, work)
    if _delegates(tool):
        # What the coworker does is recorded itself, so the call can be made again.
        with at(call.inside), _noticed(call) as given:
            given.append(work())
        return given[0]
    given = []

    def run() -> Any:
        with _working(call):
            value = work()
        given.append(value)
        return _kept(tool, value)

    with _noticed(call) as found:
        policy, taken = place.job.policy(tool.name), place.job.inherited
        value = taken.once(place.job.journal, call.step, call.arguments, run, policy)
        found.append(given[0] if given else _counted(call, value))
    return found[0]


async def acall_tool(
    place: Place,
    tool: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    work: Callable[[], Any],
) -> Any:
    """Call a tool from async code; see `call_tool`. What `work` returns is awaited."""
    call = await wait_for(in_thread(lambda: _begun(place, tool, args, kwargs, work)))
    if _delegates(tool):
        with at(call.inside), _noticed(call) as given:
            given.append(await work())
        return given[0]
    given = []

    async def run() -> Any:
        with _working(call):
            value = await work()
        given.append(value)
        return _kept(tool, value)

    with _noticed(call) as found:
        policy, taken = place.job.policy(tool.name), place.job.inherited
        value = await taken.aonce(place.job.journal, call.step, call.arguments, run, policy)
        found.append(given[0] if given else _counted(call, value))
    return found[0]


def _begun(
    place: Place,
    tool: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    work: Callable[[], Any],
) -> _Call:
    """Return a call that begins; raises what the very call raised before."""
    place.job.stop_if_leaving()
    arguments = _arguments(tool, args, kwargs)
    key = place.steps.key(TOOL, place.path, called_with(str(tool.name), arguments))
    call = _Call(place, tool, arguments, key, work)
    raised = place.steps.recorded(f"{key}|{RAISED}")
    if raised is not None:
        place.job.called(place, tool.name, arguments, raised["text"], failed=True)
        raise _again(raised)
    if "/" not in place.path:
        _keep_given(call)
    return call


def _keep_given(call: _Call) -> None:
    """Write down what a method of a flow itself calls a tool with: no model's answer says it."""
    key = f"{call.key}|{GIVEN}"
    if call.place.steps.recorded(key) is None:
        # What cannot be kept is told as far as notes show it.
        with suppress(UnserialisableState):
            call.place.steps.record(key, call.arguments, durable=False)


def _arguments(tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return what a tool is called with, by name."""
    if isinstance(tool, CrewStructuredTool):
        # `config` tells who calls: ids of this process's agents and tasks.
        given = kwargs.get("input", args[0] if args else {})
        return dict(given) if isinstance(given, Mapping) else {"input": given}
    return {f"argument {n}": value for n, value in enumerate(args, 1)} | kwargs


def _delegates(tool: Any) -> bool:
    """Say whether a tool lets another agent work."""
    return isinstance(getattr(tool, "_original_tool", None) or tool, BaseAgentTool)


def _counted(call: _Call, value: Any) -> Any:
    """Count a call that is not made again, and what it asked models, as where it is made."""
    tool = call.tool
    call.place.job.given_again(call.inside)
    if tool.max_usage_count is not None:
        (
            tool._increment_usage_count
            if isinstance(tool, CrewStructuredTool)
            else tool._claim_usage
        )()
    return value


@contextmanager
def _working(call: _Call) -> Iterator[None]:
    """Let a tool do its work; what ends the start inside of it leaves CrewAI.

    What it raises is recorded before the core records that it did: a kill in between does not let
    it be called again.
    """
    with at(call.inside), collected() as escaping:
        try:
            yield
        except (CaravanseraiError, HookAborted, ToolExecutionFailedError):
            raise
        except Exception as error:
            if not escaping:
                told = {"type": type(error).__name__, "text": str(error)}
                call.place.steps.record(f"{call.key}|{RAISED}", told, durable=False)
            raise
        finally:
            if escaping:
                call.place.job.leave(escaping[0])
    if escaping:
        raise escaping[0]


@contextmanager
def _noticed(call: _Call) -> Iterator[list[Any]]:
    """Note how a call ended: the value that the block puts into a list, or what it raises."""
    given: list[Any] = []
    place, name = call.place, str(call.tool.name)
    try:
        yield given
    except CaravanseraiError as error:
        if isinstance(error, HookAborted):
            raise
        # CrewAI would make a text for the model of it.
        place.job.leave(error)
        raise leaving(error) from error
    except (HookAborted, ToolExecutionFailedError):
        raise  # the program stops the run
    except Exception as error:
        place.job.called(place, name, call.arguments, error_text(error), failed=True)
        raise
    text = _text(call.tool, given[0])
    place.steps.note(call.key, {"gave": text, "of": call.step.of})
    place.job.called(place, name, call.arguments, text, failed=False)


def _again(raised: dict[str, Any]) -> Exception:
    """Return an error that CrewAI tells the model of as of the one that was raised."""
    kind = type(str(raised["type"]), (Exception,), {"__module__": __name__})
    return kind(str(raised["text"]))  # type: ignore[no-any-return]


def _kept(tool: Any, value: Any) -> Any:
    """Return what is recorded of a result: itself, or what CrewAI tells the model of it."""
    try:
        codec.encode(value)
    except UnserialisableState as error:
        _log.warning(
            "a result of tool %s cannot be kept exactly (%s): after a crash its text is given "
            "in its place, which is what the model is told",
            one_line(str(tool.name), 60),
            error,
        )
        return _text(tool, value)
    return value


def _text(tool: Any, value: Any) -> str:
    formatted = getattr(tool, "format_output_for_agent", None)
    return str(formatted(value) if callable(formatted) else value)
