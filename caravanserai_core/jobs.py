"""One thread or task of this process at a time works on a job; the others wait for it.

A lease keeps processes apart. Within one, who starts a job that is being done waits until that has
ended, and then finds its result, or goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self

from caravanserai_core import signals
from caravanserai_core.errors import UsageError
from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from concurrent.futures import Future
    from contextvars import Token

    from caravanserai_core.journal import Journal

_log = logging.getLogger("caravanserai")

_PATIENCE = 5.0
"""Seconds of waiting before it is said for whom: it may be a job that waits for its own thread."""


class _Gate:
    """Who does the job of one run in this process, and who waits."""

    def __init__(self) -> None:
        self._lock = signals.Lock()
        self.inside: Alone | None = None
        self._waiting: list[Future[None]] = []

    def enter(self, job: Alone) -> Future[None] | None:
        """Let a job in, or return what is done when it is worth trying again."""
        with self._lock:
            if self.inside is None:
                self.inside = job
                return None
            # Imported where somebody has to wait: it is not needed to import caravanserai.
            from concurrent.futures import Future

            waiting: Future[None] = Future()
            self._waiting.append(waiting)
            return waiting

    def leave(self, job: Alone) -> None:
        """Let out the job that is in."""
        with self._lock:
            if self.inside is not job:
                return  # in a forked child
            self.inside = None
            waiting, self._waiting = self._waiting, []
        for one in waiting:
            if one.set_running_or_notify_cancel():
                one.set_result(None)


class Alone:
    """Doing the job of a run, in a `with` or `async with` block, when nobody else here does.

    A call from inside the job, also from a task or a thread that has its context, does not wait.

    Raises:
        UsageError: on entering: to wait would stop the very event loop that does the job.
    """

    def __init__(self, journal: Journal) -> None:
        self._run_id = journal.run_id
        self._gate = _gate_of(journal)
        self._asynchronous = False
        self._thread = 0
        self._name = ""
        self._token: Token[tuple[Alone, ...]] | None = None
        self.active = False

    def __enter__(self) -> Self:
        while (waiting := self._enter(asynchronous=False)) is not None:
            try:
                waiting.result(_PATIENCE)
            except TimeoutError:
                self._complain()
                waiting.result()
        return self

    def __exit__(self, *_: object) -> None:
        token, self._token = self._token, None
        if token is None:
            return  # it was inside the job before
        self.active = False
        self._gate.leave(self)
        # A generator may be closed in another context than it was begun in.
        with contextlib.suppress(ValueError):
            _inside.reset(token)

    async def __aenter__(self) -> Self:
        import asyncio

        while (waiting := self._enter(asynchronous=True)) is not None:
            ended = asyncio.wrap_future(waiting)
            try:
                await asyncio.wait({ended}, timeout=_PATIENCE)
                if not ended.done():
                    self._complain()
                    await asyncio.wait({ended})
            finally:
                ended.cancel()  # where this task is cancelled: its loop may be gone by then
        return self

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    def _enter(self, *, asynchronous: bool) -> Future[None] | None:
        self._asynchronous = asynchronous
        self._thread = threading.get_ident()
        self._name = threading.current_thread().name
        other = self._gate.inside
        if other is not None and self._within(other):
            return None
        waiting = self._gate.enter(self)
        if waiting is None:
            self.active = True
            self._token = _inside.set((*_inside.get(), self))
        return waiting

    def _within(self, other: Alone) -> bool:
        """Say whether this call comes from inside the job at hand."""
        if any(job._gate is self._gate and job.active for job in _inside.get()):
            return True
        if other._thread != self._thread or (self._asynchronous and other._asynchronous):
            return False
        if not other._asynchronous:
            return True  # below it on the stack, without its context
        raise UsageError(
            f"run {one_line(self._run_id)} is being worked on by a task of this very thread's "
            "event loop, which cannot go on while this call waits for it. Call the job from a "
            "thread of its own (asyncio.to_thread), or make it an async function."
        )

    def _complain(self) -> None:
        other = self._gate.inside
        _log.warning(
            "run %s: %s has waited for %g s for thread %s, which does the same job. If that waits "
            "for this one in turn, neither will end; a thread that is part of a job has to be "
            "started with contextvars.copy_context().run(...).",
            one_line(self._run_id),
            self._name,
            _PATIENCE,
            other._name if other is not None else "that ended just now",
        )


_inside: ContextVar[tuple[Alone, ...]] = ContextVar("caravanserai_jobs", default=())

_gates: weakref.WeakKeyDictionary[Any, _Gate] = weakref.WeakKeyDictionary()
_gates_lock = signals.Lock()


def _gate_of(journal: Journal) -> _Gate:
    with _gates_lock:
        return _gates.setdefault(journal, _Gate())


def _after_fork() -> None:
    global _gates_lock
    _gates_lock = signals.Lock()
    # A child has no part in what its parent's threads do.
    for gate in list(_gates.values()):
        gate.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
