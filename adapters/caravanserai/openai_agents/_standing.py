"""Where a run stands, and whether what a program brings fits it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents import RunState

from caravanserai.openai_agents import _sdk
from caravanserai.openai_agents._folding import plain
from caravanserai.openai_agents._items import agents_in
from caravanserai.openai_agents._steps import digest
from caravanserai_core.errors import InputChanged, SchemaMismatch, UsageError
from caravanserai_core.quoting import one_line, quoted
from caravanserai_core.words import value_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agents import Agent

    from caravanserai_core.run import Run
    from caravanserai_core.work import Entry


def plain_input(given: Any) -> Any:
    """Return an input as it is kept: a text, or a list of plain items."""
    if not isinstance(given, (str, list, tuple)):
        raise UsageError(
            f"an input is a text, a list of items or a RunState, not {type(given).__name__}"
        )
    if isinstance(given, str):
        return given if type(given) is str else plain(given)
    return plain([_dumped(item) for item in given])


def _dumped(item: Any) -> Any:
    dump = getattr(item, "model_dump", None)
    return dump(mode="json", exclude_unset=True) if callable(dump) else item


def check_input(run_id: str, before: Any, given: Any) -> None:
    """Refuse another input than the one that is recorded.

    Args:
        run_id: the run.
        before: the recorded input, plain.
        given: what the program gives.

    Raises:
        InputChanged: both are shown.
    """
    now = plain_input(given)
    if digest(now) != digest(before):
        raise InputChanged(
            f"run {one_line(run_id)} was begun with {_shown(before, now)} and is now given "
            f"{_shown(now, before)}. Start it with the recorded input, use another run_id, or "
            "begin anew with again=True."
        )


def check_continues(passed: Mapping[str, Any], given: Any = None) -> None:
    """Refuse what a run cannot be given that goes on from another one.

    Args:
        passed: the arguments of the SDK's method, by name.
        given: the input, if the run is new.

    Raises:
        UsageError: it says what.
    """
    for name in ("conversation_id", "previous_response_id"):
        if passed.get(name) is not None:
            raise UsageError(
                f"{name}= names a conversation that the provider keeps, and nobody can see whether "
                "the one that continues= brings is in there already. Give one of the two; "
                "auto_previous_response_id=True goes with continues=."
            )
    if isinstance(given, RunState):
        raise UsageError(
            "a RunState as input goes on by itself, so a new run that begins with one goes on from "
            "no other run. Give a text or items, or leave continues= out."
        )


def _shown(given: Any, other: Any) -> str:
    """Show an input; of two lists the first item that differs."""
    if isinstance(given, str):
        return quoted(given, 200)
    others = other if isinstance(other, list) else []
    for place, item in enumerate(given):
        if place >= len(others) or digest(item) != digest(others[place]):
            return f"{len(given)} items, of which number {place + 1} is {value_text(item)}"
    return f"{len(given)} items" if given else "no items"


def why_not(run: Run, agent: Agent[Any], before: dict[str, Any], error: Exception) -> str:
    """Say why a state cannot be taken up, and what to do.

    Args:
        run: the run.
        agent: the agent that it was started with.
        before: the state of its newest waypoint.
        error: what the SDK says.
    """
    where = (
        f"waypoint {run.waypoint} of run {one_line(run.run_id)}, written with "
        f"openai-agents {one_line(str(before.get('sdk')), 30)} and read with "
        f"{_sdk.sdk_version()}, cannot be taken up: {one_line(str(error), 300).rstrip('.')}."
    )
    known = [one.name for one in _sdk.reachable(agent)]
    gone = [name for name in agents_in(before["run"]) if name not in known]
    if gone:
        names = ", ".join(quoted(one, 60) for one in gone[:4])
        return (
            f"{where} It names agent {names}, and the agent given reaches only "
            f"{', '.join(quoted(one, 60) for one in known[:8])}. Give the agent its name back, or "
            f"lead the run to the new one: migrations=[rename_agent({gone[0]!r}, …)], from "
            "caravanserai.openai_agents.migrations."
        )
    return f"{where} Nothing was changed. Use the version that wrote it, or a newer one."


def check_tools(run: Run, agent: Agent[Any], answers: Iterable[Entry]) -> None:
    """Refuse to go on where a recorded answer calls a tool that is gone.

    Args:
        run: the run.
        agent: the agent whose turn it is.
        answers: those of models since the newest waypoint.

    Raises:
        SchemaMismatch: it names the tool, the agent, and what there is.
    """
    if agent.mcp_servers:
        return  # their tools are not known before they are listed
    names = _sdk.callable_names(agent)
    for entry in answers:
        if entry.meta.get("path"):
            continue
        for item in entry.data.get("output", ()):
            name = item.get("name")
            invented = entry.meta.get("invented", ())  # what the SDK does about it is its own
            gone = name not in names and name not in invented
            if item.get("type") == "function_call" and gone:
                raise SchemaMismatch(
                    f"run {one_line(run.run_id)}: the model of {quoted(agent.name, 60)} "
                    f"called tool {quoted(str(name), 60)} before the process ended, and the "
                    f"agent has no such tool any more; it has {', '.join(sorted(names)[:12])}"
                    ". Give it the tool back until this run has gone on, or begin anew with "
                    "again=True."
                )
