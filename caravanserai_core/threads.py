"""Worker threads: what async code has done for it, as file I/O has no true async."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_executor: Any = None
_executor_lock = threading.Lock()


def in_thread(work: Callable[[], Any]) -> Any:
    """Start `work` in a worker thread; returns a `concurrent.futures.Future`.

    The threads are joined when the interpreter ends, so that a queued save is never dropped.
    """
    global _executor
    with _executor_lock:
        if _executor is None:
            from concurrent.futures import ThreadPoolExecutor

            _executor = ThreadPoolExecutor(32, thread_name_prefix="caravanserai")
    try:
        return _executor.submit(work)
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
    global _executor, _executor_lock
    _executor = None
    _executor_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
