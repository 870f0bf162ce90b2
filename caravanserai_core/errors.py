"""Every error that Caravanserai raises, in one table.

One root, `CaravanseraiError`; each leaf also inherits the builtin that a caller who knows
nothing of Caravanserai would catch. A message says what happened, where (run, waypoint, path)
and what to do next. `exit_code` is what the command line returns for it.

| error | builtin base | exit code | when |
|---|---|---|---|
| InvalidRunId | ValueError | 2 | a run_id that is not a non-empty string |
| UsageError | ValueError | 2 | a call whose arguments do not fit together |
| InputChanged | ValueError | 2 | a job started again with another input than the recorded one |
| RunNotFound | LookupError | 3 | load, history, resume of a run that does not exist |
| WaypointNotFound | LookupError | 3 | `at=` names a waypoint the run does not have |
| ProgramNotFound | FileNotFoundError | 3 | the program that `resume` starts is gone |
| JournalDamaged | ValueError | 4 | a journal that is not what was written |
| NewerFormat | ValueError | 4 | a journal written by a newer major format |
| StoreBusy | TimeoutError | 5 | another process held the run's lock for too long |
| StaleWriter | RuntimeError | 5 | this writer was taken over by one with a higher epoch |
| Conflict | RuntimeError | 5 | somebody else wrote a waypoint in between |
| UnserialisableState | ValueError | 1 | a value that cannot be kept exactly |
| UnknownType | TypeError | 1 | a stored value of a type this program does not have |
| SchemaMismatch | ValueError | 1 | a stored value whose fields the type no longer has |
| StoreFailed | OSError | 1 | the disk refused: full, read-only, I/O error |
| StoreRefused | PermissionError | 1 | a store that cannot be used safely |
| NoRun | RuntimeError | 1 | `remark()` where no run is open |
"""

from __future__ import annotations

__all__ = [
    "CaravanseraiError",
    "Conflict",
    "InputChanged",
    "InvalidRunId",
    "JournalDamaged",
    "NewerFormat",
    "NoRun",
    "ProgramNotFound",
    "RunNotFound",
    "SchemaMismatch",
    "StaleWriter",
    "StoreBusy",
    "StoreFailed",
    "StoreRefused",
    "UnknownType",
    "UnserialisableState",
    "UsageError",
    "WaypointNotFound",
]


class CaravanseraiError(Exception):
    """The root of all errors raised by Caravanserai."""

    exit_code = 1


class InvalidRunId(CaravanseraiError, ValueError):
    """A run_id must be a string of at least one character."""

    exit_code = 2


class UsageError(CaravanseraiError, ValueError):
    """The arguments of a call do not fit together."""

    exit_code = 2


class InputChanged(CaravanseraiError, ValueError):
    """A job was started again under its run_id with another input than the recorded one."""

    exit_code = 2


class RunNotFound(CaravanseraiError, LookupError):
    """No run of this name is in the store."""

    exit_code = 3


class WaypointNotFound(CaravanseraiError, LookupError):
    """The run exists and has no waypoint of this number."""

    exit_code = 3


class ProgramNotFound(CaravanseraiError, FileNotFoundError):
    """The recorded program or its working folder is no longer there."""

    exit_code = 3


class JournalDamaged(CaravanseraiError, ValueError):
    """A journal does not hold what was written to it.

    Attributes:
        path: the damaged file, or the run's name in a store without files.
        offset: byte offset in that file where the damage begins, or None.
        last_waypoint: number of the last whole waypoint before it, or None.
    """

    exit_code = 4

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        offset: int | None = None,
        last_waypoint: int | None = None,
    ) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset
        self.last_waypoint = last_waypoint


class NewerFormat(CaravanseraiError, ValueError):
    """The journal was written in a newer major format than this version reads."""

    exit_code = 4


class StoreBusy(CaravanseraiError, TimeoutError):
    """Another process held the lock of the run for longer than the time-out."""

    exit_code = 5


class StaleWriter(CaravanseraiError, RuntimeError):
    """A writer with a higher epoch took the run over; nothing of this append was written."""

    exit_code = 5


class Conflict(CaravanseraiError, RuntimeError):
    """Another writer put a waypoint on this lane since this process last read it."""

    exit_code = 5


class UnserialisableState(CaravanseraiError, ValueError):
    """A value cannot be kept exactly; nothing was written.

    Attributes:
        path: where in the value, for example `$.a[3].b`.
    """

    def __init__(self, message: str, *, path: str = "$") -> None:
        super().__init__(message)
        self.path = path


class UnknownType(CaravanseraiError, TypeError):
    """A stored value has a type that the running program does not have.

    Attributes:
        path: where in the value, for example `$.a[3].b`.
        type_name: the stored name of the type.
    """

    def __init__(self, message: str, *, path: str = "$", type_name: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.type_name = type_name


class SchemaMismatch(CaravanseraiError, ValueError):
    """A stored value no longer fits the type of the running program.

    Attributes:
        path: where in the value, for example `$.a[3].b`.
    """

    def __init__(self, message: str, *, path: str = "$") -> None:
        super().__init__(message)
        self.path = path


class StoreFailed(CaravanseraiError, OSError):
    """The disk refused an operation; `errno` and `filename` say which and where."""

    def __init__(self, message: str, *, errno: int | None = None, filename: str = "") -> None:
        # OSError with two arguments would format its own text: keep ours, set its fields.
        super().__init__(message)
        self.errno = errno
        self.filename = filename

    def __str__(self) -> str:
        return str(self.args[0])


class StoreRefused(CaravanseraiError, PermissionError):
    """A store or run folder that cannot be used safely: a link, foreign owner, network disk."""


class NoRun(CaravanseraiError, RuntimeError):
    """A call that belongs to a run was made where no run is open."""
