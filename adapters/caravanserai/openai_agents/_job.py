"""One start of a run: where it goes on from, what is recorded while it works, how it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import agents
from agents import RunState, UserError

from caravanserai.openai_agents import _approvals, _notes, _recorded, _sdk, _seed
from caravanserai.openai_agents._folding import folded, plain, unfolded
from caravanserai.openai_agents._following import Following
from caravanserai.openai_agents._inner_runs import stand_in_front
from caravanserai.openai_agents._instrument import (
    instrument_model,
    not_recorded,
    prepare,
    prepare_guardrails,
    prepare_provider,
)
from caravanserai.openai_agents._kept_session import KeptSession
from caravanserai.openai_agents._notebook import framework
from caravanserai.openai_agents._standing import (
    check_continues,
    check_input,
    check_tools,
    plain_input,
    why_not,
)
from caravanserai.openai_agents._steps import MODEL, Place, SessionLog, Steps, digest, here
from caravanserai_core import codec, effects, reading
from caravanserai_core.continuing import Inherited
from caravanserai_core.errors import (
    InputChanged,
    SchemaMismatch,
    UnserialisableState,
    UsageError,
)
from caravanserai_core.homes import store_for
from caravanserai_core.jobs import Alone
from caravanserai_core.journal import journal_for
from caravanserai_core.names import check_run_id
from caravanserai_core.quoting import code, error_text, one_line, quoted
from caravanserai_core.run import Run, open_run
from caravanserai_core.stepping import token_slug
from caravanserai_core.threads import in_thread, wait_for
from caravanserai_core.words import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agents import Agent, FunctionTool, RunResultStreaming

    from caravanserai.openai_agents._options import Options
    from caravanserai_core.effects import OnUncertain
    from caravanserai_core.errors import CaravanseraiError

_log = logging.getLogger("caravanserai")

ADAPTER = "openai-agents"

_VOID = "The SDK could make nothing of this answer: the next start asks the model again."

_OF = "_caravanserai_run"
"""Attribute of a run state that a result of ours gave: the run that it is of."""

At = Literal["begin", "turn", "pause", "end"]


class Recorded(NamedTuple):
    """Where a run stands that has nothing to do: it is finished, or waits for a person.

    Attributes:
        state: its last state.
        output: its final output, or None.
        again: returns that state anew, for each who asks.
    """

    state: RunState[Any]
    output: Any
    again: Callable[[], RunState[Any]]


class Job:
    """One start of a run.

    Args:
        agent: the agent that it starts with.
        given: what it is given: a text, items, or a run state.
        passed: the other arguments of the SDK's method, by name.
        options: how it is kept.
        streams: somebody looks at the models' answers while they come.

    Attributes:
        journal: that of the run.
        run: the run, once it is open.
        steps: what is recorded of the turn at hand, once the start began.
        asks: a model of the run itself is about to be asked.
        streams: as given.
        answered: there is a final output.
        escaping: what a tool raised that ends the start, whatever the SDK makes of it.
        inherited: what the run took over from another one, for the calls of its tools.
    """

    run: Run
    steps: Steps

    def __init__(
        self,
        agent: Agent[Any],
        given: Any,
        passed: dict[str, Any],
        options: Options,
        *,
        streams: bool,
    ) -> None:
        self.streams = streams
        self.asks = False
        self._agent, self._given, self._passed, self._options = agent, given, passed, options
        self._run_id = check_run_id(options.run_id)
        self.journal = journal_for(store_for(self._run_id, options.store), self._run_id)
        self.token = token_slug(self._run_id)
        self._state: RunState[Any] | None = None
        self._before: dict[str, Any] | None = None
        self._resumed = False
        self._skips = True
        self._moved = False
        self._waits: list[str] = []
        self._output: dict[str, Any] = {}
        self._agents: dict[str, str] = {}
        self._changed: dict[str, str] = {}
        self._last, self._called = "", False
        self._guards = 0
        self._guarded: asyncio.Event | None = None
        self._tripped = False
        self._session: KeptSession | None = None
        self._result: RunResultStreaming | None = None
        self.answered = False
        self.escaping: CaravanseraiError | None = None
        self.inherited = Inherited(None)
        self._seed: dict[str, Any] | None = None

    def alone(self) -> Alone:
        """Return the block in which no other thread or task of this process does the job."""
        return Alone(self.journal)

    def open(self) -> Run:
        """Open the run; it is to be entered.

        Raises:
            RunBusy: another living process works on it.
            JournalDamaged, SchemaMismatch, …: see `open_run`.
            UsageError: `continues` does not go with what else is given.
        """
        options = self._options
        if options.continues is not None:
            old = self.journal.turns.do(lambda: self.journal.look() is not None)
            check_continues(self._passed, None if old else self._given)
        self.journal.framework = framework()
        self.run = open_run(
            self._run_id,
            store=options.store,
            adapter=ADAPTER,
            goal=None if isinstance(self._given, RunState) else _notes.goal_of(self._given),
            schema=options.schema,
            migrations=options.migrations,
            takeover=options.takeover,
            continues=options.continues,
        )
        return self.run

    # ------------------------------------------------------------------ where it is

    def begin(self) -> Recorded | None:
        """Find out where the run stands; returns that where there is nothing to do.

        Raises:
            InputChanged: it was begun with another input.
            WaitingForPerson: it has to be said first whether a tool's call happened.
            SchemaMismatch: the agents given cannot take its state up.
        """
        self._warn_of_policies()
        self.inherited = Inherited(self.run.handoff, self._options.replay)
        before = None if self._options.again else self._known()
        handed = self._given if isinstance(self._given, RunState) else None
        of = getattr(handed, _OF, self._run_id)
        if of != self._run_id:
            raise InputChanged(
                f"the run state given is of run {one_line(of)}, and this is run "
                f"{one_line(self._run_id)}: what is decided there counts there, once. Give it with "
                f"run_id={one_line(of)!r}."
            )
        if before is None:
            self._first(handed)
            return None
        self._before = before
        self._seed = before.get(_seed.SEED)
        if handed is None:
            check_input(self._run_id, before["given"], self._given)
        done = None if handed is not None else self._finished(before)
        if done is not None:
            return done
        self.steps = Steps(self.run, before.get("counts") or {})
        recent = reading.recent(self.run.store, self._run_id)
        after = recent.chain[-1].seq if recent is not None and recent.chain else 0
        self.journal.turns.do(lambda: effects.settle(self.journal, self._policy_of, after))
        outcome = self.journal.turns.do(lambda: self.journal.outcome) or {}
        crashed = before["at"] != "pause" or self._began_after(after)
        self._resumed = crashed and outcome.get("outcome") != "failed"
        self._skips = before["at"] != "pause"
        if handed is not None:
            self._take_up(handed, before)
        elif before.get("run") is not None:
            self._state = self._restored(before)
        self._compare_instructions(before)
        state = self._state
        current = self._agent if state is None else _sdk.current_agent(state)
        check_tools(self.run, current, self.steps.of(MODEL))
        if state is not None:
            decided = self.journal.turns.do(lambda: _approvals.decide(self.journal, state))
            self._moved = bool(decided) or handed is not None
            if before["at"] == "pause" and not self._moved and not self._resumed:
                # A fork has the pause, and nobody asked in it yet.
                items = state.get_interruptions()
                self.journal.turns.do(lambda: _approvals.ask(self.journal, items))
                return self._recorded(before, state, None)
        return None

    def _began_after(self, seq: int) -> bool:
        """Say whether something was done behind a record."""
        known = self.journal.turns.do(lambda: list(self.journal.ledger.effects.values()))
        return bool(self.steps.of(MODEL)) or any(one.records[-1].seq > seq for one in known)

    def _known(self) -> dict[str, Any] | None:
        state = self.run.state
        if state is None:
            return None
        if not isinstance(state, dict) or "given" not in state or "at" not in state:
            raise UsageError(
                f"run {one_line(self._run_id)} was not written by caravanserai.openai_agents: its "
                "state would be lost. Use another run_id."
            )
        return state

    def _first(self, handed: RunState[Any] | None) -> None:
        if self.run.handoff is not None:
            self._seed = _seed.seed_of(self.run.handoff)
            check_continues(self._passed, self._given)
        if self.run.waypoint or self.run.handoff is None:
            self.run.afresh()  # but what a new run was handed counts
        given = plain_input(self._given) if handed is None else None
        tree = None
        if handed is not None:
            tree = _sdk.state_json(handed)
            given = tree.get("original_input")
            self._state, self._skips = self._with_context(handed), False
        self._before = self._tree(given, "begin" if handed is None else "turn", tree, {})
        unrecorded = not_recorded(self._agent)
        if unrecorded:
            self.run.remark(
                f"What {listed([code(name) for name in unrecorded])} does is not recorded call by "
                "call: it is done again where a crash cuts off the turn."
            )
        self.run.checkpoint(self._before, _notes.begun(self._before, self._agent.name))
        self.steps = Steps(self.run, {})

    def _tree(
        self, given: Any, at: At, run: dict[str, Any] | None, counts: dict[str, int]
    ) -> dict[str, Any]:
        tree = {"given": given, "at": at, "sdk": _sdk.sdk_version(), "counts": counts}
        tree["instructions"] = _sdk.instructions(self._agent)
        tree["run"] = None if run is None else folded(plain(run))
        if self._seed is not None:
            tree[_seed.SEED] = self._seed
        if self._session is not None:
            tree["added"] = self._session.adds
        elif self._before is not None and "added" in self._before:
            tree["added"] = self._before["added"]
        if at == "pause":
            tree["waits"] = self._waits
        if at == "end":
            tree |= self._output
        serializer = self._options.context_serializer
        if serializer is not None:
            tree["context"] = serializer(self._context())
        return tree

    def _context(self) -> Any:
        if self._result is not None:
            return self._result.context_wrapper.context
        return self._passed.get("context")

    def _finished(self, before: dict[str, Any]) -> Recorded | None:
        if before["at"] != "end":
            return None
        state = self._restored(before)
        output = before["output"] if "output" in before else _recorded.output_again(state)
        if not self.journal.turns.do(lambda: self.journal.outcome):
            self._record_end(before)  # killed in front of this record
        return self._recorded(before, state, output)

    def _recorded(self, before: dict[str, Any], state: RunState[Any], output: Any) -> Recorded:
        def again() -> RunState[Any]:
            state = self._restored(before)
            setattr(state, _OF, self._run_id)
            return state

        return Recorded(state, output, again)

    def _restored(self, before: dict[str, Any]) -> RunState[Any]:
        tree = unfolded(before["run"])
        tree["max_turns"] = self._passed["max_turns"]
        context = self._passed.get("context")
        deserializer = self._options.context_deserializer
        if deserializer is not None and "context" in before:
            context = deserializer(before["context"])
        try:
            return _sdk.restored(self._agent, tree, context)  # type: ignore[no-any-return]
        except UserError as error:
            raise SchemaMismatch(why_not(self.run, self._agent, before, error)) from error

    def _take_up(self, handed: RunState[Any], before: dict[str, Any]) -> None:
        """Go on from a run state that the program was given at the pause, and decided on."""
        waits = {_sdk.call_id(item) for item in handed.get_interruptions()}
        known = self._restored(before) if before.get("run") is not None else None
        wanted = set() if known is None else {_sdk.call_id(i) for i in known.get_interruptions()}
        if before["at"] != "pause" or waits != wanted:
            raise InputChanged(
                f"run {one_line(self._run_id)} stands at waypoint {self.run.waypoint}, and the "
                "run state given is not of there: it may have been taken up since. Start the run "
                "with its input; what was decided is answered with `caravanserai answer`."
            )
        self.journal.turns.do(lambda: _approvals.take_over(self.journal, handed))
        self._state = self._with_context(handed)

    def _with_context(self, handed: RunState[Any]) -> RunState[Any]:
        """Return a run state with the program's context in it, if one is given."""
        context = self._passed.get("context")
        if context is not None and handed._context is not None:
            handed._context.context = context
        return handed

    # ------------------------------------------------------------------ tools

    def policy(self, tool: FunctionTool) -> OnUncertain:
        """Return what is done where a call of a tool began and never reported back."""
        chosen = self._options.on_uncertain
        if isinstance(chosen, Mapping):
            chosen = chosen.get(tool.name)
        return chosen or ("rerun" if tool.needs_approval is False else "ask")

    def _policy_of(self, name: str) -> OnUncertain:
        found = [
            self.policy(tool) for tool in _sdk.function_tools(self._agent) if tool.name == name
        ]
        chosen = self._options.on_uncertain
        if isinstance(chosen, Mapping):
            chosen = chosen.get(name)
        return chosen or ("ask" if "ask" in found else "rerun")

    def _warn_of_policies(self) -> None:
        """Say which names in `on_uncertain=` are of no tool that there is."""
        chosen = self._options.on_uncertain
        agents_ = _sdk.reachable(self._agent)
        if not isinstance(chosen, Mapping) or any(agent.mcp_servers for agent in agents_):
            return
        names = {tool.name for agent in agents_ for tool in agent.tools}
        for name in chosen.keys() - names:
            _log.warning(
                "run %s: on_uncertain= names the tool %s, and no agent has one of that name",
                one_line(self._run_id),
                one_line(str(name), 60),
            )

    def enter(self, path: str, agent: Agent[Any] | None) -> None:
        """Note which agent works inside of a call."""
        if agent is not None:
            self._agents[path] = agent.name

    def agent_at(self, path: str) -> str:
        """Return the name of the agent that works at a path, "" where none is known."""
        return self._agents.get(path, "")

    def answered_with(self, key: str) -> None:
        """Note that a model of the run itself has answered, under which key."""
        self.asks, self._last, self._called = False, key, False

    def calls(self) -> None:
        """Note that a tool did its work, or may have."""
        self._called = True

    async def misbehaved(self) -> None:
        """Let the next start ask again where the SDK can make nothing of the newest answer.

        Not where a tool of it did its work: that would be done a second time.
        """
        if self._last and not self._called:
            await self.steps.record(MODEL, self._last, {"void": True}, say=_VOID)

    def changed(self, agent: object) -> None:
        """Note that a recorded answer was to another question than is asked now."""
        name = quoted(str(agent or "an agent"), 60)
        self._changed.setdefault(
            name,
            f"{name} is asked something else now than when it answered: the answer that is "
            "recorded was kept.",
        )

    def _compare_instructions(self, before: dict[str, Any]) -> None:
        """Note whose instructions were changed since the waypoint, where they are a plain text."""
        known = before.get("instructions") or {}
        for agent, now in _sdk.instructions(self._agent).items():
            if known.get(agent, now) != now:
                name = quoted(agent, 60)
                self._changed[name] = (
                    f"The instructions of {name} are not those of waypoint {self.run.waypoint}: "
                    "the new ones count from here, and answers that are recorded were kept."
                )

    # ------------------------------------------------------------------ working

    def stream(self) -> RunResultStreaming:
        """Let the SDK do the work."""
        passed = dict(self._passed)
        config, own = _sdk.config_of(passed.pop("run_config"))
        prepare(self._agent)
        prepare_provider(config.model_provider)
        prepare_guardrails([*(config.input_guardrails or ()), *(config.output_guardrails or ())])
        if config.model is not None and not isinstance(config.model, str):
            instrument_model(config.model)
        session = passed.pop("session")
        if session is not None:
            added = (self._before or {}).get("added", 0)
            self._session = KeptSession(
                session,
                SessionLog(self.steps),
                first=added + 1,
                others=self.steps.writers(session),
                seed=() if self._seed is None else _seed.items(self._seed),
            )
        passed |= {"run_config": config, "session": self._session}
        passed["hooks"] = Following(self, passed["hooks"])
        given = self._given if self._state is None else self._state
        if self._state is None and self._seed is not None:
            check_continues(passed)
            given = _seed.in_front(self._seed, given)
        if self._state is not None:
            # The state has them, as they are by now.
            for name in ("previous_response_id", "conversation_id", "auto_previous_response_id"):
                passed.pop(name)
            passed.pop("context")
        stand_in_front()
        token = here.set(Place(self.steps, self))
        try:
            self._result = agents.Runner.run_streamed(self._agent, given, **passed)
        finally:
            here.reset(token)
        if own:
            _sdk.close_provider_after(self._result, config)
        return self._result

    def mark(self, result: RunResultStreaming) -> None:
        """Let the run states of a result tell which run they are of."""
        to_state, run_id = result.to_state, self._run_id

        def marked() -> RunState[Any]:
            state = to_state()
            setattr(state, _OF, run_id)
            return state

        result.to_state = marked  # type: ignore[method-assign]

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Count a guardrail that works; no turn is written down before all are satisfied."""
        self._guards += 1
        try:
            yield
        except BaseException:
            self._tripped = True
            raise
        finally:
            self._guards -= 1
            if self._guarded is not None:
                self._guarded.set()

    def tripped(self) -> None:
        """Note that a guardrail stops the run."""
        self._tripped = True

    async def asking(self, agent: Agent[Any]) -> None:
        """A model of the run itself is about to be asked: the turn before has ended."""
        self._agents[""] = agent.name
        skips, self._skips = self._skips, False
        if not skips:
            while self._guards:
                self._guarded = asyncio.Event()
                await self._guarded.wait()
            if not self._tripped:
                await self._turned()
        self.asks = True

    async def _turned(self) -> None:
        assert self._result is not None, "a model is asked before the run has begun"
        self.steps.turned()
        run = _sdk.state_json(self._result)
        # It counts the turn that begins now, which a crash would use up.
        run["current_turn"] = max(0, int(run.get("current_turn", 0)) - 1)
        await self._waypoint("turn", run, _notes.turned)

    async def _waypoint(self, at: At, run: dict[str, Any], tell: Any, *more: Any) -> None:
        before = self._before
        assert before is not None, "a waypoint is written before the run has begun"
        await self._remark()
        tree = self._tree(before["given"], at, run, self.steps.told())
        resumed, self._resumed = self._resumed, False
        note = tell(before, tree, *more, resumed=resumed)
        await self.run.acheckpoint(tree, note)
        self._before = tree

    async def _remark(self) -> None:
        changed, self._changed = self._changed, {}
        for text in changed.values():
            await wait_for(in_thread(partial(self.run.remark, text)))

    # ------------------------------------------------------------------ how it ends

    def exhausted(self, error: Exception) -> None:
        """Write down that the turns were used up: the same line alone would not go on."""
        told = {"outcome": "failed", "error": quoted(error_text(error), 300)}
        self.run.ended({**told, "advice": "Start it again with a higher max_turns to go on."})

    async def end(self) -> None:
        """Write down how the work ended: at a pause, with its result, or stopped on purpose."""
        result = self._result
        assert result is not None, "the run ends before it has begun"
        run = _sdk.state_json(result)
        if result.interruptions:
            await self._pause(run, list(result.interruptions))
        elif self.answered or result.final_output is not None:
            await self._finish(run, result.final_output)
        elif self._before is not None and run.get("current_turn"):
            await self._waypoint("turn", run, _notes.turned)

    async def _pause(self, run: dict[str, Any], items: list[Any]) -> None:
        before = self._before
        assert before is not None, "a run pauses before it has begun"
        await wait_for(
            in_thread(lambda: self.journal.turns.do(lambda: _approvals.ask(self.journal, items)))
        )
        self._waits = sorted(_sdk.call_id(item) for item in items)
        if self._moved or before["at"] != "pause" or before.get("waits") != self._waits:
            await self._waypoint("pause", run, _notes.paused)

    async def _finish(self, run: dict[str, Any], output: Any) -> None:
        answers = [one.data for one in self.steps.of(MODEL) if "output" in one.data]
        before = self._before
        assert before is not None, "a run ends before it has begun"
        self._output = {}
        with suppress(UnserialisableState):
            codec.encode(output)
            self._output["output"] = output
        await self._waypoint("end", run, _notes.ended, answers, output)
        await wait_for(in_thread(partial(self._record_end, {**before, **self._output})))

    def _record_end(self, state: dict[str, Any]) -> None:
        call = digest(state["given"])
        if "output" in state:
            self.run.finish(state["output"], call=call)
        else:
            # It is read again from the last message, by the agent's output type.
            self.run.ended({"outcome": "finished", "unrecorded": "$", "call": call})
