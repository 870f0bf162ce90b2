"""Steps that are not repeated in silence: `once`.

A record is synced before the step begins and another when it ended. What ended is never run
again; of what began and did not end nobody can know whether it happened, so a person is asked,
or it is run again and every note says so. The step itself runs outside of the run's turns, so
it may write of the run too, and other steps run beside it.
"""

from __future__ import annotations

import inspect
import logging
import os
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from caravanserai_core import codec, questions
from caravanserai_core.errors import (
    CaravanseraiError,
    EffectStopped,
    EffectUncertain,
    NoRun,
    OnceKeyReused,
    UnserialisableState,
    UsageError,
    WaitingForPerson,
)
from caravanserai_core.escaping import noted
from caravanserai_core.pending import after_stop, begun, when
from caravanserai_core.quoting import error_text, one_line, quoted
from caravanserai_core.stepping import CALL, Flight, Step, add, record_result, start
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from caravanserai_core.journal import Journal
    from caravanserai_core.ledger import Effect, Question

OnUncertain = Literal["ask", "rerun", "stop"]

_log = logging.getLogger("caravanserai")

_PATIENCE = 5.0
"""Seconds of waiting before it is said for whom: it may be a step that waits for its own thread."""
_OPTIONS = ["happened", "rerun", "stop"]
_ENDED = {"result", "error", "paused"}


class _Done(NamedTuple):
    value: Any


# By journal the steps that run here now; looked into and changed in the run's turn.
_flights: weakref.WeakKeyDictionary[Journal, dict[tuple[str, str], Flight]] = (
    weakref.WeakKeyDictionary()
)
_running: ContextVar[tuple[Flight, ...]] = ContextVar("caravanserai_once", default=())


# ---------------------------------------------------------------------- running


def once(journal: Journal, step: Step, call: Callable[[], Any], on_uncertain: OnUncertain) -> Any:
    """Run a step, or return what it returned before; see `Run.once`."""
    _check_policy(on_uncertain)
    mine = Flight(step)
    try:
        while True:
            got = journal.turns.do(lambda: _begin(journal, mine, on_uncertain))
            if isinstance(got, _Done):
                return got.value
            if got is mine:
                break
            if got.thread == mine.thread:
                raise _within_itself(step)
            _wait(journal, got)
        return _run(journal, mine, call)
    finally:
        _lose(journal, mine)


def _wait(journal: Journal, other: Flight) -> None:
    """Wait until a step has ended that another thread runs; raises what it raises."""
    try:
        other.landed.result(_PATIENCE)
    except TimeoutError:
        if other.landed.done():
            raise  # that is the step's own error
        _log.warning(
            "run %s: once(%s) has waited for %g s for another thread, which runs this very step. "
            "If that waits for this one in turn, neither will end.",
            one_line(journal.run_id),
            other.step.told,
            _PATIENCE,
        )
        other.landed.result()


def _run(journal: Journal, mine: Flight, call: Callable[[], Any]) -> Any:
    token = _running.set((*_running.get(), mine))
    try:
        value = call()
        if inspect.iscoroutine(value):
            value.close()  # nothing of it ran
            raise UsageError(
                f"once({one_line(mine.step.name[0], 60)!r}) is given an async function. "
                "Use `await aonce(…)`."
            )
    except Exception as error:
        problem = error
        journal.turns.do(lambda: _failed(journal, mine, problem))
        raise
    finally:
        _running.reset(token)
    journal.turns.do(lambda: _ended(journal, mine, value))
    return value


async def aonce(
    journal: Journal, step: Step, call: Callable[[], Any], on_uncertain: OnUncertain
) -> Any:
    """Run a step from async code; what `call` returns is awaited, if it can be."""
    _check_policy(on_uncertain)
    mine = Flight(step)
    try:
        while True:
            got = await _in_turn(journal, lambda: _begin(journal, mine, on_uncertain), mine)
            if isinstance(got, _Done):
                return got.value
            if got is mine:
                break
            if got in _running.get():
                raise _within_itself(step)
            await wait_for(got.landed)
        return await _arun(journal, mine, call)
    finally:
        _lose(journal, mine)


async def _arun(journal: Journal, mine: Flight, call: Callable[[], Any]) -> Any:
    token = _running.set((*_running.get(), mine))
    try:
        value = call()
        if hasattr(value, "__await__"):
            value = await value
    except Exception as error:
        problem = error
        await _in_turn(journal, lambda: _failed(journal, mine, problem))
        raise
    finally:
        _running.reset(token)
    await _in_turn(journal, lambda: _ended(journal, mine, value))
    return value


