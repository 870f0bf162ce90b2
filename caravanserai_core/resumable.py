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
from caravanserai_core.errors import UnserialisableState, UsageError
from caravanserai_core.quoting import one_line
from caravanserai_core.run import Run, open_run
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from caravanserai_core.homes import StoreLike

F = TypeVar("F", bound="Callable[..., Any]")
T = TypeVar("T")

_log = logging.getLogger("caravanserai")

_MADE = "__resumable__"
_OMITTED: Any = object()


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
    made = getattr(fn, _MADE, None)
    if made is None:
        raise UsageError("again() takes a function under @resumable")
    inner, store, must_exist = made
    afresh = resumable_with(inner, store, must_exist, fresh=True)
    owner = getattr(fn, "__self__", None)
    return cast("F", afresh if owner is None else afresh.__get__(owner))


def resumable_with(fn: F, store: StoreLike, must_exist: bool, *, fresh: bool) -> F:
    """Build the wrapper for `resumable` and `again`."""
    if next(iter(inspect.signature(fn).parameters), "") in ("self", "cls"):
        wrapper = _method(fn, store, must_exist, fresh=fresh)
    else:

        def call(run_id: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
            return _Call(fn, run_id, args, kwargs, store, must_exist, fresh)

        wrapper = functools.wraps(fn)(_wrapped(fn, call))
    setattr(wrapper, _MADE, (fn, store, must_exist))
    return cast("F", wrapper)


def _wrapped(
    fn: Callable[..., Any], call: Callable[[str, tuple[Any, ...], dict[str, Any]], _Call]
) -> Any:
    if inspect.iscoroutinefunction(fn):

        async def awaited(run_id: str, state: Any = _OMITTED, *args: Any, **kwargs: Any) -> Any:
            this = call(run_id, args, kwargs)
            await wait_for(in_thread(this.open))
            if this.done:
                return this.result
            async with this.run:
                result = await fn(*this.arguments(state, args), **kwargs)
            await wait_for(in_thread(lambda: this.returned(result)))
            return result

        return awaited

    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):

        def yielded(run_id: str, state: Any = _OMITTED, *args: Any, **kwargs: Any) -> Any:
            this = call(run_id, args, kwargs)
            this.open()
            return fn(*this.arguments(state, args), **kwargs)

        return yielded

    def called(run_id: str, state: Any = _OMITTED, *args: Any, **kwargs: Any) -> Any:
        this = call(run_id, args, kwargs)
        this.open()
        if this.done:
            return this.result
        with this.run:
            result = fn(*this.arguments(state, args), **kwargs)
        this.returned(result)
        return result

    return called


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

    def arguments(self, state: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the positional arguments: with the recorded state, else with the caller's."""
        if self.run.waypoint and not self._fresh:
            state = self.run.state
        elif state is _OMITTED and not args:
            return (self._run_id,)  # the function's own default
        return (self._run_id, None if state is _OMITTED else state, *args)

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


def _digest(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Return what identifies a call, or None where its arguments cannot be compared.

    `f(id, state, 5)` and `f(id, state, limit=5)` are one call, and so is `f(id, state)` if 5 is the
    default.
    """
    given: Any = [args, sorted(kwargs.items())]
    try:
        signature = inspect.signature(fn)
        keywords = {n for n, p in signature.parameters.items() if p.kind is p.VAR_KEYWORD}
        bound = signature.bind(None, None, *args, **kwargs)
        bound.apply_defaults()
        given = sorted(
            (name, sorted(value.items()) if name in keywords else value)
            for name, value in list(bound.arguments.items())[2:]
        )
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
        items: the same items in the same order at every start; more may follow at the end.
        run_id: the run's name.
        note: a function of the item just done that returns the waypoint's note.
        store: as in `checkpoint`.

    Raises:
        UsageError: the items that were worked off are no longer the first ones of the list, or
            the run was written by something else.
    """
    todo = list(items)
    prior = load_latest(run_id, store=store)
    begin, done = 0, ""
    if prior is not None:
        begin, known = _progress(prior[0], run_id)
        for item in todo[:begin]:
            done = _digest_of(done, item)
        if known and (known != done or begin > len(todo)):
            raise UsageError(
                f"resumable_iterate({one_line(run_id)!r}): the {begin} items that were worked off "
                "are no longer the first ones of the list, so it cannot be told what is left. "
                "Give the same items in the same order (new ones at the end), or another run_id."
            )
    for index in range(begin, len(todo)):
        item = todo[index]
        yield item
        done = _digest_of(done, item)
        told = note(item) if note is not None else f"processed item {index + 1}/{len(todo)}"
        checkpoint(run_id, {"_i": index + 1, "_items": done}, told, store=store)


def _progress(state: Any, run_id: str) -> tuple[int, str]:
    """Return how many items were worked off, and what identifies them ("": release 0.2.0)."""
    if isinstance(state, dict) and type(state.get("_i")) is int:
        return state["_i"], str(state.get("_items", ""))
    raise UsageError(
        f"run {one_line(run_id)!r} was not written by resumable_iterate; its state would be lost. "
        "Use another run_id."
    )


def _digest_of(before: str, item: object) -> str:
    """Add an item to the digest of those before it; one that cannot be encoded counts by type."""
    try:
        data = codec.encode(item).data
    except UnserialisableState:
        data = type(item).__qualname__.encode()
    return hashlib.sha256(before.encode() + b"," + data).hexdigest()[:16]
