"""Runs inside of a run: of an agent that is a tool, and those that a tool starts itself.

All of them come to the SDK's default runner. A runner of ours stands in front of that one: inside
of a run of ours it lets the models that the inner run's own `run_config` names be recorded, and
keeps the inner run's session; everywhere else it passes on.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agents import RunState
from agents.models.interface import Model

from caravanserai.openai_agents import _sdk
from caravanserai.openai_agents._instrument import instrument_model, prepare, prepare_provider
from caravanserai.openai_agents._kept_session import KeptSession
from caravanserai.openai_agents._steps import Place, SessionLog, digest, here

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agents import Agent, RunConfig, RunResult, RunResultStreaming


def stand_in_front() -> None:
    """Put a runner in front of the SDK's default runner, or the program's; once for each."""
    behind = _sdk.default_runner()
    if not isinstance(behind, InFront):
        _sdk.set_default_runner(InFront(behind))


class InFront(_sdk.Engine):
    """Passes on to a runner what the runs inside of a run of ours need.

    Args:
        behind: the runner.
    """

    def __init__(self, behind: _sdk.Engine) -> None:
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        if name == "_behind":  # not there yet: while it is copied or unpickled
            raise AttributeError(name)
        return getattr(self._behind, name)

    async def run(self, starting_agent: Agent[Any], input: Any, **given: Any) -> RunResult:  # noqa: A002 - the SDK's name
        """Run an agent, see `agents.Runner.run`."""
        with _inside(starting_agent, input, given) as own:
            try:
                return await self._behind.run(starting_agent, input, **given)
            finally:
                if own is not None:
                    await _sdk.close_provider(own)

    def run_sync(self, starting_agent: Agent[Any], input: Any, **given: Any) -> RunResult:  # noqa: A002 - the SDK's name
        """Run an agent, see `agents.Runner.run_sync`."""
        # Its provider stays open: it belongs to an event loop that only the SDK knows.
        with _inside(starting_agent, input, given):
            return self._behind.run_sync(starting_agent, input, **given)

    def run_streamed(
        self,
        starting_agent: Agent[Any],
        input: Any,  # noqa: A002 - the SDK's name
        **given: Any,
    ) -> RunResultStreaming:
        """Start an agent, see `agents.Runner.run_streamed`."""
        with _inside(starting_agent, input, given) as own:
            result = self._behind.run_streamed(starting_agent, input, **given)
        if own is not None:
            _sdk.close_provider_after(result, own)
        return result


@contextmanager
def _inside(agent: Agent[Any], start: Any, given: dict[str, Any]) -> Iterator[RunConfig | None]:
    """Let a run begin at its place in the run around it; changes what it is given.

    Yields:
        The configuration whose provider nobody else closes, if there is one.
    """
    place = _place(here.get(), agent, start, given.get("session"))
    if place is None:
        yield None
        return
    config, own = _sdk.config_of(given.get("run_config"))
    given["run_config"] = config
    prepare(agent)
    prepare_provider(config.model_provider)
    if isinstance(config.model, Model):
        instrument_model(config.model)
    if given.get("session") is not None:
        given["session"] = _kept(place, given["session"])
    token = here.set(place)
    try:
        yield config if own else None
    finally:
        here.reset(token)


def _place(place: Place | None, agent: Agent[Any], start: Any, session: Any) -> Place | None:
    """Return where a run is that begins at a place, or None where nothing of it is recorded.

    An agent that is a tool runs at the place of the call. What code of the program starts itself is
    told from others by whom it asks what: it may start some at once.
    """
    # The run itself begins at no call. A guardrail that tripped is to judge anew, not from records.
    if place is None or not place.path or place.judges:
        return None
    if place.ordered:
        return place
    asked = start._original_input if isinstance(start, RunState) else start
    name = digest(agent.name, asked, getattr(session, "session_id", None))
    path = f"{place.path}/{name}"
    path = f"{path}#{place.steps.next_seen(path)}"
    place.job.enter(path, agent)
    return place.inside(path, ordered=True)


def _kept(place: Place, session: Any) -> KeptSession:
    if isinstance(session, KeptSession):  # a program's runner has one of ours behind it, too
        return session
    steps = place.steps
    path = f"{place.path}/session"
    path = f"{path}#{steps.next_seen(path)}"
    kept = KeptSession(
        session,
        SessionLog(steps, path),
        first=steps.counts[path] + 1,
        others=steps.writers(session),
    )
    steps.sessions[path] = kept
    return kept
