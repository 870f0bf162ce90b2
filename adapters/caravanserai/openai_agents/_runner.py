"""The SDK's runner, for runs that survive their process."""

from __future__ import annotations

import asyncio
import contextvars
import warnings
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from agents import MaxTurnsExceeded, ModelBehaviorError, RunResult

from caravanserai.openai_agents import _recorded, _sdk
from caravanserai.openai_agents._job import Job
from caravanserai.openai_agents._options import Options, check_options
from caravanserai_core.errors import CaravanseraiError
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from agents import (
        Agent,
        RunConfig,
        RunErrorHandlers,
        RunHooks,
        RunResultStreaming,
        RunState,
        Session,
        TResponseInputItem,
    )

    from caravanserai_core.continuing import Continues
    from caravanserai_core.effects import OnUncertain
    from caravanserai_core.homes import StoreLike
    from caravanserai_core.schema import Migrations

T = TypeVar("T")

MAX_TURNS = 10
"""`agents.run.DEFAULT_MAX_TURNS` (openai-agents 0.20 to 0.24)."""


class Runner:
    """`agents.Runner`, whose runs go on where a crash left them, by the same line.

        from caravanserai.openai_agents import Runner

        result = await Runner.run(agent, "Refund order A17 please.", run_id="order-a17")

    A new run is started; one that did not end goes on; of one that is finished the recorded
    result is returned, and no model is asked. Each turn is a waypoint; inside a turn each answer
    of a model is written down before its tools start, and each call of a tool before it begins
    and when it ended. The parameters are those of the SDK (openai-agents 0.20 to 0.24), and these:

    Args:
        run_id: the name of the run, any string.
        store: a store, a folder or URL; by default CARAVANSERAI_STORE, else `.caravanserai` here.
        again: begin anew, with any input; what was recorded stays in the history.
        takeover: take the run from another living process, if one works on it.
        schema: the schema of the states that this program writes; see docs/guarantees/versions.md.
        migrations: one function for each step from schema to schema.
        on_uncertain: what to do about a call of a tool that began and never reported back, because
            its process was killed: "rerun" makes it again, with the same call id and idempotency
            key, and the notes say so; "ask" asks a person first; "stop" raises. For all tools, or
            by a tool's name. By default tools that need approval ask, others run again.
        context_serializer: returns what is kept of the context at each waypoint, any value that can
            be kept. Without it nothing of the context is written.
        context_deserializer: makes the context of that again; without it the context given counts.
        continues: the run that a new run goes on from, of whatever framework: "RUN" or "RUN@3", in
            the same store; or what `handoff()` returned. Its conversation stands in front of the
            input, which may be empty then.
        replay: names of tools whose recorded results of that run are given again where they are
            called with equal arguments.

    Raises:
        TypeError: there is no run_id.
        InputChanged: the run was begun with another input, or goes on from another run; both are
            shown.
        UsageError: a new run that goes on from another one is given a RunState, or a conversation
            that the provider keeps (`conversation_id`, `previous_response_id`).
        RunBusy: another living process works on it.
        WaitingForPerson: a person has to say whether a tool's call happened.
        SchemaMismatch: the agents given cannot take its state up: one was renamed, a tool is gone,
            or it was written by a newer version of the SDK.
    """

    @classmethod
    async def run(
        cls,
        starting_agent: Agent[T],
        input: str | list[TResponseInputItem] | RunState[T],  # noqa: A002 - the SDK's name
        *,
        context: T | None = None,
        max_turns: int | None = MAX_TURNS,
        hooks: RunHooks[T] | None = None,
        run_config: RunConfig | dict[str, Any] | None = None,
        error_handlers: RunErrorHandlers[T] | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
        conversation_id: str | None = None,
        session: Session | None = None,
        run_id: str | None = None,
        store: StoreLike = None,
        again: bool = False,
        takeover: bool = False,
        schema: int | None = None,
        migrations: Migrations = (),
        on_uncertain: OnUncertain | Mapping[str, OnUncertain] | None = None,
        context_serializer: Callable[[Any], Any] | None = None,
        context_deserializer: Callable[[Any], Any] | None = None,
        continues: Continues = None,
        replay: Sequence[str] = (),
    ) -> RunResult:
        """Run an agent to its final output or its next pause, from wherever the run is.

        Args, Raises: see `Runner`, and `agents.Runner.run`.

        Returns:
            The SDK's result. Where approvals are needed it has `interruptions`: answer them with
            `caravanserai answer` or `answer`, and call the same line again; or decide on
            `result.to_state()` and give that as input, with the same run_id.
        """
        passed, options = _split(locals())
        job = Job(starting_agent, input, passed, options, streams=False)
        async with job.alone():
            run = await wait_for(in_thread(job.open))
            async with run:
                result = await _worked(job, max_turns)
        # Raised out here: what is refused before any work is no failure of the run.
        if isinstance(result, Exception):
            raise result
        return result

    @classmethod
    def run_sync(
        cls,
        starting_agent: Agent[T],
        input: str | list[TResponseInputItem] | RunState[T],  # noqa: A002 - the SDK's name
        *,
        context: T | None = None,
        max_turns: int | None = MAX_TURNS,
        hooks: RunHooks[T] | None = None,
        run_config: RunConfig | dict[str, Any] | None = None,
        error_handlers: RunErrorHandlers[T] | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
        conversation_id: str | None = None,
        session: Session | None = None,
        run_id: str | None = None,
        store: StoreLike = None,
        again: bool = False,
        takeover: bool = False,
        schema: int | None = None,
        migrations: Migrations = (),
        on_uncertain: OnUncertain | Mapping[str, OnUncertain] | None = None,
        context_serializer: Callable[[Any], Any] | None = None,
        context_deserializer: Callable[[Any], Any] | None = None,
        continues: Continues = None,
        replay: Sequence[str] = (),
    ) -> RunResult:
        """Run an agent from code that is not async; see `run`.

        Raises:
            RuntimeError: an event loop runs in this thread.
        """
        given = dict(locals())
        given.pop("cls")
        if _loop_runs():
            raise RuntimeError(
                "Runner.run_sync() cannot be called where an event loop runs; use "
                "`await Runner.run(…)`"
            )
        agent, start = given.pop("starting_agent"), given.pop("input")
        return _in_own_loop(lambda: cls.run(agent, start, **given))  # type: ignore[no-any-return]

    @classmethod
    def run_streamed(
        cls,
        starting_agent: Agent[T],
        input: str | list[TResponseInputItem] | RunState[T],  # noqa: A002 - the SDK's name
        *,
        context: T | None = None,
        max_turns: int | None = MAX_TURNS,
        hooks: RunHooks[T] | None = None,
        run_config: RunConfig | dict[str, Any] | None = None,
        error_handlers: RunErrorHandlers[T] | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
        conversation_id: str | None = None,
        session: Session | None = None,
        run_id: str | None = None,
        store: StoreLike = None,
        again: bool = False,
        takeover: bool = False,
        schema: int | None = None,
        migrations: Migrations = (),
        on_uncertain: OnUncertain | Mapping[str, OnUncertain] | None = None,
        context_serializer: Callable[[Any], Any] | None = None,
        context_deserializer: Callable[[Any], Any] | None = None,
        continues: Continues = None,
        replay: Sequence[str] = (),
    ) -> RunResultStreaming:
        """Start an agent, from wherever the run is, and return what streams its events.

        A run that goes on streams what happens from there; a recorded answer comes as one that
        was given in one piece. Of a finished run the events of its last answer are streamed.

        Args, Raises: see `Runner`, and `agents.Runner.run_streamed`.

        Raises:
            UsageError: another task of this event loop works on the run.
        """
        passed, options = _split(locals())
        job = Job(starting_agent, input, passed, options, streams=True)
        # In a context of its own: the caller's goes on outside of the run.
        return contextvars.copy_context().run(_streamed, job, max_turns)


