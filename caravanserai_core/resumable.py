"""`@resumable` and `resumable_iterate`.

The same line starts a job, goes on after a crash, and returns what was recorded when it is
finished.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast, overload

from caravanserai_core import codec
from caravanserai_core.api import checkpoint, load_latest
from caravanserai_core.errors import UnserialisableState, UsageError
from caravanserai_core.homes import store_for
from caravanserai_core.jobs import Alone
from caravanserai_core.journal import journal_for
from caravanserai_core.names import check_run_id
from caravanserai_core.ownership import asked_for, owning
from caravanserai_core.quoting import one_line
from caravanserai_core.run import Run, open_run
from caravanserai_core.schema import declared
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator

    from caravanserai_core.continuing import Continues
    from caravanserai_core.homes import StoreLike
    from caravanserai_core.schema import Migrations, Schema
    from caravanserai_core.stores import Store

F = TypeVar("F", bound="Callable[..., Any]")
T = TypeVar("T")

_log = logging.getLogger("caravanserai")

_MADE = "__resumable__"
_OMITTED: Any = object()


@overload
def resumable(fn: F, /) -> F: ...


@overload
def resumable(
    *,
    store: StoreLike = None,
    must_exist: bool = False,
    schema: int | None = None,
    migrations: Migrations = (),
    takeover: bool = False,
    continues: Continues = None,
) -> Callable[[F], F]: ...


def resumable(
    fn: F | None = None,
    /,
    *,
    store: StoreLike = None,
    must_exist: bool = False,
    schema: int | None = None,
    migrations: Migrations = (),
    takeover: bool = False,
    continues: Continues = None,
) -> F | Callable[[F], F]:
    """Make a function `f(run_id, state, …)` go on from its run's last waypoint.

    If the run has a waypoint, its state takes the place of the caller's `state`. When the
    function returns, its result is recorded; the same call again returns that result and does no
    work. "The same call" is the function's name and all arguments but `state`; with other
    arguments it goes on from the last state. `again(f)(run_id, state)` starts afresh.

    While it works no other process can start it. Another thread or task of this process that does
    so waits, and then returns the recorded result or goes on.

    Args:
        fn: a plain or async function or method. (A generator function gets its state and no
            more: its end is not recorded, and its run is not held.)
        store: a store, a folder or URL; by default CARAVANSERAI_STORE, else `.caravanserai` here.
        must_exist: refuse to begin a new run.
        schema: the schema of the states that the function writes, from 1; by default one more
            than there are migrations.
        migrations: one function for each step from schema to schema, the last one leads to
            `schema`; see docs/guarantees/versions.md.
        takeover: take the run from another living process, if one works on it: what that writes
            from then on is refused with `StaleWriter`.
        continues: the run that a new run goes on from, of whatever framework: `RUN` or `RUN@3`, in
            the same store; or what `handoff` returned. In the function `current_run().handoff` is
            what it was handed; steps under `once` of that run count as done.

    Raises:
        RunNotFound: the run is new and `must_exist` is set, or there is none to go on from.
        InputChanged: the run was begun without `continues`, or goes on from another run.
        RunBusy: another living process works on it.
        JournalDamaged, NewerFormat, UnknownType, SchemaMismatch: its state cannot be read.
        UsageError: `schema` and `migrations` do not fit together.
    """
    options = Options(
        store, must_exist, declared(schema, migrations), takeover=takeover, continues=continues
    )
    if fn is None:
        return lambda f: resumable_with(f, options)
    return resumable_with(fn, options)


def again(fn: F) -> F:
    """Return `fn`, a function under `@resumable`, so that its next call starts afresh.

    The caller's state is used and a recorded result is ignored. New waypoints continue the run's
    numbers; the earlier ones stay.

    Raises:
        UsageError: `fn` is not under `@resumable`.
    """
    made = made_of(fn)
    if made is None:
        raise UsageError("again() takes a function under @resumable")
    inner, options = made
    afresh = resumable_with(inner, options._replace(fresh=True))
    owner = getattr(fn, "__self__", None)
    return cast("F", afresh if owner is None else afresh.__get__(owner))


class Options(NamedTuple):
    """How a function under `@resumable` opens its run.

    Attributes:
        store: a store, a folder or URL, or None for the default.
        must_exist: refuse to begin a new run.
        schema: what it declares of its states, or None.
        fresh: begin with the caller's state, and ignore a recorded result.
        takeover: take the run from another living process.
        continues: what a new run goes on from, or None.
    """

    store: StoreLike
    must_exist: bool
    schema: Schema | None
    fresh: bool = False
    takeover: bool = False
    continues: Continues = None


def made_of(fn: object) -> tuple[Callable[..., Any], Options] | None:
    """Return the function that `@resumable` was put on, and how; None where it was not."""
    return cast("tuple[Callable[..., Any], Options] | None", getattr(fn, _MADE, None))


def resumable_with(fn: F, options: Options) -> F:
    """Build the wrapper for `resumable` and `again`."""
    if next(iter(inspect.signature(fn).parameters), "") in ("self", "cls"):
        wrapper = _method(fn, options)
    else:

        def call(run_id: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
            return _Call(fn, run_id, args, kwargs, options)

        wrapper = functools.wraps(fn)(_wrapped(fn, call))
    setattr(wrapper, _MADE, (fn, options))
    return cast("F", wrapper)


def _wrapped(
    fn: Callable[..., Any], call: Callable[[str, tuple[Any, ...], dict[str, Any]], _Call]
) -> Any:
    if inspect.iscoroutinefunction(fn):

        async def awaited(run_id: str, state: Any = _OMITTED, *args: Any, **kwargs: Any) -> Any:
            this = call(run_id, args, kwargs)
            async with this.alone():
                await wait_for(in_thread(this.open))
                if this.done:
                    return this.result
                async with this.run.owning():
                    if await wait_for(in_thread(this.look)):
                        return this.result
                    async with this.run:
                        await wait_for(in_thread(this.begin))
                        result = await fn(*this.arguments(state, args), **kwargs)
                    await wait_for(in_thread(lambda: this.returned(result)))
                    return result

        return awaited

    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        items = _items if inspect.isgeneratorfunction(fn) else _aitems

        def yielded(run_id: str, state: Any = _OMITTED, *args: Any, **kwargs: Any) -> Any:
            this = call(run_id, args, kwargs)
            this.open()
            return items(this, lambda: fn(*this.arguments(state, args), **kwargs))

        return yielded

    def called(run_id: str, state: Any = _OMITTED, *args: Any, **kwargs: Any) -> Any:
        this = call(run_id, args, kwargs)
        with this.alone():
            this.open()
            if this.done:
                return this.result
            with this.run.owning():
                if this.look():
                    return this.result
                with this.run:
                    this.begin()
                    result = fn(*this.arguments(state, args), **kwargs)
                this.returned(result)
                return result

    return called


def _items(this: _Call, begin: Callable[[], Any]) -> Generator[Any, Any, Any]:
    """Give what a generator gives; the run is owned from its first item to its end."""
    with this.run.owning():
        return (yield from begin())


async def _aitems(this: _Call, begin: Callable[[], Any]) -> AsyncGenerator[Any, Any]:
    """Give what an async generator gives, and hand it what is sent and thrown; see `_items`."""
    async with this.run.owning():
        inner = begin()
        try:
            item = await inner.asend(None)
            while True:
                try:
                    sent = yield item
                except GeneratorExit:
                    await inner.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001 - it is the generator's to handle
                    item = await inner.athrow(error)
                else:
                    item = await inner.asend(sent)
        except StopAsyncIteration:
            return


def _method(fn: Callable[..., Any], options: Options) -> Any:
    """Build the wrapper for a method: `self` is no part of what identifies a call."""

    def bound(owner: Any) -> Callable[..., Any]:
        method: Any = functools.update_wrapper(functools.partial(fn, owner), fn)
        del method.__wrapped__  # a signature would be read there, with its `self`
        return cast("Callable[..., Any]", resumable_with(method, options))

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
        options: Options,
    ) -> None:
        self._run_id = run_id
        self._options = options
        self._fresh = options.fresh
        self._program = name_of(fn)
        self._digest = _digest(fn, args, kwargs)
        self.done = False
        self.result: Any = None

    def alone(self) -> Alone:
        """Return what keeps other threads and tasks away from this run's job."""
        run_id = check_run_id(self._run_id)
        return Alone(journal_for(store_for(run_id, self._options.store), run_id))

    def open(self) -> None:
        """Open the run and look whether this very call was finished."""
        store, must_exist, schema, _, takeover, continues = self._options
        number, steps = (None, ()) if schema is None else schema
        self.run = open_run(
            self._run_id,
            store=store,
            must_exist=must_exist,
            schema=number,
            migrations=steps,
            program=self._program,
            takeover=takeover,
            continues=continues,
        )
        self.look()

    def look(self) -> bool:
        """Look whether this very call was finished, before the lease was taken or since."""
        if not self._fresh and self._digest is not None:
            self.done, self.result = self.run.finished(self._digest)
        return self.done

    def begin(self) -> None:
        """Leave earlier steps and answers behind, where a fresh pass was asked for."""
        if self._fresh:
            self.run.afresh()

    def arguments(self, state: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the positional arguments: with the recorded state, else with the caller's."""
        if self.run.waypoint and not self._fresh:
            state = self.run.state
        elif state is _OMITTED and not args:
            return (self._run_id,)  # the function's own default
        return (self._run_id, None if state is _OMITTED else state, *args)

    def returned(self, result: Any) -> None:
        """Record the result."""
        if self._digest is None:
            _log.warning(
                "run %s is finished, and its arguments cannot be compared: one of them cannot be "
                "kept exactly. The same call again goes on from the last waypoint.",
                one_line(self._run_id),
            )
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


def name_of(fn: Callable[..., Any]) -> str | None:
    """Return a name that the function can be imported by again, `module:name`, or None."""
    name, module = getattr(fn, "__qualname__", ""), getattr(fn, "__module__", None) or ""
    if module == "__main__":
        # A script can be imported by its file's name, `python -m package.module` by its own.
        main = sys.modules.get(module)
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec is not None else re.split(r"[\\/]", file or "")[-1]
        module = module.removesuffix(".py")
    words = [*module.split("."), *name.split(".")]
    return f"{module}:{name}" if all(word.isidentifier() for word in words) else None


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
    never finished: a longer list goes on where the shorter one ended. From the first item to the
    end of the loop no other process can work on it.

    Args:
        items: the same items in the same order at every start; more may follow at the end.
        run_id: the run's name.
        note: a function of the item just done that returns the waypoint's note.
        store: as in `checkpoint`.

    Raises:
        UsageError: the items that were worked off are no longer the first ones of the list, or
            the run was written by something else.
        RunBusy: another living process works on it.
    """
    run_id = check_run_id(run_id)
    home = store_for(run_id, store)
    todo = list(items)
    if not todo:
        yield from _iterate(todo, run_id, note, home)  # leaves nothing behind
        return
    takeover = asked_for(run_id, takeover=False)
    with owning(journal_for(home, run_id), takeover=takeover):
        yield from _iterate(todo, run_id, note, home)


def _iterate(
    todo: list[T], run_id: str, note: Callable[[T], str] | None, store: Store
) -> Iterator[T]:
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
