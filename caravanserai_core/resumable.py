"""`@resumable` and `resumable_iterate`.

The same line starts a job, goes on after a crash, and returns what was recorded when it is
finished.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from caravanserai_core import codec
from caravanserai_core.api import checkpoint, load_latest
from caravanserai_core.errors import (
    CaravanseraiError,
    Conflict,
    StaleWriter,
    UnserialisableState,
    UsageError,
)
from caravanserai_core.quoting import one_line, quoted
from caravanserai_core.run import Run, in_thread, open_run, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from caravanserai_core.run import StoreLike

F = TypeVar("F", bound="Callable[..., Any]")
T = TypeVar("T")

_log = logging.getLogger("caravanserai")


@overload
def resumable(fn: F, /) -> F: ...


@overload
def resumable(*, store: StoreLike = None, must_exist: bool = False) -> Callable[[F], F]: ...


def resumable(
    fn: F | None = None, /, *, store: StoreLike = None, must_exist: bool = False
) -> F | Callable[[F], F]:
    """Make a function `f(run_id, state, …)` go on from its run's last waypoint.

    If the run has a waypoint, its state takes the place of the caller's `state`. When the
    function returns, its result is recorded; the same call again returns that result and does no
    work. "The same call" is the function's name and all arguments but `state`; with other
    arguments it goes on from the last state. `again(f)(run_id, state)` starts afresh.

    Args:
        fn: a plain or async function or method. (A generator function gets its state and no
            more: its end is not recorded.)
        store: a store, a folder or URL; by default CARAVANSERAI_STORE, else `.caravanserai` here.
        must_exist: refuse to begin a new run.

    Raises:
        RunNotFound: the run is new and `must_exist` is set.
        JournalDamaged, NewerFormat, UnknownType, SchemaMismatch: its state cannot be read.
    """
    if fn is None:
        return lambda f: resumable_with(f, store, must_exist, fresh=False)
    return resumable_with(fn, store, must_exist, fresh=False)


def again(fn: F) -> F:
    """Return `fn`, a function under `@resumable`, so that its next call starts afresh.

    The caller's state is used and a recorded result is ignored. New waypoints continue the run's
    numbers; the earlier ones stay.

    Raises:
        UsageError: `fn` is not under `@resumable`.
    """
    made = getattr(fn, "__resumable__", None)
    if made is None:
        raise UsageError("again() takes a function under @resumable")
    inner, store, must_exist = made
    afresh = resumable_with(inner, store, must_exist, fresh=True)
    owner = getattr(fn, "__self__", None)
    return cast("F", afresh if owner is None else afresh.__get__(owner))


def resumable_with(fn: F, store: StoreLike, must_exist: bool, *, fresh: bool) -> F:
    """Build the wrapper for `resumable` and `again`."""
    wrapper: Any
    if next(iter(inspect.signature(fn).parameters), "") in ("self", "cls"):
        wrapper = _method(fn, store, must_exist, fresh=fresh)

    elif inspect.iscoroutinefunction(fn):

        @functools.wraps(fn)
        async def wrapper(run_id: str, state: Any = None, *args: Any, **kwargs: Any) -> Any:
            call = _Call(fn, run_id, args, kwargs, store, must_exist, fresh)
            await wait_for(in_thread(call.open))
            if call.done:
                return call.result
            with call.run:
                try:
                    result = await fn(run_id, call.state_or(state), *args, **kwargs)
                except Exception as error:
                    failure = error
                    await wait_for(in_thread(lambda: call.failed(failure)))
                    raise
            await wait_for(in_thread(lambda: call.returned(result)))
            return result

    elif inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):

        @functools.wraps(fn)
        def wrapper(run_id: str, state: Any = None, *args: Any, **kwargs: Any) -> Any:
            call = _Call(fn, run_id, args, kwargs, store, must_exist, fresh)
            call.open()
            return fn(run_id, call.state_or(state), *args, **kwargs)

    else:

        @functools.wraps(fn)
        def wrapper(run_id: str, state: Any = None, *args: Any, **kwargs: Any) -> Any:
            call = _Call(fn, run_id, args, kwargs, store, must_exist, fresh)
            call.open()
            if call.done:
                return call.result
            with call.run:
                try:
                    result = fn(run_id, call.state_or(state), *args, **kwargs)
                except Exception as error:
                    call.failed(error)
                    raise
            call.returned(result)
            return result

    wrapper.__resumable__ = (fn, store, must_exist)
    return cast("F", wrapper)


def _method(fn: Callable[..., Any], store: StoreLike, must_exist: bool, *, fresh: bool) -> Any:
    """Build the wrapper for a method: `self` is no part of what identifies a call."""

    def bound(owner: Any) -> Callable[..., Any]:
        method: Any = functools.update_wrapper(functools.partial(fn, owner), fn)
        del method.__wrapped__  # a signature would be read there, with its `self`
        return cast("Callable[..., Any]", resumable_with(method, store, must_exist, fresh=fresh))

    if inspect.iscoroutinefunction(fn):

        @functools.wraps(fn)
        async def awaited(owner: Any, /, *args: Any, **kwargs: Any) -> Any:
            return await bound(owner)(*args, **kwargs)

        return awaited

    @functools.wraps(fn)
    def called(owner: Any, /, *args: Any, **kwargs: Any) -> Any:
        return bound(owner)(*args, **kwargs)

    return called


class _Call:
    """One call of a function under `@resumable`."""

    run: Run

    def __init__(
        self,
        fn: Callable[..., Any],
        run_id: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        store: StoreLike,
        must_exist: bool,
        fresh: bool,
    ) -> None:
        self._run_id = run_id
        self._store = store
        self._must_exist = must_exist
        self._fresh = fresh
        self._digest = _digest(fn, args, kwargs)
        self.done = False
        self.result: Any = None

    def open(self) -> None:
        """Open the run and look whether this very call was finished."""
        self.run = open_run(self._run_id, store=self._store, must_exist=self._must_exist)
        if not self._fresh and self._digest is not None:
            self.done, self.result = self.run.finished(self._digest)

    def state_or(self, state: Any) -> Any:
        """Return the state to go on from: the recorded one, else the caller's."""
        return state if self._fresh or not self.run.waypoint else self.run.state

    def returned(self, result: Any) -> None:
        """Record the result."""
        try:
            self.run.finish(result, call=self._digest)
        except UnserialisableState as error:
            _log.warning(
                "run %s is finished and its result cannot be recorded: %s. The same call again "
                "goes on from the last waypoint.",
                one_line(self._run_id),
                error,
            )
            self.run.ended({"outcome": "finished", "unrecorded": error.path})

    def failed(self, error: Exception) -> None:
        """Record that the function raised; ^C and the like leave the run as it is: stopped."""
        if isinstance(error, (Conflict, StaleWriter)):
            return  # somebody else has the run
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        try:
            self.run.ended({"outcome": "failed", "error": quoted(text, 300)})
        except CaravanseraiError as problem:
            _log.warning(
                "the failure of run %s was not recorded: %s", one_line(self._run_id), problem
            )