async def _in_turn(journal: Journal, work: Callable[[], Any], begins: Flight | None = None) -> Any:
    # Its place is taken now: whoever asks for the step after a cancellation finds that it ended.
    turn = journal.turns.take(work)
    future = in_thread(lambda: journal.turns.finish(turn), few=not journal.store.is_far)
    try:
        return await wait_for(future)
    except BaseException:
        if begins is not None:
            # Cancelled: a step that is begun in that thread all the same did not run.
            future.add_done_callback(lambda done: _cancelled(journal, begins, done))
        raise


def _cancelled(journal: Journal, mine: Flight, done: Any) -> None:
    if done.exception() is None and done.result() is mine:
        journal.turns.do(lambda: add(journal, mine, {"what": "paused"}))
        _lose(journal, mine)


def _within_itself(step: Step) -> UsageError:
    return UsageError(
        f"once({one_line(step.name[0], 60)!r}) is called while that very step runs in the same "
        "thread: it would wait for itself. Use `await aonce(…)` in async code, or another label."
    )


def _check_policy(on_uncertain: str) -> None:
    if on_uncertain not in ("ask", "rerun", "stop"):
        raise UsageError('on_uncertain= is "ask", "rerun" or "stop"')


def _lose(journal: Journal, mine: Flight) -> None:
    """Let a step go that runs no more; whoever waits for it looks again."""
    here = _flights.get(journal, {})
    if here.get(mine.step.name) is mine:
        del here[mine.step.name]
    if not mine.landed.done():
        mine.landed.set_result(None)


def current_token() -> str:
    """Return the idempotency key of the step that the calling code is in.

    Raises:
        NoRun: it is in none.
    """
    running = _running.get()
    if not running:
        raise NoRun("idempotency_key() belongs inside a function that once() runs")
    return running[-1].token


# ---------------------------------------------------------------------- in the run's turn


def _begin(journal: Journal, mine: Flight, policy: OnUncertain) -> _Done | Flight:
    """Decide what becomes of a call; records that the step begins, if it does."""
    here = _flights.setdefault(journal, {})
    while True:
        known = journal.ledger.effects.get(mine.step.name)
        if known is not None:
            _check_arguments(journal, known, mine.step)
        other = here.get(mine.step.name)
        if other is not None:
            return other
        try:
            if known is not None and known.what == "result":
                return _Done(_result(known))
            if known is None or known.what in _ENDED:
                start(journal, mine, known, again=False)
            else:
                done = _unsettled(journal, mine, known, policy)
                if done is not None:
                    return done
        except questions.Changed:
            continue
        here[mine.step.name] = mine
        return mine


def _check_arguments(journal: Journal, known: Effect, step: Step) -> None:
    before = known.head.get("arguments", "")
    if before and step.arguments and before != step.arguments:
        label = one_line(step.name[0], 60)
        keyed = f" with the key {quoted(step.of, CALL)}" if step.name[1] else ""
        raise OnceKeyReused(
            f"run {one_line(journal.run_id)}: once({label!r}){keyed} was called with other "
            "arguments before. Nothing was run. Give key= that differs for each (the address of "
            "the mail, the number of the order), or another label."
        )


def _result(known: Effect) -> Any:
    record = known.records[-1]
    return codec.decode(record.member("data"), bool(record.head.get("tagged")))


def _unsettled(journal: Journal, mine: Flight, known: Effect, policy: OnUncertain) -> _Done | None:
    """Decide about a step that began and has no end: (a value), run it again (None), or raise."""
    label = mine.step.name[0]
    since = begun(known.records[0].head)
    question, found = question_of(journal, mine, known)
    if found is not None and found.answer is not None:
        said, result = questions.value_of(found)
        if said == "stop":
            stopped = EffectStopped(
                f"run {one_line(journal.run_id)}: {found.id} was answered stop: "
                f"{mine.step.told} is not run again, and the run ends here, at each start. "
                f"{after_stop(journal.run_id)}",
                label=label,
            )
            raise noted(stopped)
        if said == "happened":
            value = None if result is questions.NOT_GIVEN else result
            mine.attempt = known.attempt
            record_result(journal, mine, value, {"taken": found.id})
            return _Done(value)
        start(journal, mine, known, again=True)
        return None
    if policy == "rerun" and known.what != "unrecorded":
        start(journal, mine, known, again=True)
        return None
    if policy != "stop":
        # What is known to have ended is not run again unless somebody says so.
        if found is None:
            questions.put(journal, question)
        raise questions.waiting(journal)
    if known.what == "started":
        mine.attempt = known.attempt
        add(journal, mine, {"what": "uncertain"})
    uncertain = EffectUncertain(
        f"run {one_line(journal.run_id)}: {mine.step.told} began {when(since.time)} (process "
        f"{since.pid} on {one_line(since.host, 60)}) and never reported back. It may have "
        'happened. Look, then run with on_uncertain="ask" or "rerun".',
        label=label,
    )
    raise noted(uncertain)


