"""`resumable_query`: a job of a session, started, resumed and returned by the same line."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKError, ResultError, ResultMessage, query
from claude_agent_sdk.types import TaskNotificationMessage, TaskStartedMessage, TaskUpdatedMessage

from caravanserai.claude_agent import _sdk, _working
from caravanserai.claude_agent._book import tell_who_waits
from caravanserai.claude_agent._options import check_given, options_of
from caravanserai.claude_agent._resuming import rebuilt_prompt, resume_note
from caravanserai.claude_agent._start import (
    begun,
    everything_said,
    goal_of,
    known_state,
    make_ready,
    open_session,
    standing,
    waits,
)
from caravanserai_core.errors import InputChanged, UsageError
from caravanserai_core.escaping import collected
from caravanserai_core.homes import store_for
from caravanserai_core.jobs import Alone
from caravanserai_core.journal import journal_for
from caravanserai_core.names import check_run_id
from caravanserai_core.quoting import one_line, quoted
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from typing import Unpack

    from claude_agent_sdk import Message

    from caravanserai.claude_agent._facts import Tree
    from caravanserai.claude_agent._options import Keeping, Options
    from caravanserai.claude_agent._recorder import Recorder
    from caravanserai.claude_agent._start import Ready
    from caravanserai_core.run import Run

_log = logging.getLogger("caravanserai")

_SILENCE: Final = 20.0
"""Seconds after which a session that should go on by itself is asked to."""

_GO_ON: Final = "Now go on with the task from where it stands. Do not repeat what is done."


async def resumable_query(
    *,
    prompt: str,
    run_id: str,
    options: ClaudeAgentOptions | None = None,
    again: bool = False,
    **keeping: Unpack[Keeping],
) -> AsyncGenerator[Message, None]:
    """Ask Claude as `claude_agent_sdk.query` does, in a run that survives the process.

    The same line begins the session, goes on with it after a crash, and gives its recorded result
    once it is finished, without a call of a model.

    Args:
        prompt: what is to be done.
        run_id: the name of the run.
        options: the SDK's options. Hooks, `can_use_tool`, MCP servers and agents in them work as
            before; `resume`, `session_id`, `session_store` and the like belong to the run.
        again: begin anew, with a new session.
        **keeping: how the run is kept:
            store: a store, a folder or URL; by default CARAVANSERAI_STORE, else `.caravanserai`.
            needs_approval: patterns of tools (`"mcp__pay__*"`) whose calls a person approves. The
                session ends with a `ResultMessage` whose `deferred_tool_use` tells the call; the
                next start goes on with the answer.
            on_uncertain: what to do where the model makes a call that equals one which began
                before a crash and never reported back: "ask" a person (the default, but for tools
                that change nothing), "rerun" or "stop"; or a dict of patterns to these.
            takeover: take the run from another living process.
            at, new_run_id: begin the run `new_run_id` at this waypoint of `run_id`.
            continues: the run that a new run goes on from, of whatever framework: "RUN" or
                "RUN@3", in the same store; or what `handoff()` returned.
            replay: names of tools whose recorded results of that run are given again where they
                are called with equal arguments.
            schema, migrations: see docs/guarantees/versions.md.

    Yields:
        The messages of the session, as `query` does; of a finished run, or one that waits for a
        person, the recorded `ResultMessage`.

    Raises:
        InputChanged: the run was begun with another prompt, without `continues`, or from another
            run.
        RunBusy: another process works on it.
        EffectStopped, EffectUncertain: a call that may have happened ends the run.
        UsageError: the options do not go together.
        ClaudeSDKError: as the SDK raises it; the next start goes on.
    """
    kept = options_of(run_id, keeping, again=again)
    given = options or ClaudeAgentOptions()
    asked: Any = prompt
    if not isinstance(asked, str) or not asked.strip():
        raise UsageError(
            "resumable_query takes prompt= as a text of at least one word, which the next start is "
            "compared with. For a stream of messages use WaypointClient."
        )
    check_given(given)
    check_run_id(kept.run_id)
    journal = journal_for(store_for(kept.run_id, kept.store), kept.run_id)
    async with Alone(journal), AsyncExitStack() as entering:
        _working.enter(journal, _working.JOB)
        entering.callback(_working.leave, journal)
        run = await wait_for(in_thread(lambda: open_session(kept, goal_of(prompt))))
        _refuse_conversation(run, kept)
        async with run:
            job = _Job(run, kept, given, prompt)
            found = await wait_for(in_thread(job.begin))
            if found is not None:
                yield found
                return
            working = job.work()
            try:
                async for message in working:
                    yield message
            finally:
                await working.aclose()


def _refuse_conversation(run: Run, options: Options) -> None:
    """Refuse a run that is no job.

    Raises:
        UsageError: it is a conversation, or of something else.
    """
    known = known_state(run, options)
    if known is not None and known["prompt"] is None and known["run"] == run.run_id:
        raise UsageError(
            f"run {one_line(run.run_id)} is a conversation: a WaypointClient goes on with it. "
            "resumable_query is for one job; use another run_id, or at= and new_run_id= to "
            "begin a job at a waypoint of it."
        )


class _Job:
    """One start of a run."""

    def __init__(self, run: Run, options: Options, given: ClaudeAgentOptions, prompt: str) -> None:
        self._run = run
        self._options = options
        self._given = given
        self._prompt = prompt
        self._tree: Tree = {}
        self._begins = True
        self._continues = False
        self._cut_off = False
        self._forked = False
        self._deferred: str | None = None
        self._other = False
        # The prompt is a command of the CLI's own, of which no event tells.
        self._command = False
        # Subagents in the background; their end wakes the session for one more turn.
        self._beside: set[str] = set()
        self._ended: ResultMessage | None = None
        self._paused: ResultMessage | None = None

    def begin(self) -> ResultMessage | None:
        """Find out where the run stands; returns what is known where there is nothing to do.

        Raises:
            InputChanged: it was begun with another prompt.
        """
        run = self._run
        known = known_state(run, self._options)
        if known is None:
            self._tree = begun(run, self._prompt)
            return None
        forked = known["run"] != run.run_id
        # What branches off another run may be given another task.
        self._other = forked and known["prompt"] != self._prompt
        if known["prompt"] != self._prompt and not forked:
            raise InputChanged(
                f"run {one_line(run.run_id)} was begun with the prompt "
                f"{quoted(str(known['prompt']), 300)} and is started with "
                f"{quoted(self._prompt, 300)} now. Nothing was run. Use another run_id, or "
                "again=True to begin anew."
            )
        if known["at"] == "end" and not self._other:
            outcome = run._journal.turns.do(lambda: run._journal.outcome) or {}
            if outcome.get("outcome") != "finished":
                run.finish(known["result"])  # killed in front of this record
            return _sdk.result_of(known["result"])
        self._tree = standing(run, known, run.waypoint)
        self._begins = known["at"] == "begin" and not self._tree["turns"]
        self._forked = forked
        self._cut_off = not forked and not run._journal.turns.do(lambda: run._journal.outcome)
        paused = known["at"] == "pause" and not self._tree["did"]
        self._deferred = (known["deferred"] or {}).get("id")
        if paused:
            if run._journal.turns.do(lambda: waits(run._journal, known)):
                run._journal.turns.do(lambda: tell_who_waits(run._journal))
                return _sdk.result_of(known["result"])
            self._continues = known["deferred"] is not None and not forked
            self._cut_off = False
        self._tree["prompt"], self._tree["result"] = self._prompt, None
        return None

    async def work(self) -> AsyncGenerator[Message, None]:
        """Let the session work; yields its messages."""
        ready = await wait_for(in_thread(lambda: self._make_ready(lost=False)))
        try:
            async for message in self._session(ready):
                yield message
        except ResultError as error:
            if _sdk.LOST not in str(error) or ready.recorder.submitted:
                raise
            ready = await wait_for(in_thread(lambda: self._make_ready(lost=True)))
            async for message in self._session(ready):
                yield message

    def _make_ready(self, *, lost: bool) -> Ready:
        resumed = self._cut_off and not self._begins
        ready = make_ready(
            self._run,
            self._options,
            self._given,
            self._tree,
            follows=True,
            resumed=resumed,
            deferred=self._deferred,
            lost=lost,
        )
        recorder, journal = ready.recorder, self._run._journal

        def prepare() -> None:
            recorder.calls.refuse_stopped()
            recorder.calls.let_go()
            recorder.lead = "" if ready.seed is None else ready.seed.prefix
            if ready.rebuilt:
                end = f"{_GO_ON} The task:\n\n{self._prompt}"
                told = resume_note(self._tree, recorder.calls, journal, at_end=end, rebuilt=True)
                said = everything_said(self._run)
                recorder.sent = rebuilt_prompt(
                    told, said, self._tree["so_far"], handed=recorder.lead
                )
            elif ready.resumes and not self._other:
                recorder.sent = resume_note(
                    self._tree, recorder.calls, journal, at_end=_GO_ON, forked=self._forked
                )

        journal.turns.do(prepare)
        self._command = not (recorder.sent or recorder.lead) and self._prompt.startswith("/")
        return ready

    async def _session(self, ready: Ready) -> AsyncGenerator[Message, None]:
        recorder = ready.recorder
        over = asyncio.Event()
        alive = asyncio.Event()
        with collected() as recorder.escaping:
            messages = query(prompt=self._asked(recorder, alive, over), options=ready.given)
            try:
                async for message in self._until_it_ends(recorder, messages):
                    if self._ended is not None:
                        # It was not the last one: a subagent in the background woke the session.
                        yield self._ended
                        self._ended = None
                    if not _is_opening(message):
                        alive.set()
                    await self._seen(recorder, message, over)
                    if recorder.reason is not None:
                        break
                    if self._ended is None:
                        yield message
                if self._ended is not None and recorder.reason is None:
                    # The CLI has left: nothing comes behind the end of the run.
                    kept = recorder.tree["result"]
                    await wait_for(in_thread(lambda: self._run.finish(kept)))
                    yield self._ended
            finally:
                over.set()
                await messages.aclose()  # type: ignore[attr-defined]
        if recorder.reason is not None:
            raise recorder.reason

    async def _until_it_ends(
        self, recorder: Recorder, messages: AsyncIterator[Message]
    ) -> AsyncIterator[Message]:
        """Yield messages; what goes wrong when all is said and written down is no failure."""
        try:
            async for message in messages:
                yield message
        except ClaudeSDKError as error:
            if recorder.reason is not None:
                raise recorder.reason from error  # what the CLI ended for
            if self._ended is None:
                raise
            _log.info("run %s: behind its end: %s", one_line(self._run.run_id), error)

    async def _asked(
        self, recorder: Recorder, alive: asyncio.Event, over: asyncio.Event
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield what the session is asked, and keep its input open as long as it works."""
        asks = recorder.sent or self._prompt
        if self._continues:
            # The CLI goes on with the deferred call by itself, and needs no prompt (2.1.332).
            await _any_of(alive, over, recorder.left, seconds=_SILENCE)
        if not self._continues or not (alive.is_set() or over.is_set() or recorder.left.is_set()):
            self._continues = False
            recorder.asked.append(asks)
            yield _message(recorder.lead + asks)
        await _any_of(over, recorder.left)

    async def _seen(self, recorder: Recorder, message: Message, over: asyncio.Event) -> None:
        if isinstance(message, TaskStartedMessage):
            self._beside.add(message.task_id)
        elif _is_over(message):
            self._beside.discard(getattr(message, "task_id", ""))
        await recorder.see(message)
        if not isinstance(message, ResultMessage):
            return
        # A deferred call that is replayed first is a turn of its own.
        asked = recorder.submitted or self._continues or message.is_error or self._command
        if message.stop_reason == _sdk.DEFERRED:
            # A subagent in the background that ends later wakes the session, and the run waits.
            self._paused = message
        paused = self._paused
        # A hook or a limit that stopped it leaves the job where it is.
        complete = message.terminal_reason in (None, _sdk.COMPLETED) and not message.is_error
        complete = complete and (message.duration_api_ms > 0 or self._command)
        last = asked and paused is None and complete and not self._beside
        last = last and recorder.reason is None
        # One that asked no model is the CLI's own, about what it found cut off.
        over_ = asked and message.duration_api_ms > 0
        await recorder.turn_ended(message, last=last, paused=paused, over=over_)
        if recorder.reason is not None:
            return
        if last:
            self._ended = message
        if asked or paused is not None:
            over.set()


async def _any_of(*events: asyncio.Event, seconds: float | None = None) -> None:
    """Wait until one of some events has come, or for some seconds."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()


def _is_over(message: Message) -> bool:
    """Say whether a message tells that a subagent came to its end."""
    if isinstance(message, TaskUpdatedMessage):
        return message.data.get("patch", {}).get("status") in ("completed", "failed", "killed")
    return isinstance(message, TaskNotificationMessage)


def _message(text: str) -> dict[str, Any]:
    return {
        "type": "user",
        "message": {"role": "user", "content": text},
        "parent_tool_use_id": None,
        "session_id": "",
    }


def _is_opening(message: Message) -> bool:
    """Say whether a message tells that the session is open, and not yet that it works."""
    return getattr(message, "subtype", None) in ("init", "status", "hook_started", "hook_response")