def _digest(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Return what identifies a call, or None where its arguments cannot be compared.

    `f(id, state, 5)` and `f(id, state, limit=5)` are one call, and so is `f(id, state)` if 5 is the
    default.
    """
    given: Any = [args, sorted(kwargs.items())]
    try:
        bound = inspect.signature(fn).bind(None, None, *args, **kwargs)
        bound.apply_defaults()
        given = sorted(list(bound.arguments.items())[2:])
    except (TypeError, ValueError):
        pass  # a wrong call is the function's to refuse
    try:
        data = codec.encode([getattr(fn, "__qualname__", ""), given])
    except UnserialisableState:
        return None
    return hashlib.sha256(data.data).hexdigest()[:32]


def resumable_iterate(
    items: Iterable[T],
    run_id: str,
    note: Callable[[T], str] | None = None,
    *,
    store: StoreLike = None,
) -> Iterator[T]:
    """Yield items one at a time and go on after the last one that was worked off.

    At-least-once: that an item is done is known only when the loop asks for the next one, so
    after a crash the item in work is yielded once more, never more than that one. The run is
    never finished: a longer list goes on where the shorter one ended.

    Args:
        items: the same items in the same order at every start.
        run_id: the run's name.
        note: a function of the item just done that returns the waypoint's note.
        store: as in `checkpoint`.
    """
    todo = list(items)
    prior = load_latest(run_id, store=store)
    begin = prior[0].get("_i", 0) if prior is not None and isinstance(prior[0], dict) else 0
    for index in range(begin, len(todo)):
        item = todo[index]
        yield item
        told = note(item) if note is not None else f"processed item {index + 1}/{len(todo)}"
        checkpoint(run_id, {"_i": index + 1}, told, store=store)
