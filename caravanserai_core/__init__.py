"""Waypoints for long-running agents: the format, the journal, and everything framework-neutral.

Users import `caravanserai`, which gives the same names and the adapters of the frameworks.
"""

from caravanserai_core.api import (
    acheckpoint,
    aget_waypoint,
    ahistory,
    aload,
    asave,
    checkpoint,
    clean,
    get_waypoint,
    history,
    last_updated,
    list_runs,
    load,
    load_command,
    load_latest,
    remark,
    save,
)
from caravanserai_core.codec import register_codec, register_type
from caravanserai_core.errors import (
    CaravanseraiError,
    Conflict,
    InputChanged,
    InvalidRunId,
    JournalDamaged,
    NewerFormat,
    NoRun,
    ProgramNotFound,
    RunNotFound,
    SchemaMismatch,
    StaleWriter,
    StoreBusy,
    StoreFailed,
    StoreRefused,
    UnknownType,
    UnserialisableState,
    UsageError,
    WaypointNotFound,
)
from caravanserai_core.listing import RunInfo
from caravanserai_core.notes import Note, PlanItem
from caravanserai_core.quoting import fenced, quoted
from caravanserai_core.reading import Waypoint
from caravanserai_core.resumable import again, resumable, resumable_iterate
from caravanserai_core.run import Run, current_run, open_run
from caravanserai_core.stores import FileStore, MemoryStore, Store, open_store
from caravanserai_core.work import Entry

__version__ = "1.0.0.dev0"

__all__ = [
    "CaravanseraiError",
    "Conflict",
    "Entry",
    "FileStore",
    "InputChanged",
    "InvalidRunId",
    "JournalDamaged",
    "MemoryStore",
    "NewerFormat",
    "NoRun",
    "Note",
    "PlanItem",
    "ProgramNotFound",
    "Run",
    "RunInfo",
    "RunNotFound",
    "SchemaMismatch",
    "StaleWriter",
    "Store",
    "StoreBusy",
    "StoreFailed",
    "StoreRefused",
    "UnknownType",
    "UnserialisableState",
    "UsageError",
    "Waypoint",
    "WaypointNotFound",
    "acheckpoint",
    "again",
    "aget_waypoint",
    "ahistory",
    "aload",
    "asave",
    "checkpoint",
    "clean",
    "current_run",
    "fenced",
    "get_waypoint",
    "history",
    "last_updated",
    "list_runs",
    "load",
    "load_command",
    "load_latest",
    "open_run",
    "open_store",
    "quoted",
    "register_codec",
    "register_type",
    "remark",
    "resumable",
    "resumable_iterate",
    "save",
]
