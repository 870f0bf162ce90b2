"""`WaypointFlowPersistence`: flows that keep their state, and their place, in waypoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.flow.persistence.base import FlowPersistence
from pydantic import BaseModel, Field, field_serializer

from caravanserai.crewai import _flow, _flows, _notes, _outputs, _sdk
from caravanserai.crewai._job import ADAPTER
from caravanserai.crewai._options import Options, check_options
from caravanserai.crewai._steps import here
from caravanserai_core import questions, reading
from caravanserai_core import schema as schemas
from caravanserai_core.errors import RunNotFound, UsageError
from caravanserai_core.handed import Handoff
from caravanserai_core.homes import store_for
from caravanserai_core.journal import journal_for
from caravanserai_core.quoting import one_line
from caravanserai_core.run import open_run

if TYPE_CHECKING:
    from caravanserai_core.journal import Journal


class WaypointFlowPersistence(FlowPersistence):
    """Keeps the state of flows and the place where they are; for `@persist` and `persistence=`.

        @persist(WaypointFlowPersistence())
        class Report(Flow): …

        Report().kickoff(inputs={"id": "report-7", "topic": "bees"})

    The id of the flow is the name of its run. The same line starts, goes on after a crash at the
    method that was running, and returns the recorded result when finished; without an id each
    kickoff is a new run.

    Attributes:
        store: a store, a folder or URL; by default CARAVANSERAI_STORE, else `.caravanserai` here.
        turns: a kickoff of a finished flow is a further turn on the state that it left, as with
            CrewAI's own persistence. By default it returns the recorded result, and other inputs
            are refused.
        again: begin anew, whatever is recorded.
        takeover: take the run from another living process, if one works on it.
        on_uncertain: what to do about a tool that began and never reported back; as in
            `waypoints`.
        schema: the schema of the states that the program writes; see `open_run`.
        migrations: one function for each step from schema to schema.
        continues: the run that a new run goes on from, of whatever framework: "RUN" or "RUN@3", in
            the same store; or what `handoff()` returned. A name may hold inputs of the kickoff.
            `caravanserai.current_run().handoff` is what the methods of the flow were handed.
        replay: names of tools whose recorded results of that run are given again where they are
            called with equal arguments.

    A kickoff raises, beside what CrewAI raises:
        InputChanged: the run was begun with other inputs, or goes on from another run.
        RunNotFound: there is no run to go on from.
        RunBusy: another living process works on it.
        UnserialisableState: the state cannot be kept exactly; the waypoint before stands.
    """

    persistence_type: str = Field(default="WaypointFlowPersistence")
    store: Any = None
    turns: bool = False
    again: bool = False
    takeover: bool = False
    on_uncertain: Any = None
    schema_version: int | None = Field(default=None, alias="schema")
    migrations: Any = Field(default=(), exclude=True)
    continues: Any = None
    replay: Any = ()

    def model_post_init(self, context: Any, /) -> None:
        """Check the options."""
        super().model_post_init(context)
        check_options(self.options("flow"))
        schemas.declared(self.schema_version, self.migrations)
        _flows.install()

    @field_serializer("store", when_used="json")
    def _store_name(self, store: Any) -> str | None:
        return store if store is None or isinstance(store, str) else str(store)

    @field_serializer("continues", when_used="json")
    def _continues_name(self, continues: Any) -> str | None:
        return continues.source if isinstance(continues, Handoff) else continues

    def init_db(self) -> None:
        """Do nothing: a run is made where the first thing is written of it."""

    def save_state(
        self, flow_uuid: str, method_name: str, state_data: dict[str, Any] | BaseModel
    ) -> None:
        """Keep a state; inside of a kickoff the waypoint of the method has it.

        Args:
            flow_uuid: id of the flow.
            method_name: the method that ended.
            state_data: the state.

        Raises:
            UnserialisableState: it cannot be kept exactly; nothing was written.
            StoreFailed, …: nothing was written, the earlier waypoints stand.
        """
        if self._works_on(flow_uuid) is None:
            self._save(flow_uuid, {"name": method_name}, state_data, None)

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """Return the newest state of a flow, None where there is none.

        Raises:
            JournalDamaged, UnknownType, …: it cannot be read.
        """
        job = self._works_on(flow_uuid)
        if job is not None:
            return job.restored
        tree = self._newest(flow_uuid)
        return None if tree is None else tree["state"]

    def save_pending_feedback(
        self,
        flow_uuid: str,
        context: PendingFeedbackContext,
        state_data: dict[str, Any] | BaseModel,
    ) -> None:
        """Keep that a person is asked, as a waypoint; see `save_state`."""
        job = self._works_on(flow_uuid)
        if job is not None:
            job.pause(context, state_data)
        else:
            waits = {
                "method": str(context.method_name),
                "message": context.message,
                "output": None,
                "emit": context.emit,
                "context": _sdk.kept_context(context),
            }
            self._save(flow_uuid, {"name": str(context.method_name)}, state_data, waits)

    def load_pending_feedback(
        self, flow_uuid: str
    ) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        """Return the state of a flow that waits for a person, and what is asked."""
        tree = self._newest(flow_uuid)
        if tree is None or tree["at"] != "pause":
            return None
        return tree["state"], _sdk.restored_context(tree["waits"]["context"])

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        """Keep that a person answered; inside of a kickoff the next waypoint says so."""
        tree = None if self._works_on(flow_uuid) is not None else self._newest(flow_uuid)
        if tree is not None and tree["at"] == "pause":
            self._save(flow_uuid, {"name": tree["waits"]["method"]}, tree["state"], None)

    # ------------------------------------------------------------------ for the adapter

    def options(self, run_id: str) -> Options:
        """Return how a run of a flow is kept."""
        return Options(
            run_id,
            None,
            self.store,
            self.again,
            self.takeover,
            self.on_uncertain,
            self.schema_version,
            self.migrations,
            self.continues,
            self.replay,
        )

    def asks(self, flow_uuid: str) -> bool:
        """Say whether a flow waits for an answer that its run has asked for."""
        tree = self._newest(flow_uuid)
        return tree is not None and tree["at"] == "pause" and not tree.get("loose")

    def answer(self, flow_uuid: str, feedback: str) -> None:
        """Record feedback that the program brings, unless a person answered already."""
        journal = self._journal(flow_uuid)

        def record() -> None:
            if questions.fresh(journal).open:
                questions.record_answer(journal, feedback, checked=False)
            elif feedback:
                raise UsageError(
                    f"run {one_line(flow_uuid)}: the feedback was given already. Nothing was "
                    "changed. Call resume() without any to go on."
                )

        journal.turns.do(record)

    def _works_on(self, flow_uuid: str) -> _flow.FlowJob | None:
        place = here.get()
        job = None if place is None else place.job
        if isinstance(job, _flow.FlowJob) and job.run.run_id == str(flow_uuid):
            return job
        return None

    def _journal(self, flow_uuid: str) -> Journal:
        run_id = str(flow_uuid)
        journal = journal_for(store_for(run_id, self.store), run_id)
        wanted = schemas.declared(self.schema_version, self.migrations)
        if wanted is not None:
            journal.schema = wanted
        return journal

    def _newest(self, flow_uuid: str) -> dict[str, Any] | None:
        journal = self._journal(flow_uuid)
        try:
            chain = reading.newest(journal.store, journal.run_id, "")
        except RunNotFound:
            return None
        if not chain:
            return None
        tree = schemas.decode(
            chain, chain[-1].waypoint, journal.store, journal.run_id, journal.schema
        )
        ours = isinstance(tree, dict) and "flow" in tree and tree.get("state") is not None
        return tree if ours else None

    def _save(
        self,
        flow_uuid: str,
        method: dict[str, Any],
        state: dict[str, Any] | BaseModel,
        waits: dict[str, Any] | None,
    ) -> None:
        """Write a waypoint outside of a kickoff of ours."""
        run_id = str(flow_uuid)
        run = open_run(
            run_id,
            store=self.store,
            adapter=ADAPTER,
            schema=self.schema_version,
            migrations=self.migrations,
        )
        entry = {**method, "output": _outputs.kept(None), "seconds": 0.0, "did": {}}
        tree: dict[str, Any] = {
            "at": "method" if waits is None else "pause",
            "crewai": _sdk.crewai_version(),
            "flow": {"name": "flow"},
            "given": {},
            "methods": [entry],
            "state": _flow.fields_of(state),
            "carried": {},
            "loose": True,
        }
        if waits is not None:
            tree["waits"] = waits
        before = run.state
        if isinstance(before, dict) and "handed" in before:
            tree["handed"] = before["handed"]
        note = (
            _notes.paused(tree, run_id)
            if waits
            else _notes.method_done(tree, run_id, resumed=False)
        )
        with run:
            run.checkpoint(tree, note)