def give(journal: Journal, step: Step, value: object, why: dict[str, Any]) -> Any:
    """Record what a step returned that is not run, unless something is recorded of it.

    Args:
        journal: the run.
        step: which.
        value: what it is to have returned.
        why: what its record says of that, for its head.

    Returns:
        What is recorded.
    """

    def record() -> Any:
        known = journal.ledger.effects.get(step.name)
        if known is not None and known.what == "result":
            return _result(known)
        mine = Flight(step)
        mine.attempt = 1 if known is None else known.attempt + 1
        record_result(journal, mine, value, why)
        return value

    return journal.turns.do(record)


def settle(journal: Journal, policy: Callable[[str], OnUncertain], after: int) -> None:
    """Ask about the steps of a framework that are uncertain, before it is started again.

    Runs in its turn of the queue.

    Args:
        journal: the run.
        policy: what to do about a step of a label; nothing is done about "rerun", but where the
            step ended and its result could not be kept.
        after: the steps that began behind this record.

    Raises:
        WaitingForPerson: a person has to say whether one of them happened.
        EffectUncertain: likewise, with "stop".
        EffectStopped: a person said that one of them ends the run.
    """
    waits = False
    for name, known in list(journal.ledger.effects.items()):
        chosen = policy(name[0])
        if known.what in _ENDED or known.records[0].seq <= after:
            continue
        if "takes" in known.head:
            continue  # the step that it does is asked about
        if chosen == "rerun" and known.what != "unrecorded":
            continue
        flight = Flight(Step(name, "", str(known.head.get("of", ""))))
        question, found = question_of(journal, flight, known)
        answered = found is not None and found.answer is not None
        if chosen != "stop" and not answered:
            waits = True
            if found is None:
                questions.put(journal, question)
        elif found is None or not answered or questions.value_of(found)[0] == "stop":
            _unsettled(journal, flight, known, chosen)
    if waits:
        raise questions.waiting(journal)


def question_of(
    journal: Journal, mine: Flight, known: Effect
) -> tuple[questions.Wanted, Question | None]:
    """Return what a person is asked about an uncertain step, and the question if it was asked."""
    label, key = mine.step.name
    since = begun(known.records[0].head)
    question = questions.wanted(
        _asking(known, f"{label} began"),
        options=_OPTIONS,
        key=["once", label, key, known.attempt, journal.ledger.passes],
        about=mine.step.name,
        shown=_asking(known, f"{mine.step.call} began {when(since.time)}"),
    )
    return question, questions.find(journal, question)


def _asking(known: Effect, told: str) -> str:
    if known.what == "unrecorded":
        return f"{told}, ended, and its result could not be kept. How is the run to go on?"
    return f"{told} and never reported back. Did it happen?"


def _failed(journal: Journal, mine: Flight, error: Exception) -> None:
    """Record that a step raised; it is run again when it is asked for again."""
    if isinstance(error, WaitingForPerson):
        fields = {"what": "paused"}
    else:
        fields = {"what": "error", "error": quoted(error_text(error), 300)}
    try:
        add(journal, mine, fields)
    except CaravanseraiError as problem:
        error.add_note(f"caravanserai could not record this: {problem}")
    mine.landed.set_exception(error)
    _lose(journal, mine)


def _ended(journal: Journal, mine: Flight, value: object) -> None:
    try:
        record_result(journal, mine, value, {})
    except UnserialisableState as error:
        told = {"what": "unrecorded", "why": one_line(str(error), 300)}
        add(journal, mine, told)
        mine.landed.set_exception(error)
        raise
    except CaravanseraiError as error:
        error.add_note(
            f"caravanserai: the step {mine.step.told} ran to its end, and its result was not "
            "recorded. It counts as uncertain."
        )
        raise
    finally:
        _lose(journal, mine)


def afresh(journal: Journal) -> None:
    """Leave all that was recorded behind: a fresh pass begins. Runs in its turn of the queue."""
    if journal.exists and not journal.ledger.empty:
        fields = {"what": "fresh", "pass": journal.ledger.passes + 1}
        journal.add("effect", fields)


def _after_fork() -> None:
    # What ran in the parent runs there still; here it is somebody else's.
    _flights.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