async def _worked(job: Job, max_turns: int | None) -> RunResult | Exception:
    """Do the work of a start; returns the error that refuses it."""
    try:
        recorded = await wait_for(in_thread(job.begin))
    except CaravanseraiError as error:
        return error
    if recorded is not None:
        return _recorded.plain(recorded, max_turns)
    streamed = job.stream()
    job.mark(streamed)
    try:
        async for _ in streamed.stream_events():
            pass
    except asyncio.CancelledError:
        streamed.cancel()
        raise
    except Exception as error:
        if job.escaping is not None:
            raise job.escaping from None
        if isinstance(error, MaxTurnsExceeded):
            await wait_for(in_thread(partial(job.exhausted, error)))
            return error
        if isinstance(error, ModelBehaviorError):
            await job.misbehaved()
        raise
    await job.end()
    return _sdk.plain_result(streamed)


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _streamed(job: Job, max_turns: int | None) -> RunResultStreaming:
    ending = _Ending(job)
    ending.enter()
    try:
        recorded = job.begin()
    except BaseException:
        ending.leave(None)  # what is refused before any work is no failure of the run
        raise
    try:
        if recorded is not None:
            ending.leave(None)
            return _recorded.streaming(recorded, max_turns)
        result = job.stream()
    except BaseException as error:
        ending.leave(error)
        raise
    ending.follow(result)
    return result


