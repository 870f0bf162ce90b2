"""What is recorded of a run since its newest waypoint, and what a start adds to it.

What a crash cut off is done again from its beginning: CrewAI asks the same models the same
things in the same order and calls the same tools, and each gets what is recorded here. A step is
told from others by its path (which task, which attempt of an agent, which tool's inside), by what
it is given, and by how many like it came before in that path. So the retry that CrewAI makes
when a model's server fails, which begins a task from its first line, repeats nothing either.
"""

from __future__ import annotations

import copy
import hashlib
import re
import threading
from collections import Counter
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from caravanserai_core.run import Run

MODEL = "model"
GUARDRAIL = "guardrail"
RAISED = "raised"
GIVEN = "given"
PERSON = "person"
CONDITION = "condition"

TOOL = "tool"

STEP = "step"
"""Name of the entries."""

_BY_CHANCE = re.compile(r"tool-result-[A-Za-z0-9_-]{16,}")


class Steps:
    """The steps that are recorded behind a waypoint, by key.

    Args:
        run: the run, opened.
        carried: those of work that was not at its end at that waypoint, as its state has them.
    """

    def __init__(self, run: Run, carried: dict[str, Any]) -> None:
        self._run = run
        self._known: dict[str, Any] = dict(carried)
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()
        for entry in run.entries():
            if entry.name == STEP and "key" in entry.meta:
                self._take(entry.meta["key"], entry.data)

    def _take(self, key: str, data: Any) -> None:
        if data is None:
            self._known.pop(key, None)
        else:
            self._known[key] = data

    def key(self, kind: str, path: str, about: str = "") -> str:
        """Return the key of a step that begins: the next one of its kind at a path."""
        name = f"{path}|{kind}|{about}"
        with self._lock:
            self._seen[name] += 1
            return f"{name}#{self._seen[name]}"

    def recorded(self, key: str) -> Any | None:
        """Return what is recorded under a key, or None; the caller may change it."""
        with self._lock:
            found = self._known.get(key)
        return None if found is None else copy.deepcopy(found)

    def record(self, key: str, data: Any, *, say: str | None = None, durable: bool = True) -> None:
        """Write down a step that ended; see `Run.entry`."""
        self._run.entry(STEP, data, say=say, meta={"key": key}, durable=durable)
        with self._lock:
            self._take(key, copy.deepcopy(data))

    def note(self, key: str, data: Any) -> None:
        """Keep what is recorded elsewhere, for states that are saved before its work ends."""
        with self._lock:
            self._known[key] = data

    def void(self, path: str, kinds: tuple[str, ...] = (MODEL,)) -> None:
        """Let the newest step of each kind below a path be done again by who asks again."""
        for kind in kinds:
            with self._lock:
                found = [key for key in self._known if below(key, path) and f"|{kind}|" in key]
            if found:
                self._run.entry(STEP, None, meta={"key": found[-1]}, durable=False)
                with self._lock:
                    self._known.pop(found[-1], None)

    def again(self, path: str) -> None:
        """Begin a path anew: what comes is given what is recorded of it."""
        with self._lock:
            for name in [name for name in self._seen if below(name, path)]:
                del self._seen[name]

    def below(self, *paths: str) -> dict[str, Any]:
        """Return what is recorded below some paths."""
        with self._lock:
            return {
                key: data
                for key, data in self._known.items()
                if any(below(key, path) for path in paths)
            }

    def forget(self, path: str) -> None:
        """Let go what is recorded below a path whose work has ended."""
        with self._lock:
            for key in [key for key in self._known if below(key, path)]:
                del self._known[key]


def below(name: str, path: str) -> bool:
    """Say whether the name of a step, or a path, is at a path or below it."""
    return name.startswith((f"{path}|", f"{path}/")) or name == path


class Place(NamedTuple):
    """Where in a run the code is that asks a model or calls a tool.

    Attributes:
        job: what the start does: a `_job.Job`.
        path: of what it is part.
        agent: role of the agent that works, or "".
        attempt: the agent and the task of the attempt that the path is of, or None.
    """

    job: Any
    path: str
    agent: str = ""
    attempt: tuple[Any, Any] | None = None

    @property
    def steps(self) -> Steps:
        """Those of the start."""
        return self.job.steps  # type: ignore[no-any-return]

    def inside(self, part: str) -> Place:
        """Return the place of a part of the work here."""
        return Place(self.job, f"{self.path}/{part}", self.agent)


here: ContextVar[Place | None] = ContextVar("caravanserai_crewai", default=None)
"""The place of the code that runs; None: in no run of ours."""


@contextmanager
def at(place: Place | None) -> Iterator[None]:
    """Let code run at a place."""
    token = here.set(place)
    try:
        yield
    finally:
        here.reset(token)


def without_chance(value: Any) -> Any:
    """Return a value without the names that CrewAI gives files of long results by chance."""
    if isinstance(value, str):
        return _BY_CHANCE.sub("tool-result-", value)
    if isinstance(value, dict):
        return {name: without_chance(one) for name, one in value.items()}
    return value


def simple_name(tool: str) -> str:
    """Return what the names of a tool have in common: *Look Up*, `look_up`, `LookUp`."""
    return re.sub(r"[\W_]+", "", tool).lower() or tool


def called_with(tool: str, arguments: dict[str, Any]) -> str:
    """Return what tells a call of a tool from others at a path; see `Steps.key`."""
    return f"{tool}({digest(without_chance(arguments))})"


def digest(*values: Any) -> str:
    """Return a digest of plain values, to compare them."""
    try:
        data = orjson.dumps(values, default=_plainly, option=_OPTIONS)
    except TypeError:  # half of a surrogate pair, an int of more than 64 bits, keys of two types
        data = repr(values).encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()[:16]


_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def _plainly(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else repr(type(value))
