"""Which run a thread of LangGraph is, and which of a config's values may be kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard
from uuid import UUID

from caravanserai_core.errors import UsageError
from caravanserai_core.names import check_run_id

if TYPE_CHECKING:
    from collections.abc import Collection

_INT: Final = re.compile(r"(str:)*int:-?\d+", re.ASCII)
"""Names of runs of int threads, and of string threads that look like one."""

KEPT_KEYS: Final = frozenset({"run_id", "user_id", "assistant_id", "graph_id", "turn"})
"""Keys of `configurable` that go into a checkpoint's metadata.

LangGraph's own savers keep every text and number that stands there, API keys too. What the
program puts into `config["metadata"]` is kept as well: it is there to be found by.
"""

# What LangGraph leaves out of the metadata: langgraph.checkpoint.base.EXCLUDED_METADATA_KEYS (4.3).
_EXCLUDED: Final = frozenset(
    {
        "thread_id",
        "checkpoint_id",
        "checkpoint_ns",
        "checkpoint_map",
        "langgraph_step",
        "langgraph_node",
        "langgraph_triggers",
        "langgraph_path",
        "langgraph_checkpoint_ns",
    }
)


class Target(NamedTuple):
    """What a config points at.

    Attributes:
        thread_id: as the program gave it.
        run_id: the run that holds the thread.
        ns: checkpoint namespace; the run's lane.
        checkpoint_id: a checkpoint, or None for the newest.
    """

    thread_id: str | int
    run_id: str
    ns: str
    checkpoint_id: str | None

    def config(self, checkpoint_id: str) -> dict[str, Any]:
        """Return the config of a checkpoint of this thread and namespace."""
        return {
            "configurable": {
                "thread_id": self.thread_id,
                "checkpoint_ns": self.ns,
                "checkpoint_id": checkpoint_id,
            }
        }


def target_of(config: Any) -> Target:
    """Read what a config points at.

    Raises:
        UsageError: it names no thread, or one of a type that is not kept apart from others.
        InvalidRunId: the thread's id cannot name a run.
    """
    configurable = config.get("configurable") if _is_mapping(config) else None
    if not _is_mapping(configurable) or "thread_id" not in configurable:
        raise UsageError('a thread is named by config={"configurable": {"thread_id": "…"}}')
    thread_id = configurable["thread_id"]
    ns = configurable.get("checkpoint_ns", "")
    if type(ns) is not str:
        raise UsageError("a checkpoint_ns is a string")
    _check_text(ns)
    checkpoint_id = checkpoint_id_of(config)
    run_id, thread = _named(thread_id) if type(thread_id) is str else _names(thread_id)
    return Target(thread, run_id, ns, checkpoint_id)


def _is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    return type(value) is dict or isinstance(value, Mapping)


def _names(thread_id: object) -> tuple[str, str | int]:
    """Return the run of a thread, and the thread's id as it is given back."""
    run_id = run_of(thread_id)
    return run_id, thread_of(run_id)


_named = lru_cache(maxsize=1024)(_names)


def checkpoint_id_of(config: Any) -> str | None:
    """Read which checkpoint a config points at, in whatever thread; None: in none or the newest.

    Raises:
        UsageError: it is no string.
    """
    checkpoint_id = ((config or {}).get("configurable") or {}).get("checkpoint_id") or None
    if checkpoint_id is None:
        return None
    if type(checkpoint_id) is not str:
        raise UsageError("a checkpoint_id is a string")
    _check_text(checkpoint_id)
    return checkpoint_id


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError("a checkpoint_ns or checkpoint_id holds half a surrogate pair") from None


def run_of(thread_id: object) -> str:
    """Return the run of a thread: `7` and `"7"` are two, a UUID is its string, `0` is `"0"`.

    Raises:
        UsageError: the id is neither a string, an int nor a UUID.
    """
    if type(thread_id) is int:
        # A graph hands 0 over now as it is, now as a string (langgraph 1.2.24).
        return f"int:{thread_id}" if thread_id else "0"
    if isinstance(thread_id, UUID):
        return str(thread_id)
    if not isinstance(thread_id, str):
        raise UsageError(
            f"a thread_id is a string, an int or a UUID, not {type(thread_id).__name__}: another "
            "type could not be told from its text"
        )
    thread_id = str.__str__(thread_id)
    return check_run_id(f"str:{thread_id}" if _INT.fullmatch(thread_id) else thread_id)


def thread_of(run_id: str) -> str | int:
    """Return the thread_id of a run."""
    if not _INT.fullmatch(run_id):
        return run_id
    if run_id.startswith("str:"):
        return run_id[len("str:") :]
    return int(run_id[len("int:") :])


def metadata_of(
    config: Mapping[str, Any], metadata: Mapping[str, Any], more: Collection[str]
) -> dict[str, Any]:
    """Return the metadata that is kept with a checkpoint.

    Args:
        config: the config that `put` was given.
        metadata: the metadata that it was given.
        more: keys of `configurable` that the user wants kept.
    """
    kept = {key: value for key, value in metadata.items() if key != "writes"}
    configurable = config.get("configurable") or {}
    for found, own in ((config.get("metadata") or {}, True), (configurable, False)):
        for key, value in found.items():
            # LangChain copies `configurable` into the metadata of a config.
            if (own and key not in configurable) or key in KEPT_KEYS or key in more:
                if key in kept or key in _EXCLUDED or key.startswith("__"):
                    continue
                if isinstance(value, (str, int, float, bool)):
                    kept[key] = value
    return kept
