"""Worker threads: what async code has done for it, as file I/O has no true async."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_FEW: Final = 8
_MANY: Final = 32
"""Most worker threads of each kind."""

_executors: dict[int, Any] = {}
_lock = threading.Lock()


def in_thread(work: Callable[[], Any], *, few: bool = False) -> Any:
    """Start `work` in a worker thread; returns a `concurrent.futures.Future`.

    The threads are joined when the interpreter ends, so that a queued save is never dropped.

    Args:
        work: what is done.
        few: it computes about as much as it waits. More threads would do no more of it, and an
            event loop gets the interpreter after all of them: with 50 graphs on one loop it is
            late by 10 ms with 32 threads, and by 1 ms with 8. Such work must not wait for others
            of its kind.
    """
    most = _FEW if few else _MANY
    with _lock:
        executor = _executors.get(most)
        if executor is None:
            from concurrent.futures import ThreadPoolExecutor

            executor = _executors[most] = ThreadPoolExecutor(most, "caravanserai")
    try:
        return executor.submit(work)
    except RuntimeError:  # the interpreter is ending, and starts no more threads
        from concurrent.futures import Future

        done: Future[Any] = Future()
        try:
            done.set_result(work())
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            done.set_exception(error)
        return done


async def wait_for(future: Awaitable[Any]) -> Any:
    """Wait for a future of a worker thread; cancelling the wait does not cancel the work."""
    import asyncio

    return await asyncio.shield(asyncio.wrap_future(future))  # type: ignore[arg-type]


def _after_fork() -> None:
    global _lock
    _executors.clear()
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
