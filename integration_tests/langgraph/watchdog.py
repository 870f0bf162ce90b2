"""A graph that hangs is ended with every thread's stack shown, and not by waiting for minutes."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def watched(seconds: float) -> Iterator[None]:
    """End the process, with every thread's stack on stderr, if the block takes longer."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
