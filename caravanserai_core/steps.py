"""Steps and questions of the run that the calling code works on, and answers to any run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from caravanserai_core import effects, questions
from caravanserai_core.homes import store_for
from caravanserai_core.journal import Journal
from caravanserai_core.names import check_run_id
from caravanserai_core.run import current_run
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime, timedelta
    from typing import TypeVarTuple

    from caravanserai_core.effects import OnUncertain
    from caravanserai_core.homes import StoreLike

    Ts = TypeVarTuple("Ts")

T = TypeVar("T")


def once(
    label: str,
    fn: Callable[[*Ts], T],
    /,
    *args: *Ts,
    key: object = None,
    on_uncertain: OnUncertain = "ask",
) -> T:
    """Run a step of the current run's work, and never again once it ended; see `Run.once`.

    Raises:
        NoRun: no run is open here.
    """
    return current_run().once(label, fn, *args, key=key, on_uncertain=on_uncertain)


@overload
async def aonce(
    label: str,
    fn: Callable[[*Ts], Awaitable[T]],
    /,
    *args: *Ts,
    key: object = None,
    on_uncertain: OnUncertain = "ask",
) -> T: ...


@overload
async def aonce(
    label: str,
    fn: Callable[[*Ts], T],
    /,
    *args: *Ts,
    key: object = None,
    on_uncertain: OnUncertain = "ask",
) -> T: ...


async def aonce(
    label: str,
    fn: Callable[[*Ts], Any],
    /,
    *args: *Ts,
    key: object = None,
    on_uncertain: OnUncertain = "ask",
) -> Any:
    """Run a step of the current run's work, from async code; see `Run.aonce`."""
    run = current_run()
    return await run.aonce(label, fn, *args, key=key, on_uncertain=on_uncertain)


def idempotency_key() -> str:
    """Return a text that is the same in every attempt of the step that the calling code is in.

    Pass it to services that take one (`Idempotency-Key`), and they do the work once however often
    they are asked. It is ASCII, and differs between runs, steps and fresh passes.

    Raises:
        NoRun: the calling code is in no step: it is outside of a function that `once` runs.
    """
    return effects.current_token()


def ask(
    text: str,
    *,
    options: Sequence[Any] | None = None,
    key: object = None,
    payload: object = None,
    answer_schema: Callable[[Any], Any] | None = None,
    default: object = None,
    expires: timedelta | datetime | None = None,
) -> Any:
    """Return a person's answer for the current run, or record the question; see `Run.ask`.

    Raises:
        NoRun: no run is open here.
        WaitingForPerson: nobody answered yet.
    """
    return current_run().ask(
        text,
        options=options,
        key=key,
        payload=payload,
        answer_schema=answer_schema,
        default=default,
        expires=expires,
    )


async def aask(
    text: str,
    *,
    options: Sequence[Any] | None = None,
    key: object = None,
    payload: object = None,
    answer_schema: Callable[[Any], Any] | None = None,
    default: object = None,
    expires: timedelta | datetime | None = None,
) -> Any:
    """Return a person's answer for the current run, from async code; see `Run.ask`."""
    return await current_run().aask(
        text,
        options=options,
        key=key,
        payload=payload,
        answer_schema=answer_schema,
        default=default,
        expires=expires,
    )


def answer(
    run_id: str,
    value: object,
    *,
    question: str | None = None,
    by: str | None = None,
    reason: str | None = None,
    result: object = questions.NOT_GIVEN,
    store: StoreLike = None,
) -> str:
    """Answer a question of a run, from any process; the run's next start goes on with it.

    Args:
        run_id: the run.
        value: the answer; one of the question's options, if it has any.
        question: id of the question, "q1"; may be left out where one is open.
        by: who answers; by default the user of the operating system.
        reason: why.
        result: with the answer "happened" about a step: what the step is to have returned.
        store: as in `checkpoint`.

    Returns:
        The question's id.

    Raises:
        RunNotFound: there is no such run.
        UsageError: the answer does not fit, or no such question is open.
        AlreadyAnswered: somebody was first; the first answer counts.
    """
    run_id = check_run_id(run_id)
    home = store_for(run_id, store)
    # Not the journal that this process works with: answering is no look at the run's state.
    journal = Journal(home, run_id)
    return str(
        journal.turns.do(
            lambda: questions.record_answer(
                journal, value, question=question, by=by, reason=reason, result=result
            )
        )
    )


async def aanswer(
    run_id: str,
    value: object,
    *,
    question: str | None = None,
    by: str | None = None,
    reason: str | None = None,
    result: object = questions.NOT_GIVEN,
    store: StoreLike = None,
) -> str:
    """Answer a question of a run, from async code; see `answer`."""
    home = store_for(check_run_id(run_id), store)
    return str(
        await wait_for(
            in_thread(
                lambda: answer(
                    run_id,
                    value,
                    question=question,
                    by=by,
                    reason=reason,
                    result=result,
                    store=home,
                )
            )
        )
    )
