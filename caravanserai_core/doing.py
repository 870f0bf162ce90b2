"""What a run does beyond writing: steps that are not repeated in silence, questions to people.

`effects` and `questions` hold how; these are the methods of `Run`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from caravanserai_core import effects, questions
from caravanserai_core.errors import UsageError
from caravanserai_core.origins import handed_origin
from caravanserai_core.quoting import one_line
from caravanserai_core.stepping import step_of
from caravanserai_core.threads import in_thread, wait_for
from caravanserai_core.work import Work

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime, timedelta
    from typing import TypeVarTuple

    from caravanserai_core.continuing import Inherited
    from caravanserai_core.effects import OnUncertain
    from caravanserai_core.handed import Handoff
    from caravanserai_core.journal import Journal
    from caravanserai_core.work import NoteLike

    Ts = TypeVarTuple("Ts")

T = TypeVar("T")


class Doing(Work):
    """What can be done in a run that is open; see `Run`."""

    _handed: tuple[Handoff | None] | None = None

    @property
    def handoff(self) -> Handoff | None:
        """What it was handed by the run that it goes on from, or None; see `continues=`."""
        if self._handed is None:
            self._handed = (self._recorded_handoff(),)
        return self._handed[0]

    def _recorded_handoff(self) -> Handoff | None:
        journal = self._journal
        if handed_origin(journal.origin) is None:
            return None
        from caravanserai_core import continuing  # few runs go on from another one

        found: Handoff | None = journal.turns.do(lambda: continuing.recorded(journal))
        return found

    @property
    def _inherited(self) -> Inherited | None:
        """What it took over, for its own steps; None where there is nothing."""
        if self.handoff is None or not self.handoff.uncertain:
            return None
        from caravanserai_core.continuing import Inherited

        return Inherited(self.handoff)

    def once(
        self,
        label: str,
        fn: Callable[[*Ts], T],
        /,
        *args: *Ts,
        key: object = None,
        on_uncertain: OnUncertain = "ask",
    ) -> T:
        """Run a step of the work, and never again once it is known to have ended.

        It is written down that the step begins, then `fn(*args)` is called, then its result is
        written down; at each later start the recorded result is returned and `fn` is not called.
        In a run that goes on from another one, a step with the name and the arguments of a tool's
        call that may have happened there counts as that call.
        A step that raised is run again. A step that began and never reported back, because its
        process was killed, may have happened: `on_uncertain` says what then.

        Args:
            label: the name of the step.
            fn: what it does. It runs outside of the run's turns and may use the run.
            *args: its arguments.
            key: what the step is about, any value that can be kept. Needed where one label is
                used for several steps, for a lambda, and for arguments that cannot be kept.
            on_uncertain: "ask" records a question and raises `WaitingForPerson`; "rerun" runs it
                again, with the same idempotency key, and the notes say so; "stop" raises.

        Returns:
            What `fn` returned, now or then.

        Raises:
            OnceKeyReused: the label has other arguments; nothing was run.
            WaitingForPerson: a person has to say whether it happened.
            EffectUncertain: likewise, with "stop".
            EffectStopped: a person said that it ends the run.
            UnserialisableState: it ran, and its result cannot be kept: it counts as uncertain.
        """
        step = step_of(label, fn, args, key)
        inherited = self._inherited
        if inherited is None:
            return effects.once(self._journal, step, lambda: fn(*args), on_uncertain)  # type: ignore[no-any-return]
        given = inherited.arguments(label, args)
        return inherited.once(self._journal, step, given, lambda: fn(*args), on_uncertain)  # type: ignore[no-any-return]

    @overload
    async def aonce(
        self,
        label: str,
        fn: Callable[[*Ts], Awaitable[T]],
        /,
        *args: *Ts,
        key: object = None,
        on_uncertain: OnUncertain = "ask",
    ) -> T: ...

    @overload
    async def aonce(
        self,
        label: str,
        fn: Callable[[*Ts], T],
        /,
        *args: *Ts,
        key: object = None,
        on_uncertain: OnUncertain = "ask",
    ) -> T: ...

    async def aonce(
        self,
        label: str,
        fn: Callable[[*Ts], Any],
        /,
        *args: *Ts,
        key: object = None,
        on_uncertain: OnUncertain = "ask",
    ) -> Any:
        """Run a step from async code; see `once`. `fn` may be async or not.

        A task that is cancelled inside of `fn` leaves the step uncertain.
        """
        step = step_of(label, fn, args, key, awaits=True)
        inherited = self._inherited
        if inherited is None:
            return await effects.aonce(self._journal, step, lambda: fn(*args), on_uncertain)
        given = inherited.arguments(label, args)
        return await inherited.aonce(self._journal, step, given, lambda: fn(*args), on_uncertain)

    def ask(
        self,
        text: str,
        *,
        options: Sequence[Any] | None = None,
        key: object = None,
        payload: object = None,
        answer_schema: Callable[[Any], Any] | None = None,
        default: object = None,
        expires: timedelta | datetime | None = None,
    ) -> Any:
        """Return a person's answer, or record the question and raise `WaitingForPerson`.

        Nothing waits: the program ends, somebody answers (`caravanserai answer`, `answer`), and the
        next start returns the answer here. The next waypoint of the process that got it uses it up:
        after that the same text is a new question.

        Args:
            text: what is asked.
            options: the answers that are allowed: texts, numbers, booleans; by default any.
            key: what the question is about; by default its text and options. Asked again under
                the same key with another text, options or payload, it is a new question and an
                answer to the old one does not count.
            payload: a value that is shown with the text, exactly kept.
            answer_schema: called with the answer at the next start; what it returns is the answer.
                If it raises, the question is asked again with the reason.
            default: the answer if nobody gave one in time.
            expires: how long the question can wait, or until when (aware). The next start looks.

        Raises:
            WaitingForPerson: nobody answered yet.
            QuestionExpired: nobody answered in time, and there is no default.
            UsageError: the arguments do not fit together.
            UnserialisableState: the payload cannot be kept exactly.
        """
        question = questions.wanted(
            text, options=options, key=key, payload=payload, expires=expires
        )
        journal = self._journal
        name, said = questions.ask(journal, question, schema=answer_schema, default=default)
        questions.give(journal, name)
        return said

    async def aask(
        self,
        text: str,
        *,
        options: Sequence[Any] | None = None,
        key: object = None,
        payload: object = None,
        answer_schema: Callable[[Any], Any] | None = None,
        default: object = None,
        expires: timedelta | datetime | None = None,
    ) -> Any:
        """Return a person's answer, from async code; see `ask`."""
        question = questions.wanted(
            text, options=options, key=key, payload=payload, expires=expires
        )
        journal = self._journal
        name, said = await wait_for(
            in_thread(
                lambda: questions.ask(journal, question, schema=answer_schema, default=default)
            )
        )
        questions.give(journal, name)  # not where the task that asks was cancelled meanwhile
        return said

    def afresh(self) -> None:
        """Begin a fresh pass: steps and answers recorded before it do not count any more."""
        self._journal.turns.do(lambda: effects.afresh(self._journal))


class Inside(Doing):
    """A run as the code of a framework's step sees it; its adapter writes the waypoints.

    Args:
        journal: that of the run; nothing is read.
    """

    def __init__(self, journal: Journal) -> None:
        self.run_id, self.store, self._journal = journal.run_id, journal.store, journal

    def _save(
        self, state: object, note: NoteLike, lane: str, meta: dict[str, Any] | None
    ) -> Callable[[], int]:
        raise UsageError(
            f"run {one_line(self.run_id)}: its framework says when a waypoint is written; a step "
            "of it has once, ask and remark"
        )

    def _repeat(self, note: object, lane: str, meta: dict[str, Any] | None) -> Callable[[], int]:
        return self._save(None, None, lane, meta)