class _Ending:
    """Ends a streamed run once, when its events have been read or, at the latest, its task."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._alone = job.alone()
        self._run: Any = None
        self._left = False

    def enter(self) -> None:
        """Hold the run.

        Raises:
            RunBusy: another process does.
            UsageError: another task of this thread does.
        """
        self._alone.__enter__()
        try:
            self._run = self._job.open()
            self._run.__enter__()
        except BaseException:
            self._run = None
            self.leave(None)
            raise

    def leave(self, error: BaseException | None) -> None:
        """Let it go; of a failure a record is made."""
        if self._left:
            return
        self._left = True
        try:
            if self._run is not None:
                self._run.__exit__(None if error is None else type(error), error, None)
        finally:
            self._alone.__exit__(None, None, None)

    def follow(self, result: RunResultStreaming) -> None:
        """End with a streamed run."""
        stream_events = result.stream_events

        async def followed() -> AsyncIterator[Any]:
            try:
                async for event in stream_events():
                    yield event
                if not self._left:
                    await self._job.end()
            except BaseException as error:
                escaping = self._job.escaping
                if isinstance(error, MaxTurnsExceeded) and not self._left:
                    self._job.exhausted(error)
                    self.leave(None)
                if isinstance(error, ModelBehaviorError) and not self._left:
                    await self._job.misbehaved()
                self.leave(escaping or error)
                if escaping is not None and isinstance(error, Exception):
                    raise escaping from None
                raise
            self.leave(None)

        result.stream_events = followed  # type: ignore[method-assign]
        self._job.mark(result)
        task = _sdk.task_of(result)
        if task is not None:
            task.add_done_callback(self._unread)

    def _unread(self, task: asyncio.Task[Any]) -> None:
        """The task ended; nobody may ever read the events."""
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error is not None:
            if isinstance(error, (MaxTurnsExceeded, ModelBehaviorError)):
                return  # its events tell it; what is read last leaves the run
            self.leave(self._job.escaping or error)


def _split(given: dict[str, Any]) -> tuple[dict[str, Any], Options]:
    """Return the SDK's own arguments of a call, and those that say how the run is kept."""
    values = {name: value for name, value in given.items() if name in _KEPT}
    if values["run_id"] is None:
        raise TypeError(
            "caravanserai's Runner needs run_id=, the name under which the run is kept and found "
            'again: Runner.run(agent, input, run_id="order-a17"). To run without keeping anything '
            "use agents.Runner."
        )
    options = Options(**values)
    check_options(options)
    left = {*_KEPT, "cls", "starting_agent", "input"}
    return {name: value for name, value in given.items() if name not in left}, options


_KEPT = frozenset(Options._fields)


def _in_own_loop(work: Callable[[], Any]) -> Any:
    """Return what async work returns, in the thread's own event loop, which stays open.

    As `agents.Runner.run_sync` does it: clients and sessions are bound to a loop, and the next
    call of the program uses them again.
    """
    policy = asyncio.get_event_loop_policy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            loop = policy.get_event_loop()
        except RuntimeError:
            loop = policy.new_event_loop()
            policy.set_event_loop(loop)
    if loop.is_closed():
        loop = policy.new_event_loop()
        policy.set_event_loop(loop)
    task = loop.create_task(work())
    try:
        return loop.run_until_complete(task)
    except BaseException:
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
        raise
    finally:
        if not loop.is_closed():
            with suppress(RuntimeError):
                loop.run_until_complete(loop.shutdown_asyncgens())
