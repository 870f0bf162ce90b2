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
| RunBusy | RuntimeError | 5 | another living process works on the run |
| StoreBusy | TimeoutError | 5 | another process held the run's lock for too long |
| StaleWriter | RuntimeError | 5 | this writer was taken over by one with a higher epoch |
| Conflict | RuntimeError | 5 | somebody else wrote a waypoint in between |
| UnserialisableState | ValueError | 1 | a value that cannot be kept exactly |
| UnknownType | TypeError | 1 | a stored value of a type this program does not have |
| SecretFound | ValueError | 1 | a declared secret where it cannot be kept as a reference |
| SecretMissing | LookupError | 1 | a reference to a secret that this process does not have |
| SecretChanged | ValueError | 1 | a reference to a secret that has another value by now |
| SchemaMismatch | ValueError | 1 | a stored value whose fields the type no longer has |
| StoreFailed | OSError | 1 | the disk refused: full, read-only, I/O error |
| StoreRefused | PermissionError | 1 | a store that cannot be used safely |
| OnceKeyReused | ValueError | 2 | `once` with the label of a step that had other arguments |
| EffectUncertain | RuntimeError | 1 | a step began, never reported back, and may not be repeated |
| EffectStopped | RuntimeError | 1 | a person said that such a step ends the run |
| WaitingForPerson | RuntimeError | 6 | the run goes on when its question is answered |
| QuestionExpired | TimeoutError | 1 | nobody answered in time, and there is no default |
| AlreadyAnswered | RuntimeError | 2 | an answer to a question that has one |
| NoRun | RuntimeError | 1 | `remark()` where no run is open |
"""

from __future__ import annotations

__all__ = [
    "AlreadyAnswered",
    "CaravanseraiError",
    "Conflict",
    "EffectStopped",
    "EffectUncertain",
    "InputChanged",
    "InvalidRunId",
    "JournalDamaged",
    "NewerFormat",
    "NoRun",
    "OnceKeyReused",
    "ProgramNotFound",
    "QuestionExpired",
    "RunBusy",
    "RunNotFound",
    "SchemaMismatch",
    "SecretChanged",
    "SecretFound",
    "SecretMissing",
    "StaleWriter",
    "StoreBusy",
    "StoreFailed",
    "StoreRefused",
    "UnknownType",
    "UnserialisableState",
    "UsageError",
    "WaitingForPerson",
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


class RunBusy(CaravanseraiError, RuntimeError):
    """Another living process works on the run, and two at once would spoil each other's work.

    Attributes:
        run_id: the run.
        host: name of the machine that the process runs on, "" where that is not known.
        pid: its process id there, 0 where that is not known.
        since: when it began, ISO 8601 in UTC, "" where that is not known.
    """

    exit_code = 5

    def __init__(
        self, message: str, *, run_id: str = "", host: str = "", pid: int = 0, since: str = ""
    ) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.host = host
        self.pid = pid
        self.since = since


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


class SecretFound(UnserialisableState):
    """A secret stands where it can neither be written nor replaced; nothing was written.

    Attributes:
        path: where, for example `$.a[3].b`, or in words: `the run_id`.
        name: which one, `env:NAME` or `name:NAME`; for one that was not declared its kind.
    """

    def __init__(self, message: str, *, path: str = "$", name: str = "") -> None:
        super().__init__(message, path=path)
        self.name = name


class SecretMissing(CaravanseraiError, LookupError):
    """A stored state refers to a secret that this process does not have.

    Attributes:
        path: where in the value, for example `$.a[3].b`.
        name: which one, `env:NAME` or `name:NAME`.
    """

    def __init__(self, message: str, *, path: str = "$", name: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.name = name


class SecretChanged(CaravanseraiError, ValueError):
    """A secret has another value than the one that was saved, and was declared not to change.

    Attributes:
        path: where in the value, for example `$.a[3].b`.
        name: which one, `env:NAME` or `name:NAME`.
    """

    def __init__(self, message: str, *, path: str = "$", name: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.name = name


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


class OnceKeyReused(UsageError):
    """A step was asked for under a name that a step with other arguments has."""


class EffectUncertain(CaravanseraiError, RuntimeError):
    """A step under `once` began and never reported back: it may have happened or not.

    Attributes:
        label: its name.
    """

    def __init__(self, message: str, *, label: str = "") -> None:
        super().__init__(message)
        self.label = label


class EffectStopped(EffectUncertain):
    """A person was asked about an uncertain step, and said that it ends the run."""


class WaitingForPerson(CaravanseraiError, RuntimeError):
    """The run waits for the answer of a person. It is no failure, and holds no process.

    Attributes:
        run_id: the run.
        questions: ids of its open questions.
    """

    exit_code = 6

    def __init__(self, message: str, *, run_id: str = "", questions: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.questions = questions


class QuestionExpired(CaravanseraiError, TimeoutError):
    """Nobody answered a question in time, and the program has no default for it.

    Attributes:
        question: its id.
    """

    def __init__(self, message: str, *, question: str = "") -> None:
        super().__init__(message)
        self.question = question


class AlreadyAnswered(CaravanseraiError, RuntimeError):
    """A question has an answer already; the first one counts.

    Attributes:
        question: its id.
        by: who answered.
        time: when, ISO 8601 in UTC.
    """

    exit_code = 2

    def __init__(self, message: str, *, question: str = "", by: str = "", time: str = "") -> None:
        super().__init__(message)
        self.question = question
        self.by = by
        self.time = time


class NoRun(CaravanseraiError, RuntimeError):
    """A call that belongs to a run was made where no run is open."""
