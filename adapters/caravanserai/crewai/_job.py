"""One start of a run, of a crew or a flow: what both need while they work."""

from __future__ import annotations

import copy
import logging
from collections import defaultdict
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai.crewai import _sdk
from caravanserai.crewai._escape import leaving
from caravanserai.crewai._steps import MODEL, Place, Steps, digest, simple_name
from caravanserai_core import effects, reading
from caravanserai_core.continuing import Inherited
from caravanserai_core.errors import CaravanseraiError, InputChanged, UsageError
from caravanserai_core.homes import store_for
from caravanserai_core.jobs import Alone
from caravanserai_core.journal import journal_for
from caravanserai_core.names import check_run_id
from caravanserai_core.quoting import one_line
from caravanserai_core.redact import beginning
from caravanserai_core.run import Run, open_run
from caravanserai_core.stepping import token_slug
from caravanserai_core.words import arguments_text, value_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from caravanserai.crewai._options import Options
    from caravanserai_core.continuing import Continues
    from caravanserai_core.effects import OnUncertain

_log = logging.getLogger("caravanserai")

ADAPTER = "crewai"

_SHOWN = 300
"""Most characters of a tool's result that a state keeps for its notes."""


class Recorded(NamedTuple):
    """What a finished run gave."""

    value: Any


