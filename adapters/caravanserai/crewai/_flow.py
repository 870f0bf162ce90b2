"""One start of a flow: which methods are done, what is recorded while it works, how it ends.

CrewAI's engine is driven again from the flow's start, and each method that ended gives what it
gave, without being run. So routers, `and_`, `or_` and loops come to the method that was running,
by the engine's own rules.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from crewai.flow.async_feedback.types import HumanFeedbackPending
from pydantic import BaseModel

from caravanserai.crewai import _notes, _outputs, _sdk
from caravanserai.crewai._job import Job, Recorded, own_copy
from caravanserai.crewai._steps import PERSON, Place, Steps, digest
from caravanserai_core import codec
from caravanserai_core.errors import UnserialisableState, WaitingForPerson
from caravanserai_core.escaping import collected
from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from crewai.flow.async_feedback.types import PendingFeedbackContext
    from crewai.flow.flow import Flow

    from caravanserai.crewai._options import Options
    from caravanserai_core.run import Run

_log = logging.getLogger("caravanserai")

_BODY = "body"


class FlowJob(Job):
    """One start of a flow.

    Args:
        flow: the flow.
        run_id: its id.
        given: the inputs that its kickoff is given, without the id.
        options: how the run is kept.
        turns: a kickoff of a finished flow is a further turn on its state.
    """

    def __init__(
        self, flow: Flow[Any], run_id: str, given: dict[str, Any], options: Options, *, turns: bool
    ) -> None:
        super().__init__(run_id, options, options.continues_for({**given, "id": run_id}))
        self._flow = flow
        self._given = own_copy(given)
        self._turns = turns
        self._methods: list[dict[str, Any]] = []
        self._state: dict[str, Any] | None = None
        self._calls: Counter[str] = Counter()
        self._replayed: list[int] = []
        self._lock = threading.Lock()
        self._waits: dict[str, Any] | None = None

    @property
    def flow(self) -> Flow[Any]:
        """The flow."""
        return self._flow

    def open(self) -> Run:
        """Open the run; it is to be entered."""
        return self._open(_notes.flow_goal_of(_sdk.flow_name(self._flow), self._given), "flow")

    # ------------------------------------------------------------------ where it is

    def begin(self) -> Recorded | None:
        """Find out where the run stands; returns what it gave where it is finished.

        Raises:
            InputChanged: it was begun with other inputs.
            WaitingForPerson: it has to be said first whether a tool's call happened.
        """
        before = self._known("flow")
        turn = before is not None and before["at"] == "end" and self._turns
        if before is None or turn or before.get("loose"):
            self._state = None if before is None else before["state"]
            self._begin_pass()
            tree = self._tree("begin")
            self.run.checkpoint(tree, _notes.flow_begun(tree, self._run_id))
            self.steps = Steps(self.run, {})
            return None
        if self._given:
            # `kickoff(inputs={"id": …})` alone is how CrewAI goes on.
            self._check_inputs(before["given"], self._given)
        self._given = before["given"]
        if before["at"] == "end":
            if not self.journal.turns.do(lambda: self.journal.outcome):
                self._record_end(before["result"])  # killed in front of this record
            self._state, self._methods = before["state"], before["methods"]
            return Recorded(_outputs.restored(before["result"]))
        self._settle()
        self._resumed = before["at"] != "pause" and self._was_cut_off()
        self._methods, self._state = list(before["methods"]), before["state"]
        self.steps = Steps(self.run, before["carried"])
        return None

    @property
    def inputs(self) -> dict[str, Any] | None:
        """The inputs that the engine is to begin with.

        A restored state has them already; with the id alone the engine asks for that. Without one
        the engine would say, in red, that it finds none.
        """
        if self._state is None:
            return self._given or None
        return {"id": self._run_id} if self._methods else {**self._given, "id": self._run_id}

    @property
    def restored(self) -> dict[str, Any] | None:
        """The state to go on from; None: the flow's own first one."""
        return copy.deepcopy(self._state)

    def _tree(self, at_: str, carried: dict[str, Any] | None = None) -> dict[str, Any]:
        tree: dict[str, Any] = {
            "at": at_,
            "crewai": _sdk.crewai_version(),
            "flow": {"name": _sdk.flow_name(self._flow)},
            "given": self._given,
            "methods": self._methods,
            "state": self._state,
            "carried": carried or {},
        }
        if self.handed is not None:
            tree["handed"] = self.handed
        if self._waits is not None and at_ == "pause":
            tree["waits"] = self._waits
        return tree

    def _carried(self) -> dict[str, Any]:
        """Return what is recorded of methods that are not at their end."""
        return self.steps.below(*(f"{name}.{n}" for name, n in self._running()))

    def _running(self) -> list[tuple[str, int]]:
        ended = Counter(entry["name"] for entry in self._methods)
        return [(name, n) for name, n in self._calls.items() if n > ended[name]]

    # ------------------------------------------------------------------ working

    def give_back(self) -> None:
        """Put a finished flow where it was at its end: its state, what its methods gave."""
        _sdk.clear(self._flow)
        _sdk.name_it(self._flow, self._run_id)
        if self._state is not None:
            _sdk.restore(self._flow, copy.deepcopy(self._state))
        for number, entry in enumerate(self._methods):
            _sdk.give_again(self._flow, entry["name"], {**entry, "before": number})

    def place_of(self, method: str) -> tuple[Place, dict[str, Any] | None]:
        """Return the place of a call of a method that begins, and what is recorded of its end."""
        with self._lock:
            self._calls[method] += 1
            number = self._calls[method]
            ends = [i for i, entry in enumerate(self._methods) if entry["name"] == method]
            place = Place(self, f"{method}.{number}")
            if number > len(ends):
                return place, None
            found = ends[number - 1]
            self._replayed.append(found)
            return place, {**self._methods[found], "before": self._before(found)}

    def _before(self, index: int) -> int:
        """Return how many of the methods given again ended earlier than one."""
        return sum(1 for other in self._replayed if other < index)

    def body_of(self, place: Place) -> Recorded | None:
        """Return what a method gave that a person is asked about, None: it is not at its end."""
        known = place.steps.recorded(f"{place.path}|{_BODY}")
        return None if known is None else Recorded(_outputs.restored(known))

    def keep_body(self, place: Place, output: Any) -> None:
        """Write down what a method gave, in front of asking a person about it."""
        kept = _outputs.kept(output)
        if self._keeps(place.path, kept):
            place.steps.record(f"{place.path}|{_BODY}", kept)

    def _keeps(self, path: str, kept: Any) -> bool:
        try:
            codec.encode(kept)
        except UnserialisableState as error:
            _log.warning(
                "run %s: what %s gave cannot be kept exactly (%s): it is run again after a crash",
                one_line(self._run_id),
                one_line(path, 60),
                error,
            )
            return False
        return True

    def ended_method(
        self, place: Place, output: Any, feedback: Any, began: float, state: Any
    ) -> None:
        """Write down that a method ended.

        Args:
            place: that of its call.
            output: what it gave the engine.
            feedback: the `HumanFeedbackResult` on it, or None.
            began: when, `time.monotonic()`.
            state: that of the flow.
        """
        with self._lock:
            self._state = fields_of(state)
            did = self._did[place.path]
            entry = {
                "name": place.path.rpartition(".")[0],
                "output": _outputs.kept(output),
                "seconds": time.monotonic() - began,
                "did": {"models": did.models, "tools": did.tools},
            }
            if feedback is not None:
                entry["feedback"] = _sdk.kept_feedback(feedback)
            if not self._keeps(place.path, [entry["output"], entry.get("feedback")]):
                return
            self._methods = [*self._methods, entry]
            tree = self._tree("method", self._carried())
            resumed, self._resumed = self._resumed, False
            self.run.checkpoint(tree, _notes.method_done(tree, self._run_id, resumed=resumed))
            self.steps.forget(place.path)

    # ------------------------------------------------------------------ people

    def feedback(self, place: Place, context: PendingFeedbackContext) -> str:
        """Return what a person says of a method's output.

        Raises:
            HumanFeedbackPending: nobody answered yet; the question is recorded.
        """
        key = f"{place.path}|{PERSON}"
        known = self.steps.recorded(key)
        if known is not None:
            return str(known)
        shown: dict[str, Any] = {"output": _shown(context.method_output)}
        if context.emit:
            shown["leads to one of"] = list(context.emit)
        # The pause is CrewAI's, and ends nothing that this flow may be part of.
        with collected(), self.escaping():
            try:
                given = self.run.ask(context.message, key=[place.path], payload=shown)
            except WaitingForPerson:
                raise HumanFeedbackPending(context=context) from None
            said = "" if given is None else str(given)
            self.steps.record(key, said)
        return said

    def asked(self, place: Place, message: str) -> str:
        """Return a person's answer to what a method asks (`flow.ask`)."""
        key = place.steps.key(PERSON, place.path, digest(message))
        known = place.steps.recorded(key)
        if known is not None:
            return str(known)
        with self.escaping():
            said = self.run.ask(message, key=[key])
            place.steps.record(key, "" if said is None else str(said))
        return "" if said is None else str(said)

    def pause(self, context: PendingFeedbackContext, state: Any) -> None:
        """Write down that a person is asked; called where CrewAI saves its pending feedback."""
        with self._lock:
            self._state = fields_of(state)
            self._waits = {
                "method": str(context.method_name),
                "message": context.message,
                "output": _shown(context.method_output),
                "emit": context.emit,
                "context": _sdk.kept_context(context),
            }
            tree = self._tree("pause", self._carried())
            self.run.checkpoint(tree, _notes.paused(tree, self._run_id))

    # ------------------------------------------------------------------ the end

    def end(self, result: Any) -> None:
        """Write down that the flow is done, with its result."""
        if isinstance(result, HumanFeedbackPending):
            return
        kept = _outputs.kept(result)
        if not self._keeps("the flow", kept):
            # Its methods are recorded: the next start has its result from them.
            self.run.ended({"outcome": "finished", "unrecorded": "$"})
            return
        self._state = fields_of(self._flow.state)
        tree = self._tree("end", self._carried())
        tree["result"] = kept
        resumed, self._resumed = self._resumed, False
        self.run.checkpoint(tree, _notes.flow_finished(tree, self._run_id, resumed=resumed))
        self._record_end(kept)

    def _record_end(self, kept: dict[str, Any]) -> None:
        self.run.finish(kept, call=digest(self._given))


def fields_of(state: Any) -> dict[str, Any]:
    """Return a flow's state by field; nested objects stay what they are."""
    unwrap = getattr(state, "_unwrap", None)
    if callable(unwrap):
        state = unwrap()
    if isinstance(state, BaseModel):
        return {**dict(state), **(state.model_extra or {})}
    return dict(state)


def _shown(value: Any) -> Any:
    """Return a value as a question shows it."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json", fallback=repr) if callable(dump) else value
