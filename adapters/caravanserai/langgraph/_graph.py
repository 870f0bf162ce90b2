"""A graph as a job: the same line starts it, goes on after a crash, and returns its result."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from langgraph.pregel import Pregel
from langgraph.types import Command

from caravanserai.langgraph._answering import Answering, names_questions
from caravanserai.langgraph._checking import parts_of
from caravanserai.langgraph._handed import Given, Handed
from caravanserai.langgraph._ids import run_of
from caravanserai.langgraph._inputs import differing, digest_of
from caravanserai.langgraph._notes import untold, upcoming
from caravanserai.langgraph._pausing import Pause
from caravanserai.langgraph._rounds import Rounds
from caravanserai.langgraph._saver import WaypointSaver
from caravanserai_core import codec
from caravanserai_core.errors import (
    CaravanseraiError,
    InputChanged,
    SchemaMismatch,
    UsageError,
)
from caravanserai_core.ownership import asked_for
from caravanserai_core.quoting import one_line, quoted

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from langchain_core.runnables import RunnableConfig
    from langgraph.types import StateSnapshot

    from caravanserai.langgraph._checking import Checks
    from caravanserai.langgraph._handed import Seed
    from caravanserai.langgraph._stored import Loaded
    from caravanserai.langgraph.migrations import Step
    from caravanserai_core.effects import OnUncertain
    from caravanserai_core.handed import Handoff
    from caravanserai_core.jobs import Alone
    from caravanserai_core.ownership import Ownership
    from caravanserai_core.stores import Store


class _Start(NamedTuple):
    """How a call begins.

    Attributes:
        value: what the graph is invoked with.
        call: what identifies the call, if its end is to be recorded.
        pause: what the graph waits for; then nothing is invoked.
    """

    value: Any
    call: str | None
    pause: Pause | None = None


def resumable_graph(
    graph: Pregel[Any, Any, Any, Any],
    *,
    run_id: str,
    store: str | os.PathLike[str] | Store | None = None,
    takeover: bool = False,
    schema: int | None = None,
    migrations: Sequence[Step] = (),
    continues: str | Handoff | None = None,
    replay: Sequence[str] = (),
    seed: Seed | None = None,
    on_uncertain: OnUncertain | Mapping[str, OnUncertain] | None = None,
) -> ResumableGraph:
    """Make a compiled graph a job that survives its process.

        job = resumable_graph(builder.compile(), run_id="report-7")
        result = job.invoke({"topic": "caravans"})

    The same line starts the graph, goes on where a killed process left it, and, once it is
    finished, returns the recorded result and does no work. During a call this process is the only
    one that works on the job, and this thread or task the only one in it: others that make the same
    call wait, and get its result.

    Args:
        graph: a compiled graph, with a `WaypointSaver` or without a checkpointer.
        run_id: the name of the job; LangGraph's thread_id.
        store: a store, a folder or URL; by default CARAVANSERAI_STORE, else `.caravanserai` here.
        takeover: take the job from another living process, if one works on it: what that writes
            from then on is refused with `StaleWriter`.
        schema: the schema of the states that this program writes; see `WaypointSaver`.
        migrations: one function for each step from schema to schema, likewise.
        continues: the run that a new run goes on from, of whatever framework: "RUN" or "RUN@3", in
            the same store; or what `handoff()` returned. Its messages, and one that tells the rest,
            come in front of the `messages` of the input, which may be None then.
        replay: names of tools whose recorded results of that run are given again where they are
            called with equal arguments.
        seed: makes the input of a graph that has no `messages`, or of any other: called with the
            handoff and the input that the job is given, as often as the graph begins.
        on_uncertain: what to do where a tool is called as one was in that run that began and never
            reported back, by its name or for all: "rerun" (by default) runs it and says so in the
            notes, "ask" asks a person first, "stop" raises `EffectUncertain`.

    Raises:
        UsageError: the graph is not compiled, or has another checkpointer or store; or it is to go
            on from another run, has no `messages`, and there is no `seed`.
        InvalidRunId: the name cannot name a run.
    """
    if not isinstance(graph, Pregel):
        raise UsageError(
            f"resumable_graph takes a compiled graph, not {type(graph).__name__}: builder.compile()"
        )
    if not isinstance(run_id, str):
        raise UsageError(f"a run_id is a string, not {type(run_id).__name__}")
    saver = graph.checkpointer
    if isinstance(saver, WaypointSaver):
        if schema is not None or migrations:
            raise UsageError("the graph has a WaypointSaver: give that schema= and migrations=")
        if store is not None and WaypointSaver(store).store.key != saver.store.key:
            raise UsageError("the graph has a WaypointSaver with another store; leave store= out")
    elif saver is None or saver is False:
        saver = WaypointSaver(store, schema=schema, migrations=migrations)
        graph = graph.copy(update={"checkpointer": saver})
    else:
        raise UsageError(
            f"the graph has a checkpointer already, a {type(saver).__name__}; compile it without "
            "one, or with a WaypointSaver"
        )
    handed = Handed(graph, Given(continues, replay, seed, on_uncertain))
    takeover = asked_for(run_of(run_id), takeover=takeover)
    return ResumableGraph(graph, saver, run_of(run_id), run_id, handed, takeover=takeover)


class ResumableGraph:
    """A graph whose every call is the same job; see `resumable_graph`."""

    def __init__(
        self,
        graph: Pregel[Any, Any, Any, Any],
        saver: WaypointSaver,
        run_id: str,
        thread_id: Any,
        handed: Handed,
        *,
        takeover: bool = False,
    ) -> None:
        self.graph = graph
        self.run_id = run_id
        self._saver = saver
        self._thread_id = thread_id
        self._handed = handed
        self._takeover = takeover
        self._parts = parts_of(graph)

    def __repr__(self) -> str:
        return f"<ResumableGraph {self.run_id!r} in {self._saver.store.where(self.run_id)}>"

    # ------------------------------------------------------------------ the four calls

    def invoke(self, input: Any, config: Any = None, *, again: bool = False, **options: Any) -> Any:  # noqa: A002 - LangGraph's name
        """Run the graph to its end or its next pause, from wherever it is.

        Args:
            input: what the job is given; the same in each start. None and a `Command` go on; a new
                job that goes on from another run may begin with None. An
                answer, `Command(resume=…)`, is on disk before the node that asked sees it; one that
                was used before a crash counts as None.
            config: as in LangGraph; its thread_id, if any, is the run_id.
            again: begin anew, with any input; what was recorded stays in the history.
            options: as in LangGraph; `durability` is "sync" unless it is given.

        Returns:
            What LangGraph returns; for a finished job what it returned then.

        Raises:
            InputChanged: the job was begun with another input, or what it asked has another answer;
                both are shown. Or it goes on from another run than `continues` says.
            RunNotFound, WaypointNotFound: there is no such run to go on from.
            UsageError: an answer is by the id of an interrupt that the job does not wait for.
            RunBusy: another living process works on the job, or on the run that it goes on from.
        """
        config = self._config(config)
        with self._alone(), self._owning(), self._checks() as checks:
            start = self._start(input, config, again=again)
            if start.pause is not None:
                return start.pause.result(options)
            with self._told():
                result = self._rounds(checks, config, options).invoke(start.value)
            self._ended(start, config)
            return result

    async def ainvoke(
        self,
        input: Any,  # noqa: A002 - LangGraph's name
        config: Any = None,
        *,
        again: bool = False,
        **options: Any,
    ) -> Any:
        """Run the graph from async code; see `invoke`."""
        config = self._config(config)
        async with self._alone(), self._owning():
            with self._checks() as checks:
                start = await asyncio.to_thread(self._start, input, config, again=again)
                if start.pause is not None:
                    return start.pause.result(options)
                with self._told():
                    result = await self._rounds(checks, config, options).ainvoke(start.value)
                await asyncio.to_thread(self._ended, start, config)
                return result

    def stream(
        self,
        input: Any,  # noqa: A002 - LangGraph's name
        config: Any = None,
        *,
        again: bool = False,
        **options: Any,
    ) -> Iterator[Any]:
        """Stream what the graph does from wherever it is; see `invoke`.

        Of a finished job only "values" are streamed: its result.
        """
        config = self._config(config)
        with self._alone(), self._owning(), self._checks() as checks:
            start = self._start(input, config, again=again)
            if start.pause is not None:
                yield from start.pause.parts(options, self.graph.stream_mode)
                return
            with self._told():
                yield from self._rounds(checks, config, options).stream(start.value)
            self._ended(start, config)

    async def astream(
        self,
        input: Any,  # noqa: A002 - LangGraph's name
        config: Any = None,
        *,
        again: bool = False,
        **options: Any,
    ) -> AsyncIterator[Any]:
        """Stream from async code; see `stream`."""
        config = self._config(config)
        async with self._alone(), self._owning():
            with self._checks() as checks:
                start = await asyncio.to_thread(self._start, input, config, again=again)
                if start.pause is not None:
                    for part in start.pause.parts(options, self.graph.stream_mode):
                        yield part
                    return
                with self._told():
                    async for item in self._rounds(checks, config, options).astream(start.value):
                        yield item
                await asyncio.to_thread(self._ended, start, config)

    def _alone(self) -> Alone:
        """Return the block in which no other thread or task of this process does the job."""
        return self._saver.thread(self.run_id).run.alone()

    def _owning(self) -> Ownership:
        return self._saver.thread(self.run_id).run.owning(takeover=self._takeover)

    def _checks(self) -> AbstractContextManager[Checks]:
        """Return the block in which an answer goes only to what was heard to be asked."""
        return self._saver.thread(self.run_id).people.checks.during(self._parts)

    def _rounds(self, checks: Checks, config: RunnableConfig, options: Any) -> Rounds:
        return Rounds(self.graph, checks, config, {"durability": "sync", **options})

    # ------------------------------------------------------------------ where it is

    def _config(self, config: Any) -> RunnableConfig:
        merged: Any = dict(config or {})
        configurable = dict(merged.get("configurable") or {})
        given = configurable.get("thread_id", self._thread_id)
        if run_of(given) != self.run_id:
            raise UsageError(
                f"the config names thread {one_line(str(given))}, and this job is run "
                f"{one_line(self.run_id)}; leave the thread_id out"
            )
        configurable["thread_id"] = self._thread_id
        merged["configurable"] = configurable
        return merged  # type: ignore[no-any-return]

    def _start(self, value: Any, config: RunnableConfig, *, again: bool) -> _Start:
        thread = self._saver.thread(self.run_id)
        encoded = None if value is None or isinstance(value, Command) else codec.encode(value)
        handed = self._handed.begin(thread.run, value)
        if again:
            if encoded is None:
                raise UsageError("again=True begins anew and needs an input")
            return self._begin(value, encoded)
        given = thread.given(self._saver.schema)
        if given is None and handed is not None and self._newest() is None:
            if isinstance(value, Command):
                raise UsageError(
                    f"run {one_line(self.run_id)} is new and goes on from {one_line(handed.source)}"
                    ": invoke it with its input, or with None"
                )
            return self._begin(value, codec.encode(value), keeps_steps=True)
        if given is None:
            return self._first(value, encoded, config)
        if not given[0]:
            given = (digest_of(codec.encode(given[1])), given[1])
        if encoded is not None and digest_of(encoded) != given[0]:
            raise InputChanged(
                f"run {one_line(self.run_id)} was begun with {differing(given[1], value)} and is "
                f"now given {differing(value, given[1])}. Start it with the recorded input, use "
                "another run_id, or begin anew with again=True."
            )
        return self._go_on(value, given, config)

    def _begin(self, value: Any, encoded: codec.Encoded, *, keeps_steps: bool = False) -> _Start:
        call = digest_of(encoded)
        start = self._given(call, encoded)  # nothing is written where it cannot be made
        thread = self._saver.thread(self.run_id)
        thread.begin_job(call, value, self._saver.schema, keeps_steps=keeps_steps)
        return start

    def _first(self, value: Any, encoded: codec.Encoded | None, config: RunnableConfig) -> _Start:
        empty = self._newest() is None
        if empty and encoded is not None:
            return self._begin(value, encoded)
        if encoded is None:
            if isinstance(value, Command) and value.resume is not None and empty:
                raise UsageError(
                    f"run {one_line(self.run_id)} is new and asks nothing: invoke it with its input"
                )
            if empty:
                return _Start(value, None)
            asked = self._state(config).interrupts
            said = value.resume if isinstance(value, Command) else None
            if not asked and said is not None:
                self._answers().check_used(said)
                return _Start(_without_answer(value), None)
            if not asked or (said is not None and self._answers().take(asked, said) is None):
                return _Start(value, None)
            self._saver.thread(self.run_id).people.expect(asked)
            return _Start(_without_answer(value), None)
        raise UsageError(
            f"thread {one_line(self.run_id)} was begun without resumable_graph, so its input is "
            "not recorded: invoke it with None to go on, or with again=True to begin anew"
        )

    def _given(self, call: str, encoded: codec.Encoded) -> _Start:
        # A copy: LangGraph gives messages of the input their ids in place (1.2.24), and the
        # program may pass the same object again.
        value = codec.decode(encoded.data, encoded.tagged, encoded.shared)
        return _Start(self._handed.seeded(value), call)

    def _go_on(self, value: Any, given: tuple[str, Any], config: RunnableConfig) -> _Start:
        call, recorded = given
        thread = self._saver.thread(self.run_id)
        loaded = self._newest()
        if loaded is None:  # killed before its first checkpoint
            return self._given(call, codec.encode(recorded))
        said, more = None, False
        if isinstance(value, Command):
            said, more = value.resume, _without_answer(value) is not None
            if more and said is None:
                return _Start(value, call)
            if names_questions(said):
                # They may have been asked before nodes got other names.
                said = {loaded.questions.get(key, key): answer for key, answer in said.items()}
                value = replace(value, resume=said)
        state = self._state(config)
        if not state.interrupts:
            self._answers().check_used(said)
            if more:
                return _Start(_without_answer(value), call)
        if not state.tasks:
            self._refuse_other_graph(loaded)
            outcome = thread.run.outcome
            if not outcome or outcome.get("outcome") != "finished":
                thread.run.finish(call=call)  # killed between its last checkpoint and this record
            # LangGraph gives the result in whatever form it is asked for, and runs nothing.
            return _Start(None, None)
        asked = state.interrupts
        if not asked:
            # An answer where nothing is asked was given before a crash, and used: were it given
            # to LangGraph again, it would be the answer to whatever is asked next.
            return _Start(None, call)
        answered = self._answers().take(asked, said)
        if answered is None:
            return _Start(value, call)  # LangGraph says what is wrong with it
        if not answered and not more:
            return _Start(None, call, Pause(self._output(state.values), asked))
        thread.people.expect(asked)
        return _Start(_without_answer(value), call)

    def _answers(self) -> Answering:
        return Answering(self._saver.thread(self.run_id), self._saver.schema)

    def _newest(self) -> Loaded | None:
        return self._saver.thread(self.run_id).newest("", self._saver.schema)

    def _refuse_other_graph(self, loaded: Loaded) -> None:
        """Refuse a graph that lacks a node which was to run: LangGraph would call it finished.

        Raises:
            SchemaMismatch: it does.
        """
        values = loaded.state
        none: list[str] = []
        nodes = untold(
            lambda: upcoming(
                values["channel_values"], values["channel_versions"], values["versions_seen"]
            ),
            none,
        )
        gone = [node for node in nodes if node not in self.graph.nodes]
        if gone:
            names = ", ".join(one_line(node, 60) for node in dict.fromkeys(gone))
            raise SchemaMismatch(
                f"run {one_line(self.run_id)} is to go on at the node {names}, which this graph "
                "does not have. Give the node its name back, lead the thread to its new name with "
                "migrations=[rename_node(…)], or begin anew with again=True."
            )

    def _state(self, config: RunnableConfig) -> StateSnapshot:
        """Return where the graph is. No tasks: at its end; with tasks, all may have run already."""
        return self.graph.get_state(config)

    def _output(self, values: Any) -> Any:
        """Return what `invoke` returns of the values of a state."""
        channels = self.graph.output_channels
        if isinstance(channels, str):
            single = isinstance(self.graph.stream_channels_asis, str)
            return values if single else values.get(channels)
        return {name: values[name] for name in channels if name in values}

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Record that the work raised, so that lists say so.

        A call that LangGraph refuses before any node begins leaves a job that waits as it was.
        """
        run = self._saver.thread(self.run_id).run
        before, waits = run.journal.tail, bool(run.pending.questions)
        try:
            with self._handed.during(run):
                yield
        except Exception as error:
            refused = waits and run.journal.tail == before
            if not refused and not isinstance(error, CaravanseraiError):
                # What the work raised matters more than that this could not be told or written.
                with suppress(Exception):
                    text = f"{type(error).__name__}: {error}".removesuffix(": ")
                    run.fail(quoted(text, 300))
            raise

    def _ended(self, start: _Start, config: RunnableConfig) -> None:
        """Record the end, if the graph has come to it."""
        if start.call is None:
            return
        if not self._state(config).tasks:
            self._saver.thread(self.run_id).run.finish(call=start.call)


def _without_answer(value: Any) -> Any:
    """Return what else a `Command` is for, or None; its answer is recorded by itself."""
    more = isinstance(value, Command) and (value.update is not None or bool(value.goto))
    return replace(value, resume=None) if more else None