class Job:
    """One start of a run.

    Args:
        run_id: its name.
        options: how it is kept.
        continues: the run that it goes on from if it is new, or None.

    Attributes:
        journal: that of the run.
        run: the run, once it is open.
        steps: what is recorded behind its newest waypoint, once the start began.
        token: the name of the run in idempotency keys.
        handed: what it was handed by another run, as its states have it; None: nothing.
        inherited: what its tools took over from that, once the start began.
    """

    run: Run
    steps: Steps
    inherited: Inherited

    def __init__(self, run_id: str, options: Options, continues: Continues) -> None:
        self._run_id = check_run_id(run_id)
        self._options = options
        self._continues = continues
        self.handed: dict[str, Any] | None = None
        self._handed_names: dict[str, str] = {}
        self.journal = journal_for(store_for(self._run_id, options.store), self._run_id)
        self.token = token_slug(self._run_id)
        self._leaving: CaravanseraiError | None = None
        self._failed: set[str] = set()
        self._raised: list[BaseException] = []
        self._did: dict[str, _Did] = defaultdict(_Did)
        self._resumed = False

    def alone(self) -> Alone:
        """Return the block in which no other thread or task of this process does the job."""
        return Alone(self.journal)

    def _open(self, goal: str, kind: str) -> Run:
        options = self._options
        self.journal.framework = f"{_sdk.framework()}, {kind}"
        self.run = open_run(
            self._run_id,
            store=options.store,
            adapter=ADAPTER,
            goal=goal,
            schema=options.schema,
            migrations=options.migrations,
            takeover=options.takeover,
            continues=self._continues,
        )
        if not self.run.exists:
            Inherited(self.run.handoff, options.replay)  # refuses before anything is written
        return self.run

    def _take_over(self, state: Any) -> None:
        """Find what the run was handed: the very texts that its states have, or new ones.

        Args:
            state: the one that the run goes on from, or None.
        """
        handoff = self.run.handoff
        self.handed = state.get("handed") if isinstance(state, dict) else None
        if handoff is None:
            self.inherited = Inherited(None, self._options.replay)
            return
        names = [one.name for one in handoff.results] + [one.name for one in handoff.uncertain]
        self._handed_names = {simple_name(name): name for name in names}
        replay = [self.known_as(name) for name in self._options.replay]
        self.inherited = Inherited(handoff, replay)
        if self.handed is None:
            self.handed = {
                "run_id": handoff.run_id,
                "waypoint": handoff.waypoint,
                "framework": handoff.framework,
                "goal": handoff.goal,
                "text": handoff.render("crewai"),
                "brief": handoff.brief("crewai"),
            }

    def context_of(self, task: Any, context: str | None) -> str | None:
        """Return the context that a task is given: what CrewAI gives, in a flow."""
        return context

    def known_as(self, tool: str) -> str:
        """Return what a tool is called in the run that was handed over, else its own name.

        Models know tools by simpler names than CrewAI: *Look it up* is `look_it_up`.
        """
        return self._handed_names.get(simple_name(tool), tool)

    def _begin_pass(self) -> None:
        """Leave behind what a pass before recorded; what came along in front of the first stays."""
        if self.run.waypoint or self.handed is None:
            self.run.afresh()

    def _known(self, kind: str) -> dict[str, Any] | None:
        """Return the state that the run goes on from, None where it begins.

        Args:
            kind: "crew" or "flow": what the run has to be of.
        """
        state = self.run.state
        self._take_over(state)
        if self._options.again or state is None:
            return None
        if not isinstance(state, dict) or kind not in state or "crewai" not in state:
            raise UsageError(
                f"run {one_line(self._run_id)} is not of a {kind} under caravanserai.crewai: its "
                "state would be lost. Use another run_id."
            )
        return state

    def _check_inputs(self, known: Any, given: Any) -> None:
        """Refuse other inputs than those that the run was begun with.

        Raises:
            InputChanged: they are others; both are shown.
        """
        if known != given or digest(known) != digest(given):  # 1 == True
            raise InputChanged(
                f"run {one_line(self._run_id)} was begun with inputs={one_line(value_text(known))} "
                f"and is started with inputs={one_line(value_text(given))} now. Nothing was run. "
                "Use another run_id, or again=True to begin anew."
            )

    def _settle(self) -> None:
        """Ask about tools that are uncertain, where a person has to be asked, before any work."""
        recent = reading.recent(self.run.store, self._run_id)
        after = recent.chain[0].seq if recent is not None and recent.chain else 0
        self.journal.turns.do(lambda: effects.settle(self.journal, self.policy, after))

    def _warn_of_policies(self, names: set[str]) -> None:
        """Say which names in `on_uncertain=` are of no tool that there is."""
        chosen = self._options.on_uncertain
        for name in chosen.keys() - names if isinstance(chosen, Mapping) else ():
            _log.warning(
                "run %s: on_uncertain= names the tool %s, and no agent has one of that name",
                one_line(self._run_id),
                one_line(str(name), 60),
            )

    def _was_cut_off(self) -> bool:
        """Say whether the start before did not come to an end of its own."""
        return not self.journal.turns.do(lambda: self.journal.outcome)

    # ------------------------------------------------------------------ what ends the start

    def leave(self, error: CaravanseraiError) -> None:
        """Note what ends the start, whatever CrewAI makes of it."""
        self._leaving = self._leaving or getattr(error, "__cause__", None) or error

    @contextmanager
    def escaping(self) -> Iterator[None]:
        """Let an error of ours that is raised inside of the block leave CrewAI."""
        try:
            yield
        except CaravanseraiError as error:
            self.leave(error)
            raise leaving(error) from error

    def stop_if_leaving(self) -> None:
        """Let nothing more begin once something ends the start."""
        if self._leaving is not None:
            raise leaving(self._leaving)

    @property
    def reason(self) -> CaravanseraiError | None:
        """What ends the start, None: nothing does."""
        return self._leaving

    # ------------------------------------------------------------------ what is done

    def policy(self, tool: str) -> OnUncertain:
        """Return what is done where a call of a tool began and never reported back."""
        return self._options.policy(tool)

    def asks(self, path: str, *, failed: bool) -> None:
        """Note whether the model that was asked last at a path failed."""
        (self._failed.add if failed else self._failed.discard)(path)

    def retried(self, path: str) -> None:
        """Begin an agent's work anew: what it did is given again.

        Where no model failed, the newest answer did not do: it is asked for again.
        """
        if path not in self._failed:
            self.steps.void(path)
        self._failed.discard(path)
        self.steps.again(path)

    def answered(self, place: Place, data: dict[str, Any]) -> None:
        """Note an answer of a model, new or recorded."""
        did = self._did[_root(place.path)]
        did.models += 1
        for usage in data["usage"]:
            did.usage.append((data["model"], usage))

    def called(
        self, place: Place, tool: str, arguments: dict[str, Any], text: str, *, failed: bool
    ) -> None:
        """Note that a tool was called, now or before."""
        shown = beginning(text, _SHOWN)  # no part of a secret that is cut there
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
        self._did[_root(place.path)].tools.append(
            {
                "agent": place.agent,
                "tool": tool,
                "arguments": arguments_text(arguments),
                "result": shown,
                "failed": failed,
            }
        )

    def given_again(self, place: Place) -> None:
        """Count what models answered inside of a step that is not done again."""
        models = self.models()
        for key, data in self.steps.below(place.path).items():
            if f"|{MODEL}|" not in key:
                continue
            model = models.get(data["model"])
            if model is not None and _sdk.first_time(model, (self.token, key)):
                for usage in data["usage"]:
                    _sdk.add_usage(model, usage)
            self.answered(place, data)

    def models(self) -> dict[str, Any]:
        """Return the models whose tokens are counted, by name."""
        return {}

    def slot_of(self, model: Any) -> str:
        """Return by which name the tokens of a model are counted."""
        return ""

    @contextmanager
    def programs_own(self) -> Iterator[None]:
        """Note what the program's own code raises: no answer of a model is to blame."""
        try:
            yield
        except Exception as error:
            self._raised.append(error)
            raise

    def failed_at(self, path: str, error: BaseException) -> None:
        """Let what a failed part of the work did last be done again by the next start.

        Not where a model failed, which has no answer, or code of the program.
        """
        causes: list[BaseException] = []
        cause: BaseException | None = error
        while cause is not None and cause not in causes:
            causes.append(cause)
            cause = cause.__cause__ or cause.__context__
        own = any(one is other for one in causes for other in self._raised)
        if path not in self._failed and not own:
            self.steps.void(path, (MODEL, "guardrail"))


class _Did:
    """What was done in one part of a run."""

    def __init__(self) -> None:
        self.models = 0
        self.tools: list[dict[str, Any]] = []
        self.usage: list[tuple[str, dict[str, Any]]] = []


def own_copy(given: dict[str, Any]) -> dict[str, Any]:
    """Return inputs that the program does not change any more.

    What cannot be copied cannot be kept either: the first waypoint says so, with its path.
    """
    try:
        return copy.deepcopy(given)
    except Exception:  # noqa: BLE001 - whatever the object of a program raises
        return given


def _root(path: str) -> str:
    return path.partition("/")[0]
