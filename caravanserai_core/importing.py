"""Importing a program only to look at it: nothing may begin or be written meanwhile.

`caravanserai migrate` needs the migrations that a module declares. A module that calls its job when
it is imported would do the job's work there, with everything that this does in the world.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from caravanserai_core.errors import UsageError
from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Looking:
    """What is imported now: one for the process, as a module may start threads."""

    module: str | None = None
    refused: str | None = None


@contextmanager
def only_looking(module: str) -> Iterator[None]:
    """Import a module in this block; what would begin or write a run there is refused.

    Args:
        module: its name, for the message.

    Raises:
        UsageError: it tried to, also where it caught the error itself.
    """
    _Looking.module, _Looking.refused = module, None
    try:
        yield
    finally:
        refused = _Looking.refused
        _Looking.module = _Looking.refused = None
        if refused is not None:
            raise UsageError(refused) from None


def refuse_work(run_id: str) -> None:
    """Refuse to begin a run or to write to one while a module is only looked at.

    Raises:
        UsageError: one is.
    """
    if _Looking.module is not None:
        _Looking.refused = (
            f"importing {_Looking.module} would work on the run {one_line(run_id)}: in its source, "
            'put the call under `if __name__ == "__main__":`. Nothing was written.'
        )
        raise UsageError(_Looking.refused)
