"""Calls of tools: written down before they begin and when they ended, as steps of the core.

Which call may begin, which waits for a person, and which is refused is decided here. A model that
was cut off decides itself what it does again. Where that equals a call which may have happened, a
person is asked first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from caravanserai.claude_agent import _tools
from caravanserai.claude_agent._facts import LONG, shown
from caravanserai.claude_agent._tools import HARMLESS, known_by, what_counts
from caravanserai_core import effects, questions, stepping
from caravanserai_core.errors import EffectStopped, EffectUncertain
from caravanserai_core.escaping import noted
from caravanserai_core.pending import after_stop
from caravanserai_core.quoting import one_line, quoted
from caravanserai_core.redact import redact
from caravanserai_core.stepping import Flight, Step, bare, token_slug
from caravanserai_core.words import arguments_text, value_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from caravanserai.claude_agent._options import Options
    from caravanserai_core.handed import Handoff
    from caravanserai_core.journal import Journal
    from caravanserai_core.ledger import Effect

_ROOM: Final = 100
"""Most characters of arguments that notes show."""

_OPEN: Final = ("started", "uncertain", "unrecorded")


class Go(NamedTuple):
    """The call begins.

    Attributes:
        approved: a person said so: no rule of the session asks again.
    """

    approved: bool = False


class Refused(NamedTuple):
    """The call does not begin.

    Attributes:
        reason: what the model is told.
        taken: id of the question whose answer says that the call happened, or "".
    """

    reason: str
    taken: str = ""


class Given(NamedTuple):
    """The call was made before, and its result is given again.

    Attributes:
        reason: what the model is told.
    """

    reason: str


class Replayed(NamedTuple):
    """The run that this one goes on from made the call, and its result is given again.

    Attributes:
        reason: what the model is told.
        source: that run.
    """

    reason: str
    source: str


class Ended(NamedTuple):
    """A call that ended.

    Attributes:
        tool: what was called.
        digest: of its arguments.
        shown: the arguments, as people read them.
        result: what it gave, as the model reads it.
    """

    tool: str
    digest: str
    shown: str
    result: str


class Deferred(NamedTuple):
    """The call waits for a person; the session ends at it.

    Attributes:
        question: the id of the question.
    """

    question: str


Decision = Go | Refused | Given | Replayed | Deferred


class Calls:
    """The calls of a start of a run.

    Args:
        journal: that of the run.
        options: how it is kept.
        handed: what the run was handed by another one, or None.

    Attributes:
        waits: the call that the session ends at, once there is one.
        finished: calls that the model does not know the results of, by their ids.
    """

    def __init__(self, journal: Journal, options: Options, handed: Handoff | None = None) -> None:
        self._handed = handed
        self._replay = _results(handed, options.replay) if handed is not None else {}
        self._inherited = _uncertain(handed) if handed is not None else {}
        self._journal = journal
        self._options = options
        self._flights: dict[str, Flight] = {}
        self.waits: str | None = None
        self.finished: dict[str, Ended] = {}

    # ------------------------------------------------------------------ in the run's turn

    def begin(self, id_: str, tool: str, given: Mapping[str, Any], *, inside: bool) -> Decision:
        """Decide whether a call begins, and write down that it does.

        Args:
            id_: its id in the session.
            tool: what is called.
            given: its arguments.
            inside: a subagent makes it, which cannot wait for a person.

        Raises:
            EffectStopped: a person said that the run ends with such a call.
            EffectUncertain: the program said so.
        """
        digest = digest_of(tool, given)
        ended = self._finished(tool, digest)
        if ended is not None:
            return Given(_tools.given(ended.result))
        result = self._replay.get(known_by(tool, given)) if self._replay else None
        if result is not None:
            return self._replayed(tool, given, digest, result)
        known = self._uncertain(tool, given, digest)
        step = self._step(tool, given, digest, known)
        flight = Flight(step)
        if known is not None:
            decision = self._again(flight, known, id_, tool, inside)
        elif self._options.approved_by_people(tool):
            decision = self._approved(flight, id_, tool, given, inside)
        else:
            decision = Go()
        if isinstance(decision, Go):
            stepping.start(self._journal, flight, known, again=known is not None)
            self._flights[id_] = flight
        return decision

    def end(self, id_: str, error: str | None, *, paused: bool = False) -> bool:
        """Write down that a call ended; returns whether that was not known.

        Args:
            id_: the call.
            error: what it failed with, or None.
            paused: it stopped to wait for a person.
        """
        flight = self._flights.pop(id_, None)
        if flight is None:
            return False
        if paused:
            stepping.add(self._journal, flight, {"what": "paused"})
        elif error is None:
            stepping.record_result(self._journal, flight, None, {})
        else:
            fields = {"what": "error", "error": quoted(one_line(redact(error), 300), 300)}
            stepping.add(self._journal, flight, fields)
        return True

    def close(
        self, running: Mapping[str, Mapping[str, str]], ended: Mapping[str, bool]
    ) -> set[str]:
        """Write down the ends of calls of earlier starts that the transcript tells of.

        Returns the ids of those calls.

        A process of the CLI that outlived its program may have finished a command.

        Args:
            running: tool and digest of the calls that began, by id.
            ended: the calls that have a result in the transcript; whether the tool gave it.
        """
        closed: set[str] = set()
        for id_, made in running.items():
            if not ended.get(id_):
                continue
            for name, effect in list(self._journal.ledger.effects.items()):
                whose = name[0] == made["tool"] or name in self._inherited
                equal = whose and effect.head.get("arguments") == made["call"]
                if equal and effect.what == "started":
                    flight = Flight(Step(name, made["call"], str(effect.head.get("of", ""))))
                    flight.attempt = effect.attempt
                    stepping.record_result(self._journal, flight, None, {})
                    closed.add(id_)
                    break
        return closed

    def is_open(self, id_: str) -> bool:
        """Say whether a call of this start has no end yet."""
        return id_ in self._flights

    def unsettled(self) -> Iterator[Effect]:
        """Yield the calls of earlier starts that began and never reported back."""
        mine = {flight.step.name for flight in self._flights.values()}
        for name, effect in self._journal.ledger.effects.items():
            if effect.what in _OPEN and name not in mine and "of" in effect.head:
                yield effect

    def refuse_stopped(self) -> None:
        """Refuse to go on where a person said that the run ends with a call.

        Raises:
            EffectStopped: a person did.
        """
        for name, effect in self._journal.ledger.effects.items():
            if effect.what in _OPEN:
                flight = Flight(Step(name, "", str(effect.head.get("of", ""))))
                found = effects.question_of(self._journal, flight, effect)[1]
                if found is not None and found.answer and questions.value_of(found)[0] == "stop":
                    raise self._stopped(flight, found.id)

    def let_go(self) -> None:
        """Let calls of earlier starts be of which it does not matter whether they happened."""
        for name, effect in list(self._journal.ledger.effects.items()):
            if effect.what == "started" and name[0] in HARMLESS:
                flight = Flight(Step(name, "", str(effect.head.get("of", ""))))
                flight.attempt = effect.attempt
                stepping.add(self._journal, flight, {"what": "paused"})

    # ------------------------------------------------------------------ which call it is

    def _finished(self, tool: str, digest: str) -> Ended | None:
        """Return an equal call whose result the model does not know, once for each such call."""
        for id_, ended in self.finished.items():
            if (ended.tool, ended.digest) == (tool, digest):
                return self.finished.pop(id_)
        return None

    def _uncertain(self, tool: str, given: Mapping[str, Any], digest: str) -> Effect | None:
        """Return an equal call of an earlier start, or of the other run, that may have happened."""
        mine = {flight.step.name for flight in self._flights.values()}
        for name, effect in self._journal.ledger.effects.items():
            if effect.what not in _OPEN or name in mine:
                continue
            if name[0] == tool and effect.head.get("arguments") == digest:
                return effect
            if name in self._inherited and self._inherited[name] == known_by(tool, given):
                return effect
        return None

    def _replayed(self, tool: str, given: Mapping[str, Any], digest: str, result: str) -> Replayed:
        assert self._handed is not None, "nothing to give again"
        flight = Flight(self._step(tool, given, digest, None))
        flight.attempt = 1
        source = self._handed.run_id
        stepping.record_result(self._journal, flight, None, {"replayed": source})
        return Replayed(_tools.replayed(result), source)

    def _step(self, tool: str, given: Mapping[str, Any], digest: str, known: Effect | None) -> Step:
        """Return a call as a step of the core: told by how many equal ones were made before it."""
        effects_ = self._journal.ledger.effects
        if known is not None:
            name = next(name for name, effect in effects_.items() if effect is known)
        else:
            before = sum(
                name[0] == tool and effect.head.get("arguments") == digest
                for name, effect in effects_.items()
            )
            name = (tool, questions.digest_of([digest, before + 1], "a call"))
        token = f"{token_slug(self._journal.run_id)}/{name[1][:16]}"
        if name in self._inherited and known is not None:
            token = str(known.records[0].head.get("token") or token)
        return Step(name, digest, shown(given, _ROOM), token=token)

    # ------------------------------------------------------------------ what people say

    def _again(self, flight: Flight, known: Effect, id_: str, tool: str, inside: bool) -> Decision:
        """Decide about a call that equals one which may have happened."""
        policy = self._options.policy(tool)
        question, found = effects.question_of(self._journal, flight, known)
        if found is not None and found.answer is not None:
            said, result = questions.value_of(found)
            questions.give(self._journal, found.id)
            if said == "stop":
                raise noted(self._stopped(flight, found.id))
            if said == "happened":
                flight.attempt = known.attempt
                stepping.record_result(self._journal, flight, None, {"taken": found.id})
                told = None if result is questions.NOT_GIVEN else _shown(result)
                return Refused(_tools.taken(told), taken=found.id)
            return Go(approved=self._options.approved_by_people(tool))
        if policy == "rerun":
            return Go()
        if policy == "stop":
            raise noted(
                EffectUncertain(
                    f"run {one_line(self._journal.run_id)}: {flight.step.told} began before the "
                    "session was cut off, and never reported back. It may have happened. Look, "
                    'then run with on_uncertain="ask" or "rerun".',
                    label=tool,
                )
            )
        return self._ask(question, found, id_, inside)

    def _stopped(self, flight: Flight, question: str) -> EffectStopped:
        return EffectStopped(
            f"run {one_line(self._journal.run_id)}: {question} was answered stop: "
            f"{flight.step.told} is not run again, and the run ends here, at each start. "
            f"{after_stop(self._journal.run_id)}",
            label=flight.step.name[0],
        )

    def _approved(
        self, flight: Flight, id_: str, tool: str, given: Mapping[str, Any], inside: bool
    ) -> Decision:
        """Decide about a call that a person has to approve."""
        question = questions.wanted(
            f"Run {tool}?",
            options=[True, False],
            key=["approval", *flight.step.name, self._journal.ledger.passes],
            payload={"tool": tool, "arguments": dict(given)},
            shown=_asked(tool, given),
            how="Approve or reject it (`--reason` tells Claude why), then start the program again "
            "with the same `run_id`.",
        )
        found = questions.find(self._journal, question)
        if found is None or found.answer is None:
            return self._ask(question, found, id_, inside)
        questions.give(self._journal, found.id)
        if questions.value_of(found)[0] is True:
            return Go(approved=True)
        head = found.answer.head
        reason = f": {one_line(redact(str(head['reason'])), 1000)}" if head.get("reason") else "."
        return Refused(f"A person did not allow this call{reason}")

    def _ask(self, question: questions.Wanted, found: Any, id_: str, inside: bool) -> Decision:
        while found is None:
            try:
                questions.put(self._journal, question)
            except questions.Changed:
                pass
            found = questions.find(self._journal, question)
        if inside:
            return Refused(
                "Not run: a person has to decide about this call first, and a subagent cannot "
                "wait for that. Report it back: the main agent has to make this very call itself."
            )
        if self.waits not in (None, id_):
            # The CLI keeps one deferred call and drops the others without a word (2.1.332).
            return Refused(
                "Not run yet: a person has to decide about this call, and about another one "
                "first. Make this very call again, by itself, once that is decided."
            )
        self.waits = id_
        self._journal.renew_live()
        return Deferred(found.id)


def _asked(tool: str, given: Mapping[str, Any]) -> str:
    """Return what a person is asked who has to approve a call: all of it, as far as it goes."""
    long_ = [value for value in given.values() if isinstance(value, str) and len(value) > LONG]
    if not long_:
        return f"Claude asks to run {tool}({arguments_text(given)})"
    lines = [
        f"{name}: {value if isinstance(value, str) else value_text(value).strip('`')}"
        for name, value in given.items()
    ]
    return "\n".join([f"Claude asks to run {tool} with", *lines])


def digest_of(tool: str, given: Mapping[str, Any]) -> str:
    """Return the digest of what counts among the arguments of a call."""
    return questions.digest_of(what_counts(tool, given), "a call")


def _results(handed: Handoff, replay: Iterable[str]) -> dict[tuple[str, str], str]:
    """Return the newest results of some tools in the run before, whole, by their calls."""
    names = set(map(bare, replay))
    said = handed.transcript.messages
    gave = {m.tool_call_id: m.text for m in said if m.role == "tool" and not m.failed}
    return {
        known_by(call.name, call.arguments): gave[call.id]
        for message in said
        for call in message.tool_calls
        if bare(call.name) in names and call.id in gave and isinstance(call.arguments, dict)
    }


def _uncertain(handed: Handoff) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the calls that came along as open steps: what they are known by, by their steps."""
    open_ = [one["head"] for one in handed.steps if "same" in one["head"]]
    names = list(dict.fromkeys((head["label"], head["key"]) for head in open_))
    calls = handed.transcript.uncertain
    return {
        name: known_by(call.name, call.arguments)
        for name, call in zip(names, calls, strict=False)
        if name[0] == call.name
    }


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else value_text(value).strip("`")
